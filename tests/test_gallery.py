"""Every script of the gallery runs, warns of nothing and draws. None may need the network."""

from __future__ import annotations

import socket

import matplotlib.pyplot as plt
import pytest
from test_readme import ROOT

SCRIPTS = sorted((ROOT / "docs/gallery").glob("plot_*.py"))


def test_there_are_eight_at_least():
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_draws_and_begins_with_a_title_and_a_sentence(script, monkeypatch):
    shown = []

    def refused(*_):
        raise AssertionError("a script of the gallery asks for the network")

    def show():
        shown.append([axis.has_data() for figure in map(plt.figure, plt.get_fignums()) for axis in figure.axes])
        plt.close("all")

    monkeypatch.setattr(plt, "show", show)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    plt.switch_backend("Agg")
    source = script.read_text(encoding="utf-8")
    space = {"__name__": "__main__"}
    exec(compile(source, script.name, "exec"), space)
    assert shown
    assert all(axes and all(axes) for axes in shown)
    title, rule, blank, sentence = space["__doc__"].strip().splitlines()[:4]
    assert (rule, blank) == ("=" * len(title), "")
    assert sentence
