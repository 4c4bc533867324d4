"""Multinomial models whose columns differ in scale by orders of magnitude, against dense Newton steps."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp, softmax

from stradask.algorithms.optimize import choose
from stradask.algorithms.optimize.objective import MultinomialObjective
from stradask.algorithms.optimize.rows import make_rows

N, D, K, L2 = 60, 40, 4, 1e-3


def problem():
    """Thin rows, one column 1e5 times as large as the others; classes that depend on them; weights."""
    rng = np.random.default_rng(3)
    X = sparse.random(N, D, 0.1, format="csr", random_state=rng)
    labels = (X @ rng.standard_normal((D, K)) + rng.gumbel(size=(N, K)) / 3).argmax(axis=1)
    return X.toarray() * np.where(np.arange(D) == 3, 1e5, 1.0), labels, rng.uniform(0, 2, N)


def newton_minimum(X, labels, weights):
    """The least mean loss and penalty, by damped Newton steps with the whole Hessian."""
    A, penalty = np.column_stack([X, np.ones(N)]), np.append(np.full(D, L2), 0.0)[:, None]
    s = weights[:, None] / N

    def value(W):
        Z = A @ W
        return s[:, 0] @ (logsumexp(Z, axis=1) - Z[np.arange(N), labels]) + np.sum(penalty * W**2) / 2

    W = np.zeros((D + 1, K))
    for _ in range(100):
        P = softmax(A @ W, axis=1)
        g = (A.T @ (s * (P - np.eye(K)[labels])) + penalty * W).ravel()
        curved = s[:, :, None] * (P[:, :, None] * np.eye(K) - P[:, :, None] * P[:, None, :])
        H = np.einsum("ij,ikl,im->jkml", A, curved, A, optimize=True).reshape(len(g), len(g))
        H += np.diag(np.repeat(penalty, K))
        root = np.diag(H) ** -0.5
        step = -root * np.linalg.lstsq(H * root[:, None] * root, root * g, rcond=1e-14)[0]
        t = 1.0
        while t > 1e-9 and value(W + t * step.reshape(W.shape)) > value(W) + 0.1 * t * (g @ step):
            t /= 2
        W = W + t * step.reshape(W.shape)
        if -(g @ step) < 1e-14 * value(W):
            return value(W)
    raise AssertionError("Newton's method has not arrived")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_large_column_and_the_diagonal(form, monkeypatch):
    monkeypatch.setattr(choose, "_GRAM_MOST", 0)  # the preconditioner of models of many columns
    X, labels, weights = problem()
    objective = MultinomialObjective(make_rows(form(X), labels, weights), K, scale=1 / N, l2=L2)
    result, _ = choose.minimise_multinomial(objective, np.zeros(objective.n_parameters), tol=1e-8)
    least = newton_minimum(X, labels, weights)
    assert result.success
    assert result.fun - least <= 1e-8 * least
