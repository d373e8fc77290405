"""A report says what the functions say, of whatever kind of matrix, in one piece or in blocks."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest
from scipy import sparse

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.theory import (
    expected_kept,
    expected_squared_norm,
    expected_squared_norm_bernoulli,
    noise_gap,
    report,
    risk_bound,
)
from evodrop.theory.risk import noises_for

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 12)) * np.arange(1, 13) ** -1.0 * (RNG.random((60, 12)) < 0.5)
X[:, 5] = 0.0


def assert_same(made, expected, rtol=1e-12):
    assert (made.n, made.d, made.k, made.rate) == (expected.n, expected.d, expected.k, expected.rate)
    np.testing.assert_allclose(made.squared_norm, expected.squared_norm, rtol=rtol)
    np.testing.assert_allclose(made.gap, expected.gap, rtol=rtol)
    for name in expected.noises:
        np.testing.assert_allclose(made[name][1:], expected[name][1:], rtol=rtol)
        np.testing.assert_allclose(made.noises[name].survival, expected.noises[name].survival, rtol=rtol)


@pytest.mark.parametrize("rate", [0, 0.3, 0.5, 0.95])
def test_the_numbers_are_those_of_the_functions(rate):
    made, moments = report(X, rate, G=2.0, r=3.0, n=500), second_moments(X)
    noises = noises_for(moments, rate)
    assert [row.noise for row in made.predictions] == list(noises)
    assert (made.n, made.d, made.rate, made.k) == (60, 12, rate, noises["uniform"].k)
    assert made.squared_norm == pytest.approx(moments.sum(), rel=1e-14)
    assert made.gap == noise_gap(moments, rate)
    np.testing.assert_allclose(made.noises["data-dependent"].probs, sampling_probabilities(moments), rtol=1e-14)
    standard = expected_squared_norm_bernoulli(moments, np.full(12, 1 - rate))
    for name, noise in noises.items():
        row = made[name]
        if name in ("uniform", "data-dependent"):
            norm, kept = expected_squared_norm(moments, noise.probs, noise.k), expected_kept(noise.probs, noise.k)
        else:
            norm, kept = expected_squared_norm_bernoulli(moments, noise.keep), noise.keep.sum()
        expected = (norm, norm / moments.sum(), risk_bound(2.0, norm**0.5, 3.0, 500), kept, standard / norm)
        np.testing.assert_allclose((*row[1:5], row.gain), expected, rtol=1e-13)


def test_the_share_kept_of_a_row_by_counting():
    """Of all units that are not 0 in some row, how many survive: sampled, with its standard error."""
    made, rng, size = report(X), np.random.default_rng(1), 4000
    for name, noise in noises_for(second_moments(X), 0.5).items():
        kept = (noise.sample(size, rng) > 0).astype(float) @ (X != 0).sum(axis=0) / (X != 0).sum()
        assert abs(kept.mean() - made[name].kept_of_row) <= 4 * kept.std() / np.sqrt(size) + 1e-12
    assert made["none"].kept_of_row == 1.0
    assert made["standard"].kept_of_row == pytest.approx(0.5, rel=1e-12)
    assert made["data-dependent"].kept_of_row != pytest.approx(made["data-dependent"].kept / 12, rel=0.05)


def twisted(dense):
    """The same matrix with zeros explicit or cancelled, some values in two parts, and the columns of a row unsorted."""
    indptr, indices, data = [0], [], []
    for row in dense:
        columns = np.flatnonzero(row)[::-1]
        halved = columns[columns % 3 == 0]
        share = np.where(columns % 3 == 0, 0.5, 1.0)
        indices += [5, *columns, 5, 5, *halved]
        data += [0.0, *(share * row[columns]), 1.0, -1.0, *(0.5 * row[halved])]
        indptr.append(len(indices))
    return sparse.csr_array((data, indices, indptr), shape=dense.shape)


KINDS = {
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "lil": sparse.lil_array,
    "spmatrix": sparse.csr_matrix,
    "coo spmatrix": sparse.coo_matrix,
    "twisted": twisted,
    "twisted coo": lambda dense: twisted(dense).tocoo(),
    "list": lambda dense: dense.tolist(),
    "fortran": np.asfortranarray,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_matrix_has_the_same_report(kind):
    assert_same(report(kind(X)), report(X))


def test_narrow_types_are_widened():
    assert_same(report((X * 4).round().astype(np.int8)), report((X * 4).round()))
    assert_same(report(sparse.csr_array(X.astype(np.float32))), report(X.astype(np.float32).astype(float)))


def test_the_matrix_is_left_as_it_was():
    odd = twisted(X)
    before = odd.data.copy(), odd.indices.copy(), odd.indptr.copy()
    report(odd)
    for old, new in zip(before, (odd.data, odd.indices, odd.indptr), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("cuts", [[], [1], [7, 8, 30], list(range(1, 60))], ids=len)
def test_blocks_are_the_whole(cuts):
    blocks = np.split(X, cuts)
    assert_same(report(iter(blocks)), report(X))
    mixed = (block if i % 2 else sparse.csr_array(block) for i, block in enumerate(blocks))
    assert_same(report(mixed), report(X))


def test_a_million_sparse_features_take_seconds():
    d, rows, per_row = 10**6, 2000, 100
    rng = np.random.default_rng(2)
    columns = (d * rng.random((rows, per_row)) ** 3).astype(np.int64)  # some features far more common than others
    indptr = np.arange(0, rows * per_row + 1, per_row)
    wide = sparse.csr_array((rng.normal(size=columns.size), columns.ravel(), indptr), shape=(rows, d))
    start = perf_counter()
    made = report(wide)
    text = str(made)
    assert perf_counter() - start < 10
    assert "2,000 examples x 1,000,000 units, rate 0.5, k = 500,000 draws" in text
    assert made["uniform"].loudness == pytest.approx(1 + (d - 1) / 500_000, rel=1e-9)
    assert made["water-filling"].loudness == pytest.approx(1.0)  # k exceeds the features that are ever seen


def test_one_example_of_one_unit():
    made = report([[3.0]])
    assert (made.n, made.d, made.k, made.squared_norm) == (1, 1, 1, 9.0)
    assert made["data-dependent"].squared_norm == pytest.approx(9.0)


def test_bad_names_and_names_of_noises():
    with pytest.raises(KeyError, match="gaussian"):
        report(X)["gaussian"]
