"""The alias table of the devices: every unit owns exactly its mass, and the masses are those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evodrop._kernels.rows import integer_masses as masses_of_the_cpu
from evodrop.nn.alias import build_table, integer_masses, table_bits

SIZES = [1, 2, 3, 8, 1000, 1024]
CONCENTRATIONS = [0.01, 0.1, 1.0, 100.0]  # from one giant to all but even


def random_probs(d, concentration):
    return np.random.default_rng(d).dirichlet(np.full(d, concentration))


def owned(table, bits):
    """The mass of each unit in the table, in Python's integers."""
    share, masses = 1 << (62 - bits), [0] * (1 << bits)
    for bucket, entry in enumerate(table.tolist()):
        threshold, other = entry >> bits, entry & ((1 << bits) - 1)
        assert 0 <= threshold <= share
        masses[bucket] += threshold
        masses[other] += share - threshold
    return masses


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("d", SIZES)
def test_every_unit_owns_exactly_its_mass(d, concentration):
    probs = torch.from_numpy(random_probs(d, concentration))
    masses = owned(build_table(probs), table_bits(d))
    assert masses[:d] == integer_masses(probs).tolist()
    assert sum(masses[:d]) == 2**62  # padding owns nothing


@pytest.mark.parametrize("probs", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5, 0.0], [0.25] * 4, [0.2] * 5])
def test_zeros_own_nothing_and_even_units_the_same(probs):
    masses = owned(build_table(torch.tensor(probs, dtype=torch.float64)), table_bits(len(probs)))
    assert all(abs(mass - p * 2**62) < 2**12 for mass, p in zip(masses, probs, strict=False))
    assert [mass for mass, p in zip(masses, probs, strict=False) if p == 0] == [0] * probs.count(0.0)


def test_no_probability_at_all_still_makes_a_table():
    """A batch of zeros passes through, but on a device the draws are made all the same: they must stay in bounds."""
    assert sum(owned(build_table(torch.zeros(5, dtype=torch.float64)), 3)[:5]) == 2**62


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("d", [1, 2, 1000, 100_000])
def test_masses_are_those_of_the_cpu_to_within_2_to_the_minus_50(d, concentration):
    probs = random_probs(d, concentration)
    masses = integer_masses(torch.from_numpy(probs)).numpy()
    assert sum(map(int, masses)) == 2**62
    assert (masses[probs == 0] == 0).all()
    assert abs(masses - masses_of_the_cpu(probs, d)).max() < 2**12
