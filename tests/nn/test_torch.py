"""The torch backend: what it reads, how many operations it takes, and that compilers and transforms see through it."""

from __future__ import annotations

import shutil

import pytest
import torch
from helpers.chi_square import DRAWS, multinomial_p_value, none_rejected, random_cases
from torch.utils._python_dispatch import TorchDispatchMode

from evodrop.nn import (
    BernoulliDropout,
    EvolutionalDropout,
    EvolutionalDropout2d,
    MultinomialDropout,
    WaterFillingDropout,
    _torch,
    functional,
    use_backend,
)
from evodrop.nn._noise import Options

OPTIONS = [{}, {"match": "distinct"}, {"match": "noise"}, {"uniform_mix": 0.1}, {"k": 3}]
LAYERS = [
    EvolutionalDropout(0.5),
    EvolutionalDropout(0.3, match="noise", uniform_mix=0.1),
    EvolutionalDropout(0.3, match="distinct"),
    WaterFillingDropout(0.5),
    MultinomialDropout(0.5, probs=torch.arange(1.0, 33.0)),
    BernoulliDropout(0.2),
]
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")


@pytest.fixture(autouse=True)
def _torch_backend():
    with use_backend("torch"):
        yield


class Counted(TorchDispatchMode):
    """The operations of torch in a block; views are not counted, since they launch nothing on a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if not operation.is_view:
            self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("d", [150, 1152])
@pytest.mark.parametrize(
    ("layer", "most"),
    [(EvolutionalDropout(0.5), 32), (EvolutionalDropout(0.5, match="noise"), 42), (BernoulliDropout(0.5), 14)],
    ids=str,
)
def test_a_forward_call_takes_few_operations(layer, most, d):
    x = torch.rand(128, d, requires_grad=True)
    with Counted() as counted:
        layer(x)
    assert len(counted.names) <= most, counted.names


@pytest.mark.parametrize("layer", [EvolutionalDropout, WaterFillingDropout])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nothing_is_read_back_to_the_host(layer, options):
    """A meta tensor has a shape but no values: whatever asked for a value would fail."""
    x = torch.randn(6, 5, device="meta", requires_grad=True)
    y = layer(0.4, **options)(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    probs = torch.rand(5, device="meta")
    assert functional.multinomial_dropout(x, 0.4, probs, **options).shape == x.shape


def test_nothing_is_read_back_by_the_other_layers():
    x = torch.randn(6, 5, 2, 2, device="meta")
    assert EvolutionalDropout2d(0.5)(x).shape == x.shape
    assert functional.bernoulli_dropout(x, keep=torch.rand(20, device="meta")).shape == x.shape


@pytest.mark.parametrize("options", [Options(0.5, k=2), Options(0.5, independent=True)], ids=["weights", "keep"])
def test_values_that_cannot_be_checked_count_as_zero(options):
    """As on a device, where checking would wait for the values."""
    values = torch.tensor([1.0, -1.0, float("nan"), float("inf"), 1.0])
    counts, scale = _torch.draw(torch.ones(100, 5), options, values)
    assert (counts[:, 1:4] == 0).all()
    assert torch.isfinite(scale).all()
    assert (counts[:, [0, 4]].sum(0) > 0).all()


def test_large_numbers_of_draws_are_made_in_blocks():
    probs = torch.tensor([0.25, 0.75], dtype=torch.float64)
    counts = _torch._draw_counts(torch.ones(20, 2), probs, 5000, 5000, None)
    assert (counts.sum(1) == 5000).all()
    assert abs(counts[:, 1].double().mean() - 3750) < 5 * (5000 * 0.25 * 0.75 / 20) ** 0.5


def test_the_masses_are_a_whole_and_zeros_have_none():
    """The first and the last word draw units that can be drawn, however the masses round."""
    generator = torch.Generator().manual_seed(1)
    for d in (1, 2, 7, 1000):
        weights = torch.rand(d, dtype=torch.float64, generator=generator) ** 8
        weights[1::3] = 0.0
        counts = _torch._draw_counts(torch.ones(2000, d), weights / weights.sum(), 50, 50, generator)
        assert (counts.sum(1) == 50).all()
        assert (counts[:, weights == 0] == 0).all()


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
def test_compilers_trace_it_without_a_graph_break(layer, compiler):
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=compiler)
    x = (torch.rand(16, 32) + 0.5).requires_grad_()
    y = compiled(x)
    y.sum().backward()
    torch.testing.assert_close(y, x.grad * x)
    assert (y == 0).any()
    assert not torch.equal(compiled(x), y)


def test_the_operator_is_not_in_the_graph():
    torch.compiler.reset()
    seen = []

    def backend(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compile(EvolutionalDropout(0.5), fullgraph=True, backend=backend)(torch.rand(4, 6))
    assert any("searchsorted" in name for name in seen)
    assert not any("evodrop" in name for name in seen)


@needs_compiler
def test_the_joint_distribution_of_compiled_draws_is_multinomial():
    torch.compiler.reset()
    drop = torch.compile(functional.multinomial_dropout, fullgraph=True)
    p_values = []
    for case in list(random_cases())[:4]:
        noise = drop(torch.ones(DRAWS, len(case.probs)), probs=torch.from_numpy(case.probs), k=case.k)
        counts = (noise.double().numpy() * case.k * case.probs).round().astype(int)
        p_values.append(multinomial_p_value(counts, case.probs, case.k))
    assert none_rejected(p_values)


def test_it_is_seeded_as_the_dropout_of_torch_is():
    x = torch.rand(20, 30)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(EvolutionalDropout(0.5)(x))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
