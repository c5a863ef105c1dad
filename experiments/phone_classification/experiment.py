"""Every method on every fold with every seed: what is run, what is kept, and the one look at the test speakers."""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rfho2 as rf
from data.speech import synthetic, timit
from experiments.common import meshes
from experiments.common.figures import slug
from experiments.common.results import write_text
from experiments.phone_classification import methods, network, search
from experiments.phone_classification.config import Config
from experiments.phone_classification.methods import Outcome, Trainer
from experiments.phone_classification.network import Speech

RUN_FIELDS = ("methods", "folds", "seeds", "checkpoint_every")  # fields that no single run depends on

Watch = Callable[[str | None, Path], Sequence[rf.Callback]]
"""(title, directory of a training) -> its callbacks; trainings of a search have no title, because the search has a bar."""


def run_method(name: str, trainer: Trainer, watch: Watch, title: str, directory: Path) -> Outcome:
    """One method."""
    if name in search.PROPOSALS:
        proposals = search.PROPOSALS[name](trainer.seed)
        return search.search(trainer, proposals, title, directory, functools.partial(watch, None))
    callbacks = watch(title, directory)
    if name.startswith("Vanilla"):
        return methods.fixed_hypers(trainer, methods.ALONE, callbacks, directory, early=name == "Vanilla")
    start = methods.NULL_TEACHER if name == "RTHO-NT" else methods.TAUGHT
    return methods.real_time(trainer, start, callbacks, directory)


def tested(data: Speech, outcome: Outcome) -> dict[str, Any]:
    """The accuracies of the params that a method kept and of its last ones: the only look at the test speakers."""
    accuracy = network.accuracy_on(data)
    rows = outcome.curve or [{"validation accuracy": 0.0, "steps": 0}]
    return {
        "accuracy": float(accuracy(outcome.kept, data.test)),
        "last_accuracy": float(accuracy(outcome.last, data.test)),
        "validation_accuracy": max(row["validation accuracy"] for row in rows),
        "last_validation_accuracy": rows[-1]["validation accuracy"],
        "steps": rows[-1]["steps"],
        **outcome.hypers,
    }


def run(config: Config, speech: Callable[[int], Speech], watch: Watch, output: Path) -> list[dict[str, Any]]:
    """Every method on every fold with every seed; those that have finished are read from `output`."""
    records, mesh = [], meshes.mesh() if meshes.enabled() else None
    for fold in config.folds:
        data = speech(fold)
        for seed in config.seeds:
            trainer = functools.cache(lambda seed=seed, data=data: Trainer(config, data, seed, mesh=mesh))
            for method in config.methods:
                title = f"{method}, fold {fold}, seed {seed}"
                directory = output / "runs" / slug(title)
                path = directory / "outcome.json"
                if path.exists():
                    text = path.read_text()
                else:
                    outcome = run_method(method, trainer(), watch, title, directory)
                    record = {"method": method, "fold": fold, "seed": seed, **tested(data, outcome), "curve": outcome.curve}
                    text = json.dumps(record) + "\n"
                    if meshes.writes():
                        write_text(path, text)
                records.append(json.loads(text))
    return records


def find_corpus(config: Config, cache_dir: Path) -> timit.Corpus:
    """The corpus of the config; synthetic speech is written first if that has not been done."""
    root = Path(config.corpus) if config.corpus else None
    if root is None:
        root = synthetic.find_or_write(cache_dir, config.speakers, config.sentences)
    corpus = timit.load(root, config.include_sa, cache_dir, config.skip_bad_files, kind=config.features)
    for message in corpus.skipped:
        print(f"left out: {message}")
    print(f"{len(corpus.utterances)} sentences, {len(corpus.features)} frames from {root}; {len(corpus.skipped)} left out.")
    return corpus


def settings_of(config: Config, corpus: timit.Corpus) -> dict[str, Any]:
    """What a run depends on, including the contents of the corpus, but not which runs there are."""
    kept = {name: value for name, value in dataclasses.asdict(config).items() if name not in RUN_FIELDS}
    arrays = corpus.features, corpus.states, corpus.phones
    return {**kept, "frames": len(corpus.features), "checksums": [zlib.crc32(np.ascontiguousarray(a).data) for a in arrays]}
