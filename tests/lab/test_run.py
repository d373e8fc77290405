from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

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
    assert Run(**FIELDS | {"lr": 1, "rate": 0}).id == Run(**FIELDS | {"lr": 1.0, "rate": 0.0}).id
    assert Run(**FIELDS | {"lr": np.float32(0.5)}).id == Run(**FIELDS | {"lr": 0.5}).id
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
        ({"epochs": 0}, "epochs is 0, but it takes an integer of at least 1"),
        ({"lr": 0.0}, "lr is 0.0, but it takes a positive, finite number"),
        ({"lr": math.inf}, "lr is inf"),
        ({"lr": math.nan}, "lr is nan"),
    ],
)
def test_a_run_without_an_end_or_a_name_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Run(**FIELDS | fields)
