"""The demo of Bayesian models: a rare event, its data cut into shards that do not communicate.

The posterior of a logistic regression in which few rows are positive, and few of these have a rare exposure:
each shard knows so little of it that its own posterior is wide and skewed. Three ways from the shards to the
posterior are held against a long chain of all the data; and one posterior is shown that is refused.
"""

import time
import warnings

import numpy as np

from .curves import say_compiled
from .page import Part

SHARDS, ROWS, QUICK_ROWS = 20, 40_000, 20_000
EXPOSURE = 1  # the column whose coefficient is shown
WAYS = ("union of the shards", "consensus", "stradask")
N_SAMPLES, N_CHAINS, SAMPLER = 300, 2, "nuts"  # of each shard, and of all the data where times are compared
TRUTH_SAMPLES = 2000  # of each chain that errors are measured by; it is not timed
REPEATS = 2


def run(settings, say):
    """Sample in one piece and in shards, compare and describe; see `stradask.demo.page`."""
    X, y = draw(settings)
    say(
        f"\nBayesian models: a rare event in {SHARDS} shards\n\n"
        f"data      {len(X):,} rows, {y.sum():,} positive; {int(X[:, EXPOSURE].sum()):,} rows are exposed, "
        f"{int((X[:, EXPOSURE] * y).sum())} of them positive"
    )
    say_compiled(say, lambda: _fit(X[:2000], y[:2000], settings, n_shards=2, n_samples=100))
    truth = _fit(X, y, settings, sampler="nuts", n_samples=TRUTH_SAMPLES)
    whole, seconds = np.inf, np.inf
    for _ in range(REPEATS):  # in turns, the faster of each, with the same settings
        started = time.perf_counter()
        _fit(X, y, settings, n_samples=N_SAMPLES, sampler=SAMPLER)
        whole = min(whole, time.perf_counter() - started)
        started = time.perf_counter()
        ours = _fit(X, y, settings, n_shards=SHARDS, n_samples=N_SAMPLES, sampler=SAMPLER)
        seconds = min(seconds, time.perf_counter() - started)
    draws = dict(zip(WAYS, (union(ours), consensus(ours), ours.draws), strict=True))
    errors = {way: error(found, truth.draws) for way, found in draws.items()}
    same = f"{N_CHAINS} chains of {N_SAMPLES} draws by {SAMPLER.upper()}"
    say(
        f"sampling  {same} of all data {whole:.1f} s; as many of each of {SHARDS} shards, and their "
        f"combination, {seconds:.1f} s\n"
    )
    say(error_table(errors))
    reason = refused(settings)
    say(
        f"\nA posterior that is not handed out: two components that may change places, in 4 shards.\n{reason}"
    )
    document = {
        "data": {"rows": len(X), "positives": int(y.sum()), "columns": X.shape[1]},
        "shards": SHARDS,
        "sampling": {"sampler": SAMPLER, "n_samples": N_SAMPLES, "n_chains": N_CHAINS},
        "seconds": {"all_data": whole, "shards": seconds},
        "method": ours.method,
        "errors": errors,
        "refused": reason,
    }

    def add_to(page):
        from .bayes_pictures import add_bayes

        shown = {way: draws[way][:, EXPOSURE] for way in WAYS[1:]}
        add_bayes(page, document, ours.shard_draws[..., EXPOSURE], shown, truth.draws[:, EXPOSURE])

    return Part(document, add_to, summary(document))


def summary(document):
    """The row of the report's summary."""
    data, errors = document["data"], document["errors"]
    return (
        "Bayesian logistic regression",
        f"{data['rows']:,} rows in {document['shards']} shards",
        f"{document['seconds']['shards']:.1f} s on all cores; all data in one piece "
        f"{document['seconds']['all_data']:.1f} s",
        f"error of the mean {errors['stradask']['mean']:.2f} standard deviations; consensus averaging "
        f"{errors['consensus']['mean']:.2f}",
    )


def draw(settings):
    """Draw the data: a rare exposure, and three columns of which one matters; labels 0 and 1."""
    rng = np.random.default_rng(settings.seed)
    n = QUICK_ROWS if settings.quick else ROWS
    X = rng.standard_normal((n, 4))
    X[:, EXPOSURE] = rng.random(n) < 0.05
    odds = np.exp(-5.0 + 1.2 * X[:, EXPOSURE] + 0.5 * X[:, 2])
    return X, (rng.random(n) < odds / (1 + odds)).astype(int)


def _fit(X, y, settings, **options):
    """The posterior of a Bayesian logistic regression."""
    import stradask as sd

    model = sd.BayesianLogisticRegression(
        n_chains=N_CHAINS, n_jobs=-1, random_state=settings.seed, **{"n_warmup": 300} | options
    )
    return model.fit(X, y).posterior_


def union(posterior):
    """Pool all shards' draws, which are not draws of the posterior."""
    return posterior.shard_draws.reshape(-1, posterior.draws.shape[1])


def consensus(posterior):
    """Weighted averages of shards' draws (Scott et al., 2016)."""
    from ..algorithms.bayes.combine.combiners import CombinationWarning, combine

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CombinationWarning)  # it is shown for its faults
        return combine(posterior.shard_draws, method="consensus", random_state=0).draws


def error(draws, truth):
    """Errors of the mean and of the spread, in the true posterior's standard deviations: the worst column."""
    sd = truth.std(axis=0)
    return {
        "mean": float(np.abs((draws.mean(axis=0) - truth.mean(axis=0)) / sd).max()),
        "sd": float((draws.std(axis=0) / sd).max()),
    }


def error_table(errors):
    """Return the table of the errors."""
    lines = [
        "How far from a long chain of all the data? In its standard deviations, the worst coefficient.\n",
        "                     error of the mean  spread (1 is right)",
    ]
    lines += [f"{way:<20} {found['mean']:18.2f}  {found['sd']:19.2f}" for way, found in errors.items()]
    return "\n".join(lines)


def refused(settings):
    """Return why the posterior of a mixture whose components may change places is not handed out."""
    import stradask as sd

    from ..algorithms.bayes.combine.combiners import CombinationRefused

    rng = np.random.default_rng(settings.seed)
    x = np.concatenate([rng.normal(-2, 1, 200), rng.normal(2, 1, 200)])

    def log_likelihood(q, x):
        parts = -0.5 * (x - q[:, None]) ** 2
        whole = np.logaddexp(*parts)
        return whole.sum(), (np.exp(parts - whole) * (x - q[:, None])).sum(axis=1)

    def log_prior(q):
        return -0.5 * (q**2).sum() / 9, -q / 9

    try:
        sd.sample(
            log_likelihood,
            log_prior,
            x,
            [1.0, -1.0],
            names=["first mean", "second mean"],
            sampler="nuts",
            n_samples=100,
            n_chains=4,
            n_warmup=100,
            n_shards=4,
            random_state=settings.seed,
        )
    except CombinationRefused as why:
        return str(why)
    raise AssertionError("a posterior that cannot be trusted was handed out")
