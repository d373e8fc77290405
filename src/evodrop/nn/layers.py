"""Dropout as layers: thin shells over :mod:`evodrop.nn.functional`.

They subclass torch's own ``_DropoutNd``, so code that looks for dropout layers (Monte Carlo dropout, say) finds them.
No layer owns a generator: the noise follows ``torch.manual_seed``, and activation checkpointing can make it again.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import ArrayOrTensor, checked_keep, checked_masses, checked_rate, namespace
from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import _torch
from evodrop.nn import functional as F
from evodrop.nn._noise import UnitDims, checked_dims, checked_options, to_rows
from evodrop.nn.distributed import all_reduce_sums, check_group, local_sums, moments_of
from evodrop.noise import Noise

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "MultinomialDropout",
    "WaterFillingDropout",
]

DEFAULTS = {"k": None, "match": "draws", "uniform_mix": 0.0, "unit_dims": None}
DEFAULTS |= {"sync": False, "momentum": None, "follow": "batch"}
FOLLOWED = ("batch", "running")


class _NoiseLayer(_DropoutNd):
    """What the layers share: a repr, and one vector in the state_dict, ``held`` by its name.

    It stays float32 or wider when the model turns to half precision, where a small number would vanish. A layer that
    was made without one takes that of a state_dict.
    """

    held: str

    def _hold(self, values: Any, check: Callable[[Tensor], Tensor] | None = None) -> None:
        if values is not None:
            values = torch.as_tensor(values).detach().clone()
            values = values if values.dtype in (torch.float32, torch.float64) else values.float()
            if check is not None and type(values) is Tensor and not values.is_meta:  # the others have no values yet
                check(values)
        self.register_buffer(self.held, values)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self._buffers[self.held]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        after = self._buffers[self.held]
        if before is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
            self._buffers[self.held] = before.to(after.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + self.held)
        if self._buffers[self.held] is None and isinstance(saved, Tensor) and self._takes_vector():
            self._buffers[self.held] = torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _takes_vector(self) -> bool:
        return True

    def extra_repr(self) -> str:
        options = {name: getattr(self, name, usual) for name, usual in DEFAULTS.items()}
        changed = [f"{name}={value!r}" for name, value in options.items() if value != DEFAULTS[name]]
        return ", ".join([f"p={self.p}", *changed])


class BernoulliDropout(_NoiseLayer):
    """Independent noise: standard dropout by our kernel, or with a keep probability per unit.

    Args:
        p: fraction of the units to drop, in [0, 1].
        keep: (d,) keep probabilities in [0, 1]; with them, ``p`` has no part. Kept in the state_dict.
        unit_dims: dimensions that are units. Default: every dimension but the first.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> BernoulliDropout(0.2)(torch.randn(8, 100)).shape
        torch.Size([8, 100])
    """

    held = "keep"
    keep: Tensor | None

    def __init__(self, p: float = 0.5, keep: Any = None, *, unit_dims: UnitDims = None) -> None:
        super().__init__(checked_rate(p, closed=True))
        self.unit_dims = unit_dims
        self._hold(keep, checked_keep)

    def forward(self, input: Tensor) -> Tensor:
        return F.bernoulli_dropout(input, self.p, self.keep, self.training, unit_dims=self.unit_dims)

    def noise_for(self, moments: ArrayOrTensor) -> Noise:
        """The noise of the layer on units with these second moments, in training."""
        options = checked_options(self.p, None, "draws", 0.0, False, True)
        return options.noise(None, moments) if self.keep is None else Noise(_like(self.keep, moments))

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.keep is None else f", keep of {len(self.keep)} units")


class MultinomialDropout(_NoiseLayer):
    """Multinomial noise with fixed probabilities, uniform unless given.

    Args:
        p: fraction of the units to drop, in [0, 1]; it sets the number of draws.
        probs: (d,) sampling probabilities, or any masses. Kept in the state_dict.
        k, match, uniform_mix, unit_dims: as in :class:`EvolutionalDropout`.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> MultinomialDropout(0.5, probs=torch.tensor([0.5, 0.5, 0.0]))(torch.ones(4, 3))[:, 2]
        tensor([0., 0., 0., 0.])
    """

    held = "probs"
    probs: Tensor | None

    def __init__(
        self,
        p: float = 0.5,
        probs: Any = None,
        *,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        unit_dims: UnitDims = None,
    ) -> None:
        super().__init__(checked_options(p, k, match, uniform_mix).p)
        self.k, self.match, self.uniform_mix, self.unit_dims = k, match, uniform_mix, unit_dims
        self._hold(probs, lambda values: checked_masses(values, "probs"))

    def forward(self, input: Tensor) -> Tensor:
        return F.multinomial_dropout(
            input,
            self.p,
            self.probs,
            self.training,
            k=self.k,
            match=self.match,
            uniform_mix=self.uniform_mix,
            unit_dims=self.unit_dims,
        )

    def noise_for(self, moments: ArrayOrTensor) -> Noise:
        """The noise of the layer on units with these second moments, in training."""
        weights = None if self.probs is None else _like(self.probs, moments)
        return checked_options(self.p, self.k, self.match, self.uniform_mix).noise(weights, moments)


class DataDependentDropout(MultinomialDropout):
    """Multinomial noise whose probabilities follow the second moments of a training set (Definition 2).

    Build it with :meth:`from_data`. Built without ``probs``, it takes them from a state_dict.

    Args:
        p, probs, k, match, uniform_mix, unit_dims: as in :class:`MultinomialDropout`.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> X = torch.randn(1000, 20) * torch.arange(1.0, 21.0)
        >>> layer = DataDependentDropout.from_data(X, 0.5)
        >>> int(layer.probs.argmax())
        19
    """

    @classmethod
    def from_data(
        cls,
        X: Any,
        p: float = 0.5,
        *,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        unit_dims: UnitDims = None,
    ) -> Self:
        """A layer for data like X: an array, a sparse matrix, a tensor, or a loader of batches.

        A batch that is a tuple, such as (inputs, targets), counts by its first member.
        """
        layer = cls(p, k=k, match=match, uniform_mix=uniform_mix, unit_dims=unit_dims)
        moments = _moments_of_data(X, unit_dims)
        if (bad := ~torch.isfinite(moments)).any():
            unit = int(bad.nonzero()[0])
            raise ValueError(
                f"unit {unit} of the data has values that are not finite, or whose squares are not; clean the data, or "
                "divide them by their largest value"
            )
        if not moments.any():
            raise ValueError("the data are all zero, or their squares are, so none can be followed; scale them up")
        layer.probs = sampling_probabilities(moments).float()
        return layer

    def forward(self, input: Tensor) -> Tensor:
        if self.probs is None and self.training:
            raise RuntimeError(
                "DataDependentDropout has no probs yet; build it with from_data(X, p) or load a state_dict"
            )
        return super().forward(input)


class Evolving(_NoiseLayer):
    """What the layers that follow the batch share: whose second moments they follow, and which they remember."""

    held = "running_sums"
    running_sums: Tensor | None
    frozen = False  # follow the running moments as they are, and remember no batch: see mc_dropout
    function: Callable[..., Tensor]  # what the layer is a shell of
    independent = False
    batched: int | None = None  # dimensions of a batch, if the layer drops whole channels
    unit_dims: UnitDims = None

    def __init__(
        self,
        p: float = 0.5,
        *,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        sync: bool = False,
        process_group: Any = None,
        momentum: float | None = None,
        follow: str = "batch",
    ) -> None:
        super().__init__(checked_options(p, k, match, uniform_mix).p)
        if not isinstance(sync, bool):
            raise TypeError(f"sync is {sync!r}, but it takes True or False; a group of processes is process_group=")
        if process_group is not None and not sync:
            raise ValueError("process_group is given, but sync is False; sync=True shares the moments with the group")
        check_group(process_group)
        number = isinstance(momentum, numbers.Real) and not isinstance(momentum, bool)
        if momentum is not None and not (number and 0.0 < momentum <= 1.0):
            raise ValueError(f"momentum is {momentum!r}, but it takes a number in (0, 1], the share of the batch")
        if follow not in FOLLOWED:
            raise ValueError(f"follow is {follow!r}, but it is one of {', '.join(map(repr, FOLLOWED))}")
        if follow == "running" and momentum is None:
            raise ValueError("follow is 'running', but momentum is None, so nothing is remembered; give momentum=0.1")
        self.k, self.match, self.uniform_mix = k, match, uniform_mix
        self.sync, self.process_group, self.momentum, self.follow = sync, process_group, momentum, follow
        self._hold(None)

    def forward(self, input: Tensor) -> Tensor:
        options: dict[str, Any] = {"k": self.k, "match": self.match, "uniform_mix": self.uniform_mix}
        if self.batched is None:
            options["unit_dims"] = self.unit_dims
        if self.training and (self.sync or self.momentum is not None):
            options["moments"] = self._follow(input)
        return self.function(input, self.p, self.training, **options)

    def noise_for(self, moments: ArrayOrTensor) -> Noise:
        """The noise of the layer on units with these second moments, in training."""
        options = checked_options(self.p, self.k, self.match, self.uniform_mix, True, self.independent)
        return options.noise(namespace(moments).sqrt(moments), moments)

    @property
    def running_moments(self) -> Tensor | None:
        """(d,) second moments that a layer with momentum remembers; None before its first batch."""
        return None if self.running_sums is None else moments_of(self.running_sums)

    def reset_running_stats(self) -> None:
        """Forget all batches, as if the layer were new."""
        self.running_sums = None

    def _follow(self, input: Tensor) -> Tensor | None:
        """Remember this batch, and give (d,) second moments for the noise to follow; None: those of the input."""
        F.check_tensor(input)
        if self.frozen and self.running_sums is not None:
            return self.running_moments
        sums = local_sums(input, *F.find_dims(input, self.unit_dims, self.batched))
        if self.sync:
            sums = all_reduce_sums(sums, self.process_group)
        if self.momentum is None or self.frozen:
            return moments_of(sums)
        before = torch.zeros_like(sums) if self.running_sums is None else self.running_sums
        if before.shape != sums.shape:
            raise ValueError(
                f"the input has {len(sums) - 1} units, but the running sums are of {len(before) - 1}; "
                "call reset_running_stats() first, or give each size of input a layer of its own"
            )
        followed, remembered = remember(sums, before, float(self.momentum), self.follow == "running")
        # What torch.export, FakeTensorMode and torch.func put through the layer is no batch, and must not stay in it.
        compiled = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
        if compiled or not _torch.is_opaque(remembered):
            self.running_sums = remembered
        return moments_of(followed) if self.sync or self.follow == "running" else None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        sums, errors = state_dict.get(f"{prefix}running_sums"), args[-1]
        if type(sums) is Tensor and not (sums.is_meta or (sums.isfinite() & (sums >= 0)).all()):
            errors.append(f"{prefix}running_sums holds sums of squares that are negative or not finite; train anew")
        else:
            super()._load_from_state_dict(state_dict, prefix, *args)

    def _takes_vector(self) -> bool:
        return self.momentum is not None  # without it, running sums are as unexpected as any other name

    def __getstate__(self) -> dict[str, Any]:
        """Without the process group, which can be neither copied nor pickled: the copy follows all processes."""
        return {**self.__dict__, "process_group": None}

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.process_group is None else ", process_group=...")


@torch.library.custom_op("evodrop::remember", mutates_args=())
def remember(sums: Tensor, running: Tensor, momentum: float, follows: bool) -> tuple[Tensor, Tensor]:
    """The sums for the noise to follow, and the running sums with this batch.

    A batch that is not finite is followed, but not remembered: it would stay for ever, while the step that it belongs
    to is usually skipped. A call that activation checkpointing makes again was remembered the first time. An operator,
    since only when a compiled graph runs is it known whether it runs in backward.
    """
    again = torch._C._current_graph_task_id() != -1
    if again and follows:
        raise RuntimeError(
            "activation checkpointing makes a call again of a layer with follow='running', whose running moments have "
            "changed meanwhile; use follow='batch', or leave the layer out of the checkpoint"
        )
    together = (1.0 - momentum) * running + sums
    kept = running.to(together.dtype) if again or not together.isfinite().all() else together
    return (together if follows else sums).clone(), kept.clone()


@remember.register_fake
def _(sums: Tensor, running: Tensor, momentum: float, follows: bool) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(sums), torch.empty_like(sums)


class _EvolvingUnits(Evolving):
    """With dimensions to choose as units."""

    def __init__(
        self,
        p: float = 0.5,
        *,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        unit_dims: UnitDims = None,
        sync: bool = False,
        process_group: Any = None,
        momentum: float | None = None,
        follow: str = "batch",
    ) -> None:
        super().__init__(
            p,
            k=k,
            match=match,
            uniform_mix=uniform_mix,
            sync=sync,
            process_group=process_group,
            momentum=momentum,
            follow=follow,
        )
        self.unit_dims = unit_dims


class EvolutionalDropout(_EvolvingUnits):
    """Multinomial noise whose probabilities follow the second moments of each mini-batch: they evolve with the layer.

    A drop-in for ``nn.Dropout`` (Figure 1 of the paper); :func:`~evodrop.nn.functional.evolutional_dropout` has the
    formula. As in batch normalisation, an example's noise depends on its batch. In eval mode it is the identity.

    Args:
        p: fraction of the units to drop, in [0, 1]. It sets k = d (1 - p); draws repeat, so by default more than this
            fraction is zero: about 61 % at 0.5.
        k: number of draws, instead of the number that ``p`` and ``match`` give.
        match: ``"draws"``, the paper's k = d (1 - p); ``"distinct"``, which zeroes the fraction p of the live units, as
            ``nn.Dropout`` does; ``"noise"``, whose E||x * noise||^2 is that of ``nn.Dropout``.
        uniform_mix: share of uniform probability mixed in, from 0 to 1; it bounds the noise of rarely active units.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. For a
            sequence, (N, T, C) or (T, N, C), -1 is usually meant.
        sync: follow the batch of all processes together, at the cost of one all_reduce of d + 1 numbers a step. Every
            rank calls the layer, with as many units and any number of examples. Without processes it changes nothing.
        process_group: the processes, instead of all; :func:`evodrop.nn.convert_sync_dropout` sets both in a whole
            model. Copies and pickles of the layer do not have it.
        momentum: share of the newest batch in the running second moments, in (0, 1], which the layer remembers as batch
            normalisation does: those of step t are sum_s (1 - momentum)^(t - s) sum_j x_sj^2 / sum_s (1 - momentum)^(t
            - s) n_s. ``running_moments`` has them, and the state_dict their sums. Default: nothing is remembered.
        follow: ``"batch"``, or ``"running"``: the noise follows the running moments, for batches too small for
            moments of their own. Activation checkpointing cannot make such a call again, and raises an error.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 150), torch.nn.ReLU(), EvolutionalDropout(0.5))
        >>> model(torch.randn(128, 64)).shape
        torch.Size([128, 150])
    """

    function = staticmethod(F.evolutional_dropout)


class WaterFillingDropout(_EvolvingUnits):
    """Independent noise that keeps the strong units of each mini-batch more often than the weak ones.

    By the paper's own criterion, E||x * noise||^2, it is never noisier than :class:`EvolutionalDropout` with as many
    draws; :func:`~evodrop.nn.functional.water_filling_dropout` has the formula.

    Args:
        p, match, uniform_mix, unit_dims, sync, process_group, momentum, follow: as in :class:`EvolutionalDropout`.
        k: number of units kept on average, instead of the number that ``p`` and ``match`` give.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> WaterFillingDropout(0.3, match="noise")
        WaterFillingDropout(p=0.3, match='noise')
    """

    function = staticmethod(F.water_filling_dropout)
    independent = True


class EvolutionalDropout1d(Evolving):
    """:class:`EvolutionalDropout` of whole channels.

    A channel has one noise for all its positions, and its second moment is the mean over them too.

    Args:
        p, k, match, uniform_mix, sync, process_group, momentum, follow: as in :class:`EvolutionalDropout`.

    Shape:
        (N, C, L), or (C, L) for one example; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> y = EvolutionalDropout1d(0.5)(torch.ones(8, 16, 10))
        >>> bool((y == y[:, :, :1]).all())  # a channel is dropped, or drawn, as a whole
        True
    """

    function = staticmethod(F.evolutional_dropout1d)
    batched = 3


class EvolutionalDropout2d(Evolving):
    """:class:`EvolutionalDropout` of whole channels.

    A channel has one noise for all its positions, and its second moment is the mean over them too.

    Args:
        p, k, match, uniform_mix, sync, process_group, momentum, follow: as in :class:`EvolutionalDropout`.

    Shape:
        (N, C, H, W), or (C, H, W) for one example; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> y = EvolutionalDropout2d(0.5)(torch.ones(8, 16, 5, 5))
        >>> bool((y == y[:, :, :1, :1]).all())  # a channel is dropped, or drawn, as a whole
        True
    """

    function = staticmethod(F.evolutional_dropout2d)
    batched = 4


def _like(held: Tensor, moments: ArrayOrTensor) -> ArrayOrTensor:
    """A vector of the layer in the kind of array that the moments have."""
    return held if isinstance(moments, Tensor) else held.detach().cpu().double().numpy()


def _moments_of_data(data: Any, unit_dims: UnitDims) -> Tensor:
    """(d,) second moments of an array, a sparse matrix, a tensor or a loader of batches."""
    if hasattr(data, "tocsr"):
        return torch.from_numpy(second_moments(data))
    if not isinstance(data, Iterable) or isinstance(data, str):
        raise TypeError(
            f"data of type {type(data).__name__}; give an array, a sparse matrix, a tensor or a data loader"
        )
    total, size = torch.zeros(0, dtype=torch.float64), 0
    for batch in _tensors([data] if isinstance(data, (np.ndarray, Tensor)) else data):
        if batch.numel() == 0:
            continue
        rows = to_rows(batch.detach(), checked_dims(batch, unit_dims)).double()
        if size and len(total) != rows.shape[1]:
            raise ValueError(
                f"a batch of shape {tuple(batch.shape)} has {rows.shape[1]} units, not {len(total)} as before"
            )
        squares = rows.square().sum(0)
        total, size = total + squares if size else squares, size + len(rows)
    if size == 0:
        raise ValueError("the data hold no examples, so there are no second moments; is the loader used up?")
    return total / size


def _tensors(batches: Iterable[Any]) -> Iterator[Tensor]:
    for batch in batches:
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        if not isinstance(inputs, (Tensor, np.ndarray)):
            raise TypeError(f"a batch of type {type(batch).__name__}; give tensors, or tuples that begin with one")
        if isinstance(inputs, Tensor) and inputs.layout != torch.strided:
            raise TypeError(f"a tensor of layout {inputs.layout}; give a SciPy sparse array, or .to_dense()")
        # A copy, since an array may be read-only, reversed or of another byte order, which torch does not take.
        yield inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.array(inputs, np.float64))
