"""Embeddings of phones in context, the secondary targets of phone classification: a stand-in for those of Badino (2016).

Phones that occur in similar contexts get similar vectors, as words do in distributional semantics. Every triphone (a phone
with its two neighbours) in the training sentences has a row of counts: which phones occurred at the offsets -4..4 from it.
The counts become positive pointwise mutual information, and a truncated singular value decomposition shortens the rows.
Badino learned his embeddings in another way and did not publish them: these are targets of the same kind and size.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from data.speech.phones import PHONES

DIMENSION = 300
REACH = 4  # phones on each side that count as context


class Embeddings(NamedTuple):
    """`table`: a vector for each triphone; `rows`: for each sequence, the triphone (row of the table) at each position."""

    table: np.ndarray
    rows: list[np.ndarray]


def context_embeddings(sequences: Sequence[np.ndarray], dimension: int = DIMENSION) -> Embeddings:
    """Embeddings of the triphones in these (training) sequences.

    With M = U S V^T, where M_rc = max(0, log(p(r, c) / (p(r) p(c)))), the table is U S^(1/2), scaled to a mean square of 1
    over all positions of all sequences, so that the weight of this task means the same for every corpus.

    Args:
      sequences: the phones of each sentence, as indices into PHONES.
      dimension: length of a vector; shorter, with a warning, if M has a lower rank.

    >>> table, rows = context_embeddings([np.array([0, 1, 2, 1, 0])], dimension=2)
    >>> table.shape, rows[0].tolist()  # five triphones, which occur once each
    ((5, 2), [0, 1, 3, 4, 2])
    """
    triphones, rows = np.unique(np.concatenate([_triphones(s) for s in sequences]), axis=0, return_inverse=True)
    rows = rows.reshape(-1)
    left, weights, _ = scipy.linalg.svd(positive_information(_counts(sequences, rows, len(triphones))), full_matrices=False)
    rank = int(np.sum(weights > weights[0] * len(triphones) * np.finfo(float).eps))
    if rank < dimension:
        warnings.warn(f"{len(triphones)} triphones give vectors of length {rank} instead of {dimension}.", stacklevel=2)
    size = min(rank, dimension)
    signs = np.sign(left[np.abs(left[:, :size]).argmax(0), np.arange(size)])  # otherwise left to the SVD routine
    table = left[:, :size] * signs * np.sqrt(weights[:size])
    table /= np.sqrt(np.mean(table[rows] ** 2))
    return Embeddings(table.astype(np.float32), np.split(rows, np.cumsum([len(s) for s in sequences])[:-1]))


def positive_information(counts: np.ndarray) -> np.ndarray:
    """max(0, log(p(r, c) / (p(r) p(c)))), and 0 where the count is 0."""
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
    return np.log(np.maximum(np.divide(counts, expected, out=np.ones_like(counts), where=counts > 0), 1.0))


def _triphones(sequence: np.ndarray) -> np.ndarray:
    """(previous phone, phone, next phone) at each position; -1 beyond the ends."""
    padded = np.pad(sequence.astype(np.int64), 1, constant_values=-1)
    return np.stack([padded[:-2], padded[1:-1], padded[2:]], axis=1)


def _counts(sequences: Sequence[np.ndarray], rows: np.ndarray, number: int) -> np.ndarray:
    """How often each phone occurred at each offset from each triphone, [triphones, offsets x phones]."""
    width = 2 * REACH + 1
    counts = np.zeros([number, width, len(PHONES)])
    begin = 0
    for sequence in sequences:
        padded = np.pad(sequence.astype(np.int64), REACH, constant_values=-1)
        windows = np.lib.stride_tricks.sliding_window_view(padded, width)
        position, offset = np.nonzero(windows >= 0)  # beyond the ends nothing is counted
        np.add.at(counts, (rows[begin + position], offset, windows[position, offset]), 1.0)
        begin += len(sequence)
    return counts.reshape(number, -1)
