"""Bayesian factorization by Gibbs sampling: from a start of gradient descent to the mean of many draws."""

from dataclasses import replace

import numpy as np

from ....kernels.factorization.als import row_losses
from ....kernels.factorization.lanes import LANES
from ....scheduler.engine import run
from ....scheduler.program import Outcome
from ..choose import BURN_IN
from .als import NAMES, AlternatingLeastSquares, rows_of, solve_table
from .sgd import RotationSGD
from .sides import Sides, deviation, mean_rating

_EPOCHS = 5  # of gradient descent before the first sweep
_START_SPREAD, _NOISE = 0.1, 0.1  # of its start, and added at its end: a converged start hardly moves
_STRENGTH = 2.0  # of the prior mean: as of so many rows
_HYPER = 1 << 20  # a shard's number that no shard has: the stream of the coordinator's draws

_RESOLVED = 30  # units of the last place of the mean square of ratings: the least variance of their noise


class GibbsPolish(AlternatingLeastSquares):
    r"""Averaged draws from the posterior of factors and biases under priors that are learned.

    .. math:: r_{ui} \sim N(\mu + b_u + c_i + p_u \cdot q_i, 1 / (\alpha w_{ui})), \quad
              p_u \sim N(m_P, \Lambda_P^{-1}), \quad q_i \sim N(m_Q, \Lambda_Q^{-1}), \quad
              b_u \sim N(0, 1 / \tau_b), \quad c_i \sim N(0, 1 / \tau_c)

    for ratings in standard deviations from their mean, with (m, Lambda) of each side Normal-Wishart (mean 0,
    strength 2, scale I, K degrees of freedom), tau from its posterior under Gamma(1/2, 1/2) and alpha under a
    flat prior of its logarithm. A row's factors and bias are one draw. Without biases the prior means take
    their place. The model is the mean of the draws of the factors, which predicts about as well as the mean
    of the draws' predictions, and of the means of biases given the other draws. `engine` is where the start
    is computed.

    Reference: Salakhutdinov, Mnih, "Bayesian probabilistic matrix factorization using Markov chain Monte
    Carlo", ICML 2008.
    """

    may_rise = True
    format_name = ""
    kinds = ("rows", "prior")

    def __init__(self, entries, settings, seed, engine):
        self._centre = mean_rating(entries, settings)
        self._scale = deviation(entries, self._centre)
        start = self._start(entries, settings, seed, engine)
        standardized = ((entries.values - self._centre) / self._scale).astype(entries.dtype)
        rng, K = np.random.default_rng(seed), settings.n_components
        factors = []
        for part in (start.user_factors, start.item_factors):
            noise = _NOISE * rng.standard_normal(part.shape)
            factors.append((part / np.sqrt(self._scale) + noise).astype(part.dtype))
        biases = [(bias / self._scale).astype(entries.dtype) for bias in (start.user_bias, start.item_bias)]
        super().__init__(replace(entries, values=standardized), settings, seed, first=(factors, biases))
        self.mean = 0.0
        self._rated = [table.counts > 0 for table in (entries, entries.transposed())]
        self.sums = [np.zeros((n, K + settings.bias)) for n in entries.shape]
        self.n_drawn, self.precision = 0, 1.5
        # Sweeps whose draws are kept, as far apart as can be; their arrays have places for all.
        last, n_draws = settings.max_iter - 1, settings.n_draws
        self._kept_sweeps = np.linspace(BURN_IN, last, n_draws).round().astype(int).tolist()
        kept = [(n_draws, n, K + 2 * settings.bias) for n in entries.shape]
        self.draws = [np.zeros(shape, entries.dtype) for shape in kept] + [np.zeros(n_draws)]
        self.n_kept = 0
        self._priors = self._draw_priors(zip(factors, biases, strict=True), 0)

    def _start(self, entries, settings, seed, engine):
        """Fit by gradient descent."""
        program = RotationSGD(
            entries, replace(settings, max_iter=_EPOCHS, offsets=(0.0, 0.0)), seed, _START_SPREAD
        )
        run(program, program.schedule, max_rounds=_EPOCHS, engine=engine, n_jobs=settings.n_jobs)
        return program.sides

    def __getstate__(self):
        return {**super().__getstate__(), "sums": None, "draws": None, "_rated": None}

    def solve(self, state, side, task):
        """Draw a shard's rows; return them, the means of biases given all else, and squared errors."""
        names, table, other = NAMES[side], state["tables"][side], state["rows"][1 - side]
        factors, biases = (state[name].copy() for name in names)
        (n, d), K, bias = factors.shape, self.settings.n_components, self.settings.bias
        noise = np.zeros((n, d + bias), factors.dtype)
        drawn = task.rng(self.seed).standard_normal((n, K + bias), dtype=noise.dtype)
        noise[:, :K], noise[:, d:] = drawn[:, :K], drawn[:, K:]
        prior = state["prior"][side]
        solve_table(
            table, {**other, "gram": prior["matrix"]}, self.settings, factors, biases,
            pull=prior["pull"][None], precision=prior["precision"], ridge=np.zeros(n, factors.dtype),
            bias_ridge=np.full(n, prior["bias"], factors.dtype), noise=noise, n_jobs=1,
        )  # fmt: skip
        state |= dict(zip(names, (factors, biases), strict=True))
        weights = np.bincount(table.rows, np.broadcast_to(table.weights, len(table)), n)
        deviations = 1 / np.sqrt(prior["precision"] * weights + prior["bias"])
        partial = {"rows": (factors, biases, biases - noise[:, d] * deviations if bias else biases)}
        if side == 0:
            return partial
        losses = np.empty(n)
        row_losses(
            0, n, table.indptr, table.indices, table.values, table.weights, other["offsets"],
            other["factors"], factors, biases, losses, self.vectors,
        )  # fmt: skip
        return partial | {"loss": losses.sum()}

    def aggregate(self, tasks, partials):
        """Take the draws of both sides; draw the priors of the next ones."""
        round_, rows = tasks[0].round, rows_of(tasks, partials)
        if round_ >= BURN_IN:
            self.n_drawn += 1
            for total, (factors, _, means) in zip(self.sums, rows, strict=True):
                total += self._columns(factors, means)
        squares = sum(partial["loss"] for partial in partials if "loss" in partial)
        # Of ratings without any noise; a smaller variance than numbers resolve leaves rows no solution.
        share = max(1e-9, _RESOLVED * float(np.finfo(self.dtype).eps))
        least = share * self.n_ratings * max((self._centre / self._scale) ** 2, 1.0)
        rng = self._rng(round_, 2)
        self.precision = rng.gamma(self.n_ratings / 2) / (0.5 * max(squares, least))
        rows = [(factors, biases) for factors, biases, _ in rows]
        if round_ in self._kept_sweeps:
            self._keep(self._kept_sweeps.index(round_), rows)
        self._priors = self._draw_priors(rows, round_ + 1)
        return Outcome(self.publish(), objective=squares * self._scale**2, updates=self.n_ratings)

    def _columns(self, factors, biases):
        """Factors of a side, and its biases, if any, as a last column."""
        factors = factors[:, : self.settings.n_components]
        return np.column_stack([factors, biases]) if self.settings.bias else factors

    def _in_units(self, columns):
        """Bring `_columns` to the units of the ratings."""
        K = self.settings.n_components
        return np.hstack([np.sqrt(self._scale) * columns[:, :K], self._scale * columns[:, K:]])

    def _keep(self, at, rows):
        """Keep the draws of a sweep: with a bias and a 1 as two more factors."""
        for side in (0, 1):
            columns = self._in_units(self._columns(*rows[side]))
            if self.settings.bias:
                columns = np.insert(columns, -1 if side else columns.shape[1], 1, axis=1)
            self.draws[side][at] = columns
        self.draws[2][at] = self._scale**2 / self.precision
        self.n_kept = at + 1

    def publish(self):
        """Send the priors of both sides, and the precision of a rating."""
        return [
            ("prior", side, {**prior, "precision": self.precision}) for side, prior in enumerate(self._priors)
        ]

    def _rng(self, round_, purpose):
        counter = [0, round_, purpose, _HYPER]
        return np.random.Generator(np.random.Philox(key=self.seed, counter=counter))

    def _draw_priors(self, rows, round_):
        """Draw the priors of both sides given their factors and biases."""
        return [
            self._draw_prior(side, factors, biases, round_) for side, (factors, biases) in enumerate(rows)
        ]

    def _draw_prior(self, side, factors, biases, round_):
        """Draw the prior of a side given its factors and biases: Lambda and Lambda m, padded, and tau."""
        K, d, dtype = self.settings.n_components, LANES * len(self.vectors), self.dtype
        rng, rated = self._rng(round_, side), self._rated[side]
        mean, matrix = draw_prior(factors[rated, :K].astype(np.float64), rng)
        whole, pull = np.eye(d), np.zeros(d)
        whole[:K, :K], pull[:K] = matrix, matrix @ mean
        if round_ == 0:  # biases are not draws yet; from less than their variance it would rise slowly
            ratio = 1.0 if self.settings.bias_reg is None else self.settings.bias_reg[side]
            precision = max(ratio, 0.01) * self.precision
        else:
            squares = float((biases[rated].astype(np.float64) ** 2).sum())
            precision = rng.gamma((1 + np.count_nonzero(rated)) / 2) / (0.5 * (1 + squares))
        return {"matrix": whole.astype(dtype), "pull": pull.astype(dtype), "bias": np.array(precision)}

    def collect(self, ask):
        """Gather the rows of all shards, where no draws are averaged yet."""
        if not self.n_drawn:
            super().collect(ask)

    def arrays(self):
        """Arrays of a checkpoint: draws, their sums, and the priors of the next ones."""
        kept = super().arrays()
        for side in (0, 1):
            kept[f"sums-{side}"] = self.sums[side]
            kept |= {f"{name}-{side}": value for name, value in self._priors[side].items()}
        if self.settings.n_draws:
            kept |= {f"draws-{k}": part for k, part in enumerate(self.draws)} | {
                "n_kept": np.array(self.n_kept)
            }
        return kept | {"n_drawn": np.array(self.n_drawn), "precision": np.array(self.precision)}

    def restore(self, arrays):
        """Continue from the draws of a checkpoint."""
        super().restore(arrays)
        self.sums = [arrays[f"sums-{side}"] for side in (0, 1)]
        self._priors = [
            {name: arrays[f"{name}-{side}"] for name in prior} for side, prior in enumerate(self._priors)
        ]
        self.n_drawn, self.precision = int(arrays["n_drawn"]), float(arrays["precision"])
        if self.settings.n_draws:
            self.draws, self.n_kept = [arrays[f"draws-{k}"] for k in range(3)], int(arrays["n_kept"])

    @property
    def sides(self):
        """The mean of the draws; before there is one to average, the last one. Unrated rows have zeros."""
        K, factors, biases = self.settings.n_components, [], []
        for side, rated in enumerate(self._rated):
            columns = (
                self.sums[side] / self.n_drawn if self.n_drawn else self._columns(*self._collected[side])
            )
            columns = (self._in_units(columns) * rated[:, None]).astype(self.dtype)
            factors.append(np.ascontiguousarray(columns[:, :K]))
            biases.append(columns[:, K] if self.settings.bias else np.zeros_like(columns[:, 0]))
        sides = Sides.of(factors, [np.ascontiguousarray(bias) for bias in biases], self._centre)
        if self.n_kept:
            sides.draws = tuple(part[: self.n_kept].copy() for part in self.draws)
        return sides


def draw_prior(X, rng):
    """Draw mean (K,) and precision (K, K) of the prior of rows X (n, K), Normal-Wishart."""
    n, K = X.shape
    mean = X.mean(axis=0)
    centred = X - mean
    scatter = np.eye(K) + centred.T @ centred + n * _STRENGTH / (n + _STRENGTH) * np.outer(mean, mean)
    # Bartlett: a Wishart matrix is M T T' M' with M M' = scale, normals below the diagonal of T, chis on it.
    T = np.tril(rng.standard_normal((K, K)), -1)
    T[np.diag_indices(K)] = np.sqrt(rng.chisquare(K + n - np.arange(K)))
    M = np.linalg.cholesky(np.linalg.inv(scatter)) @ T
    precision = M @ M.T
    root = np.linalg.cholesky((n + _STRENGTH) * precision)
    return n * mean / (n + _STRENGTH) + np.linalg.solve(root.T, rng.standard_normal(K)), precision
