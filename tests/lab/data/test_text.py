"""svmlight files: bombs, cuts, and files that are not what they should be."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
from helpers.refusals import MB, memory_below, refused, written
from helpers.specimens import specimen, svmlight

from evodrop.lab.data import DataError
from evodrop.lab.data.text import MOST_FEATURES, _read, read_documents


@pytest.mark.parametrize("pack", [gzip, bz2])
@pytest.mark.parametrize("line", [b"1" * MB, b"1 1:1\n" * 1000], ids=["one line", "many lines"])
def test_a_bomb(tmp_path, pack, line):
    path = written(tmp_path, pack.compress(line) * (70 * MB // len(line)))
    with memory_below(20 * MB):
        refused(_read, path, None, MOST_FEATURES, match="unpacks to far more")


def test_text_that_shrinks_well_is_no_bomb(tmp_path):
    path = written(tmp_path, bz2.compress(b"1 1:1\n" * 200_000))
    assert _read(path, 200_000, 1)[0].shape == (200_000, 1)


def test_counts(tmp_path):
    path = written(tmp_path, svmlight(np.eye(4), np.ones(4)))
    assert _read(path, 4, 4)[0].shape == (4, 4)
    refused(_read, path, 3, 4, match="has more than 3 examples, but the published file 3")
    refused(_read, path, 5, 4, match="has 4 examples, but the published file 5")
    refused(_read, path, 4, 3, match="line 4: n_features was set to 3, but input file contains 4")
    refused(_read, written(tmp_path, b"1 2147483647:1\n"), None, MOST_FEATURES, match="line 1: n_features was set to")
    refused(_read, written(tmp_path, b"1 x\n"), None, MOST_FEATURES, match="line 1")


@pytest.mark.parametrize("pack", [gzip, bz2])
def test_what_is_cut_off_or_damaged(tmp_path, pack):
    whole = pack.compress(svmlight(np.eye(40), np.ones(40)))
    for end in range(1, len(whole), 5):
        refused(_read, written(tmp_path, whole[:end]), 40, 40)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    refused(_read, written(tmp_path, damaged), 40, 40)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (svmlight(np.eye(60)[:, :40], np.arange(60)), "should hold the labels -1 and"),
        (svmlight(np.eye(60)[:, :39], np.ones(60)), "holds 39 features, but the published files 40"),
    ],
)
def test_labels_and_features_are_those_of_the_entry(tmp_path, content, said):
    made = specimen("real-sim")
    path = made.write(tmp_path, 1) / "real-sim/real-sim"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_documents(made.dataset, made.dataset.forms[1], tmp_path)
    assert str(path.parent) in str(caught.value)
