from __future__ import annotations

import pytest
from synthetic import curve, write_errors

from evodrop.experiments.curves import read_curves
from evodrop.experiments.figures.panels import PANELS, find_panel, shortened
from evodrop.experiments.figures.plans import runs_of

MNIST = find_panel("fig2-mnist")


def seeds_and_steps(trials, label):
    return [(trial.fields["seed"], trial.fields["lr"]) for trial in trials if trial.contender.label == label]


def cut(plan):
    return shortened(MNIST, plan.panel.epochs, plan.panel.seeds, plan.panel.grid, plan.tuning_epochs)


def test_first_every_step_with_one_seed_then_the_chosen_one_with_all():
    plan = runs_of(MNIST)
    assert seeds_and_steps(plan.tuning, "evolutional") == [(0, step) for step in MNIST.grid]
    steps = {"standard": 0.01, "evolutional": 0.005, "evolutional, matched noise": 0.001, "none": 0.01}
    assert seeds_and_steps(plan.final(steps), "evolutional") == [(seed, 0.005) for seed in range(3)]
    ids = {trial.run.id for trial in plan.tuning}
    assert sum(trial.run.id in ids for trial in plan.final(steps)) == 4  # the first seed's are done already
    assert cut(plan) == ()


def test_contenders_take_turns_so_that_they_share_the_machine():
    plan, labels = runs_of(MNIST, seeds=2), [contender.label for contender in MNIST.contenders]
    assert [trial.contender.label for trial in plan.tuning] == labels * len(MNIST.grid)
    assert [trial.fields["lr"] for trial in plan.tuning] == [step for step in MNIST.grid for _ in labels]
    final = plan.final(dict.fromkeys(labels, 0.005))
    assert [(trial.fields["seed"], trial.contender.label) for trial in final] == [
        (seed, label) for seed in range(2) for label in labels
    ]


def test_the_runs_have_the_panels_protocol():
    run = runs_of(MNIST).tuning[0].run
    assert (run.dataset, run.network, run.method, run.match, run.rate) == ("mnist", "mnist", "standard", "draws", 0.5)
    assert (run.epochs, run.batch_size, run.momentum, run.weight_std, run.decay) == (20, 128, 0.9, 0.01, (13, 17))
    assert run.eval_every == 100
    assert runs_of(find_panel("fig1-bn")).tuning[0].run.decay == (120,)
    assert runs_of(find_panel("fig2-cifar10")).tuning[0].run.eval_every == 60 * 390 // 100


@pytest.mark.parametrize(
    "panel", [panel for panel in PANELS.values() if not panel.is_linear], ids=lambda panel: panel.id
)
@pytest.mark.parametrize("epochs", [1, 2, 3, 7, None])
def test_every_plan_of_a_network_has_runs_of_their_own(panel, epochs):
    trials = runs_of(panel, epochs=epochs).tuning
    assert len({trial.run.id for trial in trials}) == len(trials) == len(panel.grid) * len(panel.contenders)


def test_a_linear_plan_has_what_a_linear_model_needs():
    fields = dict(runs_of(find_panel("fig1-20news")).tuning[-1].fields)
    assert fields == {
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
    plan = runs_of(MNIST, epochs=2, grid=[0.01, 0.001])
    for trial in plan.tuning:
        fast = trial.fields["lr"] == (0.001 if trial.contender.label == "standard" else 0.01)
        write_errors(tmp_path, [0.9, 0.2 if fast else 0.8], **trial.fields)
    # what is there besides, of another length, seed or step, has no say
    others = [{"epochs": 9, "lr": 0.1}, {"seed": 1, "lr": 0.1}, {"lr": 0.1}, {"dataset": "svhn", "lr": 0.1}]
    for changes in others:
        write_errors(tmp_path, [0.0, 0.0], **{"method": "evolutional", "epochs": 2, **changes})
    assert plan.choose(read_curves([tmp_path])) == {
        "standard": 0.001,
        "evolutional": 0.01,
        "evolutional, matched noise": 0.01,
        "none": 0.01,
    }


def test_a_contender_without_runs_cannot_be_tuned(tmp_path):
    with pytest.raises(ValueError, match="no run of 'evolutional' to choose its step size from"):
        runs_of(MNIST).choose([curve(tmp_path, [0.5])])


def test_what_is_shortened_is_said():
    plan = runs_of(MNIST, epochs=6, seeds=1, grid=[0.01, 0.005], tuning_epochs=2)
    assert cut(plan) == (
        "6 epochs a run, not 20",
        "1 seed a contender, not 3",
        "step sizes tried: 0.005, 0.01, not 0.001, 0.005, 0.01, 0.1",
        "step sizes chosen by runs of 2 epochs, not 6",
    )
    assert {trial.fields["epochs"] for trial in plan.tuning} == {2}
    assert cut(runs_of(MNIST, epochs=50, seeds=9)) == ()  # more is not less


def test_a_quick_look_is_short_and_what_is_asked_for_goes_before_it():
    plan = runs_of(MNIST, quick=True)
    assert (plan.panel.epochs, plan.panel.seeds, plan.panel.grid) == (2, 2, (0.005,))
    plan = runs_of(MNIST, quick=True, epochs=4, seeds=3, grid=[0.1])
    assert (plan.panel.epochs, plan.panel.seeds, plan.panel.grid) == (4, 3, (0.1,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs is 0, but it takes an integer of at least 1"),
        ({"epochs": 0, "quick": True}, "epochs is 0"),
        ({"seeds": 1.5}, "seeds is 1.5"),
        ({"seeds": True}, "seeds is True"),
        ({"tuning_epochs": -1}, "tuning_epochs is -1"),
        ({"grid": []}, "step sizes above 0, at least one"),
        ({"grid": [0.1, -1]}, "step sizes above 0"),
        ({"grid": [float("nan")]}, "step sizes above 0"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        runs_of(MNIST, **options)
