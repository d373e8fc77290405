"""One network with evolutional dropout, on the handwritten digits that come with scikit-learn: a few seconds.

    python examples/digits.py

``evodrop compare`` does the same for every dropout, with several seeds, and says what the difference is worth.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from evodrop.nn import EvolutionalDropout

X, y = load_digits(return_X_y=True)
parts = train_test_split(np.float32(X / 16), y, test_size=0.25, stratify=y, random_state=0)
train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)

torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(64, 150),
    nn.ReLU(),
    EvolutionalDropout(0.5),  # in the place of nn.Dropout(0.5)
    nn.Linear(150, 150),
    nn.ReLU(),
    EvolutionalDropout(0.5),
    nn.Linear(150, 10),
)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

for epoch in range(1, 31):
    network.train()
    for batch in torch.randperm(len(train_x)).split(128):
        loss = nn.functional.cross_entropy(network(train_x[batch]), train_y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 0:
        network.eval()  # no noise
        with torch.no_grad():
            error = (network(test_x).argmax(1) != test_y).double().mean().item()
        print(f"epoch {epoch}: test error {100 * error:.1f} %")
