"""
What drops in a model?
======================

``describe_dropout`` calls a model once and lists every dropout that acts: layers, ``F.dropout``, the dropout inside
attention, and masks that code draws by itself. Here the model is a small vision transformer, written by hand.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from evodrop.nn import convert_dropout, describe_dropout


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        x = x + self.drop(self.out(attention.transpose(1, 2).flatten(2)))
        return x + F.dropout(self.mlp(self.norm2(x)), 0.1, self.training)  # no layer


class ViT(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        x = self.drop(self.patches(images).flatten(2).transpose(1, 2) + self.position)
        return self.head(self.blocks(x).mean(1))


torch.manual_seed(0)
model, images = ViT(), torch.randn(16, 3, 32, 32)
before = describe_dropout(model, images)
print(before)

# %%
# ``convert_dropout`` swaps the layers and keeps their noise level. The table shows what is left: a function is not a
# layer, and stays unless you pass ``functional=True``. In sequences the units are the last dimension, hence
# ``unit_dims=-1``.

convert_dropout(model, unit_dims=-1, match="noise")
after = describe_dropout(model, images)
print(after)

# %%
# The noise :math:`\|y - x\|^2 / \|x\|^2` of each place, before and after.

figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
places = [f"{record.name} ({record.kind.rpartition('.')[2]})" for record in before]
axes.plot([record.noise for record in before], places, "o", fillstyle="none", markersize=9, label="before")
axes.plot([record.noise for record in after], places, ".", markersize=8, label="after")
axes.set(xlabel="noise level", xlim=(0, None))
axes.invert_yaxis()
axes.legend()
plt.show()
