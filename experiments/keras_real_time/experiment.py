"""A Keras CNN tuned in real time, beside random search: accuracy and time.

    python -m experiments.keras_real_time --preset=quick
    python -m experiments.keras_real_time --preset=full

Random search trains the CNN `trials` times with Keras's own `fit`, with hypers drawn at random, and keeps the trial of the
best validation accuracy. `rf.RealTimeTuner` trains it once, for as many epochs, from a learning rate 100 times smaller and
from one 10 times larger than the best that the search found. Both see the same digits; the test digits are seen by none.
Seconds are of everything: building, compiling, training, validation.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import matplotlib.pyplot as plt
import numpy as np
from absl import flags
from tqdm import tqdm

import rfho2 as rf
from data import mnist
from data.errors import DataError
from experiments.common import binary as common

FLAGS = flags.FLAGS
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
THREE = ("learning_rate", "momentum", "weight_decay")
STARTS = {"100 times too small": 0.01, "10 times too large": 10.0}
RANGES = {"learning_rate": (1e-4, 1.0), "momentum": (0.5, 0.99), "weight_decay": (1e-6, 1e-2)}  # that are searched

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    train: int = 10_000
    validation: int = 2_500
    epochs: int = 5
    batch_size: int = 50
    trials: int = 20
    hyper_batch: int = 20
    seeds: tuple[int, ...] = (0,)


PRESETS = {"full": Config(seeds=(0, 1)), "quick": Config(train=2_000, validation=1_000, epochs=2, trials=4)}


def cnn(seed: int) -> keras.Model:
    """Two convolutions and a linear layer: 5,386 weights."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            layers.Conv2D(8, 5, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def digits(config: Config, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training, validation and test images with their true labels."""
    split = mnist.noisy_split(mnist.load(), seed, config.train, config.validation)
    parts = [(split.train.images, split.true_labels), tuple(split.validation), tuple(split.test)]
    return [(images.reshape(-1, 28, 28, 1), labels) for images, labels in parts]


def drawn(hypers: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """Learning rate, 1 - momentum and weight decay, each uniform in its logarithm."""
    found = {}
    for name in hypers:
        low, high = (1 - end if name == "momentum" else end for end in RANGES[name])
        value = float(np.exp(rng.uniform(*np.log(sorted((low, high))))))
        found[name] = 1 - value if name == "momentum" else value
    return found


def trial(config: Config, seed: int, data: Any, hypers: Mapping[str, float]) -> Record:
    """One training by Keras with fixed hypers."""
    train, validation, test = data
    began = time.perf_counter()
    optimizer = keras.optimizers.SGD(
        hypers["learning_rate"], hypers.get("momentum", 0.9), weight_decay=hypers.get("weight_decay")
    )
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = cnn(seed)
    model.compile(optimizer, LOSS, metrics=["accuracy"])
    history = model.fit(
        *train, validation_data=validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    ).history
    seconds = time.perf_counter() - began
    return {**hypers, "validation": history["val_accuracy"][-1], "test": accuracy(model, test), "seconds": seconds}


def accuracy(model: keras.Model, test: tuple[np.ndarray, np.ndarray]) -> float:
    """On the test digits, outside of all clocks."""
    return float(np.mean(model.predict(test[0], batch_size=500, verbose=0).argmax(1) == test[1]))


def tuned(config: Config, seed: int, data: Any, hypers: Mapping[str, float]) -> Record:
    """One training in real time; `way` has learning rate and validation loss at every update of the hypers."""
    train, validation, test = data
    began = time.perf_counter()
    model = cnn(seed)
    tuner = rf.RealTimeTuner(model, LOSS, hypers, metrics=["accuracy"], hyper_batch=config.hyper_batch, seed=seed)
    history = tuner.fit(
        train[0], train[1], validation_data=validation, epochs=config.epochs, batch_size=config.batch_size, verbose=0
    )
    seconds = time.perf_counter() - began
    way = {name: history.trajectories[name].tolist() for name in ("learning_rate", "value")}
    last = history.history["val_accuracy"][-1]
    return {**hypers, "validation": last, "test": accuracy(model, test), "seconds": seconds, "way": way}


class Trainings:
    """Records of trainings by name, in a file: a run that was stopped goes on after the last of them."""

    def __init__(self, path: Path, resume: bool, total: int):
        self._path = path
        self._done: dict[str, Record] = json.loads(path.read_text()) if resume and path.exists() else {}
        self._bar = tqdm(total=total, unit="training")

    def __call__(self, name: str, train: Callable[[], Record]) -> Record:
        """What the training gave, now or before."""
        if name not in self._done:
            self._done[name] = train()
            common.write_text(self._path, json.dumps(self._done, indent=1) + "\n")
        self._bar.update()
        return self._done[name]


def run(config: Config, path: Path, resume: bool = True) -> list[Record]:
    """A record for each method, seed and number of hypers; the trainings are kept in the file."""
    trainings = Trainings(path, resume, len(config.seeds) * 2 * (config.trials + len(STARTS)))
    return [
        record
        for seed in config.seeds
        for hypers in (THREE[:1], THREE)
        for record in compared(config, seed, digits(config, seed), hypers, trainings)
    ]


def compared(config: Config, seed: int, data: Any, hypers: Sequence[str], trainings: Trainings) -> list[Record]:
    """Random search, and the tuner from starts that are wrong by what the search found."""
    rng = np.random.default_rng(seed)
    draws = [drawn(hypers, rng) for _ in range(config.trials)]
    place = f"seed {seed}, {len(hypers)} hypers"
    trials = [
        trainings(f"{place}, trial {i}", functools.partial(trial, config, seed, data, draw)) for i, draw in enumerate(draws)
    ]
    best = max(trials, key=lambda record: record["validation"])
    total = sum(record["seconds"] for record in trials)
    found = [{**best, "method": f"random search, {config.trials} trials", "seconds": total}]
    for name, factor in STARTS.items():
        usual = {"momentum": 0.9, "weight_decay": 1e-4}
        start = {"learning_rate": factor * best["learning_rate"], **{n: usual[n] for n in hypers[1:]}}
        record = trainings(f"{place}, {name}", functools.partial(tuned, config, seed, data, start))
        found.append({**record, "method": f"real time, {name}"})
    return [{"seed": seed, "number_of_hypers": len(hypers), **r, "ratio": r["seconds"] / total} for r in found]


def table(records: Sequence[Record]) -> str:
    """One row for each method and number of hypers: means over seeds, and the seed that compares worst."""
    lines = ["| hypers | method | test accuracy, % | - random search | worst seed | seconds | time / random search |"]
    lines.append("|---|---|---|---|---|---|---|")
    for hypers in sorted({r["number_of_hypers"] for r in records}):
        of = [r for r in records if r["number_of_hypers"] == hypers]
        base = {r["seed"]: r["test"] for r in of if r["method"].startswith("random")}
        for method in dict.fromkeys(r["method"] for r in of):
            rows = [r for r in of if r["method"] == method]
            points = [100 * (r["test"] - base[r["seed"]]) for r in rows]
            test, seconds, ratio = (np.mean([r[key] for r in rows]) for key in ("test", "seconds", "ratio"))
            compared = f"{np.mean(points):+.2f} | {min(points):+.2f}"
            lines.append(f"| {hypers} | {method} | {100 * test:.2f} | {compared} | {seconds:.1f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def draw(records: Sequence[Record], config: Config, path: Path) -> None:
    """The learning rate and the validation loss against training steps, of the first seed."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for record in records:
        if record["seed"] == config.seeds[0] and "way" in record:
            number, way = record["number_of_hypers"], record["way"]
            steps = config.hyper_batch * (1 + np.arange(len(way["value"])))
            label = f"{record['method'].removeprefix('real time, ')}, {number} hyper{'s' * (number > 1)}"
            style = "-" if number == 1 else "--"
            axes[0].semilogy(steps, way["learning_rate"], style, label=label)
            axes[1].semilogy(steps, way["value"], style)
    axes[0].set(title="Learning rate", xlabel="training steps")
    axes[1].set(title="Loss on 500 validation digits", xlabel="training steps", ylabel="cross-entropy")
    figure.legend(loc="outside lower center", ncols=4)
    for axis in axes:
        axis.grid(alpha=0.3)
    common.save_figure(figure, path)


def main() -> None:
    """Flags to config, run, and what is written."""
    config = dataclasses.replace(PRESETS[FLAGS.preset], **common.given(Config))
    if config.train + config.validation >= 10 * mnist.PER_CLASS:
        raise DataError(f"--train={config.train} and --validation={config.validation} leave no digits to test on.")
    output = Path(FLAGS.output_dir)
    common.keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    records = run(config, output / "trainings.json", FLAGS.resume)
    draw(records, config, output / "learning_rates")
    common.write_text(output / "table.md", table(records))
    for record in records:
        record.pop("way", None)  # trainings.json has it
    timing = {name: [record.pop(name) for record in records] for name in ("seconds", "ratio")}
    common.write_results(output / "results.json", config, records, timing)
    print((output / "table.md").read_text())


def define_flags() -> None:
    """One for each field of the config, and those of the binary."""
    flags.DEFINE_string("output_dir", "results/keras_real_time", "Where results go; a run that was stopped goes on there.")
    flags.DEFINE_bool("resume", True, "--noresume starts afresh, and replaces what is in output_dir.")
    flags.DEFINE_enum("preset", "quick", sorted(PRESETS), "The settings; other flags change single ones.")
    flags.DEFINE_integer("train", None, "Digits to train on.", lower_bound=1)
    flags.DEFINE_integer("validation", None, "Digits to validate on.", lower_bound=1)
    flags.DEFINE_integer("epochs", None, "Of each training.", lower_bound=1)
    flags.DEFINE_integer("batch_size", None, "Of training.", lower_bound=1)
    flags.DEFINE_integer("trials", None, "Of random search.", lower_bound=1)
    flags.DEFINE_integer("hyper_batch", None, "Steps between two updates of the hypers.", lower_bound=1)
    flags.DEFINE_list("seeds", None, "Of digits, weights and trials.")


def command_line() -> None:
    """Defines the flags and runs."""
    define_flags()
    common.run_main(main)
