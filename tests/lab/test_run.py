from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from evodrop.lab.methods import METHODS
from evodrop.lab.run import Run

FIELDS = {"dataset": "mnist", "network": "mnist", "method": "evolutional", "seed": 0, "lr": 0.005, "epochs": 10}
LINEAR = {"dataset": "words", "network": "linear", "method": "data-dependent", "seed": 0, "lr": 0.5, "epochs": 3}


def test_the_paper_protocol_is_the_default():
    run = Run(**FIELDS)
    assert (run.rate, run.match, run.batch_size, run.momentum, run.weight_std) == (0.5, "draws", 128, 0.9, 0.01)


def test_every_field_has_a_part_in_the_id():
    other = {
        "dataset": "svhn",
        "network": "svhn",
        "method": "none",
        "seed": 1,
        "lr": 0.01,
        "epochs": 11,
        "rate": 0.4,
        "match": "noise",
        "batch_size": 100,
        "momentum": 0.0,
        "weight_std": 0.02,
        "decay": (5,),
        "eval_every": 50,
        "probe": 10,
    }
    assert set(other) == {field.name for field in dataclasses.fields(Run)}
    ids = {Run(**FIELDS | {name: value}).id for name, value in other.items()} | {Run(**FIELDS).id}
    assert len(ids) == len(other) + 1


def test_equal_values_make_equal_runs():
    assert Run(**FIELDS | {"lr": 1, "decay": [2, 4]}).id == Run(**FIELDS | {"lr": 1.0, "decay": (2, 4)}).id
    assert Run(**FIELDS | {"seed": np.int64(0), "lr": np.float32(0.5)}).id == Run(**FIELDS | {"lr": 0.5}).id
    assert hash(Run(**FIELDS)) == hash(Run(**FIELDS))


def test_the_id_is_readable_and_safe_as_a_folder():
    assert Run(**FIELDS | {"network": "cifar10-bn"}).id.startswith("mnist-cifar10-bn-evolutional-lr0.005-seed0-")
    for name in ("../../etc/passwd", "svm:a/b.bz2,/c d.bz2", "..", "ü" * 300):
        run = Run(**FIELDS | {"dataset": name, "network": name})
        assert len(Path(run.id).parts) == 1
        assert run.id[0] not in ".-"
        assert run.id.isascii()
        assert len(run.id) < 120


def test_round_trip_through_json():
    run = Run(**FIELDS | {"decay": (3, 7), "match": "distinct"})
    assert Run(**json.loads(json.dumps(run.to_dict()))) == run
    assert json.loads(json.dumps(run.to_dict())) == run.to_dict()  # a header that was read is compared with it
    assert list(run.to_dict()) == [field.name for field in dataclasses.fields(Run)]  # the order of a header


def test_a_linear_run_has_what_a_linear_model_has():
    run = Run(**LINEAR)
    assert list(run.to_dict()) == [*LINEAR, "rate", "match", "eval_every"]
    assert Run(**json.loads(json.dumps(run.to_dict()))) == run
    assert run.id.startswith("words-linear-data-dependent-lr0.5-seed0-")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "dropout"}, "method is 'dropout', but it is one of 'none', 'standard'"),
        ({"match": "k"}, "match is 'k', but it is one of 'draws'"),
        ({"seed": -1}, "seed is -1, but it takes an integer of at least 0"),
        ({"lr": 0.0}, "lr is 0.0, but it takes a positive, finite number"),
        ({"lr": math.inf}, "lr is inf"),
        ({"lr": math.nan}, "lr is nan"),
        ({"lr": "0.1"}, "lr is '0.1'"),
        ({"epochs": 0}, "epochs is 0, but it takes an integer of at least 1"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"epochs": "1"}, "epochs is '1'"),
        ({"rate": 1.0}, r"rate is 1.0, but it takes a number in \[0, 1\)"),
        ({"rate": None}, "rate is None"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"momentum": -0.1}, "momentum is -0.1"),
        ({"weight_std": -1}, "weight_std is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"eval_every": 0}, "eval_every is 0"),
        ({"probe": 0}, "probe is 0"),
        (LINEAR | {"method": "evolutional"}, "method is 'evolutional', but it is one of 'none', 'standard'"),
        (LINEAR | {"batch_size": 64}, "batch_size is 64, but a linear model has none; leave it out"),
        (LINEAR | {"decay": (3,)}, r"decay is \(3,\), but a linear model has none"),
    ],
)
def test_what_would_train_something_else_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Run(**FIELDS | fields)


def test_every_method_can_be_run():
    assert {Run(**FIELDS | {"method": method}).method for method in METHODS} == set(METHODS)
