from __future__ import annotations

import math

import pytest
from helpers.synthetic import curve

from evodrop.lab.groups import Variant, average_error, choose_step, final_curves, key_of, tuning_curves, variants_of

EVOLUTIONAL = Variant("e", "mnist", "evolutional")


def test_the_step_of_fastest_descent_is_chosen_not_that_of_the_best_end(tmp_path):
    fast = curve(tmp_path, [0.5, 0.2, 0.2], lr=0.01)
    slow = curve(tmp_path, [0.9, 0.8, 0.1], lr=0.001)
    assert choose_step([slow, fast]) == 0.01


def test_of_equals_the_larger_step_is_chosen(tmp_path):
    assert choose_step([curve(tmp_path, [0.5, 0.2], lr=lr) for lr in (0.001, 0.01, 0.005)]) == 0.01


def test_a_diverged_run_is_the_last_choice(tmp_path):
    diverged = curve(tmp_path, [0.1, 0.1, None], "diverged", lr=0.1)
    sound = curve(tmp_path, [0.9, 0.9, 0.9], lr=0.001)
    assert choose_step([diverged, sound]) == 0.001
    assert choose_step([diverged, curve(tmp_path, [None], "diverged", lr=0.2)]) == 0.1


def test_runs_of_unequal_length_are_compared_where_all_have_been(tmp_path):
    """The long run would have the lower mean, by what it did later."""
    short = curve(tmp_path, [0.5, 0.4], "running", lr=0.01)
    long = curve(tmp_path, [0.6, 0.5, 0.1, 0.1], "running", lr=0.001)
    assert choose_step([short, long]) == 0.01


def test_an_average_is_infinite_where_an_error_is_missing(tmp_path):
    found = curve(tmp_path, [0.5, 0.3, None], "running")
    assert average_error(found, 200) == pytest.approx(0.4)
    assert average_error(found) == average_error(found, 99) == math.inf
    assert average_error(curve(tmp_path, [0.5, 0.3], "diverged")) == math.inf


def test_the_results_are_those_of_the_chosen_step_one_per_seed(tmp_path):
    curves = [curve(tmp_path, [0.9, 0.8], method="evolutional", lr=0.001)]
    curves += [curve(tmp_path, [0.5, 0.2], method="evolutional", lr=0.01, seed=seed) for seed in (1, 0)]
    curves += [curve(tmp_path, [0.1, 0.1], method="standard", lr=0.001)]
    assert [(item.lr, item.seed) for item in final_curves(curves, EVOLUTIONAL)] == [(0.01, 0), (0.01, 1)]
    assert final_curves(curves, Variant("u", "mnist", "uniform")) == []


def test_short_runs_may_choose_the_step_for_long_ones(tmp_path):
    """The long run at 0.001 is better, but it is alone: the choice was made among the short ones."""
    curves = [
        curve(tmp_path, [error, 0.2], method="evolutional", lr=lr, epochs=2) for lr, error in ((0.1, 0.3), (0.2, 0.9))
    ]
    curves += [curve(tmp_path, [0.4, 0.2], method="evolutional", lr=0.1, epochs=9, seed=seed) for seed in (0, 1)]
    assert [(item.epochs, item.seed) for item in final_curves(curves, EVOLUTIONAL)] == [(9, 0), (9, 1)]
    assert sorted((item.epochs, item.lr) for item in tuning_curves(curves)) == [(2, 0.1), (2, 0.2)]


def test_two_runs_of_a_seed_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    curves = [
        curve(tmp_path / name, [0.5], method="evolutional", batch_size=size) for name, size in (("a", 64), ("b", 128))
    ]
    with pytest.raises(ValueError, match=r"a.*b.*same method, step size and seed.*report them apart"):
        final_curves(curves, EVOLUTIONAL)


def test_options_that_change_nothing_for_a_method_do_not_set_runs_apart(tmp_path):
    assert key_of(curve(tmp_path, [0.5], match="noise")) == key_of(curve(tmp_path, [0.5]))
    assert key_of(curve(tmp_path, [0.5], method="none", rate=0.2)) == key_of(curve(tmp_path, [0.5], method="none"))
    assert key_of(curve(tmp_path, [0.5], rate=0.2)) != key_of(curve(tmp_path, [0.5]))
    matched = curve(tmp_path, [0.5], method="evolutional", match="noise")
    assert key_of(matched) != key_of(curve(tmp_path, [0.5], method="evolutional"))


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


def test_variants_are_described():
    assert EVOLUTIONAL.words == "the paper's: k draws among the units, strong ones more likely"
    matched = Variant("m", "linear", "data-dependent", "noise", added=True)
    assert matched.words.endswith("gives the noise level of standard dropout; not in the paper")
    assert Variant("s", "mnist", "standard", "noise").words.endswith("with the same chance")  # no match there
    assert Variant("x", "mnist", "unheard of").words == "unheard of"


def test_known_variants_keep_their_names_and_come_first(tmp_path):
    known = [Variant("BN", "mnist", "none"), EVOLUTIONAL]
    curves = [curve(tmp_path, [0.5]), curve(tmp_path, [0.5], method="evolutional")]
    assert [variant.label for variant in variants_of(curves, known)] == ["e", "standard"]
