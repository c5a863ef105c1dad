"""`--mesh`: experiments in two processes have the results of one process."""

import csv

import pytest

from tests.support.processes import launch

EXPERIMENTS = {  # name: (flags, file with the history of a run)
    "data_hyper_cleaning": (
        ["--hyper_iterations=4", "--steps=5", "--fit_steps=5", "--radius=1000", "--seeds=0"],
        "runs/DH-1000-seed-0/history.csv",
    ),
    "task_interactions": (
        ["--hyper_iterations=4", "--steps=5", "--seeds=0", "--methods=HMTL-S"],
        "cifar10_5_per_class/runs/HMTL-S-split-0/history.csv",
    ),
    "phone_classification": (
        ["--steps=30", "--hyper_batch=10", "--methods=RTHO", "--width=8", "--layers=1", "--batch_size=50", "--speakers=8",
         "--sentences=2", "--validation_size=60"],
        "runs/RTHO_fold_0_seed_0/history.csv",
    ),
}  # fmt: skip


def history(path):
    with path.open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_two_processes_have_the_results_of_one(name, tmp_path):
    flags, place = EXPERIMENTS[name]
    module = f"experiments.{name}"
    speech = [f"--cache_dir={tmp_path / 'speech'}"] if name == "phone_classification" else []
    for processes, mesh in ((1, []), (2, ["--mesh"])):
        for ended in launch(
            processes, f"--output_dir={tmp_path / str(processes)}", *flags, *speech, *mesh, module=module, timeout=400.0
        ):
            assert ended.code == 0, ended.err[-3000:]
    alone, together = (history(tmp_path / n / place) for n in "12")
    assert len(alone) == len(together)
    for one, two in zip(alone, together, strict=True):
        common = set(one) & set(two)
        assert {"iteration", "value"} <= common
        assert {name: two[name] for name in common} == pytest.approx(
            {name: one[name] for name in common}, rel=1e-3, abs=1e-6
        )
    assert [row["value"] for row in together] == pytest.approx([row["value"] for row in alone], rel=1e-5)
    assert not list((tmp_path / "2").rglob("*.draft"))
