from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("busy", [1, 8])
def test_a_fork_while_other_threads_compile_leaves_the_child_able_to_compile(busy):
    code = f"""
import os, signal, threading, time
from evodrop._kernels.compile import compiled, compiled_callback
def compile_one():
    assert compiled(lambda x: x + 1)(1) == 2
    assert compiled_callback("int64(int64)")(lambda x: x + 1).ctypes(1) == 2
def keep_compiling():
    while True:
        compile_one()
        time.sleep(0.01)  # the lock is not fair: without a pause, a fork might wait long
for _ in range({busy}):
    threading.Thread(target=keep_compiling, daemon=True).start()
back = 0
for trial in range(5):
    time.sleep(0.01 * trial)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that hangs is ended
        compile_one()
        os._exit(0)
    back += os.waitpid(child, 0)[1] == 0
print(back, flush=True)
os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=False)
    assert run.stdout == "5\n", run.stderr


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
@pytest.mark.parametrize("first_call", [LAYER, FIT], ids=["layer", "fit"])
def test_a_fork_during_the_first_call_of_another_thread_leaves_the_child_able_to_call(first_call, tmp_path):
    code = f"""{first_call}
import os, signal, threading, time
done = threading.Event()
threading.Thread(target=lambda: (call(), done.set()), daemon=True).start()
children = []
for pause in (0.1, 0.4):
    time.sleep(pause)
    cold = not done.is_set()
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # a child that hangs is ended
        call()
        os._exit(0)
    children.append((child, cold))
print(children[0][1], [os.waitpid(child, 0)[1] for child, _ in children], flush=True)
os._exit(0)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # empty: everything is compiled
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=False, env=environment
    )
    assert run.stdout == "True [0, 0]\n", run.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_draws_leaves_the_child_able_to_draw():
    code = """
import os, signal, threading, time, torch
from evodrop.nn._noise import draw_seed
mutex, drawing = threading.Lock(), threading.Event()  # in the place of the one that torch's generator has
def slow_randint(*_, **__):
    with mutex:
        drawing.set()
        time.sleep(0.5)
torch.randint = slow_randint
threading.Thread(target=draw_seed, args=(torch.device("cpu"),), daemon=True).start()
drawing.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)  # a child that hangs is ended
    draw_seed(torch.device("cpu"))
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert run.stdout == "0\n", run.stderr
