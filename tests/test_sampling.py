from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.chi_square import DRAWS, bernoulli_p_value, multinomial_p_value, none_rejected, random_cases
from scipy.stats import binom, chisquare, multinomial, poisson

from evodrop._kernels import poisson as counts_by_table
from evodrop._kernels import rows as stream
from evodrop._kernels.rows import MASS_BITS, build_table, integer_masses
from evodrop._kernels.rows import hashed as kernel_hashed
from evodrop.sampling import draw_counts, draw_mask, sample_counts

RNG = np.random.default_rng(0)
AWKWARD = {
    "uniform": np.ones(1000),
    "one unit": np.ones(1),
    "all the mass in one": np.array([0.0, 1.0, 0.0]),
    "nearly all the mass in one": np.array([1.0, 1e-300, 1e-17]),
    "300 orders of magnitude": 10.0 ** np.linspace(0, -300, 301),
    "huge": np.full(3, 1e308),
    "tiny": np.array([5e-324, 5e-324]),
    "zeros": np.where(RNG.random(500) < 0.5, 0.0, RNG.random(500)),
    "uneven": RNG.dirichlet(np.full(4096, 0.1)),
    "a power of two": RNG.random(1024),
    "one more": RNG.random(1025),
    "many": RNG.random(10**5) ** 3,
}


def normalised(masses):
    scaled = masses / masses.max()
    return scaled / scaled.sum()


@pytest.mark.parametrize("name", AWKWARD)
def test_the_table_holds_every_probability_to_within_2_to_the_minus_50(name):
    masses = AWKWARD[name]
    integers = integer_masses(normalised(masses), len(masses))
    total = sum(map(Fraction, masses.tolist()))
    assert sum(map(int, integers)) == 2**MASS_BITS
    assert ((integers == 0) | (masses > 0)).all()
    for mass, integer in zip(masses.tolist(), integers.tolist(), strict=True):
        assert abs(Fraction(integer, 2**MASS_BITS) - Fraction(mass) / total) < Fraction(1, 2**50)


@pytest.mark.parametrize("name", AWKWARD)
def test_the_buckets_give_each_unit_its_mass_to_the_last_bit(name):
    probs = normalised(AWKWARD[name])
    bits = (len(probs) - 1).bit_length()
    table = build_table(probs, bits).astype(object)
    thresholds, others = table >> bits, table & (2**bits - 1)
    law = np.zeros(2**bits, object)
    law += thresholds
    np.add.at(law, others.astype(np.int64), 2 ** (MASS_BITS - bits) - thresholds)
    assert (law[: len(probs)] == integer_masses(probs, len(probs))).all()
    assert (law[len(probs) :] == 0).all()


def test_words_are_the_hash_of_seed_row_and_counter():
    def hashed(z):
        for shift, factor in stream.HASH:
            z = (z ^ (z >> shift)) * factor % 2**64
        return z

    for z in (0, 1, 2**63, 2**64 - 1, 0x123456789ABCDEF):
        assert int(kernel_hashed(np.uint64(z))) == hashed(z)
    seed, size, d = 2**64 - 5, 3, 8  # uniform over a power of two: the unit is the top bits of the word
    expected = np.zeros((size, d), int)
    for row in range(size):
        key = hashed((seed + row * int(stream.ROW_STEP)) % 2**64)
        for t in range(5):
            expected[row, hashed((key + t * int(stream.GOLDEN)) % 2**64) >> 61] += 1
    np.testing.assert_array_equal(sample_counts(np.ones(d), 5, size, seed), expected)


def test_the_joint_distribution_is_multinomial():
    p_values = [
        multinomial_p_value(sample_counts(case.probs, case.k, DRAWS, case.seed), case.probs, case.k)
        for case in random_cases()
    ]
    assert none_rejected(p_values)


def test_the_test_of_the_law_would_see_a_small_error():
    probs = np.array([0.3, 0.5, 0.2])
    wrong = probs + np.array([0.003, -0.003, 0.0])
    assert not none_rejected([multinomial_p_value(sample_counts(wrong, 4, DRAWS, 0), probs, 4)] + [1.0] * 59)


def test_masks_are_independent_with_the_given_chances():
    p_values = []
    for case in random_cases():
        keep = np.minimum(1.0, case.probs * case.k)
        p_values.append(bernoulli_p_value(draw_mask(keep, DRAWS, case.seed, 2), keep))
    assert none_rejected(p_values)


def hashed(z):
    """As :func:`evodrop._kernels.rows.hashed`, on arrays of any numbers."""
    with np.errstate(over="ignore"):
        for shift, factor in stream.HASH:
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z


def mask_by_definition(keep, size, seed):
    """Unit i has the i-th 16 bits of the words of its row; where they tie, 46 of the word 2^60 + i."""
    chances = [min(math.ceil(Fraction(p) * 2**62), 2**62) for p in keep.tolist()]
    leading = np.array([min(c >> 46, 2**16 - 1) for c in chances])
    others = np.array([c - (int(high) << 46) for c, high in zip(chances, leading, strict=True)], np.uint64)
    units = np.arange(len(keep), dtype=np.uint64)
    with np.errstate(over="ignore"):
        keys = hashed(np.uint64(seed) + np.arange(size, dtype=np.uint64) * stream.ROW_STEP)[:, None]
        words = hashed(keys + (units >> np.uint64(2)) * stream.GOLDEN)
        further = hashed(keys + (np.uint64(2**60) + units) * stream.GOLDEN) >> np.uint64(18)
    bits = (words >> (units % np.uint64(4) * np.uint64(16))) & np.uint64(0xFFFF)
    return (bits < leading) | ((bits == leading) & (further < others)), bits == leading


def test_16_bits_decide_a_mask_and_46_more_on_a_tie():
    keep = np.tile([0.3, 1.0, 0.0, 0.5, 2.0**-62, 1e-30, 1.0 - 2.0**-53, RNG.random(), 0.999999, 1e-5], 150)[:1499]
    expected, tied = mask_by_definition(keep, 2000, 77)
    mask = draw_mask(keep, 2000, 77, 1)
    np.testing.assert_array_equal(mask, expected)
    ties = mask[tied & (keep == 0.3)]
    assert ties.any()
    assert not ties.all()
    assert mask[:, keep == 1.0].all()
    assert not mask[:, keep == 0.0].any()
    assert tied[:, keep == 1.0].any()  # such a tie is decided for the unit, and for a chance of 0 against it
    assert tied[:, keep == 0.0].any()


def test_many_draws_have_the_same_joint_distribution(monkeypatch):
    monkeypatch.setattr(counts_by_table, "LEAST_MANY", 10)  # the fewest for which k - 3 sqrt(k) is positive
    cases = [([0.2, 0.5, 0.3], 12), ([0.7, 0.3], 10), ([0.1, 0.0, 0.4, 0.5], 16), ([0.001, 0.999], 40)]
    p_values = []
    for probs, k in cases:
        assert counts_by_table.many_draws(k, len(probs))
        p_values.append(multinomial_p_value(sample_counts(probs, k, DRAWS, 1), np.array(probs), k))
    assert none_rejected(p_values)


def test_poisson_counts_filled_up_to_k_are_multinomial():
    """The algorithm of many draws by enumeration: given a sum T <= k, Poisson counts are Mult(T; p), so k - T more
    draws of p make them Mult(k; p), whatever the chance of T."""
    probs, k, kappa = np.array([0.2, 0.5, 0.3]), 4, 1.5
    cells = [np.array(cell) for cell in product(range(k + 1), repeat=3) if sum(cell) <= k]
    law = dict.fromkeys((tuple(cell) for cell in cells if cell.sum() == k), 0.0)
    for first in cells:
        for rest in cells:
            if first.sum() + rest.sum() == k:
                chance = poisson.pmf(first, kappa * probs).prod() / poisson.cdf(k, kappa)
                law[tuple(first + rest)] += chance * multinomial.pmf(rest, rest.sum(), probs)
    np.testing.assert_allclose(list(law.values()), multinomial.pmf(list(law), k, probs), rtol=1e-12, atol=0)


@pytest.mark.parametrize("k", [64, 1000, 10**4, 10**6])
def test_each_count_of_many_draws_is_binomial(k):
    probs = np.array([0.3, 0.1, 0.6])
    counts = sample_counts(probs, k, 200_000, 7)
    assert counts_by_table.many_draws(k, 3)
    assert (counts.sum(axis=1) == k).all()
    p_values = []
    for count, p in zip(counts.T, probs, strict=True):
        edges = np.unique(binom.ppf(np.linspace(0.01, 0.99, 40), k, p))
        seen = np.bincount(np.searchsorted(edges, count), minlength=len(edges) + 1)
        chances = np.diff(np.r_[0.0, binom.cdf(edges, k, p), 1.0])
        p_values.append(chisquare(seen, chances * len(count)).pvalue)
    assert none_rejected(p_values)


def test_a_billion_draws_cost_less_than_10_ms():
    sample_counts([0.5, 0.5], 2**30, 1, 0)
    times = []
    for seed in range(5):
        start = time.perf_counter()
        counts = sample_counts([0.5, 0.5], 2**30, 1, seed)
        times.append(time.perf_counter() - start)
        assert counts.sum() == 2**30
    assert min(times) < 0.01


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm on this system")
@pytest.mark.parametrize("k", [10**6 - 1, 2**30])
def test_an_interrupt_is_heard_within_a_second(k):
    def interrupt(*_):
        raise KeyboardInterrupt

    d = 10**6 if k < 2**20 else 2
    sample_counts(np.ones(d), k, 1, 0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        start = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            sample_counts(np.ones(d), k, 200 if d > 2 else 10**6, 0)
        assert time.perf_counter() - start < 1.1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (1, 1000), (5, 1), (5, 100_000), (1000, 1), (3, 2**20)])
def test_rows_sum_to_k_whatever_the_sizes(d, k):
    counts = sample_counts(np.arange(1, d + 1), k, 4, seed=1)
    assert counts.shape == (4, d)
    assert (counts.sum(axis=1) == k).all()


def test_ten_million_units():
    counts = sample_counts(np.ones(10**7), 1000, 1, seed=1)
    assert counts.sum() == 1000
    quarters = counts.reshape(4, -1).sum(axis=1)
    assert (abs(quarters - 250) < 5 * math.sqrt(1000 * 0.25 * 0.75)).all()


def test_zeros_are_never_drawn():
    probs = AWKWARD["zeros"]
    assert sample_counts(probs, 10**5, 10, seed=0)[:, probs == 0].sum() == 0


def test_counts_above_255_do_not_wrap():
    probs = np.array([0.5, 0.5, 0.0])
    assert draw_counts(probs, 255, 10, 0, 1).dtype == np.uint8
    assert draw_counts(np.full(1000, 1e-3), 10_000, 10, 0, 1).dtype == np.uint8
    wide = draw_counts(probs, 100_000, 10, 0, 1)
    assert wide.dtype == np.int32
    assert (wide.sum(axis=1) == 100_000).all()
    exactly_256 = draw_counts(np.array([1.0, 0.0]), 256, 2, 0, 1)  # a byte would hold 0
    np.testing.assert_array_equal(exactly_256, [[256, 0], [256, 0]])


def test_same_arguments_same_counts_on_any_number_of_threads():
    probs, keep = normalised(AWKWARD["uneven"]), RNG.random(4096)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(draw_counts(probs, 2048, 300, 7, threads), draw_counts(probs, 2048, 300, 7, 1))
        np.testing.assert_array_equal(draw_mask(keep, 300, 7, threads), draw_mask(keep, 300, 7, 1))
        many = [draw_counts(probs, 20 * 4096, 3000, 7, number) for number in (threads, 1)]
        np.testing.assert_array_equal(*many)
    assert (sample_counts(probs, 100, 5, seed=1) != sample_counts(probs, 100, 5, seed=2)).any()
    np.testing.assert_array_equal(sample_counts(probs, 100, 5, seed=1), sample_counts(probs, 100, 9, seed=1)[:5])


def test_the_global_generator_is_left_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    sample_counts(np.ones(10), 5, 10, seed=0)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, -0.5], 1, 1, 0), r"probs\[1\] is -0.5"),
        (([0.5, float("nan")], 1, 1, 0), r"probs\[1\] is nan"),
        (([0.0], 1, 1, 0), "all zero"),
        (([], 1, 1, 0), r"shape \(0,\)"),
        (([[0.5, 0.5]], 1, 1, 0), r"shape \(1, 2\)"),
        (([1.0], 0, 1, 0), "k is 0, but the number of draws is an integer from 1"),
        (([1.0], 1.5, 1, 0), "k is 1.5"),
        (([1.0], 2**30 + 1, 1, 0), "k is 1073741825, but the number of draws is an integer from 1 to 1073741824"),
        (([1.0], 1, -1, 0), "size is -1"),
        (([1.0], 1, 1, -1), "seed is -1"),
        (([1.0], 1, 1, 2**64), "seed is 18446744073709551616"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_counts(*arguments)


@pytest.mark.parametrize("folder", ["a file, not a folder", "cannot be made"])
def test_without_a_cache_folder_it_compiles_in_memory(tmp_path, folder):
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = blocker if folder == "a file, not a folder" else blocker / "folder"
    code = (
        "from evodrop import sampling as s; print(s.sample_counts([1], 3, 1, 0), type(s.build_table._cache).__name__)"
    )
    only_there = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    environment = os.environ | only_there
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("[[3]] NullCache\n", 0), run.stderr
