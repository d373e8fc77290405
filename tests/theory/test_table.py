"""A report as a table: every row, every number, and a verdict that follows from them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from evodrop.theory import noises_for, report
from evodrop.theory.table import verdict

NOISES = list(noises_for([1.0], 0.5))
EVEN = np.ones((5, 100))
SKEWED = np.ones((5, 100)) / np.arange(1.0, 101.0)
LARGE = np.ones((5, 100)) * 1e150


@pytest.mark.parametrize("X", [EVEN, SKEWED, LARGE, [[3.0]]], ids=["even", "skewed", "large", "one"])
def test_the_string_has_every_row_and_every_number(X):
    made = report(X)
    lines = str(made).splitlines()
    assert f"{made.n} examples x {made.d} units, rate 0.5, k = {made.k} draws" in lines[0]
    table = lines[lines.index("") + 2 :][: len(NOISES)]  # after the empty line and the heads of the columns
    rows = {line.split()[0]: line.split()[1:] for line in table}
    assert list(rows) == list(NOISES)
    for name, cells in rows.items():
        predicted = made[name]
        assert float(cells[0]) == pytest.approx(predicted.squared_norm, rel=1e-3)
        assert float(cells[1]) == pytest.approx(predicted.loudness, abs=5e-4)
        assert float(cells[2]) == pytest.approx(predicted.bound, rel=1e-3)
        assert float(cells[3].replace(",", "")) == pytest.approx(predicted.kept, abs=0.05)
        assert float(cells[4].rstrip("%")) == pytest.approx(100 * predicted.kept_of_row, abs=0.05)
        assert float(cells[5]) == pytest.approx(predicted.gain, abs=5e-4)


def test_every_column_has_its_whole_name():
    header = next(line for line in str(report(EVEN)).splitlines() if line.startswith("noise"))
    for title in ("B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain"):
        assert title in header
        header = header.partition(title)[2]


def test_a_string_has_neither_colours_nor_spaces_at_the_end():
    text = str(report(SKEWED))
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("X", "rate", "words"),
    [
        (EVEN, 0.5, "does not pay here: its B^2 is 1.490 of standard dropout's"),
        (SKEWED, 0.5, "noise pays here: its B^2 is 0."),
        (SKEWED, 0.0, "does not pay here"),
    ],
)
def test_the_verdict_follows_from_the_numbers(X, rate, words):
    made = report(X, rate)
    text = " ".join(str(made).split())
    assert words in text
    threshold = float(text.partition("it pays below ")[2].split()[0][:-1])
    assert f"The evenness of the units is {made.gap.evenness:.3f}; it pays below" in text
    assert (made.gap.evenness < threshold) == (made["data-dependent"].gain > 1)
    assert f"Of all values that are not 0, {made['data-dependent'].kept_of_row:.0%} survive it" in text
    assert "A bound is no forecast" in text


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.7])
def test_at_the_threshold_of_evenness_both_noises_are_equally_loud(rate):
    """d = 10, so that k is not rounded: units of size 1 and one of size s have any evenness from 1 to 1/d."""

    def made(size):
        return report(np.diag(np.r_[np.ones(9), size]), rate)

    loud, quiet = 1.0, 1e6
    for _ in range(200):
        middle = (loud * quiet) ** 0.5
        loud, quiet = (middle, quiet) if made(middle)["data-dependent"].gain < 1 else (loud, middle)
    threshold = float(verdict(made(quiet)).partition("it pays below ")[2].split()[0][:-1])
    assert made(quiet).gap.evenness == pytest.approx(threshold, abs=6e-4)


def test_a_terminal_shows_the_same_words():
    console = Console(file=io.StringIO(), width=110, force_terminal=True, color_system="truecolor")
    console.print(report(SKEWED))
    shown = console.file.getvalue()
    for name in NOISES:
        assert (f"\x1b[1m{name}" in shown) == (name == "water-filling")  # the best in bold
        assert name in shown
