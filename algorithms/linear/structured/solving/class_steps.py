"""Newton's method for the multinomial loss of K classes and convex penalties of single coefficients.

The second-order model has the exact Hessian, which couples the classes of a row: it takes a change V of their
predictors to ``w (P V - P (P . V))``. Coordinate descent goes through the classes in turn, each with its
intercept eliminated. Where that takes many turns, a few steps of conjugate gradients on the coefficients that
are not zero, of all classes, come between two of them; where these are few, Newton's steps to zeros of
coefficients and beyond.

A shift of a column's coefficients by the same number in all classes changes no probability. The l1 norm is
least where their median is zero, or their minimum if all are to be positive. This is reached in one step:
descent would crawl there.

The model may be of less precision than the loss: slopes at the beginning of a step are exact, and so is the
change of the predictors that it leads to.
"""

import numpy as np
from scipy import linalg

from .....kernels.linear import class_newton as kernels
from .....kernels.linear.newton import HALVINGS, STEPS, judge_step

_TURNS, _CONJUGATE_TURN = 10, 4  # through the classes, for a model; after which conjugate gradients come
_NEWTON_TURN, _MOST_NEWTON, _MOST_PRODUCTS = 1, 300, 3e7  # coefficients and multiplications of their products
_MOST_SUPPORT = 300, 3e8  # the same of blocks, whose other steps are short
_DAMPED = 1e-12  # of curvatures, added to them
_CONJUGATE_STEPS, _CONJUGATE_TOL = 10, 0.3
_LEAST_CURVATURE = 1e-9  # directions of less, relative to that of their coordinates, are not followed
_MODEL_TOL = 0.2  # of the violation at the beginning of a step


def minimise_classes(columns, y, weights, f, b, c, P, fit_intercept, tol):
    """Minimise until the conditions are broken by at most `tol`.

    `columns`: see `Solver._entries_of_columns`. `y`, `f`: (K, n), shares of the classes, and predictors with
    offsets. `b`: (K, m). `c`: (K,). `P`: (5, m), lam, l1, ridge, low and high. `f`, `b` and `c` are changed.
    """
    X, A, ids, kind = columns
    (K, m), n = b.shape, len(weights)
    p, u, g, d = np.empty((K, n)), np.empty((K, n)), np.empty((K, m + 1)), np.empty((K, m + 1))
    near, model, totals = np.empty((K, m), np.bool_), np.zeros((K, 4, m)), np.zeros((K, 2))

    def charge():
        size = np.abs(b)
        return float((size * (P[0] + P[1] + 0.5 * P[2] * size)).sum())

    value, damping = kernels.class_losses(y, weights, f, p, u) + charge(), 0.0
    for _ in range(STEPS):
        value -= _shift_to_medians(X, ids, f, b, P, p)
        filled = g, near, model, totals
        violation = kernels.begin_model(X, ids, u, p, weights, b, P, damping, fit_intercept, tol, *filled)
        if violation <= tol:
            break
        d[:] = 0.0
        old_b, V, mean = b.copy(), np.zeros((K, n), kind), np.zeros(n, kind)
        terms = A, ids, p, weights, g, model, totals, P, b, d, V, mean
        for turn in range(_TURNS):
            if kernels.descend(*terms, near) <= max(_MODEL_TOL * violation, 0.3 * tol):
                break
            if turn >= _NEWTON_TURN and _newton_steps(*terms):
                continue
            if turn == _CONJUGATE_TURN:
                _conjugate_gradients(*terms)
        d[:, :m] = b - old_b
        df, old_f, old_c, t = np.zeros((K, n)), f.copy(), c.copy(), 1.0
        kernels.change_predictors(X, ids, d, p, df, np.zeros(n))
        moved = ends = False
        for _halving in range(HALVINGS):
            f[:], c[:] = old_f + t * df, old_c + t * d[:, m]
            if t < 1.0:
                b[:] = old_b + t * d[:, :m]
            now = kernels.class_losses(y, weights, f, p, u) + charge()
            moved, ends, damping = judge_step(now, value, t, damping, False, d.any())
            if moved:
                value = min(now, value)
                break
            t /= 2
        if not moved:
            f[:], b[:], c[:] = old_f, old_b, old_c
            kernels.class_losses(y, weights, f, p, u)
            moved, ends, damping = judge_step(value, value, 0.0, damping, False, True)
        if ends:
            break


def _shift_to_medians(X, ids, f, b, P, p):
    """Shift columns without ridge to medians of zero, or minima; return by how much the penalty falls."""
    least, *middle = np.sort(b, axis=0)[[0, (len(b) - 1) // 2, len(b) // 2]]
    shift = np.where(P[3] == 0, least, np.where(P[3] == -np.inf, np.clip(0.0, *middle), 0.0))
    shift[(P[2] > 0) | (P[0] + P[1] == 0) | (P[4] < np.inf)] = 0.0
    if not shift.any():
        return 0.0
    before = np.abs(b).sum(axis=0)
    b -= shift
    df, z = np.zeros((1, f.shape[1])), np.append(-shift, 0.0)[None]
    kernels.change_predictors(X, ids, z, p[:1], df, np.zeros(f.shape[1]))
    f += df
    return float(((before - np.abs(b).sum(axis=0)) * (P[0] + P[1])).sum())


def _newton_steps(A, ids, p, weights, g, model, totals, P, b, d, V, mean):
    """Minimise a model over intercepts and coefficients that are not zero; return whether they are few.

    A step ends where a coefficient becomes zero, or meets a bound, and stays there.
    """
    K, m = b.shape
    on, pulls, added = _model_at(p, weights, A, ids, g, model, totals, P, b, d, V, mean)
    used = np.append(np.flatnonzero(on[:, :m].any(axis=0)), m)
    size, n = K * len(used), len(weights)
    if size > _MOST_NEWTON or float(n) * size * size > _MOST_PRODUCTS:
        return False
    rows = np.ones((len(used), n))
    if isinstance(A, tuple):
        rows[:-1] = 0.0
        for row, j in zip(rows[:-1], ids[used[:-1]].tolist(), strict=True):
            row[A[1][A[2][j] : A[2][j + 1]]] = A[0][A[2][j] : A[2][j + 1]]
    else:
        rows[:-1] = A[ids[used[:-1]]]
    H = _curvatures(rows, p, weights).reshape(size, size)
    H[np.diag_indices(size)] += added[:, used].ravel() + _DAMPED * np.diagonal(H)
    on, rest = on[:, used].ravel(), pulls[:, used].ravel()
    begun = np.concatenate([b[:, used[:-1]], np.zeros((K, 1))], axis=1)
    x = begun.ravel().copy()
    is_bent, low, high = (
        np.append(v[used[:-1]], w) for v, w in ((P[0] + P[1] > 0, False), (P[3], -np.inf), (P[4], np.inf))
    )
    for _ in range(len(x)):
        free = np.flatnonzero(on)
        try:
            step = linalg.cho_solve(linalg.cho_factor(H[np.ix_(free, free)]), -rest[free])
        except linalg.LinAlgError:
            break
        at, column = x[free], free % len(used)
        lowest, highest = low[column], high[column]
        lowest = np.where(is_bent[column] & (at > 0), np.maximum(lowest, 0.0), lowest)
        highest = np.where(is_bent[column] & (at < 0), np.minimum(highest, 0.0), highest)
        bound = np.where(step < 0, lowest, highest)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = np.where(step == 0, np.inf, (bound - at) / step)
        first = int(np.argmin(parts)) if len(parts) else 0
        length = min(parts[first], 1.0) if len(parts) else 1.0
        x[free] = at + length * step
        rest += length * (H[:, free] @ step)
        if length == 1.0:
            break
        x[free[first]], on[free[first]] = bound[first], False
    new = x.reshape(K, -1)
    is_free = np.append((P[:3] == 0).all(axis=0) & (P[3] == -np.inf) & (P[4] == np.inf), True)[used]
    new = new - np.where(is_free, (new - begun).mean(axis=0), 0.0)  # a shift of all classes is rounding
    z = np.zeros((K, m + 1))
    z[:, used], b[:, used[:-1]] = new - begun, new[:, :-1]
    d += z
    T, middle = np.zeros_like(V), np.zeros_like(mean)
    kernels.change_predictors(A, ids, z, p, T, middle)
    V += T
    mean += middle
    return True


def _curvatures(rows, p, weights):
    """The Hessian of the loss by coefficients of K classes, (K, m, K, m), of columns `rows` (m, n)."""
    K, m = len(p), len(rows)
    H = np.empty((K, m, K, m))
    for k in range(K):
        for j in range(k + 1):
            H[k, :, j] = (rows * (weights * p[k] * ((k == j) - p[j]))) @ rows.T
            H[j, :, k] = H[k, :, j].T
    return H


def step_on_support(part, p, weights, b, g, g0, terms, block):
    """Newton's step of norms of blocks on what is not zero: changes of b and intercepts; None if it is much.

    `part`: (n, m), dense or CSC. `b`, `g`: (m, K), coefficients and slopes of the loss. `g0`: (K,) slopes of
    the intercepts, or None. `terms`: (5, m), lam, l1, ridge, low and high of each row; `block`: its block.
    """
    K, on = b.shape[1], np.flatnonzero(b.any(axis=1))
    m, r = len(on), len(on) + (g0 is not None)
    if not m or r * K > _MOST_SUPPORT[0] or float(len(weights)) * (r * K) ** 2 > _MOST_SUPPORT[1]:
        return None
    rows, kept, block = np.ones((r, len(weights))), b[on], block[on]
    rows[:m] = part[:, on].T if isinstance(part, np.ndarray) else part[:, on].toarray().T
    lam, l1, ridge, low, high = (values[on, None] for values in terms)
    sizes = np.sqrt(np.bincount(block, (kept**2).sum(axis=1)))[block][:, None]
    H, slopes = _curvatures(rows, p, weights), np.zeros((r, K))
    shares = np.where(block[:, None] == block, lam / sizes**3, 0.0)
    H[:, :m, :, :m] -= np.einsum("ik,ij,jl->kilj", kept, shares, kept)
    slopes[:m] = g[on] + (lam / sizes + ridge) * kept + l1 * np.sign(kept)
    slopes[m:] = g0
    added = np.zeros((r, K))
    added[:m] = lam / sizes + ridge
    moves = np.concatenate([kept != 0, np.ones((r - m, K), bool)]).T.ravel()
    H = H.reshape(r * K, r * K)[np.ix_(moves, moves)]
    H[np.diag_indices(len(H))] += added.T.ravel()[moves] + _DAMPED * np.diagonal(H)
    try:
        found = linalg.cho_solve(linalg.cho_factor(H), -slopes.T.ravel()[moves])
    except linalg.LinAlgError:
        return None
    d = np.zeros(r * K)
    d[moves] = found
    d = d.reshape(K, r).T
    is_free = np.append(((terms[:3, on] == 0).all(axis=0)), np.ones(r - m, bool))
    d -= np.where(is_free[:, None], d.mean(axis=1, keepdims=True), 0.0)  # a shift of all classes is rounding
    new = kept + d[:m]
    new = np.clip(np.where((l1 > 0) & (new * kept < 0), 0.0, new), low, high)
    step = np.zeros(b.shape)
    step[on] = new - kept
    return step, d[m] if r > m else np.zeros(K)


def _model_at(p, weights, A, ids, g, model, totals, P, b, d, V, mean):
    """Which coefficients and intercepts are not zero, slopes there, and what is added to curvatures."""
    K, m = b.shape
    on = (b != 0) & (model[:, 2] > 0)
    added = np.concatenate([model[:, 3], totals[:, 1:]], axis=1)
    slopes = np.empty((K, m + 1))
    kernels.curved_slopes(A, ids, p, weights, V, mean, on, slopes)
    slopes += g + added * d
    slopes[:, :m] += model[:, 1] * g[:, m:] + np.sign(b) * (P[0] + P[1])
    return np.concatenate([on, totals[:, :1] > 0], axis=1), slopes, added


def _conjugate_gradients(A, ids, p, weights, g, model, totals, P, b, d, V, mean):
    """Minimise a model, about, over intercepts and coefficients that are not zero, with their signs."""
    K, m = b.shape
    on, slopes, added = _model_at(p, weights, A, ids, g, model, totals, P, b, d, V, mean)
    on = on[:, :m]
    curvatures = np.divide(1.0, model[:, 2], out=np.zeros((K, m)), where=on)
    curvatures = np.concatenate([curvatures, totals[:, :1]], axis=1)
    scale = np.divide(1.0, curvatures, out=np.zeros(curvatures.shape), where=curvatures > 0)

    def image(z):
        T, middle, out = np.zeros_like(V), np.zeros_like(mean), np.empty((K, m + 1))
        kernels.change_predictors(A, ids, z, p, T, middle)
        kernels.curved_slopes(A, ids, p, weights, T, middle, on, out)
        return (out + added * z) * (scale > 0), T, middle

    right = rest = np.where(scale > 0, -slopes, 0.0)
    z, direction = np.zeros((K, m + 1)), rest * scale
    size = first = float((rest * direction).sum())
    for _ in range(_CONJUGATE_STEPS):
        if size <= _CONJUGATE_TOL**2 * first:
            break
        product, *_ = image(direction)
        curvature = float((direction * product).sum())
        if not curvature > _LEAST_CURVATURE * float((direction**2 * curvatures).sum()):
            break
        length, before = size / curvature, size
        z, rest = z + length * direction, rest - length * product
        size = float((rest * rest * scale).sum())
        direction = rest * scale + (size / before) * direction
    new = b + z[:, :m]
    new = np.clip(np.where((new * b < 0) & (P[0] + P[1] > 0), 0.0, new), P[3], P[4])
    cut = bool((new != b + z[:, :m]).any())
    z[:, :m] = new - b
    product, T, middle = image(z)
    length = 1.0
    if cut:
        curvature = float((z * product).sum())
        length = min(1.0, float((right * z).sum()) / curvature) if curvature > 0 else 0.0
    if length > 0:
        b += length * z[:, :m]
        d += length * z
        V += V.dtype.type(length) * T
        mean += mean.dtype.type(length) * middle
