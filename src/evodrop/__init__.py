"""evodrop: dropout whose noise follows the data.

Draw units from a multinomial whose probabilities follow their second moments, ``p_i ~ sqrt(E x_i^2)``, and the risk
bound of SGD shrinks (Li, Gong and Yang, "Improved Dropout for Shallow and Deep Learning", NIPS 2016).

The parts:

===================  ==================================================================================
``definitions``      open this first: the paper in a page, plain and slow, for arrays and tensors alike
``theory``           the propositions as functions, and what they predict for your data
``noise``            ``Noise(chances, k)`` and the one rule that makes it from a rate
``sampling``         the fast exact sampler: NumPy in, NumPy out
``nn``               for PyTorch: ``EvolutionalDropout`` and its kin, ``convert_dropout`` (extra ``torch``)
``linear``           for scikit-learn: ``DropoutSGDClassifier`` and its kin, for sparse data
``lab``              the laboratory: compare dropouts, reproduce the paper (extra ``lab``); command ``evodrop``
===================  ==================================================================================

Nothing heavy happens here: a part is imported when it is first used.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.2.0"
__all__ = ["__version__", "definitions", "lab", "linear", "nn", "noise", "sampling", "theory"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
