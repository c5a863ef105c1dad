"""Tables and figures of error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from experiments.common.figures import add_grids, save_figure
from experiments.common.results import write_text
from experiments.error_against_cost.tasks import METHODS, Config, Method, Row, names, rows_of

SOLVERS = ("implicit: BiCGSTAB", "implicit: normal", "implicit: fixed point")  # beside CG, for which the others stand
STYLES = {
    "reverse": ("tab:blue", "o"),
    "checkpointed": ("tab:cyan", "s"),
    "truncated": ("tab:green", "v"),
    "forward": ("tab:purple", "^"),
    "implicit": ("black", "o"),
    "implicit: CG": ("tab:red", "o"),
    "implicit: BiCGSTAB": ("tab:orange", "s"),
    "implicit: normal": ("goldenrod", "^"),
    "implicit: fixed point": ("tab:pink", "v"),
    "implicit: K steps": ("tab:olive", "D"),
    "hypertorch: CG": ("tab:red", "x"),
    "hypertorch: fixed point": ("tab:pink", "x"),
    "hypertorch: normal": ("goldenrod", "x"),
    "jaxopt: CG": ("tab:red", "+"),
    "jaxopt: normal": ("goldenrod", "+"),
}
GROUPS = (
    [m for m in METHODS if m.framework == "rfho2" and m.name not in SOLVERS],
    [m for m in METHODS if m.framework != "rfho2" or m.name in ("implicit: CG", *SOLVERS)],
)
DASHES = {"rfho2": "-", "hypertorch": "--", "jaxopt": ":"}
HYPERTORCH, JAXOPT, REVERSE, STATES = 0.5, 1.0, 0.6, 10  # what is aimed at


def write(output: Path, config: Config, rows: list[Row]) -> str:
    """Writes tables and figures; returns what to print."""
    text = "\n".join([*(table(name, rows) for name in names(config)), alone(rows), bounds(rows), missing(rows)])
    write_text(output / "table.md", text)
    write_text(output / "honesty.md", honesty(rows))
    figure(names(config), rows, "seconds", "seconds of one hypergradient", 1.0, output / "error_against_seconds")
    figure(names(config)[:1], rows, "peak_bytes", "memory of one hypergradient, MB", 1e-6, output / "error_against_memory")
    files = "table.md, honesty.md, error_against_seconds.png, error_against_memory.png, results.json"
    return f"{text}\n{honesty(rows)}\nWritten to {output}: {files}."


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return (
        "\n".join([f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *(f"| {' | '.join(line)} |" for line in lines)])
        + "\n"
    )


def table(name: str, rows: list[Row]) -> str:
    """Error, seconds and memory of every row of a problem that was measured."""
    measured = [row for row in rows_of(rows, problem=name) if row["error"] is not None]
    lines = [
        [
            row["method"],
            str(row["steps"]),
            _setting(row),
            f"{row['error']:.1e}",
            _number(row["seconds"]),
            _megabytes(row["peak_bytes"]),
        ]
        for row in measured
    ]
    return f"{name}\n\n" + _table(["method", "T", "k or K", "relative error", "seconds", "MB"], lines)


def _setting(row: Row) -> str:
    return "-" if row["iterations"] is None else f"{row['along'] if row['along'] == 'k' else 'K'} = {row['iterations']}"


def _megabytes(count: int) -> str:
    """Below the noise of the measurement, only a bound."""
    return "< 0.3" if count < 3e5 else _number(count / 1e6)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def alone(rows: list[Row]) -> str:
    """The linear solvers timed alone."""
    found = [row for row in rows if "solver" in row]
    timed = [row for row in found if row["seconds"] is not None]
    ours = next((row["seconds"] for row in timed if row["solver"].startswith("rfho2")), None)
    lines = [
        [
            row["solver"],
            str(row["iterations"]),
            f"{row['error']:.1e}",
            _number(row["seconds"]),
            f"{ours / row['seconds']:.2f}",
        ]
        for row in timed
        if ours is not None
    ]
    return "Linear solve and final product alone, cleaning\n\n" + _table(
        ["solver", "K", "relative error", "seconds", "rfho2's time / its time"], lines
    )


def targets(rows: list[Row]) -> list[tuple[str, float, float]]:
    """What was aimed at: a sentence, the measured number, and the most that it should be."""
    solvers = {row["solver"]: row["seconds"] for row in rows if row.get("seconds") and "CG" in row.get("solver", "")}
    times = {row["timed"]: row["seconds"] for row in rows if "timed" in row}
    memory = {row["steps"]: row for row in rows if "memory" in row}
    found = []
    for peer, most in (("hypertorch", HYPERTORCH), ("jaxopt", JAXOPT)):
        theirs = [seconds for solver, seconds in solvers.items() if solver.startswith(peer)]
        if theirs and "rfho2: CG" in solvers:
            found.append(
                (
                    f"linear solve alone: rfho2's time / that of {peer}'s CG, the better of two",
                    solvers["rfho2: CG"] / min(theirs),
                    most,
                )
            )
    for name in (name for name in times if name.startswith("implicit")):
        found.append((f"{name}, T = 100: time / that of reverse", times[name] / times["reverse"], REVERSE))
    plain = memory.get(None)
    for steps, row in memory.items():
        if steps is not None and plain:
            above = (row["peak_bytes"] - plain["peak_bytes"]) / row["state_bytes"]
            found.append((f"implicit, T = {steps}: states above one plain training step", above, STATES))
    return found


def bounds(rows: list[Row]) -> str:
    """What was aimed at, and whether it was reached; the numbers behind it."""
    lines = [[what, f"{value:.2f}", f"{most:g}", "yes" if value <= most else "no"] for what, value, most in targets(rows)]
    times = [
        [
            row["timed"],
            "-" if row["products"] is None else str(row["products"]),
            "-" if row["error"] is None else f"{row['error']:.1e}",
            _number(row["seconds"]),
        ]
        for row in rows
        if "timed" in row
    ]
    memory = [
        [
            row["memory"],
            str(row["steps"] or 1),
            *(f"{row[key] / 1e6:.1f}" for key in ("state_bytes", "peak_bytes")),
        ]
        for row in rows
        if "memory" in row
    ]
    return "\n".join(
        [
            _table(["aim", "measured", "at most", "met"], lines),
            "Cleaning, T = 100\n",
            _table(["", "products", "relative error", "seconds"], times),
            "Memory of a network, MB\n",
            _table(["", "T", "one state", "a call"], memory),
        ]
    )


def missing(rows: list[Row]) -> str:
    """What was not measured, and why; each reason once."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.get("missing"):
            what = row.get("method") or row.get("solver") or row.get("failed") or row.get("peer") or ""
            where = f"{row['problem']}: " if "problem" in row else ""
            reasons.setdefault(row["missing"], []).append(where + what)
    lines = [f"- {', '.join(dict.fromkeys(what))}: {why}" for why, what in reasons.items()]
    return "Not measured:\n\n" + "\n".join(lines) + "\n" if lines else ""


def honesty(rows: list[Row]) -> str:
    """What libraries return, and what rfho2 says."""
    found = [row for row in rows if "honesty" in row]
    lines = [[row[key] for key in ("honesty", "peer", "theirs", "truth", "ours", "says", "how")] for row in found]
    return _table(["case", "library", "its answer", "the truth", "rfho2's answer", "what rfho2 says", "how known"], lines)


def figure(problems: Sequence[str], rows: list[Row], key: str, label: str, scale: float, path: Path) -> None:
    """Relative error against a cost, one column per problem: all methods of rfho2 above, all linear solvers below."""
    canvas, axes = plt.subplots(
        2,
        len(problems),
        figsize=(4.2 * len(problems) + 3.2, 8),
        layout="constrained",
        squeeze=False,
        sharex="col",
        sharey=True,
    )
    for panels, methods in zip(axes, GROUPS, strict=True):
        for axis, name in zip(panels, problems, strict=True):
            shown = [row for row in rows_of(rows, problem=name) if (row["error"] or 0) > 0 and (row[key] or 0) > 0]
            for method in methods:
                _curve(axis, method, rows_of(shown, method=method.name), key, scale)
            axis.set(xscale="log", yscale="log")
            axis.xaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel("relative error")
        panels[0].set_ylim(top=3)  # a solver that diverges would hide the others
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=9)
        add_grids(panels)
    for (top, *_, bottom), name in zip(axes.T, problems, strict=True):
        top.set_title(name)
        bottom.set_xlabel(label)
    save_figure(canvas, path)


def _curve(axis: plt.Axes, method: Method, points: list[Row], key: str, scale: float) -> None:
    """An empty curve too, for the legend."""
    colour, marker = STYLES[method.name]
    x, y = [scale * row[key] for row in points], [row["error"] for row in points]
    style = {"color": colour, "marker": marker, "linestyle": DASHES[method.framework], "linewidth": 1.1, "markersize": 5}
    axis.plot(x, y, label=f"{method.name} ({method.along})", **style)
