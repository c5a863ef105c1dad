"""A corpus of random frames, small enough to train on in a moment."""

import numpy as np

from data import timit


def tiny_corpus(seed: int = 0, speakers: int = 6, sentences: int = 3, frames: int = 40) -> timit.Corpus:
    """Sentences of four phones, ten frames each, whose features depend on the class; all 123 numbers of a frame."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(183, 123))
    utterances = [timit.Utterance(f"s{s}", f"sx{i}", "", None, None) for s in range(speakers) for i in range(sentences)]
    phones = rng.integers(0, 6, size=(len(utterances), 4)).astype(np.uint8)
    segments = np.repeat(np.arange(phones.size), frames // 4)
    third = np.tile(np.arange(frames // 4) * 3 // (frames // 4), phones.size)
    states = (3 * phones.reshape(-1)[segments] + third).astype(np.uint8)
    features = (means[states] + rng.normal(size=(len(states), 123))).astype(np.float32)
    each = np.arange(len(utterances) + 1)
    return timit.Corpus(
        utterances, features, each * frames, states, segments.astype(np.int32), phones.reshape(-1), each * 4, []
    )
