"""The zoo: every dropout that the paper cites, under one interface.

=======================  ==========================================================================================
``registry``             the table of names: every dropout, here and in :mod:`evodrop.linear`
``protocol``             what they share: a row of the table, a place in a model, perhaps a penalty
``gaussian``             ``GaussianDropout``: units times N(1, p / (1 - p))
``variational``          ``VariationalDropout``: units times N(1, alpha), alpha learned
``variational_weights``  ``VariationalLinear``, ``VariationalConv2d``: noise on weights, alpha learned
``fast``                 ``FastDropoutLinear``: pre-activations as Gaussians, drawn or passed on through ReLU
``dropconnect``          ``DropConnectLinear``, ``DropConnectConv2d``: every weight dropped by itself
``batchwise``            ``BatchwiseDropout``: one mask per batch; linear layers beside it skip what is dropped
``standout``             ``Standout``: keep probabilities that grow with the pre-activations
``adaptive``             ``AdaptiveRateDropout``: the rate is inferred from the data
``weight_aware``         ``WeightAwareDropout``: evolutional dropout that knows the next layer's weights
=======================  ==========================================================================================

``adopt``, ``alpha``, ``masks``, ``moments``, ``outgoing`` and ``submatrix`` serve these: taking over a layer's
parameters, the variance that is learned, masks over weights, Gaussians in the place of sums, how strongly a unit acts
on the next layer, and products without the dropped units.
"""

from evodrop.nn.layers import WaterFillingDropout
from evodrop.nn.zoo.adaptive import AdaptiveRateDropout
from evodrop.nn.zoo.batchwise import BatchwiseDropout, BatchwiseLinear
from evodrop.nn.zoo.dropconnect import DropConnectConv2d, DropConnectLinear
from evodrop.nn.zoo.fast import FastDropoutLinear, FastDropoutReLU
from evodrop.nn.zoo.gaussian import GaussianDropout
from evodrop.nn.zoo.moments import Moments, moments_of_relu
from evodrop.nn.zoo.protocol import About, Place, ZooDropout, penalties
from evodrop.nn.zoo.registry import LINEAR, ZOO, about, rooms
from evodrop.nn.zoo.standout import Standout
from evodrop.nn.zoo.variational import VariationalDropout
from evodrop.nn.zoo.variational_weights import VariationalConv2d, VariationalLinear
from evodrop.nn.zoo.weight_aware import WeightAwareDropout

__all__ = [
    "LINEAR",
    "ZOO",
    "About",
    "AdaptiveRateDropout",
    "BatchwiseDropout",
    "BatchwiseLinear",
    "DropConnectConv2d",
    "DropConnectLinear",
    "FastDropoutLinear",
    "FastDropoutReLU",
    "GaussianDropout",
    "Moments",
    "Place",
    "Standout",
    "VariationalConv2d",
    "VariationalDropout",
    "VariationalLinear",
    "WaterFillingDropout",
    "WeightAwareDropout",
    "ZooDropout",
    "about",
    "moments_of_relu",
    "penalties",
    "rooms",
]
