"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

============  =================================================================================================
``datasets``  files become arrays: :class:`~evodrop.lab.datasets.Images` and ``Documents``
``networks``  the paper's networks by their names, the dropout layer an argument
``methods``   the name of a method becomes a dropout layer
``run``       a run as frozen data, its records and its result
``training``  a stream of records, of a network or of a linear model
``store``     the folder of a run: its records survive being killed; ``environment`` says where they were made
``curves``    the records of a run as arrays, checked
``runner``    many runs side by side; ``live`` shows their progress
``figures``   the panels of the paper as data, who contends in them, and what to run
``claims``    what the paper says of its results, as data, and what the records say to it
``plotting``  figures in the form of the paper's
``report``    what was found: on a page, on the terminal, in event files
``running``   ``evodrop compare`` and ``evodrop reproduce``
============  ==========================================================================================
Each room is built on those above it only. Nothing is imported here: enter a room by its name.
"""
