"""The page of results: what it shows of each experiment, and that it stands alone and can be read by anyone."""

import itertools
import json
import re
import subprocess
from pathlib import Path

import matplotlib.image
import pytest

from data.errors import DataError
from experiments.common.binary import environment
from experiments.report import html, page
from experiments.report.catalogue import EXPERIMENTS
from tests.support.binaries import run_binary
from tests.support.browser import BROWSER, HEADLESS, MISSING
from tests.support.pages import shown

CONTENTS = {  # directory: what its article must show
    "a": ("Table 1", "2552", "Figure 2", "discarded first", "hyper_iterations", "2 min 5 s"),
    "b/cifar10_5_per_class": (
        "Table 2", "77.00 ± 1.58", "7.39e-06", "Figure 3", "Jawanpuria p=4/3: the matrix C", "0 to 4",
    ),
    "c": ("Table 3", "Paired differences", "Table 5", "100% of the budget", "Figure 4", "RTHO: accuracies"),
    "e": ("3.7e-01", "Relative error against seconds", "What libraries return"),
    "settings": ("0.9500", "F1 along each run"),
    "digits": ("3,000", "5.90e-04", "Accuracies"),
    "keras": ("10 times too large", "99.0", "Learning rate and validation loss"),
    "peers": ("JAX, jacfwd", "0.50", "jax 0.10.2"),
    "f": ("implicit, warm, until as good", "0.3750"),
    "g": ("0.242 ± 0.020", "A test task"),
    "h": ("0.6264", "relative to the average over eight"),
    "i": ("0.9210", "How the settings were chosen"),
    "j": ("0.249", "discount 1, carry"),
    "k": ("97.22", "+6.48", "Learning rates and validation losses"),
    "l": ("0.901", "the labels suspected"),
    "m": ("66.89", "against the accuracy of STL"),
    "n": ("30.31", "our settings and the paper's"),
    "o": ("0.941", "against the number of trusted digits"),
    "p": ("0.1230", "while the learned one was learned"),
    "q": ("+0.00 (TPE)", "95 % intervals"),
    "benchmark.txt": ("ms a step",),
}  # fmt: skip
ALLOWED = set(
    "html head meta title style body header nav main section article div pre h1 h2 h3 h4 p a span code ul li dl dt dd "
    "figure figcaption img table thead tbody tr th td wbr".split()
)


def test_every_experiment_appears_with_tables_figures_and_settings(results):
    parsed = shown(results)
    titles = [e["text"] for e in parsed.all("h2")]
    assert titles == ["Contents", *(e.title for e in EXPERIMENTS if e.name != "phone_benchmark"), "Not here yet"]
    assert parsed.notes == []
    for place, texts in CONTENTS.items():
        for text in texts:
            assert any(text in article for article in parsed.articles(place)), (place, text)
    assert len(parsed.articles("d")) == 2, "costs and slopes"
    assert "**" not in parsed.article("l"), "bold numbers"
    assert len(parsed.all("img")) == 2 + 3 + 2 + 1 + 1 + 1 + 1 + 2 + 1 + 4 + 1 + 1 + 1 + (1 + 2 + 2 + 1)
    missing = "seconds, reverse, m = 22, h = 171: not run: needs about 9.0 GB"
    assert [e["text"] for e in parsed.all("li")].count(missing) == 1


def test_the_papers_columns_are_there_and_marked(results):
    parsed = shown(results)
    marked = [e["text"] for e in parsed.all("th", scope="col") if "paper" in e.get("class", "")]
    assert {"paper: accuracy %", "paper: F1", "paper: minutes", "paper: 300 min", "paper: reverse"} <= set(marked)
    assert marked == [e["text"] for e in parsed.all("th", scope="col") if e["text"].startswith("paper:")]
    cells = [e["text"] for e in parsed.all("td") if "paper" in e.get("class", "")]
    assert {"90.07", "0.9137", "71.62 ± 1.34", "61.97", "27", "1.2"} <= set(cells)


def test_command_date_and_machine_are_those_of_the_run(results):
    parsed = shown(results)
    article = parsed.article("a")
    assert "python -m experiments.cleaning --preset=quick" in article
    finished = json.loads((results / "a" / "results.run.json").read_text())["finished"]
    assert f"{finished[:10]} {finished[11:16]} UTC" in article
    (header,) = parsed.all("header")
    assert f"tensorflow {environment()['tensorflow']}" in header["text"]
    assert "Made with" not in article


def test_different_machines_are_given_with_their_results(results):
    path = results / "a" / "results.json"
    content = json.loads(path.read_text())
    content["environment"]["device"] = "GPU (64 cores)"
    path.write_text(json.dumps(content))
    parsed = shown(results)
    assert "GPU (64 cores)" in parsed.article("a")
    assert "Made with" in parsed.article("c")
    assert "GPU (64 cores)" not in parsed.article("c")


def test_the_page_loads_nothing(results):
    parsed = shown(results)
    assert {e["tag"] for e in parsed.elements} <= ALLOWED
    for element in parsed.elements:
        assert not {"srcset", "background", "style", "data", "onload", "onclick"} & set(element)
        assert element.get("src", "data:").startswith("data:image/") if element["tag"] == "img" else "src" not in element
        assert element.get("href", "#").startswith("#") or element["href"] == html.PAPER
    (style,) = parsed.all("style")
    assert not re.search(r"url\(|@import|@font-face|//", style["text"])


def test_the_page_can_be_read_by_anyone(results):
    parsed = shown(results)
    assert parsed.elements[0]["lang"] == "en-GB"
    assert len(parsed.all("h1")) == len(parsed.all("main")) == len(parsed.all("title")) == 1
    levels = [int(e["tag"][1]) for e in parsed.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert all(e["alt"].strip() and int(e["width"]) == 3 and int(e["height"]) == 2 for e in parsed.all("img"))
    assert all(e.get("scope") in ("col", "row") for e in parsed.all("th"))
    names = [e["id"] for e in parsed.elements if "id" in e]
    assert len(names) == len(set(names))
    links = [e["href"][1:] for e in parsed.all("a") if e["href"].startswith("#")]
    assert len(links) > 10
    assert set(links) <= set(names)
    assert all(e.get("aria-label") for e in parsed.all("div", tabindex="0"))


def test_an_empty_directory_is_one_sentence_with_commands_that_fill_it(tmp_path):
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(
            DataError, match=r"no experiment has written anything; these would: python -m experiments\.data"
        ) as e:
            page.write(root, tmp_path / "report.html")
        assert f"python -m experiments.complexity --preset=quick --output_dir={root}/complexity" in str(e.value)
    assert "--output_dir" not in page.suggested(EXPERIMENTS[0], Path("results"))
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_one_sentence(results):
    with pytest.raises(DataError, match="which is a directory; give a file"):
        page.write(results, results / "a")
    with pytest.raises(DataError, match=r"--output is .*benchmark.txt/report.html, which cannot be written"):
        page.write(results, results / "benchmark.txt" / "report.html")


def test_the_binary_writes_the_page_or_one_sentence(results, tmp_path):
    good, bad = (run_binary("report", f"--results={root}") for root in (results, tmp_path / "absent"))
    assert good.code == 0, good.err[-2000:]
    assert f"Written to {results / 'report.html'}: 25 results of 25 experiments." in good.out
    assert (results / "report.html").exists()
    assert bad.code == 1
    assert "Traceback" not in bad.err
    assert "no experiment has written anything" in bad.err


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=MISSING)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 500])
def test_a_browser_shows_it_without_complaints(results, tmp_path, width, dark):
    shown(results)
    picture = tmp_path / "page.png"
    command = [BROWSER, *HEADLESS, "--hide-scrollbars", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000", f"--screenshot={picture}"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", (results / "report.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (2000, width)
    assert pixels.std() > 0.03
    assert (pixels[-1, 0].mean() < 0.5) == dark
