"""
Add a dropout of your own and compare it
========================================

A dropout of your own is a class that takes the rate. ``evodrop compare`` imports it by its name, ``module:Class``, and
trains it on the same weights, batches and data as the others. :doc:`/add_a_dropout` shows how to bring it into the zoo.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = Path(tempfile.mkdtemp())
(folder / "my_module.py").write_text('''
import torch
from torch import nn

class UniformNoise(nn.Dropout):
    """Every unit times U(1 - a, 1 + a), with the variance p / (1 - p) of standard dropout."""

    def forward(self, input):
        a = (3 * self.p / (1 - self.p)) ** 0.5
        return input * (1 + a * (2 * torch.rand_like(input) - 1)) if self.training else input
''')
command = "compare --methods none,standard,my_module:UniformNoise --seeds 2 --epochs 25 --jobs 1 --out here"
run = subprocess.run(
    [sys.executable, "-m", "evodrop", *command.split()], cwd=folder, capture_output=True, text=True, check=True
)
print("\n".join(line.rstrip() for line in run.stdout.splitlines()[:-1]))

# %%
# The records of each run are lines of JSON. Two seeds and 25 epochs show how it works, and decide nothing.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
curves = {}
for path in sorted(folder.glob("here/*/records.jsonl")):
    header, *records = map(json.loads, path.read_text().splitlines())
    method = header["run"]["method"].partition("@")[0]
    curves.setdefault(method, []).append([100 * record["test_error"] for record in records])
for method, errors in curves.items():
    axes.plot([record["epoch"] for record in records], np.mean(errors, axis=0), label=method)
axes.set(xlabel="epoch", ylabel="test error in %, mean of 2 seeds", ylim=(0, None))
axes.legend()
plt.show()
