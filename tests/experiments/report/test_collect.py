"""Results that are broken, unfinished, unknown or not recorded in full."""

import json
import os
import re
from pathlib import Path

import pytest

from experiments.common.results import write_text
from tests.support.pages import shown

TITLES = {"a": "Data hyper-cleaning", "b": "Learning task interactions", "c": "Phone classification"}


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("place", "name", "damage", "message"),
    [
        ("a", "results.json", cut, r"results\.json cannot be read \(.*line \d+"),
        ("a", "results.json", lambda p: p.write_text("[1]"), "results.json is not what an experiment writes"),
        (
            "a",
            "results.json",
            lambda p: p.write_text('{"config": {}, "results": 3}'),
            "no environment, no results, no timing",
        ),
        ("a", "results.json", Path.unlink, "There is no results.json"),
        ("a", "figure_2.png", Path.unlink, "figure_2.png is missing"),
        ("a", "figure_2.png", cut, r"figure_2.png cannot be read \(not a complete PNG image\)"),
        ("a", "figure_2.png", lambda p: p.write_bytes(b""), r"figure_2.png cannot be read \(not a complete PNG image\)"),
        ("a", "table_1.md", Path.unlink, "table_1.md is missing"),
        ("a", "table_1.md", lambda p: p.write_bytes(b"\xff\xfe|"), "table_1.md cannot be read"),
        ("b/cifar10_5_per_class", "heat_map_HMTL-S.png", Path.unlink, "heat_map_HMTL-S.png is missing"),
        ("c", "comparisons.md", Path.unlink, "comparisons.md is missing"),
    ],
)
def test_a_broken_file_is_reported_in_its_place_and_the_rest_is_shown(results, place, name, damage, message):
    before = {e["text"].split("\n")[1]: e["text"] for e in shown(results).all("article")}
    damage(results / place / name)
    parsed = shown(results)
    (note,) = parsed.notes
    assert re.search(message, note)
    assert note in parsed.article(place)
    after = {e["text"].split("\n")[1]: e["text"] for e in parsed.all("article")}
    assert {p: text for p, text in after.items() if p != place} == {p: text for p, text in before.items() if p != place}
    (chapter,) = [e for e in parsed.all("section") if note in e["text"]]
    assert chapter["text"].strip().startswith(TITLES[place[0]])


def test_rows_without_what_a_table_needs_are_reported(results):
    path = results / "digits" / "results.json"
    content = json.loads(path.read_text())
    del content["results"][-1]["mu"]
    path.write_text(json.dumps(content))
    (note,) = shown(results).notes
    assert "does not have what its table needs (KeyError('mu'))" in note


def test_what_was_not_recorded_is_not_invented(results):
    (results / "a" / "results.run.json").unlink()
    os.utime(results / "a" / "results.json", (1.5e9, 1.5e9))
    article = shown(results).article("a")
    assert "2017-07-14 02:40 UTC, according to the date of results.json" in article
    assert "experiments.data_hyper_cleaning; its flags were not recorded" in article


def test_an_unfinished_run_is_announced_under_its_experiment(tmp_path):
    (tmp_path / "task_interactions_x" / "cifar10_3_per_class" / "runs").mkdir(parents=True)
    write_text(tmp_path / "complexity" / "measurements.json", "[]")
    parsed = shown(tmp_path)
    assert len(parsed.notes) == 2
    first, second = (e["text"] for e in parsed.all("h2")[1:3])
    assert first.startswith("Learning task")
    assert "costs" in second


def test_unknown_results_are_shown_unchanged(tmp_path):
    (tmp_path / "mine").mkdir()
    content = {"config": {"depth": 3}, "environment": {}, "results": [{"loss": 1.0}], "timing": {}}
    (tmp_path / "mine" / "results.json").write_text(json.dumps(content))
    (tmp_path / "mine" / "losses.md").write_text("| run | loss |\n|---|---|\n| 1 | 0.5 |\n")
    (tmp_path / "mine" / "drawing.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"></svg>\n')
    parsed = shown(tmp_path)
    assert parsed.all("h2")[1]["text"] == "Other results"
    for text in ("depth", "losses.md", "0.5"):
        assert text in parsed.article("mine")
    assert parsed.all("img")[0]["src"].startswith("data:image/svg+xml;base64,")
