"""The tasks: data that are what they say, parts that do not overlap, models that fit the data."""

import numpy as np
import pytest

from experiments.keras_tasks import made_data, tasks
from experiments.keras_tasks.later_tasks import LATER
from experiments.keras_tasks.tasks import DEVELOPMENT, FROZEN, Parts, divide, standardised

TASKS = {**DEVELOPMENT, **FROZEN, **LATER}
SLOW = ("docstrings", "transfer")


def test_there_are_fifteen_tasks():
    assert len(DEVELOPMENT) == len(FROZEN) == len(LATER) == 5
    assert len(TASKS) == 15


@pytest.mark.parametrize("name", [name for name in TASKS if name not in SLOW])
def test_a_model_takes_the_examples_of_its_task(name):
    task = TASKS[name]
    parts = task.load(0)
    assert all(len(x) == len(y) > 30 for x, y in parts)
    model = task.build()
    x, y = parts.test[0][:8], parts.test[1][:8]
    outputs = model(x)
    assert float(task.loss(y, outputs)) > 0
    assert 0 <= task.score(model, (x, y)) <= 100
    other = task.load(1)
    assert not np.array_equal(parts.train[0], other.train[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_model_takes_the_examples_of_a_slow_task(name):
    test_a_model_takes_the_examples_of_its_task(name)


def test_parts_are_a_partition():
    x = np.arange(50)
    parts = divide(x, x, seed=3)
    assert [len(part[0]) for part in parts] == [30, 10, 10]
    assert sorted(np.concatenate([part[0] for part in parts])) == list(range(50))


def test_a_column_that_is_constant_in_training_is_not_blown_up():
    train, other = np.array([[0.0, 1.0], [0.0, 3.0]]), np.array([[1.0, 2.0]])
    (x, _), (new, _), _ = standardised(Parts((train, train), (other, other), (other, other)))
    np.testing.assert_allclose(x, [[0, -1], [0, 1]], atol=1e-5)
    np.testing.assert_allclose(new, [[1, 0]], atol=1e-5)


def test_brackets_match_where_the_label_says_so():
    texts, labels = made_data.brackets(200, np.random.default_rng(0))

    def balanced(text):
        still_open = []
        for bracket in text:
            if bracket < 2:
                still_open.append(bracket)
            elif not still_open or still_open.pop() != bracket - 2:
                return False
        return not still_open

    assert [balanced(text) for text in texts] == [bool(label) for label in labels[:, 0]]
    assert 50 < labels.sum() < 150


def test_a_token_occurs_twice_where_the_label_says_so():
    texts, labels = made_data.repeats(100, np.random.default_rng(0))
    assert [len(set(text)) < len(text) for text in texts] == [bool(label) for label in labels[:, 0]]
    assert 25 < labels.sum() < 75


def test_a_word_is_a_number_by_its_frequency_in_training():
    numbers = made_data.as_numbers([["a", "b", "new"]], known=[["b", "a"], ["b", "c"]])
    assert numbers.tolist() == [[2, 1, 0]]


def test_a_window_of_the_series_does_not_contain_what_it_predicts():
    (x, y), _, _ = tasks.load_series(0)
    np.testing.assert_array_equal(x[6:, -1, 0], y[:-6, 0])
