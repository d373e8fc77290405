"""Tables of numbers, for docs/theory.md and docs/scaling.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "table"]

Floats: TypeAlias = npt.NDArray[np.float64]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table: the first column to the left, the others, which are numbers, to the right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
