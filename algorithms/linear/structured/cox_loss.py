"""The partial likelihood of Cox's model: risk sets, ties, strata and left truncation."""

import functools
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from ....errors import DataError
from ....kernels.linear.cox import risk_sums

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
        self.offset, self.n, self.w, self.event = offset, n, weights, event
        self._last: Any = None  # risks of the last predictor
        strata = np.zeros(n, np.int64) if strata is None else strata
        self.strata = strata
        stops, begins = np.zeros(n, np.int64), np.zeros(n, np.int64)
        times, self.edges = [], [0]
        for s in range(int(strata.max()) + 1):
            rows = np.flatnonzero(strata == s)
            deaths = np.unique(time[rows][event[rows]])
            stops[rows] = self.edges[-1] + np.searchsorted(deaths, time[rows], side="right")
            begins[rows] = self.edges[-1]
            if entry is not None:
                begins[rows] += np.searchsorted(deaths, entry[rows], side="right")
            times.append(deaths)
            self.edges.append(self.edges[-1] + len(deaths))
        self.times, self.stops, self.begins = np.concatenate(times), stops, begins
        self.of_stratum = np.repeat(np.arange(len(times)), np.diff(self.edges))
        T = len(self.times)
        self.first = np.asarray(self.edges)[strata]
        self.dead = np.flatnonzero(event)
        self.at = stops[self.dead] - 1
        counts = np.bincount(self.at, minlength=T)
        self.mass = np.bincount(self.at, weights[self.dead], T)
        if ties == "breslow":
            self.term, self.c, self.m = np.arange(T), np.zeros(T), self.mass / n
        else:
            self.term = np.repeat(np.arange(T), counts)
            within = np.arange(len(self.term)) - np.repeat(np.cumsum(counts) - counts, counts)
            self.c = within / counts[self.term]
            self.m = (self.mass / counts)[self.term] / n
        per_time = np.bincount(self.term, minlength=T)
        self.has_conjugate = bool((per_time * counts).sum() <= _MOST_PAIRS)

    def start(self):
        """No intercept."""
        return np.zeros(1)

    def least(self):
        """The value when those who die have all the risk."""
        return float(self.m @ np.log(self.mass[self.term] * (1 - self.c)))

    def _sums(self, rows, v, c, scale, out):
        """Fill `out`, by terms, with sums over those at risk, less c times those over who die."""
        at = self.stops, self.begins, self.first, self.dead, self.at
        risk_sums(rows, v, *at, np.asarray(self.edges), self.term, c, scale, out)
        return out

    def _of_terms(self, values, v, c):
        """The same of the values of rows, times v."""
        return self._sums(values[None], v, c, np.ones(len(self.term)), np.empty((1, len(self.term))))[0]

    def _risks(self, f):
        """Risks over the largest of their stratum, its logarithm, and the sum of each term."""
        if self._last is None or self._last[0] is not f:
            tops = np.full(len(self.edges) - 1, -np.inf)
            np.maximum.at(tops, self.strata, f[:, 0])
            v = self.w * np.exp(f[:, 0] - tops[self.strata])
            sums = self._of_terms(np.ones(self.n), v, self.c)
            self._last = f, v, tops, np.maximum(sums, 1e-300)
        return self._last[1:]

    def value(self, f):
        """See `mean_loss.MeanLoss`."""
        if not np.isfinite(f).all():
            return np.inf
        _, tops, sums = self._risks(f)
        logs = np.log(sums) + tops[self.of_stratum[self.term]]
        return float(self.m @ logs - self.w[self.dead] @ f[self.dead, 0] / self.n)

    objective = value

    def _rates(self, v, sums):
        """Sum of ``m / sums`` over the terms in which each row is at risk."""
        T = len(self.times)
        each = self.m / sums
        upto = np.concatenate([[0], np.cumsum(np.bincount(self.term, each, T))])
        rates = upto[self.stops] - upto[self.begins]
        rates[self.dead] -= np.bincount(self.term, self.c * each, T)[self.at]
        return rates

    def gradient(self, f):
        """See `mean_loss.MeanLoss`."""
        v, _, sums = self._risks(f)
        slope = v * self._rates(v, sums)
        slope[self.dead] -= self.w[self.dead] / self.n
        return slope[:, None]

    def steepness(self, f):
        """See `mean_loss.MeanLoss`: the Hessian is at most the diagonal matrix of these."""
        v, _, sums = self._risks(f)
        return np.maximum(v * self._rates(v, sums), 0)

    def gram(self, f, columns, part, intercept):
        """The Hessian in the space of some columns: see `mean_loss.MeanLoss`."""
        v, _, sums = self._risks(f)
        H = columns.gram(part, self.steepness(f))
        scale = np.sqrt(self.m) / sums
        if not columns.is_sparse:
            means = self._sums(part.T, v, self.c, scale, np.empty((part.shape[1], len(self.term))))
            return H - means @ means.T, None, 0.0
        weighted = part.multiply(v[:, None]).tocsr()
        bins, deaths = self._incidence
        sets, deaths = (bins @ weighted).toarray(), (deaths @ weighted).toarray()
        for a, b in zip(self.edges[:-1], self.edges[1:], strict=True):
            sets[a:b] = np.cumsum(sets[a:b][::-1], axis=0)[::-1]
        means = (sets[self.term] - self.c[:, None] * deaths[self.term]) * scale[:, None]
        return H - means.T @ means, None, 0.0

    @functools.cached_property
    def _incidence(self):
        """Matrices of times and rows: where rows come and go, backwards in time, and where they die."""
        ends, starts = np.flatnonzero(self.stops > self.first), np.flatnonzero(self.begins > self.first)
        values = np.concatenate([np.ones(len(ends)), -np.ones(len(starts))])
        at = np.concatenate([self.stops[ends] - 1, self.begins[starts] - 1]), np.concatenate([ends, starts])
        shape = len(self.times), self.n
        deaths = sparse.csr_array((np.ones(len(self.dead)), (self.at, self.dead)), shape=shape)
        return sparse.csr_array((values, at), shape=shape), deaths

    def conjugate(self, u, scale, f):
        """Conjugate at a share of the slopes, from the entropies of risks mixed with those of the dead."""
        v, tops, sums = self._risks(f)
        f = f[:, 0]
        s, f0 = scale, f - tops[self.strata]
        in_term = np.bincount(self.at, v[self.dead], len(self.times))[self.term]
        others = 1 - (1 - self.c) * in_term / sums
        moments = self._of_terms(f0, v, np.ones(len(self.term)))
        total = s * moments / sums + others * (xlogy(s, s) - s * np.log(sums))
        # Pairs of a term and a death at its time.
        counts = np.bincount(self.at, minlength=len(self.times))
        by_time = np.argsort(self.at, kind="stable")
        first = np.cumsum(counts) - counts
        sizes = counts[self.term]
        pair = np.repeat(np.arange(len(self.term)), sizes)
        row = self.dead[
            by_time[
                np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + first[self.term[pair]]
            ]
        ]
        a = self.w[row] * (1 - self.c[pair])
        share = (1 - s) * self.w[row] / self.mass[self.term[pair]] + s * a * np.exp(f0[row]) / sums[pair]
        total += np.bincount(pair, xlogy(share, share / a), len(self.term))
        value = float(self.m @ total)
        return value if self.offset is None else value - s * float(np.sum(u * self.offset))

    def hazard(self, f):
        """Increments of the cumulative hazard at `times`, of a predictor of 0."""
        _, tops, sums = self._risks(f)
        T = len(self.times)
        return np.bincount(self.term, self.n * self.m / sums, T) * np.exp(-tops[self.of_stratum])
