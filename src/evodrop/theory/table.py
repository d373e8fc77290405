"""A report as a table, in colour on a terminal and plain in a string."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from evodrop.theory.report import Report

__all__ = ["WIDTH", "as_group", "as_text", "verdict"]

WIDTH = 80  # the least that the table takes


def as_group(report: Report) -> Group:
    """Headline, table and verdict, for rich to print."""
    table = Table(box=None, pad_edge=False)
    table.add_column("noise", no_wrap=True, min_width=14)
    for title in ("B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain"):
        table.add_column(title, justify="right", no_wrap=True)
    best = max(prediction.gain for prediction in report.predictions if prediction.noise != "none")
    for noise, squared_norm, loudness, bound, kept, kept_of_row, gain in report.predictions:
        figures = (
            f"{squared_norm:.4g}",
            f"{loudness:.4g}",
            f"{bound:.4g}",
            f"{kept:,.{kept < 1000:d}f}",
            f"{kept_of_row:.1%}",
        )
        table.add_row(noise, *figures, f"{gain:.4g}", style="bold" if gain == best and noise != "none" else "")
    headline = Text(
        f"{report.n:,} examples x {report.d:,} units, rate {report.rate:g}, k = {report.k:,} draws, "
        f"E||x||^2 = {report.squared_norm:.4g}"
    )
    return Group(headline, Text(), table, Text(), Text(verdict(report)))


def as_text(report: Report) -> str:
    """The same without colour."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    console.print(as_group(report))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines)


def verdict(report: Report) -> str:
    """In words: does noise that follows the data pay here, by the paper's own criterion?"""
    loudness = 1.0 / report.gap.data_dependent_over_standard
    pays = "pays here" if loudness < 1 else "does not pay here"
    threshold = (1.0 + report.k * report.rate / (1.0 - report.rate)) / report.d  # where the two B^2 are equal
    return (
        f"By the paper's criterion data-dependent noise {pays}: its B^2 is {loudness:.3f} of standard dropout's. "
        f"The evenness of the units is {report.gap.evenness:.3f}; it pays below {threshold:.3f}. "
        f"Of all values that are not 0, {report['data-dependent'].kept_of_row:.0%} survive it. "
        "Gain: how many times fewer examples reach the bound of standard dropout. A bound is no forecast."
    )
