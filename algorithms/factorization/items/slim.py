"""SLIM: each item's choices as a sparse, non-negative combination of those of others, by elastic nets."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from ...._typing import Engine
from ....kernels.factorization.item_products import (
    count_products,
    fill_products,
    gather_products,
    subtract_products,
)
from ....kernels.linear.gram_path import solve_path
from ....scheduler.threads import effective_n_jobs, run_tasks
from ....scheduler.workers import open_workers
from ..._base import ENGINES, documented, keep_parameters
from ...inputs.memory import refuse_beyond
from .base import ATTRIBUTES, PARAMETERS, ItemModel, ranges, tables_of

_PARTS = 8  # tasks a thread, for balance
_ITEMS = 64  # solved by a task: enough that on a cluster its message is small compared with the work
_FIRST = 64  # items that enter the working set at first, and at least those that join in a round
_ROUNDS = 50  # of working sets; a cap
_SWEEPS = 200  # rounds of a solution on a working set; a cap


@documented({"binary": PARAMETERS, "attributes": ATTRIBUTES})
class SLIM(ItemModel):
    r"""Sparse linear method: elastic nets of each item's choices on those of all others, without negatives.

    For each item j it minimises

    .. math:: \frac{1}{2} |x_j - X w|^2 + \lambda_1 |w|_1 + \frac{\lambda_2}{2} |w|^2
              \quad \text{with} \quad w \ge 0, \ w_j = 0

    until the duality gap is at most ``tol * |x_j|^2 / 2``. Scores of a user are ``x W``, with few weights an
    item. The sums :math:`x_i \cdot x_j` are computed once. An item for which this is at most lambda_1 has no
    weight, which is exact, as values are not negative; of the others, those that break the optimality
    conditions join a working set.

    Memory while fitting is 12 bytes for each pair of items with a common user. The result is *bitwise* the
    same for any `n_jobs` and any number of workers.

    Parameters
    ----------
    l1_reg : float, default=5.0
        lambda_1, above 0; in units of users, with ``binary=True``.
    l2_reg : float, default=100.0
        lambda_2.
    n_neighbors : int or None, default=None
        The largest weights of each item that are kept; None keeps all.
    tol : float, default=1e-4
    memory_limit : int, str or None, default=None
        Bytes, or "4GB": a fit that needs more is refused. None is the memory of this machine.
    %(binary)s
    engine : str or distributed.Client, default="local"
        "local"; "dask", the current Dask client; a client; or the address of a Dask scheduler. Items are
        solved on the workers, each of which gets all products.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. On Dask those of each worker; None is all it has.
    verbose : int or bool, default=0
        Show the progress.

    Attributes
    ----------
    %(attributes)s
    item_weights_ : csr_array of float32, shape (n_items, n_items)
        W: ``item_weights_[j, i]`` is what a choice of j adds to the score of i.
    dual_gap_ : float
        The largest duality gap of an item, as a part of ``|x_j|^2 / 2``.

    Raises
    ------
    DataError
        If the products of items do not fit the memory; see `fit`, too.

    Warns
    -----
    ConvergenceWarning
        If the gap of an item stays above `tol`.

    References
    ----------
    Ning, Karypis, "SLIM: sparse linear methods for top-N recommender systems", ICDM 2011.

    Examples
    --------
    >>> import stradask as sd
    >>> from stradask.datasets import make_ratings
    >>> counts, _ = make_ratings(300, 60, 3, density=0.2, implicit=True, random_state=0)
    >>> slim = sd.SLIM(l1_reg=2, l2_reg=10).fit(counts)
    >>> slim.dual_gap_ <= 1e-4
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "l1_reg": [Interval(Real, 0, np.inf, closed="neither")],
        "l2_reg": [Interval(Real, 0, np.inf, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "memory_limit": [Interval(Integral, 1, None, closed="left"), str, None],
        "binary": ["boolean"],
        "engine": ENGINES,
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        l1_reg: float = 5.0,
        l2_reg: float = 100.0,
        *,
        n_neighbors: int | None = None,
        tol: float = 1e-4,
        memory_limit: Any = None,
        binary: bool = True,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def _learn(self, X):
        n_items = X.shape[1]
        n_jobs = self.n_jobs if self.engine == "local" else -1  # the products are this machine's work
        products = gram(X, n_jobs, self.memory_limit)
        given = float(self.l1_reg), float(self.l2_reg), float(self.tol), self.n_neighbors
        work = [(0, a, b, *given) for a, b in ranges(n_items, -(-n_items // _ITEMS))]
        with open_workers(self.engine, self.n_jobs).tasks([products], name="products of items") as tasks:
            bar = {"label": type(self).__name__, "unit": "block", "verbose": self.verbose}
            found = tasks.map(solve_items, work, **bar)
        rows, columns, weights, gaps = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.item_weights_ = sparse.csr_array((weights, (rows, columns)), shape=(n_items, n_items))
        self.dual_gap_ = float(gaps.max())
        if self.dual_gap_ > self.tol:
            warnings.warn(
                f"the duality gaps of {np.count_nonzero(gaps > self.tol)} of {n_items} items are above "
                f"tol={self.tol:g}, the largest {self.dual_gap_:.2g}: take a larger tol or l2_reg",
                ConvergenceWarning,
                stacklevel=3,
            )


def gram(X, n_jobs, memory_limit):
    """Sparse products of all pairs of columns: indptr, indices, data, columns of a row in no order."""
    n_items = X.shape[1]
    by_item, by_user = tables_of(X)
    parts = ranges(n_items, _PARTS * effective_n_jobs(n_jobs))
    counts = np.empty(n_items, np.int64)
    run_tasks([(count_products, (a, b, by_item, by_user, counts)) for a, b in parts], n_jobs)
    indptr = np.append(0, np.cumsum(counts))
    refuse_beyond(
        memory_limit, 12.0 * indptr[-1],
        f"SLIM of {n_items:,} items, {indptr[-1]:,} pairs of which have common users, takes",
        "leave out rare items, or take ItemKNN",
    )  # fmt: skip
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1])
    run_tasks([(fill_products, (a, b, by_item, by_user, indptr, indices, data)) for a, b in parts], n_jobs)
    return indptr, indices, data


def solve_items(products, first, last, l1, l2, tol, most):
    """Solve for a range of items; return rows, columns and weights, and the relative gap of each item."""
    indptr, indices, data = products
    n_items = len(indptr) - 1
    slopes, position = np.zeros(n_items), np.full(n_items, -1, np.int64)
    rows, columns, weights, gaps = [], [], [], []
    for j in range(first, last):
        own = slice(indptr[j], indptr[j + 1])
        members, coefs, gap = solve_item(j, indices[own], data[own], products, l1, l2, tol, slopes, position)
        kept = np.flatnonzero(coefs > 0)
        if most is not None and len(kept) > most:
            kept = np.sort(kept[np.argsort(-coefs[kept], kind="stable")[:most]])
        rows.append(members[kept])
        columns.append(np.full(len(kept), j))
        weights.append(coefs[kept].astype(np.float32))
        gaps.append(gap)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(weights), np.array(gaps)


def solve_item(j, others, c, products, l1, l2, tol, slopes, position):
    """Solve for one item by growing working sets; return their members, coefficients and the relative gap.

    `others` and `c` are the items with users in common and the products with them. `slopes` is zero, and is
    so again at the end; `position` is -1 everywhere, as well.
    """
    y_y = float(c[others == j][0]) if len(c) else 0.0
    may = (c > l1) & (others != j)
    order = np.lexsort((others[may], -c[may]))
    candidates, c = others[may][order], c[may][order]
    if not len(candidates):
        return candidates, np.empty(0), 0.0
    eps = 0.5 * tol * y_y
    S, before = np.arange(min(_FIRST, len(candidates))), np.empty((0, 0))
    coefs = np.zeros(len(candidates))
    for _ in range(_ROUNDS):
        members = candidates[S]
        G, found = np.empty((len(S), len(S))), np.zeros((1, len(S)))
        G[: len(before), : len(before)] = before
        gather_products(members, len(before), *products, position, G)
        ones, start = np.ones(len(S)), coefs[S]
        solve_path(
            G, c[S], y_y, ones, ones, np.array([l1]), np.array([l2]), True, 0.5 * eps, _SWEEPS, start, found,
            np.zeros((1, 4)),
        )  # fmt: skip
        coefs[S] = start  # where the last step ended, solved or not
        slopes[candidates] = c
        subtract_products(members, start, *products, slopes)
        left = slopes[candidates] - l2 * coefs
        touched = coefs > 0
        slopes[:] = 0
        gap = _gap(coefs, left, c, y_y, l1, l2)
        left[S] = 0  # those that may still break a condition are not in the set
        violating = np.flatnonzero(left > l1)
        if gap <= eps or not len(violating):
            break
        n_more = max(_FIRST, int(touched.sum()))
        worst = violating[np.argsort(-left[violating], kind="stable")[:n_more]]
        S, before = np.append(S, worst), G
    return candidates, coefs, 2 * gap / y_y


def _gap(b, left, c, y_y, l1, l2):
    """Duality gap; `left` are the slopes less ``l2 b``. See `kernels.linear.gram_path`."""
    b_left = float(b @ left)  # b (c - G b) - l2 b b
    squares = l2 * float(b @ b)
    c_b = float(c @ b)
    r_r = max(y_y - c_b - (b_left + squares), 0.0)
    primal = 0.5 * (r_r + squares) + l1 * float(b.sum())
    y_r, total = y_y - c_b, r_r + squares
    s = min(max(y_r / total, 0.0) if total > 0 else 0.0, l1 / max(float(left.max()), l1))
    return max(primal - (s * y_r - 0.5 * s * s * total), 0.0)
