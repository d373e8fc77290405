"""Which dropouts act in a model, and which layers stand beside them: by one recorded forward pass, or by order.

Hooks see the layers, and a ``TorchFunctionMode`` sees every function of torch that code calls, so that
``F.dropout`` and attention are found too. What a pass could change, buffers, flags and attributes of the modules, is
replaced by copies while it lasts.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from evodrop.nn.zoo._base import ELEMENTWISE, NORMALISATION, POOLING, WEIGHTED, WeightedDropout

DROPOUTS = (_DropoutNd, WeightedDropout)  # torch's dropout layers, ours and those of the zoo
PASSED = (*ELEMENTWISE, *POOLING, *NORMALISATION, nn.Flatten)  # what neighbours see past
ATTENTION = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}  # the position of the rate
FUNCTIONS = {  # torch's dropouts as functions; those with an underscore work in place
    name + end for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for end in ("", "_")
} | {"dropout1d", "dropout2d", "dropout3d", "native_dropout", "routed_dropout"}
MASKS = {"bernoulli", "bernoulli_"}
DRAWS = MASKS | {"randint", "rand", "rand_like", "randn_like"}  # with which our own functions draw
# Functions have the names of the layers that do the same, but for case and underscores.
MAPS = {kind.__name__.lower() for kind in ELEMENTWISE} | {"contiguous"}
POOLS = {kind.__name__.lower(): kind for kind in POOLING}
TORCH, OURS = (os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))
Slot = tuple[nn.Module, str]  # a parent and the name of its child: where a layer is registered
Step = tuple[nn.Module | None, Slot | None]  # a call of a layer, or of a function as a layer


class Call(NamedTuple):
    """One dropout of the pass."""

    name: str  # of the layer, or of the module whose code calls the function
    module: nn.Module  # the very one
    function: str | None  # None for a layer; for a layer's own dropout, as nn.LSTM has it, "inside"
    p: float | None  # None if it is not known
    shape: tuple[int, ...]  # of the input
    noise: float | None  # ||y - x||^2 / ||x||^2, or None if it cannot be seen
    where: str = ""  # file:line of the code that calls a function


class Surroundings(NamedTuple):
    """One call of a layer: the weighted layers before and after it, if they are known."""

    before: Slot | None
    after: Slot | None
    between: tuple[nn.Module, ...] = ()  # what stands on the way to the one after it
    since: tuple[nn.Module, ...] = ()  # and on the way back to the one before it


class Trace(NamedTuple):
    """What a forward pass has shown."""

    calls: list[Call]
    surroundings: dict[Slot, list[Surroundings]]  # of every call of every layer without children, under its slot


class _Node:
    """A call of a layer, or of a function as the layer that does the same; None if neighbours end at it."""

    def __init__(self, layer: nn.Module | None, slot: Slot | None, source: _Node | None) -> None:
        self.layer, self.slot, self.source = layer, slot, source  # the source is the call that it takes all from
        self.users = 0


def surroundings_by_order(model: nn.Module) -> dict[Slot, list[Surroundings]]:
    """The surroundings of all layers in an ``nn.Sequential``, nested ones too, since there order is what is called.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(3, 1))
        >>> (found,) = surroundings_by_order(model)[model, "2"]
        >>> found.before[1], found.after[1], found.between
        ('0', '4', (Flatten(start_dim=1, end_dim=-1),))
    """
    nested: set[nn.Module] = set()

    def in_order(parent: nn.Module) -> Iterator[Step]:
        for name, child in parent._modules.items():
            if _is_sequential(child):
                nested.add(child)
                yield from in_order(child)
            else:
                yield child, (parent, name)

    # A parent comes before what is in it.
    return _surroundings(
        list(in_order(module)) for module in model.modules() if _is_sequential(module) and module not in nested
    )


def trace_forward(model: nn.Module, inputs: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Trace:
    """Call the model once in training mode, without gradients, and record it. The model stays as it was.

    So do torch's generators and those that layers hold. An error of the model comes through.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout())
        >>> [(call.name, call.shape) for call in trace_forward(model, [torch.ones(4, 2)]).calls]
        [('2', (4, 3))]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is {model!r:.200}, but it is an nn.Module")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise ValueError("the model has lazy parameters that its first call creates; call it once first")
    # Compiled code has neither layers nor functions to see. Where torch's compiler is not loaded, there is none.
    eager: Any = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with kept_generators(model), torch.no_grad(), eager, _stand_ins(model) as places:
        recorder = _Recorder(places)
        for module in places:
            module.register_forward_pre_hook(recorder.enter, with_kwargs=True)
            module.register_forward_hook(recorder.leave, with_kwargs=True, always_call=True)
        # Copies, since a layer may work in place.
        args, named = tree_map_only(Tensor, torch.clone, (list(inputs), dict(kwargs or {})))
        with recorder:
            output = model(*args, **named)
        recorder.connect(None, None, _tensors(output), [])  # what is returned has one more user
        return Trace(recorder.calls, _surroundings(recorder.chains()))


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keyword arguments: of a mapping, of a tuple or list, or of one value."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


@contextmanager
def kept_generators(model: nn.Module) -> Iterator[list[torch.Generator]]:
    """All generators that a model may draw from: torch's, of every device, and those that its modules hold.

    After the block they are in the state that they had before.
    """
    found = [torch.default_generator]
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        library = torch.get_device_module(accelerator)
        found += [library._get_default_mps_generator()] if accelerator.type == "mps" else library.default_generators
    held = (value for module in model.modules() for value in vars(module).values())
    found += [value for value in held if isinstance(value, torch.Generator)]
    states = [generator.get_state() for generator in found]
    try:
        yield found
    finally:
        for generator, state in zip(found, states, strict=True):
            generator.set_state(state)


class _Place(NamedTuple):
    name: str
    module: nn.Module  # what the user has there
    slot: Slot | None  # None for the model itself


@contextmanager
def _stand_ins(model: nn.Module) -> Iterator[dict[nn.Module, _Place]]:
    """The modules of the model in training mode, with copies of all that a pass may change but for parameters.

    A module in two slots becomes two, so that a call shows the slot. Flags are set without ``train()``, which some
    models override to merge weights, say. Modules of TorchScript cannot be looked into, and stay in eval mode.
    """
    before: dict[nn.Module, dict[str, Any]] = {}
    scripts: list[tuple[nn.Module, bool]] = []
    clones: dict[int, Tensor] = {}
    places: dict[nn.Module, _Place] = {}

    def stand_in(module: nn.Module, name: str, slot: Slot | None) -> nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            scripts.extend((part, part.training) for part in module.modules())
            return module.eval()
        stand = object.__new__(type(module)) if module in before else module
        state = {
            key: copy(value) if type(value) in (list, dict, set, OrderedDict) else value
            for key, value in before.setdefault(module, dict(vars(module))).items()
        }
        for key, buffer in state["_buffers"].items():
            if buffer is not None:
                state["_buffers"][key] = clones.setdefault(id(buffer), buffer.clone())
        for key, child in state["_modules"].items():
            if child is not None:
                state["_modules"][key] = stand_in(child, f"{name}.{key}" if name else key, (module, key))
        vars(stand).update(state, training=True)
        places[stand] = _Place(name, module, slot)
        return stand

    try:
        stand_in(model, "", None)
        yield places
    finally:
        for module, state in before.items():
            vars(module).clear()
            vars(module).update(state)
        for part, training in scripts:
            part.training = training


class _Recorder(TorchFunctionMode):
    """Writes down dropouts, and from which call to which tensors go."""

    def __init__(self, places: dict[nn.Module, _Place]) -> None:
        super().__init__()
        self.places = places
        self.calls: list[Call] = []
        self.nodes: list[_Node] = []
        self.made_by: Any = WeakIdKeyDictionary()  # the node that a tensor comes from
        self.running: list[tuple[nn.Module, Tensor | None]] = []  # and what each of them got
        self.seen: Any = None  # the frame of the last call of a function of ours

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        first = next(iter(_tensors(args, kwargs)), None)
        if first is not None and isinstance(module, DROPOUTS) and getattr(module, "inplace", False):
            with torch._C.DisableTorchFunction():
                first = first.clone()
        self.running.append((module, first))

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        _, given = self.running.pop()
        if output is None:  # of a call that raised an error, which the model may deal with
            return
        outputs, shape = _tensors(output), () if given is None else tuple(given.shape)
        if isinstance(module, DROPOUTS):
            with torch._C.DisableTorchFunction():
                plain = given
                if isinstance(module, WeightedDropout) and given is not None:
                    plain = module._product(given, module.weight, module.bias)
                self._note(module, None, float(module.p), shape, _noise_level(plain, outputs))
        elif isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1:
            self._note(module, "inside", float(module.dropout), shape, None)
        if _is_leaf(module) and not self._inside_leaf():
            self.connect(self.places[module].module, self.places[module].slot, _tensors(args, kwargs), outputs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        relevant = name in FUNCTIONS or name in ATTENTION or name in DRAWS
        inputs = _tensors(args, kwargs)
        x = inputs[0] if inputs else None
        if relevant and x is not None and (name.endswith("_") or kwargs.get("inplace")):
            x = x.clone()
        output = func(*args, **kwargs)
        outputs = _tensors(output)
        if relevant and not any(isinstance(module, DROPOUTS) for module, _ in self.running):
            self._note_function(name, args, kwargs, x, outputs)
        if name == "__setitem__":  # returns nothing, and changes its first argument
            outputs = inputs[:1]
        if outputs and not self._inside_leaf():
            self.connect(_as_layer(name, args, kwargs, outputs[0]), None, inputs, outputs)
        return output

    def connect(
        self, layer: nn.Module | None, slot: Slot | None, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """A node between the tensors that a call takes and those that it gives."""
        sources = {node for tensor in inputs if (node := self.made_by.get(tensor)) is not None}
        for source in sources:
            source.users += 1
        alone = len(sources) == 1 and len({id(tensor) for tensor in inputs}) == 1
        node = _Node(layer, slot, sources.pop() if alone else None)
        for tensor in outputs:
            self.made_by[tensor] = node
        self.nodes.append(node)

    def chains(self) -> Iterator[list[Step]]:
        """The calls; a new chain begins where one takes more than what a call gave, or shares it with another."""
        chains: dict[_Node, list[Step]] = {}
        for node in self.nodes:
            if node.source is not None and node.source.users == 1:
                chains[node] = chains.pop(node.source)
            chains.setdefault(node, []).append((node.layer, node.slot))
        yield from chains.values()

    def _inside_leaf(self) -> bool:
        return any(_is_leaf(module) for module, _ in self.running)

    def _note_function(self, name: str, args: Any, kwargs: Any, x: Tensor | None, outputs: Sequence[Tensor]) -> None:
        ours, where = _calling_code()
        shape, noise, p = () if x is None else tuple(x.shape), None, None
        if name in FUNCTIONS:
            training = _argument(args, kwargs, 2, "training", "train")
            p = 0.0 if training is False else _argument(args, kwargs, 1, "p")
            noise = _noise_level(x, outputs)
        elif name in ATTENTION:
            p = _argument(args, kwargs, ATTENTION[name], "dropout_p") or 0.0
            p = 0.0 if kwargs.get("training") is False else p
        elif ours is not None:  # it may draw more than once
            p, given = ours.f_locals.get("p"), ours.f_locals.get("input")
            if ours is self.seen or p is None or not isinstance(given, Tensor):
                return
            self.seen, name, shape = ours, ours.f_code.co_name, tuple(given.shape)
        elif name in MASKS:
            keep = _argument(args, kwargs, 1, "p")
            p = 1.0 - keep if isinstance(keep, float) else None
        else:
            return
        if p != 0:
            self._note(self.running[-1][0], name, None if p is None else float(p), shape, noise, where)

    def _note(self, module: nn.Module, *facts: Any) -> None:
        self.calls.append(Call(self.places[module].name, self.places[module].module, *facts))


def _surroundings(chains: Iterable[list[Step]]) -> dict[Slot, list[Surroundings]]:
    """The surroundings of each layer among the calls of a chain, each of which takes what the one before it gives."""
    found: dict[Slot, list[Surroundings]] = defaultdict(list)
    for chain in chains:
        for place, (_, slot) in enumerate(chain):
            if slot is not None:
                before, since = _first_weighted(reversed(chain[:place]))
                after, between = _first_weighted(chain[place + 1 :])
                found[slot].append(Surroundings(before, after, between, since))
    return dict(found)


def _first_weighted(steps: Iterable[Step]) -> tuple[Slot | None, tuple[nn.Module, ...]]:
    """The first weighted layer, and what was passed; None if there is none, or no way to it."""
    passed: list[nn.Module] = []
    for layer, slot in steps:
        if isinstance(layer, WEIGHTED):
            return slot, tuple(passed)
        if not isinstance(layer, PASSED):
            break
        passed.append(layer)  # type: ignore[arg-type]
    return None, tuple(passed)


def _is_leaf(module: nn.Module) -> bool:
    """What counts as one call: the functions inside are its own."""
    return not module._modules or isinstance(module, (*WEIGHTED, *PASSED, *DROPOUTS))


def _is_sequential(module: nn.Module | None) -> TypeGuard[nn.Sequential]:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _as_layer(name: str, args: Any, kwargs: Any, output: Tensor) -> nn.Module | None:
    """A function call as the layer that does the same, if it is one that neighbours may see past."""
    plain = name.replace("_", "")
    if plain in MAPS or name in FUNCTIONS:
        return nn.Identity()
    if plain in POOLS:
        known = {key: value for key, value in kwargs.items() if value is not None and key != "return_indices"}
        return POOLS[plain](*args[1:], **known)
    if name in ("flatten", "view", "reshape") and args and isinstance(args[0], Tensor):
        before, after = args[0].shape, output.shape
        if before == after:
            return nn.Identity()
        if len(after) == 2 and before[:1] == after[:1]:
            return nn.Flatten()
    return None


def _calling_code() -> tuple[Any, str]:
    """The outermost frame of our own functions, if there is one, and file:line of the code that called them or torch.

    The line is empty where torch's own layers make the call.
    """
    frame: Any = sys._getframe(3)
    ours = None
    while frame is not None and frame.f_code.co_filename != __file__:
        file = frame.f_code.co_filename
        if file.startswith(OURS):
            ours = frame
        elif not file.startswith(TORCH):
            return ours, f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ours, ""


def _argument(args: Any, kwargs: Any, position: int, *names: str) -> Any:
    if position < len(args):
        return args[position]
    return next((kwargs[name] for name in names if name in kwargs), None)


def _tensors(*values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _noise_level(x: Tensor | None, outputs: Sequence[Tensor]) -> float | None:
    """||y - x||^2 / ||x||^2, or None if it cannot be known."""
    if x is None or not outputs or outputs[0].shape != x.shape or x.is_meta or not x.is_floating_point():
        return None
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    noise, signal = (float(torch.linalg.vector_norm(one, dtype=wide)) for one in (outputs[0] - x, x))
    return (noise / signal) ** 2 if signal > 0 else 0.0
