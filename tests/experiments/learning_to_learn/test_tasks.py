"""The sinusoids that are learned."""

import numpy as np
import tensorflow as tf

from experiments.learning_to_learn.tasks import AMPLITUDES, INPUTS, PHASES, Family

FAMILY = Family("training", seed=3, shots=5, queries=10)


def test_all_points_of_a_task_lie_on_its_curve():
    task = FAMILY.task(4)
    for points, count in ((task.support, 5), (task.queries, 10)):
        x, y = points
        assert x.shape == y.shape == (count, 1)
        np.testing.assert_allclose(y, task.amplitude * np.sin(x + task.phase), rtol=1e-6)


def test_a_task_is_a_pure_function_of_its_number():
    compiled = tf.function(lambda k: FAMILY.task(k), autograph=False)
    for k in (0, 7):
        tf.nest.map_structure(np.testing.assert_array_equal, FAMILY.task(k).support[0], compiled(tf.constant(k)).support[0])


def test_amplitudes_phases_and_inputs_fill_their_ranges():
    tasks = [FAMILY.task(k) for k in range(100)]
    for values, (low, high) in (
        ([t.amplitude for t in tasks], AMPLITUDES),
        ([t.phase for t in tasks], PHASES),
        ([t.queries[0] for t in tasks], INPUTS),
    ):
        assert low <= np.min(values) < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < np.max(values) <= high


def test_no_two_families_share_a_task():
    families = [Family(part, seed, 5, 10) for part in ("training", "calibration", "test") for seed in (0, 1)]
    assert len({float(family.task(k).amplitude) for family in families for k in range(5)}) == 30


def test_the_joint_batch_has_every_point_of_its_tasks():
    x, y = FAMILY.joint(tf.constant(2), count=3)
    tasks = [FAMILY.task(k) for k in (6, 7, 8)]
    np.testing.assert_array_equal(x, np.concatenate([part[0] for task in tasks for part in (task.support, task.queries)]))
    np.testing.assert_array_equal(y, np.concatenate([part[1] for task in tasks for part in (task.support, task.queries)]))
