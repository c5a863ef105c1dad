"""Small corpora for tests: random frames that train in a moment, and noise files in both layouts of TIMIT."""

import numpy as np

from data.speech import timit
from data.speech.audio import write_riff, write_sphere
from data.speech.phones import PHONES

ARRAYS = ("features", "offsets", "states", "segments", "phones", "phone_offsets")


def tiny_corpus(seed: int = 0, speakers: int = 6, sentences: int = 3, frames: int = 40) -> timit.Corpus:
    """Sentences of four phones of ten frames each; the 123 features of a frame depend on its class."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(183, 123))
    utterances = [timit.Utterance(f"s{s}", f"sx{i}", "", None, None) for s in range(speakers) for i in range(sentences)]
    phones = rng.integers(0, 6, size=(len(utterances), 4)).astype(np.uint8)
    segments = np.repeat(np.arange(phones.size), frames // 4)
    third = np.tile(np.arange(frames // 4) * 3 // (frames // 4), phones.size)
    states = (3 * phones.reshape(-1)[segments] + third).astype(np.uint8)
    features = (means[states] + rng.normal(size=(len(states), 123))).astype(np.float32)
    numbers = np.arange(len(utterances) + 1)
    return timit.Corpus(
        utterances, features, numbers * frames, states, segments.astype(np.int32), phones.reshape(-1), numbers * 4, []
    )


def write_sentence(wave, phn, seed, sphere=False):
    """About 0.2 s of noise with five phones; the transcription ends shortly before or after the sound."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(300, 1000, 5))
    wave.parent.mkdir(parents=True, exist_ok=True)
    sound = (500 * rng.standard_normal(ends[-1] + rng.integers(-5, 400))).astype(np.int16)
    (write_sphere if sphere else write_riff)(wave, sound)
    begins = [0, *ends[:-1]]
    phn.write_text("".join(f"{b} {e} {rng.choice(PHONES)}\n" for b, e in zip(begins, ends, strict=True)))


def write_flat_corpus(root, speakers=16, sentences=("sa1", "si10", "sx3", "sx40")):
    """Writes a corpus in the flat layout; returns `root`."""
    for s in range(speakers):
        for i, sentence in enumerate(sentences):
            stem = root / f"dr{1 + s % 8}-{'fm'[s % 2]}abc{s}" / sentence
            write_sentence(stem.with_suffix(".wav"), stem.with_suffix(".phn"), 100 * s + i)
    return root


def write_ldc_corpus(root, case=str.upper):
    """Writes three speakers of TRAIN and two of TEST, one of them in the core test set; returns `root`."""
    for part, region, speaker in (
        ("train", "dr1", "fcjf0"),
        ("train", "dr1", "mdac0"),
        ("train", "dr2", "faem0"),
        ("test", "dr1", "mdab0"),
        ("test", "dr1", "faks0"),
    ):
        for i, sentence in enumerate(("sa1", "sx37")):
            folder = root.joinpath(*map(case, (part, region, speaker)))
            names = [case(sentence + kind) for kind in (".wav", ".phn")]
            write_sentence(folder / names[0], folder / names[1], sum(map(ord, speaker)) + i, sphere=True)
    return root


def load(root, **options):
    """`timit.load` without a progress bar."""
    return timit.load(root, progress=False, **options)


def assert_same_corpus(one, two):
    assert one.utterances == two.utterances
    assert one.skipped == two.skipped
    for name in ARRAYS:
        first, second = getattr(one, name), getattr(two, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
