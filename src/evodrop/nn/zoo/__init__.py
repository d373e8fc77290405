"""The zoo: every dropout that the paper cites, under one interface.

=======================  ==========================================================================================
``protocol``             what they share: a row of the table, a place in a model, perhaps a penalty
``gaussian``             ``GaussianDropout``: units times N(1, p / (1 - p))
``variational``          ``VariationalDropout``: units times N(1, alpha), alpha learned
``variational_weights``  ``VariationalLinear``, ``VariationalConv2d``: noise on weights, alpha learned
``fast``                 ``FastDropoutLinear``: pre-activations as Gaussians, drawn or passed on through ReLU
=======================  ==========================================================================================

``adopt``, ``alpha`` and ``moments`` serve these: taking over a layer's parameters, the variance that is learned, and
Gaussians in the place of sums.
"""

from evodrop.nn.zoo.fast import FastDropoutLinear, FastDropoutReLU
from evodrop.nn.zoo.gaussian import GaussianDropout
from evodrop.nn.zoo.moments import Moments, moments_of_relu
from evodrop.nn.zoo.protocol import About, Place, ZooDropout, penalties
from evodrop.nn.zoo.variational import VariationalDropout
from evodrop.nn.zoo.variational_weights import VariationalConv2d, VariationalLinear

__all__ = [
    "About",
    "FastDropoutLinear",
    "FastDropoutReLU",
    "GaussianDropout",
    "Moments",
    "Place",
    "VariationalConv2d",
    "VariationalDropout",
    "VariationalLinear",
    "ZooDropout",
    "moments_of_relu",
    "penalties",
]
