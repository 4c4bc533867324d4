"""The partial likelihood of Cox's model: risk sets, ties, strata and left truncation."""

import numpy as np
from scipy import sparse

from ....errors import DataError
from ....kernels.linear.cox import conjugate, partial_likelihood, risk_sums, risks

_LEAST = 1e-300  # of a sum of risks, some of which vanish
_MOST_PAIRS = 5_000_000  # of tied deaths and terms, for which a gap is computed


class PartialLikelihood:
    """Minus the logarithm of the partial likelihood, over the number of rows, as a loss of the solver.

    A row is at risk at times t with ``entry < t <= time``. Each time of deaths has one term by Breslow; by
    Efron as many as there are deaths, the l-th of which counts those who die at that time ``1 - l / d``
    times.

    `weights`: (n_samples,), of mean 1. `strata`: int64 (n_samples,), from 0. `offset`: (n_samples, 1) or
    None.
    """

    quadratic, convex, flat, n_outputs, by_rows = False, True, False, 1, False

    def __init__(self, time, event, weights, *, ties, entry=None, strata=None, offset=None):
        n = len(time)
        event = event & (weights > 0)
        if not event.any():
            raise DataError(
                "y has no event in a row with weight: all rows are censored, and no risk can be compared"
            )
        # Its steps of single columns, see `solving.second_order`, need sums that are not differences.
        self.code = "partial likelihood" if entry is None else None
        self.offset, self.n, self.w, self.weights = offset, n, weights, weights / n
        self._last: tuple = (None, None)
        strata = np.zeros(n, np.int64) if strata is None else strata
        stops, begins = np.zeros(n, np.int64), np.zeros(n, np.int64)
        times, edges = [], [0]
        for s in range(int(strata.max()) + 1):
            rows = np.flatnonzero(strata == s)
            deaths = np.unique(time[rows][event[rows]])
            stops[rows] = edges[-1] + np.searchsorted(deaths, time[rows], side="right")
            begins[rows] = edges[-1]
            if entry is not None:
                begins[rows] += np.searchsorted(deaths, entry[rows], side="right")
            times.append(deaths)
            edges.append(edges[-1] + len(deaths))
        self.times, self.edges = np.concatenate(times), np.array(edges)
        self.of_stratum = np.repeat(np.arange(len(times)), np.diff(edges))
        T = len(self.times)
        dead = np.flatnonzero(event)
        at = stops[dead] - 1
        counts = np.bincount(at, minlength=T)
        self.mass = np.bincount(at, weights[dead], T)
        firsts = np.concatenate([[0], np.cumsum(counts)])
        self._deaths = dead[np.argsort(at, kind="stable")], firsts, self.mass
        if ties == "breslow":
            self.term, self.c, self.m = np.arange(T), np.zeros(T), self.mass / n
        else:
            self.term = np.repeat(np.arange(T), counts)
            self.c = (np.arange(len(self.term)) - firsts[self.term]) / counts[self.term]
            self.m = (self.mass / counts)[self.term] / n
        per_time = np.bincount(self.term, minlength=T)
        self.has_conjugate = bool((per_time * counts).sum() <= _MOST_PAIRS)
        died = np.where(event, self.weights, 0.0)
        self._work = np.empty((2, T))
        self.risk = stops, begins, strata, self.edges, died, self.term, self.c, self.m

    def start(self):
        """No intercept."""
        return np.zeros(1)

    def least(self):
        """The value when those who die have all the risk."""
        return float(self.m @ np.log(self.mass[self.term] * (1 - self.c)))

    def _risks(self, f):
        """Risks over the largest of their stratum, its logarithm, and the sum of each term."""
        v, tops, totals = np.empty(self.n), np.empty(len(self.edges) - 1), np.empty((1, len(self.term)))
        risks(self.risk[2], self.w, np.ascontiguousarray(f[:, 0]), v, tops)
        self._sum(np.ones((1, self.n)), v, self.c, np.ones(len(self.term)), totals)
        # Of rows that enter late, sums are differences: those who die are left, whatever rounding does.
        dying = (1 - self.c) * self._work[1, self.term]
        return v, tops, np.maximum(totals[0], np.maximum(dying, _LEAST))

    def _sum(self, A, v, c, scale, out):
        risk_sums(A, v, self.risk, c, scale, self._work, out)
        return out

    def _rows(self, f):
        """Value, slopes, bounds of the curvatures, and risks at a predictor; those of the last are kept."""
        if self._last[0] is not f:
            v, *sums = self._risks(f)
            u, h = np.empty((self.n, 1)), np.empty(self.n)
            terms = v, *sums, self.risk, self._work
            value = partial_likelihood(np.ascontiguousarray(f[:, 0]), *terms, u[:, 0], h)
            self._last = f, (value, u, h, (v, *sums))
        return self._last[1]

    def at(self, f):
        """See `mean_loss.MeanLoss`."""
        value, u, h, _ = self._rows(f)
        return value, u[:, 0], h

    def value(self, f):
        """See `mean_loss.MeanLoss`."""
        return value if np.isfinite(value := self._rows(f)[0]) else np.inf

    objective = value

    def gradient(self, f):
        """See `mean_loss.MeanLoss`."""
        return self._rows(f)[1]

    def steepness(self, f):
        """See `mean_loss.MeanLoss`: the Hessian is at most the diagonal matrix of these."""
        return self._rows(f)[2]

    def means(self, f, A):
        """What makes the Hessian, in the space of columns A (m, n), less than that of `steepness`."""
        v, _, totals = self._rows(f)[3]
        out = np.empty((len(A), len(self.term)))
        return self._sum(A, v, self.c, np.sqrt(self.m) / totals, out)

    def gram(self, f, columns, part, intercept):
        """The Hessian in the space of some columns: see `mean_loss.MeanLoss`."""
        A = np.ascontiguousarray(part.toarray().T if sparse.issparse(part) else part.T)
        means = self.means(f, A)
        return columns.gram(part, self.steepness(f)) - means @ means.T, None, 0.0

    def conjugate(self, u, scale, f):
        """Conjugate at a share of the slopes, from the entropies of risks mixed with those of the dead."""
        v, tops, totals = self._rows(f)[3]
        ones, moments = np.ones(len(self.term)), np.empty((1, len(self.term)))
        self._sum((f[:, 0] - tops[self.risk[2]])[None], v, ones, ones, moments)
        value = conjugate(v, totals, moments[0], float(scale), self.w, self.risk, *self._deaths)
        return value if self.offset is None else value - scale * float(np.sum(u * self.offset))

    def hazard(self, f):
        """Increments of the cumulative hazard at `times`, of a predictor of 0."""
        _, tops, sums = self._rows(f)[3]
        T = len(self.times)
        return np.bincount(self.term, self.n * self.m / sums, T) * np.exp(-tops[self.of_stratum])
