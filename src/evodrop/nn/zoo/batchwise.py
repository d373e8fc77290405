"""Batchwise dropout: one mask for all examples of a batch, so that a dropped unit need not be computed at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import checked_rate
from evodrop.nn._neighbours import ELEMENTWISE, POOLING
from evodrop.nn.functional import check_tensor
from evodrop.nn.locally_connected import as_autocast
from evodrop.nn.zoo.adopt import is_plain, linear_like
from evodrop.nn.zoo.moments import check_features
from evodrop.nn.zoo.protocol import About, Place, ZooDropout
from evodrop.nn.zoo.submatrix import submatrix_linear

__all__ = ["BatchwiseDropout", "BatchwiseLinear", "batchwise_dropout"]


def batchwise_dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    r"""Drop the same units of every example in the batch.

    Graham, Reizenstein and Robinson 2015. Every unit is kept with probability 1 - p, independently of the others, so
    the noise has mean 1 exactly; with probability :math:`p^d` all d units are dropped at once. What an example sees is
    standard dropout; that all of a batch see the same makes the gradient of the batch noisier.

    .. math:: y_{ni} = x_{ni} \frac{m_i}{1 - p}, \qquad m_i \sim \mathrm{Bernoulli}(1 - p), \qquad
        E y_{ni} = x_{ni}, \quad \mathrm{Cov}(y_{ni}, y_{li}) = \tfrac{p}{1 - p} x_{ni} x_{li}

    Args:
        input: dimension 0 is the batch and every other dimension is a unit; a vector is one example.
        p: probability of a unit to be dropped, in [0, 1).
        training: without it, or with p = 0, the input is returned, the very same tensor.

    Shape:
        Any shape; the output has the shape and dtype of the input.

    Examples:
        >>> y = batchwise_dropout(torch.ones(3, 100))
        >>> bool((y == y[0]).all()), sorted(set(y[0].tolist()))
        (True, [0.0, 2.0])
    """
    check_tensor(input)
    if not training or checked_rate(p) == 0:
        return input
    return _apply(input, _draw(_units(input), p, input), p)


class BatchwiseDropout(ZooDropout):
    """:func:`batchwise_dropout` as a layer, in the place of ``nn.Dropout``.

    By itself it multiplies by the mask. Between linear layers, where ``convert_dropout`` and :meth:`fit_in` connect it,
    the :class:`BatchwiseLinear` before it draws the mask and computes only the outputs that are kept, and the one after
    it reads only those. At p = 0.5 that halves the work of both, and a layer between two such dropouts does a quarter.

    The layer before is connected only if nothing but functions of single units, such as ReLU or sigmoid, stands between
    it and this one: they see 0 in the place of what was not computed, and what they make of it is dropped here. Batch
    normalisation would count those zeros in its statistics. The layer after skips an input only if it is 0 in the whole
    batch, and then no gradient goes there, so nothing that learns to add to a unit may stand between: with
    normalisation, or another dropout, on the way the layer at that side stays as it is.

    In training mode the layer before answers with 0 for what is dropped, so features that are read there, without the
    dropout, are to be taken in its eval mode: then it computes all of them.

    What it cannot do: the connected layers can be differentiated once, they are for one thread at a time (not
    ``nn.DataParallel``), and activation checkpointing has to have all three in one segment. Under ``torch.compile`` the
    noise is the same, but whole matrices are multiplied: a size that changes with every batch would be compiled anew.

    Args:
        p: probability of a unit to be dropped, in [0, 1).

    Shape:
        Any shape; the output has the shape and dtype of the input. After a linear layer the units are the last
        dimension, else every dimension but the first.

    Examples:
        >>> from evodrop.nn import convert_dropout
        >>> model = nn.Sequential(nn.Linear(64, 150), nn.Sigmoid(), nn.Dropout(0.5), nn.Linear(150, 10))
        >>> convert_dropout(model, "batchwise")(torch.randn(128, 64)).shape
        torch.Size([128, 10])
    """

    about: ClassVar[About] = About(
        name="batchwise",
        year=2015,
        source="Graham, Reizenstein and Robinson 2015",
        noise="x Bernoulli(1 - p) / (1 - p), one draw per unit for the whole batch: mean x, variance p / (1 - p) x^2",
        learns="nothing",
        cost="less than none: linear layers before and after multiply only by the weights of kept units",
        regularizer="that of standard dropout in expectation, with a noisier gradient",
        use="between wide linear layers, for speed; not after batch normalisation",
    )
    likes: ClassVar[frozenset[str]] = frozenset({"before", "after"})

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.fed = self.read = False  # by a layer before that draws the mask, by a layer after that takes it
        self._mask: Tensor | None = None  # on its way from one layer to the next, within one forward pass

    @classmethod
    def fit_in(cls, place: Place, **options: Any) -> Place:
        """The place with this dropout, and with the linear layers at its sides, where there are any, connected to it.

        What stands between decides whether they are; see the class.
        """
        dropout = cls(place.p, **options)
        before, after = place.before, place.after
        if _connects(before, place.since, ELEMENTWISE):
            before = BatchwiseLinear.from_linear(before)
            before.links["feeds"], dropout.fed = dropout, True
        if _connects(after, place.between, (*ELEMENTWISE, *POOLING, nn.Flatten)):
            after = BatchwiseLinear.from_linear(after)
            after.links["reads"], dropout.read = dropout, True
        return place._replace(before=before, dropout=dropout, after=after)

    @property
    def active(self) -> bool:
        return self.training and self.p > 0

    def draw(self, units: int, like: Tensor) -> Tensor:
        """A mask for so many units, which :meth:`forward` will use."""
        self._mask = _draw((units,), self.p, like)
        return self._mask

    def take(self) -> Tensor | None:
        """The mask of this forward pass, if there is one, for the last that needs it."""
        mask, self._mask = self._mask, None
        return mask

    def forward(self, input: Tensor) -> Tensor:
        check_tensor(input)
        if not self.active:
            return input
        mask = self._drawn(input) if self.fed else _draw(_units(input), self.p, input)
        self._mask = mask if self.read else None
        return _apply(input, mask, self.p)

    def _drawn(self, input: Tensor) -> Tensor:
        if self._mask is None:
            raise RuntimeError(
                f"{self} has no mask: the linear layer before it, which draws it, has not run since the last pass; if "
                "this is activation checkpointing, put both layers and the one after them into the same segment; if "
                "several threads use the model, give each a copy"
            )
        if input.shape[-1:] != self._mask.shape:
            raise ValueError(
                f"{self} follows a linear layer with {len(self._mask)} outputs, but its input has shape "
                f"{tuple(input.shape)}; only functions of single units may stand between the two"
            )
        return self._mask


class BatchwiseLinear(nn.Linear):
    """``nn.Linear`` beside a :class:`BatchwiseDropout`: units that it drops are neither computed nor read.

    What one mask drops for a whole batch is a row or a column of the weight that need not be multiplied. With d inputs
    and e outputs, of which a and b are kept, n examples take n a b products instead of n d e. ``convert_dropout`` and
    :meth:`BatchwiseDropout.fit_in` make and link it. Without ``links``, and wherever no dropout is active, it is the
    plain layer.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.

    Attributes:
        links: the dropout that it ``"feeds"``, the dropout that it ``"reads"``, or both.

    Shape:
        As ``nn.Linear``; outputs that are dropped are 0.

    Examples:
        >>> place = Place(nn.Linear(64, 150), nn.Dropout(0.5), nn.Linear(150, 10))
        >>> before, dropout, after, *_ = BatchwiseDropout.fit_in(place)
        >>> y = before(torch.randn(128, 64))
        >>> kept = (y != 0).any(0)  # about half of the 150
        >>> bool((dropout(y)[:, kept] == 2 * y[:, kept]).all())
        True
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.links: dict[str, BatchwiseDropout] = {}  # no children: each has its own place in the model

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> Self:
        """A layer with the very parameters of a plain one; one of this class is returned as it is."""
        return linear if isinstance(linear, cls) else linear_like(cls, linear)

    def forward(self, input: Tensor) -> Tensor:
        reads, feeds = self.links.get("reads"), self.links.get("feeds")
        taken = reads.take() if reads is not None and reads.active else None
        outputs = feeds.draw(self.out_features, self.weight) if feeds is not None and feeds.active else None
        # In eval mode this layer may have been taken out of the model, and its dropout, still in training mode, may
        # never be called; where it is called, as for Monte Carlo dropout, it drops them all the same.
        outputs = outputs if self.training else None
        if (taken is None and outputs is None) or _must_be_whole(input):
            return super().forward(input)
        check_features(input, self.weight)
        rows, weight = as_autocast(input).reshape(-1, self.in_features), as_autocast(self.weight)
        bias = None if self.bias is None else as_autocast(self.bias)
        output = submatrix_linear(rows, weight, bias, outputs, _needed(taken, rows))
        return output.reshape(*input.shape[:-1], self.out_features)


def _connects(
    layer: nn.Module | None, way: Sequence[nn.Module], through: tuple[type[nn.Module], ...]
) -> TypeGuard[nn.Linear]:
    """Whether a layer can skip units, and nothing on the way to it but what a connection may go through."""
    free = all(isinstance(one, through) and not isinstance(one, _DropoutNd) for one in way)
    return free and (isinstance(layer, BatchwiseLinear) or is_plain(layer, nn.Linear))


def _units(input: Tensor) -> tuple[int, ...]:
    return tuple(input.shape[1:] if input.ndim > 1 else input.shape)


def _draw(units: tuple[int, ...], p: float, like: Tensor) -> Tensor:
    """Not in place, so that vmap can draw one for each."""
    return torch.bernoulli(torch.empty(units, dtype=torch.bool, device=like.device), 1.0 - p)


def _apply(input: Tensor, mask: Tensor, p: float) -> Tensor:
    """What is dropped is 0, even where an activation has made inf of the 0 in its place."""
    return torch.where(mask, input / (1.0 - p), 0.0)


def _needed(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    """The inputs that count: those kept, and any other that something between dropout and layer has made nonzero."""
    if mask is None or mask.numel() != rows.shape[1]:
        return None
    return mask.flatten() | (rows.detach().abs().sum(0) != 0)


def _must_be_whole(input: Tensor) -> bool:
    """Where the number of kept units may not be looked at."""
    return torch.compiler.is_compiling() or input.is_meta or torch._C._are_functorch_transforms_active()
