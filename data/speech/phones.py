"""The 61 phones of TIMIT, their transcriptions (.phn files), and the state of every frame."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.errors import DataError

PHONES: tuple[str, ...] = tuple(
    sorted(
        "b d g p t k dx q bcl dcl gcl pcl tcl kcl jh ch "  # stops, their closures, affricates
        "s sh z zh f th v dh m n ng em en eng nx l r w y hh hv el "
        "iy ih eh ey ae aa aw ay ah ao oy ow uh uw ux er ax ix axr ax-h "
        "pau epi h#".split()
    )
)
STATES = 3  # of a phone: its first, second and last third
INDEX = {phone: i for i, phone in enumerate(PHONES)}


class Segment(NamedTuple):
    """Samples begin <= t < end are PHONES[phone]."""

    begin: int
    end: int
    phone: int


def read_phn(path: Path) -> list[Segment]:
    """The segments of a sentence, which start at sample 0 and have no gaps; a line is `begin end phone`."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; every .wav file needs a .phn file beside it.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); choose a readable file.") from None
    if not text.strip():
        raise DataError(f"{path} is empty; copy it again.")
    segments: list[Segment] = []
    for number, line in enumerate(text.rstrip().split("\n"), 1):
        segments.append(_segment(line.strip(), segments[-1].end if segments else 0, f"{path}, line {number}"))
    return segments


def frame_labels(segments: list[Segment], frames: int, hop: int = 160, width: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """State (uint8) and segment (int32, index into `segments`) of each frame, [n] with n <= frames.

    Frame i is centred at c = hop i + width / 2. It belongs to the segment with begin <= c < end and has the state
    STATES phone + floor(STATES (c - begin) / (end - begin)). Frames centred after the last segment are dropped.
    """
    if not segments or segments[0].begin != 0:
        problem = f"begins at sample {segments[0].begin}" if segments else "has no segments"
        raise DataError(f"the transcription {problem}; it must begin at sample 0.")
    begin, end, phone = np.array(segments, np.int64).T
    centres = hop * np.arange(frames, dtype=np.int64) + width // 2
    centres = centres[: np.searchsorted(centres, end[-1])]
    segment = np.searchsorted(end, centres, side="right")
    third = STATES * (centres - begin[segment]) // (end - begin)[segment]
    return (STATES * phone[segment] + third).astype(np.uint8), segment.astype(np.int32)


def _segment(line: str, expected: int, where: str) -> Segment:
    """The segment of a line, which must begin at `expected`: where the previous line ended, or 0."""
    parts = line.split()
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts[:2]):
        raise DataError(f"{where}: '{line[:60]}' is not `begin end phone`; correct it.")
    begin, end = int(parts[0]), int(parts[1])
    if parts[2] not in INDEX:
        raise DataError(f"{where}: '{parts[2][:60]}' is not one of the {len(PHONES)} phones of TIMIT; correct it.")
    if end <= begin:
        raise DataError(f"{where}: the segment ends at {end}, which is not after its beginning at {begin}; correct it.")
    if begin != expected:
        fault = "overlaps the previous line, which ends" if begin < expected else "leaves a gap: the previous line ends"
        reason = f"{fault} at {expected}" if expected else "is the first segment and must begin at 0"
        raise DataError(f"{where}: the segment from {begin} to {end} {reason}; correct it.")
    return Segment(begin, end, INDEX[parts[2]])
