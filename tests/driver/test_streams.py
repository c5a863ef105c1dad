"""Runs over a stream: the position in the stream is part of a checkpoint."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.checkpoints import (
    HYPERS,
    PARAMS,
    TARGET,
    TOTAL,
    assert_identical,
    broken,
    checkpoint,
    halve,
    loss,
    numbers,
    objective,
    run,
)


def examples(seed):
    data = tf.constant(TARGET + np.random.default_rng(5).normal(size=(5, 3)), tf.float32)
    return tf.data.Dataset.from_tensor_slices(data).shuffle(5, seed).repeat().batch(2, drop_remainder=True)


def generated():
    def endless():
        while True:
            yield np.float32(TARGET)

    dataset = tf.data.Dataset.from_generator(endless, output_signature=tf.TensorSpec([3], tf.float32))
    return dataset.batch(2, drop_remainder=True)


def streaming(dataset):
    """A real-time engine with its own iterator, as a new process would have."""
    batches, validation = rf.batches.stream(dataset), rf.batches.full(tf.constant(TARGET, tf.float32))
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objective, None, batches, validation)
    return rf.real_time(problem, hyper_batch=2, jit_compile=False)


@pytest.fixture(scope="module")
def whole():
    """The run over a stream that nothing interrupts."""
    return run(None, case=streaming(examples(3)))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """(engine, directory) of a run that was interrupted at hyper-iterations 2 and 4, to be copied."""
    engine, directory = streaming(examples(3)), tmp_path_factory.mktemp("interrupted")
    broken(2, directory, case=engine)
    broken(4, directory, case=engine)
    assert numbers(directory) == [3, 4]
    return engine, directory


@pytest.fixture(scope="module")
def fresh():
    """An engine whose stream is at its beginning when the first test uses it."""
    return streaming(examples(3))


def test_a_seeded_stream_resumes_at_its_position(interrupted, fresh, whole, tmp_path):
    directory = shutil.copytree(interrupted[1], tmp_path / "run")
    assert_identical(run(directory, case=fresh), whole)


def test_if_the_position_in_the_stream_is_damaged_the_checkpoint_before_is_used(interrupted, fresh, whole, tmp_path):
    directory = shutil.copytree(interrupted[1], tmp_path / "run")
    for file in checkpoint(directory, 4).glob("stream*"):
        halve(file)
    with pytest.warns(UserWarning, match="ckpt-00000004 is damaged"):
        result = run(directory, case=fresh)
    assert_identical(result, whole)


def test_a_stream_is_returned_to_its_position_within_a_process(interrupted, whole, tmp_path):
    engine, directory = interrupted
    assert_identical(run(shutil.copytree(directory, tmp_path / "run"), case=engine), whole)


@pytest.mark.filterwarnings("ignore:.*cannot compile")
def test_if_xla_cannot_compile_the_optimiser_no_batch_of_the_stream_is_lost():
    inner = rf.projected_adam(0.01)

    def update(grads, opt_state, hypers):
        tf.debugging.assert_all_finite(tf.strings.to_number(tf.strings.as_string(grads["lr"])), "")  # not for XLA
        return inner.update(grads, opt_state, hypers)

    def run_with(jit_compile):
        batches = rf.batches.stream(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32) * tf.ones([2, 3])))
        problem = rf.Problem(rf.gradient_descent(loss, "lr"), objective, None, batches, rf.batches.full(tf.zeros(3)))
        engine = rf.real_time(problem, hyper_batch=2, jit_compile=jit_compile)
        return rf.HyperOptimizer(engine, inner._replace(update=update)).run(PARAMS, HYPERS, 3)

    np.testing.assert_allclose(run_with(True).state, run_with(False).state, rtol=1e-5)


def test_after_divergence_no_position_that_is_too_far_ahead_is_saved(fresh, tmp_path):
    """The stream has already been read for the hyper-iteration that diverged."""
    rates = tf.constant([0.1, 0.1, 0.1, 1e30, 0.1])
    visit = rf.HyperUpdate(lambda hypers: tf.constant(0), lambda grads, k, hypers: ({**hypers, "lr": rates[k + 1]}, k + 1))
    tuner = rf.HyperOptimizer(fresh, visit)
    with pytest.raises(rf.DivergenceError, match="hyper-iteration 3"):
        tuner.run(tf.constant(PARAMS), HYPERS, TOTAL, tmp_path, checkpoint_every=2)
    assert numbers(tmp_path) == [2]


def test_a_stream_that_cannot_be_saved_is_rejected_with_the_reason_and_works_without_checkpoints(tmp_path):
    from_generator = streaming(generated())
    with pytest.raises(ValueError, match=r"checkpoint_dir.*cannot checkpoint.*generator"):
        run(tmp_path / "run", case=from_generator)
    assert not (tmp_path / "run").exists()
    result = run(None, 3, case=from_generator)
    assert len(result.history) == 3
    assert result.history[-1]["value"] != result.history[0]["value"]


@pytest.mark.slow
def test_a_stream_shuffled_without_a_seed_is_rejected_because_a_new_process_would_see_another_order(tmp_path):
    with pytest.raises(ValueError, match=r"shuffled without a seed"):
        run(tmp_path, 2, case=streaming(examples(None)))
