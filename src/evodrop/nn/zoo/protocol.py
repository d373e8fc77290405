"""What every dropout of the zoo has in common: a line about itself, a place in a model, perhaps a penalty."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getattr_static
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from evodrop._checks import checked_rate

__all__ = ["About", "Penalised", "Place", "ZooDropout", "penalties"]


@dataclass(frozen=True, kw_only=True)
class About:
    """A row of the table of dropouts, in plain words.

    Attributes:
        name: as in ``convert_dropout(model, to=name)``.
        year, source: when and by whom.
        noise: its law, with mean and variance.
        learns: what is learned beside the weights.
        cost: time and memory beside standard dropout.
        regularizer: what it adds to the loss, in expectation or as a penalty.
        use: when to take it.
    """

    name: str
    year: int
    source: str
    noise: str
    learns: str
    cost: str
    regularizer: str
    use: str


class Place(NamedTuple):
    """A dropout layer of a model with its neighbours: the weighted layers before and after it, where there are any.

    Attributes:
        before, dropout, after: the three layers.
        between: what stands between the dropout and the layer after it: activations, pooling.
        since: what stands between the layer before and the dropout.
    """

    before: nn.Module | None
    dropout: nn.Module
    after: nn.Module | None
    between: tuple[nn.Module, ...] = ()
    since: tuple[nn.Module, ...] = ()

    @property
    def p(self) -> float:
        """The rate of the dropout."""
        return float(self.dropout.p)  # type: ignore[arg-type]


@runtime_checkable
class Penalised(Protocol):
    """A layer with a term for the loss."""

    def penalty(self) -> Tensor:
        """The term in nats for the whole training set; divide by its number of examples beside a mean loss."""


class ZooDropout(_DropoutNd):
    """A dropout that stands in the place of ``nn.Dropout``: noise on units.

    In eval mode it is the identity, unless its class says otherwise.

    Attributes:
        about: the row of the table.
        needs: which neighbours :meth:`fit_in` must be given, of ``"before"`` and ``"after"``.
        likes: which neighbours it makes use of, if they are known.
    """

    about: ClassVar[About]
    needs: ClassVar[frozenset[str]] = frozenset()
    likes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(checked_rate(p))

    @classmethod
    def fit_in(cls, place: Place, **options: object) -> Place:
        """The same place with this dropout in it; a class that works on weights replaces the neighbours too."""
        return place._replace(dropout=cls(place.p, **options))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def penalties(model: nn.Module) -> Tensor:
    """The sum of the penalties of all layers, 0 if none has any; divide it by the number of training examples.

    Examples:
        >>> penalties(nn.Linear(2, 2))
        tensor(0.)
    """
    # Not by getattr: what wraps a layer, as torch.compile does, answers in its name, and it would count twice.
    layers = [layer for layer in model.modules() if callable(getattr_static(layer, "penalty", None))]
    terms = [layer.penalty() for layer in layers if isinstance(layer, Penalised)]
    if not terms:
        return torch.zeros(())
    where = max(terms, key=lambda term: term.requires_grad).device  # a layer that learns nothing may not know
    return torch.stack([term.to(where) for term in terms]).sum()
