"""Tables, conclusion and figure of the comparison of discounts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids, colours
from experiments.common.pool import Row
from experiments.common.statistics import interval
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, groups, spread, where, without
from experiments.discounts.experiment import DEFAULT, FIRST, LATER, PHONES, PRESETS, Config, Setting, compute, units


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """Losses, their changes, and what the rule says."""
    texts = [conclusion(rows)]
    if {LATER, FIRST} <= set(settings_of(rows)):
        texts.append(later_conclusion(rows))
    return {"table.md": table(rows), "changes.md": changes(rows), "conclusion.txt": "\n".join(texts) + "\n"}


def settings_of(rows: Sequence[Row]) -> list[Setting]:
    """The settings of all trainings."""
    return [Setting(*values) for values in distinct(rows, "discount", "carry")]


def table(rows: Sequence[Row]) -> str:
    """For each problem and setting, means over the seeds ± half the range."""
    losses = ("validation loss, last hyper-batches", "validation loss, best state")
    made = Table("problem", "setting", *losses, "test accuracy %")
    for group in groups(rows, "problem", "discount", "carry"):
        cells = [spread(column(group, key), 3) for key in ("final", "best")]
        made.add(group[0]["problem"], *settings_of(group), *cells, spread(100 * column(group, "test"), 2))
    return str(made)


def log_ratios(
    rows: Sequence[Row], choice: Setting, part: str = "", name: str = "final", to: Setting = DEFAULT
) -> np.ndarray:
    """log(loss / loss of another setting), one for each problem and seed.

    Args:
      part: "digits", "phones", or "" for both.
      name: "final" or "best".
      to: the other setting.
    """
    other = {(row["problem"], row["seed"]): row[name] for row in where(rows, **to._asdict())}
    chosen = [row for row in where(rows, **choice._asdict()) if row["problem"].startswith(part)]
    return np.array([np.log(row[name] / other[row["problem"], row["seed"]]) for row in chosen])


def changes(rows: Sequence[Row]) -> str:
    """Changes of the validation loss relative to the default, in per cent: means, and extremes over problems and seeds."""
    made = Table("setting", "digits, last", "digits, best", "phones, last", "phones, best", "both, last")
    parts = (("digits", "final"), ("digits", "best"), (PHONES, "final"), (PHONES, "best"), ("", "final"))
    for choice in settings_of(rows):
        made.add(choice, *(_percent(log_ratios(rows, choice, *part)) for part in parts))
    return str(made)


def _percent(logs: np.ndarray) -> str:
    mean, low, high = (100 * np.expm1(value) for value in (np.mean(logs), np.min(logs), np.max(logs)))
    return f"{mean:+.1f}" + ("" if low == high else f" ({low:+.1f} to {high:+.1f})")


def conclusion(rows: Sequence[Row]) -> str:
    """The rule of the experiment, applied."""
    parts = ("digits", PHONES)

    def lowest(part: str) -> Setting:
        return min(settings_of(rows), key=lambda choice: float(np.mean(log_ratios(rows, choice, part))))

    winner = lowest("")
    low, high = _percent_interval(log_ratios(rows, winner, "digits"))
    lower = all(np.mean(log_ratios(rows, winner, part)) < 0 for part in parts)
    contradicted = any(np.mean(log_ratios(rows, winner, part, "best")) > 0 for part in parts)
    changed = lower and high < 0 and not contradicted
    return (
        f"Lowest mean validation loss over the last hyper-batches: {lowest('digits')} on digits; {lowest(PHONES)} on "
        f"phones; {winner} on both, with a change on digits of {low:+.1f} to {high:+.1f} % (95 % interval). By the rule, "
        f"the default of the tuner, {DEFAULT}, " + (f"should change to {winner}." if changed else "should stay.")
    )


def later_conclusion(rows: Sequence[Row]) -> str:
    """The rule for the discount that was chosen for long training runs, applied."""
    low, high = _percent_interval(log_ratios(rows, LATER, "digits", to=FIRST))
    verdict = f"should stay {FIRST}" if low > 0 else f"should be {LATER}"
    return (
        f"{LATER} changes the validation loss over the last hyper-batches on digits by {low:+.1f} to {high:+.1f} % (95 % "
        f"interval), compared with {FIRST}. By the rule, the default {verdict}."
    )


def _percent_interval(logs: np.ndarray) -> tuple[float, float]:
    about = interval(logs)
    return 100 * np.expm1(about.mean - about.half), 100 * np.expm1(about.mean + about.half)


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """Learning rate and validation loss along the trainings of the first seed, one column for each problem."""
    problems = groups(rows, "problem")
    figure, axes = plt.subplots(2, len(problems), figsize=(4.5 * len(problems), 7), layout="constrained", sharex="col")
    colour = dict(zip(config.discounts, colours(len(config.discounts)), strict=True))
    for (rates, losses), trainings in zip(axes.T, problems, strict=True):
        for row in where(trainings, seed=min(distinct(trainings, "seed"))):
            steps = config.hyper_batch * (1 + np.arange(len(row["values"])))
            style = {"color": colour[row["discount"]], "linestyle": "-" if row["carry"] or not row["discount"] else "--"}
            rates.plot(steps, row["rates"], **style, label=str(*settings_of([row])))
            losses.plot(steps, row["values"], **style)
        problem = trainings[0]["problem"]
        rates.set(title=problem, yscale="log" if problem != PHONES else "linear")
        losses.set(xlabel="training steps", yscale="log")
    axes[0, 0].set_ylabel("learning rate")
    axes[1, 0].set_ylabel("validation loss")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    add_grids(axes.flat)
    return {"discounts": figure}


STUDY = Study(
    "discounts",
    "How far a hypergradient looks back",
    "Discounts of the sensitivity in real time, with and without carry, compared by validation loss.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Validation loss and test accuracy; means over seeds ± half the range"),
        "changes.md": Caption("Changes of the validation loss relative to discount 1 with carry, in per cent"),
        "discounts.png": Caption("Learning rate and validation loss along the trainings"),
    },
    recorded=lambda rows: without(rows, "values", "rates"),
    preset_help="full: five discounts, three seeds on digits, two on phones; quick: carry or not, short.",
)  # fmt: skip
