"""TIMIT, or a corpus with the same layout: transcribed sentences as frames of 123 features with a phone state each.

TIMIT itself is not distributed with this project; it is sold by the Linguistic Data Consortium (LDC93S1).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tqdm.auto

from data.errors import DataError
from data.speech import cache, features
from data.speech.audio import RATE, read_wave
from data.speech.phones import frame_labels, read_phn
from data.speech.timit_files import Split as Split
from data.speech.timit_files import Utterance, find
from data.speech.timit_files import split as split

WINDOW = 11  # frames in a model's input: one, and five on each side
SLACK = RATE // 2  # samples; transcriptions in TIMIT outlast the sound by a few, never by half a second
LAYOUT = 1  # version of the cached arrays: raise it when they change


class Corpus(NamedTuple):
    """N frames of U consecutive utterances, with S segments.

    features: float32 [N, 123], not scaled; memory-mapped and read-only if they come from a cache.
    offsets: int64 [U + 1]; utterance u has the frames offsets[u] to offsets[u + 1].
    states: uint8 [N], 0..182.
    segments: int32 [N], index into `phones`.
    phones: uint8 [S], index into PHONES.
    phone_offsets: int64 [U + 1]; utterance u has the segments phone_offsets[u] to phone_offsets[u + 1].
    skipped: an error message for each utterance that was left out because it is broken.
    """

    utterances: list[Utterance]
    features: np.ndarray
    offsets: np.ndarray
    states: np.ndarray
    segments: np.ndarray
    phones: np.ndarray
    phone_offsets: np.ndarray
    skipped: list[str]


class Scaling(NamedTuple):
    """Mean and standard deviation of each feature, float32 [123]."""

    mean: np.ndarray
    deviation: np.ndarray


def load(
    root: Path,
    include_sa: bool = False,
    cache_dir: Path | None = None,
    skip_bad_files: bool = False,
    progress: bool = True,
    kind: str = "cepstra",
) -> Corpus:
    """Reads the corpus and computes its features, or takes them from the cache if no file has changed.

    Args:
      cache_dir: where features are stored (about 0.5 kB per frame, 0.7 GB for all of TIMIT); None stores nothing.
      skip_bad_files: leaves out utterances that cannot be read and lists them in `skipped`, instead of raising.
      kind: "cepstra" or "bands"; see `data.speech.features`.
    """
    if kind not in features.KINDS:
        raise DataError(f"kind is '{kind}'; choose one of {', '.join(features.KINDS)}.")
    utterances = find(root, include_sa)

    def build(write: cache.Write) -> tuple[dict[str, np.ndarray], list[str]]:
        return _read_all(utterances, kind, write, skip_bad_files, progress)

    if cache_dir is None:
        rows: list[np.ndarray] = []
        arrays, skipped = build(rows.append)
        frames = np.concatenate(rows)
    else:
        versions = {"features": features.VERSION, "layout": LAYOUT}
        settings = {**versions, "sa": include_sa, "skip": skip_bad_files, "kind": kind}
        name = cache.digest(settings, root, [file for u in utterances for file in (u.wave, u.phn)])
        frames, arrays, skipped = cache.cached(cache_dir / name, features.FEATURES, build)
    kept = [utterances[u] for u in arrays.pop("kept")]
    return Corpus(kept, frames, skipped=skipped, **arrays)


def scaling(corpus: Corpus, utterances: np.ndarray) -> Scaling:
    """Scaling over the frames of these (training) utterances; the deviation of a constant feature is set to 1.

    With d = x - x_0, where x_0 is the first frame: mean = x_0 + E d, variance = E d^2 - (E d)^2, in float64.
    """
    if not len(utterances):
        raise DataError("there are no utterances to compute the scaling from; choose at least one.")
    first = corpus.features[corpus.offsets[utterances[0]]].astype(np.float64)
    count, total, squares = 0, np.zeros_like(first), np.zeros_like(first)
    for u in utterances:
        difference = corpus.features[corpus.offsets[u] : corpus.offsets[u + 1]] - first
        count += len(difference)
        total += difference.sum(axis=0)
        squares += np.einsum("nd,nd->d", difference, difference)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0)).astype(np.float32)
    return Scaling((first + mean).astype(np.float32), np.where(deviation > 0, deviation, np.float32(1)))


def frames_of(corpus: Corpus, utterances: np.ndarray) -> np.ndarray:
    """The indices of the frames of these utterances, int32."""
    ranges = [np.arange(corpus.offsets[u], corpus.offsets[u + 1], dtype=np.int32) for u in utterances]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.int32)


def bounds(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """For each frame, the first and the last frame of its utterance; int32 [N] each."""
    lengths = np.diff(corpus.offsets)
    first, last = corpus.offsets[:-1].astype(np.int32), (corpus.offsets[1:] - 1).astype(np.int32)
    return np.repeat(first, lengths), np.repeat(last, lengths)


def _read_all(
    utterances: list[Utterance], kind: str, write: cache.Write, skip_bad_files: bool, progress: bool
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Passes the features of each utterance to `write`; returns the other arrays of the corpus, and what was skipped."""
    kept, skipped, states, segments, phones = [], [], [], [], []
    total = 0
    for u, utterance in enumerate(tqdm.auto.tqdm(utterances, desc="speech", unit="sentence", disable=not progress)):
        try:
            frames, state, segment, phone = _read(utterance, kind)
        except DataError as error:
            if not skip_bad_files:
                message = str(error).rstrip(".")
                raise DataError(f"{message}, or leave such sentences out with skip_bad_files.") from None
            skipped.append(str(error))
            continue
        write(frames)
        kept.append(u)
        states.append(state)
        segments.append(segment + np.int32(total))
        phones.append(phone)
        total += len(phone)
    if not kept:
        raise DataError(
            f"all {len(utterances)} sentences are broken, so nothing is left to learn from; the first: {skipped[0]}"
        )
    arrays = {
        "kept": np.array(kept),
        "offsets": _offsets(states),
        "states": np.concatenate(states),
        "segments": np.concatenate(segments),
        "phones": np.concatenate(phones),
        "phone_offsets": _offsets(phones),
    }
    return arrays, skipped


def _offsets(parts: list[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _read(utterance: Utterance, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, states and segments of the labelled frames, and the phones of the segments."""
    segments = read_phn(utterance.phn)
    samples = read_wave(utterance.wave)
    if segments[-1].end > len(samples) + SLACK:
        raise DataError(
            f"{utterance.phn} ends at sample {segments[-1].end}, but {utterance.wave.name} has only {len(samples)} samples; "
            "one of them is cut off or belongs to another sentence: copy both again."
        )
    try:
        frames = features.features(samples, kind)
    except DataError as error:
        raise DataError(f"{utterance.wave}: {error}") from None
    states, frame_segments = frame_labels(segments, len(frames), features.HOP, features.WIDTH)
    if not len(states):
        raise DataError(
            f"{utterance.phn} ends at sample {segments[-1].end}, before the middle of the first frame; copy it again."
        )
    return frames[: len(states)], states, frame_segments, np.array([s.phone for s in segments], np.uint8)
