"""Prior densities of named parameters, with derivatives.

Rows of priors follow the rows of parameters (see ``transforms``). A row has the `CODE` of the density, the
place `FIRST` of its values, how many there are (`COUNT`, of vectors of `SIZE`), the place of its constant in
`data`, and up to three arguments. An argument is a pair (place, step): entry i has the number at place + i
step of the values, or, for a place below 0, at (-1 - place) + i step of `data`. Arguments among the values
are parameters themselves, and get their share of the derivatives. For natural coordinates u see
``transforms``: derivatives in them go to `own`.
"""

import math

import numba as nb
import numpy as np

from ..streams import CALLED, INNER, UNCOUNTED
from ..transforms import ROWS, WIDTH, log_logistic, pull_back, transform

(
    NORMAL,
    STUDENT_T,
    LAPLACE,
    LOGNORMAL,
    HALF_CAUCHY,
    EXPONENTIAL,
    GAMMA,
    INVERSE_GAMMA,
    BETA,
    FLAT,
    POWERS,
    MULTIVARIATE,
) = range(12)
CODE, FIRST, COUNT, SIZE, CONSTANT, ARGUMENTS = range(6)
PRIOR_WIDTH = ARGUMENTS + 6
_LEAST_SCALE = 1e-150


@nb.njit(**INNER)
def _argument(which, e, theta, data, meta, row):
    place, step = meta[row + ARGUMENTS + 2 * which], meta[row + ARGUMENTS + 2 * which + 1]
    return theta[place + e * step] if place >= 0 else data[-1 - place + e * step]


@nb.njit(**INNER)
def _tell(which, e, derivative, slope, meta, row):
    """Add a derivative to the parameter that is an argument, if it is one."""
    place, step = meta[row + ARGUMENTS + 2 * which], meta[row + ARGUMENTS + 2 * which + 1]
    if place >= 0:
        slope[place + e * step] += derivative


@nb.njit(**INNER)
def _one(code, x, u, a, b, c):
    """Log density, and its derivatives in x, u, a and b.

    (a, b) are location and scale; of half-Cauchy a is the scale, of exponential and (shape, rate) of gamma
    b is the rate, of inverse gamma b is the scale. c are Student's degrees of freedom.
    """
    if code in (NORMAL, LOGNORMAL):
        z = ((x if code == NORMAL else u) - a) / b
        value, by_a, by_b = -0.5 * z * z - math.log(b), z / b, (z * z - 1.0) / b
        if code == NORMAL:
            return value, -by_a, 0.0, by_a, by_b
        return value - u, 0.0, -by_a - 1.0, by_a, by_b
    if code == STUDENT_T:
        z = (x - a) / b
        # Both are finite where the square of z is not.
        if abs(z) > 1e150:
            value, part = -(c + 1.0) * (math.log(abs(z)) - 0.5 * math.log(c)), (c + 1.0) / z
        else:
            value, part = -0.5 * (c + 1.0) * math.log1p(z * z / c), (c + 1.0) * z / (c + z * z)
        return value - math.log(b), -part / b, 0.0, part / b, (part * z - 1.0) / b
    if code == LAPLACE:
        z = (x - a) / b
        sign = 1.0 if z > 0.0 else -1.0 if z < 0.0 else 0.0
        return -abs(z) - math.log(b), -sign / b, 0.0, sign / b, (abs(z) - 1.0) / b
    if code == HALF_CAUCHY:
        ratio = u - math.log(a)  # logarithm of x / a
        share = 1.0 / (1.0 + math.exp(-2.0 * ratio))
        value = -math.log(a) + log_logistic(-2.0 * ratio)
        return value, 0.0, -2.0 * share, (2.0 * share - 1.0) / a, 0.0
    if code == EXPONENTIAL:
        return math.log(b) - b * x, -b, 0.0, 0.0, 1.0 / b - x
    if code == GAMMA:
        return (a - 1.0) * u - b * x, -b, a - 1.0, 0.0, 0.0
    if code == INVERSE_GAMMA:
        ratio = b * math.exp(-u)
        return -(a + 1.0) * u - ratio, 0.0, ratio - a - 1.0, 0.0, 0.0
    if code == BETA:  # u is the logit
        p = 1.0 / (1.0 + math.exp(-u))
        value = (a - 1.0) * log_logistic(u) + (b - 1.0) * log_logistic(-u)
        return value, 0.0, (a - 1.0) * (1.0 - p) - (b - 1.0) * p, 0.0, 0.0
    return 0.0, 0.0, 0.0, 0.0, 0.0  # FLAT


@nb.njit(**INNER)
def add_priors(theta, natural, slope, own, data, meta, at):
    """Return the log of all priors; add their derivatives to `slope` in values, `own` in natural coordinates.

    `POWERS` is the product of exp(u) to given powers, as Dirichlet and LKJ are. `MULTIVARIATE` is normal with
    a mean and the inverse U of the lower Cholesky factor of the covariance.
    """
    total, row = 0.0, at + ROWS + meta[at] * WIDTH
    for _ in range(meta[at + 1]):
        code, t, count, k = meta[row + CODE], meta[row + FIRST], meta[row + COUNT], meta[row + SIZE]
        total += data[meta[row + CONSTANT]]
        if code == POWERS:
            for e in range(count * k):
                power = _argument(0, e % k, theta, data, meta, row)
                if power != 0.0:
                    total += power * natural[t + e]
                    own[t + e] += power
        elif code == MULTIVARIATE:
            for e in range(count):
                total += _multivariate(t + e * k, k, theta, slope, data, meta, row)
        elif code == NORMAL and _is_plain(theta, data, meta, row):
            total += _normals(t, count, theta, slope, data, meta, row)
        else:
            for e in range(count):
                x, u = theta[t + e], natural[t + e]
                a, b = _argument(0, e, theta, data, meta, row), _argument(1, e, theta, data, meta, row)
                c = _argument(2, e, theta, data, meta, row)
                value, by_x, by_u, by_a, by_b = _one(code, x, u, a, b, c)
                total += value
                slope[t + e] += by_x
                own[t + e] += by_u
                _tell(0, e, by_a, slope, meta, row)
                _tell(1, e, by_b, slope, meta, row)
        row += PRIOR_WIDTH
    return total


@nb.njit(**INNER)
def _is_plain(theta, data, meta, row):
    """Whether all entries have one location, and one scale, whose reciprocal is no overflow."""
    steps = meta[row + ARGUMENTS + 1] + meta[row + ARGUMENTS + 3]
    return steps == 0 and _LEAST_SCALE < _argument(1, 0, theta, data, meta, row) < math.inf


@nb.njit(**INNER)
def _normals(t, count, theta, slope, data, meta, row):
    """Normal densities of one location and scale: one logarithm and one division for all of them."""
    a, b = _argument(0, 0, theta, data, meta, row), _argument(1, 0, theta, data, meta, row)
    inverse, total, squares = 1.0 / b, 0.0, 0.0
    for i in range(t, t + count):
        z = (theta[i] - a) * inverse
        total += z
        squares += z * z
        slope[i] -= z * inverse
    _tell(0, 0, total * inverse, slope, meta, row)
    _tell(1, 0, (squares - count) * inverse, slope, meta, row)
    return -0.5 * squares - count * math.log(b)


@nb.njit(**INNER)
def _multivariate(t, k, theta, slope, data, meta, row):
    mean, inverse = -1 - meta[row + ARGUMENTS], -1 - meta[row + ARGUMENTS + 2]
    total = 0.0
    for i in range(k):
        z = 0.0
        for j in range(i + 1):
            z += data[inverse + i * k + j] * (theta[t + j] - data[mean + j])
        total -= 0.5 * z * z
        for j in range(i + 1):
            slope[t + j] -= z * data[inverse + i * k + j]
    return total


# Densities of named parameters call these by their addresses, so that nothing here is compiled with them.
# ``meta[0]`` is `at`, ``meta[1]`` the number n of values; ``data[0]`` is the power of the prior. `work` (4 n
# + d,) holds values, natural coordinates, derivatives in both, and the gradient in q.


@nb.njit(**UNCOUNTED)
def place(q, work, data, meta):
    """Fill values and natural coordinates; return the log of the Jacobian."""
    n = meta[1]
    return transform(q, work[:n], work[n : 2 * n], data, meta, meta[0])


@nb.njit(**UNCOUNTED)
def begin(q, work, data, meta):
    """Fill values, and the derivatives of all priors to their power; return the log prior to it."""
    n, power = meta[1], data[0]
    for i in range(n, len(work)):
        work[i] = 0.0
    logp = transform(q, work[:n], work[n : 2 * n], data, meta, meta[0])
    slope, own = work[2 * n : 3 * n], work[3 * n : 4 * n]
    logp += add_priors(work[:n], work[n : 2 * n], slope, own, data, meta, meta[0])
    for i in range(n):
        slope[i] *= power
        own[i] *= power
    return power * logp


@nb.njit(**UNCOUNTED)
def end(q, work, data, meta):
    """Add derivatives in values and natural coordinates, and that of the Jacobian, to the gradient in q."""
    n = meta[1]
    theta, natural, slope, own = work[:n], work[n : 2 * n], work[2 * n : 3 * n], work[3 * n : 4 * n]
    pull_back(q, theta, natural, slope, own, data[0], work[4 * n :], data, meta, meta[0])
    return 0.0


@nb.njit(**CALLED)
def prior_alone(q, g, data, meta):
    """Log density without any function of a user, and its gradient."""
    work = np.empty(4 * meta[1] + len(q))
    logp = begin(q, work, data, meta)
    end(q, work, data, meta)
    for i in range(len(g)):
        g[i] = work[4 * meta[1] + i]
    return logp
