from __future__ import annotations

import pytest
import torch

from evodrop.nn import use_backend


@pytest.fixture(params=["numba", "torch"])
def backend(request):
    """Both paths, on CPU tensors."""
    with use_backend(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _same_seed_for_every_test():
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """Set the number of torch's threads; the old number comes back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
