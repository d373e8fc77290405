from __future__ import annotations

import os

import numpy as np
import pytest
from synthetic import curve, write_realistic

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.claims.summaries import band_of
from evodrop.experiments.figures.contenders import Contender
from evodrop.experiments.figures.panels import PANELS, find_panel
from evodrop.experiments.methods import METHODS, USUAL
from evodrop.experiments.plotting import COLOURS, bands_of, draw, highest, save, styles_of
from evodrop.experiments.records.curves import read_curves
from evodrop.experiments.theory_figure import COLOURS as THEORY


@pytest.fixture
def outcome(tmp_path):
    for seed in range(3):
        write_realistic(tmp_path, "standard", seed, speed=8, floor=0.02)
        write_realistic(tmp_path, "evolutional", seed, speed=12, floor=0.015)
    return outcomes_of(read_curves([tmp_path]), find_panel("fig2-mnist"))[0]


@pytest.mark.parametrize("training", ["clean", "noisy"])
def test_the_figure_shows_the_means_and_the_bands_and_says_of_what(outcome, training):
    figure = draw(outcome, training)
    for axes, kind in zip(figure.axes, (training, "test"), strict=True):
        assert [line.get_label() for line in axes.lines] == ["standard (step 0.005)", "evolutional (step 0.005)"]
        for line, band, curves in zip(axes.lines, axes.collections, outcome.curves.values(), strict=True):
            expected = band_of(curves, kind)
            np.testing.assert_array_equal(line.get_ydata(), expected.mean)
            edges = band.get_paths()[0].vertices[:, 1]
            assert (edges.min(), edges.max()) == (expected.low.min(), expected.high.max())
        assert axes.get_xlabel() == "iterations"
    words = {"clean": "training error on clean data", "noisy": "training error with the noise on"}[training]
    assert [axes.get_ylabel() for axes in figure.axes] == [words, "test error"]
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "standard (step 0.005)",
        "evolutional (step 0.005)",
    ]
    assert figure.get_suptitle().endswith("\nFigure 2(a)")


def test_what_diverged_or_is_unfinished_is_named(tmp_path):
    curves = [
        curve(tmp_path, [0.5, 0.4], seed=0),
        curve(tmp_path, [0.5, None], "diverged", seed=1),
        curve(tmp_path, [0.5], "running", seed=0, method="uniform", network="linear"),
    ]
    figure = draw(outcomes_of(curves)[0])
    names = [line.get_label() for line in figure.axes[0].lines]
    assert names == [
        "standard in mnist (step 0.005, 1 of 2 diverged)",
        "uniform in linear (step 0.005, 1 of 1 unfinished)",
    ]


def test_a_figure_of_runs_that_all_diverged_at_once_is_empty_but_stands(tmp_path):
    figure = draw(outcomes_of([curve(tmp_path, [None], "diverged")])[0])
    assert [len(axes.lines) for axes in figure.axes] == [0, 0]


def test_linear_models_count_examples(tmp_path):
    outcome = outcomes_of([curve(tmp_path, [0.5, 0.4], network="linear", method="data-dependent")])[0]
    assert draw(outcome).axes[0].get_xlabel() == "examples seen"


def test_a_training_error_that_is_not_known_is_refused(outcome):
    with pytest.raises(ValueError, match="training is 'both', but the training error is drawn 'clean' or 'noisy'"):
        draw(outcome, "both")


def test_figures_are_written_whole_and_the_same_each_time(outcome, tmp_path):
    paths = [tmp_path / name for name in ("a.png", "a.pdf", "a.svg")]
    save(outcome, *paths)
    first = [path.read_bytes() for path in paths[:2]]
    assert [data[:4] for data in first] == [b"\x89PNG", b"%PDF"]
    save(outcome, *paths)
    assert [path.read_bytes() for path in paths[:2]] == first
    assert not list(tmp_path.glob(".*"))


def test_a_figure_that_fails_leaves_nothing(outcome, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"one of \.png, \.pdf, \.svg"):
        save(outcome, tmp_path / "a.png", tmp_path / "a.gif")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(outcome, tmp_path / "a.png")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "a."))]


def test_the_axis_ends_where_the_steep_beginning_does_and_short_curves_have_no_say(tmp_path):
    long = [curve(tmp_path, [0.9] * 10 + [0.2] * 40)]
    short = [curve(tmp_path, [1.0] * 3, "diverged", method="uniform")]
    outcome = outcomes_of(long + short)[0]
    after_a_fifth = band_of(long, "test").high[9]  # of 50 records
    assert highest(bands_of(outcome, "test")) == pytest.approx(1.1 * after_a_fifth)
    assert highest({}) == 1.0


def test_theory_and_laboratory_have_one_palette():
    assert COLOURS.items() >= THEORY.items()
    assert COLOURS["evolutional"] == COLOURS["data-dependent"]  # the same law


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_no_two_contenders_of_a_panel_look_the_same(panel):
    styles = styles_of(panel.contenders)
    assert len(set(styles.values())) == len(panel.contenders)


def test_a_method_that_nobody_knows_has_a_style_too():
    contenders = [Contender(f"m{number}", "n", f"m{number}") for number in range(9)]
    styles = styles_of(contenders)
    assert len(set(styles.values())) == 9


def test_all_methods_of_networks_look_different():
    styles = styles_of([Contender(method, "digits", method) for method in METHODS])
    assert len(set(styles.values())) == len(METHODS)
    assert not any(styles[method].dashed for method in USUAL)


def test_many_contenders_are_ranked_below_their_curves(tmp_path):
    floors = {method: 0.01 * (1 + (5 * at) % 9) for at, method in enumerate([*METHODS][:9])}
    for method, floor in floors.items():
        for seed in range(3):
            write_realistic(tmp_path, method, seed, speed=12, floor=floor)
    outcome = outcomes_of(read_curves([tmp_path]))[0]
    figure = draw(outcome)
    *curves, ranking = figure.axes
    assert [len(axes.lines) for axes in curves] == [9, 9]
    assert not any(axes.collections for axes in curves)  # bands would hide each other
    assert not figure.legends
    names = [tick.get_text() for tick in ranking.get_yticklabels()]
    assert names == [row.label for row in outcome.ranking]
    assert names[0] == min(floors, key=floors.get)
    bars = [tuple(line.get_xdata()) for line in ranking.lines if line.get_linestyle() != "None"]
    seeds = [len(line.get_xdata()) for line in ranking.lines if line.get_marker() == "o"]
    assert seeds == [3] * 9
    assert set(bars) >= {(max(row.test_error.low, 0.0), row.test_error.high) for row in outcome.ranking}


def test_a_ranking_has_room_for_those_that_diverged(tmp_path):
    curves = [curve(tmp_path, [0.5, 0.4], method=method) for method in [*METHODS][:8]]
    curves.append(curve(tmp_path, [0.5, None], "diverged", method=[*METHODS][8]))
    ranking = draw(outcomes_of(curves)[0]).axes[-1]
    assert ranking.get_yticklabels()[-1].get_text() == f"{[*METHODS][8]} (1 of 1 diverged)"
