"""
The noise of the zoo
====================

Dropouts differ in the factor by which they multiply a unit. Here one batch passes through layers of the zoo at rate
0.5, and the pictures show the factors of a weak unit and of a strong one.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from evodrop.nn.zoo import ZOO

torch.manual_seed(0)
strength = torch.linspace(0.25, 2, 50)
x = torch.randn(20_000, 50).abs().clamp(min=0.1) * strength
names = ("standard", "gaussian", "uniform", "evolutional", "water-filling")
figure, axes = plt.subplots(2, len(names), figsize=(11, 4), sharex=True, sharey=True, layout="constrained")
for column, name in zip(axes.T, names, strict=True):
    factors = ZOO[name](0.5)(x) / x
    for axis, unit in zip(column, (5, 45), strict=True):
        values = factors[:, unit].numpy()
        axis.hist(
            np.clip(values, -2, 6), bins=np.arange(-2.05, 6.15, 0.1), weights=np.full(len(values), 100 / len(values))
        )
        axis.text(
            0.97,
            0.93,
            f"mean {values.mean():.2f}\nvariance {values.var():.2f}",
            ha="right",
            va="top",
            transform=axis.transAxes,
        )
    column[0].set_title(name)
for axis, kind in zip(axes[:, 0], ("weak", "strong"), strict=True):
    axis.set_ylabel(f"{kind} unit:\nshare of draws in %")
figure.supxlabel("factor of the unit")
plt.show()

# %%
# All have mean 1. Standard, Gaussian and uniform noise treat both units alike. Evolutional and water-filling dropout
# give the strong unit less noise and the weak unit more.
