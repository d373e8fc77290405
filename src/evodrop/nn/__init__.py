"""evodrop for PyTorch: replace ``nn.Dropout(0.5)`` by ``evodrop.nn.EvolutionalDropout(0.5)``.

=====================  ==========================================================================
``functional``         the dropouts as functions
``layers``             the dropouts as layers
``convert``            :func:`convert_dropout` swaps the dropouts of a model,
                       :func:`convert_sync_dropout` makes them follow the batch of all processes;
                       :class:`functional_dropout` reaches calls of ``F.dropout``
``zoo``                every dropout that the paper cites, and the table of their names
``describe``           :func:`describe_dropout` lists every dropout that acts in a model
``uncertainty``        :func:`mc_dropout` and :func:`mc_predict`: Monte Carlo dropout
``schedules``          :func:`set_rate` and :class:`RateSchedule`: rates that change in training
``distributed``        second moments of a batch that is spread over processes
``locally_connected``  :class:`LocallyConnected2d`, a convolution that does not share its weights
=====================  ==========================================================================
"""

try:
    import torch as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("evodrop.nn needs PyTorch: pip install 'evodrop[torch]'", name="torch") from error

from evodrop.nn import functional, zoo
from evodrop.nn._noise import use_backend
from evodrop.nn._routed import functional_dropout
from evodrop.nn.convert import convert_dropout, convert_sync_dropout
from evodrop.nn.describe import describe_dropout
from evodrop.nn.layers import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    EvolutionalDropout3d,
    MultinomialDropout,
    WaterFillingDropout,
)
from evodrop.nn.locally_connected import LocallyConnected2d
from evodrop.nn.schedules import RateSchedule, set_rate
from evodrop.nn.uncertainty import mc_dropout, mc_predict

__all__ = [
    "BernoulliDropout",
    "DataDependentDropout",
    "EvolutionalDropout",
    "EvolutionalDropout1d",
    "EvolutionalDropout2d",
    "EvolutionalDropout3d",
    "LocallyConnected2d",
    "MultinomialDropout",
    "RateSchedule",
    "WaterFillingDropout",
    "convert_dropout",
    "convert_sync_dropout",
    "describe_dropout",
    "functional",
    "functional_dropout",
    "mc_dropout",
    "mc_predict",
    "set_rate",
    "use_backend",
    "zoo",
]
