"""Monte Carlo dropout: the spread of predictions with dropout on, as an estimate of uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evodrop._checks import checked_integer
from evodrop.nn._trace import DROPOUTS, kept_generators, split_inputs
from evodrop.nn.layers import Evolving
from evodrop.nn.zoo import WeightAwareConv2d, WeightAwareLinear

__all__ = ["Predictions", "mc_dropout", "mc_predict"]


class Predictions(NamedTuple):
    """What :func:`mc_predict` gives.

    Attributes:
        mean: (N, ...), over the samples.
        std: (N, ...), their standard deviation (n - 1 in the denominator); nan for a single sample.
        samples: (samples, N, ...).
    """

    mean: Tensor
    std: Tensor
    samples: Tensor


@contextmanager
def mc_dropout(model: nn.Module) -> Iterator[None]:
    """Within a ``with`` block the dropouts of ``model`` are on, and all else is in eval mode: batch norm too.

    It turns on dropout layers of torch, of evodrop and its zoo, and the dropout inside ``nn.LSTM``, ``nn.GRU``,
    ``nn.RNN`` and ``nn.MultiheadAttention``. Layers that remember running moments (``momentum``) follow them, and the
    data do not move them. Afterwards every module has the mode that it had, also after an error. What is no layer,
    such as ``F.dropout(x, training=self.training)``, stays off; :func:`describe_dropout` lists it.

    Args:
        model: a module that has a dropout.

    Examples:
        >>> model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
        >>> with mc_dropout(model):
        ...     [module.training for module in model]
        [False, True]
        >>> model[1].training
        False
    """
    if not any(map(_has_dropout, model.modules())):
        raise ValueError(
            "the model has no dropout layer, so that all samples would be equal; describe_dropout(model, inputs) lists "
            "dropout that is no layer"
        )
    before = [(module, module.training, getattr(module, "frozen", False)) for module in model.modules()]
    try:
        for module, *_ in before:
            # In eval mode a transformer's layer is one fused kernel, without its dropouts.
            module.training = _has_dropout(module) or isinstance(module, nn.TransformerEncoderLayer)
            if isinstance(module, Evolving):
                module.frozen = True
        yield
    finally:
        for module, was_training, was_frozen in before:
            module.training = was_training
            if isinstance(module, Evolving):
                module.frozen = was_frozen


@torch.no_grad()
def mc_predict(
    model: nn.Module,
    inputs: Any,
    samples: int = 30,
    seed: int = 0,
    batch_size: int | None = None,
    consistent: bool = False,
    progress: bool = True,
) -> Predictions:
    """Predict with dropout on, several times, and give mean and standard deviation (Gal and Ghahramani 2016).

    Every row has masks of its own. The seed fixes everything for a given ``batch_size``, and torch's generators are
    left as they were. With ``consistent=True`` a sample is one function: all rows of it have the same masks, in
    whatever batch they are, as batch active learning needs it. Rows then pass one by one, each from the
    same state of the generators, which takes a pass per row and sample; every dropout can, except those that follow
    the batch without running moments.

    Args:
        model: a module that has a dropout and returns a tensor (N, ...). Its mode does not matter, and stays.
        inputs: a tensor, a tuple of tensors (arguments) or a dict of tensors (keyword arguments), of N rows each.
        samples: how many predictions of each row.
        seed: of the masks.
        batch_size: rows to predict at a time. Default: all. A layer that follows the batch, without running moments,
            gives an example another uncertainty in another batch.
        consistent: one mask per sample for all rows.
        progress: show a bar on the terminal.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1))
        >>> predictions = mc_predict(model, torch.randn(10, 4), samples=5, progress=False)
        >>> predictions.mean.shape, predictions.std.shape, predictions.samples.shape
        (torch.Size([10, 1]), torch.Size([10, 1]), torch.Size([5, 10, 1]))
    """
    from rich.console import Console
    from rich.progress import track

    checked_integer(samples, "samples", "the number of predictions of each row")
    checked_integer(seed, "seed", "the seed of the masks", least=0)
    args, kwargs = split_inputs(inputs)
    for value in (*args, *kwargs.values()):
        if not isinstance(value, Tensor) or value.ndim == 0:
            raise TypeError(
                f"inputs hold {value!r:.100}, but they are a tensor, or a tuple or dict of tensors, by rows"
            )
    sizes = {len(tensor) for tensor in (*args, *kwargs.values())}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"inputs have {sorted(sizes)} rows, but all take the same number, at least one")
    rows = sizes.pop()
    size = rows if batch_size is None else checked_integer(batch_size, "batch_size", "the number of rows at a time")
    if consistent:
        _check_consistent(model)
        size = 1
    drawn = []
    with mc_dropout(model), kept_generators(model) as generators:
        for generator in generators:
            generator.manual_seed(seed)
        bar = Console(stderr=True)
        for _ in track(range(samples), "samples", console=bar, transient=True, disable=not progress):
            starts = [generator.get_state() for generator in generators]
            parts = []
            for first in range(0, rows, size):
                if consistent:
                    for generator, state in zip(generators, starts, strict=True):
                        generator.set_state(state)
                some = slice(first, first + size)
                part = model(*(one[some] for one in args), **{name: one[some] for name, one in kwargs.items()})
                if not isinstance(part, Tensor):
                    raise TypeError(
                        f"the model gives a {type(part).__name__}, but mc_predict takes one that gives a tensor; wrap "
                        "it in a module whose forward returns the tensor that is meant"
                    )
                parts.append(part)
            drawn.append(torch.cat(parts))
    stacked = torch.stack(drawn)
    mean = stacked.mean(0)
    return Predictions(mean, stacked.std(0) if samples > 1 else torch.full_like(mean, torch.nan), stacked)


def _has_dropout(module: nn.Module) -> bool:
    own = isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0
    return own or isinstance(module, DROPOUTS)


def _check_consistent(model: nn.Module) -> None:
    for name, layer in model.named_modules():
        follows = isinstance(layer, Evolving) and (layer.momentum is None or layer.running_sums is None)
        matched = getattr(layer, "match", "draws") == "noise" and not isinstance(layer, Evolving)
        if follows or matched or isinstance(layer, (WeightAwareLinear, WeightAwareConv2d)):
            raise ValueError(
                f"consistent is True, but layer {name!r}, {layer}, follows the batch, so no mask is right for all "
                "rows. Where the layer has a momentum, set it, as in layer.momentum = 0.1, and call the model on "
                "training data in training mode: then the layer follows its running moments"
            )
