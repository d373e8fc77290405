"""Dropout as modules: thin shells over :mod:`evodrop.nn.functional`.

They subclass torch's own ``_DropoutNd``, so code that looks for dropout layers (Monte Carlo dropout, say) finds them.
No module owns a generator: the noise follows ``torch.manual_seed``, and activation checkpointing can make it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from evodrop.definitions import checked_keep, checked_masses, checked_rate
from evodrop.nn import functional as F
from evodrop.nn.statistics import probabilities_of

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "MultinomialDropout",
]

DEFAULTS = {"k": None, "match": "draws", "uniform_mix": 0.0, "unit_dims": None}


class _Dropout(_DropoutNd):
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
        super().__init__(checked_rate(p))
        F.checked_law("batch", p, k, scheme, match, uniform_mix)
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


class BernoulliDropout(_DropoutNd):
    """Independent noise: standard dropout by our kernel, or with a keep probability per unit.

    Args:
        p: fraction of the units to drop, in [0, 1).
        keep: (d,) keep probabilities in [0, 1], instead of 1 - p for all. Kept in the state_dict.
        unit_dims: dimensions that are units. Default: every dimension but the first.

    Examples:
        >>> BernoulliDropout(0.2)(torch.randn(8, 100)).shape
        torch.Size([8, 100])
    """

    keep: Tensor | None

    def __init__(self, p: float = 0.5, keep: Any = None, *, unit_dims: int | Sequence[int] | None = None) -> None:
        super().__init__(checked_rate(p))
        self.unit_dims = unit_dims
        self.register_buffer("keep", _masses(keep, "keep"))

    def forward(self, input: Tensor) -> Tensor:
        return F.bernoulli_dropout(input, self.p, self.keep, self.training, unit_dims=self.unit_dims)

    def extra_repr(self) -> str:
        rate = f"p={self.p}" if self.keep is None else f"keep of {len(self.keep)} units"
        return f"{rate}, scheme='bernoulli'"


class MultinomialDropout(_Dropout):
    """Multinomial noise with fixed probabilities, uniform unless given.

    Args:
        p: fraction of the units to drop, in [0, 1).
        probs: (d,) sampling probabilities. Kept in the state_dict.
        k, scheme, match, uniform_mix, unit_dims: as in :func:`~evodrop.nn.functional.multinomial_dropout`.

    Examples:
        >>> MultinomialDropout(0.5, probs=torch.tensor([0.5, 0.5, 0.0]))(torch.ones(4, 3))[:, 2]
        tensor([0., 0., 0., 0.])
    """

    probs: Tensor | None

    def __init__(self, p: float = 0.5, probs: Any = None, **options: Any) -> None:
        super().__init__(p, **options)
        self.register_buffer("probs", _masses(probs, "probs"))

    def forward(self, input: Tensor) -> Tensor:
        return F.multinomial_dropout(input, self.p, self.probs, self.training, **self.options())


class DataDependentDropout(MultinomialDropout):
    """Multinomial noise whose probabilities follow the second moments of a training set (Definition 2).

    Build it with :meth:`from_data`. Built bare, it waits for ``probs`` from a state_dict.

    Examples:
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

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + "probs")
        if self.probs is None and saved is not None:
            self.probs = torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)


class EvolutionalDropout(_Dropout):
    """Multinomial noise whose probabilities follow the second moments of each mini-batch: they evolve with the layer.

    A drop-in for ``nn.Dropout``; see :func:`~evodrop.nn.functional.evolutional_dropout`.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 150), torch.nn.ReLU(), EvolutionalDropout(0.5))
        >>> model(torch.randn(128, 64)).shape
        torch.Size([128, 150])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.evolutional_dropout(input, self.p, self.training, **self.options())


class _ChannelDropout(_Dropout):
    def __init__(self, p: float = 0.5, **options: Any) -> None:
        if "unit_dims" in options:
            raise TypeError(f"{type(self).__name__} drops channels, so it takes no unit_dims; EvolutionalDropout does")
        super().__init__(p, **options)

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if name != "unit_dims"}


class EvolutionalDropout1d(_ChannelDropout):
    """:class:`EvolutionalDropout` of whole channels: (N, C, L), or (C, L) for one example."""

    def forward(self, input: Tensor) -> Tensor:
        return F.evolutional_dropout1d(input, self.p, self.training, **self.options())


class EvolutionalDropout2d(_ChannelDropout):
    """:class:`EvolutionalDropout` of whole channels: (N, C, H, W), or (C, H, W) for one example."""

    def forward(self, input: Tensor) -> Tensor:
        return F.evolutional_dropout2d(input, self.p, self.training, **self.options())


def _masses(values: Any, name: str) -> Tensor | None:
    """A buffer of our own from the user's probabilities, checked once here, whatever the device."""
    if values is None:
        return None
    masses = torch.as_tensor(values).detach().clone()
    masses = masses if masses.is_floating_point() else masses.float()
    checked: Tensor = checked_keep(masses) if name == "keep" else checked_masses(masses, name)
    return checked
