from __future__ import annotations

import pytest
from helpers.synthetic import curve, write_errors

from evodrop.lab.curves import read_curves
from evodrop.lab.data import DATASETS, held_out
from evodrop.lab.methods import LINEAR
from evodrop.lab.panels import CHOICES, DEEP_GRID, LINEAR_GRID, OTHER_DATA, PANELS, Variant, find_panel, key_of
from evodrop.linear import PAPER_GRID

IDS = """
fig1-real-sim fig1-news20 fig1-rcv1 fig1-bn fig2-mnist fig2-svhn fig2-cifar10 fig2-cifar100
fig1-20news fig1-reuters52 fig1-rcv1-part fig1-20news-papergrid fig1-reuters52-papergrid fig1-rcv1-part-papergrid
"""
MNIST = find_panel("fig2-mnist")
LINEAR_PANELS = [panel for panel in PANELS.values() if panel.network == LINEAR]
NETWORK_PANELS = [panel for panel in PANELS.values() if panel.network != LINEAR]


def named(panel):
    return panel.id


def seeds_and_steps(runs, method, match="draws"):
    return [(run.seed, run.lr) for run in runs if (run.method, run.match) == (method, match)]


def missing_from_protocol(panel):
    """What a cut of the panel on MNIST leaves out of it."""
    return MNIST.shortened(panel.epochs, panel.seeds, panel.grid, panel.tuning_epochs or panel.epochs)


def test_every_panel_is_there():
    assert list(PANELS) == IDS.split()
    assert all(panel.id == name for name, panel in PANELS.items())


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_is_whole(panel):
    labels = [variant.label for variant in panel.variants]
    names = [variant.name for variant in panel.variants]
    assert len(set(map(key_of, panel.variants))) == len(set(labels)) == len(set(names)) == len(labels)
    assert not any("," in name or " " in name for name in names)  # a list of them is separated by commas
    assert {panel.baseline, panel.challenger} <= set(labels)
    assert not {panel.baseline, panel.challenger} & {item.label for item in panel.variants if item.added}
    assert panel.good_step in panel.grid
    assert all(variant.rate == 0.5 for variant in panel.variants)
    assert all((variant.network == LINEAR) == (panel.network == LINEAR) for variant in panel.variants)
    assert panel.seeds >= 3


@pytest.mark.parametrize("panel", LINEAR_PANELS, ids=named)
def test_linear_panels_follow_section_5_1(panel):
    if panel.id in ("fig1-20news", "fig1-reuters52", "fig1-rcv1-part"):
        assert panel.grid == (0.1, 0.5, 1, 5, 10, 50)
    else:
        assert panel.grid == LINEAR_GRID == PAPER_GRID == (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
    assert panel.decay == ()  # a fixed step size
    assert [item.method for item in panel.variants if not item.added] == ["standard", "data-dependent"]
    assert (panel.seeds, panel.epochs) == (10, 30)


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10", "cifar100"])
def test_deep_panels_follow_section_5_2(name):
    panel = find_panel(f"fig2-{name}")
    assert (panel.batch_size, panel.momentum, panel.weight_std) == (128, 0.9, 0.01)
    assert panel.grid == DEEP_GRID == (0.001, 0.005, 0.01, 0.1)
    assert [item.method for item in panel.variants if not item.added] == ["standard", "evolutional"]
    assert "noise" in {item.match for item in panel.variants if item.added}


@pytest.mark.parametrize("panel", [panel for panel in PANELS.values() if DATASETS[panel.dataset].train], ids=named)
def test_examples_are_those_that_train(panel):
    entry = DATASETS[panel.dataset]
    assert panel.examples == (entry.train if entry.test else len(held_out(entry.train)[0]))


def test_the_panel_on_batch_normalisation_follows_section_5_3():
    panel = find_panel("fig1-bn")
    assert (panel.batch_size, panel.grid, len(panel.decay)) == (100, (0.001,), 1)
    methods = [(item.network, item.method) for item in panel.variants if not item.added]
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


def test_panels_on_other_data_say_that_they_are_not_the_papers():
    for panel in PANELS.values():
        assert panel.place.startswith("Figure ") != (panel.dataset in OTHER_DATA)
    assert all(words.endswith(".") for words in CHOICES.values())


def test_an_unknown_panel_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match=r"no panel 'fig3'; the panels are fig1-real-sim, .*fig1-rcv1-part-papergrid"):
        find_panel("fig3")


def test_first_every_step_with_one_seed_then_the_chosen_one_with_all():
    assert seeds_and_steps(MNIST.tuning_runs(), "evolutional") == [(0, step) for step in MNIST.grid]
    steps = {"standard": 0.01, "evolutional": 0.005, "evolutional, matched noise": 0.001, "none": 0.01}
    final = MNIST.final_runs(steps)
    assert seeds_and_steps(final, "evolutional") == [(seed, 0.005) for seed in range(3)]
    assert seeds_and_steps(final, "evolutional", "noise") == [(seed, 0.001) for seed in range(3)]
    ids = {run.id for run in MNIST.tuning_runs()}
    assert sum(run.id in ids for run in final) == 4  # the first seed's are done already
    assert missing_from_protocol(MNIST) == []


def test_variants_take_turns_so_that_they_share_the_machine():
    panel, labels = MNIST.cut(seeds=2), [variant.label for variant in MNIST.variants]
    variants = [(variant.method, variant.match) for variant in MNIST.variants]
    tuning = panel.tuning_runs()
    assert [(run.method, run.match) for run in tuning] == variants * len(MNIST.grid)
    assert [run.lr for run in tuning] == [step for step in MNIST.grid for _ in labels]
    final = panel.final_runs(dict.fromkeys(labels, 0.005))
    assert [(run.seed, (run.method, run.match)) for run in final] == [
        (seed, variant) for seed in range(2) for variant in variants
    ]


def test_the_runs_have_the_panels_protocol():
    run = MNIST.tuning_runs()[0]
    assert (run.dataset, run.network, run.method, run.match, run.rate) == ("mnist", "mnist", "standard", "draws", 0.5)
    assert (run.epochs, run.batch_size, run.momentum, run.weight_std, run.decay) == (20, 128, 0.9, 0.01, (13, 17))
    assert run.eval_every == 100
    assert find_panel("fig1-bn").tuning_runs()[0].decay == (120,)
    assert find_panel("fig2-cifar10").tuning_runs()[0].eval_every == 60 * 390 // 100


@pytest.mark.parametrize("panel", NETWORK_PANELS, ids=named)
@pytest.mark.parametrize("epochs", [1, 2, 3, 7, None])
def test_each_step_and_variant_of_a_network_has_a_run_of_its_own(panel, epochs):
    runs = panel.cut(epochs=epochs).tuning_runs()
    assert len({run.id for run in runs}) == len(runs) == len(panel.grid) * len(panel.variants)
    assert all(1 <= epoch < run.epochs for run in runs for epoch in run.decay)


def test_a_linear_run_has_what_a_linear_model_needs():
    assert find_panel("fig1-20news").tuning_runs()[-1].to_dict() == {
        "dataset": "20news",
        "network": "linear",
        "method": "none",
        "match": "draws",
        "rate": 0.5,
        "seed": 0,
        "lr": 50.0,
        "epochs": 30,
        "eval_every": 3387,
    }


def test_the_choice_is_a_function_of_the_records(tmp_path):
    panel = MNIST.cut(epochs=2, grid=[0.01, 0.001])
    for run in panel.tuning_runs():
        fast = run.lr == (0.001 if run.method == "standard" else 0.01)
        write_errors(tmp_path, [0.9, 0.2 if fast else 0.8], **run.to_dict())
    # runs of another length, seed, step or data set do not count
    others = [{"epochs": 9, "lr": 0.1}, {"seed": 1, "lr": 0.1}, {"lr": 0.1}, {"dataset": "svhn", "lr": 0.1}]
    for changes in others:
        write_errors(tmp_path, [0.0, 0.0], **{"method": "evolutional", "epochs": 2, **changes})
    assert panel.choose_steps(read_curves([tmp_path])) == {
        "standard": 0.001,
        "evolutional": 0.01,
        "evolutional, matched noise": 0.01,
        "none": 0.01,
    }


def test_short_runs_choose_the_step_where_the_panel_has_them(tmp_path):
    panel = MNIST.cut(methods=["standard"], epochs=6, grid=[0.01, 0.001], tuning_epochs=2)
    for run in panel.tuning_runs():
        write_errors(tmp_path, [0.2 if run.lr == 0.001 else 0.8], **run.to_dict())
    write_errors(tmp_path, [0.0], lr=0.01, epochs=6)  # as long as the results are, and alone
    assert panel.choose_steps(read_curves([tmp_path])) == {"standard": 0.001}


def test_a_variant_without_runs_cannot_be_tuned(tmp_path):
    with pytest.raises(ValueError, match="no run of 'evolutional' to choose its step size from; run them first"):
        MNIST.choose_steps([curve(tmp_path, [0.5])])


def test_a_panel_owns_the_runs_of_its_variants_on_its_data(tmp_path):
    assert MNIST.owns(curve(tmp_path, [0.5], lr=7.0, epochs=1, seed=9))
    for changes in ({"dataset": "svhn"}, {"network": "svhn"}, {"method": "uniform"}, {"rate": 0.2}):
        assert not MNIST.owns(curve(tmp_path, [0.5], **changes))


def test_a_panel_is_cut_to_some_of_its_methods_in_its_own_order():
    panel = MNIST.cut(methods=["evolutional-noise", "standard"])
    assert [variant.label for variant in panel.variants] == ["standard", "evolutional, matched noise"]
    assert (panel.epochs, panel.seeds, panel.grid) == (MNIST.epochs, MNIST.seeds, MNIST.grid)
    assert MNIST.cut(grid=[1, 0.5, 1.0]).grid == (1.0, 0.5)  # each step once


def test_what_is_shortened_is_said():
    panel = MNIST.cut(epochs=6, seeds=1, grid=[0.01, 0.005], tuning_epochs=2)
    assert missing_from_protocol(panel) == [
        "6 epochs per run, not 20",
        "1 seed per method, not 3",
        "step sizes tried: 0.005, 0.01, not 0.001, 0.005, 0.01, 0.1",
        "step sizes chosen by runs of 2 epochs, not 6",
    ]
    assert {run.epochs for run in panel.tuning_runs()} == {2}
    assert {run.epochs for run in panel.final_runs({item.label: 0.01 for item in panel.variants})} == {6}
    assert missing_from_protocol(MNIST.cut(epochs=50, seeds=9)) == []  # more is not less
    assert MNIST.shortened(1, 3, MNIST.grid, 1) == ["1 epoch per run, not 20"]


def test_a_quick_look_is_short_and_what_is_asked_for_goes_before_it():
    panel = MNIST.cut(quick=True)
    assert (panel.epochs, panel.seeds, panel.grid) == (2, 2, (0.005,))
    panel = MNIST.cut(quick=True, epochs=4, seeds=3, grid=[0.1])
    assert (panel.epochs, panel.seeds, panel.grid) == (4, 3, (0.1,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs is 0, but it takes an integer of at least 1"),
        ({"epochs": 0, "quick": True}, "epochs is 0"),
        ({"seeds": 0}, "seeds is 0, but it takes an integer of at least 1"),
        ({"tuning_epochs": -1}, "epochs is -1"),
        ({"grid": []}, "numbers above 0, at least one"),
        ({"grid": [0.1, -1]}, "numbers above 0"),
        ({"grid": [float("nan")]}, "numbers above 0"),
        ({"methods": []}, "--methods names none, but those of fig2-mnist are standard, evolutional"),
        (
            {"methods": ["standard", "dropconnect"]},
            "--methods names 'dropconnect', but those of fig2-mnist are standard",
        ),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        MNIST.cut(**options).tuning_runs()


def test_options_that_change_nothing_for_a_method_do_not_set_runs_apart(tmp_path):
    assert key_of(curve(tmp_path, [0.5], match="noise")) == key_of(curve(tmp_path, [0.5]))
    assert key_of(curve(tmp_path, [0.5], method="none", rate=0.2)) == key_of(curve(tmp_path, [0.5], method="none"))
    assert key_of(curve(tmp_path, [0.5], rate=0.2)) != key_of(curve(tmp_path, [0.5]))
    matched = curve(tmp_path, [0.5], method="evolutional", match="noise")
    assert key_of(matched) != key_of(curve(tmp_path, [0.5], method="evolutional"))


def test_variants_are_described():
    assert Variant("e", "mnist", "evolutional").words == "the paper's: k draws among the units, strong ones more likely"
    matched = Variant("m", "linear", "data-dependent", "noise", added=True)
    assert matched.words.endswith("gives the noise level of standard dropout; not in the paper")
    assert Variant("s", "mnist", "standard", "noise").words.endswith("with the same chance")  # no match there
    assert Variant("x", "mnist", "unheard of").words == "unheard of"
