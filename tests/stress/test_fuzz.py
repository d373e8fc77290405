"""Mutated files: read or refused, in bounded time and memory, nothing run and nothing written.

Some hundred per format by default; ``make stress`` sets EVODROP_STRESS and does 10,000. A failure names the seed of its
mutation.
"""

from __future__ import annotations

import hashlib
import os
import resource
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from helpers import tiny
from helpers.mutations import TARGETS, Mutator, Trial, Unchanged

from evodrop.lab import store

MUTATIONS = 10_000 if "EVODROP_STRESS" in os.environ else 300
SLOWEST = 20.0  # seconds that a case may take
MEMORY = 2_000_000_000  # bytes that may be taken in all


@contextmanager
def limited_memory():
    """Within it, the process may grow by so much; what is imported and compiled once is there before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcomes_of(attempt):
    """How often each outcome of an attempt came for all seeds; an error is a failure that names its seed."""
    attempt(0)
    outcomes = Counter()
    with limited_memory():
        for seed in range(MUTATIONS):
            begun = time.perf_counter()
            try:
                outcomes[attempt(seed)] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}"[:300]) from error
            assert time.perf_counter() - begun < SLOWEST, f"seed {seed} took too long"
    return outcomes


@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_data_are_read_or_refused(tmp_path, kind):
    outcomes = outcomes_of(Trial(kind, tmp_path).run)
    assert set(outcomes) <= {"read", "refused"}
    assert outcomes["refused"] > MUTATIONS / 4  # most damage shows


@pytest.mark.parametrize("kind", TARGETS)
def test_what_is_not_mutated_is_read(tmp_path, kind):
    trial = Trial(kind, tmp_path)
    for layer in trial.target.layers:
        trial.path.write_bytes(layer(trial.content, Unchanged(0, trial.marker)))
        trial.read()


def test_a_mutated_checkpoint_with_a_fitting_digest_is_resumed_refused_or_begun_again(tmp_path):
    """Who can change a file can fit its digest too: torch's own reader has to withstand it."""
    stream = store.keep_records(tiny.training(), tmp_path / "run", every=0)
    list(islice(stream, 3))
    stream.close()
    path, marker, training = tmp_path / "run" / "checkpoint.bin", tmp_path / "marker", tiny.training()
    content, records = path.read_bytes()[32:], (tmp_path / "run" / "records.jsonl").read_bytes()

    def attempt(seed):
        mutated = Mutator(seed, marker)(content)
        path.write_bytes(hashlib.sha256(mutated).digest() + mutated)
        (tmp_path / "run" / "records.jsonl").write_bytes(records)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                lines = store._resumed(training, tmp_path / "run")
            except store.RecordsError:
                assert (tmp_path / "run" / "records.jsonl").read_bytes() == records
                return "refused"
        assert not marker.exists(), "a command was run"
        begun_again = [warning for warning in caught if "begins again" in str(warning.message)]
        assert len(lines) == (1 if begun_again else 3)
        return "begun again" if begun_again else "resumed"

    outcomes = outcomes_of(attempt)
    assert outcomes["begun again"] > MUTATIONS / 4
    assert sorted(os.listdir(tmp_path)) == ["run"]
