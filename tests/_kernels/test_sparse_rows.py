"""The law of a row's counts: of each part by itself, and of the whole against the marginal of the multinomial."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numba
import numpy as np
import pytest
from helpers.chi_square import DRAWS, LEVEL, multinomial_p_value, none_rejected
from scipy.stats import binom, chisquare, multinomial, poisson

from evodrop._kernels import sparse_rows
from evodrop._kernels.poisson import LARGEST_RATE, UNITS, build_tables, count_of_remainder, large_count, log_pmf
from evodrop._kernels.rows import hashed
from evodrop._kernels.sparse_rows import draw_row, row_noise
from evodrop.noise import Noise

U = np.uint64
RATES = [0.0, 1e-300, 1e-9, 1e-3, 0.1, 0.2411, 0.25, 1.0, 1.7125, 3.0, 6.2149, 17.3, 42.5, 96.9]


@numba.njit
def draw_rows(indices, noise, size, seed):
    counts = np.empty((size, len(indices)), np.int32)
    values = np.empty((size, len(indices)))
    words = np.empty(len(indices), np.uint64)
    units, slots, scaled, rate = words.view(np.uint16), noise.slots, noise.scaled, noise.row_rates[0]
    rates, tables, k, stop = noise.rates, noise.tables, noise.k, len(indices)
    for r in range(size):
        key = hashed(U(seed) + U(r) * U(0xD1342543DE82EF95))
        row, noisy = counts[r], values[r]
        places, large = np.empty(stop, np.int32), noise.large
        draw_row(indices, 0, stop, rates, tables, slots, scaled, k, rate, key, large, words, units, row, places, noisy)
    return counts, values


def counts_on(support, probs, k, size, seed):
    indices = np.asarray(support)
    noise = row_noise(Noise(probs, k), np.array([0, len(indices)]), indices, np.ones(len(indices)))
    return draw_rows(indices, noise, size, seed)


def random_supports(number):
    """8 features, 3 of them in the row; from few draws to many, from a rare row to one that gets nearly all draws."""
    rng = np.random.default_rng(1602)
    for seed in range(number):
        probs = rng.dirichlet(np.full(8, rng.choice([0.2, 1.0, 5.0])))
        support = np.sort(rng.choice(8, 3, replace=False))
        yield probs, support, int(rng.choice([1, 2, 3, 5, 8, 12])), seed


def test_the_counts_on_a_support_have_the_law_of_the_multinomial():
    p_values = []
    for probs, support, k, seed in random_supports(40):
        counts, noise = counts_on(support, probs, k, DRAWS, seed)
        np.testing.assert_allclose(noise * k * probs[support], counts, rtol=1e-12)  # noise k p is the count, every time
        rest = k - counts.sum(axis=1)
        assert (rest >= 0).all()
        cells = np.append(probs[support], max(1.0 - probs[support].sum(), 0.0))
        p_values.append(multinomial_p_value(np.column_stack([counts, rest]), cells, k))
    assert none_rejected(p_values)


def test_the_test_of_the_law_can_fail():
    probs, support, k, seed = next(random_supports(1))
    counts, _ = counts_on(support, probs, k, DRAWS, seed)
    wrong = np.append(probs[support], 1.0 - probs[support].sum()) + np.array([0.003, 0.0, 0.0, -0.003])
    assert multinomial_p_value(np.column_stack([counts, k - counts.sum(axis=1)]), wrong, k) < LEVEL


@pytest.mark.parametrize("k", [1, 4, 6])
def test_a_row_with_every_feature_gets_every_draw(k):
    probs = np.array([0.4, 0.1, 0.3, 0.2])
    counts, _ = counts_on(np.arange(4), probs, k, DRAWS, 7)
    assert (counts.sum(axis=1) == k).all()
    assert multinomial_p_value(counts, probs, k) > LEVEL


@pytest.mark.parametrize(("d", "k"), [(50, 2000), (50, 40_000), (3000, 1500)])
def test_mean_and_covariance_of_many_draws(d, k):
    """Rates from far below 1 to far above the largest table, on a third of the features."""
    rng = np.random.default_rng(d)
    probs = rng.dirichlet(np.full(d, 0.5))
    support = np.sort(rng.choice(d, d // 3, replace=False))[:40]
    size = 200_000
    counts, _ = counts_on(support, probs, k, size, 1)
    p = probs[support]
    deviation = counts - k * p
    variance = k * p * (1 - p)
    assert (np.abs(deviation.mean(axis=0)) < 5 * np.sqrt(variance / size)).all()
    product = deviation[:, 0] * deviation[:, 1:].sum(axis=1)
    expected = -k * p[0] * p[1:].sum()
    assert abs(product.mean() - expected) < 5 * product.std() / np.sqrt(size)
    spread = deviation**2
    assert (np.abs(spread.mean(axis=0) - variance) < 5 * spread.std(axis=0) / np.sqrt(size) + 1e-12).all()


def table_units(rate):
    """Units of mass that the table of a rate gives each count, the last of them the remainder."""
    where, tables = build_tables(np.array([rate]), np.array([0]))
    bits = int(where[0] & 15)
    share, units = UNITS >> bits, np.zeros(1 << bits, int)
    for bucket, entry in enumerate(tables.astype(int)):
        threshold, other = entry >> bits, entry & ((1 << bits) - 1)
        units[bucket] += threshold
        units[other] += share - threshold
    return units, bits


@pytest.mark.parametrize("rate", RATES)
def test_table_and_remainder_make_the_poisson_law_to_the_last_digits(rate):
    units, bits = table_units(rate)
    assert units.sum() == UNITS
    last = len(units) - 1
    np.testing.assert_array_equal(units[:last], np.floor(poisson.pmf(np.arange(last), rate) * UNITS + 1e-9))
    counts = np.arange(int(rate + 20 * np.sqrt(rate)) + 40)
    law = np.append(units[:last], np.zeros(len(counts)))[: len(counts)]
    law += np.diff([largest_chance(rate, bits, count) for count in counts], prepend=0.0) * units[last]
    np.testing.assert_allclose(law / UNITS, poisson.pmf(counts, rate), rtol=0, atol=1e-14)


def largest_chance(rate, bits, count):
    """Up to which chance is the count of the remainder no larger than this?"""
    below, above = 0.0, 1.0
    if count_of_remainder(rate, bits, np.nextafter(1.0, 0.0)) <= count:
        return 1.0
    for _ in range(60):
        middle = (below + above) / 2
        below, above = (middle, above) if count_of_remainder(rate, bits, middle) <= count else (below, middle)
    return below


def test_tables_leave_little_to_the_remainder():
    for bits in range(2, len(LARGEST_RATE)):
        assert poisson.sf((1 << bits) - 2, LARGEST_RATE[bits]) <= 2.0**-9
        units, used = table_units(LARGEST_RATE[bits])
        assert used == bits
        assert units[-1] / UNITS < 2.0**-9 + 2.0 ** (bits - 16)


@numba.njit
def large_counts(rate, size):
    counts = np.empty(size, np.int64)
    for r in range(size):
        counts[r] = large_count(rate, hashed(U(r) * U(0xD1342543DE82EF95)), U(0))
    return counts


@pytest.mark.parametrize("rate", [97.0, 130.3, 1000.0, 54321.5])
def test_a_rate_beyond_all_tables_has_the_poisson_law(rate):
    counts = large_counts(rate, 4 * DRAWS)
    values = np.arange(counts.min(), counts.max() + 1)
    expected, seen = poisson.pmf(values, rate) * len(counts), np.bincount(counts - counts.min())
    common = expected >= 5
    seen = np.append(seen[common], len(counts) - seen[common].sum())
    expected = np.append(expected[common], len(counts) - expected[common].sum())
    assert chisquare(seen, expected).pvalue > LEVEL


def test_the_logarithm_of_the_pmf():
    for rate in (97.0, 1000.0, 54321.5):
        counts = np.unique(np.clip(rate + np.sqrt(rate) * np.linspace(-9, 9, 50), 0, None).astype(int))
        logs = [log_pmf(float(count), rate) for count in (0, *counts)]
        np.testing.assert_allclose(logs, poisson.logpmf([0, *counts], rate), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("k", "rate"), [(1, 0.3), (5, 4.9), (40, 0.01), (40, 39.0), (1000, 11.0), (1000, 700.0)])
def test_log_ratio_of_binomial_and_poisson(k, rate):
    getcontext().prec = 60
    p = Decimal(rate) / k
    falling = Decimal(1)
    for total in range(k + 1):
        exact = (falling * (1 - p) ** (k - total) * Decimal(rate).exp()).ln()
        assert sparse_rows.log_ratio(total, k, rate) == pytest.approx(float(exact), abs=2e-12 * (1 + abs(float(exact))))
        falling *= 1 - Decimal(total) / k
    assert sparse_rows.log_ratio(k + 1, k, rate) == -np.inf


@numba.njit
def coupled_totals(totals, k, rate, seed):
    wanted = np.empty_like(totals)
    for r in range(len(totals)):
        wanted[r] = sparse_rows.coupled_total(totals[r], k, rate, hashed(U(seed) + U(r) * U(0xD1342543DE82EF95)))
    return wanted


@pytest.mark.parametrize(
    ("k", "p"),
    [
        (1, 0.2),
        (3, 0.9),
        (20, 0.5),
        (500, 0.02),
        (500, 0.97),
        (40_000, 0.01),
        (10**6, 1e-6),
        (10**6, 3e-4),
        (2**30, 0.4),
    ],
)
def test_the_coupled_total_is_binomial_and_mostly_the_poisson_number(k, p):
    totals = np.random.default_rng(k).poisson(k * p, DRAWS)
    wanted = coupled_totals(totals, k, k * p, 5)
    values = np.arange(wanted.min(), wanted.max() + 1)
    expected = binom.pmf(values, k, p) * DRAWS
    seen = np.bincount(wanted - wanted.min(), minlength=len(values))
    common = expected >= 5
    seen = np.append(seen[common], DRAWS - seen[common].sum())
    expected = np.append(expected[common], DRAWS - expected[common].sum())
    assert chisquare(seen[expected > 1e-6], expected[expected > 1e-6]).pvalue > LEVEL
    grid = np.arange(max(0, int(k * p - 20 * np.sqrt(k * p))), int(k * p + 20 * np.sqrt(k * p) + 20))
    distance = np.abs(binom.pmf(grid, k, p) - poisson.pmf(grid, k * p)).sum() / 2
    share = (wanted != totals).mean()
    assert abs(share - distance) < 5 * np.sqrt(distance * (1 - distance) / DRAWS) + 1e-7  # as seldom as can be
    assert distance <= p


def test_an_exchange_adds_in_proportion_and_takes_away_at_random():
    rates = np.array([1.0, 0.0, 3.0])
    more = np.zeros(3, int)
    fewer = np.empty((20_000, 3), int)
    for r in range(20_000):
        counts = np.array([2, 0, 1])
        sparse_rows.exchange(counts, rates, 3, 5, U(hashed(U(r))))
        more += counts - [2, 0, 1]
        counts = np.array([2, 1, 3])
        sparse_rows.exchange(counts, rates, 6, 2, U(hashed(U(r))))
        fewer[r] = counts
    assert more[1] == 0
    assert chisquare(more[[0, 2]], more.sum() * np.array([0.25, 0.75])).pvalue > LEVEL
    assert (fewer.sum(axis=1) == 2).all()
    cells = [(2, 0, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1)]
    seen = np.array([(fewer == cell).all(axis=1).sum() for cell in cells])
    ways = np.array([1, 3, 2, 6, 3])  # of choosing 2 of 6 draws
    assert chisquare(seen, ways / ways.sum() * 20_000).pvalue > LEVEL


def test_a_feature_of_no_rate_is_never_drawn():
    counts, noise = counts_on(np.arange(3), np.array([0.5, 1e-320, 0.5]), 4, 1000, 3)
    assert (counts[:, 1] == 0).all()
    assert (noise[:, 1] == 0).all()
    assert multinomial.pmf(counts[0], 4, [0.5, 0.0, 0.5]) > 0


def test_large_rates_among_columns_that_no_row_holds():
    """Rates without a table are numbered over all columns; the tables are those of the columns in rows alone."""
    probs, k, size = np.array([0.4, 0.05, 0.3, 0.2, 0.05]), 4000, 20_000
    support = [2, 3, 4]
    counts = counts_on(support, probs, k, size, seed=11)[0]
    for column, p in zip(counts.T, probs[support], strict=True):
        edges = binom.ppf(np.arange(1, 20) / 20, k, p)
        expected = np.diff(binom.cdf(np.concatenate([[-1], edges, [k]]), k, p)) * size
        observed = np.histogram(column, np.concatenate([[-1], edges, [k]]) + 0.5)[0]
        assert chisquare(observed, expected).pvalue > 1e-4
    correlation = np.corrcoef(counts[:, 0], counts[:, 1])[0, 1]
    assert abs(correlation + np.sqrt(0.3 * 0.2 / (0.7 * 0.8))) < 4 / np.sqrt(size)
