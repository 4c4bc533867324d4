r"""Log densities of a tall shard at many points, from few of its rows: for the second round.

A log density :math:`\ell` is a sum over rows. With T, its second-order expansion about the points' middle,

.. math:: \hat\ell(\theta) = T(\theta) + \frac{1}{J} \sum_j \frac{n}{m_j} (\ell_j(\theta) - T_j(\theta))

over J = 8 subsets of rows is unbiased, as T is linear in :math:`\ell`. The terms differ by third order alone:
where n rows leave a posterior :math:`1 / \sqrt n` wide, a hundredth of the rows gives the logarithm to some
thousandths. The spread of the J terms says how well, at each point. Points where that is too little are
evaluated with all rows.

Reference: Quiroz, Kohn, Villani, Tran, "Speeding up MCMC by efficient data subsampling", JASA 2019.
"""

import numpy as np

N_SUBSETS = 8  # estimates of a log density, whose spread is its standard error
LEAST_ROWS = 200_000  # of a shard, for subsets to be made
_PART, _LEAST_IN_ALL = 100, 20_000  # all subsets together have n / 100 rows, and at least so many
_MOST_NOISE = 0.02  # standard error of a log density that is taken; weights then differ by as much
_CHECKED = 32  # points at which all rows are looked at, too
_TIMES, _ROUNDING = 3.0, 1e-3  # standard errors, and more, that the two may differ by
_FEWEST = 500  # points, below which all rows are looked at
_MOST_EXACT = 0.25  # part of the points that may need all rows


def subsets_of(n_rows):
    """Numbers of the rows of each subset, disjoint; none where there are too few rows."""
    if n_rows < LEAST_ROWS:
        return []
    rng = np.random.Generator(np.random.Philox(n_rows))
    size = max(n_rows // _PART, _LEAST_IN_ALL)
    rows = rng.choice(n_rows, size, replace=False)
    return [np.sort(rows[j::N_SUBSETS]) for j in range(N_SUBSETS)]


def estimates(model, parts, places):
    """Estimate log densities (K,) and gradients (K, d) of a model; also the squared errors of the first.

    `parts` are pairs of a model of some rows, whose prior has as small a part of its power, and of the factor
    n / m. `places` are the points (K, d), their middle (d,) and a root (d, d) of their covariance.
    """
    points, middle, root = places
    z = np.linalg.solve(root, (points - middle).T).T
    values, slopes = _expansion(model, middle, root)(z)
    terms, more = np.empty((len(parts), len(points))), 0.0
    for term, (one, factor) in zip(terms, parts, strict=True):
        heights, gradients = one.logp_grads(points)
        about, tilts = _expansion(one, middle, root)(z)
        with np.errstate(invalid="ignore"):
            term[:] = factor * (heights - about)
            more = more + factor * (gradients @ root - tilts)
    with np.errstate(invalid="ignore"):
        errors = terms.var(axis=0, ddof=1) / len(parts)
        values = values + terms.mean(axis=0)
    slopes = slopes + more / len(parts)
    return values, np.linalg.solve(root.T, slopes.T).T, np.where(np.isfinite(values), errors, np.inf)


def _expansion(model, middle, root):
    """The second-order expansion about the middle, by slopes a standard deviation to each side."""
    d = len(middle)
    heights, gradients = model.logp_grads(np.concatenate([[middle], middle + root.T, middle - root.T]))
    slopes = gradients @ root
    hessian = (slopes[1 : d + 1] - slopes[d + 1 :]) / 2
    hessian = (hessian + hessian.T) / 2

    def at(z):
        tilts = z @ hessian
        return heights[0] + z @ slopes[0] + (tilts * z).sum(axis=1) / 2, slopes[0] + tilts

    return at


def summed(exact, estimate, points):
    """Sum log densities (K,) and gradients (K, d) over shards by subsets; None if they do not serve.

    ``exact(points)`` gives both with all rows, ``estimate(places)`` those of `estimates`, summed. The third
    result is the root mean square of the standard errors, or of the errors at the compared points if these
    are larger: a heavy row that is in no subset widens no spread.
    """
    if len(points) < _FEWEST:
        return None
    middle, spread = points.mean(axis=0), np.atleast_2d(np.cov(points.T))
    try:
        root = np.linalg.cholesky(spread)
    except np.linalg.LinAlgError:
        return None
    values, gradients, squares = estimate((points, middle, root))
    errors = np.sqrt(squares)
    poor = np.flatnonzero(~(errors <= _MOST_NOISE))
    if len(poor) > _MOST_EXACT * len(points):
        return None
    good = np.setdiff1d(np.arange(len(points)), poor)
    seen = good[np.linspace(0, len(good) - 1, _CHECKED).astype(int)]
    known = np.concatenate([seen, poor])
    heights, slopes = exact(points[known])
    noise = float(np.sqrt(np.mean(squares[good])))
    apart = float(np.sqrt(np.mean((heights[: len(seen)] - values[seen]) ** 2)))
    if not apart <= _TIMES * noise + _ROUNDING:
        return None
    values[known], gradients[known] = heights, slopes
    return values, gradients, max(noise, apart)
