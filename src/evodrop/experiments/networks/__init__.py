"""Networks by their names, the dropout layer an argument.

=================  ============================================================
``catalogue``      how to build, feed, initialise and describe them
``architectures``  the paper's networks, layer by layer
``response_norm``  local response normalisation, fast on a CPU
``batchnorm``      batch normalisation that finds its own size
=================  ============================================================
"""

from __future__ import annotations

from evodrop.experiments.networks.catalogue import NETWORKS, Layer, Network, build_network, describe, initialize

__all__ = ["NETWORKS", "Layer", "Network", "build_network", "describe", "initialize"]
