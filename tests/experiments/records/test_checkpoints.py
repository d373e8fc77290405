from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from evodrop.experiments.records.checkpoints import CheckpointError, load_checkpoint, save_checkpoint

STATE = {"iteration": 7, "open": {"loss": 0.1 + 0.2}, "velocities": [torch.arange(6.0).view(2, 3).t(), None]}


def with_digest(contents):
    return hashlib.sha256(contents).digest() + contents


def test_round_trip_to_the_last_bit(tmp_path):
    save_checkpoint(tmp_path / "c", STATE)
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded["open"] == STATE["open"]
    assert torch.equal(loaded["velocities"][0], STATE["velocities"][0])
    assert loaded["velocities"][0].stride() == STATE["velocities"][0].stride()
    assert os.listdir(tmp_path) == ["c"]


def test_no_file_is_no_state(tmp_path):
    assert load_checkpoint(tmp_path / "c") is None


def test_damage_is_noticed_wherever_it_is(tmp_path):
    path, rng = tmp_path / "c", np.random.default_rng(0)
    save_checkpoint(path, STATE)
    whole = path.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(path)
    for length in [0, 1, 31, 32, 33, *rng.integers(34, len(whole), 50)]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


class Hostile:
    def __reduce__(self):
        return os.system, ("touch executed",)


def as_torch_file(pickled):
    """A file in torch's format around a pickle of our own."""
    buffer = io.BytesIO()
    torch.save({"a": 1}, buffer)
    changed = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    return changed.getvalue()


@pytest.mark.parametrize("pack", [as_torch_file, bytes], ids=["in torch's format", "bare"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, monkeypatch, pack, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").write_bytes(with_digest(pack(pickle.dumps({"a": Hostile()}, protocol))))
    with pytest.raises(CheckpointError, match="is no checkpoint of ours"):
        load_checkpoint(tmp_path / "c")
    assert os.listdir(tmp_path) == ["c"]


def test_mutated_files_that_carry_a_fitting_digest_raise_one_error_or_load(tmp_path):
    """Who can change a file can fit its digest too: torch's own reader has to withstand it."""
    path, rng = tmp_path / "c", np.random.default_rng(1)
    save_checkpoint(path, STATE)
    contents, refused = path.read_bytes()[32:], 0
    for _ in range(300):
        data = bytearray(contents)
        for position in rng.integers(len(data), size=rng.integers(1, 20)):
            data[position] = rng.integers(256)
        path.write_bytes(with_digest(bytes(data)))
        try:
            assert isinstance(load_checkpoint(path), dict)
        except CheckpointError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("value", [[1], torch.ones(2), 3])
def test_what_is_no_dict_is_no_checkpoint(tmp_path, value):
    save_checkpoint(tmp_path / "c", value)
    with pytest.raises(CheckpointError, match="but a checkpoint is a dict"):
        load_checkpoint(tmp_path / "c")


def test_a_folder_in_its_place_is_an_error_of_ours(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path)
