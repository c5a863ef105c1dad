"""Searches over the hypers of phone classification: many early-stopped trainings, one after the other."""

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
from experiments.common import binary as common
from experiments.common.plain_training import fixed
from experiments.phone_classification.methods import Bench, History, Outcome, any_of, stalled
from experiments.phone_classification.network import Params

Proposals = Generator[dict[str, float], float | None, None]
"""Yields hypers and is sent the validation accuracy that they led to."""

INTERVALS = {"rho": (0.0, 4.0), "eta": (1e-5, 1.0), "mu": (0.0, 0.999)}
STARTS = 5  # random points before the first model


def random_search(seed: int) -> Proposals:
    """The paper's distributions."""
    rng = np.random.default_rng(seed)
    while True:
        yield {"rho": rng.uniform(0, 4), "eta": rng.exponential(0.1), "mu": rng.uniform(0, 1)}


def model_based(seed: int) -> Proposals:
    """A Gaussian process with expected improvement, after a few random points of the paper's intervals."""
    from bayes_opt import BayesianOptimization, acquisition

    rng = np.random.default_rng(seed)
    improvement = acquisition.ExpectedImprovement(xi=0.0, random_state=seed)
    model = BayesianOptimization(None, INTERVALS, improvement, random_state=seed, verbose=0, allow_duplicate_points=True)
    starts = [{name: rng.uniform(*interval) for name, interval in INTERVALS.items()} for _ in range(STARTS)]
    while True:
        point = starts.pop() if starts else {name: float(x) for name, x in model.suggest().items()}
        score = yield point
        assert score is not None
        model.register(point, score)


PROPOSALS = {"RS": random_search, "SMBO": model_based}


def check_package() -> None:
    """Whether `model_based` has what it needs."""
    if importlib.util.find_spec("bayes_opt") is None:
        raise DataError("SMBO needs the package bayesian-optimization: pip install 'rfho2[search]'.")


class Trial(NamedTuple):
    """One training: its hypers, its rows of {"steps", "seconds", "validation accuracy"}, and the params it kept."""

    hypers: dict[str, float]
    rows: History
    kept: Params

    @property
    def score(self) -> float:
        """The best validation accuracy."""
        return max(row["validation accuracy"] for row in self.rows)


def search(
    bench: Bench,
    proposals: Proposals,
    title: str,
    directory: Path | None = None,
    callbacks: Callable[[Path], Sequence[rf.Callback]] = lambda directory: (),
) -> Outcome:
    """Trials until the budget is used up; the best by validation accuracy is kept.

    Args:
      directory: finished trials are kept there, a folder for each, and not run again.
      callbacks: folder of a trial -> who watches it.
    """
    t = bench.training
    unit, total = ("steps", t.steps * t.plain_factor) if t.minutes is None else ("seconds", 60 * t.minutes)
    best, curve, score, number = None, [_row(0, 0.0, 0.0)], None, 0
    with tqdm(total=total, desc=title, unit=f" {unit}", unit_scale=True) as bar:
        while curve[-1][unit] < total:
            hypers = proposals.send(score)
            place = directory and directory / f"trial_{number:03d}"
            trial = _load(place, hypers) if place else None
            if trial is None:
                trial = _run(bench, hypers, unit, total - curve[-1][unit], callbacks(place) if place else ())
                if place:
                    _save(place, trial)
            best = trial if best is None or trial.score > best.score else best
            curve += _after(curve[-1], trial.rows)
            bar.update(min(curve[-1][unit], total) - bar.n)
            score, number = trial.score, number + 1
    assert best is not None
    return Outcome(best.kept, best.kept, best.hypers, curve[1:])


def _run(bench: Bench, hypers: dict[str, float], unit: str, left: float, callbacks: Sequence[rf.Callback]) -> Trial:
    """A training that ends early, or when nothing is left of the budget."""
    every = bench.training.hyper_batch
    iterations = max(1, int(left) // every) if unit == "steps" else 10**9
    stop = any_of(stalled(bench.training), lambda h: unit == "seconds" and bool(h) and h[-1]["seconds"] >= left)
    began = time.perf_counter()
    outcome = bench.outcome(bench.run(bench.plain, fixed, hypers, stop, iterations, callbacks))
    rows = outcome.curve or [_row(every, time.perf_counter() - began, 0.0)]  # it diverged at once
    return Trial(hypers, [_row(r["steps"], r["seconds"], r["validation accuracy"]) for r in rows], outcome.kept)


def _row(steps: float, seconds: float, accuracy: float) -> dict[str, float]:
    return {"steps": steps, "seconds": seconds, "validation accuracy": accuracy}


def _after(last: dict[str, float], rows: Sequence[dict[str, float]]) -> History:
    """The rows of a trial that follows `last`, with the best accuracy so far."""
    best = last["validation accuracy"]
    found = []
    for row in rows:
        best = max(best, row["validation accuracy"])
        found.append(_row(last["steps"] + row["steps"], last["seconds"] + row["seconds"], best))
    return found


def _save(place: Path, trial: Trial) -> None:
    """The params first: a trial counts once its .json is there, which is written whole or not at all."""
    place.mkdir(parents=True, exist_ok=True)
    np.savez(place / "kept.npz", **{name: w.numpy() for name, w in trial.kept.items()})
    common.write_text(place / "trial.json", json.dumps({"hypers": trial.hypers, "rows": trial.rows}) + "\n")


def _load(place: Path, hypers: dict[str, float]) -> Trial | None:
    """The trial with these hypers, if it was finished."""
    if not (place / "trial.json").exists():
        return None
    record: dict[str, Any] = json.loads((place / "trial.json").read_text())
    if record["hypers"] != hypers:
        raise DataError(f"{place} has a trial of {record['hypers']}, but {hypers} comes next; start afresh with --noresume.")
    with np.load(place / "kept.npz", allow_pickle=False) as file:
        return Trial(record["hypers"], record["rows"], {name: tf.constant(file[name]) for name in file.files})
