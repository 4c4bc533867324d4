"""Scores of a network on rows: accuracy of classes, R squared of numbers."""

import numpy as np
from sklearn.metrics import r2_score


class OneMinusScore:
    """1 minus a score, for a minimiser; it travels to workers."""

    def __init__(self, score, network):
        self.score, self.network = score, network

    def __call__(self, rows, w):
        """Score parameters on rows."""
        return 1 - self.score(self.network, rows, w)


def accuracy(network, rows, w):
    """Share of rows whose class is found."""
    X, y, *weights = rows
    output = network.output(X, w.astype(X.dtype, copy=False))
    return float(np.average(network.classes(output) == y, weights=weights[0] if weights else None))


def determination(network, rows, w):
    """R squared; the mean over outputs."""
    X, y, *weights = rows
    output = network.output(X, w.astype(X.dtype, copy=False))
    return float(r2_score(y, output, sample_weight=weights[0] if weights else None))
