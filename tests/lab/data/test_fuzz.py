"""Mutated files without a checksum: read or refused, and nothing written. ``benchmarks/fuzz.py`` does more."""

from __future__ import annotations

import pytest
from helpers.mutations import TARGETS, Trial, Unchanged

N_MUTATIONS = 300


@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_files_are_read_or_refused(tmp_path, kind):
    trial = Trial(kind, tmp_path)
    outcomes = [trial.run(seed) for seed in range(N_MUTATIONS)]
    assert set(outcomes) <= {"read", "refused"}
    assert outcomes.count("refused") > N_MUTATIONS / 4  # most damage shows


@pytest.mark.parametrize("kind", TARGETS)
def test_what_is_not_mutated_is_read(tmp_path, kind):
    trial = Trial(kind, tmp_path)
    for layer in trial.target.layers:
        trial.path.write_bytes(layer(trial.content, Unchanged(0, trial.marker)))
        trial.read()
