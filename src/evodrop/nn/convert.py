"""Swap the dropouts of a model that exists already, and make them follow the batch of all processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.modules import conv
from torch.nn.modules.dropout import _DropoutNd

from evodrop.nn._routed import Make, checked_target, functional_dropout, route_calls, with_noise_matched
from evodrop.nn._trace import Slot, Surroundings, Trace, split_inputs, surroundings_by_order, trace_forward
from evodrop.nn.distributed import check_group
from evodrop.nn.layers import (
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    EvolutionalDropout3d,
    Evolving,
    _NoiseLayer,
)
from evodrop.nn.zoo._base import Site

__all__ = ["convert_dropout", "convert_sync_dropout"]

M = TypeVar("M", bound=nn.Module)
CHANNELS: dict[type[nn.Module], type[Evolving]] = {  # what drops whole channels goes on to do so
    nn.Dropout1d: EvolutionalDropout1d,
    nn.Dropout2d: EvolutionalDropout2d,
    nn.Dropout3d: EvolutionalDropout3d,
}
SWAPPED: tuple[type[nn.Module], ...] = (nn.Dropout, *CHANNELS)
FEATURES_LAST = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)


def convert_dropout(
    model: M,
    to: str | Make = EvolutionalDropout,
    only: Callable[[str, nn.Module], bool] | None = None,
    *,
    inputs: Any = None,
    functional: bool = False,
    **options: Any,
) -> M | nn.Module:
    """Replace every ``nn.Dropout`` in ``model``, ``Dropout1d`` to ``3d`` and nested ones too, and return the model.

    Rate, noise level, train/eval mode and ``inplace`` are kept, and a layer used in two places stays one layer, unless
    its neighbours count. Layers with p = 0 are switched off and stay as they are. Other dropout stays
    too: classes with a forward of their own, and what ``nn.LSTM``, ``nn.MultiheadAttention``, fused attention and
    ``F.dropout`` do inside. If nothing is swapped, a warning says what there is instead.

    What counts as a unit follows from the layers beside a dropout: after or before a linear layer, an embedding or a
    layer norm it is the last dimension, after a convolution all dimensions but the first, as in the paper. The layers
    beside it are known in an ``nn.Sequential``; elsewhere give ``inputs``, or say ``unit_dims=``. Dropouts that work on
    their neighbours cannot do without them.

    The new layers have the very parameters of the old ones, so an optimizer keeps them; give it those that are new.
    Hooks on a layer that is replaced are gone. Convert a model before it is wrapped for several processes.

    Args:
        model: changed in place; if it is itself a dropout layer, its replacement is returned. If there is an error,
            which names all that does not fit, nothing is changed.
        to: a name of :data:`evodrop.nn.zoo.ZOO` (``"data-dependent"`` only with ``probs=``), a class, or any function
            from a rate to a module. Layers that drop whole channels go on to do so, if it has ``shared_dims``.
        only: predicate on (qualified name, module) that a layer has to satisfy.
        inputs: what the model is called with: one value, a tuple of arguments, or a dict of keyword arguments. The
            model is called once, and stays as it is. What is swapped but never called, and what acts but is not
            swapped, is named in a warning.
        functional: send calls of ``F.dropout`` to the same dropout, too: see :class:`functional_dropout`.
        options: passed on to the new layers. Dropouts that draw have ``match="noise"`` by default; ``match="draws"`` is
            the paper's k = d (1 - p), ten times as noisy at p = 0.1.

    Examples:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        >>> convert_dropout(model, "weight-aware", weight_share=1.0)[2]
        WeightAwareLinear(in_features=8, out_features=2, bias=True, p=0.2, weight_share=1, match='noise')
        >>> convert_dropout(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2)))[1]
        EvolutionalDropout(p=0.2, match='noise', unit_dims=-1)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert_dropout: model is {model!r:.200}, but it takes an nn.Module")
    if only is not None and not callable(only):
        raise TypeError(
            f"convert_dropout: only is {only!r:.200}, but it takes a function of (name, module); "
            "lambda name, module: name == '2' picks one layer"
        )
    make = checked_target("convert_dropout", to)
    if to == "data-dependent" and options.get("probs") is None:
        raise ValueError(
            "convert_dropout: 'data-dependent' follows the second moments of data, and a model has none; put "
            "DataDependentDropout.from_data(X, p) in the place of the layer, X being what enters it, or give probs="
        )
    mode = functional_dropout(make, **options) if functional else None
    trace = None if inputs is None else trace_forward(model, *split_inputs(inputs))
    chosen = {
        module: name
        for name, module in model.named_modules()
        if _is_swapped(module) and module.p > 0 and (only is None or only(name, module))
    }
    swaps = _Swaps(model, make, chosen, with_noise_matched(make, options), trace)
    if model in chosen:
        return _settled(swaps.layer_for(model), model, [])
    own = [*model.parameters(), *model.buffers()]
    swaps.find()
    _check_wrapping(model, swaps.new, own)
    for slot, layer in swaps.new.items():
        slot[0]._modules[slot[1]] = _settled(layer, slot[0]._modules[slot[1]], own)
    if mode is not None:
        _route(model, mode, trace)
    _report(model, chosen, trace, functional)
    return model


def convert_sync_dropout(model: M, process_group: Any = None) -> M:
    """Make every dropout in ``model`` that follows the batch follow that of all processes, and return the model.

    Call it on every rank, before or after ``DistributedDataParallel`` or ``fully_shard``. Each layer then costs one
    all_reduce of d + 1 numbers in forward, and nothing in backward. Layers of other kinds stay as they are: call
    :func:`convert_dropout` first. Undo it by ``layer.sync = False``.

    Args:
        model: changed in place.
        process_group: the processes whose batches are one batch. Default: all.

    Examples:
        >>> convert_sync_dropout(nn.Sequential(nn.Linear(8, 8), EvolutionalDropout(0.2)))[1]
        EvolutionalDropout(p=0.2, sync=True)
    """
    check_group(process_group)
    for layer in model.modules():
        if isinstance(layer, Evolving):
            layer.process_group, layer.sync = process_group, True
    return model


@dataclass
class _Swaps:
    """The new layers by their slots. One place after the other: the layer after one may stand before the next."""

    model: nn.Module
    make: Any
    chosen: dict[nn.Module, str]
    options: dict[str, Any]
    trace: Trace | None
    new: dict[Slot, nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.needs = sorted(getattr(self.make, "needs", ()))
        self.slots: dict[Any, list[Slot]] = {module: [] for module in self.chosen}  # two of a layer with two names
        for parent in self.model.modules():
            for name, child in parent._modules.items():
                if child in self.slots:
                    self.slots[child].append((parent, name))

    @cached_property
    def calls(self) -> dict[Slot, list[Surroundings]]:
        """The surroundings of each slot: by the recorded pass, else by the order in an ``nn.Sequential``."""
        return surroundings_by_order(self.model) if self.trace is None else self.trace.surroundings

    def find(self) -> None:
        """Make the layers of all places, or raise an error that names all that do not fit."""
        misfits: list[str] = []
        for module, slots in self.slots.items():
            try:
                if hasattr(self.make, "place"):
                    for slot in slots:
                        self._place(slot, module)
                else:
                    self.new |= dict.fromkeys(slots, self.layer_for(module))
            except ValueError as error:
                misfits.append(str(error))
        if misfits:
            raise ValueError("convert_dropout: " + "\n".join(dict.fromkeys(misfits)))

    def layer_for(self, module: nn.Module) -> nn.Module:
        """The layer in the place of a dropout, without a look at its neighbours."""
        if self.needs:
            raise self._unplaceable(module, "it is the whole model, which has no neighbours")
        return self._made(module, Site(None, module, None)).dropout

    def _place(self, slot: Slot, module: nn.Module) -> None:
        """The layer of a place, and what it makes of its neighbours."""
        found = self._only_call(slot, module)
        before, after = (at and self.new.get(at, at[0]._modules[at[1]]) for at in (found.before, found.after))
        new = self._made(module, Site(before, module, after, found.between, found.since))
        self.new[slot] = new.dropout
        for at, old, fresh in ((found.before, before, new.before), (found.after, after, new.after)):
            if at is not None and fresh is not old:
                if len(self.calls[at]) > 1:
                    reason = f"is used in {len(self.calls[at])} places, and would change in all of them"
                    raise self._unplaceable(module, f"its neighbour {at[1]!r} {reason}")
                self.new[at] = fresh  # type: ignore[assignment]

    def _only_call(self, slot: Slot, module: nn.Module) -> Surroundings:
        """The surroundings of a layer: of each side what it needs, or what is there alone wherever it is used."""
        calls = self.calls.get(slot, [])
        if self.needs and not calls:
            reason = "it is never called" if self.trace else "it is in no nn.Sequential; give inputs= to find it"
            raise self._unplaceable(module, reason)
        first = calls[0] if calls else Surroundings(None, None)
        for side in ("after", "before"):
            at, needed = getattr(first, side), side in self.needs
            unlike = any(getattr(call, side) != at for call in calls)
            if needed and at is None:
                reason = f"no single layer with weights is known {side} it: another kind of layer or operation is there"
                raise self._unplaceable(module, reason + ("" if self.trace else ", or inputs= is needed to find it"))
            if needed and unlike:
                reason = f"it is used in {len(calls)} places with different neighbours; give each a dropout of its own"
                raise self._unplaceable(module, reason)
            if unlike or (not needed and len(self.calls.get(at, [])) > 1):
                first = first._replace(**{side: None})  # type: ignore[arg-type]
        return first

    def _made(self, module: Any, site: Site) -> Site:
        make, options = self._with_dims(module)
        try:
            if hasattr(make, "place"):
                site = make.place(site, **options)
            else:
                site = site._replace(dropout=make(float(module.p), **options))
        except ValueError as error:
            raise ValueError(f"{self._title(module)}: {error}") from error
        except TypeError as error:
            given = ", ".join(f"{option}={value!r:.50}" for option, value in options.items()) or "nothing but the rate"
            title = getattr(make, "__name__", repr(make))
            raise TypeError(
                f"convert_dropout: {self._title(module)}: {title} was given {given}, but {error}"
            ) from error
        layer: Any = site.dropout
        if not isinstance(layer, nn.Module):
            raise TypeError(
                f"convert_dropout: {self._title(module)}: to= returned {layer!r:.200} for its rate, but it has to "
                "return an nn.Module"
            )
        if module.inplace and not isinstance(layer, nn.Identity):
            vars(layer)["inplace"] = True
            if not isinstance(layer, SWAPPED):
                layer.register_forward_hook(_write_back)
        return site

    def _with_dims(self, module: nn.Module) -> tuple[Any, dict[str, Any]]:
        """The class and its options, with the dimensions that are units where the user did not give them."""
        make, options = self.make, self.options
        kind = next(kind for kind in SWAPPED if isinstance(module, kind))
        if make is nn.Dropout:
            return kind, options
        dims = signature(make).parameters if isinstance(make, type) and issubclass(make, _NoiseLayer) else ()
        if "shared_dims" not in dims or not {"unit_dims", "shared_dims"}.isdisjoint(options):
            return make, options
        if kind in CHANNELS:
            whole = CHANNELS[kind]
            if make is EvolutionalDropout:
                return whole, options
            return make, options | {"unit_dims": whole.unit_dims, "shared_dims": whole.shared_dims}
        unit_dims = self._unit_dims(module)
        return make, options if unit_dims is None else options | {"unit_dims": unit_dims}

    def _unit_dims(self, module: nn.Module) -> int | tuple[int, ...] | None:
        """By the nearest layer that says so, of those before it first; else by the shape of the input."""
        for found in (call for slot in self.slots[module] for call in self.calls.get(slot, [])):
            for path, at in ((found.since, found.before), (found.between, found.after)):
                for layer in (*path, None if at is None else at[0]._modules[at[1]]):
                    if isinstance(layer, FEATURES_LAST):
                        return -1
                    if isinstance(layer, conv._ConvNd):
                        return (1, 2) if isinstance(layer, nn.Conv1d) else None
        shapes = [call.shape for call in self.trace.calls if call.module is module] if self.trace else []
        return -1 if shapes and len(shapes[-1]) == 3 else None

    def _title(self, module: nn.Module) -> str:
        return f"layer {self.chosen[module]!r}, {module}"

    def _unplaceable(self, module: nn.Module, reason: str) -> ValueError:
        return ValueError(
            f"{self._title(module)}: {self.make.__name__} needs the layer with weights {' and '.join(self.needs)} it, "
            f"but {reason}. Leave it out by only=, or place it by hand: the docstring of {self.make.__name__} says how "
            "it is given its neighbours"
        )


def _is_swapped(module: nn.Module) -> bool:
    """A dropout of torch, or of a subclass that computes the same."""
    kind = next((kind for kind in SWAPPED if isinstance(module, kind)), None)
    return kind is not None and type(module).forward is kind.forward and "forward" not in vars(module)


def _write_back(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:  # noqa: ARG001
    """A forward hook: the input becomes the output, as the code around an in-place dropout may expect."""
    return output if output is args[0] else args[0].copy_(output)


def _check_wrapping(model: nn.Module, swaps: dict[Slot, nn.Module], own: list[Tensor]) -> None:
    """What is learned has to be known to the wrapper that averages gradients over processes."""
    wrapped = any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules())
    known = {id(tensor) for tensor in own}
    if wrapped and any(id(tensor) not in known for new in swaps.values() for tensor in new.parameters()):
        raise ValueError(
            "convert_dropout: the model is in a DistributedDataParallel, which would not average the gradients of the "
            "parameters that the new dropout brings along, and every process would learn its own; convert the model "
            "first, and wrap it then"
        )


def _settled(new: nn.Module, old: nn.Module | None, own: list[Tensor]) -> nn.Module:
    """The new layer in the mode of the old one; what it brings along gets the device and dtype of its neighbours."""
    known = {id(tensor) for tensor in own} | {id(tensor.grad) for tensor in own if tensor.is_leaf}
    tensors = [*new.parameters(), *new.buffers()]
    around = [*(tensor for tensor in tensors if id(tensor) in known), *own]
    like = next((tensor for tensor in around if tensor.dtype.is_floating_point), None)
    if like is not None and any(id(tensor) not in known for tensor in tensors):
        place = {"device": like.device, "dtype": like.dtype}
        new._apply(  # type: ignore[no-untyped-call]
            lambda tensor: tensor.to(**place) if id(tensor) not in known and tensor.dtype.is_floating_point else tensor
        )
    return new.train(old is None or old.training)


def _route(model: nn.Module, mode: functional_dropout, trace: Trace | None) -> None:
    """Put the mode around the modules that call ``F.dropout``; if they are not known, around the whole model.

    Then the parts of the model enter it by themselves where activation checkpointing calls them again.
    """
    if trace is not None:
        for module in {call.module: None for call in trace.calls if call.function == "dropout"}:
            route_calls(module, mode, again=False)
        return
    for module in list(model.modules()):
        if module is model or not type(module).__module__.startswith("torch.nn."):
            route_calls(module, mode, again=module is not model)


def _report(model: nn.Module, chosen: dict[nn.Module, str], trace: Trace | None, functional: bool) -> None:
    """Warn of what is not as it seems: nothing swapped, swapped but never called, not swapped though it acts."""
    said: list[str] = []
    if trace is not None:
        called = {call.module for call in trace.calls}
        if unused := [repr(name) for module, name in chosen.items() if module not in called]:
            said.append(f"swapped but never called with these inputs: {_listed(unused)}")
        acting = [
            f"{call.function or type(call.module).__name__} in {call.name or 'the model'!r} {call.where}".rstrip()
            for call in trace.calls
            if call.p != 0 and not _is_swapped(call.module) and not (functional and call.function == "dropout")
        ]
        if acting:
            said.append(f"not swapped though it acts: {_listed(acting)}")
    if not chosen and not (functional and not said):
        others = [f"{name!r} ({type(module).__name__})" for name, module in model.named_modules() if _drops(module)]
        said.insert(0, "nothing was swapped: the model has no nn.Dropout with p > 0 that `only` lets through")
        if others:
            said.append(f"its other dropouts are {_listed(others)}")
        said.append(
            "give the model a rate where p = 0; functional=True reaches F.dropout; describe_dropout(model, *inputs) "
            "lists all that acts"
        )
    if said:
        warnings.warn("convert_dropout: " + "; ".join(said), stacklevel=3)


def _drops(module: nn.Module) -> bool:
    own = isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0
    return own or isinstance(module, _DropoutNd) or "drop" in type(module).__name__.lower()


def _listed(names: list[str], most: int = 6) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
