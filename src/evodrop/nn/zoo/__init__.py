"""The zoo: every dropout that the paper cites, under one interface.

=============  ====================================================================================
``protocol``   what they share: a row of the table, a place in a model, perhaps a penalty
=============  ====================================================================================
"""

from evodrop.nn.zoo.protocol import About, Place, ZooDropout, penalties

__all__ = ["About", "Place", "ZooDropout", "penalties"]
