"""Batchwise dropout: one mask for all examples of a batch, so that a dropped unit need not be computed at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import checked_rate
from evodrop.nn._noise import UnitDims
from evodrop.nn.functional import check_tensor
from evodrop.nn.locally_connected import as_autocast
from evodrop.nn.zoo._base import (
    ELEMENTWISE,
    POOLING,
    Site,
    UnitDropout,
    check_features,
    is_plain,
    layer_like,
    takes_torch_alone,
    unit_sizes,
)

__all__ = ["BatchwiseDropout", "BatchwiseLinear", "batchwise_dropout"]


def batchwise_dropout(input: Tensor, p: float = 0.5, training: bool = True, *, unit_dims: UnitDims = None) -> Tensor:
    r"""Drop the same units of every example in the batch.

    Graham, Reizenstein and Robinson 2015. What an example sees is standard dropout, but with probability :math:`p^d`
    all d units of a batch are dropped at once, and the gradient of the batch is noisier.

    .. math:: y_{ni} = x_{ni} \frac{m_i}{1 - p}, \qquad m_i \sim \mathrm{Bernoulli}(1 - p), \qquad
        E y_{ni} = x_{ni}, \quad \mathrm{Cov}(y_{ni}, y_{li}) = \tfrac{p}{1 - p} x_{ni} x_{li}

    Args:
        input: a floating-point tensor.
        p: probability of a unit to be dropped, in [0, 1).
        training: without it, or with p = 0, the input is returned, the very same tensor.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first.

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
    return _apply(input, _draw(unit_sizes(input, unit_dims), p, input), p)


class BatchwiseDropout(UnitDropout):
    """:func:`batchwise_dropout` as a layer, in the place of ``nn.Dropout``.

    By itself it multiplies by the mask. Between linear layers, where ``convert_dropout`` connects it, the
    :class:`BatchwiseLinear` before it draws the mask and computes only the outputs that are kept, and the one after
    it reads only those. At p = 0.5 that halves the work of both, and a layer between two such dropouts does a quarter.

    The layer before is connected only if nothing but functions of single units, such as ReLU, stands between it and
    this one: they see 0 in the place of what was not computed, which batch normalisation would count. The layer after
    skips an input only if it is 0 in the whole batch, and then no gradient goes there, so nothing that learns to add to
    a unit may stand between. With normalisation or another dropout between, the layer at that side stays as it is.

    In eval mode the layer before computes all of its features. Connected layers are for one thread at a time (not
    ``nn.DataParallel``), and activation checkpointing has to have all three in one segment. Under ``torch.compile`` the
    noise is the same, but whole matrices are multiplied: a size that changes would be compiled anew for every batch.

    Args:
        p: probability of a unit to be dropped, in [0, 1).
        unit_dims: as in :func:`batchwise_dropout`; -1 where it is connected to a linear layer before it.

    Attributes:
        kept: of bool, which units the last pass in training mode kept; None before it.

    Shape:
        Any shape; the output has the shape and dtype of the input.

    Examples:
        >>> from evodrop.nn import convert_dropout
        >>> model = nn.Sequential(nn.Linear(64, 150), nn.Sigmoid(), nn.Dropout(0.5), nn.Linear(150, 10))
        >>> convert_dropout(model, "batchwise")(torch.randn(128, 64)).shape
        torch.Size([128, 10])
    """

    def __init__(self, p: float = 0.5, *, unit_dims: UnitDims = None) -> None:
        super().__init__(p)
        self.unit_dims = unit_dims
        self.fed = False  # by a layer before, which draws the mask
        self.drawn: Tensor | None = None  # that mask, until forward uses it
        self.kept: Tensor | None = None

    @classmethod
    def place(cls, site: Site, **options: Any) -> Site:
        """The site with this dropout, and with the linear layers at its sides connected to it, where they can be."""
        dropout = cls(site.p, **options)
        if options.get("unit_dims", -1) == -1:
            before = dropout._connected("feeds", site.before, site.since, ELEMENTWISE)
            if before is not None:
                dropout.fed, dropout.unit_dims = True, -1
                site = site._replace(before=before)
        after = dropout._connected("reads", site.after, site.between, (*ELEMENTWISE, *POOLING, nn.Flatten))
        return site._replace(dropout=dropout, after=after or site.after)

    def _connected(
        self, side: str, layer: nn.Module | None, way: Sequence[nn.Module], through: tuple[type[nn.Module], ...]
    ) -> BatchwiseLinear | None:
        """The layer with a link to this dropout, if it can skip units, and what stands between lets a link through."""
        if not all(isinstance(one, through) and not isinstance(one, _DropoutNd) for one in way):
            return None
        if not isinstance(layer, BatchwiseLinear):
            if layer is None or not is_plain(layer, nn.Linear):
                return None
            layer = layer_like(BatchwiseLinear, layer)
        layer.links[side] = self
        return layer

    @property
    def active(self) -> bool:
        return self.training and self.p > 0

    def forward(self, input: Tensor) -> Tensor:
        check_tensor(input)
        if not self.active:
            return input
        if self.fed:
            mask, self.drawn = self.drawn, None
            if mask is None:
                raise RuntimeError(
                    f"{self} has no mask: the linear layer before it, which draws it, has not run since the last pass; "
                    "if this is activation checkpointing, put both layers and the one after them into the same "
                    "segment; if several threads use the model, give each a copy"
                )
            if input.shape[-1:] != mask.shape:
                raise ValueError(
                    f"{self} follows a linear layer with {len(mask)} outputs, but its input has shape "
                    f"{tuple(input.shape)}; only functions of single units may stand between the two"
                )
        else:
            mask = _draw(unit_sizes(input, self.unit_dims), self.p, input)
        self.kept = None if _must_be_whole(input) else mask
        return _apply(input, mask, self.p)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.unit_dims is None else f", unit_dims={self.unit_dims!r}")


class BatchwiseLinear(nn.Linear):
    """``nn.Linear`` beside a :class:`BatchwiseDropout`: units that it drops are neither computed nor read.

    What one mask drops for a whole batch is a row or a column of the weight that need not be multiplied. With d inputs
    and e outputs, of which a and b are kept, n examples take n a b products instead of n d e. ``convert_dropout`` makes
    and links it. Without ``links``, and wherever no dropout is active, it is the plain layer.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.

    Attributes:
        links: the dropout that it ``"feeds"``, the dropout that it ``"reads"``, or both.

    Shape:
        As ``nn.Linear``; outputs that are dropped are 0.

    Examples:
        >>> from evodrop.nn import convert_dropout
        >>> model = convert_dropout(nn.Sequential(nn.Linear(64, 150), nn.Dropout(0.5), nn.Linear(150, 10)), "batchwise")
        >>> 30 < int((model[0](torch.randn(128, 64)) != 0).any(0).sum()) < 120  # about half of the 150
        True
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.links: dict[str, BatchwiseDropout] = {}  # no children: each has its own place in the model

    def forward(self, input: Tensor) -> Tensor:
        reads, feeds = self.links.get("reads"), self.links.get("feeds")
        kept, outputs = reads.kept if reads is not None and reads.active else None, None
        if feeds is not None and feeds.active:
            feeds.drawn = _draw((self.out_features,), feeds.p, self.weight)
            # In eval mode this layer may have been taken out of the model, and its dropout, still in training mode, may
            # never be called; where it is called, as for Monte Carlo dropout, it drops them all the same.
            outputs = feeds.drawn if self.training else None
        if (kept is None and outputs is None) or _must_be_whole(input):
            return super().forward(input)
        check_features(input, self.weight)
        rows, weight = as_autocast(input).unsqueeze(0).flatten(0, -2), as_autocast(self.weight)
        bias = None if self.bias is None else as_autocast(self.bias)
        inputs = None
        if kept is not None and kept.numel() == self.in_features:
            # Columns that are 0 in the whole batch add nothing. A kept one that happens to be 0 still gets a gradient.
            inputs = kept.flatten() | (rows.detach().abs().sum(0) != 0)
        output = submatrix_linear(rows, weight, bias, outputs, inputs)
        return output.reshape(*input.shape[:-1], self.out_features)


def _draw(shape: Sequence[int], p: float, like: Tensor) -> Tensor:
    """Not in place, so that vmap can draw one for each."""
    return torch.bernoulli(torch.empty(tuple(shape), dtype=torch.bool, device=like.device), 1.0 - p)


def _apply(input: Tensor, mask: Tensor, p: float) -> Tensor:
    """What is dropped is 0, even where an activation has made inf of the 0 in its place."""
    return torch.where(mask, input / (1.0 - p), 0.0)


def _must_be_whole(input: Tensor) -> bool:
    """Where the number of kept units may not be looked at."""
    return input.is_meta or takes_torch_alone()


def submatrix_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, outputs: Tensor | None, inputs: Tensor | None
) -> Tensor:
    """A linear layer of (n, in_features) where masks say which outputs and inputs are kept; None: all are.

    What is dropped is multiplied neither forward nor backward: what remains of the weight is copied into a smaller
    matrix, and gradients are spread over zeros again. Dropped inputs are not read, dropped outputs are 0.
    """
    rows, columns = _indices(outputs), _indices(inputs)
    x, w = _moved(input, 1, columns), _moved(_moved(weight, 0, rows), 1, columns)
    return _moved(functional.linear(x, w, None if bias is None else _moved(bias, 0, rows)), 1, rows, back=True)


def _indices(mask: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """The units that are kept, and one more, to be set to 0; where each of all the units stands among these.

    Those dropped stand where the 0 is. It takes part in every product, so that every product has a 0 to read them from.
    """
    if mask is None:
        return None
    units = mask.nonzero().squeeze(1)
    return torch.cat([units, units.new_zeros(1)]), torch.where(mask, mask.cumsum(0) - 1, len(units))


def _moved(tensor: Tensor, dim: int, indices: tuple[Tensor, Tensor] | None, back: bool = False) -> Tensor:
    """The kept units and the 0; or ``back``, all units again, those dropped 0."""
    moved: Tensor = tensor if indices is None else _Move.apply(tensor, dim, indices, back)  # type: ignore[no-untyped-call]
    return moved


class _Move(torch.autograd.Function):
    """There and back: each has the other as its derivative.

    Reading each unit from its place is faster than what torch does, to write the kept ones into a field of zeros.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, indices: tuple[Tensor, Tensor], back: bool) -> Tensor:
        ctx.arguments = dim, indices, not back
        moved = tensor.index_select(dim, indices[back])
        if not back:
            moved.select(dim, -1).zero_()
        return moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _moved(grad, *ctx.arguments), None, None, None
