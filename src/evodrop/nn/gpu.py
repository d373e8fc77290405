"""The path of Triton kernels, for GPUs: the noise of :mod:`evodrop.nn.device`, bit for bit, in one kernel.

The law and the alias table are the torch operations of the plain path. What took an array of n x k words, another of
units and one of counts is one kernel that leaves the counts and the product and no more. Where Triton is not
installed, fails or gives another result than the plain path, that path is taken.

Not yet run on a GPU: the kernels were tested in Triton's interpreter. So on each device, before their first use, they
make a small draw that the plain path makes too, and are used only if both are equal.
"""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from evodrop.nn import device as plain
from evodrop.nn.alias import build_table, table_bits
from evodrop.nn.device import sum_squares
from evodrop.nn.law import Chances, Law

__all__ = ["drop", "multiply", "obstacle", "sum_squares"]

BINS = 1024  # rows x units of a tile
DRAWS = 512  # rows x draws at a time
MOST_TILES = 8  # of a row: beyond, drawing again should cost more than the memory of the plain path; an estimate
LEAST_CAPABILITY = (8, 0)  # the first with bfloat16


def drop(rows: Tensor, law: Law, given: Tensor | None, seed: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts (n, d) and scale (d,) of the noise for ``rows``; the product goes to ``output``, if there is one."""
    found = plain.find(rows, law, given)
    scale = plain.scale_for(rows, found)
    if found.k is not None and len(scale) <= MOST_TILES * BINS:
        return _drop_by_tiles(rows, found, scale, seed, output), scale
    counts = plain.draw_noise(found, len(rows), seed)
    if output is not None:
        multiply(rows, counts, scale, output)
    return counts, scale


def multiply(rows: Tensor, counts: Tensor, scale: Tensor, output: Tensor) -> None:
    """output = rows * (counts * scale), in one pass."""
    _launch("multiply_tile", counts, rows, counts.contiguous(), scale.contiguous(), output)


@cache
def obstacle(device: torch.device) -> str | None:
    """Why the kernels are not for the device; None if they are."""
    try:
        kernels = _kernels()
    except ImportError as error:
        return f"it needs Triton: {error}"
    if device.type == "cpu":
        return None if kernels.INTERPRETED else "it takes CPU tensors only in Triton's interpreter, TRITON_INTERPRET=1"
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"it takes tensors on a CUDA device, not on {device}"
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        return f"{device} has compute capability {capability}, but it needs {LEAST_CAPABILITY}"
    if problem := _problem(device):
        warnings.warn(f"evodrop: the Triton kernels are not used on {device}, {problem}", stacklevel=2)
    return problem


def _problem(device: torch.device) -> str | None:
    """What goes wrong in a draw of two tiles to a row; None if it equals that of the plain path."""
    rows = torch.linspace(-1.0, 2.0, 5 * (BINS + 500), device=device).view(5, -1)
    law, seed = Law("batch", 0.5), torch.full((), 2016, device=device)
    ours, theirs = torch.empty_like(rows), torch.empty_like(rows)
    try:
        drawn = (*drop(rows, law, None, seed, ours), ours)
        same = all(map(torch.equal, drawn, (*plain.drop(rows, law, None, seed, theirs), theirs)))
    except Exception as error:  # a compiler that is missing, a driver that is too old: Triton raises what it likes
        return f"they fail there: {type(error).__name__}: {error}"
    return None if same else "they give other noise than the plain path there"


def _drop_by_tiles(rows: Tensor, found: Chances, scale: Tensor, seed: Tensor, output: Tensor | None) -> Tensor:
    d, device = len(scale), rows.device
    counts = torch.empty((len(rows), d), dtype=plain.count_type(found.most), device=device)
    k = found.k if isinstance(found.k, Tensor) else torch.full((), found.most, device=device)
    arrays = (build_table(found.chances), seed, k, found.passes.view(torch.uint8), scale, rows, counts)
    draws = {"BITS": table_bits(d), "DRAWS": max(1, DRAWS // _tile(d)[0]), "MULTIPLY": output is not None}
    _launch("draw_tile", counts, *arrays, rows if output is None else output, **draws)
    return counts


def _launch(name: str, counts: Tensor, *arrays: Tensor, **constants: int) -> None:
    """A program for every tile of the counts."""
    (size, d), (height, width) = counts.shape, _tile(counts.shape[1])
    programs = -(-size // height) * -(-d // width)
    kernel = getattr(_kernels(), name)
    with torch.cuda.device_of(counts):  # type: ignore[no-untyped-call]  # Triton asks torch for the current device
        kernel[(programs,)](*arrays, size, d, ROWS=height, UNITS=width, **constants)


def _tile(d: int) -> tuple[int, int]:
    """Rows and units of a tile: the units of a row if they fit, then as many rows as fit."""
    width = min(1 << table_bits(d), BINS)
    return BINS // width, width


@cache
def _kernels() -> ModuleType:
    from evodrop.nn import tiles  # brings Triton, which takes a second and may not be there

    return tiles
