"""Tables, conclusion and figure of the comparison of discounts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import figures, statistics
from experiments.common.results import write_text
from experiments.discounts.experiment import DEFAULT, PHONES, Config, Record, Setting


def write(output: Path, config: Config, records: Sequence[Record]) -> str:
    """Writes tables, conclusion and figure; returns what to print."""
    text = f"{table(records)}\n{changes(records)}\n{conclusion(records)}\n"
    write_text(output / "table.md", table(records))
    write_text(output / "changes.md", changes(records))
    write_text(output / "conclusion.txt", conclusion(records) + "\n")
    draw(config, records, output / "discounts")
    return text


def setting_of(record: Record) -> Setting:
    """The setting of a training."""
    return Setting(record["discount"], record["carry"])


def table(records: Sequence[Record]) -> str:
    """For each problem and setting, means over the seeds ± half the range."""
    titles = ("problem", "setting", "validation loss, last hyper-batches", "validation loss, best state", "test accuracy %")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for problem in dict.fromkeys(r["problem"] for r in records):
        for choice in dict.fromkeys(map(setting_of, records)):
            own = [r for r in records if (r["problem"], setting_of(r)) == (problem, choice)]
            cells = [_spread(own, "final", 1, 3), _spread(own, "best", 1, 3), _spread(own, "test", 100, 2)]
            lines.append(f"| {problem} | {choice} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(records: Sequence[Record], name: str, scale: float, digits: int) -> str:
    values = scale * np.array([r[name] for r in records])
    return f"{np.mean(values):.{digits}f}" + (f" ± {np.ptp(values) / 2:.{digits}f}" if len(values) > 1 else "")


def log_ratios(records: Sequence[Record], choice: Setting, part: str = "", name: str = "final") -> np.ndarray:
    """log(loss / loss of the default), one for each problem and seed.

    Args:
      part: "digits", "phones", or "" for both.
      name: "final" or "best".
    """
    default = {(r["problem"], r["seed"]): r[name] for r in records if setting_of(r) == DEFAULT}
    own = [r for r in records if setting_of(r) == choice and r["problem"].startswith(part)]
    return np.array([np.log(r[name] / default[r["problem"], r["seed"]]) for r in own])


def changes(records: Sequence[Record]) -> str:
    """Changes of the validation loss relative to the default, in per cent: means, and extremes over problems and seeds."""
    titles = ("setting", "digits, last", "digits, best", "phones, last", "phones, best", "both, last")
    columns = (("digits", "final"), ("digits", "best"), (PHONES, "final"), (PHONES, "best"), ("", "final"))
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for choice in dict.fromkeys(map(setting_of, records)):
        cells = [_percent(log_ratios(records, choice, *column)) for column in columns]
        lines.append(f"| {choice} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _percent(logs: np.ndarray) -> str:
    mean, low, high = (100 * np.expm1(value) for value in (np.mean(logs), np.min(logs), np.max(logs)))
    return f"{mean:+.1f}" + ("" if low == high else f" ({low:+.1f} to {high:+.1f})")


def conclusion(records: Sequence[Record]) -> str:
    """The rule of the experiment, applied."""
    choices, parts = list(dict.fromkeys(map(setting_of, records))), ("digits", PHONES)

    def lowest(part: str) -> Setting:
        return min(choices, key=lambda choice: float(np.mean(log_ratios(records, choice, part))))

    winner = lowest("")
    logs = statistics.interval(log_ratios(records, winner, "digits"))
    low, high = (100 * np.expm1(logs.mean + sign * logs.half) for sign in (-1, 1))
    lower = all(np.mean(log_ratios(records, winner, part)) < 0 for part in parts)
    contradicted = any(np.mean(log_ratios(records, winner, part, "best")) > 0 for part in parts)
    changed = lower and high < 0 and not contradicted
    return (
        f"Lowest mean validation loss over the last hyper-batches: {lowest('digits')} on digits; {lowest(PHONES)} on "
        f"phones; {winner} on both, with a change on digits of {low:+.1f} to {high:+.1f} % (95 % interval). By the rule, "
        f"the default of the tuner, {DEFAULT}, " + (f"should change to {winner}." if changed else "should stay.")
    )


def draw(config: Config, records: Sequence[Record], path: Path) -> None:
    """Learning rate and validation loss along the trainings of the first seed, one column for each problem."""
    problems = list(dict.fromkeys(r["problem"] for r in records))
    figure, axes = plt.subplots(2, len(problems), figsize=(4.5 * len(problems), 7), layout="constrained", sharex="col")
    chosen = config.discounts
    colours = dict(zip(chosen, figures.colours(len(chosen)), strict=True))
    for column, problem in zip(axes.T, problems, strict=True):
        first = min(r["seed"] for r in records if r["problem"] == problem)
        for record in records:
            if (record["problem"], record["seed"]) == (problem, first):
                choice = setting_of(record)
                steps = config.hyper_batch * (1 + np.arange(len(record["values"])))
                style = {
                    "color": colours[choice.discount],
                    "linestyle": "-" if choice.carry or not choice.discount else "--",
                }
                column[0].plot(steps, record["rates"], **style, label=str(choice))
                column[1].plot(steps, record["values"], **style)
        column[0].set(title=problem, yscale="log" if problem != PHONES else "linear")
        column[1].set(xlabel="training steps", yscale="log")
    axes[0, 0].set_ylabel("learning rate")
    axes[1, 0].set_ylabel("validation loss")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figures.add_grids(axes.flat)
    figures.save_figure(figure, path)
