"""Evolutional dropout that knows the weights to come: what is strong and matters to the next layer is kept."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from evodrop.nn import functional as F
from evodrop.nn._noise import checked_dims
from evodrop.nn.zoo.gaussian import widened
from evodrop.nn.zoo.outgoing import checked_path, outgoing_squares
from evodrop.nn.zoo.protocol import About, Place, ZooDropout

__all__ = ["WeightAwareDropout", "weight_aware_probabilities"]


def weight_aware_probabilities(input: Tensor, squares: Tensor, units: Sequence[int], weight_share: float) -> Tensor:
    r"""(d,) sampling probabilities of this batch: a share by weight and second moment, the rest by the moment alone.

    .. math:: p_i = \lambda \frac{|w_i| s_i}{\sum_j |w_j| s_j} + (1 - \lambda) \frac{s_i}{\sum_j s_j}, \qquad
              s_i = \sqrt{\tfrac1n \sum_n x_{ni}^2}

    Args:
        input: the batch.
        squares: (d,) :math:`|w_i|^2`, the sum of the squares of the outgoing weights.
        units: the dimensions of the units.
        weight_share: :math:`\lambda`.

    Examples:
        >>> x, squares = torch.tensor([[1.0, 1.0, 2.0]]), torch.tensor([9.0, 1.0, 0.0])
        >>> weight_aware_probabilities(x, squares, (1,), 1.0)
        tensor([0.7500, 0.2500, 0.0000])
    """
    examples = [dim for dim in range(input.ndim) if dim not in units]
    held = widened(input.detach())
    moments = torch.linalg.vector_norm(held, dim=examples) if examples else held.abs()
    moments = torch.where(torch.isfinite(moments), moments, 0.0).flatten()  # those that are not pass through anyway
    even = _shares(moments, torch.ones_like(moments))
    return weight_share * _shares(moments * squares.to(held.dtype).sqrt(), even) + (1.0 - weight_share) * even


def _shares(masses: Tensor, otherwise: Tensor) -> Tensor:
    """Masses over their sum; where all are 0, or one is not finite, others take their place. Nothing is read back."""
    scaled = masses / masses.max().clip(min=torch.finfo(masses.dtype).tiny)
    chosen = torch.where((masses.max() > 0) & torch.isfinite(masses).all(), scaled, otherwise)
    return chosen / chosen.sum()


class WeightAwareDropout(ZooDropout):
    r"""Multinomial noise by the second moments of the batch times the outgoing weights of each unit.

    The supplement's tight bound of the regulariser is least for p_i ~ sqrt(w_i^2 E x_i^2), which needs the weights.
    A linear model learns them at the same time; in a network they stand in the next layer:
    :func:`weight_aware_probabilities` has the formula. The noise is

    .. math:: \hat x_i = x_i \frac{m_i}{k p_i}, \quad m \sim \mathrm{Mult}(p; k), \qquad
              \mathrm{Var}\,\hat x_i = x_i^2 \frac{1 - p_i}{k p_i},

    with mean x_i wherever p_i > 0. By the weights alone (``weight_share=1``) a unit without outgoing weights would
    never be drawn, and then never get any: that is why half of the probability follows the moments, as in
    :class:`evodrop.linear.DropoutSGDClassifier`. No gradient goes through the probabilities.

    The layer refers to the next one but does not own it: its parameters are not listed twice, a copy of the whole model
    refers to the copied layer, and weights that are loaded, moved or cast are seen. If you put another layer in its
    place, call :meth:`attach` again; ``convert_dropout`` does. ``nn.DataParallel`` makes copies that still refer to the
    original.

    Args:
        p: fraction of the units to drop, in [0, 1); it sets the number of draws.
        after: the next layer with weights: ``Linear``, ``Conv2d`` or ``LocallyConnected2d``. Where flattening, pooling,
            batch normalisation or activations stand between: all layers up to it, in order.
        weight_share: share of the probability that follows the weights, in [0, 1]; 0 is evolutional dropout.
        k, match, uniform_mix, unit_dims: as in :class:`evodrop.nn.EvolutionalDropout`.

    Shape:
        Any shape that the next layer takes; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> head = nn.Linear(150, 10)
        >>> model = nn.Sequential(nn.Linear(64, 150), nn.ReLU(), WeightAwareDropout(0.5, head), head)
        >>> model(torch.randn(128, 64)).shape
        torch.Size([128, 10])
    """

    about: ClassVar[About] = About(
        name="weight-aware",
        year=2016,
        source="the supplement of Li, Gong and Yang, for deep networks",
        noise="multinomial, mean 1, variance (1 - p_i) / (k p_i), half of p_i by |w_i| sqrt(E x_i^2)",
        learns="nothing",
        cost="as evolutional, and a pass over the next layer's weights",
        regularizer="the least of the tight bound, of the order of (sum |w_i| sqrt(E x_i^2))^2 / 8k",
        use="where strong units have small weights, or weak ones large weights",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"after"})
    weight_share: float

    def __init__(
        self,
        p: float = 0.5,
        after: nn.Module | Sequence[nn.Module] | None = None,
        *,
        weight_share: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(p)
        self.unit_dims, self.options = options.pop("unit_dims", None), options
        if not (isinstance(weight_share, numbers.Real) and 0.0 <= weight_share <= 1.0):
            raise ValueError(
                f"weight_share is {weight_share!r}, but it takes a number in [0, 1], the share that follows the weights"
            )
        self.weight_share = float(weight_share)
        self._path: tuple[nn.Module, ...] = ()  # a tuple, which torch does not register
        if after is not None:
            self.attach(after)

    def attach(self, after: nn.Module | Sequence[nn.Module]) -> None:
        """Refer to another next layer, or to all layers up to it."""
        self._path = checked_path(after if isinstance(after, Sequence) else (after,))

    def follow(self, replaced: Mapping[nn.Module, nn.Module]) -> None:
        """Refer to the layer that has taken the place of the next one, if it was replaced.

        It may have the very parameters of the old one, but what is assigned to it later would not be seen there.
        """
        self._path = (*self._path[:-1], *(replaced.get(layer, layer) for layer in self._path[-1:]))

    @classmethod
    def fit_in(cls, place: Place, **options: object) -> Place:
        """The same place with this dropout in it, which refers to the layer after it."""
        path = (*place.between, place.after)
        return place._replace(dropout=cls(place.p, path, **options))  # type: ignore[arg-type]

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        F.check_tensor(input)
        if input.numel() == 0:
            return input
        if not self._path:
            raise RuntimeError("WeightAwareDropout has no next layer; give it one by after= or attach(layer)")
        units = checked_dims(input, self.unit_dims)
        with torch.no_grad():
            squares = outgoing_squares(self._path, tuple(input.shape[dim] for dim in units))
            probs = weight_aware_probabilities(input, squares.flatten(), units, self.weight_share)
        return F.multinomial_dropout(input, self.p, probs, self.training, unit_dims=self.unit_dims, **self.options)

    def extra_repr(self) -> str:
        after = type(self._path[-1]).__name__ if self._path else None
        return f"{super().extra_repr()}, weight_share={self.weight_share:g}, after={after}"
