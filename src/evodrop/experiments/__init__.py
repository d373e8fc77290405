"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

=================  ===================================================================================================
``datasets``       files become arrays: :class:`~evodrop.experiments.datasets.Images` and ``Documents``
``networks``       networks by their names: how to build, feed, initialise and describe them
``architectures``  the paper's networks, the dropout layer an argument
``response_norm``  local response normalisation, fast on a CPU
``methods``        the name of a method becomes a dropout layer
``batchnorm``      batch normalisation that finds its own size
``runs``           one training run as frozen data, with a stable name
``pixels``         images become what a network eats
``batches``        which examples make up which batch
``training``       one loop for all: a stream of records
``shallow``        the same for linear models on text
``observation``    what a dropout layer saw, without disturbing it
``records``        a run's folder: records that survive being killed
``checkpoints``    a run's state on disk, checked before it is trusted
``locking``        one writer a folder
``environment``    where a run was made
``laboratory``     many runs side by side
``live``           how they come along: a table that moves
``curves``         the records of a run as arrays, checked
``contenders``     which runs belong together, and which step size counts
``figures``        the panels of the paper as data
``plans``          what to run for a panel
``intervals``      a mean over the seeds, and what it is worth
``summaries``      how good, how soon and at what price: the rows of the table
``claims``         what the paper says of its results, as data
``verdicts``       does a claim hold?
``outcomes``       all of that for the runs on one data set
``experiment``     a plan carried out in a folder, from the choice of step sizes to the report
``comparison``     ``evodrop compare``; ``rates`` tunes the rate of each method
``reproduction``   ``evodrop reproduce``; ``estimates`` tells how long it would take
``tables``         what was found, on the terminal; ``cells`` puts its numbers into words
``plotting``       figures in the form of the paper's
``report``         one page for a set of runs; ``report_plots``, ``report_sections`` and ``markup`` are its parts
``tensorboard``    curves as event files
=================  ===================================================================================================

Nothing is imported here: enter a room by its name.
"""
