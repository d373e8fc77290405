"""What drops in a model: a table of all dropouts that a forward pass meets."""

from __future__ import annotations

import math
from io import StringIO
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import nn

from evodrop.nn._noise import checked_dims
from evodrop.nn._trace import ATTENTION, DROPOUTS, MASKS, Call, trace_forward
from evodrop.nn.functional import find_dims
from evodrop.nn.zoo._base import WeightedDropout

__all__ = ["DropoutRecord", "DropoutTable", "describe_dropout"]

CHANNELS = {nn.Dropout1d: 3, nn.Dropout2d: 4, nn.Dropout3d: 5}  # dimensions of a batch


class DropoutRecord(NamedTuple):
    """One dropout of a model.

    Attributes:
        name: of the layer, or of the module whose code calls a function; empty for the model itself.
        kind: the class of the layer, or the function.
        p: the rate, None if it is not known.
        shape: of the input; None if the layer was never called.
        units: dimensions of the input that are units; None if it is no units of the input that are dropped.
        noise: ||y - x||^2 / ||x||^2 of input x and output y, the mean over the calls; for a layer with weights, of its
            output against that without noise. None if it cannot be seen.
        calls: how often it was called.
        remark: what is no layer, and what does nothing.
    """

    name: str
    kind: str
    p: float | None
    shape: tuple[int, ...] | None
    units: tuple[int, ...] | None
    noise: float | None
    calls: int
    remark: str = ""


class DropoutTable(list[DropoutRecord]):
    """A list of :class:`DropoutRecord` that prints as a table."""

    def __rich__(self) -> Any:
        if not self:
            return "No dropout acts in this model: it has no dropout layer and calls no dropout function in training."
        from rich.table import Table

        table = Table("name", "class", "p", "input", "units", "noise", "calls", "remark")
        for record in self:
            table.add_row(*_cells(record))
        return table

    def __repr__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=160, color_system=None, highlight=False, markup=False).print(self.__rich__())
        return text.getvalue().rstrip("\n")


def describe_dropout(model: nn.Module, *inputs: Any, **kwargs: Any) -> DropoutTable:
    """Every dropout that acts when the model is called in training mode, and the layers that are never called.

    The model is called once, without gradients; its parameters, buffers, flags and hooks and all generators stay as
    they were. What is found: dropout layers of torch, of evodrop and its zoo; ``F.dropout`` and its relatives, with the
    line that calls them; attention with dropout; the dropout inside ``nn.LSTM``, ``nn.GRU``, ``nn.RNN`` and
    ``nn.MultiheadAttention``; and masks that code draws by ``bernoulli_``, as stochastic depth does.

    Args:
        model: any module.
        inputs, kwargs: what the model is called with. If they do not fit, the error is that of the model.

    Returns:
        A list of :class:`DropoutRecord`, in the order of the calls, that prints as a table.

    Examples:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))
        >>> (record,) = describe_dropout(model, torch.ones(1000, 8))
        >>> record.name, record.kind, record.p, record.shape, record.units, record.calls
        ('1', 'Dropout', 0.5, (1000, 16), (1,), 1)
        >>> 0.9 < record.noise < 1.1  # p / (1 - p)
        True
        >>> describe_dropout(nn.Linear(8, 2), torch.ones(1, 8))
        No dropout acts in this model: it has no dropout layer and calls no dropout function in training.
    """
    trace = trace_forward(model, inputs, kwargs)
    alike: dict[tuple[Any, ...], list[Call]] = {}
    for call in trace.calls:
        alike.setdefault((call.name, call.function, call.p, call.shape, call.where), []).append(call)
    table = DropoutTable(_record(calls) for calls in alike.values())
    called = {call.name for call in trace.calls if call.function is None}
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, DROPOUTS) and name not in called:
            table.append(DropoutRecord(name, type(layer).__name__, float(layer.p), None, None, None, 0, "never called"))
    return table


def _record(calls: list[Call]) -> DropoutRecord:
    """Of calls of one dropout with inputs of one shape."""
    name, module, function, p, shape, _, where = calls[0]
    levels = [call.noise for call in calls if call.noise is not None]
    is_layer = function in (None, "inside")
    return DropoutRecord(
        name,
        type(module).__name__ if is_layer else str(function),
        p,
        shape,
        _units(calls[0]),
        fmean(levels) if levels else None,
        len(calls),
        " ".join(filter(None, (_remark(function, p, module), where))),
    )


def _remark(function: str | None, p: float | None, module: nn.Module) -> str:
    if function is None:
        return "p = 0: switched off" if p == 0 and getattr(module, "k", None) is None else ""
    if function == "inside":
        return "no dropout layer: between its own layers"
    if function in ATTENTION:
        own = isinstance(module, nn.MultiheadAttention)
        return "no dropout layer: on its own attention weights" if own else "no layer: on attention weights,"
    return "no layer: a random mask," if function in MASKS else "no layer: a function,"


def _units(call: Call) -> tuple[int, ...] | None:
    """The dimensions that are units; None for what is dropped inside a layer or a function."""
    x, module = torch.empty(call.shape, device="meta"), call.module
    if call.function is not None or not call.shape:
        return None
    if isinstance(module, WeightedDropout):
        by_class = (-3, -2, -1) if isinstance(module, nn.Conv2d) else -1
        return checked_dims(x, by_class)
    if isinstance(module, nn.FeatureAlphaDropout):
        return (min(1, x.ndim - 1),)
    for kind, batched in CHANNELS.items():
        if isinstance(module, kind):  # of three dimensions, Dropout2d takes the second for the channels
            return (0 if x.ndim < batched and kind is not nn.Dropout2d else 1,)
    dims: Any = getattr(module, "unit_dims", None), getattr(module, "shared_dims", None)
    return find_dims(x, *dims)[0]


def _cells(record: DropoutRecord) -> list[str]:
    name, kind, p, shape, units, noise, calls, remark = record
    dims = ""
    if shape is not None and units is not None:
        dims = f"{', '.join(map(str, units))} ({math.prod(shape[dim] for dim in units)})"
    rate, level = "" if p is None else f"{p:g}", "" if noise is None else f"{noise:.3g}"
    return [name or "(model)", kind, rate, "" if shape is None else str(shape), dims, level, str(calls), remark]
