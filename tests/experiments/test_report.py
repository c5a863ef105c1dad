"""The page of results: what it shows of each experiment, what it says of broken ones, and that it stands alone."""

import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from data.errors import DataError
from experiments.benchmarks import peers as peer_benchmark
from experiments.common import binary as common
from experiments.complexity import experiment as complexity
from experiments.complexity import report as complexity_report
from experiments.data_hyper_cleaning import experiment as data_hyper_cleaning
from experiments.data_hyper_cleaning import report as hyper_cleaning_report
from experiments.keras_real_time import experiment as keras_real_time
from experiments.phone_classification import experiment as phone_classification
from experiments.phone_classification import report as phone_report
from experiments.real_time_digits import experiment as real_time_digits
from experiments.report import html as report_html
from experiments.report import page as report
from experiments.task_interactions import experiment as task_interactions
from experiments.task_interactions import report as task_interactions_report

ROOT = Path(__file__).parents[2]
VOID = {"meta", "img", "wbr"}


class Page(HTMLParser):
    """A page whose tags have to balance: elements with their attributes and text, and the text of each article."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop()["tag"] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, *tags, **attributes):
        return [e for e in self.elements if e["tag"] in tags and all(e.get(k) == v for k, v in attributes.items())]

    def article(self, place):
        """What stands under the heading of a directory."""
        (found,) = [e for e in self.all("article") if e["text"].strip().startswith(place + "\n")]
        return found["text"]

    @property
    def notes(self):
        return [e["text"] for e in self.all("p") if e.get("class") == "note"]


def png(height=2, width=3):
    file = io.BytesIO()
    matplotlib.image.imsave(file, np.random.default_rng(0).random((height, width, 3)), format="png")
    return file.getvalue()


def fill(directory, config, rows, timing, texts=(), figures=()):
    """A directory as an experiment leaves it."""
    common.write_results(directory / "results.json", config, rows, timing)
    for name, text in dict(texts).items():
        common.write_text(directory / name, text)
    for name in figures:
        for suffix in ("png", "pdf"):
            (directory / f"{name}.{suffix}").write_bytes(png())


def cleaning(directory, method="DH-1000"):
    accuracies = {"accuracy": 0.9042, "accuracy_weighted": 0.9047}
    rows = [{"method": method, "seed": 0, **accuracies, "f1": 0.948, "TP": 2395, "FP": 157, "discarded": 2552}]
    texts = {"table_1.md": hyper_cleaning_report.table_1(rows)}
    fill(directory, data_hyper_cleaning.Config(), rows, {"whole run": 125.0}, texts, ["figure_2", "discarded_first"])


def tasks(directory):
    row = {"data": "cifar10, 5 per class", "method": "HMTL-S", "validation_accuracy": 0.8, "accuracy": 0.7, "C/sum": 1e-3}
    rows = [{**row, "seed": seed, "accuracy_refit": 0.75 + seed / 100} for seed in range(5)]
    rows += [{**row, "method": "Jawanpuria p=4/3"} for row in rows]
    texts = {"table_2.md": task_interactions_report.table(rows, ["HMTL-S"])}
    texts["edges_HMTL-S.md"] = "| HMTL-S: mean C_jk | mean over splits |\n|---|---|\n| across | 7.39e-06 |\n"
    config = task_interactions.Config(seeds=tuple(range(5)))
    figures = ["figure_3", "heat_map_HMTL-S", "heat_map_Jawanpuria_p=4_3"]
    fill(directory, config, rows, {"whole run": 2.0}, texts, figures)


def phones(directory):
    curve = [{"seconds": s, "steps": 20 * s, "validation accuracy": 0.3} for s in (1, 2, 3)]
    row = {"method": "RTHO-NT", "fold": 0, "seed": 0, "accuracy": 0.3, "last_accuracy": 0.31, "validation_accuracy": 0.32}
    records = [{**row, "steps": 60, "curve": curve}, {**row, "method": "RTHO", "steps": 60, "curve": curve}]
    config = phone_classification.Config()
    texts = {"table_3.md": phone_report.table_3(records), "comparisons.md": phone_report.comparisons(records)}
    texts["table_5.md"] = phone_report.table_5(records, config)
    rows = [{name: value for name, value in record.items() if name != "curve"} for record in records]
    fill(directory, config, rows, {"whole run": 150.0}, texts, ["figure_4", "figure_4_RTHO"])


def costs(directory):
    rows = []
    for panel in ("seconds", "memory"):
        for method in complexity_report.METHODS:
            row = {
                "panel": panel,
                "method": method,
                "hypers": 22,
                "hidden": 171,
                "steps": 50,
                "truncate": 10,
                "seconds": 1.5,
            }
            missing = "not run: needs about 9.0 GB" if method == "reverse" else None
            rows.append({**row, "weights": 165_361, "peak_bytes": 10**9, "extrapolated": False, "missing": missing})
    fill(directory, complexity.Config(), rows, {}, {"table.md": complexity_report.table(rows)}, ["figure_a"])
    law = {"method": "forward", "against": "T", "values": [100, 1600], "seconds": [1.0, 16.0], "slope": 1.0}
    slopes = [{**law, "least": 0.95, "most": 1.05}]
    common.write_results(directory / "slopes.json", complexity_report.SlopeConfig(), slopes, {"whole run": 9.0})


def others(root):
    settings = [{"setting": "steps", "value": 10, "f1": [0.0, 0.95, 0.9]}]
    fill(root / "settings", data_hyper_cleaning.Config(), settings, {}, figures=["settings"])
    row = {"iteration": 0, "lr": 0.125, "mu": 0.26, "l2": 5.9e-4, "hypergradient/lr": 0.1}
    row |= {f"{part} accuracy": 0.9265 for part in ("training", "validation", "test")}
    fill(root / "digits", real_time_digits.Config(), [row], {"seconds": 44.0}, figures=["curves"])
    row = {"seed": 0, "number_of_hypers": 1, "method": "real time, 10 times too large", "test": 0.96}
    texts = {
        "table.md": keras_real_time.table(
            [{**row, "seconds": 20.0, "ratio": 0.2}, {**row, "method": "random search", "seconds": 99.0, "ratio": 1.0}]
        )
    }
    fill(root / "keras", keras_real_time.Config(), [row], {"seconds": [20.0]}, texts, ["learning_rates"])
    config = peer_benchmark.Config(("mlp_forward",), None, 5, False, {"jax": "0.10.2"})
    found = {"mlp_forward": {"rfho2": peer_benchmark.Outcome(0.0, 2.0), "JAX, jacfwd": peer_benchmark.Outcome(1e-8, 4.0)}}
    peer_benchmark.write(root / "peers" / "results.json", config, found)
    (root / "benchmark.txt").write_text("jit    plain training           2.17 ms a step    1.00 x\n")
    (root / "plan_benchmark.txt").write_text("seconds     memory\n\n| network | seconds |\n|---|---|\n| reverse | 3.60 |\n")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A directory with something of each experiment, most under names of the user's choice."""
    root = tmp_path / "results"
    for make, place in ((cleaning, "a"), (tasks, "b/cifar10_5_per_class"), (phones, "c"), (costs, "d")):
        monkeypatch.setattr(sys, "argv", [f"/somewhere/experiments/{make.__name__}.py", "--preset=quick"])
        make(root / place)
    others(root)
    for inside in ("a/runs/DH-1000-seed-0/checkpoints", "c/tensorboard"):
        (root / inside).mkdir(parents=True)
    return root


def shown(root):
    output = root / "report.html"
    report.write(root, output)
    return Page(output.read_text(encoding="ascii"))


def test_every_experiment_appears_with_tables_figures_and_settings(results):
    page = shown(results)
    titles = [e["text"] for e in page.all("h2")]
    wanted = [e.title for e in report.EXPERIMENTS if e.name != "phone_benchmark"]
    assert titles == ["Contents", *wanted, "Not here yet"]
    assert page.notes == []
    for place, *texts in (
        ("a", "Table 1", "2552", "Figure 2", "discarded first", "hyper_iterations", "2 min 5 s"),
        (
            "b/cifar10_5_per_class",
            "Table 2",
            "77.00 ± 1.58",
            "7.39e-06",
            "Figure 3",
            "Jawanpuria p=4/3: the matrix C",
            "0 to 4",
        ),
        ("c", "Table 3", "Paired differences", "Table 5", "100% of the budget", "Figure 4", "RTHO: accuracies"),
        ("settings", "0.9500", "F1 along each run"),
        ("digits", "3,000", "5.90e-04", "Accuracies"),
        ("keras", "10 times too large", "99.0", "Learning rate and validation loss"),
        ("peers", "JAX, jacfwd", "0.50", "jax 0.10.2"),
        ("benchmark.txt", "ms a step"),
    ):
        articles = [e["text"] for e in page.all("article") if e["text"].strip().startswith(place + "\n")]
        for text in texts:
            assert any(text in article for article in articles), (place, text)
    assert sorted(e["text"].split("\n")[1] for e in page.all("article")).count("d") == 2, "costs and slopes"
    assert len(page.all("img")) == 2 + 3 + 2 + 1 + 1 + 1 + 1
    assert [e["text"] for e in page.all("li")].count("seconds, reverse, m = 22, h = 171: not run: needs about 9.0 GB") == 1


def test_the_papers_columns_are_there_and_marked(results):
    page = shown(results)
    marked = [e["text"] for e in page.all("th", scope="col") if "paper" in e.get("class", "")]
    assert {"paper: accuracy %", "paper: F1", "paper: minutes", "paper: 300 min", "paper: reverse"} <= set(marked)
    assert marked == [e["text"] for e in page.all("th", scope="col") if e["text"].startswith("paper:")]
    cells = [e["text"] for e in page.all("td") if "paper" in e.get("class", "")]
    assert {"90.07", "0.9137", "71.62 ± 1.34", "61.97", "27", "1.2"} <= set(cells)


def test_command_date_and_machine_are_those_of_the_run(results):
    page = shown(results)
    article = page.article("a")
    assert "python -m experiments.cleaning --preset=quick" in article
    finished = json.loads((results / "a" / "results.run.json").read_text())["finished"]
    assert f"{finished[:10]} {finished[11:16]} UTC" in article
    (header,) = page.all("header")
    assert f"tensorflow {common.environment()['tensorflow']}" in header["text"]
    assert "Made with" not in article


def test_what_was_not_recorded_is_not_made_up(results):
    (results / "a" / "results.run.json").unlink()
    os.utime(results / "a" / "results.json", (1.5e9, 1.5e9))
    article = shown(results).article("a")
    assert "2017-07-14 02:40 UTC, by the date of results.json" in article
    assert "experiments.data_hyper_cleaning; its flags were not recorded" in article


def test_different_machines_stand_with_their_results(results):
    path = results / "a" / "results.json"
    content = json.loads(path.read_text())
    content["environment"]["device"] = "GPU (64 cores)"
    path.write_text(json.dumps(content))
    page = shown(results)
    assert "GPU (64 cores)" in page.article("a")
    assert "Made with" in page.article("c")
    assert "GPU (64 cores)" not in page.article("c")


def test_text_from_files_is_escaped(tmp_path):
    nasty = '<script>alert("1")</script> & <b>'
    place = 'x"><i>&amp;'
    cleaning(tmp_path / place, nasty)
    (tmp_path / "benchmark.txt").write_text(f"{nasty}\n</pre></div>\n")
    (tmp_path / place / f"<u>{'x' * 3}.png").write_bytes(png())
    common.write_text(tmp_path / place / "more.md", "<em>\n- <em>\n| <em>1</em> | x-<em> |\n|---|---|\n| 2 | <em>3</em> |\n")
    path = tmp_path / place / "results.json"
    content = json.loads(path.read_text())
    content["config"][nasty] = content["environment"][nasty] = nasty
    path.write_text(json.dumps(content))
    (tmp_path / place / "results.run.json").write_text(
        json.dumps({"command": nasty, "finished": "2026-01-02T03:04:05+00:00"})
    )
    page = shown(tmp_path)
    assert not page.all("script", "b", "i", "u", "em")
    article = page.article(place)
    assert article.count(nasty) == 4, "table, command, a setting and its name"
    assert nasty in page.all("pre")[0]["text"]
    assert any(e["alt"] == "<u>xxx.png" for e in page.all("img"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("place", "name", "damage", "said"),
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
        ("a", "figure_2.png", cut, r"figure_2.png cannot be read \(no whole PNG picture\)"),
        ("a", "figure_2.png", lambda p: p.write_bytes(b""), r"figure_2.png cannot be read \(no whole PNG picture\)"),
        ("a", "table_1.md", Path.unlink, "table_1.md is missing"),
        ("a", "table_1.md", lambda p: p.write_bytes(b"\xff\xfe|"), "table_1.md cannot be read"),
        ("b/cifar10_5_per_class", "heat_map_HMTL-S.png", Path.unlink, "heat_map_HMTL-S.png is missing"),
        ("c", "comparisons.md", Path.unlink, "comparisons.md is missing"),
    ],
)
def test_what_is_broken_is_said_at_its_place_and_the_rest_is_shown(results, place, name, damage, said):
    before = {e["text"].split("\n")[1]: e["text"] for e in shown(results).all("article")}
    damage(results / place / name)
    page = shown(results)
    (note,) = page.notes
    assert re.search(said, note)
    assert note in page.article(place)
    after = {e["text"].split("\n")[1]: e["text"] for e in page.all("article")}
    assert {p: text for p, text in after.items() if p != place} == {p: text for p, text in before.items() if p != place}
    (chapter,) = [e for e in page.all("section") if note in e["text"]]
    titles = {"a": "Data hyper-cleaning", "b": "Learning task interactions", "c": "Phone classification"}
    assert chapter["text"].strip().startswith(titles[place[0]])


def test_rows_that_lack_what_a_table_needs_are_said_too(results):
    path = results / "digits" / "results.json"
    content = json.loads(path.read_text())
    del content["results"][-1]["mu"]
    path.write_text(json.dumps(content))
    (note,) = shown(results).notes
    assert "does not have what its table needs (KeyError('mu'))" in note


def test_a_run_that_goes_on_is_announced_under_its_experiment(tmp_path):
    (tmp_path / "task_interactions_x" / "cifar10_3_per_class" / "runs").mkdir(parents=True)
    common.write_text(tmp_path / "complexity" / "measurements.json", "[]")
    page = shown(tmp_path)
    assert len(page.notes) == 2
    assert [e["text"].startswith("Learning task") or "costs" in e["text"] for e in page.all("h2")[1:3]] == [True, True]


def test_unknown_results_are_shown_as_they_are(tmp_path):
    (tmp_path / "mine").mkdir()
    content = {"config": {"depth": 3}, "environment": {}, "results": [{"loss": 1.0}], "timing": {}}
    (tmp_path / "mine" / "results.json").write_text(json.dumps(content))
    (tmp_path / "mine" / "losses.md").write_text("| run | loss |\n|---|---|\n| 1 | 0.5 |\n")
    (tmp_path / "mine" / "drawing.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"></svg>\n')
    page = shown(tmp_path)
    assert page.all("h2")[1]["text"] == "Other results"
    for text in ("depth", "losses.md", "0.5"):
        assert text in page.article("mine")
    assert page.all("img")[0]["src"].startswith("data:image/svg+xml;base64,")


def test_the_page_loads_nothing(results):
    page = shown(results)
    allowed = {"html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "article", "div", "pre"}
    allowed |= {
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "a",
        "span",
        "code",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "img",
    }
    allowed |= {"table", "thead", "tbody", "tr", "th", "td", "wbr"}
    assert {e["tag"] for e in page.elements} <= allowed
    for element in page.elements:
        assert not {"srcset", "background", "style", "data", "onload", "onclick"} & set(element)
        assert element.get("src", "data:").startswith("data:image/") if element["tag"] == "img" else "src" not in element
        assert element.get("href", "#").startswith("#") or element["href"] == report_html.PAPER
    (style,) = page.all("style")
    assert not re.search(r"url\(|@import|@font-face|//", style["text"])


def test_the_page_can_be_read_by_anyone(results):
    page = shown(results)
    assert page.elements[0]["lang"] == "en-GB"
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("title")) == 1
    levels = [int(e["tag"][1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert all(e["alt"].strip() and int(e["width"]) == 3 and int(e["height"]) == 2 for e in page.all("img"))
    assert all(e.get("scope") in ("col", "row") for e in page.all("th"))
    names = [e["id"] for e in page.elements if "id" in e]
    assert len(names) == len(set(names))
    links = [e["href"][1:] for e in page.all("a") if e["href"].startswith("#")]
    assert len(links) > 10
    assert set(links) <= set(names)
    assert all(e.get("aria-label") for e in page.all("div", tabindex="0"))


def test_markdown_tables_become_html():
    lines = [
        "| m | n | who | paper: x |",
        "|---|:-:|---|---|",
        "| a\\|b | +1.5 ± 0.2 | me | - |",
        "| - | - | - | - |",
        "| c | ≈ 1,200 |",
    ]
    page = Page(report_html.table(lines))
    assert [e["text"] for e in page.all("th", scope="row")] == ["a|b", "-", "c"]
    assert [e["text"] for e in page.all("td")] == ["+1.5 ± 0.2", "me", "-", "-", "-", "-", "≈ 1,200", "", ""]
    assert [e.get("class") for e in page.all("th", scope="col")] == [None, "number", None, "number paper"]


def test_an_empty_directory_is_one_sentence_that_says_what_fills_it(tmp_path):
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(
            DataError, match=r"no experiment has written anything; these would: python -m experiments\.data"
        ) as e:
            report.write(root, tmp_path / "report.html")
        assert f"python -m experiments.complexity --preset=quick --output_dir={root}/complexity" in str(e.value)
    assert "--output_dir" not in report.suggested(report.EXPERIMENTS[0], Path("results"))
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_one_sentence(results):
    with pytest.raises(DataError, match="which is a directory; give a file"):
        report.write(results, results / "a")
    with pytest.raises(DataError, match=r"--output is .*benchmark.txt/report.html, which cannot be written"):
        report.write(results, results / "benchmark.txt" / "report.html")


@pytest.mark.slow
def test_the_binary_writes_the_page_or_one_sentence(results, tmp_path):
    def run(root):
        command = [sys.executable, "-m", "experiments.report", f"--results={root}"]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    good, bad = run(results), run(tmp_path / "absent")
    assert good.returncode == 0, good.stderr[-2000:]
    assert f"Written to {results / 'report.html'}: 10 results of 10 experiments." in good.stdout
    assert (results / "report.html").exists()
    assert bad.returncode == 1
    assert "Traceback" not in bad.stderr
    assert "no experiment has written anything" in bad.stderr


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 500])
def test_a_browser_shows_it_without_complaints(results, tmp_path, width, dark):
    shown(results)
    picture = tmp_path / "page.png"
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000", f"--screenshot={picture}"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", (results / "report.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (2000, width)
    assert pixels.std() > 0.03
    assert (pixels[-1, 0].mean() < 0.5) == dark
