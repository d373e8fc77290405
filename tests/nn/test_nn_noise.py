"""The ecosystem: compilers, checkpointing, autocast, transforms, threads, forks."""

from __future__ import annotations

import copy
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

from evodrop.nn import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout2d,
    MultinomialDropout,
    WaterFillingDropout,
    _noise,
    use_backend,
)
from evodrop.nn._noise import draw_seed, uses_numba
from evodrop.nn.functional import evolutional_dropout, multinomial_dropout

LAYERS = [
    EvolutionalDropout(0.5),
    WaterFillingDropout(0.5),
    EvolutionalDropout(0.3, match="noise", uniform_mix=0.1),
    EvolutionalDropout(0.3, match="distinct"),
    MultinomialDropout(0.5, probs=torch.arange(1.0, 33.0)),
    BernoulliDropout(0.2),
    DataDependentDropout.from_data(torch.randn(50, 32), 0.5),
]
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")


def seeded(function, *arguments, seed=3):
    torch.manual_seed(seed)
    return function(*arguments)


def values_and_gradient(model, x, seed=3):
    x = x.clone().requires_grad_()
    y = seeded(model, x, seed=seed)
    y.square().sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
def test_compiled_without_a_graph_break_and_equal_to_eager(layer, compiler):
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), layer)
    x = torch.randn(16, 32)
    eager = values_and_gradient(model, x)
    compiled = torch.compile(model, fullgraph=True, backend=compiler)
    torch.testing.assert_close(values_and_gradient(compiled, x), eager)
    assert not torch.equal(values_and_gradient(compiled, x, seed=4)[0], eager[0])


def test_compiled_calls_with_equal_inputs_have_different_noise():
    torch.compiler.reset()
    twice = torch.compile(
        lambda x: evolutional_dropout(x) - evolutional_dropout(x), fullgraph=True, backend="aot_eager"
    )
    assert twice(torch.ones(8, 32)).any()


def test_compiled_for_any_batch_size():
    torch.compiler.reset()
    layer = EvolutionalDropout(0.5)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (4, 7, 11):
        x = torch.randn(size, 32)
        torch.testing.assert_close(seeded(compiled, x), seeded(layer, x), rtol=0, atol=0)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_gives_the_gradient_of_the_plain_run(backend, layer, use_reentrant):
    model = nn.Sequential(nn.Linear(32, 32), layer, nn.ReLU())
    x = torch.randn(16, 32)
    saved = values_and_gradient(lambda x: checkpoint(model, x, use_reentrant=use_reentrant), x)
    torch.testing.assert_close(saved, values_and_gradient(model, x), rtol=0, atol=0)


def test_checkpointing_inside_a_compiled_model():
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(32, 32), EvolutionalDropout(0.5), nn.ReLU())
    saving = torch.compile(lambda x: checkpoint(model, x, use_reentrant=False), backend="aot_eager")
    x = torch.randn(16, 32)
    torch.testing.assert_close(values_and_gradient(saving, x), values_and_gradient(model, x))


def test_autocast_keeps_bfloat16():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), EvolutionalDropout(0.5), nn.Linear(64, 4))
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model[:3](torch.randn(8, 32))
        loss = model(torch.randn(8, 32)).float().square().mean()
    assert hidden.dtype == torch.bfloat16
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_export_in_eval(layer):
    model = nn.Sequential(nn.Linear(32, 32), copy.deepcopy(layer)).eval()
    x = torch.randn(3, 32)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


def test_fake_tensors_know_the_shape():
    with torch._subclasses.FakeTensorMode():
        assert EvolutionalDropout(0.5)(torch.randn(3, 5)).shape == (3, 5)
        assert EvolutionalDropout2d(0.5)(torch.randn(3, 5, 2, 2)).shape == (3, 5, 2, 2)


@pytest.mark.parametrize("size", [1, 3])
def test_vmap_with_different_noise(backend, size):
    layer = EvolutionalDropout(0.5)
    y = vmap(layer, randomness="different")(torch.ones(6, size, 40))
    assert y.shape == (6, size, 40)
    torch.testing.assert_close(y.sum(-1), torch.full((6, size), 40.0))  # each a batch of its own with k counts a row
    assert len({tuple(noise.flatten().tolist()) for noise in y}) == 6


def test_vmap_with_the_same_noise_and_without_a_choice(backend):
    layer = EvolutionalDropout(0.5)
    y = vmap(layer, in_dims=1, out_dims=1, randomness="same")(torch.ones(3, 6, 40))
    torch.testing.assert_close(y, y[:, :1].expand_as(y), rtol=0, atol=0)
    assert len({tuple(row) for row in y[:, 0].tolist()}) == 3
    with pytest.raises(RuntimeError, match=r"vmap: .*random.*'different'|vmap: .*'same' or 'different'"):
        vmap(layer)(torch.ones(6, 3, 40))


def test_vmap_over_probabilities(backend):
    def drop(probs):
        return multinomial_dropout(torch.ones(2, 4), probs=probs, k=3)

    y = vmap(drop, randomness="different")(torch.eye(4))
    torch.testing.assert_close(y, torch.eye(4)[:, None].expand(4, 2, 4))


@pytest.mark.parametrize("inner", ["same", "different"])
@pytest.mark.parametrize("outer", ["same", "different"])
def test_vmap_in_vmap(inner, outer):
    y = vmap(vmap(multinomial_dropout, randomness=inner), randomness=outer)(torch.ones(2, 3, 4, 20))
    distinct = {tuple(y[i, j].flatten().tolist()) for i in range(2) for j in range(3)}
    assert len(distinct) == (1 if outer == "same" else 2) * (1 if inner == "same" else 3)


def test_gradients_per_example_by_vmap_of_grad():
    model = nn.Sequential(nn.Linear(10, 20), EvolutionalDropout(0.5), nn.Linear(20, 1))
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return functional_call(model, parameters, (x[None],)).sum()

    x = torch.randn(5, 10)
    together = seeded(vmap(grad(loss), in_dims=(None, 0), randomness="different"), parameters, x)
    torch.manual_seed(3)
    one_by_one = [grad(loss)(parameters, example) for example in x]
    torch.testing.assert_close(together["0.weight"], torch.stack([gradient["0.weight"] for gradient in one_by_one]))


def test_forward_mode_goes_through_the_noise_as_through_a_constant():
    x, tangent = torch.rand(4, 30), torch.rand(4, 30)
    y, pushed = seeded(jvp, EvolutionalDropout(0.5), (x,), (tangent,))
    torch.testing.assert_close(pushed, tangent * y / x)


def test_same_seed_same_output_for_any_number_of_threads(threads):
    x = torch.randn(256, 4096)
    results = []
    for number in (1, 2, 5):
        threads(number)
        results.append(values_and_gradient(EvolutionalDropout(0.5), x))
    torch.testing.assert_close(results[1:], [results[0]] * 2, rtol=0, atol=0)
    assert not torch.equal(values_and_gradient(EvolutionalDropout(0.5), x, seed=4)[0], results[0][0])


def test_eight_threads_at_once(threads):
    threads(4)
    x = torch.randn(256, 2048)
    expected = [evolutional_dropout(x, generator=torch.Generator().manual_seed(seed)) for seed in range(8)]

    def work(seed):
        return [evolutional_dropout(x, generator=torch.Generator().manual_seed(seed)) for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        for seed, outputs in enumerate(pool.map(work, range(8))):
            torch.testing.assert_close(outputs, [expected[seed]] * 10, rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("team", ["OpenMP", "Python threads"])
def test_use_before_and_after_a_fork(team):
    code = f"""
import os, torch
from evodrop._kernels import threads
from evodrop.nn.functional import evolutional_dropout
if {team != "OpenMP"}:
    threads._openmp = lambda: None
torch.set_num_threads(2)
x = torch.randn(256, 4096)
drop = lambda: evolutional_dropout(x, generator=torch.Generator().manual_seed(1))
before = drop()
child = os.fork()
if child == 0:
    os._exit(0 if (drop() == before).all() and (drop() == before).all() else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), bool((drop() == before).all()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == "0 True\n", run.stderr


@pytest.mark.parametrize("k", [None, 20_000])
def test_a_byte_per_element_is_kept_for_the_backward_pass(k):
    kept = []
    x = torch.randn(64, 1000, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.nbytes) or tensor, lambda t: t):
        EvolutionalDropout(0.5, k=k)(x)
    assert sum(kept) <= 64 * 1000 + 4 * 1000


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_small_and_large_tensors_are_treated_alike(backend, layer, dtype, monkeypatch):
    x = torch.randn(16, 32, dtype=dtype)
    monkeypatch.setattr(_noise, "LEAST_LARGE", 0)
    as_large = values_and_gradient(layer, x)
    monkeypatch.setattr(_noise, "LEAST_LARGE", math.inf)
    torch.testing.assert_close(values_and_gradient(layer, x), as_large, rtol=0, atol=0)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_each_mapped_batch_has_the_noise_of_a_call_of_its_own(layer):
    x = torch.rand(5, 3, 32)
    together = seeded(vmap(layer, randomness="different"), x)
    torch.manual_seed(3)
    torch.testing.assert_close(together, torch.stack([layer(own) for own in x]), rtol=0, atol=0)


def test_a_generator_needs_eager_mode():
    with pytest.raises(ValueError, match="generator= is for plain tensors in eager mode"):
        vmap(lambda x: evolutional_dropout(x, generator=torch.Generator()), randomness="same")(torch.ones(2, 3, 4))


@pytest.mark.parametrize("how", ["eager", "compiled", "transformed"])
def test_no_gradient_flows_through_probs(how):
    torch.compiler.reset()
    x, probs = torch.rand(4, 6, requires_grad=True), torch.rand(6, requires_grad=True)

    def loss(x, probs):
        return multinomial_dropout(x, probs=probs).sum()

    if how == "transformed":
        assert not grad(loss, argnums=1)(x, probs).any()
        return
    (torch.compile(loss, fullgraph=True, backend="aot_eager") if how == "compiled" else loss)(x, probs).backward()
    assert probs.grad is None
    assert x.grad.any()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_layer_draws_anew_for_any_batch():
    traced = torch.jit.trace(EvolutionalDropout(0.5), torch.rand(2, 6), check_trace=False)
    x = torch.ones(40, 6)
    torch.testing.assert_close(traced(x).sum(1), torch.full((40,), 6.0))
    assert not torch.equal(traced(x), traced(x))


@pytest.mark.parametrize("size", [8, 600])
def test_saved_tensors_may_come_back_in_another_layout(threads, size):
    threads(2)

    def transposed(tensor):
        return tensor.t().contiguous() if tensor.ndim == 2 else tensor

    x = torch.rand(size, size, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(transposed, lambda t: t.t() if t.ndim == 2 else t):
        y = evolutional_dropout(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach())


@pytest.mark.parametrize("number", [1, 2])
def test_saved_tensors_of_another_shape_are_refused(threads, number):
    threads(number)
    x = torch.rand(600, 600, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:4]):
        y = evolutional_dropout(x)
    with pytest.raises(ValueError, match="noise and input do not fit together"):
        y.sum().backward()


def test_many_gradients_at_once(backend):
    x = torch.rand(4, 6, requires_grad=True)
    y = evolutional_dropout(x)
    (together,) = torch.autograd.grad(y, x, torch.ones(2, 4, 6), is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(together, (y / x).detach().expand(2, 4, 6))

    def cubes(x):
        return seeded(evolutional_dropout, x).pow(3).sum()

    hessians = [torch.autograd.functional.hessian(cubes, x.detach(), vectorize=fast) for fast in (True, False)]
    torch.testing.assert_close(*hessians)


def test_a_grad_scaler_skips_the_step_of_a_batch_that_is_not_finite():
    model = nn.Sequential(nn.Linear(4, 8), EvolutionalDropout(0.5), nn.Linear(8, 1))
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    before = copy.deepcopy(model.state_dict())
    x = torch.rand(3, 4)
    x[1, 2] = float("inf")
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_device_chooses_the_backend():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert uses_numba(cpu)
    assert not uses_numba(cuda)
    with use_backend("torch"):
        assert not uses_numba(cpu)
    assert uses_numba(cpu)


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
