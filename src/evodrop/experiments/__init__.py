"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

================  ====================================================================================
``datasets``      files become arrays: :class:`~evodrop.experiments.datasets.Images` and ``Documents``
``networks``      the paper's networks, the dropout layer an argument
``methods``       the name of a method becomes a dropout layer
``batchnorm``     batch normalisation that finds its own size
``runs``          one training run as frozen data, with a stable name
``pixels``        images become what a network eats
``batches``       which examples make up which batch
``training``      one loop for all: a stream of records
``observation``   what a dropout layer saw, without disturbing it
``records``       a run's folder: records that survive being killed
``checkpoints``   a run's state on disk, checked before it is trusted
``locking``       one writer a folder
``durable``       files that are whole or not there
``environment``   where a run was made
================  ====================================================================================

Nothing is imported here: enter a room by its name.
"""
