"""What phone classification costs at the paper's size: time of a step, peak memory, and speed of the features.

The time of a step is the difference between two calls of different length, divided by the difference in steps.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data.speech import cache as speech_cache
from data.speech import timit
from data.speech.audio import RATE
from data.speech.features import FEATURES, features
from data.speech.phones import PHONES
from experiments.common import timing
from experiments.common.config import setting
from experiments.common.plain_training import plain_training
from experiments.phone_classification import network as phone_network
from experiments.phone_classification.methods import TAUGHT
from rfho2.planning import memory

EMBEDDING = 300  # dimension of the secondary targets
FRAMES, TIMIT_FRAMES = 12_000, 1_500_000
SENTENCE, SEGMENTS = 300, 30  # frames and phones of a sentence
TEXTS = 700  # distinct sentences, with about 20,000 triphones, as in speech
BATCH_SIZE = 500


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    width: int = setting(2000, "Units of each shared layer.", at_least=1)
    steps: int = setting(5, "Training steps in each measurement.", at_least=2)
    rounds: int = setting(3, "Timed rounds, of which the best counts.", at_least=1)
    only: str | None = setting(None, "One of the measurements.", choices=["memory", "frames", "times"])


def corpus(frames: int, folder: Path) -> timit.Corpus:
    """Random frames in sentences of three seconds, read from a cache like those of a real corpus."""
    rng, n = np.random.default_rng(0), frames // SENTENCE

    def build(write: speech_cache.Write) -> tuple[dict[str, np.ndarray], list[str]]:
        for _ in range(n):
            write(rng.normal(size=(SENTENCE, FEATURES)))
        states = rng.integers(0, phone_network.CLASSES, n * SENTENCE).astype(np.uint8)
        texts = rng.integers(0, len(PHONES), [TEXTS, SEGMENTS]).astype(np.uint8)
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
    """A random corpus as tensors; its files are deleted."""
    with tempfile.TemporaryDirectory() as folder:
        random = corpus(frames, Path(folder))
        return phone_network.speech(random, timit.split(random.utterances), EMBEDDING)


def problem(data: phone_network.Speech) -> rf.Problem:
    """The training problem with the paper's minibatches."""
    return phone_network.problem(data, BATCH_SIZE, validation_size=BATCH_SIZE, seed=0)


def initial_params(data: phone_network.Speech, width: int) -> phone_network.Params:
    """The weights to start from."""
    return phone_network.initial_params(timit.WINDOW * FEATURES, data.table.shape[1], width, layers=4, seed=0)


ENGINES: dict[str, Callable[[rf.Problem, int], Any]] = {"plain": plain_training, "real time": rf.real_time}


def times(width: int, steps: int, rounds: int) -> None:
    """Prints the seconds of plain training and of real time: of a call, and of a step.

    A call looks at the validation set once, whatever its length. The seconds of a step leave that out: they are the
    difference between a call of 2 n steps and one of n, divided by n.
    """
    data = speech(FRAMES)
    params, calls = initial_params(data, width), {}
    for name, make in ENGINES.items():
        for length in (steps, 2 * steps):
            engine = make(problem(data), length)
            carry = engine.start(params, TAUGHT)
            calls[name, length] = lambda engine=engine, carry=carry: engine.advance(carry, TAUGHT, 0)[0].value
    seconds = timing.best_times(calls, rounds)
    plain, tuned = (seconds[name, steps] for name in ENGINES)
    plain_step, tuned_step = ((seconds[name, 2 * steps] - seconds[name, steps]) / steps for name in ENGINES)
    weights = sum(int(np.prod(w.shape)) for w in params.values())
    print(
        f"width {width}, {weights:,} weights: plain {plain_step:.3f} s a step, real time {tuned_step:.3f}; "
        f"{tuned_step / plain_step:.2f} x; calls of {steps} steps: {plain:.2f} and {tuned:.2f} s, {tuned / plain:.2f} x",
        flush=True,
    )


def peak_of_real_time(width: int, steps: int, before: int) -> None:
    """Prints the peak memory of two calls, including compilation and the weights themselves."""
    data = speech(FRAMES)
    engine = rf.real_time(problem(data), steps)
    carry = engine.start(initial_params(data, width), TAUGHT)
    memory.reset_peak()
    for k in range(2):
        hypergradient, carry = engine.advance(carry, TAUGHT, k)
        np.asarray(hypergradient.value)  # waits for the call to finish
        del hypergradient
    print(f"real time, width {width}: peak memory {(memory.peak() - before) / 1e9:.2f} GB", flush=True)


def peak_of_frames(frames: int, before: int) -> None:
    """Prints the peak memory of loading the frames and fetching minibatches of them, and the time of a minibatch."""
    memory.reset_peak()
    data = speech(frames)
    fetch = tf.function(problem(data).batch, autograph=False)
    began = time.perf_counter()
    for t in range(100):
        fetch(tf.constant(t))
    pace = (time.perf_counter() - began) / 100
    used = (memory.peak() - before) / 1e9
    print(f"{frames:,} frames: peak memory {used:.2f} GB; {1e3 * pace:.1f} ms for a minibatch of 500 windows", flush=True)


def pace_of_features(seconds: int = 60) -> None:
    """Prints how many seconds of speech are turned into features in one second."""
    samples = np.random.default_rng(0).integers(-3000, 3000, seconds * RATE).astype(np.int16)
    best = timing.best_times({"features": lambda: features(samples)[0, 0]}, rounds=5)["features"]
    print(f"features: {seconds / best:.0f} x real time", flush=True)
