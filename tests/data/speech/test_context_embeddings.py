"""Embeddings of phones in context."""

import numpy as np
import pytest

from data.speech.context_embeddings import context_embeddings, positive_information
from data.speech.phones import PHONES


def sentences(seed: int, number: int = 200) -> list[np.ndarray]:
    """Phones 1 and 2 occur in the same contexts, before 3; phone 4 occurs before 5."""
    rng = np.random.default_rng(seed)
    pairs = np.array([[1, 3], [2, 3], [4, 5]])
    return [np.concatenate([[0], *pairs[rng.integers(0, 3, 6)], [0]]).astype(np.uint8) for _ in range(number)]


def test_positive_information_computed_by_hand():
    counts = np.array([[2.0, 0.0], [1.0, 1.0]])
    # p(0, 0) = 1/2 against 1/2 * 3/4; p(1, 0) = 1/4 is less than 1/2 * 3/4; p(1, 1) = 1/4 against 1/2 * 1/4
    np.testing.assert_allclose(positive_information(counts), [[np.log(4 / 3), 0.0], [0.0, np.log(2.0)]])


def test_every_position_has_the_row_of_its_triphone():
    sequences = sentences(0)
    table, rows = context_embeddings(sequences, dimension=8)
    assert [len(r) for r in rows] == [len(s) for s in sequences]
    triphones = {}
    for sequence, row in zip(sequences, rows, strict=True):
        padded = np.pad(sequence.astype(int), 1, constant_values=-1)
        for i, r in enumerate(row):
            assert triphones.setdefault(r, tuple(padded[i : i + 3])) == tuple(padded[i : i + 3])
    assert sorted(triphones) == list(range(len(table))) == list(range(len(set(triphones.values()))))


def test_phones_in_the_same_contexts_have_similar_vectors():
    sequences = sentences(1)
    table, rows = context_embeddings(sequences, dimension=20)
    phone, row = np.concatenate(sequences), np.concatenate(rows)
    centre = [table[row[phone == p]].mean(0) for p in (1, 2, 4)]
    assert np.linalg.norm(centre[0] - centre[1]) < 0.9 * np.linalg.norm(centre[0] - centre[2])


def test_the_mean_square_over_all_positions_is_one():
    table, rows = context_embeddings(sentences(2), dimension=8)
    assert np.mean(table[np.concatenate(rows)].astype(float) ** 2) == pytest.approx(1.0, rel=1e-5)


def test_a_low_rank_gives_shorter_vectors_and_a_warning():
    with pytest.warns(UserWarning, match=r"triphones give vectors of length \d+ instead of 300"):
        table, _ = context_embeddings(sentences(3))
    assert 8 < table.shape[1] < 9 * len(PHONES)
    assert table.dtype == np.float32
    assert np.isfinite(table).all()


def test_the_same_sequences_give_the_same_vectors():
    np.testing.assert_array_equal(context_embeddings(sentences(4), 8).table, context_embeddings(sentences(4), 8).table)
