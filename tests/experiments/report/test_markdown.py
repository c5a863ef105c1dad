"""Markdown to HTML: tables, lists, paragraphs, verbatim text; and that nothing in a file becomes HTML by itself."""

import json

from experiments.common.results import write_text
from experiments.report.markdown import render, render_verbatim
from tests.support.pages import Page, cleaning, png, shown


def test_tables_align_numbers_mark_the_papers_columns_and_fill_short_rows():
    lines = [
        "| m | n | who | paper: x |",
        "|---|:-:|---|---|",
        "| a\\|b | +1.5 ± 0.2 | me | - |",
        "| - | - | - | - |",
        "| c | ≈ 1,200 |",
    ]
    parsed = Page(render("\n".join(lines), "a table"))
    assert [e["text"] for e in parsed.all("th", scope="row")] == ["a|b", "-", "c"]
    assert [e["text"] for e in parsed.all("td")] == ["+1.5 ± 0.2", "me", "-", "-", "-", "-", "≈ 1,200", "", ""]
    assert [e.get("class") for e in parsed.all("th", scope="col")] == [None, "number", None, "number paper"]
    assert parsed.all("div")[0]["aria-label"] == "a table"


def test_text_around_tables_becomes_paragraphs_and_lists():
    parsed = Page(render("before\n\n| a |\n|---|\n| 1 |\n\nNot measured:\n\n- first\n- second\n", "label"))
    assert [e["text"] for e in parsed.all("p")] == ["before", "Not measured:"]
    assert [e["text"] for e in parsed.all("li")] == ["first", "second"]
    assert len(parsed.all("table")) == 1


def test_an_empty_table_has_its_head():
    assert [e["text"] for e in Page(render("| a-b | c |\n|---|---|\n", "label")).all("th")] == ["a-b", "c"]


def test_verbatim_text_keeps_its_columns_around_tables():
    text = "name     ms\nplain   1.0\n\n  - not a list\n\n| a | b |\n|---|---|\n| x | 1 |\n\nafter  it\n"
    parsed = Page(render_verbatim(text, "label"))
    assert [e["text"] for e in parsed.all("pre")] == ["name     ms\nplain   1.0\n\n  - not a list", "after  it"]
    assert [e["text"] for e in parsed.all("td")] == ["1"]
    assert not parsed.all("li")


def test_markup_is_shown_as_text():
    """No links, images, emphasis or entities: nothing but tables, lists and paragraphs has a meaning."""
    nasty = "[x](javascript:alert(1)) ![y](http://z/w.png) <b>&amp;</b> **p_q_r** `c` <http://u.v>"
    for text in (nasty, f"- {nasty}", f"| {nasty} |\n|---|\n| {nasty} |"):
        for made in (render(text, nasty), render_verbatim(text, nasty)):
            parsed = Page(made)
            assert {e["tag"] for e in parsed.elements} <= {
                "p",
                "ul",
                "li",
                "div",
                "table",
                "thead",
                "tbody",
                "tr",
                "th",
                "pre",
            }
            assert nasty in "".join(e["text"] for e in parsed.all("p", "li", "th", "pre"))


def test_text_from_files_is_escaped(tmp_path):
    nasty = '<script>alert("1")</script> & <b>'
    place = 'x"><i>&amp;'
    cleaning(tmp_path / place, nasty)
    (tmp_path / "benchmark.txt").write_text(f"{nasty}\n</pre></div>\n")
    (tmp_path / place / f"<u>{'x' * 3}.png").write_bytes(png())
    write_text(tmp_path / place / "more.md", "<em>\n- <em>\n| <em>1</em> | x-<em> |\n|---|---|\n| 2 | <em>3</em> |\n")
    path = tmp_path / place / "results.json"
    content = json.loads(path.read_text())
    content["config"][nasty] = content["environment"][nasty] = nasty
    path.write_text(json.dumps(content))
    run = {"command": nasty, "finished": "2026-01-02T03:04:05+00:00"}
    (tmp_path / place / "results.run.json").write_text(json.dumps(run))
    parsed = shown(tmp_path)
    assert not parsed.all("script", "b", "i", "u", "em")
    article = parsed.article(place)
    assert article.count(nasty) == 4, "table, command, a setting and its name"
    assert nasty in parsed.all("pre")[0]["text"]
    assert any(e["alt"] == "<u>xxx.png" for e in parsed.all("img"))
