"""One loop for all: a stream of records, the same however often it was interrupted.

===============  =================================================================
``keeping``      a run from its beginning, or from where it was killed, to its end
``loop``         a network in training, from record to record
``shallow``      the same for a linear model on text
``pixels``       images become what a network eats
``batches``      which examples make up which batch
``observation``  what a dropout layer saw, without disturbing it
``evaluation``   the error without noise
===============  =================================================================
"""

from __future__ import annotations

from evodrop.experiments.training.keeping import Trainable, finished_records, keep_records, train

__all__ = ["Trainable", "finished_records", "keep_records", "train"]
