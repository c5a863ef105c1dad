"""The problems of the gallery: what is tuned is better on held-out digits, and the page shows each of them."""

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PROBLEMS = sorted(path.stem for path in (DOCS / "gallery").glob("*.py") if path.stem != "digits")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_tuned_model_is_better_on_held_out_digits(name, tmp_path):
    shown = importlib.import_module(f"docs.gallery.{name}").main()
    assert shown.tuned < shown.untuned
    shown.figure.savefig(tmp_path / "picture.png")


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_shows_it(name):
    page, lines = (DOCS / "gallery.md").read_text(), (DOCS / "gallery" / f"{name}.py").read_text().splitlines()
    assert f"gallery/{name}.py" in page
    assert (DOCS / "figures" / f"gallery_{name}.png").exists()
    assert lines[2].startswith(f"python -m docs.gallery.{name}")
    assert len(lines) < 60
