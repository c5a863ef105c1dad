"""Searches over the hypers: many early-stopped trainings, one after the other."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

import rfho2 as rf
from data.errors import DataError
from experiments.common.networks import Params
from experiments.common.plain_training import fixed
from experiments.common.results import write_text
from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.methods import UNLIMITED, Outcome, Trainer
from experiments.phone_classification.stopping import History, any_of, stalled

Proposals = Generator[dict[str, float], float | None, None]
"""Yields hypers and receives the validation accuracy that they led to."""

INTERVALS = {"rho": (0.0, 4.0), "eta": (1e-5, 1.0), "mu": (0.0, 0.999)}
RANDOM_POINTS = 5  # before the first model


def random_search(seed: int) -> Proposals:
    """Points from the paper's distributions."""
    rng = np.random.default_rng(seed)
    while True:
        yield {"rho": rng.uniform(0, 4), "eta": rng.exponential(0.1), "mu": rng.uniform(0, 1)}


def model_based(seed: int) -> Proposals:
    """Points of largest expected improvement under a Gaussian process, after a few random ones in the paper's intervals."""
    from bayes_opt import BayesianOptimization, acquisition

    rng = np.random.default_rng(seed)
    improvement = acquisition.ExpectedImprovement(xi=0.0, random_state=seed)
    model = BayesianOptimization(None, INTERVALS, improvement, random_state=seed, verbose=0, allow_duplicate_points=True)
    starts = [{name: rng.uniform(*interval) for name, interval in INTERVALS.items()} for _ in range(RANDOM_POINTS)]
    while True:
        point = starts.pop() if starts else {name: float(x) for name, x in model.suggest().items()}
        score = yield point
        assert score is not None  # `search` sends one after every point
        model.register(point, score)


PROPOSALS = {"RS": random_search, "SMBO": model_based}


def check_package() -> None:
    """Refuses to start without the package that `model_based` needs."""
    if importlib.util.find_spec("bayes_opt") is None:
        raise DataError("SMBO needs the package bayesian-optimization: pip install 'rfho2[search]'.")


class Trial(NamedTuple):
    """One training: its hypers, its rows of {"steps", "seconds", "validation accuracy"}, and its best params."""

    hypers: dict[str, float]
    rows: History
    kept: Params

    @property
    def score(self) -> float:
        """The best validation accuracy."""
        return max(row["validation accuracy"] for row in self.rows)


class Budget(NamedTuple):
    """The budget of a whole search, in "steps" or "seconds"."""

    unit: str
    total: float

    @classmethod
    def of(cls, training: PhoneTraining) -> Budget:
        """The budget in minutes if there is one, else in steps."""
        if training.minutes is not None:
            return cls("seconds", 60 * training.minutes)
        return cls("steps", training.steps * training.plain_factor)


def search(
    trainer: Trainer,
    proposals: Proposals,
    title: str,
    directory: Path | None = None,
    callbacks: Callable[[Path], Sequence[rf.Callback]] = lambda directory: (),
) -> Outcome:
    """Trials until the budget is used up; the best by validation accuracy is kept.

    Args:
      directory: where finished trials are kept, one folder each, and not run again.
      callbacks: folder of a trial -> its callbacks.
    """
    unit, total = Budget.of(trainer.training)
    best, curve, score, number = None, [_row(0, 0.0, 0.0)], None, 0
    with tqdm(total=total, desc=title, unit=f" {unit}", unit_scale=True) as bar:
        while curve[-1][unit] < total:
            hypers = proposals.send(score)
            folder = directory and directory / f"trial_{number:03d}"
            left = Budget(unit, total - curve[-1][unit])
            trial = _load(folder, hypers) if folder else None
            if trial is None:
                trial = _run(trainer, hypers, left, callbacks(folder) if folder else ())
                if folder:
                    _save(folder, trial)
            best = trial if best is None or trial.score > best.score else best
            curve += _after(curve[-1], trial.rows)
            bar.update(min(curve[-1][unit], total) - bar.n)
            score, number = trial.score, number + 1
    assert best is not None  # the budget is positive
    return Outcome(best.kept, best.kept, best.hypers, curve[1:])


def _run(trainer: Trainer, hypers: dict[str, float], left: Budget, callbacks: Sequence[rf.Callback]) -> Trial:
    """A training that ends early, or when nothing is left of the budget."""
    every = trainer.training.hyper_batch
    iterations = max(1, int(left.total) // every) if left.unit == "steps" else UNLIMITED
    timed = left.unit == "seconds"
    stop = any_of(stalled(trainer.training), lambda h: timed and bool(h) and h[-1]["seconds"] >= left.total)
    began = time.perf_counter()
    outcome = trainer.outcome(trainer.run(trainer.plain, fixed, hypers, stop, iterations, callbacks))
    rows = outcome.curve or [_row(every, time.perf_counter() - began, 0.0)]  # it diverged at once
    return Trial(hypers, [_row(r["steps"], r["seconds"], r["validation accuracy"]) for r in rows], outcome.kept)


def _row(steps: float, seconds: float, accuracy: float) -> dict[str, float]:
    return {"steps": steps, "seconds": seconds, "validation accuracy": accuracy}


def _after(last: dict[str, float], rows: Sequence[dict[str, float]]) -> History:
    """The rows of a trial that follows `last`, with the best accuracy so far."""
    best, curve = last["validation accuracy"], []
    for row in rows:
        best = max(best, row["validation accuracy"])
        curve.append(_row(last["steps"] + row["steps"], last["seconds"] + row["seconds"], best))
    return curve


def _save(folder: Path, trial: Trial) -> None:
    """Writes the params first: a trial counts once its .json exists, which is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "kept.npz", **{name: w.numpy() for name, w in trial.kept.items()})
    write_text(folder / "trial.json", json.dumps({"hypers": trial.hypers, "rows": trial.rows}) + "\n")


def _load(folder: Path, hypers: dict[str, float]) -> Trial | None:
    """The trial with these hypers, if it was finished."""
    if not (folder / "trial.json").exists():
        return None
    record: dict[str, Any] = json.loads((folder / "trial.json").read_text())
    if record["hypers"] != hypers:
        raise DataError(
            f"{folder} has a trial of {record['hypers']}, but {hypers} comes next; start afresh with --noresume."
        )
    with np.load(folder / "kept.npz", allow_pickle=False) as file:
        return Trial(record["hypers"], record["rows"], {name: tf.constant(file[name]) for name in file.files})
