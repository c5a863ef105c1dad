"""Walks through the schedule of checkpointed reverse on plain numbers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rfho2.hypergradients import binomial


def walk(steps: int, slots: int) -> tuple[int, int]:
    """(forward steps, the largest number of states saved at once) of the schedule, where a state is its time."""
    table = binomial.reach(slots, steps + 1)

    def distance(length: int, free: int) -> int:
        row = table[free]
        runs = int(np.sum(row < length))
        return min(row[runs - 1], length - table[free - 1][runs - 1])

    assert all(
        int(binomial.distance(tf.constant(table), tf.constant(n), tf.constant(s))) == distance(n, s)
        for n, s in [(steps + 1, slots), (2, 1), (min(steps, slots) + 1, slots)]
    )
    saved: list[int] = []
    run, most, t = 0, 0, 0
    for end in range(steps, -1, -1):
        if end < steps:
            t = saved.pop()
        while t < end:
            saved.append(t)
            most = max(most, len(saved))
            ahead = distance(end - t + 1, slots - len(saved) + 1)
            assert 1 <= ahead <= end - t
            run, t = run + ahead, t + ahead
        assert t == end
    return run, most
