"""Functional dropout: calls of ``F.dropout`` in code that cannot be edited go to a method of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

from evodrop.nn.zoo import ZOO

Make = Callable[..., nn.Module]


class functional_dropout(TorchFunctionMode):  # noqa: N801  # a context manager, as torch.no_grad
    """Within a ``with`` block, every ``F.dropout`` in training is another dropout.

    So are ``torch.dropout`` and the ``nn.Dropout`` layers that are called inside. What no function of torch shows stays
    as it is: dropout inside fused attention, ``nn.LSTM`` and ``nn.MultiheadAttention``; :func:`describe_dropout`
    lists it. Activation checkpointing calls code again in the backward pass: put that into the block, too, or let
    :func:`convert_dropout` do it. ``torch.compile`` traces it.

    Args:
        to: a name of :data:`evodrop.nn.zoo.ZOO`, a class, or a function from a rate to a module. It learns nothing and
            needs no neighbours, since a call has none.
        options: passed on to it. Dropouts that draw have ``match="noise"`` by default, which keeps the noise level.

    Examples:
        >>> with functional_dropout("evolutional", unit_dims=-1):
        ...     y = F.dropout(torch.ones(8, 4), 0.5)
        >>> y.sum(1)  # every row has k draws, and each is worth as much: what a sum of masks would not show
        tensor([4., 4., 4., 4., 4., 4., 4., 4.])
    """

    def __init__(self, to: str | Make = "evolutional", **options: Any) -> None:
        super().__init__()
        self.make = checked_target("functional_dropout", to)
        self.options = with_noise_matched(self.make, options)
        self.layers: dict[float, nn.Module] = {}
        if getattr(self.make, "needs", None) or any(True for _ in self.layer(0.5).parameters()):
            raise ValueError(
                f"functional_dropout: {to!r} learns its noise or works on the layers beside it, but a call of "
                "F.dropout has neither parameters nor neighbours; take 'evolutional', 'gaussian' or another without"
            )

    def layer(self, p: float) -> nn.Module:
        """The layer of a rate."""
        if p not in self.layers:
            self.layers[p] = self.make(p, **self.options).train()
        return self.layers[p]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.dropout, torch.dropout, torch.dropout_):
            x, p, training, inplace = _dropout_arguments(*args, **(kwargs or {}))
            if training and p > 0:
                output = routed_dropout(x, p, self)
                return x.copy_(output) if inplace or func is torch.dropout_ else output
        return func(*args, **(kwargs or {}))


def routed_dropout(input: Tensor, p: float, mode: functional_dropout) -> Tensor:
    """The call of a mode, which the recorder of a forward pass sees."""
    if has_torch_function_unary(input):
        output: Tensor = handle_torch_function(routed_dropout, (input,), input, p, mode)
    else:
        output = mode.layer(p)(input)
    return output


def route_calls(module: nn.Module, mode: functional_dropout, again: bool) -> None:
    """Give a module a forward inside of the mode; with ``again``, only where checkpointing calls it in backward."""
    module.forward = update_wrapper(_Routed(module.forward, mode, again), module.forward)


class _Routed:
    """A forward within a mode: an object, which can be copied and pickled with its module."""

    def __init__(self, forward: Any, mode: functional_dropout, again: bool) -> None:
        self.forward, self.mode, self.again = forward, mode, again

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.again and (torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1):
            return self.forward(*args, **kwargs)  # the module around it has entered the mode
        with self.mode:
            return self.forward(*args, **kwargs)


def checked_target(caller: str, to: Any) -> Make:
    """What makes the new dropouts."""
    if isinstance(to, nn.Module) or not (isinstance(to, str) or callable(to)):
        raise TypeError(
            f"{caller}: to is {to!r:.200}, but it takes a name of the zoo, a class, or a function from a rate to a "
            "module: every place gets a layer of its own. Options go after it, as in to='standout', alpha=2.0"
        )
    if isinstance(to, str) and to not in ZOO:
        raise ValueError(f"dropout {to!r} is not in the zoo; it has {', '.join(map(repr, sorted(ZOO)))}")
    return ZOO[to] if isinstance(to, str) else to


def with_noise_matched(make: Make, options: dict[str, Any]) -> dict[str, Any]:
    """The options, by default with the noise level of the dropout that is replaced; the paper's k has another."""
    draws = isinstance(make, type) and "match" in signature(make).parameters
    return {"match": "noise", **options} if draws and "k" not in options else options


def _dropout_arguments(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
) -> tuple[Tensor, float, bool, bool]:
    return input, p, training and train, inplace
