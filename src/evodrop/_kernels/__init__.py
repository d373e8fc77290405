"""All that numba compiles, and nothing else: one stamp of this folder says whether the machine code on disk is fresh.

===============  ==========================================================================
``compile``      how this package compiles, and the instructions that numba has no name for
``rows``         random words, alias tables, masks, and rows times noise
``threads``      several threads on the rows of one call
``poisson``      Poisson counts by table
``sparse_rows``  the noise of the non-zeros of a row
``epoch``        one epoch of SGD over sparse rows
===============  ==========================================================================
"""
