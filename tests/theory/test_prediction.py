"""A report has the numbers of the functions, of whatever kind of matrix, and prints every one of them."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest
from scipy import sparse

from evodrop.definitions import expected_kept, sampling_probabilities, second_moments
from evodrop.theory import noise_gap, noises_for, report, risk_bound, squared_norm
from evodrop.theory.regularizers import sample_noise

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
    np.testing.assert_allclose(made.noises["data-dependent"].chances, sampling_probabilities(moments), rtol=1e-14)
    standard = moments.sum() / (1 - rate)
    for name, noise in noises.items():
        row = made[name]
        norm = squared_norm(moments, noise)
        kept = noise.chances.sum() if noise.k is None else expected_kept(noise.chances, noise.k)
        expected = (norm, norm / moments.sum(), risk_bound(2.0, norm**0.5, 3.0, 500), kept, standard / norm)
        np.testing.assert_allclose((*row[1:5], row.gain), expected, rtol=1e-13)


def test_the_share_kept_of_a_row_by_counting():
    """Of all units that are not 0 in some row, how many survive: sampled, with its standard error."""
    made, rng, size = report(X), np.random.default_rng(1), 4000
    for name, noise in noises_for(second_moments(X), 0.5).items():
        kept = (sample_noise(noise, size, rng) > 0).astype(float) @ (X != 0).sum(axis=0) / (X != 0).sum()
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
    assert made["uniform"].relative_norm == pytest.approx(1 + (d - 1) / 500_000, rel=1e-9)
    assert made["water-filling"].relative_norm == pytest.approx(1.0)  # k exceeds the features that are ever seen


def test_one_example_of_one_unit():
    made = report([[3.0]])
    assert (made.n, made.d, made.k, made.squared_norm) == (1, 1, 1, 9.0)
    assert made["data-dependent"].squared_norm == pytest.approx(9.0)


def test_bad_names_and_names_of_noises():
    with pytest.raises(KeyError, match="gaussian"):
        report(X)["gaussian"]


NOISES = list(noises_for([1.0], 0.5))
EVEN = np.ones((5, 100))
SKEWED = np.ones((5, 100)) / np.arange(1.0, 101.0)
LARGE = np.ones((5, 100)) * 1e150


@pytest.mark.parametrize("X", [EVEN, SKEWED, LARGE, [[3.0]]], ids=["even", "skewed", "large", "one"])
def test_the_string_has_every_row_and_every_number(X):
    made = report(X)
    lines = str(made).splitlines()
    assert f"{made.n} examples x {made.d} units, rate 0.5, k = {made.k} draws" in lines[0]
    table = lines[lines.index("") + 2 :][: len(NOISES)]  # after the empty line and the heads of the columns
    rows = {line.split()[0]: line.split()[1:] for line in table}
    assert list(rows) == list(NOISES)
    for name, cells in rows.items():
        predicted = made[name]
        assert float(cells[0]) == pytest.approx(predicted.squared_norm, rel=1e-3)
        assert float(cells[1]) == pytest.approx(predicted.relative_norm, abs=5e-4)
        assert float(cells[2]) == pytest.approx(predicted.bound, rel=1e-3)
        assert float(cells[3].replace(",", "")) == pytest.approx(predicted.kept, abs=0.05)
        assert float(cells[4].rstrip("%")) == pytest.approx(100 * predicted.kept_of_row, abs=0.05)
        assert float(cells[5]) == pytest.approx(predicted.gain, abs=5e-4)


def test_every_column_has_its_whole_name():
    header = next(line for line in str(report(EVEN)).splitlines() if line.startswith("noise"))
    for title in ("B^2", "/ E||x||^2", "risk bound", "kept units", "of a row", "gain"):
        assert title in header
        header = header.partition(title)[2]


def test_a_string_has_neither_colours_nor_spaces_at_the_end():
    text = str(report(SKEWED))
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("X", "rate", "words"),
    [
        (EVEN, 0.5, "does not pay here: its B^2 is 1.490 of standard dropout's"),
        (SKEWED, 0.5, "noise pays here: its B^2 is 0."),
        (SKEWED, 0.0, "does not pay here"),
    ],
)
def test_the_verdict_follows_from_the_numbers(X, rate, words):
    made = report(X, rate)
    text = " ".join(str(made).split())
    assert words in text
    threshold = float(text.partition("it pays below ")[2].split()[0][:-1])
    assert f"The evenness of the units is {made.gap.evenness:.3f}; it pays below" in text
    assert (made.gap.evenness < threshold) == (made["data-dependent"].gain > 1)
    assert f"Of all values that are not 0, {made['data-dependent'].kept_of_row:.0%} survive it" in text
    assert "A bound is no forecast" in text


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.7])
def test_at_the_threshold_of_evenness_both_norms_are_equal(rate):
    """d = 10, so that k is not rounded: units of size 1 and one of size s have any evenness from 1 to 1/d."""

    def made(size):
        return report(np.diag(np.r_[np.ones(9), size]), rate)

    more, less = 1.0, 1e6
    for _ in range(200):
        middle = (more * less) ** 0.5
        more, less = (middle, less) if made(middle)["data-dependent"].gain < 1 else (more, middle)
    threshold = float(made(less).verdict().partition("it pays below ")[2].split()[0][:-1])
    assert made(less).gap.evenness == pytest.approx(threshold, abs=6e-4)
