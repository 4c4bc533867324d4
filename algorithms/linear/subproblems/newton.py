"""Proximal-point method with semismooth Newton steps in the dual, in the space of the columns.

Least squares with an absolute and a square penalty needs of its columns A only G = A^T A and c = A^T y. With
a step s > 0 and ``sigma_j = s / |a_j|^2``, each proximal step from a point b::

    b+ = argmin_z |y - A z|^2 / 2 + sum_j l1_j |z_j| + l2_j z_j^2 / 2 + (z_j - b_j)^2 / (2 sigma_j)

is found by its dual: solve ``u + y - A p(u) = 0``, where
``p_j(u) = soft(b_j - sigma_j a_j.u, sigma_j l1_j) / (1 + sigma_j l2_j)``. Every u met on the way is
``A q - y`` for some q, so that q takes its place: ``A^T u = G q - c``, and the gradient of the dual is
``A (q - p)``. With S the support of p, a Newton step solves
``(diag((1 + sigma_j l2_j) / sigma_j) + G_SS) z = (G (q - p))_S`` and moves q by ``p - q + z``.

References
----------
Li, Sun, Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems",
SIAM Journal on Optimization 28(1), 2018.
"""

import numpy as np

_FIRST_STEP, _FACTOR = 10.0, 5.0  # s at first, and its growth
_MOST_STEP = 1e10  # beyond it only rounding changes
_OUTER, _INNER, _HALVINGS = 40, 40, 20
_WORSE = 7  # proximal steps without a smaller gap after which it ends
_ROUNDING = 1e-18  # a descent this small beside |y|^2 is lost in rounding: the inner problem is solved
_LOOSE = 5.0  # inner steps stop at this multiple of |b+ - b| / s, in the norm of the columns


def proximal_newton(operator, b, slopes, y_y, penalty, gap_at, eps, *, step=0.0, most_steps=200):
    """Reduce the gap to `eps`.

    `operator`: ``times(x)`` is G x; ``solve(S, right, diagonal)`` solves ``(diag(diagonal) + G_SS) z =
    right``, or returns None if it cannot; ``norms`` is the diagonal of G, all positive. `b`: float64 (m,);
    where to begin. `slopes`: float64 (m,); ``c - G b``. `y_y`: ``|y|^2``. `penalty`: (float64 ndarray,
    float64 ndarray, bool), l1, l2, and whether coefficients are held at or above zero. `gap_at`: ``gap_at(b,
    slopes)``: the duality gap. `step`: s to begin with, if it is larger than the first. `most_steps`: newton
    systems solved at most. Returns `b`, `slopes`: float64 ndarrays; the best point found. `step`: the last s.
    `steps`: Newton systems solved.
    """
    l1, l2, positive = penalty
    norms = operator.norms
    x, q, u = b, b, -slopes  # u stands for A^T u
    c = slopes + operator.times(b)
    best = (b, slopes, gap_at(b, slopes))
    s, steps, worse = max(_FIRST_STEP, step), 0, 0
    for _ in range(_OUTER):
        sigma = s / norms
        growth = 1.0 + sigma * l2
        held, inverse = sigma * l1, growth / sigma
        weight = 0.5 * inverse / growth**2
        for inner in range(_INNER + 1):
            w = x - sigma * u
            p = _soft(w, held, positive) / growth
            slopes_p = c - operator.times(p)
            e, G_e = q - p, u + slopes_p
            size, moved = e @ G_e, p - x
            if not size > 0 or (inner and size <= _LOOSE**2 * (moved @ (norms * moved)) / s**2):
                break
            if steps >= most_steps or inner == _INNER:
                return (*best, s, most_steps)
            S = np.flatnonzero(p)
            z = operator.solve(S, G_e[S], inverse[S]) if len(S) else G_e[S]
            if z is None:
                return (*best, s, most_steps)
            steps += 1
            d = -e
            d[S] += z
            G_d = operator.times(d)
            if -(e @ G_d) <= _ROUNDING * y_y:
                break
            descent, q_q, d_q, d_d = e @ G_d, q @ (u + c), d @ (u + c), d @ G_d
            now = 0.5 * q_q + weight @ (growth * p) ** 2
            t = 1.0
            for _ in range(_HALVINGS):
                then = 0.5 * q_q + t * d_q + 0.5 * t * t * d_d
                then += weight @ _soft(w - t * sigma * G_d, held, positive) ** 2
                if then <= now + 1e-4 * t * descent + 1e-13 * abs(now):
                    break
                t *= 0.5
            q, u = q + t * d, u + t * G_d
        x = p
        gap = gap_at(x, slopes_p)
        worse = worse + 1 if gap >= best[2] else 0
        if gap < best[2]:
            best = (x, slopes_p, gap)
        if best[2] <= eps or worse > _WORSE:
            break
        s = min(s * _FACTOR, _MOST_STEP)
    return (*best, s, steps)


def _soft(w, held, positive):
    """Soft threshold."""
    return np.maximum(w - held, 0.0) if positive else w - np.clip(w, -held, held)
