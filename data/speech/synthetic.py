"""Synthetic speech in the flat layout of TIMIT: sentences of an invented language, by invented speakers.

It stands in for a corpus that may not be distributed: results on it show that the code works, not how well it does on
real speech.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tqdm.auto

from data import locks
from data.errors import DataError
from data.speech.acoustics import Voice, speak
from data.speech.audio import write_riff
from data.speech.phones import PHONES

VERSION = 1  # part of the name of a cached corpus: raise it when the bytes change
SPOKEN_BY_ALL = 2  # sa1 and sa2
MAX_NUMBER = 999  # of speakers and of sentences: the name of a speaker has three digits
WORDS = 400
PHONES_OF_A_SENTENCE = 38  # including silences; about 3 s

# Repeated in proportion to their probability; "+" joins a cluster, "-" is empty.
ONSETS = (
    "- - - - - - - - t t t t d d d s s s n n n r r r l l l k k k dh dh dh m m m b b p p f f w w w hh hh hh v y y g g sh jh "
    "ch th z zh s+t s+t p+r t+r k+r g+r f+r p+l k+l b+l s+l s+k k+w s+w s+t+r s+n s+m"
).split()
STRESSED = "iy iy iy ih ih ih eh eh ae ae aa aa ah ah ao ao uh uw ux ux er er ey ey ay ay oy aw ow ow".split()
REDUCED = "ax ax ax ax ix ix ix ix ix axr axr el en em eng iy".split()
CODAS = "- - - - n n t t s z z d l l r r k m m ng ng v f th b p g sh ch jh n+t s+t n+d k+s l+d".split()

SYLLABIC = {"el", "en", "em", "eng"}
VOWELS = (set(STRESSED) | set(REDUCED)) - SYLLABIC
SONORANTS = SYLLABIC | VOWELS | {"l", "r", "w", "y", "m", "n", "ng"}
VOICELESS = {"p", "t", "k", "ch", "s", "sh", "f", "th"}
CLOSURES = {**{stop: f"{stop}cl" for stop in "bdgptk"}, "ch": "tcl", "jh": "dcl"}

Word = list[str]


def write_corpus(root: Path, speakers: int = 16, sentences: int = 8, seed: int = 0, progress: bool = True) -> Path:
    """Writes root/dr1-f000/sx1.wav, sx1.phn, ..., which depend on the arguments alone; returns `root`.

    Args:
      sentences: per speaker, sx1, sx2, ..., which nobody else reads; sa1 and sa2, which everybody reads, are added.
    """
    _check(speakers, sentences, seed)
    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise DataError(f"{root} exists and is not an empty directory; choose a new one for the synthetic corpus.")
    words = lexicon(np.random.default_rng([seed, 0]))
    for s in tqdm.auto.trange(speakers, desc="synthetic speech", unit="speaker", disable=not progress):
        voice = draw_voice(s, seed)
        folder = root / f"dr{s % 8 + 1}-{'mf'[s % 2 == 0]}{s:03d}"
        folder.mkdir(parents=True)
        for i in range(SPOKEN_BY_ALL + sentences):
            shared = i < SPOKEN_BY_ALL
            text = sentence(words, np.random.default_rng([seed, 1, 0 if shared else s, i]))
            samples, ends = speak(text, voice, np.random.default_rng([seed, 2, s, i]))
            name = f"sa{i + 1}" if shared else f"sx{i - SPOKEN_BY_ALL + 1}"
            write_riff(folder / f"{name}.wav", samples)
            lines = [f"{begin} {end} {phone}\n" for begin, end, phone in zip([0, *ends], ends, text, strict=False)]
            (folder / f"{name}.phn").write_text("".join(lines), newline="\n")
    return root


def find_or_write(cache_root: Path, speakers: int = 16, sentences: int = 8, seed: int = 0, progress: bool = True) -> Path:
    """The corpus of `write_corpus` in a folder of `cache_root` named after the arguments; written once, atomically."""
    _check(speakers, sentences, seed)
    folder = cache_root / f"synthetic_speech-v{VERSION}-{speakers}x{sentences}-seed{seed}"
    if folder.is_dir():
        return folder
    try:
        cache_root.mkdir(parents=True, exist_ok=True)
        with locks.alone(folder):
            if not folder.is_dir():  # another process may have been faster
                _write_atomically(folder, speakers, sentences, seed, progress)
    except OSError as error:
        raise DataError(
            f"cache_root {cache_root} cannot be used ({error}); choose a writable one with enough space."
        ) from None
    return folder


def _write_atomically(folder: Path, speakers: int, sentences: int, seed: int, progress: bool) -> None:
    with tempfile.TemporaryDirectory(prefix=".synthetic_speech-", dir=folder.parent) as temporary:
        written = write_corpus(Path(temporary) / folder.name, speakers, sentences, seed, progress)
        try:
            written.rename(folder)
        except OSError:  # a process without locks may have been faster, and has written the same bytes
            if not folder.is_dir():
                raise


def _check(speakers: int, sentences: int, seed: int) -> None:
    for name, value in (("speakers", speakers), ("sentences", sentences)):
        if not 1 <= value <= MAX_NUMBER:
            raise DataError(f"{name} is {value}; choose a number from 1 to {MAX_NUMBER}.")
    if seed < 0:
        raise DataError(f"seed is {seed}; choose 0 or more.")


def draw_voice(speaker: int, seed: int) -> Voice:
    """The voice of a speaker; those with even numbers are women, with shorter vocal tracts and higher pitch."""
    rng = np.random.default_rng([seed, 3, speaker])
    female = speaker % 2 == 0
    return Voice(
        scale=rng.uniform(1.02, 1.2) if female else rng.uniform(0.85, 1.03),
        pitch=rng.uniform(165, 250) if female else rng.uniform(85, 150),
        liveliness=rng.uniform(0.05, 0.15),
        breath=rng.uniform(0.01, 0.06),
        tempo=rng.uniform(0.85, 1.2),
        tilt=rng.uniform(0.2, 0.8),
        damping=rng.uniform(1, 1.3),
        laziness=rng.uniform(3, 5),
        noise=10 ** rng.uniform(-2.2, -1.3),
        accent=np.exp(0.06 * rng.standard_normal((len(PHONES), 3))),
    )


def lexicon(rng: np.random.Generator, size: int = WORDS) -> list[Word]:
    """Random words of one to three syllables, one of them stressed; frequent words come first."""
    return [_word(rng) for _ in range(size)]


def _word(rng: np.random.Generator) -> Word:
    syllables = rng.choice([1, 2, 3], p=[0.5, 0.35, 0.15])
    stressed = rng.integers(syllables)
    word: Word = []
    for i in range(syllables):
        onset, coda = str(rng.choice(ONSETS)), str(rng.choice(CODAS))
        nucleus = str(rng.choice(STRESSED if i == stressed else REDUCED))
        if nucleus in SYLLABIC:
            onset, coda = onset.replace("-", "t"), "-"
        if i + 1 < syllables and rng.random() < 0.6:
            coda = "-"
        word += [phone for part in (onset, nucleus, coda) for phone in part.split("+") if phone != "-"]
    return word


def sentence(words: list[Word], rng: np.random.Generator, length: int = PHONES_OF_A_SENTENCE) -> list[str]:
    """The pronunciation of words drawn with probability ~ 1 / (rank + 60) until there are `length` phones."""
    weights = 1 / (np.arange(len(words)) + 60)
    spoken = ["h#"]
    while len(spoken) < length:
        if len(spoken) > 1 and rng.random() < 0.07:
            spoken.append("pau")
        word = words[rng.choice(len(words), p=weights / weights.sum())]
        if word[0] in VOWELS and rng.random() < 0.4:
            spoken.append("q")
        for i, phone in enumerate(word):
            spoken += _pronounced(phone, spoken[-1], word[i + 1] if i + 1 < len(word) else "", i == 0, rng)
    return [*spoken, "h#"]


def _pronounced(phone: str, before: str, after: str, first: bool, rng: np.random.Generator) -> list[str]:
    """The pronunciation of a phone between its neighbours; `after` is empty at the end of a word."""
    likely = rng.random() < 0.6
    if phone in CLOSURES:
        if phone in "td" and not first and before in VOWELS and after in VOWELS | {"el"}:
            return ["dx"]
        closure = [] if before == CLOSURES[phone] else [CLOSURES[phone]]
        released = phone in ("ch", "jh") or after in SONORANTS or likely
        return closure + [phone] * (released or not closure)
    if phone == "n" and likely and not first and before in VOWELS and after in VOWELS:
        return ["nx"]
    if phone == "hh" and likely and before in SONORANTS:
        return ["hv"]
    if phone in ("ax", "ix") and likely and before in VOICELESS and after in VOICELESS:
        return ["ax-h"]
    if phone in ("l", "m", "n", "w", "r") and likely and before in ("s", "sh", "f", "z"):
        return ["epi", phone]
    return [phone]
