from __future__ import annotations

import numpy as np
import pytest
from synthetic import SPACING, curve, read_curve, record, write_run

from evodrop.lab.summary import band_of, final_error, first_reached, smooth, summarise


def levels(*errors):
    """Each error in ten records: five levels make 50 records, a window of 5, and a smoothed level from its 5th on."""
    return [error for error in errors for _ in range(10)]


FALLING = levels(0.9, 0.7, 0.5, 0.3, 0.1)  # smoothed 0.1 from record 45 on
FASTER = levels(0.7, 0.5, 0.3, 0.1, 0.05)  # smoothed 0.1 from record 35 on
SLOWER = levels(1.0, 0.9, 0.8, 0.7, 0.6)


def rows(contenders, baseline="standard"):
    return {row.label: row for row in summarise(contenders, baseline)}


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
    np.testing.assert_allclose(smooth(values), smooth(values, window))


def test_what_a_record_could_not_tell_spoils_only_its_own_window():
    values = np.array([np.nan, *[0.5] * 6])
    np.testing.assert_array_equal(np.isnan(smooth(values, 5)), [True] * 5 + [False] * 2)


def test_a_table_by_hand(tmp_path):
    """The baseline's best smoothed error is 0.1, after 4,500 iterations; the faster contender has it after 3,500."""
    contenders = {
        "standard": [curve(tmp_path, FALLING, seed=seed) for seed in (0, 1)],
        "faster": [curve(tmp_path, FASTER, seed=seed, method="uniform") for seed in (0, 1)],
        "slower": [curve(tmp_path, SLOWER, seed=seed, method="evolutional") for seed in (0, 1)],
    }
    found = rows(contenders)
    assert list(found) == ["standard", "faster", "slower"]
    assert found["standard"].to_training.iterations.mean == 4500
    assert (
        found["standard"].training_pace.mean
        == found["standard"].test_change.mean
        == found["standard"].to_test.change.mean
        == 0
    )
    faster = found["faster"]
    assert faster.test_error == pytest.approx((0.05, 0.05, 0.05, 2))
    assert faster.test_change.mean == pytest.approx((0.05 - 0.1) / 0.1)
    assert faster.test_difference.mean == pytest.approx(-0.05)
    assert faster.to_training.iterations.mean == 3500
    assert faster.to_training.change.mean == pytest.approx(35 / 45 - 1)
    assert (faster.to_training.asked, faster.to_training.reached) == (2, 2)
    assert faster.training_pace.mean == faster.test_pace.mean == pytest.approx(0.33 / 0.5 - 1)  # means of all records
    assert faster.to_late_training.change.mean == pytest.approx(35 / 45 - 1)  # the last fifth is the level of 0.1
    assert (faster.lr, faster.seeds, faster.seconds) == (0.005, (0, 1), 0.01)
    assert found["slower"].to_test[:3] == ((None, None, None, 2), 2, 0)  # never reached
    assert found["slower"].to_test.change.mean is None


def test_the_best_on_the_way_may_be_better_than_the_end(tmp_path):
    up_again = [*FALLING, *levels(0.9)]
    row = rows({"standard": [curve(tmp_path, up_again)]})["standard"]
    assert row.test_error.mean == pytest.approx(0.9)
    assert row.best_test_error.mean == pytest.approx(0.1)
    assert row.to_test.iterations.mean == 45 * SPACING


def test_the_late_target_is_softer_than_the_best(tmp_path):
    """The baseline's last fifth are 2 of 10 records, with a mean of 0.3; the other has it, and never the best."""
    standard, other = [0.9] * 8 + [0.4, 0.2], [0.9] * 4 + [0.3] * 6
    row = rows({"standard": [curve(tmp_path, standard)], "b": [curve(tmp_path, other, method="uniform")]})["b"]
    assert (row.to_training.asked, row.to_training.reached) == (1, 0)
    assert (row.to_late_training.reached, row.to_late_training.iterations.mean) == (1, 5 * SPACING)
    assert row.to_late_training.change.mean == pytest.approx(-0.5)


def test_the_pace_is_that_of_the_way_both_went(tmp_path):
    standard, other = [0.8, 0.4, 0.0, 0.0], [0.6, 0.3]
    row = rows({"standard": [curve(tmp_path, standard)], "b": [curve(tmp_path, other, method="uniform")]})["b"]
    assert row.test_pace.mean == pytest.approx(0.45 / 0.6 - 1)


def test_a_run_that_diverged_has_no_pace(tmp_path):
    for errors in ([0.1, 0.1], [0.1, None]):
        diverged = curve(tmp_path, errors, "diverged", method="uniform")
        row = rows({"standard": [curve(tmp_path, [0.5, 0.4])], "b": [diverged]})["b"]
        assert (row.training_pace.mean, row.training_pace.n) == (None, 1)


def test_one_seed_has_means_but_no_intervals(tmp_path):
    row = rows({"standard": [curve(tmp_path, FALLING)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change.mean == pytest.approx(-0.5)
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
        assert row.test_error.mean == pytest.approx(0.1)


def test_an_error_of_zero_has_no_relative_change(tmp_path):
    row = rows({"standard": [curve(tmp_path, [0.0] * 50)], "b": [curve(tmp_path, FASTER, method="uniform")]})["b"]
    assert row.test_change.mean is None
    assert row.test_difference.mean == pytest.approx(0.05)


def test_the_band_goes_from_the_least_to_the_largest_seed(tmp_path):
    band = band_of([curve(tmp_path, [0.2, 0.2], seed=0), curve(tmp_path, [0.4, 0.6, 0.6], seed=1)], "test")
    np.testing.assert_allclose(band.iterations, [100, 200])  # those that both have
    np.testing.assert_allclose(band.mean, [0.3, 0.4])
    np.testing.assert_allclose([band.low, band.high], [[0.2, 0.2], [0.4, 0.6]])


def test_the_band_leaves_out_what_diverged_unless_all_did(tmp_path):
    diverged = curve(tmp_path, [0.9, None], "diverged", seed=1)
    np.testing.assert_allclose(band_of([curve(tmp_path, [0.2, 0.2]), diverged], "test").high, [0.2, 0.2])
    np.testing.assert_allclose(band_of([diverged], "test").iterations, [100])


def test_there_is_no_band_of_what_was_not_measured(tmp_path):
    assert band_of([read_curve(write_run(tmp_path, [record(1, test_error=0.5)]))], "noisy") is None
