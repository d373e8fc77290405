"""Dropout as layers: thin shells over :mod:`evodrop.nn.functional`.

The input has any shape, and the output has its shape, dtype and memory format. The layers subclass torch's own
``_DropoutNd``, so code that looks for dropout layers (Monte Carlo dropout, say) finds them.
No layer owns a generator: the noise follows ``torch.manual_seed``, and activation checkpointing can make it again.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import ArrayOrTensor, checked_keep, checked_masses, checked_rate, namespace
from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import functional as F
from evodrop.nn._noise import UnitDims, checked_options, is_opaque
from evodrop.nn.distributed import all_reduce_sums, check_group, checked_sums, local_sums, moments_of
from evodrop.noise import Noise

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "EvolutionalDropout3d",
    "MultinomialDropout",
    "WaterFillingDropout",
]

SHOWN = ("k", "match", "uniform_mix", "unit_dims", "shared_dims", "sync", "momentum", "follow")
FOLLOWED = ("batch", "running")


class _NoiseLayer(_DropoutNd):
    """What the layers share: which dimensions are units, and one vector in the state_dict, ``held`` by its name.

    It stays float32 or wider when the model turns to half precision, where a small number would vanish. A layer
    made without one takes it from a state_dict.
    """

    held: str
    takes_vector = True  # from a state_dict
    k: int | None = None
    match = "draws"
    uniform_mix = 0.0
    unit_dims: UnitDims = None
    shared_dims: UnitDims = None
    follows = independent = False  # see Options
    _has_asked = False

    def _ask_for_dims(self, input: Tensor) -> None:
        """Warn, once a layer, of an input that may be a sequence: the two readings give very different noise."""
        known = self.unit_dims is not None or self.shared_dims is not None or self._has_asked
        if known or not self.training or getattr(input, "ndim", 0) != 3 or torch.compiler.is_compiling():
            return
        self._has_asked = True
        if input.is_nested:  # refused below
            return
        n, t, c = input.shape
        warnings.warn(
            f"{self}: the input has shape ({n}, {t}, {c}), and without unit_dims each of its {n} examples is one set "
            f"of {t * c} units. For sequences (N, T, C), unit_dims=-1 makes each position a set of {c} units of its "
            "own; if all positions together are meant, say so by unit_dims=(1, 2)",
            stacklevel=2,
        )

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
        if self._buffers[self.held] is None and isinstance(saved, Tensor) and self.takes_vector:
            self._buffers[self.held] = torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def noise_for(self, moments: ArrayOrTensor) -> Noise:
        """The noise of the layer on units with these second moments, in training."""
        options = checked_options(self.p, self.k, self.match, self.uniform_mix, self.follows, self.independent)
        if self.follows:
            return options.noise(namespace(moments).sqrt(moments), moments)
        values: ArrayOrTensor | None = self._buffers[self.held]
        if values is not None and not isinstance(moments, Tensor):
            values = values.detach().cpu().double().numpy()
        return options.noise(values, moments) if values is None or not self.independent else Noise(values)

    def extra_repr(self) -> str:
        options = {name: getattr(self, name) for name in SHOWN if hasattr(self, name)}
        changed = [f"{name}={value!r}" for name, value in options.items() if value != getattr(type(self), name)]
        return ", ".join([f"p={self.p}", *changed])


class BernoulliDropout(_NoiseLayer):
    """Independent noise: standard dropout computed by our kernel, or with a keep probability per unit.

    Args:
        p: fraction of the units to drop, in [0, 1].
        keep: (d,) keep probabilities in [0, 1]; with them, ``p`` has no part. Kept in the state_dict.
        unit_dims: dimensions that are units. Default: every dimension but the first.
        shared_dims: as in :class:`EvolutionalDropout`.

    Examples:
        >>> BernoulliDropout(0.2)(torch.randn(8, 100)).shape
        torch.Size([8, 100])
    """

    held = "keep"
    independent = True
    keep: Tensor | None

    def __init__(
        self, p: float = 0.5, keep: Any = None, *, unit_dims: UnitDims = None, shared_dims: UnitDims = None
    ) -> None:
        super().__init__(checked_rate(p, closed=True))
        self.unit_dims, self.shared_dims = unit_dims, shared_dims
        self._hold(keep, checked_keep)

    def forward(self, input: Tensor) -> Tensor:
        dims: dict[str, Any] = {"unit_dims": self.unit_dims, "shared_dims": self.shared_dims}
        return F.bernoulli_dropout(input, self.p, self.keep, self.training, **dims)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.keep is None else f", keep of {len(self.keep)} units")


class MultinomialDropout(_NoiseLayer):
    """Multinomial noise with fixed probabilities, uniform unless given.

    Args:
        p: fraction of the units to drop, in [0, 1]; it sets the number of draws.
        probs: (d,) sampling probabilities, or any masses. Kept in the state_dict.
        k, match, uniform_mix, unit_dims, shared_dims: as in :class:`EvolutionalDropout`.

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
        shared_dims: UnitDims = None,
    ) -> None:
        super().__init__(checked_options(p, k, match, uniform_mix).p)
        self.k, self.match, self.uniform_mix = k, match, uniform_mix
        self.unit_dims, self.shared_dims = unit_dims, shared_dims
        self._hold(probs, lambda values: checked_masses(values, "probs"))

    def forward(self, input: Tensor) -> Tensor:
        self._ask_for_dims(input)
        options: dict[str, Any] = {"k": self.k, "match": self.match, "uniform_mix": self.uniform_mix}
        options |= {"unit_dims": self.unit_dims, "shared_dims": self.shared_dims}
        return F.multinomial_dropout(input, self.p, self.probs, self.training, **options)


class DataDependentDropout(MultinomialDropout):
    """Multinomial noise whose probabilities follow the second moments of a training set (Definition 2).

    Build it with :meth:`from_data`. Built without ``probs``, it takes them from a state_dict.

    Args:
        p, probs, k, match, uniform_mix, unit_dims, shared_dims: as in :class:`MultinomialDropout`.

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
        shared_dims: UnitDims = None,
    ) -> Self:
        """A layer for data like X: an array, a sparse matrix, a tensor, or a loader of batches.

        A batch that is a tuple, such as (inputs, targets), counts by its first member.
        """
        dims: dict[str, Any] = {"unit_dims": unit_dims, "shared_dims": shared_dims}
        layer = cls(p, k=k, match=match, uniform_mix=uniform_mix, **dims)
        moments = _moments_of_data(X, **dims)
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
    follows = True
    sync = False
    momentum: float | None = None
    follow = "batch"

    def __init__(
        self,
        p: float = 0.5,
        *,
        k: int | None = None,
        match: str = "draws",
        uniform_mix: float = 0.0,
        unit_dims: UnitDims = None,
        shared_dims: UnitDims = None,
        sync: bool = False,
        process_group: Any = None,
        momentum: float | None = None,
        follow: str = "batch",
    ) -> None:
        super().__init__(checked_options(p, k, match, uniform_mix).p)
        if not isinstance(sync, bool):
            raise TypeError(f"sync is {sync!r}, but it takes True or False; a group of processes is process_group=")
        if process_group is not None:
            if not sync:
                raise ValueError(
                    "process_group is given, but sync is False; sync=True shares the moments with the group"
                )
            check_group(process_group)
        number = isinstance(momentum, numbers.Real) and not isinstance(momentum, bool)
        if momentum is not None and not (number and 0.0 < momentum <= 1.0):
            raise ValueError(f"momentum is {momentum!r}, but it takes a number in (0, 1], the share of the batch")
        if follow not in FOLLOWED:
            raise ValueError(f"follow is {follow!r}, but it is one of {', '.join(map(repr, FOLLOWED))}")
        if follow == "running" and momentum is None:
            raise ValueError("follow is 'running', but momentum is None, so nothing is remembered; give momentum=0.1")
        self.k, self.match, self.uniform_mix = k, match, uniform_mix
        self.unit_dims = type(self).unit_dims if unit_dims is None else unit_dims
        self.shared_dims = type(self).shared_dims if shared_dims is None else shared_dims
        self.sync, self.process_group, self.momentum, self.follow = sync, process_group, momentum, follow
        self._hold(None)

    def forward(self, input: Tensor) -> Tensor:
        self._ask_for_dims(input)
        options: dict[str, Any] = {"k": self.k, "match": self.match, "uniform_mix": self.uniform_mix}
        options |= {"unit_dims": self.unit_dims, "shared_dims": self.shared_dims}
        if self.training and (self.sync or self.momentum is not None):
            options["moments"] = self._follow(input)
        return self.function(input, self.p, self.training, **options)

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
        sums = local_sums(input, *F.find_dims(input, self.unit_dims, self.shared_dims))
        if self.sync:
            sums = all_reduce_sums(sums, self.process_group)
        checked_sums(sums)
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
        if compiled or not is_opaque(remembered):
            self.running_sums = remembered
        return moments_of(followed) if self.sync or self.follow == "running" else None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        sums, errors = state_dict.get(f"{prefix}running_sums"), args[-1]
        if type(sums) is Tensor and not (sums.is_meta or (sums.isfinite() & (sums >= 0)).all()):
            errors.append(f"{prefix}running_sums holds sums of squares that are negative or not finite; train anew")
        else:
            super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def takes_vector(self) -> bool:  # type: ignore[override]
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


class EvolutionalDropout(Evolving):
    """Multinomial noise whose probabilities follow the second moments of each mini-batch: they evolve with the layer.

    A drop-in for ``nn.Dropout`` (Figure 1 of the paper); :func:`~evodrop.nn.functional.evolutional_dropout` has the
    formula. As in batch normalisation, an example's noise depends on its batch. In eval mode it is the identity.

    Args:
        p: fraction of the units to drop, in [0, 1]. It sets k = d (1 - p); draws repeat, so by default more than this
            fraction is zero: about 61 % at 0.5.
        k: number of draws, instead of the number that ``p`` and ``match`` give.
        match: ``"draws"``, the paper's k = d (1 - p); ``"distinct"``, which zeroes the fraction p of the live units, as
            ``nn.Dropout`` does; ``"noise"``, whose E||x * noise||^2 is that of ``nn.Dropout``. The largest k is 2^30;
            a match that asks for more takes that.
        uniform_mix: share of uniform probability mixed in, from 0 to 1; it bounds the noise of rarely active units.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. For a
            sequence, (N, T, C) or (T, N, C), -1 is usually meant.
        shared_dims: dimensions whose positions have one noise together, such as the time of a sequence, 1 in (N, T, C):
            locked dropout. The moments of a unit are means over them too. They are no units, also by default.
        sync: follow the batch of all processes together, at the cost of one all_reduce of d + 1 numbers a step. Every
            rank calls the layer, with as many units and any number of examples. Without processes it changes nothing.
        process_group: the processes, instead of all; :func:`evodrop.nn.convert_sync_dropout` sets both in a whole
            model. Copies and pickles of the layer do not have it.
        momentum: share of the newest batch in the running second moments, in (0, 1], which the layer remembers as batch
            normalisation does: those of step t are sum_s (1 - momentum)^(t - s) sum_j x_sj^2 / sum_s (1 - momentum)^(t
            - s) n_s. ``running_moments`` holds them, and the state_dict their sums. Default: nothing is remembered.
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


class WaterFillingDropout(Evolving):
    """Independent noise that keeps the strong units of each mini-batch more often than the weak ones.

    By the paper's own criterion, E||x * noise||^2, it is never noisier than :class:`EvolutionalDropout` with as many
    draws; :func:`~evodrop.nn.functional.water_filling_dropout` has the formula.

    Args:
        p, match, uniform_mix, unit_dims, shared_dims, sync, process_group, momentum, follow: as in
            :class:`EvolutionalDropout`.
        k: number of units kept on average, instead of the number that ``p`` and ``match`` give.

    Examples:
        >>> WaterFillingDropout(0.3, match="noise")
        WaterFillingDropout(p=0.3, match='noise')
    """

    function = staticmethod(F.water_filling_dropout)
    independent = True


class EvolutionalDropout1d(EvolutionalDropout):
    """:class:`EvolutionalDropout` of whole channels: ``unit_dims=-2`` and ``shared_dims=-1``.

    A channel of (N, C, L), or of (C, L) for one example, has one noise for all its positions, and its second moment is
    the mean over them too. The arguments are those of :class:`EvolutionalDropout`.

    Examples:
        >>> y = EvolutionalDropout1d(0.5)(torch.ones(8, 16, 10))
        >>> bool((y == y[:, :, :1]).all())  # a channel is dropped, or drawn, as a whole
        True
    """

    unit_dims, shared_dims = -2, -1


class EvolutionalDropout2d(EvolutionalDropout):
    """:class:`EvolutionalDropout1d` for (N, C, H, W) or (C, H, W): ``unit_dims=-3`` and ``shared_dims=(-2, -1)``."""

    unit_dims, shared_dims = -3, (-2, -1)


class EvolutionalDropout3d(EvolutionalDropout):
    """:class:`EvolutionalDropout1d` for (N, C, D, H, W) or (C, D, H, W).

    It has ``unit_dims=-4`` and ``shared_dims=(-3, -2, -1)``.
    """

    unit_dims, shared_dims = -4, (-3, -2, -1)


def _moments_of_data(data: Any, **dims: UnitDims) -> Tensor:
    """(d,) second moments of an array, a sparse matrix, a tensor or a loader of batches."""
    if hasattr(data, "tocsr"):
        return torch.from_numpy(second_moments(data))
    if not isinstance(data, Iterable) or isinstance(data, str):
        raise TypeError(
            f"data of type {type(data).__name__}; give an array, a sparse matrix, a tensor or a data loader"
        )
    total: Tensor | None = None
    for batch in [data] if isinstance(data, (np.ndarray, Tensor)) else data:
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        if isinstance(inputs, np.ndarray):
            # A copy, since an array may be read-only, reversed or of another byte order, which torch does not take.
            inputs = torch.from_numpy(np.array(inputs, np.float64))
        if not isinstance(inputs, Tensor):
            raise TypeError(f"a batch of type {type(batch).__name__}; give tensors, or tuples that begin with one")
        if inputs.layout != torch.strided:
            raise TypeError(f"a tensor of layout {inputs.layout}; give a SciPy sparse array, or .to_dense()")
        if inputs.numel() == 0:
            continue
        sums = checked_sums(local_sums(inputs.double(), *F.find_dims(inputs, **dims)), "scale the data")
        if total is not None and len(total) != len(sums):
            raise ValueError(
                f"a batch of shape {tuple(inputs.shape)} has {len(sums) - 1} units, not {len(total) - 1} as before"
            )
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("the data hold no examples, so there are no second moments; is the loader used up?")
    return moments_of(total)
