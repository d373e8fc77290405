"""
Is it worth it on my data?
==========================

``evodrop.theory.report`` says what the paper predicts for a data set, before anything is trained. :math:`B^2 =
E\\|x \\circ \\epsilon\\|^2` is what the paper minimises. A smaller bound is no promise of a smaller error.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from evodrop.theory import report

X = load_digits().data / 16
found = report(X, rate=0.5)
print(found)

# %%
# On the left, what each noise costs: the factor by which it raises the squared norm of the data. On the right, the
# probabilities of the units, sorted: the flatter they are, the less there is to gain.

names = [prediction.noise for prediction in found.predictions]
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
bars = left.barh(names, [prediction.relative_norm for prediction in found.predictions], color="tab:blue")
left.bar_label(bars, fmt="%.2f", padding=3)
left.set(xlabel=r"$B^2\,/\,E\|x\|^2$", xlim=(0, 1.15 * max(p.relative_norm for p in found.predictions)))
left.invert_yaxis()
for name in ("uniform", "data-dependent"):
    right.plot(sorted(found.noises[name].chances, reverse=True), label=name)
right.set(xlabel="unit, by probability", ylabel="probability", ylim=(0, None))
right.legend()
plt.show()
