"""
How sure is the model?
======================

``mc_predict`` leaves dropout on and predicts many times. The spread of the predictions is an estimate of uncertainty:
Monte Carlo dropout (Gal and Ghahramani, 2016). It is not calibrated by itself; the rate decides how wide it is.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.nn import EvolutionalDropout, mc_predict

torch.manual_seed(0)
X, y = make_moons(400, noise=0.2, random_state=0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
model = nn.Sequential(
    *(nn.Linear(2, 128), nn.ReLU(), EvolutionalDropout(0.3, match="noise")),
    *(nn.Linear(128, 128), nn.ReLU(), EvolutionalDropout(0.3, match="noise")),
    nn.Linear(128, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(400):
    optimizer.zero_grad()
    cross_entropy(model(X), y).backward()
    optimizer.step()

# %%
# Layers that follow the batch take their probabilities from the inputs of the call, here from the whole grid.

span = torch.linspace(-2.5, 3.5, 80)
grid = torch.cartesian_prod(span, span)
predictions = mc_predict(nn.Sequential(model, nn.Softmax(-1)), grid, samples=100)
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
shown = {"mean probability": predictions.mean, "its standard deviation": predictions.std}
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    picture = axis.pcolormesh(span.numpy(), span.numpy(), values[:, 1].reshape(80, 80).T.numpy(), cmap="viridis")
    axis.scatter(*X.T.numpy(), c=y, cmap="coolwarm", s=8, edgecolors="white", linewidths=0.3)
    axis.set(title=title, aspect="equal")
    figure.colorbar(picture, ax=axis, shrink=0.8)
plt.show()
