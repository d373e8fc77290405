from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch  # brings OpenMP along

from evodrop._kernels import threads
from evodrop._kernels.rows import build_table, plan_mask
from evodrop._kernels.threads import DRAWS, FINITE, MASK, MOMENTS, NOISE, PRODUCTS, run_section, useful_threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(301, 500))


@pytest.fixture(params=["OpenMP", "Python threads"])
def team(request, monkeypatch):
    if request.param == "Python threads":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip(f"torch {torch.__version__} brings no libgomp")


@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_every_column_is_summed_and_every_row_multiplied_once(team, number):
    moments, products = np.full(500, np.nan), np.full_like(X, np.nan)
    counts, scale = RNG.integers(0, 9, X.shape, np.uint8), RNG.random(500)
    assert run_section(MOMENTS, number, x=X, moments=moments)
    assert run_section(PRODUCTS, number, x=X, counts=counts, scale=scale, products=products)
    np.testing.assert_allclose(moments, (X**2).mean(axis=0))
    np.testing.assert_allclose(products, X * (counts * scale))
    assert run_section(NOISE, number, counts=counts, scale=scale, products=products)
    np.testing.assert_array_equal(products, counts * scale)


@pytest.mark.parametrize("number", [1, 2, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_reported_where_it_has_to_be(team, number, value):
    counts, plan = np.empty(X.shape, np.uint8), plan_mask(np.full(500, 0.5))
    assert run_section(MASK | FINITE, number, x=X, counts=counts, plan=plan)
    odd = X.copy()
    odd[300, 499] = value
    assert not run_section(MASK | FINITE, number, x=odd, counts=counts, plan=plan)
    assert run_section(MASK, number, x=odd, counts=counts, plan=plan)


@pytest.mark.parametrize("number", [2, 8])
def test_counts_and_masks_do_not_depend_on_the_team(team, number):
    table, chances = build_table(np.full(500, 1 / 500), 9), plan_mask(np.full(500, 0.5))
    for task, words, bits, k in ((DRAWS, table, 9, 250), (MASK, chances, 0, 0)):
        results = [np.empty((301, 500), np.uint8) for _ in range(2)]
        for counts, threads_used in zip(results, (1, number), strict=True):
            assert run_section(task, threads_used, counts=counts, plan=words, seed=2**64 - 1, bits=bits, k=k)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("number", [1, 2, 8])
def test_a_wrapped_count_is_reported(team, number):
    counts, table = np.empty((5000, 2), np.uint8), build_table(np.array([1.0, 0.0]), 1)
    assert run_section(DRAWS, number, counts=counts, plan=table, bits=1, k=255)
    assert not run_section(DRAWS, number, counts=counts, plan=table, bits=1, k=256)


def test_many_callers_at_once(team):
    def work(seed):
        generator = np.random.default_rng(seed)
        counts, scale = generator.integers(0, 9, X.shape, np.uint8), generator.random(500)
        products = np.empty_like(X)
        for _ in range(20):
            run_section(PRODUCTS, 4, x=X, counts=counts, scale=scale, products=products)
            np.testing.assert_allclose(products, X * (counts * scale))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_threads_that_would_not_pay_stay_away():
    assert useful_threads(8, 10) == 1
    assert useful_threads(8, 10**9) == 8
    assert useful_threads(1, 10**9) == 1


def test_an_interrupt_takes_no_memory_from_the_helpers():
    code = """
import signal, time, numpy as np
from evodrop.sampling import sample_counts  # without torch: Python threads
def work(): sample_counts(np.ones(1_000_000), 8_000_000, 3, 0)
work()
start = time.perf_counter()
work()
third = (time.perf_counter() - start) / 3  # on a fast machine, too, the alarm comes before the end
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
for _ in range(3):
    try:
        signal.setitimer(signal.ITIMER_REAL, third)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt: print("interrupted")
time.sleep(0.5)
print(sample_counts(np.ones(3), 5, 1, 0).sum())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (run.stdout.splitlines()[-1], run.returncode) == ("5", 0), run.stderr
    assert "interrupted" in run.stdout


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm on this system")
@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_of_a_long_section_is_heard_within_a_second(team, number):
    def interrupt(*_):
        raise KeyboardInterrupt

    counts, table = np.empty((4000, 1000), np.int32), build_table(np.full(1000, 1e-3), 10)
    run_section(DRAWS, number, counts=counts[:1], plan=table, bits=10, k=1000)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            run_section(DRAWS, number, counts=counts, plan=table, bits=10, k=10**6)
        assert time.perf_counter() - start < 1.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
