from __future__ import annotations

import json
import math

import pytest
from helpers.synthetic import curve, write_errors

from evodrop.lab.claims import CLAIMS, Claim
from evodrop.lab.curves import read_curve
from evodrop.lab.panels import Variant, find_panel
from evodrop.lab.summary import NO_MEAN, Summary
from evodrop.lab.verdicts import (
    judge,
    judge_panel,
    no_longer_held,
    outcomes_of,
    rates_tried,
    read_verdicts,
    variants_of,
    write_verdicts,
)

MNIST = find_panel("fig2-mnist")


def claim(**changes):
    fields = {"id": "c", "panel": "fig2-mnist", "place": "", "words": "It is better.", "metric": "test_change"}
    return Claim(**fields | changes)


def summary(**changes):
    row = Summary("e", 0.1, (0, 1, 2), 3, *[NO_MEAN] * 8, {}, None, 0, 0)
    return row._replace(**changes)


def verdict(of, row, baseline=None):
    return judge(of, row, summary() if baseline is None else baseline).verdict


@pytest.mark.parametrize(
    ("low", "high", "below", "expected"),
    [
        (-0.3, -0.1, 0.0, "holds"),
        (-0.3, 0.1, 0.0, "inconclusive"),
        (0.1, 0.3, 0.0, "does not hold"),
        (0.0, 0.0, 0.0, "does not hold"),  # a tie is not faster
        (-0.3, -0.1, -0.1, "inconclusive"),
        (-0.3, -0.11, -0.1, "holds"),
        (-0.05, -0.01, -0.1, "does not hold"),  # better, but by less than claimed
    ],
)
def test_less_is_judged_by_the_whole_interval(low, high, below, expected):
    row = summary(test_change=((low + high) / 2, low, high))
    assert verdict(claim(below=below), row) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.01, 0.02, "holds"),
        (-0.03, 0.01, "inconclusive"),
        (-0.5, 0.5, "inconclusive"),
        (0.021, 0.04, "does not hold"),
        (-0.04, -0.03, "does not hold"),  # much better is not comparable either
    ],
)
def test_alike_is_judged_by_the_whole_interval(low, high, expected):
    row = summary(test_difference=((low + high) / 2, low, high))
    assert verdict(claim(metric="test_difference", within=0.02), row) == expected


def test_one_seed_decides_nothing():
    found = judge(claim(), summary(test_change=(-0.9, math.nan, math.nan), pairs=1), summary())
    assert (found.verdict, found.measured) == (
        "inconclusive",
        "test error at the end: -90.0% in one seed, which has no interval",
    )


def test_what_diverged_or_has_no_partner_decides_nothing():
    found = judge(claim(), summary(), summary())
    assert (found.verdict, found.measured) == (
        "inconclusive",
        "test error at the end: unknown, since a run diverged, or the baseline is 0",
    )
    assert "no seed was run with both" in judge(claim(), summary(pairs=0), summary()).measured


@pytest.mark.parametrize("who", ["challenger", "baseline"])
def test_what_is_not_finished_decides_nothing(who):
    row, late = summary(test_change=(-0.5, -0.6, -0.4)), summary(unfinished=2)
    found = judge(claim(), late, row) if who == "challenger" else judge(claim(), row, late)
    assert (found.verdict, found.measured) == ("inconclusive", "2 runs are not finished")
    assert judge(claim(), summary(unfinished=1), summary()).measured == "1 run is not finished"


@pytest.mark.parametrize("metric", ["to_training", "to_test"])
@pytest.mark.parametrize(
    ("low", "high", "reached", "expected"),
    [
        (-0.6, -0.4, 3, "holds"),
        (-0.6, -0.2, 3, "inconclusive"),
        (-0.6, -0.4, 2, "holds"),  # one run counts with its whole length, and still
        (-0.3, 0.4, 2, "does not hold"),
        (0.1, 0.2, 0, "does not hold"),
    ],
)
def test_how_soon_is_judged_by_the_interval_and_says_how_many_never_reached_it(metric, low, high, reached, expected):
    row = summary(**{metric: ((low + high) / 2, low, high)}, targets={metric: (math.nan, reached, 3)})
    found = judge(claim(metric=metric, below=-1 / 3), row, summary())
    assert found.verdict == expected
    assert found.measured.endswith(
        f"3 seeds); {3 - reached} of 3 seeds never reached it" if reached < 3 else "3 seeds)"
    )


def test_what_was_not_run_is_not_measured():
    assert judge(claim(), None, summary()).verdict == judge(claim(), summary(), None).verdict == "not measured"
    found = judge_panel(find_panel("fig1-bn"), {})
    assert [item.verdict for item in found] == ["not measured"] * sum(item.panel == "fig1-bn" for item in CLAIMS)


def test_a_panel_is_judged_from_records_to_words(tmp_path):
    pace = {"standard": (0.5, 0.3, 0.2), "evolutional": (0.3, 0.2, 0.2)}
    curves = [
        curve(tmp_path, [0.9, *(error + 0.01 * seed for error in errors)], method=method, seed=seed)
        for method, errors in pace.items()
        for seed in range(3)
    ]
    found = {item.claim.id: item for item in outcomes_of(curves, MNIST)[0].verdicts}
    assert found["fig2-mnist-test-speed"].verdict == "holds"
    # Averages 0.475 and 0.4, 0.4825 and 0.4075, 0.49 and 0.415. Their ratio is R = 1.2225 / 1.4475, and the residuals
    # (1 - R) 0.0075 apart, over the mean of 0.4825: so is the spread, and t of 2 degrees is 4.3027.
    half = 100 * 4.3027 * (1 - 1.2225 / 1.4475) * 0.0075 / 0.4825 / 3**0.5
    assert found["fig2-mnist-test-speed"].measured == (
        f"test error averaged over the run: -15.5% (95% interval {-15.544 - half:+.1f} to {-15.544 + half:+.1f}, "
        "3 seeds)"
    )


def test_faster_asks_for_no_target(tmp_path):
    """It falls at once, and ends above the baseline, whose end it never reaches."""
    curves = [curve(tmp_path, [0.9, 0.8, 0.5, 0.1 + 0.01 * seed], seed=seed) for seed in range(3)]
    curves += [curve(tmp_path, [0.2, 0.2, 0.2, 0.2], method="evolutional", seed=seed) for seed in range(3)]
    (outcome,) = outcomes_of(curves, MNIST)
    assert outcome.summaries[1].targets["to_training"][1] == 0
    assert [item.verdict for item in outcome.verdicts] == ["holds", "holds"]


def test_what_we_added_stands_beside_a_claim(tmp_path):
    curves = [curve(tmp_path, [0.5, 0.4], seed=seed) for seed in range(3)]
    for match, error in (("draws", 0.6), ("noise", 0.9)):
        curves += [curve(tmp_path, [error, error], method="evolutional", match=match, seed=seed) for seed in range(3)]
    found = outcomes_of(curves, MNIST)[0].verdicts[0]
    assert found.verdict == "does not hold"
    words = "training error averaged over the run: +100.0% (95% interval +100.0 to +100.0, 3 seeds)"
    assert found.beside == (("evolutional, matched noise", words),)


def test_a_claim_may_name_what_it_compares(tmp_path):
    """Batch normalisation with sigmoid units against rectified ones: the panel's baseline plays no part."""
    networks = {"cifar10-bn": 0.2, "cifar10-bn-sigmoid": 0.4}
    curves = [
        curve(tmp_path, [0.9, error + 0.01 * seed], dataset="cifar10", network=network, method="none", seed=seed)
        for network, error in networks.items()
        for seed in range(3)
    ]
    (outcome,) = outcomes_of(curves, find_panel("fig1-bn"))
    assert outcome.baseline is None
    found = {item.claim.id: item for item in outcome.verdicts}
    assert found["fig1-bn-comparable"].verdict == "not measured"
    assert (found["fig1-bn-sigmoid"].verdict, found["fig1-bn-sigmoid"].beside) == ("holds", ())


def test_a_run_that_never_reaches_the_target_counts_in_full(tmp_path):
    """Two of three seeds are there after a quarter of the run; the third never is, so the claim is open."""
    curves = [
        curve(tmp_path, [0.9, 0.8, 0.7, 0.6], dataset="cifar100", network="cifar100", seed=seed) for seed in range(3)
    ]
    curves += [
        curve(tmp_path, [error] * 4, dataset="cifar100", network="cifar100", method="evolutional", seed=seed)
        for seed, error in enumerate((0.5, 0.5, 0.7))
    ]
    found = {item.claim.id: item for item in outcomes_of(curves, find_panel("fig2-cifar100"))[0].verdicts}
    half = 100 * 4.3027 * 0.75 / 3  # the changes are -75%, -75% and 0%, their deviation is 0.75 / sqrt(3)
    assert (found["fig2-cifar100-speed-up"].verdict, found["fig2-cifar100-speed-up"].measured) == (
        "inconclusive",
        f"iterations to the baseline's training error at its end: -50.0% (95% interval {-50 - half:+.1f} to "
        f"{-50 + half:+.1f}, 3 seeds); 1 of 3 seeds never reached it",
    )


def judged(verdict):
    return judge(claim(), summary(), summary())._replace(verdict=verdict)


@pytest.mark.parametrize(
    ("now", "words"),
    [("does not hold", "no longer holds: "), ("inconclusive", "can no longer be confirmed: ")],
)
def test_what_held_and_holds_no_more_is_found(now, words):
    (lost,) = no_longer_held([judged(now)], {"c": "holds"})
    assert lost.startswith(f"{words}It is better. Now: {now}; test error at the end: ")
    for then in ("does not hold", "inconclusive", "not measured"):
        assert no_longer_held([judged(now)], {"c": then}) == []
    assert no_longer_held([judged(now)], {}) == []
    assert no_longer_held([judged("holds"), judged("not measured")], {"c": "holds"}) == []


def test_verdicts_can_be_kept(tmp_path):
    runs = [read_curve(write_errors(tmp_path, [0.5, 0.4], seed=seed, data=data)) for seed, data in enumerate("xxy")]
    (outcome,) = outcomes_of(runs)
    outcome.verdicts.append(judged("holds"))
    write_verdicts([outcome], tmp_path / "verdicts.json", "evodrop compare", None)
    assert read_verdicts(tmp_path / "verdicts.json") == {"c": "holds"}
    known = json.loads((tmp_path / "verdicts.json").read_bytes())
    assert (known["command"], known["panel"]) == ("evodrop compare", None)
    found = {name: part["data"] for part in known["headers"] for name in part["runs"]}
    assert found == {run.folder.name: run.header["data"] for run in runs}
    assert [part["git"] for part in known["headers"]] == [{"commit": "abc"}] * 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"verdicts": 1}', '{"verdicts": {"c": {}}}', "[" * 100_000),
        '{"verdicts": {"c": {"verdict": "maybe"}}}',
    ],
)
def test_files_that_hold_no_verdicts_are_named(tmp_path, text):
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(ValueError, match=r"v\.json.*(holds no verdicts|'maybe')"):
        read_verdicts(tmp_path / "v.json")


def test_each_data_set_has_an_outcome(tmp_path):
    curves = [curve(tmp_path, [0.5], dataset=name) for name in ("svhn", "mnist")]
    found = outcomes_of(curves, MNIST)
    assert [(item.title, item.panel) for item in found] == [(MNIST.title, MNIST), ("dropout on svhn", None)]
    assert found[1].verdicts == []
    assert found[1].shortened == ()
    assert outcomes_of([]) == []


def test_data_that_were_not_published_are_named_in_the_title(tmp_path):
    folder = write_errors(tmp_path, [0.5], dataset="svhn", network="svhn", data="x, rebuilt from format 1")
    panel = find_panel("fig2-svhn")
    found = outcomes_of([read_curve(folder)], panel)
    assert found[0].title == f"{panel.title}, rebuilt from format 1"
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
    assert len(found.summaries[0].seeds) == 1


def test_what_was_shortened_is_read_from_the_records(tmp_path):
    options = [("standard", "draws", 3), ("evolutional", "draws", 2)]
    curves = [
        curve(tmp_path, [0.5], method=method, match=match, epochs=7, seed=seed)
        for method, match, seeds in options
        for seed in range(seeds)
    ]
    assert outcomes_of(curves, MNIST)[0].shortened == (
        "7 epochs per run, not 20",
        "2 seeds per method, not 3",
        "step sizes tried: 0.005, not 0.001, 0.005, 0.01, 0.1",
        "not run: evolutional, matched noise, none",
    )


def test_a_whole_panel_is_not_shortened(tmp_path):
    curves = [
        curve(tmp_path, [0.5], method=variant.method, match=variant.match, lr=lr, seed=seed)
        for variant in MNIST.variants
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
def test_a_step_at_the_edge_of_the_grid_is_named(tmp_path, best, words):
    curves = [curve(tmp_path, [0.2 if lr == best else 0.5], lr=lr) for lr in (0.001, 0.01, 0.1)]
    curves += [curve(tmp_path, [0.5], method="uniform")]  # one step alone has no edge
    assert outcomes_of(curves)[0].edges == words


def test_trials_of_rates_are_sorted_out_and_the_best_comes_first(tmp_path):
    data = "validation:mnist"
    errors = {("standard", 0.1): 0.3, ("standard", 0.5): 0.2, ("uniform", 0.5): 0.4, ("uniform", 0.2): 0.4}
    trials = [curve(tmp_path, [error], dataset=data, method=key[0], rate=key[1]) for key, error in errors.items()]
    diverged = curve(tmp_path, [0.1, None], "diverged", dataset=data, rate=0.2)
    (found,) = outcomes_of([*trials, diverged, curve(tmp_path, [0.5]), curve(tmp_path, [0.5], method="uniform")])
    assert {method: [item.rate for item in own] for method, own in found.rates.items()} == {
        "standard": [0.5, 0.1, 0.2],  # what diverged is last
        "uniform": [0.2, 0.5],  # of equals, the lower rate
    }
    assert len(found.runs) == 2
    assert (outcomes_of([curve(tmp_path, [0.5])])[0].rates, rates_tried([])) == ({}, {})


def test_many_variants_are_ranked_and_a_panel_keeps_its_order(tmp_path):
    rates = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    curves = [curve(tmp_path, [abs(rate - 0.4) + 0.1], rate=rate) for rate in rates]
    assert not outcomes_of(curves)[0].is_ranked
    curves.append(curve(tmp_path, [0.1, None], "diverged", method="none"))
    (found,) = outcomes_of(curves)
    assert found.is_ranked
    assert found.ranking[0].label == "standard, rate 0.4"
    assert found.ranking[-1].label == "none"
    assert not outcomes_of(curves, MNIST)[0].is_ranked


def test_the_challenger_is_the_panels_or_the_papers_method(tmp_path):
    curves = [curve(tmp_path, [0.5]), curve(tmp_path, [0.5], method="evolutional")]
    assert outcomes_of(curves)[0].challenger == "evolutional"
    assert outcomes_of(curves[:1])[0].challenger is None
    assert outcomes_of(curves[:1], MNIST)[0].challenger == "evolutional"


def test_linear_models_count_examples(tmp_path):
    assert outcomes_of([curve(tmp_path, [0.5])])[0].clock == "iterations"
    assert outcomes_of([curve(tmp_path, [0.5], network="linear")])[0].clock == "examples seen"


def test_variants_are_named_by_what_they_differ_in(tmp_path):
    curves = [
        curve(tmp_path, [0.5], method="water-filling"),
        curve(tmp_path, [0.5], method="evolutional", match="noise"),
        curve(tmp_path, [0.5], method="evolutional"),
        curve(tmp_path, [0.5], method="data-dependent", match="distinct"),
        curve(tmp_path, [0.5]),
    ]
    names = ["standard", "evolutional", "evolutional, matched noise", "water-filling", "data-dependent, matched units"]
    assert [variant.label for variant in variants_of(curves)] == names
    curves += [curve(tmp_path, [0.5], rate=0.2), curve(tmp_path, [0.5], network="other", method="none")]
    labels = [variant.label for variant in variants_of(curves)]
    assert labels[:3] == ["none in other", "standard, rate 0.2 in mnist", "standard, rate 0.5 in mnist"]
    assert len(set(labels)) == 7


def test_a_method_without_a_rate_is_not_another_rate(tmp_path):
    curves = [curve(tmp_path, [0.5], method="none"), curve(tmp_path, [0.5], rate=0.2)]
    assert [variant.label for variant in variants_of(curves)] == ["none", "standard"]
    curves.append(curve(tmp_path, [0.5], method="uniform", rate=0.35))
    assert [item.label for item in variants_of(curves)] == ["none", "standard, rate 0.2", "uniform, rate 0.35"]


def test_known_variants_keep_their_names_and_come_first(tmp_path):
    known = [Variant("BN", "mnist", "none"), Variant("e", "mnist", "evolutional")]
    curves = [curve(tmp_path, [0.5]), curve(tmp_path, [0.5], method="evolutional"), curve(tmp_path, [0.5], seed=1)]
    found = {variant.label: own for variant, own in variants_of(curves, known).items()}
    assert list(found) == ["e", "standard"]
    assert (found["e"], found["standard"]) == ([curves[1]], [curves[0], curves[2]])
