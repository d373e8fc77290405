"""
How probabilities evolve
========================

The probabilities of ``EvolutionalDropout`` follow the second moments of each mini-batch. They start where the random
weights put them, and change while the network learns which units to use.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from evodrop.definitions import sampling_probabilities, second_moments
from evodrop.nn import EvolutionalDropout

torch.manual_seed(0)
digits = load_digits()
X = torch.tensor((digits.data - digits.data.mean(0)) / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
hidden = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
model = nn.Sequential(hidden, EvolutionalDropout(0.5), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

probabilities = []
for step in range(400):
    batch = torch.randint(len(X), (128,))
    if step % 4 == 0:  # measured on all data, which makes smooth lines; the layer takes each batch
        with torch.no_grad():
            probabilities.append(sampling_probabilities(second_moments(hidden(X))))
    optimizer.zero_grad()
    cross_entropy(model(X[batch]), y[batch]).backward()
    optimizer.step()

# %%
# Every line is one of the 64 hidden units, coloured by its rank at the end. Equal probabilities would be 1/64.

history = torch.stack(probabilities).numpy()
steps = 4 * np.arange(len(history))
order = history[-1].argsort()
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for rank, unit in enumerate(order):
    axes.plot(steps, history[:, unit], color=plt.cm.viridis(rank / 63), linewidth=1)
axes.axhline(1 / 64, color="black", linestyle="--", linewidth=1)
axes.text(1.01 * steps[-1], 1 / 64, "1/64", va="center")
axes.set(xlabel="step", ylabel="probability $p_i$ of a unit", xlim=(0, steps[-1]), ylim=(0, None))
plt.show()
