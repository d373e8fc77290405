"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

=================  ====================================================================================
``networks``       networks by their names: how to build, feed, initialise and describe them
``architectures``  the paper's networks, the dropout layer an argument
``response_norm``  local response normalisation, fast on a CPU
=================  ====================================================================================

Nothing is imported here: enter a room by its name.
"""
