"""
Swap a layer
============

``convert_dropout`` replaces the dropout layers of an existing model. The swap changes which units are dropped: standard
dropout treats them alike, evolutional dropout keeps those with large second moments more often.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from evodrop.nn import convert_dropout

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 150), nn.ReLU(), nn.Dropout(0.5), nn.Linear(150, 10))
converted = convert_dropout(model)  # before the optimizer is made
print(converted)

# %%
# Activations that differ in size show what the layer does. Each point is one of 40 units; its height is the share of
# 20,000 examples that keep it.

x = torch.randn(20_000, 40) * torch.linspace(0.1, 2, 40)
size = x.square().mean(0).sqrt()
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, layer in {"nn.Dropout": nn.Dropout(0.5), "EvolutionalDropout": converted[2]}.items():
    kept = (layer(x) != 0).float().mean(0)
    axes.plot(size, kept, ".", markersize=9, label=name)
axes.set(xlabel=r"size of the unit, $\sqrt{E\,x_i^2}$", ylabel="share of examples that keep it", ylim=(0, 1))
axes.legend()
plt.show()
