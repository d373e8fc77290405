"""
Unlabelled text
===============

What dropout noise adds to the loss of a logistic regression does not depend on the labels. So
``DropoutLogisticRegression`` can learn from documents that nobody has labelled (Wager, Wang and Liang, 2013):
``fit(X, y, X_unlabeled=...)``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer

from evodrop.linear import DropoutLogisticRegression

rng = np.random.default_rng(0)
frequency = 1 / np.arange(1, 2_001)  # Zipf's law
tilt = np.exp(0.35 * rng.normal(size=2_000))  # two topics use the same words, more or less often
topics = np.array([frequency * tilt, frequency / tilt])
topics /= topics.sum(1, keepdims=True)
y = rng.integers(0, 2, 4_000)
X = TfidfTransformer().fit_transform(np.array([rng.multinomial(60, topics[label]) for label in y]))
X_test, y_test, X_unlabelled = X[:1_000], y[:1_000], X[1_000:3_000]
X_train, y_train = X[3_000:], y[3_000:]

# %%
# Test errors with 40 to 640 labelled documents, drawn six times, without and with 2,000 unlabelled ones beside them.
# ``unlabeled_share`` says how much these count: by default the less, the fewer labels there are.

sizes = [40, 80, 160, 320, 640]
errors = {"labelled alone": [], "and 2,000 unlabelled": [], "these with a share of one half": []}
for size in sizes:
    samples = [rng.permutation(1_000)[:size] for _ in range(6)]
    ways = [(None, "auto"), (X_unlabelled, "auto"), (X_unlabelled, 0.5)]
    for name, (more, share) in zip(errors, ways, strict=True):
        model = DropoutLogisticRegression(unlabeled_share=share)
        fitted = (model.fit(X_train[rows], y_train[rows], X_unlabeled=more) for rows in samples)
        errors[name].append([100 * (1 - one.score(X_test, y_test)) for one in fitted])

# %%
# Points are means, bars standard errors. Where labels are few, a share of one half does harm: noise adds least to the
# loss of a model that is sure of every document, and few labels do not make it sure of the right class. With more
# labels it helps most. How many it takes depends on the data, so the default share is careful: tune it on a held-out
# part of your own.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in errors.items():
    spread = np.std(values, axis=1, ddof=1) / 6**0.5
    axes.errorbar(sizes, np.mean(values, axis=1), spread, marker="o", capsize=3, label=name)
axes.set(xlabel="labelled documents", ylabel="test error in %", xscale="log", ylim=(0, None))
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend()
plt.show()
