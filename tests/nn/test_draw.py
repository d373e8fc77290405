from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from evodrop.nn import EvolutionalDropout, use_backend
from evodrop.nn.draw import draw_seed, path_for


def test_the_device_chooses_the_path():
    assert path_for(torch.device("cpu")).__name__ == "evodrop.nn.cpu"
    assert path_for(torch.device("cuda")).__name__ == "evodrop.nn.device"
    with use_backend("torch"):
        assert path_for(torch.device("cpu")).__name__ == "evodrop.nn.device"
    assert path_for(torch.device("cpu")).__name__ == "evodrop.nn.cpu"


def test_bad_backends_are_named():
    with (
        pytest.raises(ValueError, match="'cuda' is not a backend; choose one of auto, numba, torch"),
        use_backend("cuda"),
    ):
        pass
    with use_backend("numba"), pytest.raises(ValueError, match="takes CPU tensors, but the input is on meta"):
        EvolutionalDropout(0.5)(torch.ones(2, 3, device="meta"))


def test_one_seed_a_call_from_the_global_generator_and_nothing_else():
    torch.manual_seed(1)
    draw_seed(torch.device("cpu"))
    state = torch.get_rng_state()
    for x in (torch.rand(3, 4), torch.rand(300, 40)):
        torch.manual_seed(1)
        EvolutionalDropout(0.5)(x)
        assert torch.equal(torch.get_rng_state(), state)
    EvolutionalDropout(0.5).eval()(torch.ones(3, 4))
    assert torch.equal(torch.get_rng_state(), state)


def test_ranks_that_are_seeded_alike_have_noise_of_their_own(tmp_path):
    code = """
import sys, torch, torch.distributed as dist
from evodrop.nn.functional import bernoulli_dropout
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
mask = (bernoulli_dropout(torch.ones(1000, 100)) > 0).double()
both = [torch.empty_like(mask) for _ in range(2)]
dist.all_gather(both, mask)
a, b = (m.flatten() - 0.5 for m in both)
if rank == 0:
    print(float((a * b).mean() * 4 * len(a) ** 0.5))
dist.destroy_process_group()
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    store = str(tmp_path / "store")
    other = subprocess.Popen([*command, "1", store])
    run = subprocess.run([*command, "0", store], capture_output=True, text=True, timeout=120, check=True)
    assert other.wait(timeout=60) == 0
    assert abs(float(run.stdout)) < 5  # correlation in its standard errors
