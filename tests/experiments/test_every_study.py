"""Every study: a small run as a user types it, which writes all it promises, and goes on where it was stopped."""

import importlib
import json
from pathlib import Path

import pytest

from experiments.common import pool
from tests.support.binaries import run_binary

SMALL = {
    "averaged_seeds": "--repetitions=1 --hyper_iterations=2 --steps=8 --hidden=5 --seeds=2 --fresh_seeds=2",
    "cleaning_compared": "--scenarios=half wrong --ways=disagreement --train=200 --workers=1",
    "crossover": "--hypers=1,3 --budgets=2 --workers=1",
    "discounts": "--train=200 --validation=100 --epochs=1 --steps=20 --width=4 --frames=50",
    "keras_real_time": "--train=300 --validation=100 --epochs=1 --batch_size=20 --trials=2 --hyper_batch=5",
    "keras_tasks": "--tasks=breast cancer --trials=1 --epochs=1",
    "label_cleaning": "--train=200 --trusted=50 --models=linear --noises=uniform --iterations=2",
    "learned_schedule": "--steps=20 --trials=2 --many=2 --seeds=1 --fresh_seeds=2 --hyper_iterations=2 --train=200",
    "learning_to_learn": "--shots=2 --tasks=2 --hyper_iterations=2 --rate_iterations=2 --calibration_tasks=4 --test_tasks=4",
    "long_training": "--methods=DoG --shorter=200 --workers=1",
    "online_weights": "--epochs=2 --hidden=5",
    "speech_settings": "--parts=grid --steps=10 --workers=1",
    "task_difficulty": "--iterations=2 --seeds=1",
    "warm_cleaning": "--steps=5 --warm_steps=2 --hyper_iterations=2",
}


def settings(name, folder):
    """The flags of a small run; a value may contain spaces."""
    given = [f"--{flag.strip()}" for flag in SMALL[name].split("--") if flag]
    cache = [f"--cache_dir={folder / 'speech'}"] if name in ("discounts", "speech_settings") else []
    return ["--preset=quick", *given, *cache]


def recorded(place):
    """The results, without the seconds that they took."""
    return json.loads((place / "results.json").read_text())["results"]


def test_no_study_is_missing():
    packages = Path(pool.__file__).parents[1].glob("*/report.py")
    assert set(SMALL) == {path.parent.name for path in packages if "STUDY = Study(" in path.read_text()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_study(name, tmp_path):
    study = importlib.import_module(f"experiments.{name}.report").STUDY
    place = tmp_path / "out"
    flags = [*settings(name, tmp_path), f"--output_dir={place}"]
    first = run_binary(name, *flags)
    assert first.code == 0, first.err[-2000:]
    for pattern, caption in study.captions.items():
        assert not caption.always or list(place.glob(f"{pattern}*")), pattern
    for table in place.glob("*.md"):
        assert table.read_text() in first.out
    results, rows = recorded(place), pool.read(place / pool.ROWS)
    lines = [json.dumps(row) for row in rows[: len(rows) // 2]]
    (place / pool.ROWS).write_text("\n".join([*lines, json.dumps(rows[-1])[:20]]))  # killed while it wrote a line
    again = run_binary(name, *flags)
    assert again.code == 0, again.err[-2000:]
    assert pool.read(place / pool.ROWS)[: len(lines)] == rows[: len(lines)], "they are not computed again"
    assert {row["unit"] for row in pool.read(place / pool.ROWS)} == {row["unit"] for row in rows}
    assert [row.keys() for row in recorded(place)] == [row.keys() for row in results]
