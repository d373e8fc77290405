"""The zoo: every dropout that the paper cites, under one interface. ``convert_dropout`` takes a name of :data:`ZOO`.

Layers that learn their noise have a ``penalty()``; :func:`penalties` sums those of a model. ``docs/zoo.md`` compares
the laws, the needs and the costs of all of them.
"""

from torch import nn

from evodrop.nn.layers import DataDependentDropout, EvolutionalDropout, MultinomialDropout, WaterFillingDropout
from evodrop.nn.zoo._base import penalties
from evodrop.nn.zoo.adaptive import AdaptiveRateDropout
from evodrop.nn.zoo.batchwise import BatchwiseDropout, BatchwiseLinear
from evodrop.nn.zoo.dropconnect import DropConnectConv2d, DropConnectLinear
from evodrop.nn.zoo.fast import FastDropoutLinear, FastDropoutReLU
from evodrop.nn.zoo.gaussian import GaussianDropout
from evodrop.nn.zoo.standout import Standout
from evodrop.nn.zoo.variational import VariationalConv2d, VariationalDropout, VariationalLinear
from evodrop.nn.zoo.weight_aware import WeightAwareConv2d, WeightAwareLinear

__all__ = [
    "ZOO",
    "AdaptiveRateDropout",
    "BatchwiseDropout",
    "BatchwiseLinear",
    "DropConnectConv2d",
    "DropConnectLinear",
    "FastDropoutLinear",
    "FastDropoutReLU",
    "GaussianDropout",
    "Standout",
    "VariationalConv2d",
    "VariationalDropout",
    "VariationalLinear",
    "WaterFillingDropout",
    "WeightAwareConv2d",
    "WeightAwareLinear",
    "penalties",
]

ZOO: dict[str, type[nn.Module]] = {
    "standard": nn.Dropout,  # independent masks: the baseline
    "uniform": MultinomialDropout,  # k draws among d units, all equally likely
    "data-dependent": DataDependentDropout,  # k draws by the second moments of a training set
    "evolutional": EvolutionalDropout,  # k draws by the second moments of the batch
    "water-filling": WaterFillingDropout,  # independent masks that keep strong units more often
    "weight-aware": WeightAwareLinear,  # k draws among the inputs of a layer, by moments and weights
    "gaussian": GaussianDropout,  # units times N(1, p / (1 - p))
    "fast": FastDropoutLinear,  # pre-activations as Gaussians, drawn or passed on through ReLU
    "standout": Standout,  # keep probabilities that grow with the pre-activations
    "dropconnect": DropConnectLinear,  # every weight dropped by itself
    "batchwise": BatchwiseDropout,  # one mask per batch; linear layers beside it skip what is dropped
    "variational": VariationalDropout,  # units times N(1, alpha), alpha learned
    "variational-weights": VariationalLinear,  # noise on weights, alpha learned
    "adaptive-rate": AdaptiveRateDropout,  # the rate is inferred from the data
}
