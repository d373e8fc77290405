"""Swap the dropout layers of a model that exists already, and make them follow the batch of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from evodrop.nn._neighbours import Slot, Surroundings, find_surroundings, slots_of
from evodrop.nn.distributed import check_group
from evodrop.nn.layers import EvolutionalDropout, EvolutionalDropout1d, EvolutionalDropout2d, Evolving
from evodrop.nn.zoo import ZOO
from evodrop.nn.zoo._base import Site

__all__ = ["convert_dropout", "convert_sync_dropout"]

M = TypeVar("M", bound=nn.Module)
Make = Callable[..., nn.Module]
SIDES = ("before", "after")
SWAPPED = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)
CHANNELS: dict[Any, dict[type[nn.Module], Make]] = {  # what drops whole channels goes on to do so
    EvolutionalDropout: {nn.Dropout1d: EvolutionalDropout1d, nn.Dropout2d: EvolutionalDropout2d},
    nn.Dropout: {nn.Dropout1d: nn.Dropout1d, nn.Dropout2d: nn.Dropout2d},
}


def convert_dropout(
    model: M,
    to: str | Make = EvolutionalDropout,
    only: Callable[[str, nn.Module], bool] | None = None,
    **options: Any,
) -> M | nn.Module:
    """Replace every ``nn.Dropout``, ``nn.Dropout1d`` and ``nn.Dropout2d`` in ``model``, nested ones too, and return it.

    Rate and train/eval mode are kept, and a layer used in two places stays one layer, unless its neighbours count.
    Layers with p = 0 are switched off and stay as they are. Dropout that is no such
    layer stays: other classes, and what ``nn.LSTM``, ``nn.MultiheadAttention`` and ``F.dropout`` do inside. In a model
    of sequences, say which dimension holds the units: ``unit_dims=-1``.

    A dropout that works with its neighbours finds them by the graph of the model: past activations, pooling, flattening
    and normalisation. Where it cannot do without them and they are not found, that is an error. The new layers have the
    very parameters of the old ones, so an optimizer keeps them; give it those that are new. Hooks on
    a layer that is replaced are gone. Convert a model before it is wrapped for several processes.

    Args:
        model: changed in place; if it is itself a dropout layer, its replacement is returned. If there is an error,
            nothing is changed.
        to: a name of :data:`evodrop.nn.zoo.ZOO` (``"data-dependent"`` only with ``probs=``), a class, or any function
            from a rate to a module. With ``"evolutional"`` and ``"standard"``, layers that drop whole
            channels go on to do so.
        only: predicate on (qualified name, module) that a layer has to satisfy.
        options: passed on to the new layers.

    Examples:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        >>> convert_dropout(model, "weight-aware", weight_share=1.0)[2]
        WeightAwareLinear(in_features=8, out_features=2, bias=True, p=0.2, weight_share=1, match='draws')
    """
    make = _checked_target(model, to, options)
    chosen = {
        module: name
        for name, module in model.named_modules()
        if type(module) in SWAPPED and module.p > 0 and (only is None or only(name, module))
    }
    if model not in chosen and hasattr(make, "place"):
        swaps = _fitted(model, make, chosen, options)
    else:
        made = {module: _made(name, module, make, options) for module, name in chosen.items()}
        swaps = {slot: made[child] for slot, child in slots_of(model) if child in made}
        if model in made:
            return _settled(made[model], model, [])
    own = [*model.parameters(), *model.buffers()]
    _check_wrapping(model, swaps, own)
    settled = {slot: _settled(new, slot[0]._modules[slot[1]], own) for slot, new in swaps.items()}
    for (parent, name), new in settled.items():
        parent._modules[name] = new
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
    check_group(process_group)  # an error even if no layer is there
    for layer in model.modules():
        if isinstance(layer, Evolving):
            layer.process_group, layer.sync = process_group, True
    return model


def _checked_target(model: nn.Module, to: str | Make, options: dict[str, Any]) -> Make:
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert_dropout: model is {model!r:.200}, but it takes an nn.Module")
    if isinstance(to, nn.Module) or not (isinstance(to, str) or callable(to)):
        raise TypeError(
            f"convert_dropout: to is {to!r:.200}, but it takes a name of the zoo, a class, or a function from a rate "
            "to a module: every place gets a layer of its own. Options go after it, as in to='standout', alpha=2.0"
        )
    if to == "data-dependent" and options.get("probs") is None:
        raise ValueError(
            "convert_dropout: 'data-dependent' follows the second moments of data, and a model has none; put "
            "DataDependentDropout.from_data(X, p) in the place of the layer, X being what enters it, or give probs="
        )
    if isinstance(to, str) and to not in ZOO:
        raise ValueError(f"dropout {to!r} is not in the zoo; it has {', '.join(map(repr, sorted(ZOO)))}")
    return ZOO[to] if isinstance(to, str) else to


def _made(name: str, module: nn.Module, make: Any, options: dict[str, Any]) -> nn.Module:
    if getattr(make, "needs", None):
        raise _unplaceable(name, module, make, "it is the whole model, which has no neighbours")
    make = CHANNELS.get(make, {}).get(type(module), make)
    try:
        if hasattr(make, "place"):
            placed: nn.Module = make.place(Site(None, module, None), **options).dropout
            return placed
        layer: nn.Module = make(float(module.p), **options)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise _explained(error, name, module, make, options) from error
    if not isinstance(layer, nn.Module):
        raise TypeError(
            f"convert_dropout: layer {name!r}, {module}: to made {layer!r:.200} of its rate, but it makes an nn.Module"
        )
    return layer


def _fitted(
    model: nn.Module, make: Any, chosen: dict[nn.Module, str], options: dict[str, Any]
) -> dict[Slot, nn.Module]:
    """The new layers by their slots. One place after the other: the layer after one may stand before the next."""
    calls = find_surroundings(model) if chosen else {}
    swaps: dict[Slot, nn.Module] = {}
    for slot, module in slots_of(model):
        if module not in chosen:
            continue
        found = _only_call(chosen[module], module, make, calls.get(slot, []))
        found = found.without(side for side in _shared(found, calls) if side not in getattr(make, "needs", ()))
        before, after = (
            None if at is None else swaps.get(at, at[0]._modules[at[1]]) for at in (found.before, found.after)
        )
        try:
            new = make.place(Site(before, module, after, found.between, found.since), **options)
        except (TypeError, ValueError) as error:
            raise _explained(error, chosen[module], module, make, options) from error
        swaps[slot] = new.dropout
        for at, old, fresh in ((found.before, before, new.before), (found.after, after, new.after)):
            if at is not None and fresh is not old:
                if len(calls[at]) > 1:
                    reason = (
                        f"its neighbour {at[1]!r} is used in {len(calls[at])} places, and would change in all of them"
                    )
                    raise _unplaceable(chosen[module], module, make, reason)
                swaps[at] = fresh
    return swaps


def _only_call(name: str, module: nn.Module, make: Any, calls: list[Surroundings]) -> Surroundings:
    """The surroundings of a layer: of each side what is known and the same wherever the layer is used."""
    needs = sorted(getattr(make, "needs", ()))
    if needs and not calls:
        raise _unplaceable(name, module, make, "torch.fx cannot trace the code that calls it")
    first = calls[0] if calls else Surroundings(None, None)
    for side in needs:
        if getattr(first, side) is None:
            reason = f"no single layer with weights is known {side} it: another kind of layer or operation is there, "
            raise _unplaceable(name, module, make, reason + "or code that torch.fx cannot trace")
    unlike = {side for side in SIDES if any(getattr(call, side) != getattr(first, side) for call in calls)}
    if unlike & set(needs):
        reason = f"it is used in {len(calls)} places with different neighbours; give each place a dropout of its own"
        raise _unplaceable(name, module, make, reason)
    return first.without(unlike)


def _shared(found: Surroundings, calls: dict[Slot, list[Surroundings]]) -> list[str]:
    """The sides whose layer is used elsewhere too, where it would change as well."""
    return [side for side in SIDES if len(calls.get(getattr(found, side), [])) > 1]


def _unplaceable(name: str, module: nn.Module, make: Any, reason: str) -> ValueError:
    return ValueError(
        f"convert_dropout: layer {name!r}, {module}: {make.__name__} needs the layer with weights "
        f"{' and '.join(sorted(make.needs))} it, but {reason}. Leave it out by only=, or place it by hand: "
        f"the docstring of {make.__name__} says how it is given its neighbours"
    )


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


def _explained(error: Exception, name: str, module: nn.Module, make: Any, options: dict[str, Any]) -> Exception:
    """The same kind of error, with the layer; an argument that is not taken is known by the class alone."""
    if isinstance(error, ValueError):
        return ValueError(f"convert_dropout: layer {name!r}, {module}: {error}")
    title = getattr(make, "__name__", repr(make))
    given = ", ".join(f"{option}={value!r:.50}" for option, value in options.items()) or "nothing but the rate"
    return TypeError(f"convert_dropout: layer {name!r}, {module}: {title} was given {given}, but {error}")


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
