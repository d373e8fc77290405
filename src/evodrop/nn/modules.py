"""Dropout as modules: thin shells over :mod:`evodrop.nn.functional`.

They subclass torch's own ``_DropoutNd``, so code that looks for dropout layers (Monte Carlo dropout, say) finds them.
No module owns a generator: the noise follows ``torch.manual_seed``, and activation checkpointing can make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import checked_keep, checked_masses, checked_rate
from evodrop.nn import functional as F
from evodrop.nn.statistics import probabilities_of

__all__ = ["BernoulliDropout", "DataDependentDropout", "DrawingDropout", "HeldProbabilities", "MultinomialDropout"]

DEFAULTS = {"k": None, "match": "draws", "uniform_mix": 0.0, "unit_dims": None}


class HeldProbabilities(_DropoutNd):
    """A layer with one vector in its state_dict: probabilities, or running sums.

    It stays float32 or wider when the model turns to half precision, where a small number would vanish. A layer that
    was made without one takes that of a state_dict.
    """

    def _hold(self, name: str, values: Any, checked: Callable[[Tensor], Tensor] | None = None) -> None:
        if values is not None:
            values = torch.as_tensor(values).detach().clone()
            values = values if values.dtype in (torch.float32, torch.float64) else values.float()
            if checked is not None and type(values) is Tensor and not values.is_meta:  # the others have no values yet
                checked(values)
        self._held = name
        self.register_buffer(name, values)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self._buffers[self._held]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        after = self._buffers[self._held]
        if before is not None and after is not None and after.dtype in (torch.float16, torch.bfloat16):
            self._buffers[self._held] = before.to(after.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + self._held)
        if self._buffers[self._held] is None and isinstance(saved, Tensor):
            self._buffers[self._held] = torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)


class DrawingDropout(_DropoutNd):
    """What the layers with draws share: the options, checked when they are given and again when they are used."""

    def __init__(
        self,
        p: float = 0.5,
        *,
        k: int | None = None,
        scheme: str = "multinomial",
        match: str = "draws",
        uniform_mix: float = 0.0,
        unit_dims: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__(F.checked_law("batch", p, k, scheme, match, uniform_mix).p)
        self.k, self.scheme, self.match, self.uniform_mix, self.unit_dims = k, scheme, match, uniform_mix, unit_dims

    def options(self) -> dict[str, Any]:
        return {
            "k": self.k,
            "scheme": self.scheme,
            "match": self.match,
            "uniform_mix": self.uniform_mix,
            "unit_dims": self.unit_dims,
        }

    def extra_repr(self) -> str:
        changed = (f"{name}={getattr(self, name)!r}" for name in DEFAULTS if getattr(self, name) != DEFAULTS[name])
        return ", ".join([f"p={self.p}", f"scheme={self.scheme!r}", *changed])


class BernoulliDropout(HeldProbabilities):
    """Independent noise: standard dropout by our kernel, or with a keep probability per unit.

    Args:
        p: fraction of the units to drop, in [0, 1).
        keep: (d,) keep probabilities in [0, 1]; with them, ``p`` has no part. Kept in the state_dict.
        unit_dims: dimensions that are units. Default: every dimension but the first.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> BernoulliDropout(0.2)(torch.randn(8, 100)).shape
        torch.Size([8, 100])
    """

    keep: Tensor | None

    def __init__(self, p: float = 0.5, keep: Any = None, *, unit_dims: int | Sequence[int] | None = None) -> None:
        super().__init__(checked_rate(p))
        self.unit_dims = unit_dims
        self._hold("keep", keep, checked_keep)

    def forward(self, input: Tensor) -> Tensor:
        return F.bernoulli_dropout(input, self.p, self.keep, self.training, unit_dims=self.unit_dims)

    def extra_repr(self) -> str:
        rate = f"p={self.p}" if self.keep is None else f"keep of {len(self.keep)} units"
        return f"{rate}, scheme='bernoulli'" + ("" if self.unit_dims is None else f", unit_dims={self.unit_dims!r}")


class MultinomialDropout(DrawingDropout, HeldProbabilities):
    """Multinomial noise with fixed probabilities, uniform unless given.

    Args:
        p: fraction of the units to drop, in [0, 1); it sets the number of draws.
        probs: (d,) sampling probabilities, or any masses. Kept in the state_dict.
        k, scheme, match, uniform_mix, unit_dims: as in :class:`~evodrop.nn.evolving.EvolutionalDropout`.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> MultinomialDropout(0.5, probs=torch.tensor([0.5, 0.5, 0.0]))(torch.ones(4, 3))[:, 2]
        tensor([0., 0., 0., 0.])
    """

    probs: Tensor | None

    def __init__(self, p: float = 0.5, probs: Any = None, **options: Any) -> None:
        super().__init__(p, **options)
        self._hold("probs", probs, partial(checked_masses, name="probs"))

    def forward(self, input: Tensor) -> Tensor:
        return F.multinomial_dropout(input, self.p, self.probs, self.training, **self.options())


class DataDependentDropout(MultinomialDropout):
    """Multinomial noise whose probabilities follow the second moments of a training set (Definition 2).

    Build it with :meth:`from_data`. Built bare, it waits for ``probs`` from a state_dict.

    Args:
        p, probs, options: as in :class:`MultinomialDropout`.

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
    def from_data(cls, X: Any, p: float = 0.5, **options: Any) -> Self:
        """A layer for data like X: an array, a sparse matrix, a tensor, or a loader of batches.

        A batch that is a tuple, such as (inputs, targets), counts by its first member. Long loaders get a progress bar.
        """
        layer = cls(p, **options)
        layer.probs = probabilities_of(X, layer.unit_dims)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        if self.probs is None and self.training:
            raise RuntimeError(
                "DataDependentDropout has no probs yet; build it with from_data(X, p) or load a state_dict"
            )
        return super().forward(input)
