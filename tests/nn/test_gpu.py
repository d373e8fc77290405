"""The Triton kernels against a NumPy model of their stream, the plain path and the law.

On a machine without a GPU they run in Triton's interpreter, on CPU tensors.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chi_square import multinomial_p_value, none_rejected, random_cases

from evodrop import stream
from evodrop.nn import EvolutionalDropout, EvolutionalDropout2d, device, functional, gpu, use_backend
from evodrop.nn.alias import build_table, table_bits
from evodrop.nn.draw import path_for
from evodrop.nn.law import Law, find_chances

pytest.importorskip("triton", reason="Triton is not installed")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu" and not gpu._kernels().INTERPRETED:
    pytest.skip("there is no GPU, and TRITON_INTERPRET=1 is not set", allow_module_level=True)

LAWS = [
    Law("batch", 0.5),
    Law("batch", 0.3, uniform_mix=0.1),
    Law("batch", 0.5, match="noise"),  # k stays on the device
    Law("batch", 0.5, match="distinct"),
    Law("probs", 0.5, k=300),  # a count may pass 255
    Law("batch", 0.5, scheme="bernoulli"),
    Law("keep", 0.5),
]
SHAPES = [(1, 1), (3, 2), (300, 5), (5, 64), (3, 1500), (2, 2048)]  # rows to a tile, and tiles to a row


def hashed(z):
    for shift, factor in stream.HASH:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z


def model_of_counts(probs, k, size, seed):
    """The stream in NumPy: word t of row r, its bucket, the unit that the alias table has for it, one by one."""
    bits, table = table_bits(len(probs)), build_table(torch.from_numpy(probs)).numpy()
    rows, draws = np.arange(size, dtype=np.uint64)[:, None], np.arange(k, dtype=np.uint64)
    keys = hashed(np.uint64(seed % 2**64) + rows * np.uint64(stream.ROW_STEP))
    words = (hashed(keys + draws * np.uint64(stream.GOLDEN)) >> np.uint64(2)).astype(np.int64)
    bucket, rest = words >> (62 - bits), words % (1 << (62 - bits))
    units = np.where(rest < table[bucket] >> bits, bucket, table[bucket] % (1 << bits))
    return np.stack([np.bincount(row, minlength=len(probs)) for row in units])


def dropped(path, rows, law, seed=-12345):
    output = torch.empty_like(rows)
    return (*path.drop(rows, law, None, torch.tensor(seed, device=DEVICE), output), output)


@pytest.mark.parametrize("seed", [0, 2**62 + 1, -1])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_counts_are_those_of_the_numpy_model(n, d, seed):
    rows = torch.randn(n, d, dtype=torch.float64, device=DEVICE)
    probs = find_chances(Law("batch", 0.5), rows.square().mean(0).sqrt().cpu().numpy(), None).chances
    k = max(1, d // 2)
    law = Law("probs", 0.5, k=k)
    drawn = gpu.drop(rows, law, torch.from_numpy(probs).to(DEVICE), torch.tensor(seed, device=DEVICE), None)
    chances = device.find(rows, law, torch.from_numpy(probs).to(DEVICE)).chances.cpu().numpy()
    np.testing.assert_array_equal(drawn[0].cpu().numpy(), model_of_counts(chances, k, n, seed))


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize(("n", "d"), [(300, 5), (3, 1500)])
def test_the_plain_path_gives_the_same_bits(n, d, law):
    rows = torch.randn(n, d, device=DEVICE)
    for ours, theirs in zip(dropped(gpu, rows, law), dropped(device, rows, law), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types_give_the_same_bits(dtype):
    rows = torch.randn(3, 70, device=DEVICE).to(dtype)
    ours, theirs = dropped(gpu, rows, LAWS[0]), dropped(device, rows, LAWS[0])
    assert all(map(torch.equal, ours[:2], theirs[:2]))
    if dtype == torch.bfloat16 and DEVICE.type == "cpu":  # the interpreter cuts bits off where a GPU rounds
        theirs[2][...] = (rows * (theirs[0] * theirs[1])).view(torch.int32).bitwise_and(-(2**16)).view(torch.float32)
    assert torch.equal(ours[2], theirs[2])


def test_a_row_too_wide_for_tiles_gives_the_same_bits(monkeypatch):
    rows = torch.randn(3, 100, device=DEVICE)
    by_tiles = dropped(gpu, rows, LAWS[0])
    monkeypatch.setattr(gpu, "BINS", 8)
    assert all(map(torch.equal, dropped(gpu, rows, LAWS[0]), by_tiles))


def test_odd_batches_are_as_everywhere():
    rows = torch.ones(4, 3, device=DEVICE)
    rows[:, 1] = float("nan")
    assert (dropped(gpu, rows, Law("batch", 0.5, k=2))[0].sum(1) == 3).all()  # a bad unit passes, the others are drawn
    zeros = torch.zeros(4, 3, device=DEVICE)
    assert torch.equal(dropped(gpu, zeros, LAWS[0])[2], zeros)


def test_the_joint_distribution_is_multinomial(monkeypatch):
    """As for the core but with fewer draws, in one tile that would not fit a GPU: the interpreter is slow, and its time
    goes by programs. The plain path, which gives the same bits, is tested with all the draws."""
    size, p_values = 2**15, []
    for case in random_cases():
        if DEVICE.type == "cpu":
            monkeypatch.setattr(gpu, "BINS", size << table_bits(len(case.probs)))
            monkeypatch.setattr(gpu, "DRAWS", size * 8)
        law, probs = Law("probs", 0.5, k=case.k), torch.from_numpy(case.probs).to(DEVICE)
        seed = torch.tensor(case.seed, device=DEVICE)
        counts, _ = gpu.drop(torch.ones(size, len(probs), device=DEVICE), law, probs, seed, None)
        p_values.append(multinomial_p_value(counts.cpu().numpy(), case.probs, case.k))
    assert none_rejected(p_values)


@pytest.mark.parametrize("layer", [EvolutionalDropout(0.5), EvolutionalDropout2d(0.5)], ids=str)
def test_the_gradient_is_the_gradient_of_the_output_times_the_noise(layer):
    x = torch.rand(4, 6, 3, 2, device=DEVICE, requires_grad=True)
    with use_backend("triton"):
        y = layer(x)
        grad = torch.randn_like(y)
        y.backward(grad)
    torch.testing.assert_close(x.grad, grad * (y / x).detach())
    assert (y == 0).any()


def test_gradients_pass_the_check_of_torch():
    x = torch.rand(3, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def same_noise_each_time(x):
        torch.manual_seed(1)
        return functional.multinomial_dropout(x, 0.5)

    with use_backend("triton"):
        assert torch.autograd.gradcheck(same_noise_each_time, x)
        assert torch.autograd.gradgradcheck(same_noise_each_time, x)


def test_a_layer_gives_the_noise_of_the_plain_path_compiled_or_not():
    x = torch.rand(8, 20, device=DEVICE)
    layer, outputs = EvolutionalDropout(0.5), []
    for name, call in (("torch", layer), ("triton", layer), ("triton", torch.compile(layer, backend="eager"))):
        torch.manual_seed(3)
        with use_backend(name):
            outputs.append(call(x))
    assert torch.equal(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])


def test_the_kernels_prove_themselves_or_are_not_used(monkeypatch):
    assert gpu._problem(DEVICE) is None
    right = gpu.drop
    monkeypatch.setattr(gpu, "drop", lambda rows, *others: right(rows + 1, *others))
    assert gpu._problem(DEVICE) == "they give other noise than the plain path there"

    def fail(*_):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(gpu, "drop", fail)
    assert gpu._problem(DEVICE) == "they fail there: RuntimeError: no C compiler"


def test_a_gpu_is_tried_once_and_told_of(monkeypatch):
    """A GPU that is pretended, since there may be none."""
    card = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    tries = []
    monkeypatch.setattr(gpu, "_problem", tries.append)
    gpu.obstacle.cache_clear()
    assert [path_for(card).__name__ for _ in range(2)] == ["evodrop.nn.gpu"] * 2
    assert tries == [card]
    with use_backend("torch"):
        assert path_for(card).__name__ == "evodrop.nn.device"
    monkeypatch.setattr(gpu, "_problem", lambda _: "they fail there: no C compiler")
    gpu.obstacle.cache_clear()
    with pytest.warns(UserWarning, match="not used on cuda:0, they fail there: no C compiler"):
        assert path_for(card).__name__ == "evodrop.nn.device"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    gpu.obstacle.cache_clear()
    assert gpu.obstacle(card) == "cuda:0 has compute capability (7, 5), but it needs (8, 0)"
    gpu.obstacle.cache_clear()


def test_what_stands_in_the_way_is_named(monkeypatch):
    with use_backend("triton"), pytest.raises(ValueError, match="tensors on a CUDA device, not on meta; use the back"):
        EvolutionalDropout(0.5)(torch.ones(2, 3, device="meta"))

    def missing():
        raise ModuleNotFoundError("No module named 'triton'")

    monkeypatch.setattr(gpu, "_kernels", missing)
    gpu.obstacle.cache_clear()
    with use_backend("triton"), pytest.raises(ValueError, match="cannot be used: it needs Triton: No module named"):
        EvolutionalDropout(0.5)(torch.ones(2, 3))
    gpu.obstacle.cache_clear()
