from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

from evodrop.nn import EvolutionalDropout
from evodrop.nn.lightning import layer_sync

INSTALLED = importlib.util.find_spec("lightning") or importlib.util.find_spec("pytorch_lightning")


@pytest.mark.skipif(INSTALLED is not None, reason="Lightning is installed")
def test_without_lightning_the_plugin_says_what_it_needs():
    with pytest.raises(ModuleNotFoundError, match="layer_sync needs Lightning: pip install lightning"):
        layer_sync()


def test_what_a_plugin_applies_it_reverts():
    pytest.importorskip("lightning")
    model = nn.Sequential(nn.Dropout(0.1), EvolutionalDropout(0.2), EvolutionalDropout(0.3, sync=True))
    plugin = layer_sync()
    assert plugin.apply(model) is model
    assert [model[1].sync, model[2].sync] == [True, True]
    assert plugin.revert(model) is model
    assert [model[1].sync, model[2].sync] == [False, True]


def fit(folder):
    """On a rank: train with a plugin; whether layers were synchronised while they trained, and what they followed."""
    import os

    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    x = torch.arange(32.0).reshape(8, 4)

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.dropout, self.out, self.seen = EvolutionalDropout(0.5, momentum=1.0), nn.Linear(4, 1), []

        def training_step(self, batch, _):
            loss = self.out(self.dropout(batch[0])).mean()
            self.seen.append((self.dropout.sync, self.dropout.running_moments.tolist()))
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    rank = torch.distributed.get_rank()
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    os.environ |= {"MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "test"}
    model, data = Model(), TensorDataset(x)
    sampler = DistributedSampler(data, 2, rank, shuffle=False)
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    parallel = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    trainer = pl.Trainer(max_epochs=1, plugins=[layer_sync()], default_root_dir=folder, **parallel, **quiet)
    trainer.fit(model, DataLoader(data, batch_size=4, sampler=sampler))
    return model.seen, model.dropout.sync


def test_a_trainer_with_the_plugin_follows_the_batch_of_all_ranks(two_ranks, tmp_path):
    pytest.importorskip("lightning")
    moments = torch.arange(32.0).reshape(8, 4).square().mean(0).tolist()
    for seen, afterwards in two_ranks(fit, str(tmp_path)):
        assert seen == [(True, moments)]
        assert afterwards is False
