"""Children forked while other threads make the first call of a layer or a fit, with nothing compiled before, come back.

Two forks of each kind by default; ``make stress`` sets EVODROP_STRESS and does 100, ten of a process. The number of a
test is the seed of its moments.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LONG = "EVODROP_STRESS" in os.environ
FORKS = 10 if LONG else 2  # of a process
LAYER = """
import torch
from evodrop.nn import EvolutionalDropout
def call(): EvolutionalDropout(0.5)(torch.ones(300, 1000))
"""
FIT = """
import numpy as np
from scipy.sparse import csr_array
from evodrop.linear import DropoutSGDClassifier
def call(): DropoutSGDClassifier(max_iter=1, tol=None).fit(csr_array(np.eye(50)), np.arange(50) % 2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("number", range(5 if LONG else 1))
@pytest.mark.parametrize("first_call", [LAYER, FIT], ids=["layer", "fit"])
@pytest.mark.parametrize("threads", [1, 8])
def test_a_fork_during_the_first_call_of_other_threads_leaves_the_child_able_to_call(
    threads, first_call, number, tmp_path
):
    code = f"""{first_call}
import os, random, signal, threading, time
done, random = threading.Event(), random.Random({number})
for _ in range({threads}):
    threading.Thread(target=lambda: (call(), done.set()), daemon=True).start()
children, cold = [], 0
for _ in range({FORKS}):
    time.sleep(random.uniform(0.1, 0.5))
    cold += not done.is_set()
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # a child that hangs is ended
        call()
        os._exit(0)
    children.append(child)
print(cold > 0, sum(os.waitpid(child, 0)[1] == 0 for child in children), flush=True)
os._exit(0)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # empty: everything is compiled
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False, env=environment
    )
    assert run.stdout == f"True {FORKS}\n", run.stderr
