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
