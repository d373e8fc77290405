from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop._kernels.rows import Task
from evodrop._kernels.threads import run_section
from evodrop.nn import EvolutionalDropout, EvolutionalDropout2d, device, functional, use_backend

OPTIONS = [
    {},
    {"scheme": "bernoulli"},
    {"match": "distinct"},
    {"match": "noise"},
    {"match": "noise", "scheme": "bernoulli"},
    {"match": "distinct", "scheme": "bernoulli"},
    {"uniform_mix": 0.1},
    {"k": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nothing_is_read_back_to_the_host(options):
    """A meta tensor has a shape but no values: whatever asked for a value would fail."""
    x = torch.randn(6, 5, device="meta", requires_grad=True)
    y = EvolutionalDropout(0.4, **options)(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    probs = torch.rand(5, device="meta")
    assert functional.multinomial_dropout(x, 0.4, probs, **options).shape == x.shape


def test_nothing_is_read_back_by_the_other_layers():
    x = torch.randn(6, 5, 2, 2, device="meta")
    assert EvolutionalDropout2d(0.5)(x).shape == x.shape
    assert functional.bernoulli_dropout(x, keep=torch.rand(20, device="meta")).shape == x.shape


def test_words_are_those_of_the_cpu():
    seed = -12345
    words = device._words(torch.tensor(seed), 3, torch.arange(4)).numpy().astype(np.uint64)
    for row in range(3):  # a mark is set exactly if the word is below the chance
        assert not draw_mask_of(words[row], seed)[row].any()
        assert draw_mask_of(words[row] + np.uint64(1), seed)[row].all()


def draw_mask_of(chances, seed):
    mask = np.empty((3, 4), np.uint8)
    run_section(Task.MASK, 1, counts=mask, table=chances, seed=seed % 2**64)
    return mask


@pytest.mark.parametrize("scheme", ["multinomial", "bernoulli"])
def test_values_that_cannot_be_checked_count_as_zero(scheme):
    """As on a device, where checking would wait for the values."""
    law = functional.checked_law("probs", 0.5, 2, scheme, "draws", 0.0)
    weights = torch.tensor([1.0, -1.0, float("nan"), float("inf"), 1.0])
    counts, scale = device.drop(torch.ones(100, 5), law, weights, torch.tensor(1), None)
    assert (counts[:, 1:4] == 0).all()
    assert torch.isfinite(scale).all()
    assert (counts[:, [0, 4]].sum(0) > 0).all()


def test_both_paths_draw_the_same_independent_noise():
    """Keep or drop depends on the word alone, and the words are the same."""
    x = torch.rand(50, 40)
    outputs = []
    for name in ("numba", "torch"):
        torch.manual_seed(0)
        with use_backend(name):
            outputs.append(functional.bernoulli_dropout(x, 0.3))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_large_numbers_of_draws_are_made_in_blocks():
    probs = torch.tensor([0.25, 0.75], dtype=torch.float64)
    counts = device._draw_counts(probs, 5000, 5000, 20, torch.tensor(1))
    assert (counts.sum(1) == 5000).all()
    assert abs(counts[:, 1].double().mean() - 3750) < 5 * (5000 * 0.25 * 0.75 / 20) ** 0.5
