"""Swap the dropout layers of a model that exists already, and make them follow the batch of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from evodrop.nn.evolving import EvolutionalDropout, EvolutionalDropout1d, EvolutionalDropout2d, Evolving

__all__ = ["convert_dropout", "convert_sync"]

M = TypeVar("M", bound=nn.Module)
SWAPPED = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)
CHANNELS: dict[type[nn.Module], Callable[[float], nn.Module]] = {
    nn.Dropout1d: EvolutionalDropout1d,
    nn.Dropout2d: EvolutionalDropout2d,
}


def convert_dropout(
    model: M,
    to: Callable[[float], nn.Module] = EvolutionalDropout,
    only: Callable[[str, nn.Module], bool] | None = None,
) -> M | nn.Module:
    """Replace every ``nn.Dropout``, ``nn.Dropout1d`` and ``nn.Dropout2d`` in ``model``, nested ones too, and return it.

    Rate and train/eval mode are kept, and a layer used in two places stays one layer. Layers with p = 0 are switched
    off and stay as they are, since even k = d draws are noise. Dropout that is no such layer stays: other classes, and
    what ``nn.LSTM``, ``nn.MultiheadAttention`` and ``F.dropout`` do inside. In a model of sequences, say which
    dimension holds the units: ``to=lambda p: EvolutionalDropout(p, unit_dims=-1)``.

    Args:
        model: changed in place; if it is itself a dropout layer, its replacement is returned.
        to: a class, or any function from a rate to a module. Only with the default do layers that drop whole channels
            become ``EvolutionalDropout1d`` and ``2d``, which do so too.
        only: predicate on (qualified name, module) that a layer has to satisfy.

    Examples:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))
        >>> convert_dropout(model)[1]
        EvolutionalDropout(p=0.2, scheme='multinomial')
    """
    swaps: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        if type(module) in SWAPPED and module.p > 0 and (only is None or only(name, module)):
            swaps[module] = _replacement(name, module, to)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() would skip a layer's second name
            if child in swaps:
                setattr(parent, name, swaps[child])
    return swaps.get(model, model)


def convert_sync(model: M, process_group: Any = None) -> M:
    """Make every evolutional dropout in ``model`` follow the batch of all processes together, and return the model.

    Call it on every rank, before or after ``DistributedDataParallel`` or ``fully_shard``. Each layer then costs one
    all_reduce of d + 1 numbers in forward, and nothing in backward. Layers of other kinds stay as they are: call
    :func:`convert_dropout` first. Undo it by ``layer.sync = False``.

    Args:
        model: changed in place.
        process_group: the processes whose batches are one batch. Default: all.

    Examples:
        >>> convert_sync(nn.Sequential(nn.Linear(8, 8), EvolutionalDropout(0.2)))[1]
        EvolutionalDropout(p=0.2, scheme='multinomial', sync=True)
    """
    for layer in model.modules():
        if isinstance(layer, Evolving):
            layer.process_group, layer.sync = process_group, True
    return model


def _replacement(name: str, module: nn.Module, to: Callable[[float], nn.Module]) -> nn.Module:
    make = CHANNELS.get(type(module), to) if to is EvolutionalDropout else to
    try:
        return make(float(module.p)).train(module.training)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"convert_dropout: layer {name!r}, {module}: {error}") from error
