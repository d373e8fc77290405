"""Which weighted layers stand before and after a dropout: found in the graph that torch.fx makes of a model.

The position in an ``nn.Sequential``, nested ones too, and the code of ``forward`` come to the same there. A part that
cannot be traced, since it branches on values, say, is a wall: what stands on its other side is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.modules import activation, batchnorm, conv, instancenorm, normalization
from torch.nn.modules.dropout import _DropoutNd

from evodrop.nn.locally_connected import LocallyConnected2d

WEIGHTED = (nn.Linear, conv._ConvNd, LocallyConnected2d)
MIXING = {"MultiheadAttention", "Softmax", "Softmax2d", "LogSoftmax", "Softmin", "GLU"}  # activations that are no maps
# of single units: what comes out at one depends on others

ELEMENTWISE: tuple[type[nn.Module], ...] = (
    *(getattr(activation, name) for name in activation.__all__ if name not in MIXING),
    nn.Identity,
    _DropoutNd,
)
POOLING: tuple[type[nn.Module], ...] = tuple(
    getattr(nn, f"{kind}Pool{n}d") for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg") for n in (1, 2, 3)
)
NORMALISATION = (
    batchnorm._NormBase,
    instancenorm._InstanceNorm,
    *(getattr(normalization, name) for name in normalization.__all__),
)
PASSED = (*ELEMENTWISE, *POOLING, *NORMALISATION, nn.Flatten)

PLAIN = (bool, int, float, str, type(None))
Slot = tuple[nn.Module, str]  # a parent and the name of its child: where a layer is registered

ELEMENTWISE_FUNCTIONS = {
    *(F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.hardtanh),
    *(F.hardswish, F.hardsigmoid, F.dropout, F.sigmoid, F.tanh, torch.relu, torch.sigmoid, torch.tanh),
}
ELEMENTWISE_METHODS = {"relu", "relu_", "sigmoid", "tanh", "contiguous"}
POOLING_FUNCTIONS: dict[Any, type[nn.Module]] = {
    F.max_pool2d: nn.MaxPool2d,
    torch.max_pool2d: nn.MaxPool2d,
    F.avg_pool2d: nn.AvgPool2d,
    F.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    F.adaptive_max_pool2d: nn.AdaptiveMaxPool2d,
}


class Surroundings(NamedTuple):
    """One call of a layer: the weighted layers before and after it, if they are known."""

    before: Slot | None
    after: Slot | None
    between: tuple[nn.Module, ...] = ()  # what stands on the way to the one after it
    since: tuple[nn.Module, ...] = ()  # and on the way from the one before it

    def without(self, sides: Iterable[str]) -> Surroundings:
        """The same with these sides, ``"before"`` or ``"after"``, unknown."""
        left_out = set(sides)
        return self._replace(
            before=None if "before" in left_out else self.before, after=None if "after" in left_out else self.after
        )


def find_surroundings(model: nn.Module) -> dict[Slot, list[Surroundings]]:
    """The surroundings of every call of every layer in the graphs of a model, under the slot of the layer.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(3, 1))
        >>> (found,) = find_surroundings(model)[model, "2"]
        >>> found.before[1], found.after[1], found.between
        ('0', '4', (Flatten(start_dim=1, end_dim=-1),))
    """
    found: dict[Slot, list[Surroundings]] = defaultdict(list)
    for prefix, graph in _graphs(_twin(model)):
        origin = _Origin(model, prefix)
        for node in graph.nodes:
            if node.op == "call_module":
                before, since = _walk(node, origin, _previous)
                after, between = _walk(node, origin, _next)
                found[origin.slot(node)].append(Surroundings(before, after, tuple(between), tuple(since)))
    return found


def slots_of(model: nn.Module) -> Iterator[tuple[Slot, nn.Module]]:
    """Every slot of a model and what stands in it; a layer with two names has two slots."""
    for parent in model.modules():
        yield from (((parent, name), child) for name, child in parent._modules.items() if child is not None)


class _Origin(NamedTuple):
    """From the names in a graph to the layers of the model."""

    model: nn.Module
    prefix: str

    def slot(self, node: fx.Node) -> Slot:
        path, _, name = f"{self.prefix}{node.target}".rpartition(".")
        return self.model.get_submodule(path), name


def _walk(node: fx.Node, origin: _Origin, step: Any) -> tuple[Slot | None, list[nn.Module]]:
    """The first weighted layer that way, and what was passed; None if there is none, or no single way."""
    passed: list[nn.Module] = []
    here = step(node)
    while here is not None:
        if here.op == "call_module":
            parent, name = origin.slot(here)
            layer = parent._modules[name]
            if isinstance(layer, WEIGHTED):
                return (parent, name), passed
        else:
            layer = _as_module(here)
        if not isinstance(layer, PASSED):
            return None, passed
        passed.append(layer)
        here = step(here)
    return None, passed


def _next(node: fx.Node) -> fx.Node | None:
    users = _users(node)
    return users[0] if len(users) == 1 and _input(users[0]) is node else None


def _previous(node: fx.Node) -> fx.Node | None:
    before = _input(node)
    return before if before is not None and len(_users(before)) == 1 else None


def _input(node: fx.Node) -> fx.Node | None:
    """The one tensor that a node takes; a view may ask for sizes as well."""
    first = node.args[0] if node.args else None
    alone = node.all_input_nodes == [first] or _is_view(node)
    return first if isinstance(first, fx.Node) and alone else None


def _users(node: fx.Node) -> list[fx.Node]:
    """All that use a value, but for those that only ask for its shape."""
    return [user for user in node.users if user.target not in ("size", "dim") and user.target is not getattr]


def _is_view(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target in ("view", "reshape")


def _as_module(node: fx.Node) -> nn.Module | None:
    """A function call as the layer that does the same, if it is one that may be passed."""
    if node.target in ELEMENTWISE_FUNCTIONS or (node.op == "call_method" and node.target in ELEMENTWISE_METHODS):
        return nn.Identity()
    if node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten"):
        options = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
        return nn.Flatten(**{"start_dim": 0, **options})  # type: ignore[arg-type]
    if _is_view(node) and len(node.args) == 3 and node.args[2] == -1:
        return nn.Flatten()
    if node.target in POOLING_FUNCTIONS:
        known = {name: value for name, value in node.kwargs.items() if value is not None and name != "return_indices"}
        return POOLING_FUNCTIONS[node.target](*node.args[1:], **known)
    return None


class _Tracer(fx.Tracer):
    """Looks into containers, but not into layers, torch's own blocks and what is ``opaque``."""

    def __init__(self, opaque: set[nn.Module]) -> None:
        super().__init__()
        self.opaque = opaque

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        known = not m._modules or isinstance(m, (*WEIGHTED, *PASSED))
        return known or m in self.opaque or super().is_leaf_module(m, module_qualified_name)


def _traced(module: nn.Module, opaque: set[nn.Module]) -> fx.Graph | None:
    with torch.random.fork_rng(devices=[]):  # a forward may draw numbers
        try:
            defaults = {name: one.default for name, one in signature(module.forward).parameters.items()}
            plain = {name: value for name, value in defaults.items() if isinstance(value, PLAIN)}
            return _Tracer(opaque).trace(module, plain or None)  # as it is called with its input alone
        except Exception:  # whatever the code of a model may raise when it is given no values
            return None


def _graphs(model: nn.Module) -> list[tuple[str, fx.Graph]]:
    """The graph of the model, or else those of its largest parts, with prefixes for the names in them."""
    whole = _traced(model, set())
    if whole is not None:
        return [("", whole)]
    opaque: set[nn.Module] = set()
    graphs: dict[str, fx.Graph] = {}
    for name, module in reversed(list(model.named_modules())):  # the inner ones first
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            opaque.add(module)
        elif not _Tracer(opaque).is_leaf_module(module, name):
            graph = _traced(module, opaque)
            if graph is None:
                opaque.add(module)
            else:
                graphs[name] = graph
    outermost = [name for name in graphs if not name or model.get_submodule(name.rpartition(".")[0]) in opaque]
    return [(f"{name}." if name else "", graphs[name]) for name in outermost]


def _twin(module: nn.Module) -> nn.Module:
    """The same tree with a module for every slot, so that a layer in two places is two; parameters are shared.

    Code that is traced may count in a buffer or append to a list, so those are copies.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return module
    twin = object.__new__(type(module))
    for name, value in module.__dict__.items():
        twin.__dict__[name] = copy(value) if isinstance(value, (list, dict, set)) else value
    for name, buffer in module._buffers.items():
        twin._buffers[name] = None if buffer is None else buffer.clone()
    for name, child in module._modules.items():
        twin._modules[name] = None if child is None else _twin(child)
    return twin
