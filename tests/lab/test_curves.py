from __future__ import annotations

import json
import math

import numpy as np
import pytest
from helpers.synthetic import layer, record, run_fields, write_errors, write_run

from evodrop.lab.curves import read_curve, read_curves
from evodrop.lab.store import RecordsError


def test_a_curve_is_what_was_recorded(tmp_path):
    records = [
        record(1, noisy_error=0.5, clean_error=0.25, test_error=0.75, layers=[layer("drop", 0.1)]),
        record(2, status="diverged"),
    ]
    curve = read_curve(write_run(tmp_path, records, cpu_seconds=0.5, seed=3, method="evolutional"))
    np.testing.assert_array_equal(curve.iterations, [100, 200])
    np.testing.assert_array_equal(curve.noisy, [0.5, math.nan])
    np.testing.assert_array_equal(curve.clean, [0.25, math.nan])
    np.testing.assert_array_equal(curve.test, [0.75, math.nan])
    assert (curve.seed, curve.method, curve.network, curve.match, curve.rate) == (
        3,
        "evolutional",
        "mnist",
        "draws",
        0.5,
    )
    assert (curve.diverged, curve.cpu_seconds) == (True, 0.5)
    assert curve.layers[0][0] == layer("drop", 0.1)
    assert curve.layers[1] == ()
    assert curve.header["environment"]["cpu"] == "made up"


def test_a_folder_of_runs_gives_all_of_them_once(tmp_path):
    folders = [write_errors(tmp_path, [0.5], seed=seed) for seed in (1, 0)]
    write_run(tmp_path, [], seed=2)  # nothing recorded yet
    assert [curve.seed for curve in read_curves([tmp_path, folders[0]])] == [0, 1]


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_runs_is_an_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordsError, match=f"there is no run in .*{name}"):
        read_curves([tmp_path / name])


def corrupted(tmp_path, records, **fields):
    """A run's folder, written by hand."""
    lines = [{"run": run_fields(**fields)}, *records]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_error": "0.5"}, "test_error is '0.5', but it is a finite number from 0 to 1"),
        ({"test_error": 1.5}, "test_error is 1.5"),
        ({"clean_error": math.nan}, "clean_error is nan"),
        ({"noisy_error": True}, "noisy_error is True"),
        ({"iteration": -1}, "iteration is -1"),
        ({"iteration": 10**400}, "iteration is 1000"),
        ({"iteration": None}, "iteration is None"),
        ({"status": "<b>"}, "status is '<b>', but it is one of running, finished, diverged"),
        ({"layers": "x"}, "layers is 'x', but it is a list of objects"),
        ({"layers": [3]}, "layer is 3, but it is an object"),
        ({"layers": [{"name": 1}]}, "name is 1, but it is a word"),
        ({"layers": [layer("a", 0.1) | {"name": 1}]}, "name is 1, but it is a word"),
        ({"layers": [layer("a", 0.1) | {"probs": None}]}, "probs is None, but it is a list of quantiles"),
        ({"layers": [layer("a", 0.1) | {"kept": True}]}, "kept is True"),
        ({"layers": [layer("a", 0.1) | {"units": 0}]}, "units is 0"),
        ({"layers": [layer("a", 0.1) | {"probs": [0.5, None]}]}, "probs is None"),
        ({"layers": [layer("a", 0.1) | {"noise": math.inf}]}, "noise is inf"),
    ],
)
def test_a_record_that_makes_no_sense_is_named(tmp_path, change, words):
    with pytest.raises(RecordsError, match=words.replace("(", r"\(")) as error:
        read_curve(corrupted(tmp_path, [record(1) | change]))
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("method", 3), ("dataset", None), ("rate", 2), ("lr", math.inf), ("seed", -1), ("epochs", "many"), ("match", [])],
)
def test_a_header_that_makes_no_sense_is_named(tmp_path, field, value):
    with pytest.raises(RecordsError, match=field):
        read_curve(corrupted(tmp_path, [record(1)], **{field: value}))


def test_a_header_without_fields_and_iterations_out_of_order_are_named(tmp_path):
    with pytest.raises(RecordsError, match="do not ascend"):
        read_curve(corrupted(tmp_path, [record(2), record(1)]))
    (tmp_path / "records.jsonl").write_text('{"run": 3}\n')
    with pytest.raises(RecordsError, match="run is 3, but it is an object with named fields"):
        read_curve(tmp_path)


@pytest.mark.parametrize("line", ['{"median_cpu_seconds": "soon"}', '{"median_cpu_seconds": []}'])
def test_timings_that_make_no_sense_are_named(tmp_path, line):
    folder = corrupted(tmp_path, [record(1)])
    (folder / "timings.jsonl").write_text(line + "\n")
    with pytest.raises(RecordsError, match="timings"):
        read_curve(folder)


def test_seconds_are_the_median_of_the_stretches_and_damaged_lines_are_passed_over(tmp_path):
    folder = corrupted(tmp_path, [record(1)])
    assert read_curve(folder).cpu_seconds is None
    stretches = "".join(f'{{"median_cpu_seconds": {seconds}}}\n[]\n\0\n' for seconds in (9.0, 0.5, 0.1))
    (folder / "timings.jsonl").write_text(stretches + '{"event": "start"}\n{"median_cpu_seconds": null}\n{"median')
    assert read_curve(folder).cpu_seconds == 0.5
