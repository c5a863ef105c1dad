"""What is run: a grid of settings on two folds, and all ways to train on real speech and on synthetic speech of three sizes.

The protocol, fixed before the run, is in docs/experiments/speech_settings.md.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data.speech import timit
from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.phone_classification import config as phone_config
from experiments.phone_classification import network
from experiments.phone_classification.experiment import find_corpus, tested
from experiments.speech_settings import ways
from experiments.speech_settings.ways import RealTime

SAMPLE = "sample"
PARTS = ("grid", "sample", "sizes")
DELTAS = (20, 50, 200)
LOOKS = ((False, 1.0), (True, 1.0), (True, 0.99), (True, 0.9))  # (carry, discount)
RATES = (0.005, 0.01, 0.02)
CHOSEN = {False: "RTHO, best of the grid", True: "RTHO-NT, best of the grid"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    parts: tuple[str, ...] = setting(PARTS, "Which parts; repeat the flag for several.", choices=PARTS)
    corpus: str | None = setting(
        None, "A directory in the layout of TIMIT, for grid and sample; otherwise synthetic speech."
    )
    sizes: tuple[int, ...] = setting((1, 4, 16), "Synthetic speech: multiples of 16 speakers.", at_least=1)
    speakers: int = setting(16, "Speakers of the smallest synthetic corpus.", at_least=3)
    sentences: int = setting(8, "Sentences of each of them.", at_least=1)
    steps: int = setting(1_000, "Training steps in real time.", at_least=1)
    longer: int = setting(4, "Times as many steps, for the largest corpus.", at_least=1)
    grid_folds: tuple[int, ...] = setting((0, 1), "Folds on which settings are chosen.", at_least=0)
    folds: tuple[int, ...] = setting((0, 1, 2, 3, 4), "Folds of the tables.", at_least=0)
    size_folds: tuple[int, ...] = setting((0, 1, 2), "Folds of the synthetic corpora.", at_least=0)
    seeds: tuple[int, ...] = setting(
        (0,), "Seeds of weights and minibatches; the grid and the sizes have the first.", at_least=0
    )
    deltas: tuple[int, ...] = setting(DELTAS, "Training steps between updates of the hypers, in the grid.", at_least=1)
    rates: tuple[float, ...] = setting(RATES, "Learning rates of the hypers, in the grid.", at_least=0.0)
    batch_size: int = setting(500, "Frames in a minibatch.", at_least=1)
    cache_dir: str = setting("results/speech", "Where features and synthetic speech are kept; no result depends on it.")


PRESETS = {
    "full": Config(),
    "quick": Config(
        sizes=(1,), speakers=4, sentences=2, steps=40, longer=1, grid_folds=(0,), folds=(0,), size_folds=(0,), seeds=(0,),
        deltas=(20,), rates=(0.01,), batch_size=100,
    ),
}  # fmt: skip


class Unit(NamedTuple):
    """What a row depends on.

    Attributes:
      corpus: a directory, or "" for synthetic speech of so many speakers with so many sentences.
      way: a name; settings: of real time, if the way has any.
    """

    corpus: str
    speakers: int
    sentences: int
    steps: int
    batch_size: int
    fold: int
    seed: int
    way: str
    settings: RealTime | None
    cache_dir: str

    @property
    def name(self) -> str:
        """Identifies the unit."""
        where = self.corpus or f"{self.speakers} speakers, {self.sentences} sentences"
        trained = self.settings or self.way
        return f"{where}, {self.steps} steps of {self.batch_size}, fold {self.fold}, seed {self.seed}: {trained}"


def parts(config: Config, rows: Sequence[Row]) -> dict[str, list[Unit]]:
    """The units of each part: the grid first, then all ways, one of which is what the grid chose."""
    made = {"grid": grid(config)} if "grid" in config.parts else {}
    known = {row["unit"]: row for row in rows}
    if all(unit.name in known for unit in made.get("grid", [])):
        chosen = choose([known[unit.name] for unit in made.get("grid", [])])
        made |= {part: units(config, chosen) for part, units in AFTERWARDS.items() if part in config.parts}
    return made


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Those of all parts."""
    return list(itertools.chain.from_iterable(parts(config, rows).values()))


def results(config: Config, rows: Sequence[Row]) -> list[Row]:
    """The rows of each part. Two names of a way may have the same settings, and so share a row."""
    known = {row["unit"]: row for row in rows}
    return [
        {**known[unit.name], "way": unit.way, "part": part} for part, made in parts(config, rows).items() for unit in made
    ]


def grid(config: Config) -> list[Unit]:
    """Every combination of settings, on the folds where they are chosen, with the first seed."""
    every = itertools.product(config.grid_folds, (False, True), config.deltas, LOOKS, config.rates)
    return [
        _unit(config, 1, fold, config.seeds[0], "grid", RealTime(delta, *look, rate, null))._replace(
            corpus=config.corpus or ""
        )
        for fold, null, delta, look, rate in every
    ]


def choose(rows: Sequence[Row]) -> dict[bool, RealTime]:
    """The settings of the grid with the best mean validation accuracy, for RTHO and for RTHO-NT."""
    accuracies: dict[RealTime, list[float]] = {}
    for row in rows:
        accuracies.setdefault(RealTime(**row["settings"]), []).append(row["validation_accuracy"])
    of_kind = {null: [one for one in accuracies if one.null_teacher == null] for null in (False, True)}
    return {null: max(every, key=lambda one: float(np.mean(accuracies[one]))) for null, every in of_kind.items() if every}


def all_ways(chosen: dict[bool, RealTime]) -> dict[str, RealTime | None]:
    """Every way of the tables."""
    return {**dict.fromkeys(ways.PLAIN), **ways.TUNED, **{CHOSEN[null]: settings for null, settings in chosen.items()}}


def sample(config: Config, chosen: dict[bool, RealTime]) -> list[Unit]:
    """All ways on the corpus of the grid."""
    every = itertools.product(config.folds, config.seeds, all_ways(chosen).items())
    return [
        _unit(config, 1, fold, seed, way, settings)._replace(corpus=config.corpus or "")
        for fold, seed, (way, settings) in every
    ]


def sizes(config: Config, chosen: dict[bool, RealTime]) -> list[Unit]:
    """All ways on synthetic corpora of several sizes, and with a longer budget on the largest."""
    budgets = [(size, config.steps) for size in config.sizes]
    budgets.append((max(config.sizes), config.longer * config.steps))
    every = itertools.product(config.size_folds, budgets, all_ways(chosen).items())
    return [
        _unit(config, size, fold, config.seeds[0], way, settings)._replace(steps=steps)
        for fold, (size, steps), (way, settings) in every
    ]


AFTERWARDS = {"sample": sample, "sizes": sizes}


def _unit(config: Config, size: int, fold: int, seed: int, way: str, settings: RealTime | None) -> Unit:
    shape = size * config.speakers, config.sentences, config.steps, config.batch_size
    return Unit("", *shape, fold, seed, way, settings, config.cache_dir)


def compute(unit: Unit, output: Path) -> Row:
    """One training, and its accuracies."""
    data = _speech(unit.corpus, unit.speakers, unit.sentences, unit.cache_dir, unit.fold)
    training = phone_config.PhoneTraining(steps=unit.steps, batch_size=unit.batch_size)
    began = time.perf_counter()
    outcome = ways.train(training, data, unit.seed, unit.way, unit.settings)
    seconds = time.perf_counter() - began
    about = unit._asdict() | {
        "settings": unit.settings and unit.settings._asdict(),
        "budget": unit.steps,
        "seconds": seconds,
    }
    thinned = outcome.curve[:: max(1, len(outcome.curve) // 50)]
    curve = {key: [row.get(key) for row in thinned] for key in ("steps", "eta", "mu", "rho", "validation accuracy")}
    del about["cache_dir"]
    return {"unit": unit.name, **about, **tested(data, outcome), "frames": len(data.train), "curve": curve}


@functools.lru_cache(maxsize=2)
def _speech(corpus: str, speakers: int, sentences: int, cache_dir: str, fold: int) -> network.Speech:
    config = phone_config.Config(corpus=corpus or None, speakers=speakers, sentences=sentences)
    found = find_corpus(config, Path(cache_dir))
    return network.speech(found, timit.split(found.utterances, fold))
