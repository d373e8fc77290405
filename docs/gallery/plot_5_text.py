"""
Text in a pipeline
==================

``DropoutSGDClassifier`` takes the place of ``SGDClassifier``. Here it learns from made-up documents: two topics use the
same words, a little more or less often.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from evodrop.linear import DropoutSGDClassifier

rng = np.random.default_rng(0)
words = np.array([f"word{i}" for i in range(5_000)])
frequency = 1 / np.arange(1, 5_001)  # Zipf's law
tilt = np.exp(0.2 * rng.normal(size=5_000))
labels = rng.permutation(np.arange(2_000) % 2)
topics = [frequency * tilt, frequency / tilt]
texts = [" ".join(rng.choice(words, 60, p=topics[label] / topics[label].sum())) for label in labels]
train, test, y_train, y_test = train_test_split(texts, labels, test_size=0.5, random_state=0)

# %%
# A swap in the pipeline, over ten seeds each. On data like these the two are close: measure on your own.

errors = {}
for model in (SGDClassifier, DropoutSGDClassifier):
    pipelines = [make_pipeline(TfidfVectorizer(), model(random_state=seed)) for seed in range(10)]
    errors[model.__name__] = [1 - pipeline.fit(train, y_train).score(test, y_test) for pipeline in pipelines]
    print(f"{model.__name__:22s} test error {np.mean(errors[model.__name__]):.1%}")

# %%
# ``history_`` holds the loss of each epoch, on examples with noise.

history = pipelines[-1][-1].history_
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
left.boxplot([100 * np.array(values) for values in errors.values()], widths=0.5)
left.set_xticks([1, 2], ["SGDClassifier", "Dropout-\nSGDClassifier"])
left.set_ylabel("test error in %")
right.plot(history["loss"], marker=".")
right.set(xlabel="epoch", ylabel="training loss")
plt.show()
