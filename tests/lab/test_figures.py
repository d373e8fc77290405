from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.synthetic import curve, layer, record, write_realistic, write_run
from matplotlib.figure import Figure
from scipy import sparse

from evodrop.lab.curves import read_curves
from evodrop.lab.figures import COLOURS, LAYERS, POINTS, draw, draw_theory, interactive, save, series, styles_of
from evodrop.lab.methods import METHODS
from evodrop.lab.panels import PANELS, Variant, find_panel
from evodrop.lab.summary import band_of
from evodrop.lab.verdicts import outcomes_of
from evodrop.theory import report

MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".PNG": b"\x89PNG"}


@pytest.fixture
def outcome(tmp_path):
    for seed in range(3):
        write_realistic(tmp_path, "standard", seed, speed=8, floor=0.02)
        write_realistic(tmp_path, "evolutional", seed, speed=12, floor=0.015)
    return outcomes_of(read_curves([tmp_path]), find_panel("fig2-mnist"))[0]


def test_lines_of_errors_are_the_means_and_bands_over_the_seeds(outcome):
    for kind in ("clean", "noisy", "test"):
        lines = series(outcome)["", kind]
        assert [name for name, *_ in lines] == list(outcome.curves)
        for (x, *ys), curves in zip(lines.values(), outcome.curves.values(), strict=True):
            band = band_of(curves, kind)
            np.testing.assert_array_equal(x, band[0])
            for drawn, expected in zip(ys, band[1:], strict=True):
                np.testing.assert_allclose(drawn, expected, rtol=1e-6)


def test_the_figure_shows_the_means_and_the_bands_and_says_of_what(outcome):
    figure = draw(outcome)
    names = ["standard", "evolutional"]
    for axes, kind in zip(figure.axes, ("clean", "test"), strict=True):
        assert [line.get_label() for line in axes.lines] == names
        for line, band, own in zip(axes.lines, axes.collections, series(outcome)["", kind].values(), strict=True):
            _, y, low, high = own
            np.testing.assert_array_equal(line.get_ydata(), y)
            edges = band.get_paths()[0].vertices[:, 1]
            assert (edges.min(), edges.max()) == (low.min(), high.max())
        assert axes.get_xlabel() == "iterations"
    assert [axes.get_ylabel() for axes in figure.axes] == ["training error on clean data", "test error"]
    assert [text.get_text() for text in figure.legends[0].texts] == names
    assert figure.get_suptitle().endswith("\nFigure 2(a)")


def test_what_diverged_or_is_unfinished_is_named_and_steps_that_differ(tmp_path):
    curves = [
        curve(tmp_path, [0.5, 0.4], seed=0),
        curve(tmp_path, [0.5, None], "diverged", seed=1),
        curve(tmp_path, [0.5], "running", seed=0, method="uniform", lr=0.1),
    ]
    names = [name for name, *_ in series(outcomes_of(curves)[0])["", "clean"]]
    assert names == ["standard (step 0.005, 1 of 2 diverged)", "uniform (step 0.1, 1 of 1 unfinished)"]


def test_a_figure_of_runs_that_all_diverged_at_once_is_empty_but_stands(tmp_path):
    figure = draw(outcomes_of([curve(tmp_path, [None], "diverged")])[0])
    assert [len(axes.lines) for axes in figure.axes] == [0, 0]


def test_linear_models_count_examples(tmp_path):
    outcome = outcomes_of([curve(tmp_path, [0.5, 0.4], network="linear", method="data-dependent")])[0]
    assert draw(outcome).axes[0].get_xlabel() == "examples seen"


@pytest.mark.parametrize("ending", MAGIC)
def test_figures_are_written_whole_and_the_same_each_time(outcome, tmp_path, ending):
    path = tmp_path / f"a{ending}"
    (tmp_path / "plain").touch()
    save(draw(outcome), path)
    first = path.read_bytes()
    assert first.startswith(MAGIC[ending])
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode  # read by whoever may read a new file
    save(draw(outcome), path)
    assert path.read_bytes() == first or ending == ".svg"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", [(Figure, "savefig"), (os, "fsync"), (os, "replace")])
def test_a_figure_that_fails_leaves_nothing_and_the_old_one_as_it_was(outcome, tmp_path, monkeypatch, place):
    monkeypatch.setattr(*place, lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    (tmp_path / "old.png").write_text("old")
    for name in ("a.png", "old.png"):
        with pytest.raises(OSError, match="disk full"):
            save(draw(outcome), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["old.png"]
    assert (tmp_path / "old.png").read_text() == "old"


def test_the_axis_ends_where_the_steep_beginning_does_and_short_curves_have_no_say(tmp_path):
    long = [curve(tmp_path, [0.9] * 10 + [0.2] * 40)]
    short = [curve(tmp_path, [1.0] * 3, "diverged", method="uniform")]
    after_a_fifth = band_of(long, "test")[3][9]  # of 50 records
    assert draw(outcomes_of(long + short)[0]).axes[1].get_ylim() == pytest.approx((0, 1.1 * after_a_fifth))
    assert draw(outcomes_of([curve(tmp_path, [0.0])])[0]).axes[1].get_ylim() == (0, 1)


def test_long_curves_are_thinned_but_keep_their_ends(tmp_path):
    errors = [0.5] * (3 * POINTS)
    ((x, *ys),) = series(outcomes_of([curve(tmp_path, errors)])[0])["", "clean"].values()
    assert {len(x), *map(len, ys)} == {POINTS}
    assert (x[0], x[-1]) == (100.0, 100.0 * len(errors))


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_no_two_variants_of_a_panel_look_the_same(panel):
    styles = styles_of(panel.variants)
    assert len(set(styles.values())) == len(panel.variants)


def test_a_method_that_nobody_knows_has_a_style_too():
    variants = [Variant(f"m{number}", "n", f"m{number}") for number in range(9)]
    styles = styles_of(variants)
    assert len(set(styles.values())) == 9


def test_all_methods_of_networks_look_different():
    styles = styles_of([Variant(method, "digits", method) for method in METHODS])
    assert len(set(styles.values())) == len(METHODS)
    assert styles["standard"][1] == styles["evolutional"][1] == "solid"


def luminance(colour):
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#161618"])
def test_every_line_stands_out_from_a_light_page_and_from_a_dark_one(page):
    """WCAG asks for a contrast of 3 between a graphic and what is around it."""
    for colour in COLOURS.values():
        light, dark = sorted((luminance(colour), luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour


def test_many_variants_are_ranked_below_their_curves(tmp_path):
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
    seeds = [len(line.get_xdata()) for line in ranking.lines if line.get_marker() == "o"]
    assert seeds == [3] * 9
    bars = [tuple(bar.get_segments()[0][:, 0]) for bar in ranking.collections]
    assert bars == [(max(low, 0.0), high) for _, low, high in (row.test_error for row in outcome.ranking)]


def test_a_ranking_has_room_for_those_that_diverged(tmp_path):
    curves = [curve(tmp_path, [0.5, 0.4], method=method) for method in [*METHODS][:8]]
    curves.append(curve(tmp_path, [0.5, None], "diverged", method=[*METHODS][8]))
    ranking = draw(outcomes_of(curves)[0]).axes[-1]
    assert ranking.get_yticklabels()[-1].get_text() == f"{[*METHODS][8]} (1 of 1 diverged)"


def test_few_methods_and_those_of_a_panel_are_not_ranked(tmp_path):
    methods = ["standard", *(f"m{number}" for number in range(8))]
    curves = [curve(tmp_path, [0.5, 0.3 - 0.01 * at], method=method) for at, method in enumerate(methods)]
    lines = series(outcomes_of(curves)[0])["", "ranking"]
    assert [name for name, *_ in lines] == methods[::-1]  # the last has the least error
    best = next(iter(lines.values()))
    np.testing.assert_allclose(best, [[0.22], [0.22], [np.nan], [np.nan]])  # one seed has no interval
    assert ("", "ranking") not in series(outcomes_of(curves[:8])[0])
    assert ("", "ranking") not in series(outcomes_of(curves, find_panel("fig2-mnist"))[0])


@pytest.mark.parametrize("quantiles", [1, 3, 16, 64])
def test_layers_are_shares_of_their_units_and_deciles_of_their_probabilities(tmp_path, quantiles):
    probs = np.linspace(0, 2 / 64, quantiles) if quantiles > 1 else np.array([1 / 64])
    seen = layer("drop", 0.5) | {"probs": probs.tolist()}
    records = [record(1, layers=[seen | {"noise": None}]), record(2, layers=[seen]), record(3, status="finished")]
    write_run(tmp_path, records, method="evolutional")
    plots = series(outcomes_of(read_curves([tmp_path]))[0])
    for kind in ("dead", "effective", "kept"):
        ((_, y),) = plots["drop", kind].values()
        assert y == pytest.approx([seen[kind] / 64] * 2, rel=1e-6)
    ((_, noise),) = plots["drop", "noise"].values()
    np.testing.assert_allclose(noise, [np.nan, seen["noise"]], rtol=1e-6)
    ((x, deciles),) = plots["drop", "probs"].values()
    assert (x.tolist(), deciles.shape) == ([100.0, 200.0], (11, 2))
    expected = np.linspace(0, 2, 11) if quantiles > 1 else np.ones(11)  # 1 is the mean of the units
    np.testing.assert_allclose(deciles[:, 0], expected, rtol=1e-6, atol=1e-7)


def test_what_is_never_known_has_no_line(tmp_path):
    unknown = layer("drop", 0.5) | {"noise": None, "kept": None, "probs": []}
    write_run(tmp_path, [record(1, layers=[unknown], status="finished")], method="gaussian")
    assert [kind for _, kind in series(outcomes_of(read_curves([tmp_path]))[0])] == ["dead", "effective"]
    write_run(tmp_path, [record(1, layers=[layer("drop", 0.5)], status="finished")], method="evolutional")
    plots = series(outcomes_of(read_curves([tmp_path]))[0])
    assert [kind for _, kind in plots] == ["probs", *LAYERS]
    assert [name for name, *_ in plots["drop", "kept"]] == ["evolutional"]
    assert [name for name, *_ in plots["drop", "dead"]] == ["evolutional", "gaussian"]


def test_probabilities_open_on_the_challenger(tmp_path):
    for method in ("standard", "evolutional", "water-filling"):
        write_realistic(tmp_path, method, 0, 6, 0.02)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    assert outcome.challenger == "evolutional"
    assert '"active":1' in interactive("probs", series(outcome)["dropout", "probs"], "p", outcome)
    (alone,) = outcomes_of([run for run in outcome.runs if run.method == "standard"])
    assert alone.challenger is None
    assert '"active":0' in interactive("probs", series(alone)["dropout", "probs"], "p", alone)


def test_theory_has_two_panels_with_the_lines_of_its_report():
    X = np.random.default_rng(0).normal(size=(50, 20)) / np.arange(1, 21)
    X[:, 3] = 0.0
    made = report(X, 0.4)
    probability, survival = draw_theory(made).axes
    lines = {line.get_label(): line for line in probability.get_lines()}
    assert list(lines) == ["uniform", "data-dependent"]
    np.testing.assert_allclose(lines["uniform"].get_ydata(), 1 / 20)
    np.testing.assert_array_equal(
        lines["data-dependent"].get_ydata(), np.sort(made.noises["data-dependent"].chances)[::-1]
    )
    np.testing.assert_array_equal(lines["uniform"].get_xdata(), np.arange(1, 21))
    assert (probability.get_xscale(), probability.get_yscale(), survival.get_yscale()) == ("log", "log", "linear")
    lines = {line.get_label(): line for line in survival.get_lines()}
    assert set(lines) == {"standard", "uniform", "data-dependent", "water-filling"}
    for name, line in lines.items():
        np.testing.assert_array_equal(line.get_ydata(), np.sort(made.noises[name].survival)[::-1])
    assert len({line.get_color() for line in lines.values()}) == 4
    for panel in (probability, survival):
        assert panel.get_xlabel()
        assert panel.get_ylabel()
        assert [text.get_text() for text in panel.get_legend().get_texts()] == [
            line.get_label() for line in panel.get_lines()
        ]


def test_many_units_are_drawn_by_few_points_from_the_first_to_the_last():
    X = sparse.random_array((50, 200_000), density=0.01, rng=np.random.default_rng(0), format="csr")
    made = report(X)
    for panel in draw_theory(made).axes:
        for line in panel.get_lines():
            rank = line.get_xdata()
            assert len(rank) <= 2000
            assert (rank[0], rank[-1]) == (1, 200_000)
    np.testing.assert_array_equal(line.get_ydata(), np.sort(made.noises[line.get_label()].survival)[::-1][rank - 1])


def test_one_unit_and_one_example_make_a_picture_of_theory(tmp_path):
    save(draw_theory(report([[3.0]])), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 5000
