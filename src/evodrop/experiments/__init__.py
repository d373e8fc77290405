"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

=================  ==========================================================================================
``datasets``       files become arrays: :class:`~evodrop.experiments.datasets.Images` and ``Documents``
``networks``       the paper's networks by their names, the dropout layer an argument
``methods``        the name of a method becomes a dropout layer
``records``        a run as frozen data, and its folder: records that survive being killed
``training``       one loop for all: a stream of records, of a network or of a linear model
``figures``        the panels of the paper as data, who contends in them, and what to run
``claims``         what the paper says of its results, as data, and what the records say to it
``theory_figure``  the noises of a report of the theory, drawn
``plotting``       figures in the form of the paper's
``report``         what was found: on a page, on the terminal, in event files
``running``        many runs side by side, live: ``evodrop compare`` and ``evodrop reproduce``
=================  ==========================================================================================

Each room is built on those above it only. Nothing is imported here: enter a room by its name.
"""
