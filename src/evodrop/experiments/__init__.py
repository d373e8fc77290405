"""The laboratory: train the same network with each dropout, on real data, and keep what was measured (extra ``lab``).

================  =============================================================================
Nothing is imported here: enter a room by its name.
"""
