from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "killing.py"


@pytest.mark.parametrize(("times", "options"), [(4, ["--seed", "1"]), (1, ["--compare"])])
def test_runs_killed_at_random_moments_end_in_the_same_records(times, options):
    """A handful of what the script does by default."""
    command = [sys.executable, "-W", "error", SCRIPT, "--times", str(times), *options]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{times} of {times} killed runs ended in records identical" in answer.stdout
