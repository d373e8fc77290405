from __future__ import annotations

import pytest

from evodrop.experiments.datasets import DATASETS
from evodrop.experiments.datasets.splits import held_out
from evodrop.experiments.figures.panels import PANELS, find_panel, split_sizes
from evodrop.experiments.methods import LINEAR
from evodrop.linear import PAPER_GRID

IDS = """
fig1-real-sim fig1-news20 fig1-rcv1 fig1-bn fig2-mnist fig2-svhn fig2-cifar10 fig2-cifar100
fig1-20news fig1-reuters52 fig1-rcv1-part fig1-20news-papergrid fig1-reuters52-papergrid fig1-rcv1-part-papergrid
"""


def test_every_panel_is_there():
    assert list(PANELS) == IDS.split()
    assert all(panel.id == name for name, panel in PANELS.items())


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_is_whole(panel):
    labels = [contender.label for contender in panel.contenders]
    assert len({contender.key for contender in panel.contenders}) == len(set(labels)) == len(labels)
    assert {panel.baseline, panel.challenger} <= set(labels)
    assert not {panel.baseline, panel.challenger} & {item.label for item in panel.contenders if item.added}
    assert panel.good_step in panel.grid
    assert all(contender.rate == 0.5 for contender in panel.contenders)
    assert panel.is_linear == (panel.network == LINEAR)
    assert panel.seeds >= 3


@pytest.mark.parametrize("panel", [panel for panel in PANELS.values() if panel.is_linear], ids=lambda panel: panel.id)
def test_linear_panels_follow_section_5_1(panel):
    if panel.id in ("fig1-20news", "fig1-reuters52", "fig1-rcv1-part"):
        assert panel.grid == (0.1, 0.5, 1, 5, 10, 50)
    else:
        assert panel.grid == PAPER_GRID == (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
    assert panel.decay == ()  # a fixed step size
    assert [item.method for item in panel.contenders if not item.added] == ["standard", "data-dependent"]
    assert (panel.seeds, panel.epochs) == (10, 30)


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10", "cifar100"])
def test_deep_panels_follow_section_5_2(name):
    panel = find_panel(f"fig2-{name}")
    assert (panel.batch_size, panel.momentum, panel.weight_std) == (128, 0.9, 0.01)
    assert panel.grid == (0.001, 0.005, 0.01, 0.1)
    assert [item.method for item in panel.contenders if not item.added] == ["standard", "evolutional"]
    assert "noise" in {item.match for item in panel.contenders if item.added}


@pytest.mark.parametrize("dataset", [name for name, known in DATASETS.items() if known.test == 0])
def test_sizes_are_those_of_the_split(dataset):
    assert split_sizes(dataset) == tuple(map(len, held_out(DATASETS[dataset].train)))


def test_the_panel_on_batch_normalisation_follows_section_5_3():
    panel = find_panel("fig1-bn")
    assert (panel.batch_size, panel.grid, len(panel.decay)) == (100, (0.001,), 1)
    methods = [(item.network, item.method) for item in panel.contenders if not item.added]
    assert methods == [
        ("cifar10-nobn", "none"),
        ("cifar10-bn", "none"),
        ("cifar10-bn", "standard"),
        ("cifar10-bn-sigmoid", "none"),
        ("cifar10-nobn", "evolutional"),
    ]


def test_svhn_goes_as_far_as_the_paper_shows():
    panel = find_panel("fig2-svhn")
    assert panel.epochs * (panel.examples // panel.batch_size) == pytest.approx(12_000, rel=0.01)


def test_an_unknown_panel_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match=r"no panel 'fig3'; the panels are fig1-real-sim, .*fig1-rcv1-part-papergrid"):
        find_panel("fig3")
