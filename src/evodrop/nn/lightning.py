"""Lightning: ``Trainer(plugins=[layer_sync()])`` makes evolutional dropout follow the batch of all devices.

Lightning itself is imported when the plugin is made, by either of its names.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from torch.nn import Module

from evodrop.nn.convert import convert_sync
from evodrop.nn.evolving import Evolving

__all__ = ["layer_sync"]

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
PLUGINS = "plugins.layer_sync"


def layer_sync(process_group: Any = None) -> Any:
    """A ``LayerSync`` for Lightning's trainer: :func:`~evodrop.nn.convert_sync` while it fits, and undone afterwards.

    A trainer takes one such plugin. Next to ``sync_batchnorm=True``, call ``convert_sync`` on the model instead.

    Args:
        process_group: the processes whose batches are one batch. Default: all.
    """

    class EvolutionalSync(_plugins().LayerSync):  # type: ignore[misc]
        def __init__(self) -> None:
            self.synced = list[Evolving]()

        def apply(self, model: Module) -> Module:
            self.synced = [layer for layer in model.modules() if isinstance(layer, Evolving) and not layer.sync]
            return convert_sync(model, process_group)

        def revert(self, model: Module) -> Module:
            for layer in self.synced:
                layer.sync, layer.process_group = False, None
            return model

    return EvolutionalSync()


def _plugins() -> ModuleType:
    for package in PACKAGES:
        try:
            return importlib.import_module(f"{package}.{PLUGINS}")
        except ModuleNotFoundError as error:
            if error.name is None or not package.startswith(error.name):  # Lightning is there, and lacks something
                raise
    raise ModuleNotFoundError("layer_sync needs Lightning: pip install lightning", name="lightning")
