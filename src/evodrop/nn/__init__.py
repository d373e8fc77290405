"""evodrop for PyTorch: replace ``nn.Dropout(0.5)`` by ``evodrop.nn.EvolutionalDropout(0.5)``.

==============  ====================================================================
``functional``  the dropouts as functions
``modules``     the dropouts as layers
``convert``     :func:`convert_dropout`: swap the dropouts of a model
``noise``       one seed a call, the path that fits the device, and the gradient
``law``         from second moments to the chances of each unit
``layout``      which dimensions are examples, which are units
``cpu``         the numba path                       ``device``  the plain torch path
``statistics``  probabilities of a whole data set
==============  ====================================================================
"""

from evodrop.nn import functional
from evodrop.nn.convert import convert_dropout
from evodrop.nn.modules import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    MultinomialDropout,
)
from evodrop.nn.noise import use_backend

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "MultinomialDropout",
    "convert_dropout",
    "functional",
    "use_backend",
]
