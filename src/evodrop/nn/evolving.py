"""Evolutional dropout as modules: its probabilities follow the second moments of the batch, wherever the batch is.

By default the batch is the input. With ``sync=True`` it is that of all processes, and with ``momentum=`` the batches
before have a say too.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from evodrop.nn import functional as F
from evodrop.nn.modules import DrawingDropout, HeldProbabilities
from evodrop.nn.recall import Recall, follow, follow_once
from evodrop.nn.sync import all_reduce_sums, group_named, local_sums, moments_of, name_of_group

__all__ = ["EvolutionalDropout", "EvolutionalDropout1d", "EvolutionalDropout2d", "Evolving"]

Dims = tuple[tuple[int, ...], tuple[int, ...]]


class Evolving(DrawingDropout, HeldProbabilities):
    """What the evolutional layers share: whose second moments they follow."""

    running_sums: Tensor | None
    function: Callable[..., Tensor]  # what the layer is a shell of

    def __init__(
        self,
        p: float = 0.5,
        *,
        process_group: Any = None,
        sync: bool = False,
        momentum: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(p, **options)
        if not isinstance(sync, bool):
            raise TypeError(f"sync is {sync!r}, but it takes True or False; a group of processes is process_group=")
        if process_group is not None and not sync:
            raise ValueError("process_group is given, but sync is False; sync=True shares the moments with the group")
        self.sync, self.process_group, self.momentum = sync, process_group, _checked_momentum(momentum)
        self._hold("running_sums", None)
        self._recall = Recall()

    def forward(self, input: Tensor) -> Tensor:
        if self.training and (self.sync or self.momentum is not None):
            return self.function(input, self.p, moments=self.moments(input), **self.options())
        return self.function(input, self.p, self.training, **self.options())

    @property
    def process_group(self) -> Any:
        """The ranks whose batches are one batch to a synchronised layer; None is all of them."""
        return group_named(self._group)

    @process_group.setter
    def process_group(self, process_group: Any) -> None:
        self._group = name_of_group(process_group)

    @property
    def running_moments(self) -> Tensor | None:
        """(d,) second moments that a layer with momentum follows; None before its first batch."""
        return None if self.running_sums is None else moments_of(self.running_sums)

    def reset_running_stats(self) -> None:
        """Forget all batches, as if the layer were new."""
        self.running_sums = None

    def moments(self, input: Tensor) -> Tensor:
        """(d,) second moments of the batch of all processes, and of those before with momentum. It counts the call."""
        units, positions = self.dims(input)

        def make() -> Tensor:
            return self._sums(local_sums(input, units, positions))

        return moments_of(self._recall.sums_of_call(input.device, make, repeatable=self.momentum is None))

    def dims(self, input: Tensor) -> Dims:
        """The dimensions that are units, and those whose positions share the noise of a unit."""
        return F.checked_units(input, self.unit_dims), ()

    def _sums(self, sums: Tensor) -> Tensor:
        """From the sums of the input to those that the noise follows."""
        if self.sync:
            sums = all_reduce_sums(sums, self._group)
        return sums if self.momentum is None else self._remember(sums, self.momentum)

    def _remember(self, sums: Tensor, momentum: float) -> Tensor:
        """The running sums with this batch, which are kept by a tensor of their own: nobody's copy changes."""
        before = torch.zeros_like(sums) if self.running_sums is None else self.running_sums
        if before.shape != sums.shape:
            raise ValueError(
                f"the input has {len(sums) - 1} units, but the running sums are of {len(before) - 1}; "
                "call reset_running_stats() first, or give each size of input a layer of its own"
            )
        if torch.compiler.is_compiling():
            followed, kept = follow_once(sums, before, momentum, self._recall.number)
        else:
            followed, kept = follow(sums, before, momentum)
        self.running_sums = kept
        return cast(Tensor, followed)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self.momentum is None:  # running sums are then as unexpected as any other name
            return super(HeldProbabilities, self)._load_from_state_dict(state_dict, prefix, *args)
        sums, errors = state_dict.get(f"{prefix}running_sums"), args[-1]
        if type(sums) is Tensor and not (sums.is_meta or (sums.isfinite() & (sums >= 0)).all()):
            errors.append(f"{prefix}running_sums holds sums of squares that are negative or not finite; train anew")
            return None
        return super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        parts = [super().extra_repr()]
        parts += ["sync=True"] * self.sync + [f"process_group={self._group!r}"] * (self._group is not None)
        return ", ".join([*parts, *([] if self.momentum is None else [f"momentum={self.momentum}"])])


class EvolutionalDropout(Evolving):
    """Multinomial noise whose probabilities follow the second moments of each mini-batch: they evolve with the layer.

    A drop-in for ``nn.Dropout`` (Figure 1 of the paper); :func:`~evodrop.nn.functional.evolutional_dropout` has the
    formula. As in batch normalisation, an example's noise depends on its batch. In eval mode it is the identity.

    Args:
        p: fraction of the units to drop, in [0, 1). It sets k = d (1 - p); draws repeat, so by default more than this
            fraction is zero: about 61 % at 0.5 and, with k = d, still 37 % at 0.
        k: number of draws, instead of the number that ``p`` and ``match`` give.
        scheme: ``"multinomial"``, or ``"bernoulli"``: independent noise by water-filling.
        match: ``"draws"``, the paper's k = d (1 - p); ``"distinct"``, which zeroes the fraction p of the live units, as
            ``nn.Dropout`` does; ``"noise"``, whose E||x * noise||^2 is that of ``nn.Dropout``.
        uniform_mix: share of uniform probability mixed in, from 0 to 1; it bounds the noise of rarely active units.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. For a
            sequence, (N, T, C) or (T, N, C), -1 is usually meant.
        sync: follow the batch of all processes together, at the cost of one all_reduce of d + 1 numbers a step. Every
            rank calls the layer, with as many units and any number of examples. Without processes it changes nothing.
        process_group: the processes, instead of all; :func:`evodrop.nn.convert_sync` sets both in a whole model.
        momentum: share of this batch in a running second moment, in (0, 1]: the moments of a step t are
            sum_s (1 - momentum)^(t - s) sum_j x_sj^2 / sum_s (1 - momentum)^(t - s) n_s. For batches too small to
            tell their moments. Default: this batch only. The state_dict holds the sums.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 150), torch.nn.ReLU(), EvolutionalDropout(0.5))
        >>> model(torch.randn(128, 64)).shape
        torch.Size([128, 150])
    """

    function = staticmethod(F.evolutional_dropout)


class _ChannelDropout(Evolving):
    batched: int  # dimensions of a batch

    def __init__(self, p: float = 0.5, **options: Any) -> None:
        if "unit_dims" in options:
            raise TypeError(f"{type(self).__name__} drops channels, so it takes no unit_dims; EvolutionalDropout does")
        super().__init__(p, **options)

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if name != "unit_dims"}

    def dims(self, input: Tensor) -> Dims:
        return F.checked_channels(input, self.batched)


class EvolutionalDropout1d(_ChannelDropout):
    """:class:`EvolutionalDropout` of whole channels.

    A channel has one noise for all its positions, and its second moment is the mean over them too.

    Args:
        p, options: as in :class:`EvolutionalDropout`, without ``unit_dims``.

    Shape:
        (N, C, L), or (C, L) for one example; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> y = EvolutionalDropout1d(0.5)(torch.ones(8, 16, 10))
        >>> bool((y == y[:, :, :1]).all())  # a channel is dropped, or drawn, as a whole
        True
    """

    batched = 3
    function = staticmethod(F.evolutional_dropout1d)


class EvolutionalDropout2d(_ChannelDropout):
    """:class:`EvolutionalDropout` of whole channels.

    A channel has one noise for all its positions, and its second moment is the mean over them too.

    Args:
        p, options: as in :class:`EvolutionalDropout`, without ``unit_dims``.

    Shape:
        (N, C, H, W), or (C, H, W) for one example; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> y = EvolutionalDropout2d(0.5)(torch.ones(8, 16, 5, 5))
        >>> bool((y == y[:, :, :1, :1]).all())  # a channel is dropped, or drawn, as a whole
        True
    """

    batched = 4
    function = staticmethod(F.evolutional_dropout2d)


def _checked_momentum(momentum: float | None) -> float | None:
    sound = isinstance(momentum, numbers.Real) and not isinstance(momentum, bool) and 0.0 < momentum <= 1.0
    if momentum is not None and not sound:
        raise ValueError(f"momentum is {momentum!r}, but it takes a number in (0, 1], the share of the newest batch")
    return None if momentum is None else float(momentum)
