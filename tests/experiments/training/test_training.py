"""A run's whole life: begun, stopped, damaged, gone on, finished."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import warnings
from itertools import islice

import pytest
import tiny
import torch

from evodrop.experiments.methods import USUAL
from evodrop.experiments.records.checkpoints import load_checkpoint, save_checkpoint
from evodrop.experiments.records.folder import RecordsError, read_records, read_timings
from evodrop.experiments.training import keeping as room
from evodrop.experiments.training.keeping import finished_records, train
from evodrop.experiments.training.loop import Training


def live(folder, stop=None, **fields):
    """The records of a run in this folder, up to a number of them."""
    run = tiny.run(**fields)
    network = tiny.network(run.method, run.seed, run.rate, run.match)
    stream = train(run, network, tiny.pixels(), folder, checkpoint_seconds=0)
    records = list(islice(stream, stop))
    stream.close()
    return records


def contents(folder):
    return (folder / "records.jsonl").read_bytes()


def test_what_is_kept_is_what_is_yielded(tmp_path):
    records = live(tmp_path)
    assert records == list(Training(tiny.run(), tiny.network(), tiny.pixels()).records())
    header, kept = read_records(tmp_path)
    assert kept == records
    assert header["run"] == tiny.run().to_dict()
    assert header["data"] == tiny.pixels().fingerprint
    assert {"python", "torch", "evodrop", "cpu", "threads"} <= header["environment"].keys()
    assert sorted(os.listdir(tmp_path)) == ["records.jsonl", "timings.jsonl"]


def test_no_seconds_in_the_records_but_in_the_timings(tmp_path):
    live(tmp_path)
    assert b"second" not in contents(tmp_path)
    start, *stretches, end = read_timings(tmp_path)
    assert (start["event"], start["iteration"]) == ("start", 0)
    assert [(line["iteration"], line["steps"]) for line in stretches] == [
        (3, 3),
        (6, 3),
        (9, 3),
        (12, 3),
        (15, 3),
        (16, 1),
    ]
    assert all(0 < line["median_seconds"] <= line["seconds"] for line in stretches)
    assert all(line["median_cpu_seconds"] > 0 for line in stretches)
    assert (end["event"], end["status"]) == ("end", "finished")
    assert end["seconds_per_iteration"] > 0


@pytest.mark.parametrize("method", USUAL)
def test_stopped_anywhere_it_goes_on_to_the_same_records(tmp_path, method):
    whole = live(tmp_path / "whole", method=method)
    for stop in range(1, len(whole)):
        assert live(tmp_path / str(stop), stop, method=method) == whole[:stop]
        assert live(tmp_path / str(stop), method=method) == whole
        assert contents(tmp_path / str(stop)) == contents(tmp_path / "whole")
        assert read_timings(tmp_path / str(stop))[stop + 1]["iteration"] == 3 * stop - 1  # it did not begin anew


def test_stopped_at_every_record_it_goes_on_to_the_same_records(tmp_path):
    whole = live(tmp_path / "whole")
    for stop in range(1, len(whole) + 1):
        live(tmp_path / "often", stop)
    assert contents(tmp_path / "often") == contents(tmp_path / "whole")


def test_a_finished_run_is_not_repeated(tmp_path):
    records, before = live(tmp_path), contents(tmp_path)
    timings = read_timings(tmp_path)
    (tmp_path / "checkpoint.bin").write_bytes(b"left by a kill after the last record")
    assert live(tmp_path) == records
    assert contents(tmp_path) == before
    assert read_timings(tmp_path) == timings
    assert finished_records(tmp_path, tiny.run()) == records
    assert sorted(os.listdir(tmp_path)) == ["records.jsonl", "timings.jsonl"]


def test_what_is_not_finished_is_not_called_so(tmp_path):
    assert finished_records(tmp_path, tiny.run()) is None
    live(tmp_path, 3)
    assert finished_records(tmp_path, tiny.run()) is None
    live(tmp_path)
    assert finished_records(tmp_path, tiny.run(seed=1)) is None


def test_a_diverged_run_is_finished(tmp_path):
    records = live(tmp_path, lr=1e30)
    assert records[-1]["status"] == "diverged"
    assert finished_records(tmp_path, tiny.run(lr=1e30)) == records
    assert live(tmp_path, lr=1e30) == records


def hostile(state):
    class Payload:
        def __reduce__(self):
            return os.system, ("touch executed",)

    data = pickle.dumps(state | {"payload": Payload()})
    return hashlib.sha256(data).digest() + data


def changed(path, **values):
    """The checkpoint with other values in its state, and a digest that fits."""
    state = load_checkpoint(path)
    save_checkpoint(path, state | {"training": state["training"] | values})


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\1"),
    "hostile": lambda path: path.write_bytes(hostile({})),
    "bare": lambda path: save_checkpoint(path, {}),
    "other run": lambda path: changed(path, run=tiny.run(seed=1).id),
    "too late": lambda path: changed(path, iteration=16),
    "other network": lambda path: changed(path, network={"weight": torch.zeros(2)}),
    "half of a network": lambda path: changed(
        path, network=load_checkpoint(path)["training"]["network"] | {"7.bias": torch.zeros(9)}
    ),
    "other noise": lambda path: changed(path, noise=torch.zeros(2, dtype=torch.uint8)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_of_no_use_is_told_and_the_run_begins_anew(tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 3)
    DAMAGES[damage](tmp_path / "run" / "checkpoint.bin")
    with pytest.warns(RuntimeWarning, match=r"run begins anew, since its checkpoint is of no use: \w+"):
        assert live(tmp_path / "run") == whole
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert [line["trouble"] is None for line in read_timings(tmp_path / "run") if line.get("event") == "start"] == [
        True,
        False,
    ]
    assert sorted(os.listdir(tmp_path)) == ["run", "whole"]  # nothing was executed


def test_records_that_a_checkpoint_does_not_know_are_made_again(tmp_path):
    whole = live(tmp_path / "whole")
    run = tmp_path / "run"
    live(run, 3)
    checkpoint = (run / "checkpoint.bin").read_bytes()
    live(run, 5)
    (run / "checkpoint.bin").write_bytes(checkpoint)
    with open(run / "records.jsonl", "ab") as file:
        file.write(b'{"iteration": 1')
    assert live(run) == whole
    assert contents(run) == contents(tmp_path / "whole")


@pytest.mark.parametrize("keep", [1, 2])
def test_records_that_were_lost_or_changed_make_a_checkpoint_useless(tmp_path, keep):
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 4)
    lines = contents(tmp_path / "run").splitlines(keepends=True)
    (tmp_path / "run" / "records.jsonl").write_bytes(b"".join(lines[:keep]))
    with pytest.warns(RuntimeWarning, match=r"begins anew.*bytes of .*records\.jsonl have changed"):
        assert live(tmp_path / "run") == whole


def test_without_a_checkpoint_it_begins_anew_in_silence(tmp_path):
    """As after a kill before the first one."""
    whole = live(tmp_path / "whole")
    live(tmp_path / "run", 2)
    (tmp_path / "run" / "checkpoint.bin").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert live(tmp_path / "run") == whole


def test_other_data_or_another_run_in_the_folder_is_refused(tmp_path):
    live(tmp_path, 2)
    before = contents(tmp_path)
    other = tiny.pixels()._replace(fingerprint="other")
    with pytest.raises(RecordsError, match="its data is"):
        next(train(tiny.run(), tiny.network(), other, tmp_path))
    with pytest.raises(RecordsError, match="its run is"):
        live(tmp_path, seed=1)
    assert contents(tmp_path) == before


def test_going_on_in_another_environment_is_told(tmp_path, monkeypatch):
    live(tmp_path, 2)
    monkeypatch.setattr(room, "describe_environment", lambda _ranks: {"torch": "9.9"})
    with pytest.warns(RuntimeWarning, match=r"goes on elsewhere, so its last digits may differ: .*became .*9\.9"):
        live(tmp_path)
    header, _ = read_records(tmp_path)
    assert header["environment"]["torch"] != "9.9"
    starts = [line for line in read_timings(tmp_path) if line.get("event") == "start"]
    assert [start["environment"]["torch"] == "9.9" for start in starts] == [False, True]


def test_checkpoints_come_by_the_clock(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(room, "save_checkpoint", lambda _, state: saved.append(state["training"]["iteration"]))
    list(train(tiny.run(), tiny.network(), tiny.pixels(), tmp_path / "never", checkpoint_seconds=1000))
    assert saved == []
    list(train(tiny.run(), tiny.network(), tiny.pixels(), tmp_path / "always", checkpoint_seconds=0))
    assert saved == list(range(1, 16))


def test_bad_seconds_are_named(tmp_path):
    with pytest.raises(ValueError, match="checkpoint_seconds is -1"):
        next(train(tiny.run(), tiny.network(), tiny.pixels(), tmp_path, checkpoint_seconds=-1))


def test_every_line_is_strict_json(tmp_path):
    live(tmp_path, lr=1e30)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    for line in contents(tmp_path).splitlines():
        json.loads(line, parse_constant=refuse)
