"""What phone classification costs at the paper's size: `make bench-large`.

A network 1353-2000-2000-2000-2000-(183 + 300), 15.68 million weights, minibatches of 500 frames, three hypers.
Time: steps in real time against plain training, interleaved, best of `rounds`; a step's is that of ten less that of five.
Memory: peak of a process that runs five steps, beyond what it has when TensorFlow is imported; and of one that has the
1.5 million frames of TIMIT and fetches minibatches. And how fast features are computed, on one core.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import flags

import rfho2 as rf
from data.speech import cache as speech_cache
from data.speech import timit
from data.speech.audio import RATE
from data.speech.features import FEATURES, features
from data.speech.phones import PHONES
from experiments.benchmarks import costs as benchmark
from experiments.common import binary as common
from experiments.common.plain_training import PlainTraining
from experiments.phone_classification import methods as phone_methods
from experiments.phone_classification import network as phone_network
from rfho2.planning import memory

FLAGS = flags.FLAGS
OUTPUTS = 300
TIMIT_FRAMES = 1_500_000
SENTENCE, SEGMENTS = 300, 30  # frames and phones of a sentence
TEXTS = 700  # different ones, of some 20,000 triphones


def corpus(frames: int, folder: Path) -> timit.Corpus:
    """Random frames in sentences of three seconds, from a cache, as those of a real corpus come."""
    rng, n = np.random.default_rng(0), frames // SENTENCE

    def build(write: speech_cache.Write) -> tuple[dict[str, np.ndarray], list[str]]:
        for _ in range(n):
            write(rng.normal(size=(SENTENCE, FEATURES)))
        states = rng.integers(0, phone_network.CLASSES, n * SENTENCE).astype(np.uint8)
        texts = rng.integers(0, len(PHONES), [TEXTS, SEGMENTS]).astype(
            np.uint8
        )  # few, or there were more triphones than in speech
        phones = texts[np.arange(n) % TEXTS].reshape(-1)
        segments = np.repeat(np.arange(SEGMENTS * n), SENTENCE // SEGMENTS).astype(np.int32)
        return {"states": states, "segments": segments, "phones": phones}, []

    speech_cache.cached(folder / "random", FEATURES, build)
    began = time.perf_counter()
    features, arrays, _ = speech_cache.cached(folder / "random", FEATURES, build)
    print(f"{n * SENTENCE:,} frames from the cache: {time.perf_counter() - began:.2f} s", flush=True)
    utterances = [timit.Utterance(f"s{i % 16}", f"sx{i}", "", folder, folder) for i in range(n)]
    each = np.arange(n + 1)
    return timit.Corpus(utterances, features, SENTENCE * each, phone_offsets=SEGMENTS * each, skipped=[], **arrays)


def speech(frames: int) -> phone_network.Speech:
    """As tensors, from files that are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        found = corpus(frames, Path(folder))
        return phone_network.speech(found, timit.split(found.utterances), OUTPUTS)


def problem(data: phone_network.Speech) -> rf.Problem:
    """With the paper's minibatches."""
    return phone_network.problem(data, batch_size=500, validation_size=500, seed=0)


def network(data: phone_network.Speech, width: int) -> phone_network.Params:
    """The weights to start from."""
    return phone_network.network(timit.WINDOW * FEATURES, data.table.shape[1], width, layers=4, seed=0)


def times(width: int, steps: int, rounds: int) -> None:
    """Seconds of plain training and of real time: of a call, and of a step, by the difference to a call of twice as many.

    What a call does once, whatever its length, is the look at the validation set.
    """
    data = speech(12_000)
    params, hypers = network(data, width), phone_methods.TAUGHT
    makers: dict[str, Callable[[rf.Problem, int], rf.Engine]] = {"plain": PlainTraining, "real time": rf.real_time}
    calls = {}
    for name, make in makers.items():
        for length in (steps, 2 * steps):
            engine = make(problem(data), length)
            carry = engine.start(params, hypers)
            calls[f"{name} {length}"] = lambda engine=engine, carry=carry: engine.advance(carry, hypers, 0)[0].value
    found = benchmark.best_times(calls, rounds)
    weights = sum(int(np.prod(w.shape)) for w in params.values())
    step = {name: (found[f"{name} {2 * steps}"] - found[f"{name} {steps}"]) / steps for name in makers}
    plain, tuned = (found[f"{name} {steps}"] for name in makers)
    print(
        f"width {width}, {weights:,} weights: plain {step['plain']:.3f} s a step, real time {step['real time']:.3f}; "
        f"{step['real time'] / step['plain']:.2f} x; calls of {steps} steps: {plain:.2f} and "
        f"{tuned:.2f} s, {tuned / plain:.2f} x",
        flush=True,
    )


def peak_of_real_time(width: int, steps: int, before: int) -> None:
    """Peak memory of two calls, compilation and the weights themselves included."""
    data = speech(12_000)
    engine = rf.real_time(problem(data), steps)
    carry = engine.start(network(data, width), phone_methods.TAUGHT)
    memory.forget_peak()
    for k in range(2):
        found, carry = engine.advance(carry, phone_methods.TAUGHT, k)
        tf.nest.map_structure(lambda x: x.numpy(), found.value)
        del found
    print(f"real time, width {width}: peak memory {(memory.peak() - before) / 1e9:.2f} GB", flush=True)


def peak_of_frames(frames: int, before: int) -> None:
    """Peak memory of getting the tensors and fetching minibatches from them."""
    memory.forget_peak()
    data = speech(frames)
    fetch = tf.function(problem(data).batch, autograph=False)
    began = time.perf_counter()
    for t in range(100):
        fetch(tf.constant(t))
    pace = (time.perf_counter() - began) / 100
    used = (memory.peak() - before) / 1e9
    print(f"{frames:,} frames: peak memory {used:.2f} GB; {1e3 * pace:.1f} ms for a minibatch of 500 windows", flush=True)


def pace_of_features(seconds: int = 60) -> None:
    """Seconds of speech for which features are computed in a second."""
    samples = np.random.default_rng(0).integers(-3000, 3000, seconds * RATE).astype(np.int16)
    best = benchmark.best_times({"features": lambda: tf.constant(features(samples)[0, 0])}, rounds=5)["features"]
    print(f"features: {seconds / best:.0f} x real time", flush=True)


def main() -> None:
    """All of it; memory in processes of their own."""
    before = memory.now()
    if FLAGS.only == "memory":
        return peak_of_real_time(FLAGS.width, FLAGS.steps, before)
    if FLAGS.only == "frames":
        return peak_of_frames(TIMIT_FRAMES, before)
    if FLAGS.only is None:
        pace_of_features()
        same = [f"--width={FLAGS.width}", f"--steps={FLAGS.steps}"]
        for part in ("frames", "memory"):
            subprocess.run([sys.executable, "-m", "experiments.phone_benchmark", f"--only={part}", *same], check=True)
    return times(FLAGS.width, FLAGS.steps, FLAGS.rounds)


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_integer("width", 2000, "Units of each shared layer.", lower_bound=1)
    flags.DEFINE_integer("steps", 5, "Training steps in each measurement.", lower_bound=2)
    flags.DEFINE_integer("rounds", 3, "Of which the best counts.", lower_bound=1)
    flags.DEFINE_enum("only", None, ["memory", "frames", "times"], "One of the measurements.")
    common.run_main(main)
