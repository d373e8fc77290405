"""What describe_dropout sees, and that it leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from evodrop.nn import EvolutionalDropout, convert_dropout, describe_dropout


class Mixed(nn.Module):
    """Every kind of dropout that a model may have."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.ours = EvolutionalDropout(0.5, momentum=0.1)
        self.torchs = nn.Dropout(0.25)
        self.unused = nn.Dropout(0.1)
        self.lstm = nn.LSTM(8, 8, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, x):
        x = self.ours(self.norm(self.first(x)))
        x = self.torchs(self.torchs(x))
        x = F.dropout(x, 0.3, self.training)
        heads = x.reshape(-1, 1, 2, 4)
        x = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.4 if self.training else 0.0).reshape(-1, 8)
        return self.lstm(x[:, None])[0]


def records(model, *inputs):
    return {record.name or record.kind: record for record in describe_dropout(model, *inputs)}


def test_every_dropout_that_acts_is_named_and_those_that_do_not_too():
    table = describe_dropout(Mixed(), torch.randn(32, 6))
    assert {(record.kind, record.p, record.calls) for record in table} >= {
        ("EvolutionalDropout", 0.5, 1),
        ("Dropout", 0.25, 2),
        ("Dropout", 0.1, 0),
        ("LSTM", 0.2, 1),
    }
    (function,) = [record for record in table if record.p == 0.3]
    assert __file__.rpartition("/")[2] in function.remark
    assert [record.p for record in table if "attention" in record.kind + record.remark] == [0.4]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    assert "never called" in captured.get()


def test_parameters_buffers_generators_and_modes_stay():
    model = Mixed().eval()
    model.norm.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    describe_dropout(model, torch.randn(32, 6, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert model.ours.running_sums is None
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_raises_is_as_before_and_its_error_comes_through():
    model = Mixed().eval()
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        describe_dropout(model, torch.zeros(3, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.modules())
    assert int(model.norm.num_batches_tracked) == 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_noise_level_is_that_of_standard_dropout(p):
    """E||y - x||^2 / ||x||^2 = p / (1 - p), by 10^6 units."""
    torch.manual_seed(0)
    (record,) = describe_dropout(nn.Sequential(nn.Dropout(p)), torch.ones(1000, 1000))
    odds = p / (1 - p)
    # (y - x)^2 is 1 with probability p and odds^2 otherwise
    error = ((p + (1 - p) * odds**4 - odds**2) / 1e6) ** 0.5
    assert abs(record.noise - odds) <= 5 * error
    assert (record.shape, record.units) == ((1000, 1000), (1,))


def test_units_of_channels_and_of_sequences():
    images = records(nn.Sequential(nn.Dropout2d(0.5)), torch.ones(4, 3, 5, 5))
    assert images["0"].units == (1,)
    locked = records(nn.Sequential(EvolutionalDropout(0.5, shared_dims=1)), torch.ones(4, 3, 5))
    assert locked["0"].units == (2,)
    assert records(convert_dropout(nn.Sequential(nn.Dropout3d(0.5))), torch.ones(4, 3, 5, 2, 2))["0"].units == (1,)
    tokens = records(nn.Sequential(EvolutionalDropout(0.5, unit_dims=-1)), torch.ones(4, 3, 5))
    assert tokens["0"].units == (2,)


def test_a_model_without_dropout_gets_a_sentence():
    table = describe_dropout(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    assert table == []
    assert "No dropout acts in this model" in str(table.__rich__())
