"""evodrop for PyTorch: replace ``nn.Dropout(0.5)`` by ``evodrop.nn.EvolutionalDropout(0.5)``.

==============  ============================================================================
``functional``  the dropouts as functions
``modules``     the dropouts as layers
``evolving``    those of them that follow the batch, also one that is spread over processes
``convert``     :func:`convert_dropout` swaps the dropouts of a model, :func:`convert_sync`
                joins them over processes
``zoo``         every dropout that the paper cites, and the table of their names
``sync``        second moments of a batch that is spread over processes
``recall``      what activation checkpointing finds again
``lightning``   the same conversion as a plugin of Lightning
``layers``      :class:`LocallyConnected2d`, a convolution that does not share its weights
``local``       the products of that layer, as torch operators
``noise``       multiply by noise, and the gradient by the same noise
``operator``    the noise as a torch operator, for compilers and transforms
``draw``        one seed a call, and the path that fits the device
``law``         from second moments to the chances of each unit
``layout``      which dimensions are examples, and which are units
``cpu``         the path of numba kernels
``device``      the path of plain torch operations
``alias``       the alias table of that path
``neighbours``  the weighted layers before and after a dropout
``kinds``       kinds of layers
``statistics``  probabilities of a whole data set
==============  ============================================================================
"""

try:
    import torch as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("evodrop.nn needs PyTorch: pip install 'evodrop[torch]'", name="torch") from error

from evodrop.nn import functional, zoo
from evodrop.nn.convert import convert_dropout, convert_sync
from evodrop.nn.draw import use_backend
from evodrop.nn.evolving import EvolutionalDropout, EvolutionalDropout1d, EvolutionalDropout2d
from evodrop.nn.layers import LocallyConnected2d
from evodrop.nn.modules import BernoulliDropout, DataDependentDropout, MultinomialDropout

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "LocallyConnected2d",
    "MultinomialDropout",
    "convert_dropout",
    "convert_sync",
    "functional",
    "use_backend",
    "zoo",
]
