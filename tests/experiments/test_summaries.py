from __future__ import annotations

import numpy as np
import pytest
from synthetic import SPACING, curve, read_curve, record, write_run

from evodrop.experiments.summaries import band_of, final_error, first_reached, smooth, summarise

FALLING = [0.9, 0.7, 0.5, 0.3, 0.1]  # smoothed: 0.9, 0.8, 0.7, 0.6, 0.5
FASTER = [0.7, 0.5, 0.3, 0.1, 0.1]  # smoothed: 0.7, 0.6, 0.5, 0.4, 0.34
SLOWER = [1.0, 0.9, 0.8, 0.7, 0.6]  # smoothed: 1.0, 0.95, 0.9, 0.85, 0.8


def rows(contenders, baseline="standard"):
    return {row.label: row for row in summarise(contenders, baseline)}


def test_smoothing_is_the_mean_of_the_last_five_records():
    np.testing.assert_allclose(smooth(np.arange(7.0)), [0, 0.5, 1, 1.5, 2, 3, 4])


def test_what_a_record_could_not_tell_spoils_only_its_own_window():
    values = np.array([np.nan, *[0.5] * 6])
    np.testing.assert_array_equal(np.isnan(smooth(values)), [True] * 5 + [False] * 2)


def test_a_table_by_hand(tmp_path):
    """The baseline's best smoothed error is 0.5, after 500 iterations; the faster contender has it after 300."""
    contenders = {
        "standard": [curve(tmp_path, FALLING, seed=seed) for seed in (0, 1)],
        "faster": [curve(tmp_path, FASTER, seed=seed, method="uniform") for seed in (0, 1)],
        "slower": [curve(tmp_path, SLOWER, seed=seed, method="evolutional") for seed in (0, 1)],
    }
    found = rows(contenders)
    assert list(found) == ["standard", "faster", "slower"]
    assert found["standard"].to_training.iterations.mean == 500
    assert found["standard"].test_change.mean == found["standard"].to_test.change.mean == 0
    faster = found["faster"]
    assert faster.test_error == pytest.approx((0.34, 0.34, 0.34, 2))
    assert faster.test_change.mean == pytest.approx((0.34 - 0.5) / 0.5)
    assert faster.test_difference.mean == pytest.approx(-0.16)
    assert faster.to_training.iterations.mean == 300
    assert faster.to_training.change.mean == pytest.approx(-0.4)
    assert (faster.to_training.asked, faster.to_training.reached) == (2, 2)
    assert (faster.lr, faster.seeds, faster.seconds) == (0.005, (0, 1), 0.01)
    assert found["slower"].to_test[:3] == ((None, None, None, 2), 2, 0)  # never reached
    assert found["slower"].to_test.change.mean is None


def test_the_best_on_the_way_may_be_better_than_the_end(tmp_path):
    up_again = [*FALLING, *[0.9] * 5]
    row = rows({"standard": [curve(tmp_path, up_again)]})["standard"]
    assert row.test_error.mean == pytest.approx(0.9)
    assert row.best_test_error.mean == pytest.approx(0.5)
    assert row.to_test.iterations.mean == 5 * SPACING


def test_one_seed_has_means_but_no_intervals(tmp_path):
    row = rows({"standard": [curve(tmp_path, FALLING)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change.mean == pytest.approx(-0.32)
    assert (row.test_change.low, row.test_error.low, row.to_test.change.high) == (None, None, None)


def test_a_tie_is_reached_at_the_same_iteration(tmp_path):
    row = rows({"standard": [curve(tmp_path, FALLING)], "b": [curve(tmp_path, FALLING, method="uniform")]})["b"]
    assert (row.test_change.mean, row.to_training.change.mean, row.to_training.reached) == (0.0, 0.0, 1)


def test_seeds_are_paired_and_those_without_a_partner_have_no_change(tmp_path):
    """The third seed of the one has no partner: the means of the pairs are equal, so there is no change."""
    standard = [curve(tmp_path, [0.4] * 5, seed=0), curve(tmp_path, [0.2] * 5, seed=1)]
    other = [curve(tmp_path, [error] * 5, seed=seed, method="uniform") for seed, error in enumerate((0.2, 0.4, 0.9))]
    row = rows({"standard": standard, "b": other})["b"]
    assert row.test_change.n == 2
    assert row.test_change.mean == pytest.approx(0.0)
    assert row.test_change.half_width == pytest.approx(
        12.706 * 0.2 / 0.3, rel=1e-4
    )  # t of 1 degree x sd / sqrt(2) / mean
    assert row.test_error.n == 3


def test_a_seed_that_diverged_is_told_and_not_averaged_away(tmp_path):
    sound = curve(tmp_path, FALLING, seed=0)
    diverged = curve(tmp_path, [0.9, 0.7, None], "diverged", seed=1)
    row = rows({"standard": [sound, diverged]})["standard"]
    assert (row.diverged, row.unfinished) == (1, 0)
    assert (row.test_error.mean, row.test_error.n) == (None, 2)
    assert (row.to_training.asked, row.to_training.reached) == (1, 1)
    assert final_error(diverged) is None
    assert first_reached(diverged, 0.85, "test") == 2 * SPACING  # before it diverged


def test_unfinished_runs_are_counted(tmp_path):
    assert rows({"standard": [curve(tmp_path, FALLING, "running")]})["standard"].unfinished == 1


def test_without_a_baseline_there_is_nothing_to_compare_with(tmp_path):
    for baseline in (None, "standard"):
        row = rows({"b": [curve(tmp_path, FALLING, method="uniform")]}, baseline)["b"]
        assert (row.test_change.n, row.to_test.asked) == (0, 0)
        assert row.test_error.mean == pytest.approx(0.5)


def test_an_error_of_zero_has_no_relative_change(tmp_path):
    row = rows({"standard": [curve(tmp_path, [0.0] * 5)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change.mean is None
    assert row.test_difference.mean == pytest.approx(0.34)


def test_the_band_goes_from_the_least_to_the_largest_seed(tmp_path):
    band = band_of([curve(tmp_path, [0.2, 0.2], seed=0), curve(tmp_path, [0.4, 0.6, 0.6], seed=1)], "test")
    np.testing.assert_allclose(band.iterations, [100, 200])  # those that both have
    np.testing.assert_allclose(band.mean, [0.3, 0.35])
    np.testing.assert_allclose([band.low, band.high], [[0.2, 0.2], [0.4, 0.5]])


def test_the_band_leaves_out_what_diverged_unless_all_did(tmp_path):
    diverged = curve(tmp_path, [0.9, None], "diverged", seed=1)
    np.testing.assert_allclose(band_of([curve(tmp_path, [0.2, 0.2]), diverged], "test").high, [0.2, 0.2])
    np.testing.assert_allclose(band_of([diverged], "test").iterations, [100])


def test_there_is_no_band_of_what_was_not_measured(tmp_path):
    assert band_of([read_curve(write_run(tmp_path, [record(1, test_error=0.5)]))], "noisy") is None
