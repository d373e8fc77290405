from __future__ import annotations

import pytest
from synthetic import curve, write_errors

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.curves import read_curve
from evodrop.experiments.figures.panels import find_panel
from evodrop.experiments.report.sections import origin_section
from evodrop.experiments.report.tables import summary_table

MNIST = find_panel("fig2-mnist")


def test_each_data_set_has_an_outcome(tmp_path):
    curves = [curve(tmp_path, [0.5], dataset=name) for name in ("svhn", "mnist")]
    found = outcomes_of(curves, MNIST)
    assert [(item.title, item.panel) for item in found] == [(MNIST.title, MNIST), ("dropout on svhn", None)]
    assert found[1].judgements == []
    assert found[1].shortened == ()
    assert outcomes_of([]) == []


def test_data_that_were_not_published_are_named_wherever_they_are_shown(tmp_path):
    folder = write_errors(tmp_path, [0.5], dataset="svhn", network="svhn", data="x, rebuilt from format 1")
    panel = find_panel("fig2-svhn")
    found = outcomes_of([read_curve(folder)], panel)
    assert found[0].title == f"{panel.title}, rebuilt from format 1"
    assert "svhn, rebuilt from format 1" in origin_section(found, "")
    assert str(summary_table(found[0]).title).endswith("rebuilt from format 1")
    assert outcomes_of([read_curve(folder)])[0].title == "dropout on svhn, rebuilt from format 1"


def test_the_baseline_is_the_panels_or_standard_dropout(tmp_path):
    standard, other = curve(tmp_path, [0.5]), curve(tmp_path, [0.5], method="uniform")
    assert outcomes_of([standard, other])[0].baseline == "standard"
    assert outcomes_of([other])[0].baseline is None
    assert outcomes_of([other], MNIST)[0].baseline is None  # it was not run
    assert outcomes_of([standard, curve(tmp_path, [0.5], rate=0.2)])[0].baseline is None  # which one?
    panel = find_panel("fig1-bn")
    bn = curve(tmp_path, [0.5], dataset="cifar10", network="cifar10-bn")
    assert outcomes_of([bn], panel)[0].baseline == "BN + standard"


def test_tuning_runs_are_kept_but_do_not_count(tmp_path):
    curves = [curve(tmp_path, [error], lr=lr) for lr, error in ((0.1, 0.9), (0.01, 0.2))]
    found = outcomes_of(curves)[0]
    assert len(found.runs) == 2
    assert [item.lr for item in found.curves["standard"]] == [0.01]
    assert found.summaries[0].test_error.n == 1


def test_what_was_shortened_is_read_from_the_records(tmp_path):
    options = [("standard", "draws", 3), ("evolutional", "draws", 2)]
    curves = [
        curve(tmp_path, [0.5], method=method, match=match, epochs=7, seed=seed)
        for method, match, seeds in options
        for seed in range(seeds)
    ]
    assert outcomes_of(curves, MNIST)[0].shortened == (
        "7 epochs a run, not 20",
        "2 seeds a contender, not 3",
        "step sizes tried: 0.005, not 0.001, 0.005, 0.01, 0.1",
        "not run: evolutional, matched noise, none",
    )


def test_a_whole_panel_is_not_shortened(tmp_path):
    curves = [
        curve(tmp_path, [0.5], method=contender.method, match=contender.match, lr=lr, seed=seed)
        for contender in MNIST.contenders
        for lr in MNIST.grid
        for seed in range(3)
    ]
    assert outcomes_of(curves, MNIST)[0].shortened == ()


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (0.1, ("standard: step 0.1 is the largest of 3 tried; a larger one may be faster",)),
        (0.001, ("standard: step 0.001 is the smallest of 3 tried; a smaller one may be faster",)),
        (0.01, ()),
    ],
)
def test_a_step_at_the_edge_of_the_grid_is_told(tmp_path, best, words):
    curves = [curve(tmp_path, [0.2 if lr == best else 0.5], lr=lr) for lr in (0.001, 0.01, 0.1)]
    curves += [curve(tmp_path, [0.5], method="uniform")]  # one step alone has no edge
    assert outcomes_of(curves)[0].edges == words
