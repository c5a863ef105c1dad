"""The sentences of TIMIT on disk, in the layout of LDC or a flat one, and which are for training, validation and testing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.errors import DataError

CORE_TEST = frozenset(  # the speakers of the test set that results are reported on; the other 144 are for validation
    "mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 "
    "mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0".split()
)
FLAT = re.compile(r"dr\d+-(\w+)", re.IGNORECASE)
ORDER_SEED = 0  # of the speakers of a flat corpus


class Utterance(NamedTuple):
    """A sentence of a speaker, names in lower case; `part` is "train" or "test", or "" in the flat layout."""

    speaker: str
    sentence: str
    part: str
    wave: Path
    phn: Path


class Split(NamedTuple):
    """Indices of utterances, int64; no speaker is in two of them."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def find(root: Path, include_sa: bool = False) -> list[Utterance]:
    """The utterances under `root`, sorted by path.

    Two layouts, in any mixture of upper and lower case: root/TRAIN/DR1/FCJF0/SX37.WAV and root/TEST/..., as LDC ships it
    (`root` may also be one or two folders named TIMIT above); and root/dr1-fcjf0/sx37.wav. A .phn stands beside each.

    Args:
      include_sa: with the two sentences that every speaker says. They are left out by default: a model that has heard
        them in training knows what comes next.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give the one that holds TRAIN and TEST, or dr1-fcjf0 and its like.")
    found = sorted(_ldc(root) or _flat(root), key=lambda u: u.wave.as_posix().lower())
    if not found:
        raise DataError(
            f"{root} has no speech: neither TRAIN/DR1/FCJF0/SX37.WAV nor dr1-fcjf0/sx37.wav nor the like (in upper or "
            "lower case) is there; give the folder that holds TRAIN and TEST, or that holds dr1-fcjf0 and its like."
        )
    chosen = [u for u in found if include_sa or not u.sentence.startswith("sa")]
    if not chosen:
        raise DataError(f"{root} has only SA sentences ({len(found)} of them); read them with include_sa.")
    return chosen


def split(utterances: list[Utterance], fold: int = 0) -> Split:
    """Training, validation and test utterances, of different speakers.

    In the LDC layout TRAIN, the rest of TEST, and the 24 speakers of the core test set. In the flat one the S speakers
    stand in a fixed shuffled order; of n = round(3 S / 16), fold f tests on number f n to (f + 1) n and validates on the
    n that follow, going round.
    """
    if all(u.part for u in utterances):
        if fold != 0:
            raise DataError(f"fold is {fold}, but the split of the whole corpus is a fixed one; choose 0.")
        kinds = [0 if u.part == "train" else 2 if u.speaker in CORE_TEST else 1 for u in utterances]
    else:
        turn = _turns(sorted({u.speaker for u in utterances}), fold)
        kinds = [turn[u.speaker] for u in utterances]
    parts = [np.flatnonzero(np.array(kinds) == kind) for kind in range(3)]
    for part, name in zip(parts, ("TRAIN", "TEST outside the core test set", "the core test set"), strict=True):
        if not len(part):
            raise DataError(f"there are no utterances of {name}; copy the whole corpus.")
    return Split(*parts)


def _ldc(root: Path) -> list[Utterance]:
    for _ in range(3):
        inside = {folder.name.lower(): folder for folder in _folders(root)}
        if "train" in inside or "test" in inside:
            parts = [(part, inside[part]) for part in ("train", "test") if part in inside]
            return [
                utterance
                for part, folder in parts
                for region in _folders(folder)
                if re.fullmatch(r"dr\d+", region.name.lower())
                for speaker in _folders(region)
                for utterance in _of_speaker(speaker, speaker.name.lower(), part)
            ]
        if "timit" not in inside:
            break
        root = inside["timit"]
    return []


def _flat(root: Path) -> list[Utterance]:
    named = [(folder, FLAT.fullmatch(folder.name)) for folder in _folders(root)]
    return [u for folder, match in named if match for u in _of_speaker(folder, match[1].lower(), "")]


def _of_speaker(folder: Path, speaker: str, part: str) -> Iterator[Utterance]:
    """A sentence has a .wav, a .phn or both; where one is missing, reading it will say so."""
    files: dict[str, Path] = {}
    for file in _entries(folder):
        name, dot, kind = file.name.lower().partition(".")
        if not (name and dot and kind in ("wav", "phn")):  # SA1.WAV.wav is a copy that some keep beside
            continue
        if (other := files.setdefault(f"{name}.{kind}", file)) != file:
            raise DataError(f"{other} and {file.name} are the same sentence twice; keep one of them.")
    for name in sorted({key.partition(".")[0] for key in files}):
        wave, phn = files.get(f"{name}.wav"), files.get(f"{name}.phn")
        there = wave or phn
        assert there is not None
        upper = there.suffix.isupper()
        wave = wave or there.with_suffix(".WAV" if upper else ".wav")
        yield Utterance(speaker, name, part, wave, phn or there.with_suffix(".PHN" if upper else ".phn"))


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _entries(root) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror}); choose a folder that can.") from None


def _turns(speakers: list[str], fold: int) -> dict[str, int]:
    """Of each speaker: 0 for training, 1 for validation, 2 for testing."""
    count = len(speakers)
    if count < 3:
        raise DataError(f"there are {count} speakers; training, validation and testing need 3 or more different ones.")
    some = max(1, round(3 * count / 16))
    folds = count // some
    if not 0 <= fold < folds:
        raise DataError(f"fold is {fold}; {count} speakers make {folds} folds: choose 0 to {folds - 1}.")
    order = np.random.default_rng(ORDER_SEED).permutation(count)
    turned = [speakers[s] for s in np.roll(order, -fold * some)]
    return {speaker: 2 if i < some else 1 if i < 2 * some else 0 for i, speaker in enumerate(turned)}
