"""The zoo: every dropout that the paper cites, under one interface.

================  =====================================================================================
``adaptive``      :class:`AdaptiveRateDropout`, whose rate is inferred from the data
``weight_aware``  :class:`WeightAwareDropout`, evolutional dropout that knows the next layer's weights
``outgoing``      how strongly each unit acts on the next weighted layer
``registry``      the table of names: every dropout, here and in :mod:`evodrop.linear`
``protocol``      what they share: a row of the table, a place in a model, perhaps a penalty
================  =====================================================================================
"""

from evodrop.nn.zoo.adaptive import AdaptiveRateDropout
from evodrop.nn.zoo.protocol import About, Place, ZooDropout, penalties
from evodrop.nn.zoo.registry import LINEAR, ZOO, WaterFillingDropout, about, rooms
from evodrop.nn.zoo.weight_aware import WeightAwareDropout

__all__ = [
    "LINEAR",
    "ZOO",
    "About",
    "AdaptiveRateDropout",
    "Place",
    "WaterFillingDropout",
    "WeightAwareDropout",
    "ZooDropout",
    "about",
    "penalties",
    "rooms",
]
