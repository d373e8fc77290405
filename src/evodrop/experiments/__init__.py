"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

============  ==========================================================================================
``datasets``  files become arrays: :class:`~evodrop.experiments.datasets.Images` and ``Documents``
``networks``  the paper's networks by their names, the dropout layer an argument
``methods``   the name of a method becomes a dropout layer
``records``   a run as frozen data, and its folder: records that survive being killed
``training``  one loop for all: a stream of records, of a network or of a linear model
``figures``   the panels of the paper as data, who contends in them, and what to run
``claims``    what the paper says of its results, as data, and what the records say to it
``drawing``   the plots: numbers once, drawn by plotly for the page and by matplotlib for the figure
``tables``    what was found, in sentences and tables: on the terminal, and for the page
``page``      the report, of ``templates``; event files
``reopening`` figure, verdicts and report from the records alone, at any time
``running``   many runs side by side, live: ``evodrop compare`` and ``evodrop reproduce``
============  ==========================================================================================

Each room is built on those above it only. Nothing is imported here: enter a room by its name.
"""
