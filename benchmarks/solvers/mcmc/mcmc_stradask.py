"""stradask: NUTS, the sampler that "auto" picks, and shards."""

import math
import time

import numpy as np

PRIOR_SCALE = 2.5


class Solver:
    """`stradask.BayesianLogisticRegression`, and `stradask.sample` with compiled densities for the rest."""

    name = "stradask"
    method = "NUTS; auto: importance sampling about the mode, split HMC or NUTS (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings, self.raced = settings, None

    def set_data(self, data):
        """Keep the arrays; compile the density, which a user does once for a model."""
        self.data, self.kind = data, str(data.kind)
        if self.kind == "logistic":
            self.X, self.y = np.ascontiguousarray(data.X), data.y.astype(int)
            return
        self.functions = DENSITIES[self.kind]()
        columns = [getattr(data, name) for name in ("x", "y", "s") if hasattr(data, name)]
        self.rows = np.column_stack(columns) if len(columns) > 1 else data.y
        start = np.zeros(10) if self.kind == "eight-schools" else data.start
        for _ in range(2):  # once to compile, as other systems compile for their data
            self._sample("nuts", start, n_samples=10, n_warmup=20)
        self.start = start

    def _sample(self, sampler, start, **settings):
        import warnings

        import stradask

        log_likelihood, log_prior = self.functions
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stradask.errors.PosteriorWarning)  # what is wrong is judged
            return stradask.sample(
                log_likelihood,
                log_prior,
                self.rows,
                start,
                sampler=sampler,
                n_chains=self.settings.n_chains,
                n_jobs=self.settings.n_jobs,
                random_state=self.settings.seed,
                **settings,
            )

    def sample(self):
        """Chains of the whole posterior by NUTS, as the peers have it."""
        return self._draw("nuts")

    def automatic(self):
        """What is drawn where nothing is said; weighted draws are resampled."""
        return self._draw("auto")

    def _draw(self, sampler):
        counts = {"n_samples": self.settings.n_samples, "n_warmup": self.settings.n_warmup}
        if self.kind == "logistic":
            return _arrays(self._fit(sampler, **counts).posterior_, self.settings.n_chains)
        arrays = _arrays(self._sample(sampler, self.start, **counts), self.settings.n_chains)
        if self.kind == "eight-schools":
            arrays["draws"] = arrays["draws"][..., 8:]
        return arrays

    def _fit(self, sampler, **settings):
        import warnings

        import stradask

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stradask.errors.PosteriorWarning)
            return stradask.BayesianLogisticRegression(
                prior_scale=PRIOR_SCALE,
                fit_intercept=False,
                sampler=sampler,
                n_chains=self.settings.n_chains,
                n_jobs=self.settings.n_jobs,
                random_state=self.settings.seed,
                **settings,
            ).fit(self.X, self.y)

    def combine(self, n_shards, method):
        """Sample shards one after another, each timed, and put their draws together."""
        from stradask.algorithms.bayes.models import model as models

        counts = {"n_samples": self.settings.n_samples, "n_warmup": self.settings.n_warmup}
        counts |= {"n_chains": self.settings.n_chains, "n_jobs": self.settings.n_jobs}
        n_draws = self.settings.n_samples * self.settings.n_chains
        prior = models.Prior("normal", PRIOR_SCALE)

        def build(rows):
            signs = 2.0 * self.y[rows] - 1
            return models.regression("bernoulli", self.X[rows], signs, prior=prior, power=1 / n_shards)

        return self._shards(build, n_shards, method, n_draws, counts, time.perf_counter)

    def _shards(self, build, n_shards, method, n_draws, counts, clock):
        import warnings

        from stradask.algorithms.bayes.chains import sampling
        from stradask.algorithms.bayes.combine import combiners as combine

        order = np.random.default_rng(self.settings.seed).permutation(len(self.data.y))
        seconds, samples, densities = [], [], []
        for shard, rows in enumerate(np.array_split(order, n_shards)):
            started = clock()
            model = build(rows)
            samples.append(
                sampling.sample_model(model, seed=self.settings.seed, shard=shard, weighted=False, **counts)
            )
            seconds.append(clock() - started)
            densities.append(model)

        def log_density(points):
            """Each shard has a core of its own, so the slowest alone counts."""
            parts = []
            for model in densities:
                begun = clock()
                parts.append(model.logp_batch(points))
                elsewhere.append(clock() - begun)
            return np.sum(parts, axis=0)

        elsewhere: list[float] = []
        started = clock()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", combine.CombinationWarning)
                found = combine.combine(
                    np.stack([sample.stacked() for sample in samples]),
                    gradients=np.stack([sample.stacked("gradients") for sample in samples]),
                    log_density=log_density,
                    method=method,
                    n_draws=n_draws,
                    random_state=self.settings.seed,
                )
        except combine.CombinationRefused as error:
            return {"refused": np.array(str(error))}
        spent = clock() - started - sum(elsewhere) * (1 - 1 / n_shards)
        draws, worth = _resampled(found, self.settings.seed)
        figures = {"shard_seconds": np.array(seconds), "combine_seconds": np.array(spent)}
        figures |= {"k_hat": np.array(found.figures.get("k_hat", np.nan))}
        return {"draws": draws[None], "worth": np.array(worth)} | figures

    def race(self, n_shards, rival):
        """Shards, or what a rival has after as many seconds on as many cores; see ``_mcmc_race``."""
        import _mcmc_race as race

        from stradask.algorithms.bayes.models.density import user_model

        likelihood, prior = self.functions
        if self.raced is None:

            def build(rows):
                return user_model(likelihood, prior, self.rows[rows], self.start, power=1 / n_shards)

            self.raced = self._shards(build, n_shards, "auto", race.PROPOSALS, race.COUNTS, time.process_time)
        if rival == "shards" or "refused" in self.raced:
            return self.raced
        whole = user_model(likelihood, prior, self.rows, self.start)
        seconds = float(max(self.raced["shard_seconds"]) + self.raced["combine_seconds"])
        found = getattr(race, rival)(whole, n_shards, seconds, self.settings.seed)
        return found | {"shard_seconds": np.array([seconds]), "combine_seconds": np.array(0.0)}


def _resampled(found, seed):
    if found.log_weights is None:
        return found.draws, math.inf
    from stradask.algorithms.bayes.posterior.psis import importance_ess, resample

    rng = np.random.default_rng(seed)
    chosen = found.draws[resample(found.log_weights, len(found.draws), rng)]
    return chosen, importance_ess(found.log_weights)


def _arrays(posterior, n_chains):
    """Draws in chains; of weighted ones also what they are worth."""
    draws = posterior.draws
    arrays = {"draws": draws.reshape(n_chains, -1, draws.shape[-1])}
    diagnostics = posterior.diagnostics
    if posterior.method.startswith("laplace"):
        arrays["worth"] = np.array(float(diagnostics.row("importance ESS")["value"]))
    return arrays


def _schools():
    from math import exp, log1p

    import numba

    @numba.njit
    def log_likelihood(q, rows, g):
        mu, tau, total = q[8], exp(q[9]), 0.0
        for j in range(8):
            weight = 1 / (rows[j, 1] * rows[j, 1])
            rest = rows[j, 0] - mu - tau * q[j]
            total -= 0.5 * rest * rest * weight
            g[j] += rest * weight * tau
            g[8] += rest * weight
            g[9] += rest * weight * tau * q[j]
        return total

    @numba.njit
    def log_prior(q, g):
        tau = exp(q[9])
        total = -q[8] * q[8] / 50 - log1p(tau * tau / 25) + q[9]
        g[8] -= q[8] / 25
        g[9] += 1 - 2 * tau * tau / (25 + tau * tau)
        for j in range(8):
            total -= 0.5 * q[j] * q[j]
            g[j] -= q[j]
        return total

    return log_likelihood, log_prior


def _poisson_gamma():
    from math import exp, log, log1p

    import numba

    @numba.njit
    def log_likelihood(q, y, g):
        a, b, total, slope, n = exp(q[0]), exp(q[1]), 0.0, 0.0, len(y)
        for count in y:
            rising = 1.0  # a (a + 1) ... (a + count - 1): a quotient of gamma functions
            for k in range(int(count)):
                rising *= a + k
                slope += 1 / (a + k)
            total += log(rising)
        whole = n * a + y.sum()
        g[0] += a * (slope + n * (q[1] - log1p(b)))
        g[1] += n * a - whole * b / (1 + b)
        return total + n * a * q[1] - whole * log1p(b)

    @numba.njit
    def log_prior(q, g):
        g[0] -= q[0]
        g[1] -= q[1]
        return -0.5 * (q[0] * q[0] + q[1] * q[1])

    return log_likelihood, log_prior


def _mixture():
    from math import exp, log

    import numba

    @numba.njit
    def log_likelihood(q, y, g):
        gap, precision = exp(q[1]), exp(-2 * q[2])
        weight, total, product = 1 / (1 + exp(-q[3])), 0.0, 1.0
        for i in range(len(y)):
            near, far = y[i] - q[0], y[i] - q[0] - gap
            # In parts of the first component, whose share is 1 / (1 + odds).
            log_odds = -0.5 * (far * far - near * near) * precision - q[3]
            less = exp(-abs(log_odds))
            share = (less if log_odds > 0 else 1.0) / (1 + less)
            total += max(log_odds, 0.0) - 0.5 * near * near * precision
            product *= 1 + less  # one logarithm for some hundred rows
            if i % 500 == 499:
                total += log(product)
                product = 1.0
            rest = 1 - share
            g[0] += (share * near + rest * far) * precision
            g[1] += rest * far * precision * gap
            g[2] += (share * near * near + rest * far * far) * precision - 1
            g[3] += share - weight
        return total + log(product) + len(y) * (log(weight) - q[2])

    @numba.njit
    def log_prior(q, g):
        g[0] -= q[0] / 25
        g[1] -= q[1]
        g[2] -= q[2]
        g[3] -= q[3] / 2.25
        return -0.5 * (q[0] * q[0] / 25 + q[1] * q[1] + q[2] * q[2] + q[3] * q[3] / 2.25)

    return log_likelihood, log_prior


def _saturation():
    from math import exp

    import numba

    @numba.njit(fastmath=True)
    def log_likelihood(q, rows, g):
        height, k = exp(q[0]) * (2 * exp(q[1]) + 1), exp(q[1])
        total = by_height = by_k = 0.0
        for i in range(len(rows)):
            x, weight = rows[i, 0], 1 / rows[i, 2]
            part = 1 / (k + x)
            mean = height * x * part * weight
            rest = rows[i, 1] * weight - mean
            total -= 0.5 * rest * rest
            by_height += rest * mean
            by_k += rest * mean * part
        g[0] += by_height
        g[1] += k * (2 / (2 * k + 1) * by_height - by_k)
        return total

    @numba.njit
    def log_prior(q, g):
        g[0] -= q[0]
        g[1] -= q[1] / 2.25
        return -0.5 * (q[0] * q[0] + q[1] * q[1] / 2.25)

    return log_likelihood, log_prior


DENSITIES = {
    "eight-schools": _schools,
    "poisson-gamma": _poisson_gamma,
    "mixture": _mixture,
    "saturation": _saturation,
}
