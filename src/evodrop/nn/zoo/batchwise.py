"""Batchwise dropout: one mask for all examples of a batch, so that a dropped unit need not be computed at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

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
    unit_sizes,
)

__all__ = ["BatchwiseDropout", "BatchwiseLinear", "batchwise_dropout"]


def batchwise_dropout(input: Tensor, p: float = 0.5, training: bool = True, *, unit_dims: UnitDims = None) -> Tensor:
    r"""Drop the same units of every example in the batch.

    Graham, Reizenstein and Robinson 2015. Every unit is kept with probability 1 - p, independently of the others, so
    the noise has mean 1 exactly; with probability :math:`p^d` all d units are dropped at once. What an example sees is
    standard dropout; that all of a batch see the same makes the gradient of the batch noisier.

    .. math:: y_{ni} = x_{ni} \frac{m_i}{1 - p}, \qquad m_i \sim \mathrm{Bernoulli}(1 - p), \qquad
        E y_{ni} = x_{ni}, \quad \mathrm{Cov}(y_{ni}, y_{li}) = \tfrac{p}{1 - p} x_{ni} x_{li}

    Args:
        input: a floating-point tensor.
        p: probability of a unit to be dropped, in [0, 1).
        training: without it, or with p = 0, the input is returned, the very same tensor.
        unit_dims: dimensions that are units; all others are examples. Default: every dimension but the first. A vector
            is one example.

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

    The layer before is connected only if nothing but functions of single units, such as ReLU or sigmoid, stands between
    it and this one: they see 0 in the place of what was not computed, and what they make of it is dropped here. Batch
    normalisation would count those zeros in its statistics. The layer after skips an input only if it is 0 in the whole
    batch, and then no gradient goes there, so nothing that learns to add to a unit may stand between: with
    normalisation, or another dropout, between them the layer at that side stays as it is.

    In training mode the layer before outputs 0 for what is dropped. To read its features without the dropout, put it in
    eval mode: then it computes all of them.

    What it cannot do: the connected layers are for one thread at a time (not ``nn.DataParallel``), and activation
    checkpointing has to have all three in one segment. Under ``torch.compile`` the noise is the same, but the whole
    matrices are multiplied: a size that changes with every batch would be compiled anew.

    Args:
        p: probability of a unit to be dropped, in [0, 1).
        unit_dims: dimensions that are units, as in :func:`batchwise_dropout`; connected to a linear layer before it,
            -1.

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
        """The site with this dropout, and with the linear layers at its sides, where there are any, connected to it.

        What stands between decides whether they are; see the class.
        """
        feeds = _connects(site.before, site.since, ELEMENTWISE) and options.get("unit_dims", -1) == -1
        dropout = cls(site.p, **({"unit_dims": -1} if feeds else {}) | options)
        site = site._replace(dropout=dropout)
        if feeds:
            site = site._replace(before=_connected(site.before, "feeds", dropout))
            dropout.fed = True
        if _connects(site.after, site.between, (*ELEMENTWISE, *POOLING, nn.Flatten)):
            site = site._replace(after=_connected(site.after, "reads", dropout))
        return site

    @property
    def active(self) -> bool:
        return self.training and self.p > 0

    def forward(self, input: Tensor) -> Tensor:
        check_tensor(input)
        if not self.active:
            return input
        mask = self._take_drawn(input) if self.fed else _draw(unit_sizes(input, self.unit_dims), self.p, input)
        self.kept = None if _must_be_whole(input) else mask
        return _apply(input, mask, self.p)

    def _take_drawn(self, input: Tensor) -> Tensor:
        mask, self.drawn = self.drawn, None
        if mask is None:
            raise RuntimeError(
                f"{self} has no mask: the linear layer before it, which draws it, has not run since the last pass; if "
                "this is activation checkpointing, put both layers and the one after them into the same segment; if "
                "several threads use the model, give each a copy"
            )
        if input.shape[-1:] != mask.shape:
            raise ValueError(
                f"{self} follows a linear layer with {len(mask)} outputs, but its input has shape "
                f"{tuple(input.shape)}; only functions of single units may stand between the two"
            )
        return mask

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
        >>> y = model[0](torch.randn(128, 64))
        >>> kept = (y != 0).any(0)  # about half of the 150
        >>> bool((model[1](y)[:, kept] == 2 * y[:, kept]).all())
        True
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.links: dict[str, BatchwiseDropout] = {}  # no children: each has its own place in the model

    def forward(self, input: Tensor) -> Tensor:
        reads, feeds = self.links.get("reads"), self.links.get("feeds")
        outputs = None
        if feeds is not None and feeds.active:
            outputs = feeds.drawn = _draw((self.out_features,), feeds.p, self.weight)
        # In eval mode this layer may have been taken out of the model, and its dropout, still in training mode, may
        # never be called; where it is called, as for Monte Carlo dropout, it drops them all the same.
        outputs = outputs if self.training else None
        kept = reads.kept if reads is not None and reads.active else None
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


def _connects(
    layer: nn.Module | None, way: Sequence[nn.Module], through: tuple[type[nn.Module], ...]
) -> TypeGuard[nn.Linear]:
    """Whether a layer can skip units, and nothing but what a connection may go through stands between."""
    free = all(isinstance(one, through) and not isinstance(one, _DropoutNd) for one in way)
    return free and (isinstance(layer, BatchwiseLinear) or is_plain(layer, nn.Linear))


def _connected(plain: nn.Module | None, side: str, dropout: BatchwiseDropout) -> BatchwiseLinear:
    """A layer with the very parameters of a plain one, or a connected one itself, and its link to a dropout."""
    assert plain is not None
    layer = plain if isinstance(plain, BatchwiseLinear) else layer_like(BatchwiseLinear, plain)
    layer.links[side] = dropout
    return layer


def _draw(shape: Sequence[int], p: float, like: Tensor) -> Tensor:
    """Not in place, so that vmap can draw one for each."""
    return torch.bernoulli(torch.empty(tuple(shape), dtype=torch.bool, device=like.device), 1.0 - p)


def _apply(input: Tensor, mask: Tensor, p: float) -> Tensor:
    """What is dropped is 0, even where an activation has made inf of the 0 in its place."""
    return torch.where(mask, input / (1.0 - p), 0.0)


def _must_be_whole(input: Tensor) -> bool:
    """Where the number of kept units may not be looked at."""
    return torch.compiler.is_compiling() or input.is_meta or torch._C._are_functorch_transforms_active()


def submatrix_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, outputs: Tensor | None, inputs: Tensor | None
) -> Tensor:
    """A linear layer with dropped units, which are not multiplied, neither forward nor backward.

    What remains of the weight is copied into a smaller matrix; the gradients are spread over zeros again.

    Args:
        input: (n, in_features); what it has in dropped columns is not read, and gets gradient 0.
        weight, bias: (out_features, in_features) and (out_features,) or None.
        outputs, inputs: which units are kept, (out_features,) and (in_features,) of bool, or None for all.

    Shape:
        (n, out_features), 0 where an output is dropped.

    Examples:
        >>> kept = torch.tensor([True, False])
        >>> submatrix_linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), None, None, kept)
        tensor([[1., 3.]])
    """
    rows, columns = _kept(outputs), _kept(inputs)
    x, w = _pick(input, 1, columns), _pick(_pick(weight, 0, rows), 1, columns)
    return _spread(functional.linear(x, w, None if bias is None else _pick(bias, 0, rows)), 1, rows)


class _Kept(NamedTuple):
    """The units that are kept, and one more, which :func:`_pick` sets to 0; where each of all the units stands there.

    Those dropped stand where the 0 is. It takes part in every product, so that every product has a 0 to read them from.
    """

    units: Tensor
    places: Tensor


def _kept(mask: Tensor | None) -> _Kept | None:
    if mask is None:
        return None
    units = mask.nonzero().squeeze(1)
    places = torch.where(mask, mask.cumsum(0) - 1, len(units))
    return _Kept(torch.cat([units, units.new_zeros(1)]), places)


def _pick(tensor: Tensor, dim: int, kept: _Kept | None) -> Tensor:
    """The kept units, and the 0."""
    picked: Tensor = tensor if kept is None else _Reindex.apply(tensor, dim, kept, True)  # type: ignore[no-untyped-call]
    return picked


def _spread(tensor: Tensor, dim: int, kept: _Kept | None) -> Tensor:
    """All units again, those dropped 0."""
    spread: Tensor = tensor if kept is None else _Reindex.apply(tensor, dim, kept, False)  # type: ignore[no-untyped-call]
    return spread


class _Reindex(torch.autograd.Function):
    """To pick and to spread: each has the other as its derivative.

    Reading each unit from its place is faster than what torch does, to write the kept ones into a field of zeros.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, kept: _Kept, picks: bool) -> Tensor:
        ctx.arguments = dim, kept, picks
        moved = tensor.index_select(dim, kept.units if picks else kept.places)
        if picks:
            moved.select(dim, -1).zero_()
        return moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        dim, kept, picks = ctx.arguments
        return _Reindex.apply(grad, dim, kept, not picks), None, None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        moved: Tensor = _Reindex.apply(tangent, *ctx.arguments)  # type: ignore[no-untyped-call]
        return moved
