"""A report as a table, in colour on a terminal and plain in a string."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from evodrop.theory.report import Report

__all__ = ["as_group", "as_text", "verdict"]

WIDTH = 110


def as_group(report: Report) -> Group:
    """Headline, table and verdict, for rich to print."""
    table = Table("noise", box=None, pad_edge=False)
    for title in ("B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain"):
        table.add_column(title, justify="right", no_wrap=True)
    best = max(prediction.gain for prediction in report.predictions if prediction.noise != "none")
    for noise, squared_norm, loudness, bound, kept, kept_of_row, gain in report.predictions:
        figures = (
            f"{squared_norm:.4g}",
            f"{loudness:.3f}",
            f"{bound:.4g}",
            f"{kept:,.{kept < 1000:d}f}",
            f"{kept_of_row:.1%}",
        )
        table.add_row(noise, *figures, f"{gain:.3f}", style="bold" if gain == best and noise != "none" else "")
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
    gap, row = report.gap, report["data-dependent"].kept_of_row
    pays = "pays" if gap.data_dependent_over_standard > 1 else "does not pay"
    comparison = "below" if gap.evenness < report.rate else "not below"
    return (
        f"By the paper's criterion data-dependent noise {pays} against standard dropout: its B^2 is "
        f"{1 / gap.data_dependent_over_standard:.3f} times as large.\n"
        f"The evenness of the units is {gap.evenness:.3f}, {comparison} the rate. An example keeps {row:.0%} of the "
        f"units that it has, against {1 - report.rate:.0%}.\n"
        "Gain: how many times fewer examples give the bound of standard dropout. A smaller bound is no promise of a "
        "smaller error."
    )
