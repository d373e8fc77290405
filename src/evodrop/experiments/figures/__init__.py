"""The paper's figures as data: what is compared, and what has to be run for it.

==============  ====================================================================
``panels``      the panels: on which data, by which protocol
``contenders``  which runs belong together, which step size counts, what to call them
``plans``       what to run for a panel, in two stages
==============  ====================================================================
"""

from __future__ import annotations

from evodrop.experiments.figures.panels import (
    CHOICES,
    DEEP_GRID,
    LINEAR_GRID,
    PANELS,
    Panel,
    find_panel,
    shortened,
    split_sizes,
)

__all__ = ["CHOICES", "DEEP_GRID", "LINEAR_GRID", "PANELS", "Panel", "find_panel", "shortened", "split_sizes"]
