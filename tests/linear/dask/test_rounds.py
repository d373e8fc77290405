"""Partitions that do not fit together are named; those that lack something are right."""

from __future__ import annotations

import numpy as np
import pytest
from dask import array, delayed
from helpers.dask_blocks import FIXED, classifier, cut, examples, fitted
from scipy import sparse

from evodrop.linear import DropoutSGDClassifier, read_svmlight
from evodrop.linear.dask.rounds import STREAM_BITS, State, add, make_part, stream_of

pytestmark = pytest.mark.usefixtures("current_client")
X, Y = examples()


def declared(like, *parts):
    """An array that declares its blocks to be like one of them, which is believed unseen."""
    shape = (np.nan, *like.shape[1:])
    meta = sparse.csr_array((0, 0)) if like.ndim == 2 else np.empty(0, like.dtype)
    blocks = [array.from_delayed(delayed(part), shape=shape, dtype=like.dtype, meta=meta) for part in parts]
    return array.concatenate(blocks, allow_unknown_chunksizes=True)


def joined(*parts):
    return declared(parts[0], *parts)


def test_labels_that_some_partitions_lack():
    X4, y4 = examples(3000, classes=4)
    rare = np.flatnonzero(y4 == "art")[:60]  # a label that one partition of four has
    order = np.concatenate([rare, np.flatnonzero(y4 != "art")])
    edges = [700, 1400, 1900]
    assert "art" not in y4[order][edges[0] :]
    options = {"max_iter": 20, "learning_rate": "invscaling", "eta0": 1.0, "average": "tail"}
    model = fitted(cut(X4[order], *edges), cut(y4[order], *edges), **options)
    alone = DropoutSGDClassifier(**{**FIXED, **options}).fit(X4[order], y4[order])
    assert model.classes_.tolist() == ["art", "science", "sport", "weather"]
    assert model.score(X4[order], y4[order]) > alone.score(X4[order], y4[order]) - 0.03


def test_partitions_sorted_by_label_are_refused_and_those_half_sorted_are_doubted():
    order = np.argsort(Y, kind="stable")
    split = int((Y == "art").sum())
    with pytest.raises(ValueError, match=r"labels depend on the partition .* 1.00.*; shuffle the rows"):
        fitted(cut(X[order], split), cut(Y[order], split))
    mixed = np.where(np.arange(300) % 3 == 0, order, np.arange(300))  # a third of the rows, sorted
    with pytest.warns(UserWarning, match="costs accuracy; shuffle the rows"):
        fitted(cut(X[mixed], split), cut(Y[mixed], split))


def test_an_empty_partition_changes_nothing():
    plain = fitted(cut(X, 100), cut(Y, 100))
    for weight in (None, np.ones(300)):
        same = fitted(cut(X, 100, 300), cut(Y, 100, 300), weight)
        np.testing.assert_array_equal(same.coef_, plain.coef_)
    weight = np.repeat([1.0, 0.0], [200, 100])  # a partition without weight is an empty one
    same = fitted(cut(X, 100, 200), cut(Y, 100, 200), weight)
    np.testing.assert_array_equal(same.coef_, fitted(cut(X[:200], 100), cut(Y[:200], 100)).coef_)
    with pytest.raises(ValueError, match="none of the 2 partitions holds an example"):
        fitted(cut(X, 100), cut(Y, 100), np.zeros(300))


def test_dense_blocks_and_any_cut_of_the_labels():
    plain = fitted(cut(X, 100), cut(Y, 100))
    for labels in (Y, array.from_array(Y, chunks=77)):
        np.testing.assert_array_equal(fitted(cut(X.toarray(), 100), labels).coef_, plain.coef_)


MISMATCHES = {
    "partitions differ in their number of features: 40 in partition 0, 39 in partition 1": lambda: (
        declared(X, X[:100], X[100:, :39]),
        joined(Y[:100], Y[100:]),
    ),
    "partition 1: there are 200 rows, 199 labels": lambda: (joined(X[:100], X[100:]), joined(Y[:100], Y[101:])),
    "labels of partition 0 are numbers and those of partition 1 are not": lambda: (
        joined(X[:100], X[100:]),
        declared(Y, np.zeros(100), Y[100:]),
    ),
    "partition 1: .*NaN": lambda: (joined(X[:100], X[100:] * np.nan), joined(Y[:100], Y[100:])),
    "there is one class, 'art'": lambda: (cut(X, 100), np.repeat("art", 300)),
    r"in \(1, 2\) blocks, but a block holds whole rows: X.rechunk": lambda: (
        array.from_array(X.toarray(), chunks=(300, 20)),
        Y,
    ),
    r"X has the shape \(300,\), but it takes a row for each example": lambda: (array.ones(300), Y),
    r"y has the shape \(299,\), but X has 300 rows": lambda: (cut(X, 100), Y[1:]),
    r"y has the shape \(299,\), but X has 300": lambda: (cut(X, 100), cut(Y[1:], 50)),
    "y has 3 chunks of unknown size and X 2": lambda: (cut(X, 9, known=False), cut(Y, 5, 7, known=False)),
    "chunks of unknown size": lambda: (cut(X, 9, known=False), Y),
    "y is None, but an array X needs its labels": lambda: (cut(X), None),
    "partition 0: Unknown label type": lambda: (cut(X), np.random.default_rng(0).random(300)),
}


@pytest.mark.parametrize("message", MISMATCHES)
@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply")
def test_what_does_not_fit_together_is_named(message):
    with pytest.raises(ValueError, match=message):
        fitted(*MISMATCHES[message]())


def test_data_in_memory_are_for_the_other_estimator():
    with pytest.raises(TypeError, match=r"X is a csr_array, .* use DropoutSGDClassifier"):
        fitted(X, Y)
    with pytest.raises(ValueError, match="list of at least one svmlight file"):
        read_svmlight([])


class Table:
    """What a dask DataFrame looks like from here."""

    def __dask_graph__(self):
        return None

    def to_dask_array(self, lengths):
        raise NotImplementedError


def test_tables_and_delayed_values_of_dask_are_told_how_to_become_arrays():
    late = "dask.array.from_delayed makes one"
    for other, remedy in ((Table(), r"values.to_dask_array\(lengths=True\) makes one"), (delayed(X), late)):
        with pytest.raises(TypeError, match=f"X is a {type(other).__name__}, .*; {remedy}"):
            fitted(other, Y)
        with pytest.raises(TypeError, match=f"y is a {type(other).__name__}, but it takes an array; {remedy}"):
            fitted(cut(X), other)


@pytest.mark.parametrize("kind", ["tocoo", "tocsc"])
def test_blocks_of_other_sparse_formats(kind):
    blocks = cut(X, 100).map_blocks(lambda block: getattr(block, kind)(), dtype=float, meta=sparse.csr_array((0, 0)))
    weight = np.arange(300) % 2
    np.testing.assert_array_equal(fitted(blocks, Y, weight).coef_, fitted(cut(X, 100), Y, weight).coef_)


def test_a_garbled_file_is_named_by_its_line(tmp_path):
    path = tmp_path / "bad.svm"
    path.write_text("1 1:0.5\n-1 x:3\n")
    with pytest.raises(ValueError, match=r"bad.svm, line 2: .*the line is '-1 x:3"):
        classifier(**FIXED).fit([path])


def test_streams_of_partitions_never_meet():
    from evodrop._kernels.rows import ROW_STEP

    def offset(seed):  # the step at which stream 0 has the first word of this one
        return (seed - stream_of(7, 0)) * pow(int(ROW_STEP), -1, 2**64) % 2**64

    assert [offset(stream_of(7, number)) for number in (0, 1, 5)] == [0, 1 << STREAM_BITS, 5 << STREAM_BITS]
    assert stream_of(7, 0) == 7


def test_partitions_too_small_to_split_are_learned_from():
    part = make_part(0, X[:1], Y[:1], None, 0.1, 0)
    assert (len(part.training), len(part.validation)) == (1, 0)
    with pytest.raises(ValueError, match="no partition large enough"):
        fitted(cut(X[:2], 1), np.array(["art", "sport"]), early_stopping=True)


def test_sums_skip_what_is_not_there():
    one = State(np.ones((1, 2)), None, 0.0, 0, 2.0)
    other = State(np.ones((1, 2)), np.full((1, 2), 3.0), 5.0, 0, 1.0)
    for total in (add(one, other), add(other, one)):
        assert (total.last.tolist(), total.mean.tolist(), total.averaged, total.loss) == ([[2, 2]], [[3, 3]], 5, 3)
    assert one.last.tolist() == [[1, 1]]  # a task may be run again: it changes nothing that it is given


def test_balanced_weights_come_from_the_counts_of_all_partitions():
    few = np.where(np.arange(300) % 5 == 0, "art", "sport")
    ours = fitted(cut(X), few, class_weight="balanced")
    theirs = DropoutSGDClassifier(**FIXED, class_weight="balanced").fit(X, few)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
