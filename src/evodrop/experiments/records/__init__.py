"""A run, and all that is kept of it.

===============  ========================================================
``runs``         one training run as frozen data, with a stable name
``record``       what is known of it: after an iteration, and in the end
``folder``       its folder: records that survive being killed
``checkpoints``  its state on disk, checked before it is trusted
``environment``  where it was made
``curves``       its records as arrays, checked
===============  ========================================================
"""

from __future__ import annotations

from evodrop.experiments.records.folder import (
    RecordsError,
    RunFolder,
    read_records,
    read_timings,
    seconds_per_iteration,
    was_left,
)

__all__ = ["RecordsError", "RunFolder", "read_records", "read_timings", "seconds_per_iteration", "was_left"]
