"""Learning rate, momentum and L2 of a network tuned in real time, while it learns real digits.

Starts from the null teacher: all three hyperparameters at 0, knowing nothing of the task.

    python -m experiments.real_time_digits --output_dir=results/real_time_digits
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from absl import flags

import rfho2 as rf
from data import mnist
from experiments.common import binary as common
from rfho2.core.types import Hypers

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the run depends on."""

    hidden: int = 100
    batch_size: int = 100
    hyper_batch: int = 20
    hyper_iterations: int = 150
    hyper_rate_lr: float = 0.005
    hyper_rate_mu: float = 0.005
    hyper_rate_l2: float = 1e-5
    seed: int = 0


def network(config: Config) -> dict[str, tf.Tensor]:
    """Weights of a 784-hidden-10 network."""
    rng = np.random.default_rng(config.seed)
    sizes = (784, config.hidden, 10)
    layers = list(enumerate(itertools.pairwise(sizes)))
    weights = {f"w{i}": tf.constant(rng.normal(size=(m, n), scale=m**-0.5), tf.float32) for i, (m, n) in layers}
    return weights | {f"b{i}": tf.zeros(n) for i, (_, n) in layers}


def logits(p: dict[str, tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """The network."""
    return tf.tanh(x @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]


def error(p: dict[str, tf.Tensor], hypers: Hypers, batch: Any) -> tf.Tensor:
    """Mean cross-entropy."""
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(p, x)))


def loss(p: dict[str, tf.Tensor], hypers: Hypers, batch: Any) -> tf.Tensor:
    """What training minimises: the error, and the squared weights."""
    return error(p, hypers, batch) + hypers["l2"] * tf.reduce_sum([tf.reduce_sum(tf.square(p[w])) for w in ("w0", "w1")])


def run(config: Config, data: mnist.NoisySplit, callbacks: Sequence[rf.Callback], checkpoint_dir: Path | None) -> rf.Result:
    """Trains and tunes at the same time."""
    train, validation, test = (tuple(map(tf.constant, part)) for part in (data.train, data.validation, data.test))
    problem = rf.Problem(
        rf.momentum(loss, learning_rate="lr", momentum="mu"),
        error,
        steps=None,
        batches=rf.batches.shuffled(train, config.batch_size, config.seed),
        validation=rf.batches.shuffled(validation, 500, config.seed + 1),
    )

    @tf.function(autograph=False)
    def accuracies(p: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        hits = [tf.argmax(logits(p, x), 1, tf.int32) == y for x, y in (train, validation, test)]
        return [tf.reduce_mean(tf.cast(h, tf.float32)) for h in hits]

    def metrics(state: Any, hypers: Hypers, k: int) -> dict[str, float]:
        names = ("training accuracy", "validation accuracy", "test accuracy")
        return dict(zip(names, map(float, accuracies(problem.dynamics.params(state))), strict=True))

    tuner = rf.HyperOptimizer(
        rf.real_time(problem, config.hyper_batch),
        rf.projected_adam(
            {"lr": config.hyper_rate_lr, "mu": config.hyper_rate_mu, "l2": config.hyper_rate_l2},
            {"lr": rf.NonNegative(), "mu": rf.Box(0.0, 0.99), "l2": rf.NonNegative()},
        ),
        callbacks,
        metrics,
    )
    null_teacher = {"lr": 0.0, "mu": 0.0, "l2": 0.0}
    return tuner.run(network(config), null_teacher, config.hyper_iterations, checkpoint_dir)


def draw(history: list[dict[str, float]], config: Config, path: Path) -> None:
    """Accuracies, validation error and the three hypers against training steps."""
    steps = [(row["iteration"] + 1) * config.hyper_batch for row in history]
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True, layout="constrained")
    for name in ("training accuracy", "validation accuracy", "test accuracy"):
        axes[0, 0].plot(steps, [100 * row[name] for row in history], label=name.split()[0])
    axes[0, 0].set(title="Accuracy", ylabel="%", ylim=(50, 100))
    axes[0, 1].semilogy(steps, [row["value"] for row in history], color="tab:red")
    axes[0, 1].set(title="Validation error on 500 digits", ylabel="cross-entropy")
    for name, label in (("lr", "learning rate"), ("mu", "momentum factor")):
        axes[1, 0].plot(steps, [row[name] for row in history], label=label)
    axes[1, 0].set(title="Optimiser's hyperparameters", xlabel="training steps")
    axes[1, 1].plot(steps, [row["l2"] for row in history], color="tab:purple")
    axes[1, 1].set(title="L2 weight", xlabel="training steps")
    axes[1, 1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    axes[1, 0].legend()
    common.save_figure(figure, path)


def main() -> None:
    """Flags to config, run, and what is shown."""
    config = Config(**{field.name: FLAGS[field.name].value for field in dataclasses.fields(Config)})
    output = Path(FLAGS.output_dir)
    data = clean_split(config.seed)
    callbacks = [rf.ProgressBar(show=("value", "lr", "mu", "validation accuracy")), rf.CSVLogger(output / "history.csv")]
    if FLAGS.tensorboard:
        callbacks.append(rf.TensorBoard(output / "tensorboard", every=10))
    result = run(config, data, callbacks, output / "checkpoints")
    draw(result.history, config, output / "curves")
    last = result.history[-1]
    timing = {"seconds": last["seconds"]}
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in result.history]
    common.write_results(output / "results.json", config, rows, timing)
    print(
        f"after {config.hyper_iterations * config.hyper_batch} steps: test accuracy {last['test accuracy']:.2%}, "
        f"lr {last['lr']:.4f}, momentum {last['mu']:.3f}, L2 {last['l2']:.2e}; {last['seconds']:.0f} s.\n"
        f"Curves: {output / 'curves.png'}"
    )


def clean_split(seed: int) -> mnist.NoisySplit:
    """The digits with their true labels."""
    data = mnist.noisy_split(mnist.load(), seed)
    return data._replace(train=data.train._replace(labels=data.true_labels))


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_string(
        "output_dir", "results/real_time_digits", "Where results go; a run that was stopped goes on from here."
    )
    flags.DEFINE_bool("tensorboard", True, "Whether to write a TensorBoard log to output_dir/tensorboard.")
    for field in dataclasses.fields(Config):
        define = flags.DEFINE_integer if field.type == "int" else flags.DEFINE_float
        define(field.name, field.default, field.name.replace("_", " "))
    common.run_main(main)
