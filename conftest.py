"""What must be so before pytest imports anything: on a machine without a GPU, Triton interprets its kernels."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

if not Path("/dev/nvidiactl").exists() and not Path("/dev/kfd").exists():  # the drivers of NVIDIA and of AMD
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The doctests import every file, and this one imports Triton.
collect_ignore = [] if find_spec("triton") else ["src/evodrop/nn/tiles.py"]
