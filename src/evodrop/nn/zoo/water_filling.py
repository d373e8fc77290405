"""Water-filling dropout: independent masks that keep strong units more often."""

from __future__ import annotations

from typing import Any

from evodrop.nn.evolving import EvolutionalDropout

__all__ = ["WaterFillingDropout"]


class WaterFillingDropout(EvolutionalDropout):
    """:class:`~evodrop.nn.EvolutionalDropout` with ``scheme="bernoulli"``: units are dropped one by one, strong ones
    less often.

    By the paper's own criterion, E||x * noise||^2, this is never louder than multinomial noise with as many draws;
    :func:`evodrop.definitions.keep_probabilities` has the formula.

    Args:
        p, options: as in :class:`~evodrop.nn.EvolutionalDropout`.
        scheme: ``"bernoulli"``, which makes it water-filling.

    Shape:
        Any shape; the output has the shape, dtype and memory format of the input.

    Examples:
        >>> WaterFillingDropout(0.3)
        WaterFillingDropout(p=0.3, scheme='bernoulli')
    """

    def __init__(self, p: float = 0.5, *, scheme: str = "bernoulli", **options: Any) -> None:
        super().__init__(p, scheme=scheme, **options)
