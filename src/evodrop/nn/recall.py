"""What activation checkpointing must find again: the sums that a layer followed in a call that backward makes again.

A call that is made again neither communicates nor counts twice. It is recognised by the state of the generator, which
checkpointing restores so that the noise can be made again too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Self
from weakref import WeakValueDictionary

import torch
from torch import Tensor

__all__ = ["Recall", "follow", "follow_once"]

MOST = 16  # calls of one layer that may wait for their backward
_numbers = count()
_alive: WeakValueDictionary[int, Recall] = WeakValueDictionary()


class Recall:
    """The sums of a layer's last calls under checkpointing; calls without it leave nothing here.

    A copy or a pickle is empty: the calls that wait are the original's.
    """

    def __init__(self) -> None:
        self.calls: dict[int, Tensor] = {}
        self.number = torch.tensor(next(_numbers), device="cpu")  # a tensor: compilers make a graph for every int
        _alive[int(self.number)] = self

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def sums_of_call(self, device: torch.device, make: Callable[[], Tensor], repeatable: bool) -> Tensor:
        """What ``make`` returns, called once for every call of the layer, however often backward makes it again.

        Args:
            device: whose generator gives the noise.
            make: sums the squares of this call.
            repeatable: whether it can be called again if too many calls came between: it changes no state.
        """
        if torch.compiler.is_compiling():  # a graph has no such moment; see follow_once
            return make()
        if _in_backward():
            known = self.calls.get(_state_of_generator(device))
            if known is None and not repeatable:
                raise RuntimeError(
                    f"backward makes a call of a layer with momentum again that is not among its last {MOST} under "
                    "checkpointing; use momentum=None, or checkpoint a part of the network without the layer"
                )
            return make() if known is None else known
        key = _state_of_generator(device) if _may_be_made_again() else None
        sums = make()
        if key is not None:
            self.calls[key] = sums
            if len(self.calls) > MOST:
                del self.calls[next(iter(self.calls))]
        return sums


def follow(sums: Tensor, running: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """The running sums with a batch, and those to keep. A batch that is not finite is followed, but not kept: it would
    stay for ever, while the step that it belongs to is usually skipped."""
    followed = (1.0 - momentum) * running + sums
    return followed, torch.where(followed.isfinite().all(), followed, running.to(followed.dtype))


@torch.library.custom_op("evodrop::follow_once", mutates_args=())
def follow_once(sums: Tensor, running: Tensor, momentum: float, number: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`follow` in a compiled graph, which may itself stand in a checkpoint: when backward runs the graph again,
    the same sums are followed again and nothing is counted. ``number`` is that of the layer's :class:`Recall`."""
    kept = running

    def make() -> Tensor:
        nonlocal kept
        followed, kept = follow(sums, running, momentum)
        return followed

    followed = _alive[int(number)].sums_of_call(sums.device, make, repeatable=False)
    return followed.clone(), kept.to(followed.dtype, copy=True)


@follow_once.register_fake
def _(sums: Tensor, running: Tensor, momentum: float, number: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(sums), torch.empty_like(sums)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _may_be_made_again() -> bool:
    """Checkpointing runs forward without gradients, or with hooks that save no tensors."""
    return not torch.is_grad_enabled() or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _state_of_generator(device: torch.device) -> int:
    """A number for the state; on a device it is known to the host, which need not wait."""
    of_device = device.type != "cpu"
    state = torch.get_device_module(device).get_rng_state(device) if of_device else torch.get_rng_state()
    return hash(state.numpy().tobytes())
