"""The sizes of networks, checkpoints and memory that tasks imply."""

import tensorflow as tf

from experiments.complexity.experiment import Config
from experiments.complexity.measure import initial_params
from experiments.complexity.tasks import METHODS, Task, checkpoints, predicted_bytes, weights_of


def test_the_networks_have_the_papers_numbers_of_weights():
    assert weights_of(200) == 199_210
    for width, wanted in zip(Config().widths, (165e3, 335e3, 640e3, 1.3e6), strict=True):
        assert abs(weights_of(width) / wanted - 1) < 0.003
    assert sum(int(tf.size(w)) for w in initial_params((7, 7)).values()) == weights_of(7)


def test_checkpoints_are_fewer_than_steps():
    assert [checkpoints(steps) for steps in (1, 3, 5, 9, 1000)] == [1, 2, 4, 6, 64]


def test_each_method_keeps_its_states_or_columns():
    state = 2 * 4 * weights_of(810)
    task = Task("memory", "reverse", 2, 810, 1000, 100, 1)
    kept = {method: predicted_bytes(task._replace(method=method)) // state for method in METHODS}
    assert kept == {"reverse": 1000, "checkpointed": 64, "truncated": 100, "forward": 2}


def test_a_task_is_read_back_from_its_row():
    task = Task("seconds", "forward", 200, 200, 1000, 100, 2, timed=(2, 12))
    assert Task.of({**task._asdict(), "timed": [2, 12], "seconds": 1.0}) == task
