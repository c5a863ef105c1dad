"""Finds the sentences of TIMIT on disk, in the layout of the LDC or a flat one, and splits them by speaker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.errors import DataError

CORE_TEST = frozenset(  # the test speakers that results are reported on; the other 144 are for validation
    "mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 "
    "mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0".split()
)
FLAT = re.compile(r"dr\d+-(\w+)", re.IGNORECASE)
ORDER_SEED = 0  # shuffles the speakers of a flat corpus


class Utterance(NamedTuple):
    """A sentence read by a speaker, with names in lower case; `part` is "train", "test", or "" in the flat layout."""

    speaker: str
    sentence: str
    part: str
    wave: Path
    phn: Path


class Split(NamedTuple):
    """Indices of utterances, int64; no speaker is in two parts."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def find(root: Path, include_sa: bool = False) -> list[Utterance]:
    """The utterances under `root`, sorted by path.

    There are two layouts, in any mixture of upper and lower case: root/TRAIN/DR1/FCJF0/SX37.WAV and root/TEST/..., as the
    LDC ships it (`root` may also be one or two folders named TIMIT above); and root/dr1-fcjf0/sx37.wav. Every .wav has a
    .phn beside it.

    Args:
      include_sa: includes the two sentences that every speaker reads. They are left out by default, because a model that
        has heard them in training knows what comes next.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give the one that contains TRAIN and TEST, or folders such as dr1-fcjf0.")
    utterances = sorted(_ldc(root) or _flat(root), key=lambda u: u.wave.as_posix().lower())
    if not utterances:
        raise DataError(
            f"{root} contains no speech: no file like TRAIN/DR1/FCJF0/SX37.WAV or dr1-fcjf0/sx37.wav (in upper or lower "
            "case); give the folder that contains TRAIN and TEST, or folders such as dr1-fcjf0."
        )
    chosen = [u for u in utterances if include_sa or not u.sentence.startswith("sa")]
    if not chosen:
        raise DataError(f"{root} contains only SA sentences ({len(utterances)} of them); read them with include_sa.")
    return chosen


def split(utterances: list[Utterance], fold: int = 0) -> Split:
    """Training, validation and test utterances, of different speakers.

    In the LDC layout these are TRAIN, the rest of TEST, and the 24 speakers of the core test set. In the flat layout the
    S speakers are put in a fixed shuffled order. With n = round(3 S / 16), fold f tests on the speakers f n to (f + 1) n,
    validates on the next n, starting over at the end, and trains on the others.
    """
    if all(u.part for u in utterances):
        if fold != 0:
            raise DataError(f"fold is {fold}, but the split of the whole corpus is fixed; choose 0.")
        roles = [0 if u.part == "train" else 2 if u.speaker in CORE_TEST else 1 for u in utterances]
    else:
        role_of = _roles(sorted({u.speaker for u in utterances}), fold)
        roles = [role_of[u.speaker] for u in utterances]
    parts = [np.flatnonzero(np.array(roles) == role) for role in range(3)]
    for part, name in zip(parts, ("TRAIN", "TEST outside the core test set", "the core test set"), strict=True):
        if not len(part):
            raise DataError(f"there are no utterances of {name}; copy the whole corpus.")
    return Split(*parts)


def _ldc(root: Path) -> list[Utterance]:
    for _ in range(3):
        folders = {folder.name.lower(): folder for folder in _folders(root)}
        if "train" in folders or "test" in folders:
            parts = [(part, folders[part]) for part in ("train", "test") if part in folders]
            return [
                utterance
                for part, folder in parts
                for region in _folders(folder)
                if re.fullmatch(r"dr\d+", region.name.lower())
                for speaker in _folders(region)
                for utterance in _of_speaker(speaker, speaker.name.lower(), part)
            ]
        if "timit" not in folders:
            break
        root = folders["timit"]
    return []


def _flat(root: Path) -> list[Utterance]:
    named = [(folder, FLAT.fullmatch(folder.name)) for folder in _folders(root)]
    return [u for folder, match in named if match for u in _of_speaker(folder, match[1].lower(), "")]


def _of_speaker(folder: Path, speaker: str, part: str) -> Iterator[Utterance]:
    """Every sentence with a .wav or a .phn; if one of them is missing, reading it will raise."""
    files: dict[str, Path] = {}
    for file in _entries(folder):
        name, dot, kind = file.name.lower().partition(".")
        if not (name and dot and kind in ("wav", "phn")):  # SA1.WAV.wav is a converted copy that some distributions add
            continue
        if (other := files.setdefault(f"{name}.{kind}", file)) != file:
            raise DataError(f"{other} and {file.name} are the same sentence; keep one of them.")
    for name in sorted({key.partition(".")[0] for key in files}):
        wave, phn = files.get(f"{name}.wav"), files.get(f"{name}.phn")
        existing = wave or phn
        assert existing is not None
        upper = existing.suffix.isupper()
        wave = wave or existing.with_suffix(".WAV" if upper else ".wav")
        yield Utterance(speaker, name, part, wave, phn or existing.with_suffix(".PHN" if upper else ".phn"))


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _entries(root) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror}); choose a readable folder.") from None


def _roles(speakers: list[str], fold: int) -> dict[str, int]:
    """The role of each speaker: 0 for training, 1 for validation, 2 for testing."""
    count = len(speakers)
    if count < 3:
        raise DataError(f"there are {count} speakers; training, validation and testing need at least 3 different ones.")
    held_out = max(1, round(3 * count / 16))
    folds = count // held_out
    if not 0 <= fold < folds:
        raise DataError(f"fold is {fold}; {count} speakers make {folds} folds: choose 0 to {folds - 1}.")
    order = np.random.default_rng(ORDER_SEED).permutation(count)
    rotated = [speakers[s] for s in np.roll(order, -fold * held_out)]
    return {speaker: 2 if i < held_out else 1 if i < 2 * held_out else 0 for i, speaker in enumerate(rotated)}
