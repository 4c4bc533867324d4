"""
Texts to topics to classes
==========================

Topic shares are features. Here they tell the package of a docstring, in a scikit-learn pipeline.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import stradask as sd

corpus = sd.datasets.load_docstrings(packages=["numpy", "dask", "numba"])
labels = np.array([name.split(".")[0] for name in corpus.names])
X = corpus.X[:, corpus.X.sum(axis=0).A1 >= 20]  # words that are common enough to be in both parts
X_train, X_test, y_train, y_test = train_test_split(X, labels, random_state=0, stratify=labels)
topics = sd.LatentDirichletAllocation(20, max_iter=100, random_state=0)
model = make_pipeline(topics, sd.LogisticRegression(C=10.0)).fit(X_train, y_train)
print(f"accuracy on new docstrings: {model.score(X_test, y_test):.3f}")

# %%
ConfusionMatrixDisplay.from_estimator(model, X_test, y_test, cmap="Blues", colorbar=False)
plt.show()
