"""Reading svmlight files: what scikit-learn reads whole, we read in chunks, and what is garbled is named."""

from __future__ import annotations

import bz2
import gc
import gzip
import os
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.linear_model import SGDClassifier

from evodrop.linear import svmlight
from evodrop.linear.svmlight import iter_svmlight

PACKINGS = {"plain": lambda text: text, "gzip": gzip.compress, "bz2": bz2.compress}
N_ROWS, N_COLUMNS = 60, 30


def written(tmp_path, text, packing="plain"):
    path = tmp_path / "data.txt"  # the name does not show the packing
    path.write_bytes(PACKINGS[packing](text))
    return path


def random_text(tmp_path, *, zero_based=False, n_rows=N_ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS)) * (rng.random((n_rows, N_COLUMNS)) < 0.2)
    X[7] = 0.0
    X[0, -1] = 1.5
    dump_svmlight_file(X, rng.choice([-1, 1], n_rows), str(tmp_path / "made.svm"), zero_based=zero_based)
    return (tmp_path / "made.svm").read_bytes()


def joined(chunks):
    Xs, ys = zip(*chunks, strict=True)
    return sparse.vstack(Xs), np.concatenate(ys)


def rows_of(path, **options):
    X, y = joined(iter_svmlight(path, **options))
    return X.toarray().tolist(), y.tolist()


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("chunk_rows", [1, 7, 20, N_ROWS, 1000])
@pytest.mark.parametrize("n_features", [None, N_COLUMNS, 50])
def test_chunks_are_the_file(tmp_path, packing, chunk_rows, n_features):
    path = written(tmp_path, random_text(tmp_path), packing)
    whole, labels = load_svmlight_file(str(tmp_path / "made.svm"), n_features=n_features, zero_based=False)
    chunks = list(iter_svmlight(path, chunk_rows, n_features=n_features))
    assert [len(y) for _, y in chunks[:-1]] == [chunk_rows] * (len(chunks) - 1)
    assert len(chunks) == -(-N_ROWS // chunk_rows)
    for X, y in chunks:
        assert isinstance(X, sparse.csr_array)
        assert X.shape == (len(y), n_features or N_COLUMNS)
        assert X.dtype == y.dtype == np.float64
        assert X.indices.dtype == X.indptr.dtype == np.int32
        assert X.has_canonical_format
    X, y = joined(chunks)
    assert (whole != X).nnz == 0
    np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, "float64"])
def test_base_and_dtype(tmp_path, zero_based, dtype):
    path = written(tmp_path, random_text(tmp_path, zero_based=zero_based))
    whole, labels = load_svmlight_file(str(path), zero_based=zero_based, dtype=np.dtype(dtype))
    X, y = joined(iter_svmlight(path, 11, zero_based=zero_based, dtype=dtype))
    assert X.shape == whole.shape == (N_ROWS, N_COLUMNS)
    assert (X.dtype, y.dtype) == (np.dtype(dtype), np.float64)
    assert (whole != X).nnz == 0
    np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize(
    ("text", "rows", "labels"),
    [
        (b"# head: 9:9\n\n \t\n1 1:2 # tail 7:7\n   # more\n-1 2:3#x\n", [[2, 0], [0, 3]], [1, -1]),
        (b"1 qid:3 1:2\n2 qid:-4 2:1 # why.", [[2, 0], [0, 1]], [1, 2]),
        (b"1\n-1 2:1\n+1 \n0 qid:1\n", [[0, 0], [0, 1], [0, 0], [0, 0]], [1, -1, 1, 0]),
        (b"1\n2\n", [[0], [0]], [1, 2]),
        (b"1 1:2\r\n-1 2:3\r\n\r\n", [[2, 0], [0, 3]], [1, -1]),
        (b"1 1:2\n-1 2:3", [[2, 0], [0, 3]], [1, -1]),
        (b"+1 1:+2\n-1.5e0 1:-2E-1\n1.e+1 1:.5\n.5 1:1e2\n", [[2], [-0.2], [0.5], [100]], [1, -1.5, 10, 0.5]),
        (b"  1\t1:2 \t 2:3\t\n", [[2, 3]], [1]),
        (b"1 001:2. 2:0\n", [[2, 0]], [1]),
        (b"1 1:2 # \xff\x00_ nan\n", [[2]], [1]),
        (b"1 1:4.\n", [[4]], [1]),
        (b"1 1:4 # a sentence.", [[4]], [1]),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 100])
def test_tolerated_forms(tmp_path, text, rows, labels, chunk_rows):
    assert rows_of(written(tmp_path, text), chunk_rows=chunk_rows) == (rows, labels)


def test_zero_based_index_zero(tmp_path):
    assert rows_of(written(tmp_path, b"1 0:2\n2 1:3\n"), zero_based=True) == ([[2, 0], [0, 3]], [1, 2])


def test_comments_do_not_count_as_rows(tmp_path):
    path = written(tmp_path, b"1 1:1\n# x\n# y\n\n2 1:2\n3 1:3\n")
    assert [y.tolist() for _, y in iter_svmlight(path, 2)] == [[1, 2], [3]]


GARBLED = [
    b"1 3:",
    b"1 3",
    b"1 :5",
    b"1 3:4:5",
    b"1 a:2",
    b"1 2:x",
    b"1 1: 5",
    b"1 1 :5",
    b"1 5:1 3:1",
    b"1 3:1 3:2",
    b"x 1:1",
    b"1:1 2:1",
    b"1,2 1:1",
    b"nan 1:1",
    b"-inf 1:1",
    b"1e400 1:1",
    b"1_0 1:1",
    b"\xef\xbb\xbf1 1:1",
    b"1 1:nan",
    b"1 1:inf",
    b"1 1:-Infinity",
    b"1 1:1e400",
    b"1 1:1_0",
    b"1 1_0:1",
    b"1 1:0x10",
    b"1 1:1,5",
    b"1 1:1d5",
    b"1 1:-",
    b"1 -2:1",
    b"1 0:1",
    b"1 51:1",
    b"1 1.5:1",
    b"1 2147483648:1",
    b"1 4294967297:1",
    b"1 99999999999999999999:1",
    b"1 " + b"9" * 5000 + b":1",
    b"1 -" + b"9" * 5000 + b":1",
    b"1 qidx:5 1:1",
    b"1 qid:abc 1:1",
    b"1 qid: 1:1",
    b"1 qid 1:1",
    b"1 1:1 qid:3",
    b"1 1:1\x0b2:1",
    b"1 1:1\x0c2:1",
    b"1 1:1\r-1 2:1",
    b"1 1:\xff",
    b"1 \xd9\xa1:1",
    b"1 1:1\xa02:2",
    b"1 1:1\x00",
    b"1 \x00# 1:1",
    b"\x00",
]


@pytest.mark.parametrize("line", GARBLED)
@pytest.mark.parametrize("before", [0, 1, 5])
def test_garbled_line_is_named(tmp_path, line, before):
    """Alone, after a good row, and in the second chunk of 4 rows; two lines that are no rows come first."""
    path = written(tmp_path, b"# head\n\n" + b"1 1:1 2:2\n" * before + line + b"\n1 1:1\nx\n")
    chunks = iter_svmlight(path, 4, n_features=50)
    for _ in range(before // 4):
        X, y = next(chunks)
        assert X.shape == (4, 50)
        assert y.tolist() == [1.0] * 4
    with pytest.raises(ValueError, match=r"data\.txt") as caught:
        next(chunks)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {before + 3}: ")
    assert f"the line is {repr(line[:40])[1:-1]}" in message
    assert len(message) < len(str(path)) + 400
    with pytest.raises(StopIteration):
        next(chunks)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1 5:1 3:1", "indices .* should be sorted and unique"),
        (b"1 0:1", "Invalid index 0 .* from 0 with zero_based=True"),
        (b"1 51:1", "n_features was set to 50, but input file contains 51"),
        (b"1 2147483648:1", "an index is larger than 2147483647"),
        (b"1 1:1e400", "a number is not finite in float64"),
        (b"1 1:1_0", "the character '_' has no place in a number"),
    ],
)
def test_the_reason_is_named(tmp_path, line, reason):
    with pytest.raises(ValueError, match=f"line 1: .*{reason}"):
        list(iter_svmlight(written(tmp_path, line + b"\n"), n_features=50))


@pytest.mark.parametrize("tail", [b"1 12:", b"1 12", b"1 12:0.5e", b"-", b"1 12:-"])
def test_cut_last_line(tmp_path, tail):
    with pytest.raises(ValueError, match="line 2: "):
        list(iter_svmlight(written(tmp_path, b"1 1:1\n" + tail), n_features=50))


@pytest.mark.parametrize("line", [b"1 5:1 3:1", b"1 0:1", b"1 99999999999999999999:1", b"1 x:1", b":"])
def test_garbled_line_when_features_are_counted(tmp_path, line):
    with pytest.raises(ValueError, match=r"data\.txt, line 2: "):
        list(iter_svmlight(written(tmp_path, b"1 2:1\n" + line + b"\n")))


def test_value_too_large_for_float32(tmp_path):
    path = written(tmp_path, b"1 1:1\n1 1:1e39\n")
    assert rows_of(path)[0] == [[1], [1e39]]
    with pytest.raises(ValueError, match="line 2: a number is not finite in float32"):
        list(iter_svmlight(path, dtype=np.float32))


@pytest.mark.parametrize("zero_based", [False, True])
def test_index_beyond_n_features(tmp_path, zero_based):
    path = written(tmp_path, b"1 4:1\n1 5:1\n")
    n_features = 5 if zero_based else 4
    assert joined(iter_svmlight(path, zero_based=zero_based, n_features=n_features + 1))[0].shape == (2, n_features + 1)
    with pytest.raises(ValueError, match=f"line 2: n_features was set to {n_features}, but"):
        list(iter_svmlight(path, zero_based=zero_based, n_features=n_features))


def test_a_refusal_without_a_named_line_still_raises(tmp_path, monkeypatch):
    """Should a chunk be refused, and none of its lines, nothing of it is believed."""
    load = svmlight.load_svmlight_file

    def refuse(text, **options):
        if text.getvalue().count(b"\n") > 1:
            raise ValueError("no reason")
        return load(text, **options)

    monkeypatch.setattr(svmlight, "load_svmlight_file", refuse)
    with pytest.raises(ValueError, match=r"data\.txt, lines 2 to 3: no reason"):
        list(iter_svmlight(written(tmp_path, b"#\n1 1:1\n1 1:1\n")))


@pytest.mark.parametrize("packing", ["gzip", "bz2"])
@pytest.mark.parametrize("n_features", [None, N_COLUMNS])
def test_cut_archive(tmp_path, packing, n_features):
    path = written(tmp_path, random_text(tmp_path, n_rows=3000), packing)
    whole = path.read_bytes()
    for end in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"data\.txt is cut off or damaged after \d+ lines were read"):
            list(iter_svmlight(path, 10, n_features=n_features))


@pytest.mark.parametrize("packing", ["gzip", "bz2"])
def test_damaged_archive(tmp_path, packing):
    path = written(tmp_path, random_text(tmp_path, n_rows=3000), packing)
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(ValueError, match=r"data\.txt"):
        list(iter_svmlight(path, 10, n_features=N_COLUMNS))


@pytest.mark.parametrize("packing", ["gzip", "bz2"])
def test_archive_of_several_streams(tmp_path, packing):
    text = random_text(tmp_path, n_rows=2000)
    stream = PACKINGS[packing](text)
    path = tmp_path / "data.txt"
    path.write_bytes(stream * 3)
    assert sum(len(y) for _, y in iter_svmlight(path)) == 6000
    path.write_bytes(stream + b"BZh9 damaged" + stream)
    with pytest.raises(ValueError, match=r"data\.txt is cut off or damaged after 2000 lines"):
        list(iter_svmlight(path))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("text", [b"", b"\n\n", b"# only words\n"])
@pytest.mark.parametrize("n_features", [None, 3])
def test_no_example(tmp_path, packing, text, n_features):
    with pytest.raises(ValueError, match=r"data\.txt holds no example"):
        list(iter_svmlight(written(tmp_path, text, packing), n_features=n_features))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *[({"chunk_rows": bad}, "chunk_rows") for bad in (0, -1, 2.0, "9", None)],
        *[({"n_features": bad}, "n_features") for bad in (0, -1, 2.0, "9")],
        *[({"zero_based": bad}, "zero_based") for bad in ("auto", None, 1)],
        *[({"dtype": bad}, "float64 or float32") for bad in (int, np.float16, ">f4", complex)],
    ],
)
def test_arguments_are_checked_at_the_call(tmp_path, options, words):
    path = written(tmp_path, b"1 1:1\n")
    with pytest.raises(ValueError, match=words):
        iter_svmlight(path, **options)


def test_numpy_integers_serve(tmp_path):
    (X, _), *others = iter_svmlight(written(tmp_path, b"1 1:1\n"), np.int64(5), n_features=np.int32(4))
    assert X.shape == (1, 4)
    assert not others


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.svm"):
        iter_svmlight(tmp_path / "absent.svm")
    with pytest.raises(IsADirectoryError):
        next(iter_svmlight(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_needs_n_features(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a pipe, .* give n_features"):
        iter_svmlight(tmp_path / "pipe")


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("end", ["exhausted", "closed", "never started", "bad line"])
def test_files_are_closed(tmp_path, monkeypatch, packing, end):
    opened = []

    def recorded(*args):
        opened.append(open(*args))  # noqa: SIM115 - whether it is closed is the question
        return opened[-1]

    monkeypatch.setattr(svmlight, "open", recorded, raising=False)
    path = written(tmp_path, b"1 1:1\n" * 5 + b"1 x\n" * (end == "bad line"), packing)
    chunks = iter_svmlight(path, 2)
    if end == "exhausted":
        list(chunks)
    elif end == "closed":
        next(chunks)
        assert not opened[-1].closed
    elif end == "bad line":
        with pytest.raises(ValueError, match="line 6"):
            list(chunks)
    chunks.close()
    # A pass for the features, which finds a bad line, and a pass for the rows.
    assert len(opened) == {"never started": 0, "bad line": 1}.get(end, 2)
    assert all(file.closed for file in opened)


@pytest.mark.parametrize("packing", PACKINGS)
def test_memory_does_not_grow_with_the_file(tmp_path, packing):
    def peak(n_rows):
        path = written(tmp_path, b"1 1:0.25 20:1.5 300:2.125\n# word\n" * n_rows, packing)
        gc.collect()
        tracemalloc.start()
        try:
            assert sum(X.shape[0] for X, _ in iter_svmlight(path, 500)) == n_rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)  # what the first call leaves behind for good
    small, large = peak(2000), peak(20_000)
    assert large < 1.2 * small
    assert large < 26 * 20_000 / 2  # less than the text itself


def test_comments_take_no_memory(tmp_path):
    path = written(tmp_path, b"1 1:1\n" + b"# a long remark about nothing at all\n" * 50_000 + b"1 1:1\n")
    list(iter_svmlight(written(tmp_path, path.read_bytes()), n_features=1))
    tracemalloc.start()
    try:
        assert len(rows_of(path, n_features=1)[1]) == 2
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_the_purpose(tmp_path):
    """Chunks feed partial_fit, scikit-learn's own too, which refuses 64-bit indices."""
    path = written(tmp_path, b"+1 1:1\n-1 2:1\n" * 50, "bz2")
    model = SGDClassifier(random_state=0)
    for X, y in iter_svmlight(path, 30):
        model.partial_fit(X, y, classes=[-1, 1])
    assert model.predict([[1, 0], [0, 1]]).tolist() == [1, -1]


BOMBS = {
    "bz2": lambda path: path.write_bytes(bz2.compress(b"0" * 20_000_000) * 100),
    "gzip": lambda path: path.write_bytes(gzip.compress(b"1 1:1\n") + gzip.compress(bytes(20_000_000)) * 100),
    "link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("n_features", [None, 5])
@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        ("bz2", r"data\.txt, line 1: it is longer than 16,777,216 bytes; .* raise max_line_bytes"),
        ("gzip", r"data\.txt, line 2: it is longer than 16,777,216 bytes"),
        ("link", r"data\.txt is a device or a socket, which may never end; give a file or a pipe"),
    ],
)
def test_a_line_without_end_takes_little_memory(tmp_path, bomb, words, n_features):
    """Two gigabytes of one line, in a few kilobytes."""
    BOMBS[bomb](tmp_path / "data.txt")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            list(iter_svmlight(tmp_path / "data.txt", n_features=n_features))
        assert tracemalloc.get_traced_memory()[1] < 80_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_bound_on_a_line_is_a_parameter(tmp_path, packing):
    path = written(tmp_path, b"1 1:1\n1 2:2\n# a remark\n", packing)
    assert rows_of(path, max_line_bytes=11) == ([[1, 0], [0, 2]], [1, 1])
    with pytest.raises(ValueError, match=r"data\.txt, line 3: it is longer than 10 bytes"):
        list(iter_svmlight(path, max_line_bytes=10))
    with pytest.raises(ValueError, match="max_line_bytes is 0"):
        iter_svmlight(path, max_line_bytes=0)
