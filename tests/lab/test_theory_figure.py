"""A report as a picture: the right lines, and a file that is whole or absent."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import sparse

from evodrop.lab.theory_figure import draw, save
from evodrop.theory import report

MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".PNG": b"\x89PNG"}


@pytest.fixture(scope="module")
def made():
    X = np.random.default_rng(0).normal(size=(50, 20)) / np.arange(1, 21)
    X[:, 3] = 0.0
    return report(X, 0.4)


@pytest.fixture(params=["drawing", "writing", "renaming"])
def breaking(request, monkeypatch):
    """A picture that fails in the middle of it."""

    def fail(*args, **options):
        raise OSError("no space left")

    place = {"drawing": (Figure, "savefig"), "writing": (os, "fsync"), "renaming": (os, "replace")}
    monkeypatch.setattr(*place[request.param], fail)


def test_two_panels_with_the_lines_of_the_report(made):
    probability, survival = draw(made).axes
    lines = {line.get_label(): line for line in probability.get_lines()}
    assert list(lines) == ["uniform", "data-dependent"]
    np.testing.assert_allclose(lines["uniform"].get_ydata(), 1 / 20)
    np.testing.assert_array_equal(
        lines["data-dependent"].get_ydata(), np.sort(made.noises["data-dependent"].chances)[::-1]
    )
    np.testing.assert_array_equal(lines["uniform"].get_xdata(), np.arange(1, 21))
    assert (probability.get_xscale(), probability.get_yscale(), survival.get_yscale()) == ("log", "log", "linear")
    lines = {line.get_label(): line for line in survival.get_lines()}
    assert set(lines) == {"standard", "uniform", "data-dependent", "water-filling"}
    for name, line in lines.items():
        np.testing.assert_array_equal(line.get_ydata(), np.sort(made.noises[name].survival)[::-1])
    assert len({line.get_color() for line in lines.values()}) == 4
    for panel in (probability, survival):
        assert panel.get_xlabel()
        assert panel.get_ylabel()
        assert [text.get_text() for text in panel.get_legend().get_texts()] == [
            line.get_label() for line in panel.get_lines()
        ]


def test_many_units_are_drawn_by_few_points_from_the_first_to_the_last():
    X = sparse.random_array((50, 200_000), density=0.01, rng=np.random.default_rng(0), format="csr")
    made = report(X)
    for panel in draw(made).axes:
        for line in panel.get_lines():
            rank = line.get_xdata()
            assert len(rank) <= 2000
            assert (rank[0], rank[-1]) == (1, 200_000)
    np.testing.assert_array_equal(line.get_ydata(), np.sort(made.noises[line.get_label()].survival)[::-1][rank - 1])


@pytest.mark.parametrize("ending", MAGIC)
def test_a_picture_is_written_in_the_format_of_its_ending(made, tmp_path, ending):
    path = tmp_path / f"picture{ending}"
    save(made, path)
    save(made, str(path))  # over the old one
    assert path.read_bytes().startswith(MAGIC[ending])
    assert path.stat().st_size > 5000
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_may_be_read_by_whoever_may_read_a_new_file(made, tmp_path):
    (tmp_path / "plain").touch()
    save(made, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_fails_leaves_nothing_behind_and_the_old_picture_as_it_was(made, tmp_path, breaking):
    path = tmp_path / "picture.png"
    with pytest.raises(OSError, match="no space left"):
        save(made, path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    with pytest.raises(OSError, match="no space left"):
        save(made, path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "picture.png.exe", ".png"])
def test_other_endings_are_refused(made, tmp_path, name):
    with pytest.raises(ValueError, match=r"ends in .*, but a figure is written as one of \.png, \.pdf, \.svg"):
        save(made, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(made, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder '.*absent' to write 'a.png' in; make it first"):
        save(made, tmp_path / "absent" / "a.png")


def test_a_folder_is_no_picture(made, tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OSError, match=r"folder\.png"):
        save(made, tmp_path / "folder.png")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.png"]


def test_one_unit_and_one_example_make_a_picture(tmp_path):
    save(report([[3.0]]), tmp_path / "one.png")


def test_without_matplotlib_a_figure_says_what_it_needs(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"a figure needs matplotlib; install evodrop\[lab\]"):
        draw(made)
