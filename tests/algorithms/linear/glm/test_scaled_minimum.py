"""Models whose columns differ in scale by orders of magnitude: how far above the minimum they end.

The minimum is that of damped Newton steps with the whole Hessian in columns of one scale, which singular
values solve for: known to 1e-14 of itself.
"""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, logsumexp, softmax

from stradask.algorithms.linear.glm import choose
from stradask.algorithms.linear.glm.objective import LinearObjective, MultinomialObjective
from stradask.algorithms.linear.glm.rows import LOGISTIC, POISSON, make_rows
from stradask.algorithms.optimize.methods.preconditioner import BetweenClasses

N, D, K = 60, 40, 4
TOL = 1e-8


def problem(kind, shape, seed):
    """Thin rows, columns of the given scales, targets that depend on them, weights."""
    rng = np.random.default_rng(100 * seed + 7)
    X = sparse.random(N, D, 0.1, format="csr", random_state=rng).toarray()
    Z = X @ rng.standard_normal((D, K if kind == "classes" else 1))
    if kind == "classes":
        y = (Z + rng.gumbel(size=Z.shape) / 3).argmax(axis=1)
    elif kind == "signs":
        y = np.where(Z[:, 0] + rng.logistic(size=N) / 3 > 0, 1.0, -1.0)
    else:
        y = rng.poisson(np.exp(Z[:, 0])).astype(float)
    scales = {
        "one": np.where(np.arange(D) == 3, 1e5, 1.0),
        "quarter": np.where(np.arange(D) % 4 == 0, 1e4, 1.0),
        "decades": 10 ** rng.uniform(-3, 3, D),
    }
    return X * scales[shape], y, rng.uniform(0.1, 2, N)


def newton_minimum(kind, X, y, weights, l2, fit_intercept):
    """The least mean loss and penalty."""
    A = np.column_stack([X, np.ones(N)]) if fit_intercept else X
    scales = np.sqrt(np.mean(A**2, axis=0))
    scales[scales == 0] = 1.0
    penalty = np.append(np.full(D, l2), [0.0] * fit_intercept) / scales**2
    A, s, width = A / scales, weights / N, K if kind == "classes" else 1

    def at(W):
        Z = A @ W
        if kind == "classes":
            P = softmax(Z, axis=1)
            losses, slopes = logsumexp(Z, axis=1) - Z[np.arange(N), y], P - np.eye(K)[y]
            curved = P[:, :, None] * np.eye(K) - P[:, :, None] * P[:, None, :]
        elif kind == "signs":
            margin = y * Z[:, 0]
            losses, slopes = np.logaddexp(0, -margin), -(y * expit(-margin))[:, None]
            curved = (expit(margin) * expit(-margin))[:, None, None]
        else:
            means = np.exp(Z[:, 0])
            losses, slopes, curved = means - y * Z[:, 0], (means - y)[:, None], means[:, None, None]
        value = s @ losses + np.sum(penalty[:, None] * W**2) / 2
        return value, A.T @ (s[:, None] * slopes) + penalty[:, None] * W, s[:, None, None] * curved

    W = np.zeros((A.shape[1], width))
    value, g, curved = at(W)
    for _ in range(300):
        H = np.einsum("ij,ikl,im->jkml", A, curved, A, optimize=True).reshape(g.size, g.size)
        H += np.diag(np.repeat(penalty, width))
        root = np.diag(H) ** -0.5
        step = -root * np.linalg.lstsq(H * root[:, None] * root, root * g.ravel(), rcond=1e-15)[0]
        promised, t = -(g.ravel() @ step), 1.0
        if promised < 1e-14 * value:
            return value
        while at(W + t * step.reshape(W.shape))[0] > value - 1e-4 * t * promised and t > 1e-9:
            t /= 2
        W = W + t * step.reshape(W.shape)
        value, g, curved = at(W)
    raise AssertionError("Newton's method has not arrived")


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    ("kind", "shape", "l2", "seed"),
    [
        ("classes", "one", 1e-3, 0),
        ("classes", "quarter", 1e-3, 0),
        ("classes", "decades", 1e-3, 1),
        ("signs", "quarter", 1e-3, 0),
        ("signs", "one", 1e-6, 1),
        ("signs", "decades", 1e-3, 0),
        ("counts", "decades", 1e-3, 0),
        ("counts", "one", 1e-3, 0),
    ],
)
def test_what_the_diagonal_ends_with_is_near_the_minimum(kind, shape, l2, seed, fit_intercept, monkeypatch):
    monkeypatch.setattr(choose, "_GRAM_MOST", 0)  # the preconditioner of models of many columns,
    monkeypatch.setattr(choose, "_PROOF_PASSES", 0)  # and their proof
    X, y, weights = problem(kind, shape, seed)
    rows, options = make_rows(X, y, weights), {"scale": 1 / N, "l2": l2, "fit_intercept": fit_intercept}
    if kind == "classes":
        objective = MultinomialObjective(rows, K, **options)
        result, _ = choose.minimise_multinomial(objective, np.zeros(objective.n_parameters), tol=TOL)
    else:
        objective = LinearObjective(rows, LOGISTIC if kind == "signs" else POISSON, **options)
        x0 = np.zeros(objective.n_parameters)
        result, _ = choose.minimise(objective, x0, solver="sandblaster", tol=TOL)
    assert result.success, result.message
    least = newton_minimum(kind, X, y, weights, l2, fit_intercept)
    assert -1e-12 * least <= result.fun - least <= TOL * least


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_diagonal_of_several_classes_is_that_of_their_hessian(form, dtype):
    X, y, weights = problem("classes", "quarter", 0)
    X = (X / np.where(np.arange(D) % 4 == 0, 1e3, 1.0)).astype(dtype)
    objective = MultinomialObjective(make_rows(form(X), y, weights.astype(dtype)), K, scale=1 / N, l2=0.3)
    w = np.random.default_rng(0).standard_normal(objective.n_parameters).astype(dtype).astype(float)
    expected = [objective.hessian_product(w, e)[j] for j, e in enumerate(np.eye(len(w)))]
    np.testing.assert_allclose(
        objective.hessian_diagonal(w), expected, rtol=1e-4 if dtype == np.float32 else 1e-12
    )


def test_a_start_that_adds_to_all_classes_alike_is_left_behind(monkeypatch):
    monkeypatch.setattr(choose, "_GRAM_MOST", 0)
    X, y, weights = problem("classes", "one", 0)
    objective = MultinomialObjective(make_rows(X, y, weights), K, scale=1 / N, l2=1e-3)
    x0 = np.repeat(np.linspace(-3, 5, D + 1), K)
    result, _ = choose.minimise_multinomial(objective, x0, tol=TOL)
    least = newton_minimum("classes", X, y, weights, 1e-3, True)
    assert result.success
    assert result.fun - least <= TOL * least
    np.testing.assert_allclose(result.x.reshape(-1, K).sum(axis=1), 0, atol=1e-9)


def test_the_scaling_of_classes_is_adjoint_and_keeps_means_at_zero():
    rng = np.random.default_rng(0)
    P, u, v = BetweenClasses(rng.uniform(0.1, 9, 12), 3), rng.standard_normal(12), rng.standard_normal(12)
    assert P.direct(u) @ v == pytest.approx(u @ P.transposed(v))
    np.testing.assert_allclose(P.direct(u).reshape(4, 3).sum(axis=1), 0, atol=1e-12)
