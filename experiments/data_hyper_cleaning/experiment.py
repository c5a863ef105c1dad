"""Data hyper-cleaning (paper, 5.1): a weight for each training example finds the labels that are wrong. Table 1, Figure 2.

    python -m experiments.data_hyper_cleaning --preset=quick
    python -m experiments.data_hyper_cleaning --preset=paper --output_dir=results/data_hyper_cleaning_paper

Half of 5,000 training digits carry a wrong label. Softmax regression is trained on all of them, digit i with weight lambda_i
in [0, 1]; the weights minimise the error on 5,000 clean digits under sum lambda <= R, by Reverse-HG and projected Adam.
Digits whose weight ends at exactly 0 are discarded, and a last model is fitted to the others and the clean ones.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags

import rfho2 as rf
from data import mnist
from experiments.common import binary as common
from experiments.common import meshes
from experiments.data_hyper_cleaning import report as hyper_cleaning_report
from rfho2.core import loops
from rfho2.core.types import Hypers, Nest

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on.

    Attributes:
      radius: the bounds R on the sum of the weights, one run for each.
      seeds: splits and corruptions, one run for each.
      steps: T, gradient-descent steps of the inner training, from zero weights at every hyper-iteration.
      inner_rate: their learning rate is inner_rate N / R, because the weights start at R / N.
      hyper_rate: of projected Adam.
      hyper_iterations: updates of the weights.
      fit_steps, fit_rate: gradient descent from zero of the models whose accuracy is compared, the same for all of them.
      source: of the digits, "embedded" or "tfds".
    """

    radius: tuple[float, ...] = (1000.0,)
    seeds: tuple[int, ...] = (0,)
    steps: int = 50
    inner_rate: float = 0.2
    hyper_rate: float = 0.02
    hyper_iterations: int = 120
    fit_steps: int = 600
    fit_rate: float = 0.5
    source: str = "embedded"


PRESETS = {"quick": Config(), "paper": Config(radius=(1000.0, 1500.0, 2000.0, 2500.0), seeds=(0, 1, 2))}

Callbacks = Callable[[float, int, Path | None], Sequence[rf.Callback]]
"""(radius, seed, directory of the run) -> callbacks for it."""


class Outcome(NamedTuple):
    """Rows of the results file, and the history of each hyper-cleaning run by (radius, seed)."""

    results: list[dict[str, Any]]
    histories: dict[tuple[float, int], list[dict[str, float]]]
    timing: dict[str, float]


def zeros() -> dict[str, tf.Tensor]:
    """Where every training starts."""
    return {"w": tf.zeros((784, mnist.CLASSES)), "b": tf.zeros(mnist.CLASSES)}


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """One number for each example."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def cleaning_problem(config: Config, data: mnist.NoisySplit, radius: float) -> rf.Problem:
    """min over lambda of E_val(w_T), where w_T comes from T steps on (1 / N) sum lambda_i l_i."""
    parts = data.train, data.validation
    train, validation = (rf.fixed_product(meshes.divided(part.images)) for part in parts)
    given, right = (meshes.divided(tf.constant(part.labels)) for part in parts)

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return tf.reduce_mean(hypers["weights"] * cross_entropy(train(p["w"]) + p["b"], given))

    def objective(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return tf.reduce_mean(cross_entropy(validation(p["w"]) + p["b"], right))

    rate = config.inner_rate * len(data.train.labels) / radius
    return rf.Problem(rf.gradient_descent(loss, rate), objective, config.steps)


def detection(weights: np.ndarray, noisy: np.ndarray) -> dict[str, float]:
    """How well "weight exactly 0" tells the wrong labels: corrupted is the positive class."""
    discarded = weights == 0
    true, false = int(np.sum(discarded & noisy)), int(np.sum(discarded & ~noisy))
    f1 = 2 * true / (int(np.sum(noisy)) + true + false)
    return {"TP": true, "FP": false, "discarded": true + false, "F1": f1, "sum of weights": float(np.sum(weights))}


def clean(
    config: Config,
    data: mnist.NoisySplit,
    radius: float,
    callbacks: Sequence[rf.Callback],
    directory: Path | None,
    resume: bool,
) -> rf.Result:
    """One hyper-cleaning run."""
    problem = cleaning_problem(config, data, radius)
    test, validation = (tuple(map(tf.constant, part)) for part in (data.test, data.validation))

    @tf.function(autograph=False)
    def accuracies(p: Nest) -> list[tf.Tensor]:
        return [accuracy(p, *part) for part in (validation, test)]

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        weights = hypers["weights"].numpy()
        on_validation, on_test = map(float, accuracies(problem.dynamics.params(state)))
        found = {
            "validation accuracy": on_validation,
            "test accuracy": on_test,
            "R": radius,
            **detection(weights, data.noisy),
        }
        return found | {"weights/noisy": weights[data.noisy], "weights/clean": weights[~data.noisy]}

    optimizer = rf.projected_adam(config.hyper_rate, {"weights": rf.BoxL1Ball(radius)})
    tuner = rf.HyperOptimizer(meshes.on_mesh(rf.reverse(problem)), optimizer, callbacks, metrics)
    n = len(data.train.labels)
    start = {"weights": np.full(n, radius / n, np.float32)}
    return tuner.run(zeros(), start, config.hyper_iterations, directory and directory / "checkpoints", resume)


def accuracy(p: Nest, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The share of examples that a model gets right."""
    return tf.reduce_mean(tf.cast(tf.argmax(images @ p["w"] + p["b"], 1, tf.int32) == labels, tf.float32))


def fitter(config: Config, data: mnist.NoisySplit) -> Callable[[np.ndarray], float]:
    """Weights of the training digits -> test accuracy of the model fitted to them and the validation digits (weight 1)."""
    product = rf.fixed_product(np.concatenate([data.train.images, data.validation.images]))
    labels = tf.constant(np.concatenate([data.train.labels, data.validation.labels]))

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        total = tf.reduce_sum(hypers["weights"] * cross_entropy(product(p["w"]) + p["b"], labels))
        return total / tf.reduce_sum(hypers["weights"])

    descent = rf.gradient_descent(loss, config.fit_rate)

    @tf.function(autograph=False, jit_compile=True)
    def fit(weights: tf.Tensor) -> Nest:
        return loops.fold(lambda p, t: descent.step(p, {"weights": weights}, None, t), zeros(), 0, config.fit_steps)

    def test_accuracy(weights: np.ndarray) -> float:
        everyone = np.concatenate([weights, np.ones(len(data.validation.labels))]).astype(np.float32)
        return float(accuracy(fit(tf.constant(everyone)), *map(tf.constant, data.test)))

    return test_accuracy


def run(
    config: Config,
    data: Callable[[int], mnist.NoisySplit],
    callbacks: Callbacks = lambda radius, seed, directory: (),
    output: Path | None = None,
    resume: bool = True,
) -> Outcome:
    """All methods for all seeds; `data` gives the split of a seed."""
    results: list[dict[str, Any]] = []
    histories, timing = {}, {}
    for seed in config.seeds:
        split = data(seed)
        fit = fitter(config, split)
        everything = np.ones(len(split.noisy))
        results.append(_row("oracle", seed, fit(~split.noisy * everything), f1=1.0))
        results.append(_row("baseline", seed, fit(everything)))
        for radius in config.radius:
            method = f"DH-{radius:g}"
            directory = output and output / "runs" / f"{method}-seed-{seed}"
            result = clean(config, split, radius, callbacks(radius, seed, directory), directory, resume)
            weights = result.hypers["weights"].numpy()
            found = detection(weights, split.noisy)
            row = _row(method, seed, fit(weights > 0), fit(weights), found.pop("F1"))
            results.append(row | found)
            histories[radius, seed] = [{n: v for n, v in r.items() if n != "seconds"} for r in result.history]
            timing[f"{method} seed {seed}"] = result.history[-1]["seconds"]
    return Outcome(results, histories, timing)


def _row(method: str, seed: int, accuracy: float, weighted: float | None = None, f1: float | None = None) -> dict[str, Any]:
    return {"method": method, "seed": seed, "accuracy": accuracy, "f1": f1, "accuracy_weighted": weighted}


@functools.cache
def load(source: str, seed: int) -> mnist.NoisySplit:
    """The digits of a source, split and corrupted by a seed."""
    return mnist.noisy_split(mnist.load(source, seed), seed)


def config_from_flags() -> Config:
    """The preset, with every flag that was given in its place."""
    return dataclasses.replace(PRESETS[FLAGS.preset], **common.given(Config))


def main() -> None:
    """Flags to config, run, report."""
    config, output = config_from_flags(), Path(FLAGS.output_dir)
    first = hyper_cleaning_report.FirstDiscarded

    def callbacks(radius: float, seed: int, directory: Path | None) -> Sequence[rf.Callback]:
        assert directory is not None
        bar = rf.ProgressBar(("F1", "test accuracy"), f"DH-{radius:g} seed {seed}")
        log = [rf.TensorBoard(directory / "tensorboard", every=5)] if FLAGS.tensorboard else []
        return [bar, rf.CSVLogger(directory / "history.csv"), first(directory / "first_discarded.npy"), *log]

    free = ("radius", "seeds", "hyper_iterations")  # what directories are named after, and what may be extended
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in free}
    common.keep_settings(output / "settings.json", settings, FLAGS.resume)
    began = time.perf_counter()
    outcome = run(config, functools.partial(load, config.source), callbacks, output, FLAGS.resume)
    if not meshes.writes():
        return
    timing = {**outcome.timing, "whole run": time.perf_counter() - began}
    common.write_results(output / "results.json", config, outcome.results, timing)
    split = load(config.source, config.seeds[0])
    print(hyper_cleaning_report.write(output, config.radius, config.seeds, outcome.results, outcome.histories, split))


def define_flags() -> None:
    """Every field of the config is a flag; those not given come from the preset."""
    flags.DEFINE_enum("preset", "quick", sorted(PRESETS), "quick: R = 1000, one seed; paper: four R, three seeds.")
    flags.DEFINE_string("output_dir", "results/data_hyper_cleaning", "Where results go; a stopped run goes on from here.")
    flags.DEFINE_bool("resume", True, "Go on where a stopped run in output_dir was; --noresume starts afresh.")
    flags.DEFINE_bool("tensorboard", True, "Write TensorBoard logs to output_dir/runs/*/tensorboard.")
    meshes.define_flag()
    flags.DEFINE_list("radius", None, "Bounds R on the sum of the weights, one run for each.")
    flags.DEFINE_list("seeds", None, "Seeds of split and corruption, one run for each.")
    flags.DEFINE_integer("steps", None, "T: inner gradient-descent steps.", lower_bound=1)
    flags.DEFINE_float("inner_rate", None, "Inner learning rate, times N / R.", lower_bound=0.0)
    flags.DEFINE_float("hyper_rate", None, "Learning rate of projected Adam.", lower_bound=0.0)
    flags.DEFINE_integer("hyper_iterations", None, "Updates of the weights.", lower_bound=1)
    flags.DEFINE_integer("fit_steps", None, "Steps of the models that are compared.", lower_bound=1)
    flags.DEFINE_float("fit_rate", None, "Learning rate of the models that are compared.", lower_bound=0.0)
    flags.DEFINE_enum("source", None, ["embedded", "tfds"], "Where the digits come from.")


def command_line() -> None:
    """Defines the flags and runs."""
    define_flags()
    common.run_main(main)
