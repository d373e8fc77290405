from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.synthetic import SPACING, curve, read_curve, record, write_run
from scipy import stats

from evodrop.lab.summary import (
    NO_MEAN,
    average_error,
    band_of,
    choose_step,
    final_curves,
    final_error,
    interval,
    relative_change,
    smooth,
    summarise,
    tuning_curves,
)


def levels(*errors):
    """Each error in ten records: five levels make 50 records, a window of 5, and a smoothed level from its 5th on."""
    return [error for error in errors for _ in range(10)]


FALLING = levels(0.9, 0.7, 0.5, 0.3, 0.1)  # smoothed 0.1 from record 45 on
FASTER = levels(0.7, 0.5, 0.3, 0.1, 0.05)  # smoothed 0.1 from record 35 on
SLOWER = levels(1.0, 0.9, 0.8, 0.7, 0.6)


def rows(variants, baseline="standard"):
    return {row.label: row for row in summarise(variants, baseline)}


def test_the_interval_is_students():
    values = [0.021, 0.025, 0.019, 0.024]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    found = interval(values)
    assert found == pytest.approx((0.02225, *expected), rel=1e-12)


def test_two_values_by_hand():
    """t(0.975, 1) is 12.706, and the standard error of 1 and 3 is 1."""
    assert interval([1.0, 3.0]) == pytest.approx((2.0, 2 - 12.7062047, 2 + 12.7062047))


def test_equal_values_have_an_interval_of_a_point():
    assert interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_missing_value_is_not_left_out(missing):
    assert interval([0.5, missing, 0.7]) == NO_MEAN


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither():
    assert interval([0.5]) == pytest.approx((0.5, math.nan, math.nan), nan_ok=True)
    assert interval([]) == NO_MEAN


def test_the_interval_covers_as_often_as_it_says():
    """Of 4000 intervals of 3 normal values, the share that holds the mean is 0.95 within 4 standard errors."""
    draws = np.random.default_rng(0).normal(size=(4000, 3))
    found = [interval(row) for row in draws.tolist()]
    share = np.mean([low <= 0 <= high for _, low, high in found])
    assert abs(share - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_a_change_is_that_of_the_means():
    mean, low, high = relative_change([2.0, 1.0], [4.0, 1.0])
    assert mean == pytest.approx(3 / 5 - 1)
    assert low < mean < high
    assert relative_change([0.0, 1.0], [2.0, 0.0])[0] == pytest.approx(-0.5)  # a 0 on either side does no harm
    for own, theirs in (([2.0, math.nan], [1.0, 1.0]), ([2.0, 1.0], [1.0, math.nan]), ([0.1], [0.0]), ([], [])):
        assert relative_change(own, theirs) == NO_MEAN
    assert relative_change([2.0], [4.0]) == pytest.approx((-0.5, math.nan, math.nan), nan_ok=True)


def test_a_change_is_not_biased_and_its_interval_covers_nearly_as_often_as_it_says():
    """Of pairs that vary by a tenth, alike within a pair: a mean of ratios would be too large by a hundredth."""
    rng = np.random.default_rng(1)
    theirs = 1.0 + 0.1 * rng.normal(size=(4000, 5))
    own = 0.8 * (1.0 + 0.1 * rng.normal(size=(4000, 5)))
    found = [relative_change(*pair) for pair in zip(own.tolist(), theirs.tolist(), strict=True)]
    means = np.array([mean for mean, _, _ in found])
    ratios = (own / theirs - 1.0).mean(axis=1)
    assert abs(means.mean() + 0.2) < 0.5 * abs(ratios.mean() + 0.2)
    share = np.mean([low <= -0.2 <= high for _, low, high in found])
    assert abs(share - 0.95) < 0.01


def test_smoothing_is_the_mean_of_the_last_five_records():
    found = smooth(np.arange(70.0))
    np.testing.assert_allclose(found[:7], [0, 0.5, 1, 1.5, 2, 3, 4])
    np.testing.assert_allclose(found[-1], (65 + 66 + 67 + 68 + 69) / 5)


@pytest.mark.parametrize(
    ("records", "window"), [(1, 1), (4, 1), (19, 1), (20, 2), (39, 3), (40, 4), (50, 5), (100, 5), (1000, 5)]
)
def test_the_window_is_a_tenth_of_the_records_and_five_at_most(records, window):
    values = np.random.default_rng(0).random(records)
    np.testing.assert_allclose(smooth(values)[-1], values[-window:].mean())
    np.testing.assert_allclose(smooth(values)[:window], np.cumsum(values[:window]) / np.arange(1, window + 1))


def test_what_a_record_lacks_spoils_only_its_own_window():
    values = np.array([np.nan, *[0.5] * 49])
    np.testing.assert_array_equal(np.isnan(smooth(values)), [True] * 5 + [False] * 45)


def test_a_table_by_hand(tmp_path):
    """The baseline ends with a smoothed 0.1, first reached after 4,500 iterations; the faster one after 3,500."""
    variants = {
        "standard": [curve(tmp_path, FALLING, seed=seed) for seed in (0, 1)],
        "faster": [curve(tmp_path, FASTER, seed=seed, method="uniform", cpu_seconds=0.02) for seed in (0, 1)],
        "slower": [curve(tmp_path, SLOWER, seed=seed, method="evolutional", cpu_seconds=None) for seed in (0, 1)],
    }
    found = rows(variants)
    assert list(found) == ["standard", "faster", "slower"]
    assert found["standard"].targets["to_training"] == (4500, 2, 2)
    for metric in ("training_pace", "test_change", "to_test"):
        assert getattr(found["standard"], metric)[0] == 0
    faster = found["faster"]
    assert faster.test_error == pytest.approx((0.05, 0.05, 0.05))
    assert faster.test_change[0] == pytest.approx((0.05 - 0.1) / 0.1)
    assert faster.test_difference[0] == pytest.approx(-0.05)
    assert faster.targets["to_training"] == (3500, 2, 2)
    assert faster.to_training[0] == pytest.approx(35 / 45 - 1)
    assert faster.training_pace[0] == faster.test_pace[0] == pytest.approx(0.33 / 0.5 - 1)  # means of all records
    assert (faster.lr, faster.seeds, faster.seconds) == (0.005, (0, 1), 0.02)
    assert found["slower"].seconds is None  # of the processor; the clock says 0.01
    assert found["slower"].targets["to_test"] == (5000, 0, 2)  # never reached, hence the whole run
    assert found["slower"].to_test[0] == pytest.approx(50 / 45 - 1)


def test_the_target_is_the_end_of_the_baseline_not_its_best(tmp_path):
    up_again = [*FALLING, *levels(0.45)]
    row = rows({"standard": [curve(tmp_path, up_again)]})["standard"]
    assert row.test_error[0] == pytest.approx(0.45)
    assert row.targets["to_test"][0] == 32 * SPACING  # where 0.5, 0.5, 0.5, 0.3 and 0.3 have a mean of 0.42


def test_the_target_is_that_of_the_same_seed(tmp_path):
    """Each seed reaches its partner's end at its own second record, and the ends are far apart."""
    ends = (0.5, 0.1)
    standard = [curve(tmp_path, [0.9, 0.8, 0.7, end], seed=seed) for seed, end in enumerate(ends)]
    other = [curve(tmp_path, [0.9, end, end, end], seed=seed, method="uniform") for seed, end in enumerate(ends)]
    row = rows({"standard": standard, "b": other})["b"]
    assert row.to_test == row.to_training == (-0.5, -0.5, -0.5)
    assert row.targets == {"to_training": (200, 2, 2), "to_test": (200, 2, 2)}


def test_a_run_that_diverged_may_have_reached_the_target_before(tmp_path):
    standard = [curve(tmp_path, [0.9, 0.8, 0.7, 0.6], seed=seed) for seed in (0, 1)]
    reached = curve(tmp_path, [0.9, 0.5, None], "diverged", seed=0, method="uniform")
    row = rows({"standard": standard, "b": [reached]})["b"]
    assert row.targets["to_test"] == (2 * SPACING, 1, 1)
    never = curve(tmp_path, [0.9, 0.8, None], "diverged", seed=1, method="uniform")
    row = rows({"standard": standard, "b": [reached, never]})["b"]
    assert (row.to_test, row.pairs) == (NO_MEAN, 2)
    assert row.targets["to_test"] == pytest.approx((math.nan, 1, 2), nan_ok=True)  # its length says nothing


def test_a_baseline_that_diverged_gives_no_target(tmp_path):
    standard = [curve(tmp_path, [0.9, None], "diverged"), curve(tmp_path, [0.5, 0.4], seed=1)]
    other = [curve(tmp_path, [0.4, 0.3], seed=seed, method="uniform") for seed in (0, 1)]
    row = rows({"standard": standard, "b": other})["b"]
    assert row.to_training == NO_MEAN
    assert row.targets["to_training"] == pytest.approx((math.nan, 1, 1), nan_ok=True)


def test_the_pace_is_that_of_the_iterations_both_have(tmp_path):
    standard, other = [0.8, 0.4, 0.0, 0.0], [0.6, 0.3]
    row = rows({"standard": [curve(tmp_path, standard)], "b": [curve(tmp_path, other, method="uniform")]})["b"]
    assert row.test_pace[0] == pytest.approx(0.45 / 0.6 - 1)


def test_a_run_that_diverged_has_no_pace(tmp_path):
    for errors in ([0.1, 0.1], [0.1, None]):
        diverged = curve(tmp_path, errors, "diverged", method="uniform")
        row = rows({"standard": [curve(tmp_path, [0.5, 0.4])], "b": [diverged]})["b"]
        assert (row.training_pace, row.pairs) == (NO_MEAN, 1)


def test_one_seed_has_means_but_no_intervals(tmp_path):
    row = rows({"standard": [curve(tmp_path, FALLING)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change[0] == pytest.approx(-0.5)
    assert np.isnan([row.test_change[1], row.test_error[1], row.to_test[2]]).all()


def test_a_tie_is_reached_at_the_same_iteration(tmp_path):
    row = rows({"standard": [curve(tmp_path, FALLING)], "b": [curve(tmp_path, FALLING, method="uniform")]})["b"]
    assert (row.test_change[0], row.to_training[0], row.targets["to_training"][1]) == (0.0, 0.0, 1)


def test_seeds_are_paired_and_those_without_a_partner_have_no_change(tmp_path):
    """The third seed of the one has no partner: the means of the pairs are equal, so there is no change."""
    standard = [curve(tmp_path, [0.4] * 5, seed=0), curve(tmp_path, [0.2] * 5, seed=1)]
    other = [curve(tmp_path, [error] * 5, seed=seed, method="uniform") for seed, error in enumerate((0.2, 0.4, 0.9))]
    row = rows({"standard": standard, "b": other})["b"]
    assert (row.pairs, len(row.seeds)) == (2, 3)
    half = 12.706 * 0.2 / 0.3  # t of one degree of freedom, times sd / sqrt 2
    assert row.test_change == pytest.approx((0.0, -half, half), rel=1e-4)


def test_a_seed_that_diverged_is_counted_and_not_averaged_away(tmp_path):
    sound = curve(tmp_path, FALLING, seed=0)
    diverged = curve(tmp_path, [0.9, 0.7, None], "diverged", seed=1)
    row = rows({"standard": [sound, diverged]})["standard"]
    assert (row.diverged, row.unfinished) == (1, 0)
    assert (row.test_error, len(row.seeds)) == (NO_MEAN, 2)
    assert row.targets["to_training"][1:] == (1, 1)
    assert math.isnan(final_error(diverged))


def test_unfinished_runs_are_counted(tmp_path):
    assert rows({"standard": [curve(tmp_path, FALLING, "running")]})["standard"].unfinished == 1


def test_without_a_baseline_there_is_nothing_to_compare_with(tmp_path):
    for baseline in (None, "standard"):
        row = rows({"b": [curve(tmp_path, FALLING, method="uniform")]}, baseline)["b"]
        assert (row.test_change, row.pairs) == (NO_MEAN, 0)
        assert row.targets["to_test"] == pytest.approx((math.nan, 0, 0), nan_ok=True)
        assert row.test_error[0] == pytest.approx(0.1)


def test_an_error_of_zero_has_no_relative_change(tmp_path):
    row = rows({"standard": [curve(tmp_path, [0.0] * 50)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change == NO_MEAN
    assert row.test_difference[0] == pytest.approx(0.05)


def test_the_band_goes_from_the_least_to_the_largest_seed(tmp_path):
    iterations, mean, low, high = band_of(
        [curve(tmp_path, [0.2, 0.2], seed=0), curve(tmp_path, [0.4, 0.6, 0.6], seed=1)], "test"
    )
    np.testing.assert_allclose(iterations, [100, 200])  # those that both have
    np.testing.assert_allclose(mean, [0.3, 0.4])
    np.testing.assert_allclose([low, high], [[0.2, 0.2], [0.4, 0.6]])


def test_the_band_leaves_out_what_diverged_unless_all_did(tmp_path):
    diverged = curve(tmp_path, [0.9, None], "diverged", seed=1)
    np.testing.assert_allclose(band_of([curve(tmp_path, [0.2, 0.2]), diverged], "test")[3], [0.2, 0.2])
    np.testing.assert_allclose(band_of([diverged], "test")[0], [100])


def test_there_is_no_band_of_what_was_not_measured(tmp_path):
    assert band_of([read_curve(write_run(tmp_path, [record(1, test_error=0.5)]))], "noisy") is None


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
    assert [(item.lr, item.seed) for item in final_curves(curves)] == [(0.01, 0), (0.01, 1)]


def test_short_runs_may_choose_the_step_for_long_ones(tmp_path):
    """The long run at 0.001 is better, but it is alone: the choice was made among the short ones."""
    curves = [
        curve(tmp_path, [error, 0.2], method="evolutional", lr=lr, epochs=2) for lr, error in ((0.1, 0.3), (0.2, 0.9))
    ]
    curves += [curve(tmp_path, [0.4, 0.2], method="evolutional", lr=0.1, epochs=9, seed=seed) for seed in (0, 1)]
    assert [(item.epochs, item.seed) for item in final_curves(curves)] == [(9, 0), (9, 1)]
    assert sorted((item.epochs, item.lr) for item in tuning_curves(curves)) == [(2, 0.1), (2, 0.2)]


def test_two_runs_of_a_seed_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    curves = [
        curve(tmp_path / name, [0.5], method="evolutional", batch_size=size) for name, size in (("a", 64), ("b", 128))
    ]
    with pytest.raises(ValueError, match=r"a.*b.*same method, step size and seed.*report them apart"):
        final_curves(curves)
