"""Tables and figures of the task-interaction experiment."""

import numpy as np
import pytest

from data import cifar_features
from experiments.task_interactions import report

DIGITS = tuple(map(str, range(10)))


def rows(**accuracies):
    return [
        {"data": "cifar10, 5 per class", "method": m, "seed": s, "accuracy": a, "accuracy_refit": a + 0.1}
        for m, values in accuracies.items()
        for s, a in enumerate(values)
    ]


def test_differences_are_paired():
    results = rows(STL=[0.5, 0.6, 0.7], NMTL=[0.52, 0.61, 0.72])
    paired = report.difference(results[::-1], "NMTL", "STL", "accuracy")
    assert paired.mean == pytest.approx(100 * (0.02 + 0.01 + 0.02) / 3)
    half = 4.302653 * np.std([2, 1, 2], ddof=1) / np.sqrt(3)
    assert paired.half == pytest.approx(half, rel=1e-5)
    table = report.table(results, ["STL", "NMTL"]).splitlines()
    assert table[2] == "| STL | 60.00 ± 10.00 | 70.00 ± 10.00 | - | - | 67.47 ± 2.78 |"
    assert table[3].endswith("| +1.67 ± 1.43 | +1.67 ± 1.43 | 69.41 ± 1.90 |")


def test_the_speed_is_a_mean_over_the_splits():
    assert report.speed({"STL seed 0": 1.0, "STL seed 1": 3.0}) == "Seconds per hyper-iteration: STL 2.000."


def test_edges_inside_groups_and_across():
    names = cifar_features.load().class_names
    vehicle = np.isin(names, cifar_features.VEHICLES)
    c = np.where(vehicle[:, None] == vehicle[None], 2.0, 1.0) + 9 * np.eye(10)
    assert report.edges(c, names) == (2.0, 2.0, 1.0)
    text = report.edge_table("HMTL-S", {("HMTL-S", 0): c, ("HMTL-S", 1): np.ones((10, 10))}, names)
    assert "| inside animals | 1.5 | 1 of 2 |" in text


def test_the_graph_is_drawn_only_for_classes_with_names(tmp_path):
    results = rows(STL=[0.5]) + rows(**{"HMTL-S": [0.6], "Dinuzzo": [0.7]})
    c = {("HMTL-S", 0): np.ones((10, 10))}
    for names in (cifar_features.load().class_names, DIGITS):
        output = tmp_path / names[0]
        output.mkdir()
        report.write(output, results, c, names)
        assert (output / "table_2.md").read_text().count("\n") == 2 + len(("STL", "HMTL-S"))
        assert [line.split()[1] for line in (output / "table_4.md").read_text().splitlines()[2:]] == ["Dinuzzo", "HMTL-S"]
        assert (output / "heat_map_HMTL-S.png").stat().st_size > 1000
        assert (output / "figure_3.png").exists() == (names[0] == "airplane")


def test_each_total_has_its_own_figure(tmp_path):
    c = {(f"HMTL-S R={total:g}", 0): np.full((10, 10), total) for total in (1e-4, 1e-3)}
    results = [row | {"method": m} for m, _ in c for row in rows(STL=[0.5])]
    report.write(tmp_path, results, c, DIGITS)
    assert len(list(tmp_path.glob("heat_map_*.png"))) == 2
