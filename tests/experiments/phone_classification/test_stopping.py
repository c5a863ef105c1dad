"""When trainings end."""

from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.stopping import any_of, learning_rate_gone, out_of_time, stalled


def accuracies(*values):
    return [{"validation accuracy": value} for value in values]


def rates(*values):
    return [{"eta": value} for value in values]


def test_early_stopping_waits_for_an_improvement_of_one_percent():
    stop = stalled(PhoneTraining(patience=3, improvement=0.01))
    assert not stop([])
    assert not stop(accuracies(0.5, 0.4, 0.5))
    assert stop(accuracies(0.5, 0.4, 0.5, 0.504)), "less than one percent does not count"
    assert not stop(accuracies(0.5, 0.4, 0.5, 0.51))
    assert stop(accuracies(0.5, 0.51, 0.4, 0.4, 0.4))


def test_the_learning_rate_is_gone_after_five_zeros_that_follow_something_else():
    assert not learning_rate_gone(rates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), "the null teacher starts there"
    assert not learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0))
    assert learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert not learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1))


def test_minutes_count_only_if_given():
    late = [{"seconds": 61.0}]
    assert out_of_time(PhoneTraining(minutes=1.0))(late)
    assert not out_of_time(PhoneTraining(minutes=1.1))(late)
    assert not out_of_time(PhoneTraining())(late)
    assert not out_of_time(PhoneTraining(minutes=1.0))([])


def test_any_reason_is_enough():
    assert any_of(lambda history: False, lambda history: True)([])
    assert not any_of(lambda history: False)([])
