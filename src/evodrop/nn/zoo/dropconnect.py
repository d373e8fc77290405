"""DropConnect: every weight of a layer is dropped by itself; in eval mode a mean or a Gaussian stands for the masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from evodrop._kernels.threads import useful_threads
from evodrop.nn._noise import draw_seed, unmapped
from evodrop.nn.locally_connected import as_autocast
from evodrop.nn.zoo._base import Moments, WeightedDropout, check_choice, squared, takes_torch_alone, wide_dtype
from evodrop.nn.zoo.gaussian import noise_variance
from evodrop.sampling import draw_mask

__all__ = ["DropConnectConv2d", "DropConnectLinear"]

BLOCK = 2**18  # weights that are multiplied by their masks at a time: they stay in the cache until they are used


class _DropConnect(WeightedDropout):
    """What the linear and the convolutional layer share: all but the products with a mask for each example."""

    needs = frozenset({"before"})
    remedy = "GaussianDropout goes anywhere"
    shown = ("p", "masks", "inference")
    one_example: ClassVar[int]  # its number of dimensions

    def __init__(
        self, *sizes: Any, p: float = 0.5, masks: str = "example", inference: str = "mean", **options: Any
    ) -> None:
        super().__init__(*sizes, p=p, **options)
        check_choice("masks", masks, ("example", "batch"))
        check_choice("inference", inference, ("mean", "sample"))
        self.masks, self.inference = masks, inference

    def moments(self, input: Tensor) -> Moments:
        """Mean and variance of every output over all masks, both exact; the variance in float32 or wider."""
        self._check(input)
        variance = self._variance(input, squared(self.weight), None if self.bias is None else squared(self.bias))
        return Moments(self._product(input, self.weight, self.bias), noise_variance(self.p) * variance)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        if not (self.training and self.p > 0):
            if self.inference == "sample":
                return self.moments(input).sample()
            return self._product(input, self.weight, self.bias)
        apart = self.masks == "example" and input.ndim > self.one_example and len(input) > 0
        keep, copies, bias = 1.0 - self.p, len(input) if apart else 1, None
        weight, masks = as_autocast(self.weight) / keep, draw_masks(self.weight.detach(), copies, keep)
        if self.bias is not None:
            bias = as_autocast(self.bias) / keep * draw_masks(self.bias.detach(), copies, keep)
        if apart:
            return self._products(as_autocast(input), weight, masks, bias)
        return self._product(input, weight * masks[0], None if bias is None else bias[0])

    def _products(self, input: Tensor, weight: Tensor, masks: Tensor, bias: Tensor | None) -> Tensor:
        each = torch.vmap(self._product, in_dims=(0, 0, None if bias is None else 0))
        output: Tensor = each(input, weight * masks, bias)
        return output


class DropConnectLinear(_DropConnect, nn.Linear):
    r"""``nn.Linear`` that drops each of its weights, and biases, instead of its inputs or outputs.

    Dropout on the outputs of a layer is the case where a row of the mask is dropped as a whole (Wan et al. 2013). The
    masks M and m have independent entries, Bernoulli(1 - p).

    .. math:: z = \frac{(M * W) x + m * b}{1 - p}, \qquad E z = W x + b, \qquad
        \mathrm{Var}\, z = \frac{p}{1 - p} \bigl((W * W)(x * x) + b * b\bigr)

    The paper does not divide by 1 - p: its weights are ours over 1 - p, and the two have the same law. Divided, the
    mean is the plain layer, so a trained plain layer can be taken over and a new one begins at the usual scale.

    Args:
        in_features, out_features, bias, device, dtype: as in ``nn.Linear``.
        p: fraction of the weights to drop, in [0, 1).
        masks: ``"example"``, one per example of the batch, as in the paper, shared by the positions of a sequence; or
            ``"batch"``, one for all. With N examples the first keeps N bytes per weight (64 MB for 64 examples of a
            layer of 1000 x 1000), and takes 30 to 80 times the plain layer with dropout. A weight is kept with
            probability 1 - p to 2^-62 on a CPU, and in steps of 2^-24 on other devices.
        inference: in eval mode the ``"mean"``, which is the plain layer, or a ``"sample"`` of the Gaussian of the same
            :meth:`moments`. The paper averages what the next activation makes of several: average as many passes.

    Shape:
        As ``nn.Linear``, dimension 0 of two or more being the batch.

    Examples:
        >>> DropConnectLinear.from_layer(nn.Linear(64, 10), 0.5)(torch.randn(128, 64)).shape
        torch.Size([128, 10])
    """

    one_example = 1

    def _products(self, input: Tensor, weight: Tensor, masks: Tensor, bias: Tensor | None) -> Tensor:
        output = masked_linear(input.unsqueeze(1).flatten(1, -2), weight, masks)
        output = output if bias is None else output + bias.unsqueeze(1)
        return output.reshape(*input.shape[:-1], self.out_features)


class DropConnectConv2d(_DropConnect, nn.Conv2d):
    """``nn.Conv2d`` as :class:`DropConnectLinear` is ``nn.Linear``: a mask over the filters, shared by all positions.

    Mean and variance of every output are exact. In training the positions of a channel are correlated, since they share
    a mask; a ``"sample"`` in eval mode neglects that, as the paper does with the outputs of an example.

    Args:
        in_channels, ..., padding_mode, device, dtype: as in ``nn.Conv2d``; the others as in :class:`DropConnectLinear`.

    Shape:
        As ``nn.Conv2d``.

    Examples:
        >>> DropConnectConv2d(3, 8, 5, padding=2, p=0.2)(torch.randn(4, 3, 32, 32)).shape
        torch.Size([4, 8, 32, 32])
    """

    one_example = 3


_DropConnect.makes = (DropConnectLinear, DropConnectConv2d)


def draw_masks(weight: Tensor, copies: int, keep: float) -> Tensor:
    """(copies, *weight.shape) of bool, independent, each True with probability ``keep``.

    On a CPU our kernel draws them, at a fraction of the time that ``bernoulli_`` takes.
    """
    if weight.device.type != "cpu" or weight.numel() == 0:
        return torch.rand((copies, *weight.shape), device=weight.device) < keep
    transformed = torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()
    drawn: Tensor = _masks(weight, copies, keep, draw_seed(weight.device) if transformed else None)
    return drawn


@torch.library.custom_op("evodrop::draw_masks", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _masks(weight: Tensor, copies: int, keep: float, seed: Tensor | None) -> Tensor:
    """By the seed that is given, one for each example of vmap or one for all, or by a seed of its own."""
    bits = int(draw_seed(weight.device) if seed is None else seed) % 2**64
    threads = useful_threads(torch.get_num_threads(), copies * weight.numel())
    drawn = draw_mask(np.full(weight.numel(), keep), copies, bits, threads)
    return torch.from_numpy(drawn).view(torch.bool).reshape(copies, *weight.shape)


@_masks.register_fake
def _(weight: Tensor, copies: int, keep: float, seed: Tensor | None) -> Tensor:  # noqa: ARG001
    return weight.new_empty((copies, *weight.shape), dtype=torch.bool)


@_masks.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], weight: Tensor, copies: int, keep: float, seed: Tensor | None
) -> tuple[Tensor, int]:
    weights, seeds = (unmapped(one, dim, info.batch_size) for one, dim in ((weight, in_dims[0]), (seed, in_dims[3])))
    each = zip(weights, seeds, strict=True)
    return torch.stack([_masks(one, copies, keep, its_seed) for one, its_seed in each]), 0


def masked_linear(input: Tensor, weight: Tensor, masks: Tensor) -> Tensor:
    """(n, positions, out_features): a linear layer with a mask over its weights for every example.

    A byte of each of the (n, out_features, in_features) masks is kept, and no product with the weight.
    """
    if takes_torch_alone():
        return torch.bmm(input, (weight * masks).mT)
    output: Tensor = _MaskedLinear.apply(input, weight, masks)  # type: ignore[no-untyped-call]
    return output


class _MaskedLinear(torch.autograd.Function):
    """In blocks of examples and outputs: the masked weights of all would fit into no cache, nor perhaps into memory.

    Gradients are added up in float32 or wider, as in a product of whole matrices. The backward pass is made of torch's
    own operations on what was given, so it can be differentiated again.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, masks: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight, masks)
        output = input.new_empty((*input.shape[:2], len(weight)))
        for some, outputs in _blocks(masks):
            output[some, :, outputs] = torch.bmm(input[some], (weight[outputs] * masks[some, outputs]).mT)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, masks = ctx.saved_tensors
        to_input, to_weight = (torch.zeros_like(one, dtype=wide_dtype(one.dtype)) for one in (x, weight))
        for some, outputs in _blocks(masks):
            coming, mask = grad[some, :, outputs], masks[some, outputs]
            to_input[some] += torch.bmm(coming, weight[outputs] * mask)
            to_weight[outputs] += (torch.bmm(coming.mT, x[some]) * mask).sum(0)
        return to_input.to(x.dtype), to_weight.to(weight.dtype), None


def _blocks(masks: Tensor) -> Iterator[tuple[slice, slice]]:
    """Many examples with all outputs where a mask is small, else an example with some of the outputs."""
    n, outputs, inputs = masks.shape
    across = max(1, min(outputs, BLOCK // max(1, inputs)))
    many = max(1, BLOCK // max(1, across * inputs))
    for start in range(0, n, many):
        for first in range(0, outputs, across):
            yield slice(start, start + many), slice(first, first + across)
