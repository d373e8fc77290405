"""The words of ``evodrop compare`` become a panel, or an error that names its option."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import sparse_text

from evodrop.lab import training
from evodrop.lab.data import Images
from evodrop.lab.experiment import USUAL_TEXT, panel_for
from evodrop.lab.methods import LINEAR_METHODS, METHODS, USUAL
from evodrop.lab.panels import DEEP_GRID, LINEAR_GRID


def labels(panel):
    return [variant.label for variant in panel.variants]


@pytest.fixture
def made_up(monkeypatch):
    """Text and pictures that nobody has to download, under names that data sets have, and one that none has."""
    pictures, numbers = np.zeros((2, 3, 32, 32), np.uint8), np.array([0, 1])
    images, words = Images("cifar10", pictures, numbers, pictures, numbers, 10), sparse_text.documents()
    known = {"cifar10": images, "20news": words, "words": words}
    monkeypatch.setattr(training, "load_once", lambda name, _: known[name])


def test_the_default_is_the_usual_methods_on_the_digits_with_three_seeds():
    panel = panel_for("digits")
    assert (panel.dataset, panel.network, panel.grid, panel.seeds) == ("digits", "digits", (0.01,), 3)
    assert labels(panel) == list(USUAL)
    assert (panel.baseline, panel.challenger) == ("standard", "evolutional")
    runs = panel.final_runs(dict.fromkeys(labels(panel), 0.01))
    assert len({run.id for run in runs}) == 18
    assert {(run.rate, run.match, run.batch_size, run.momentum, run.eval_every) for run in runs} == {
        (0.5, "draws", 128, 0.9, 11)
    }


def test_all_is_every_method_that_finds_its_place(made_up, capsys):
    assert labels(panel_for("words", ["all", "none"])) == list(LINEAR_METHODS)
    assert capsys.readouterr().err == ""
    assert labels(panel_for("cifar10", ["all"])) == [method for method in METHODS if method != "dropconnect"]
    assert capsys.readouterr().err.startswith("evodrop: dropconnect is left out. convert_dropout: layer 'dropout'")
    with pytest.raises(ValueError, match=r"DropConnectLinear works on the nn\.Linear or nn\.Conv2d before"):
        panel_for("cifar10", ["standard", "dropconnect"])


def test_all_methods_find_their_place_in_the_network_of_the_digits(capsys):
    assert labels(panel_for("digits", ["all"])) == list(METHODS)
    assert capsys.readouterr().err == ""


def test_text_is_learned_by_linear_methods(made_up):
    panel = panel_for("words", ["standard", "evolutional", "data-dependent"])
    assert labels(panel) == ["standard", "data-dependent"]
    assert (panel.network, panel.grid, panel.epochs, panel.batch_size) == ("linear", LINEAR_GRID, 10, 1)
    assert panel.challenger == "data-dependent"
    assert labels(panel_for("words")) == list(USUAL_TEXT)
    assert panel_for("20news").grid == (1.0,)  # known to be good


@pytest.mark.parametrize(
    ("network", "grid"), [("auto", (0.01,)), ("cifar10-bn", (0.001,)), ("cifar10-nobn", (0.001,)), ("svhn", DEEP_GRID)]
)
def test_a_step_is_known_to_be_good_for_a_network_not_for_a_data_set(made_up, network, grid):
    assert panel_for("cifar10", network=network).grid == grid


def test_a_match_and_a_rate_are_given_to_the_methods_that_have_them():
    panel = panel_for("digits", rate="0.2", match="noise", lr="grid", epochs=7)
    assert {item.label: (item.rate, item.match) for item in panel.variants} == {
        "none": (0.5, "draws"),
        "standard": (0.2, "draws"),
        "uniform": (0.2, "noise"),
        "evolutional": (0.2, "noise"),
        "water-filling": (0.2, "noise"),
        "batchnorm": (0.5, "draws"),
    }
    assert (panel.grid, panel.epochs) == (DEEP_GRID, 7)


@pytest.mark.parametrize(
    ("dataset", "methods", "options", "words"),
    [
        ("digits", ["dropout"], {}, "--methods names 'dropout', but those of networks are none, standard"),
        ("words", ["batchnorm"], {}, "--methods names 'batchnorm', but those of linear models are none"),
        ("digits", [], {}, "--methods names none; name some of none, standard"),
        ("digits", None, {"network": "cifar10"}, "the network 'cifar10' takes 3 channels of 24 x 24"),
        ("digits", None, {"network": "lenet"}, "network is 'lenet', but it is one of 'digits'"),
        ("words", None, {"network": "mnist"}, "--network is 'mnist', but text is learned by a linear model"),
        ("digits", None, {"rate": "much"}, r"--rate is 'much', but it is a number in \[0, 1\), or 'tune'"),
        ("digits", None, {"rate": "1"}, r"--rate is '1', but it is a number in \[0, 1\), or 'tune'"),
        ("digits", None, {"rate": "nan"}, "--rate is 'nan'"),
        ("digits", None, {"match": "luck"}, "--match is 'luck', but it is one of draws, distinct, noise"),
        ("digits", None, {"lr": "fast"}, "--lr is 'fast', but it is a number above 0, or 'grid'"),
        ("digits", None, {"lr": "-1"}, "--lr is '-1'"),
        ("digits", None, {"lr": "inf"}, "--lr is 'inf'"),
        ("digits", None, {"lr": "nan"}, "--lr is 'nan'"),
        ("digits", None, {"rate": "tune", "match": "noise"}, "--match is 'noise' and --rate is 'tune', but a match"),
        ("digits", None, {"rate": "tune", "match": "distinct"}, "name a rate, or leave the match out"),
    ],
)
def test_what_does_not_go_together_is_refused(request, dataset, methods, options, words):
    if dataset == "words":
        request.getfixturevalue("made_up")
    with pytest.raises(ValueError, match=words):
        panel_for(dataset, methods, **options)
