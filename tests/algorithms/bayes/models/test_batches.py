"""Densities of Python that evaluate several chains in one call: draws of each chain alone, errors."""

import numpy as np
import pytest

from stradask.algorithms.bayes.adapters.batches import BatchModel
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.density import user_model

COUNTS = {"n_samples": 60, "n_warmup": 60, "seed": 0}


def density(q, _=None):
    return -0.5 * q @ q - 0.1 * (q**4).sum(), -q - 0.4 * q**3


def model_of(one):
    made = user_model(density, None, np.zeros(1), np.zeros(2))
    own = {name: vars(made)[name] for name in ("density", "data", "meta", "names", "start", "function")}

    def batch(Q):
        calls.append(len(Q))
        values, slopes = zip(*map(one, Q), strict=True)
        return np.array(values), np.array(slopes)

    calls: list[int] = []
    return BatchModel(**own, batch=batch), made, calls


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_draws_are_those_of_each_chain_alone(n_jobs):
    together, alone, calls = model_of(density)
    expected = sample_model(alone, "nuts", **COUNTS)
    found = sample_model(together, "nuts", n_jobs=n_jobs, **COUNTS)
    np.testing.assert_array_equal(found.stacked(), expected.stacked())
    assert max(calls) == 4
    assert np.mean(calls) > 2  # the chains shared most calls


def test_errors_of_a_batch_end_the_run_or_are_counted():
    def fails(q):
        raise KeyError("a name that is missing")

    with pytest.raises(KeyError):
        sample_model(model_of(fails)[0], "nuts", **COUNTS)
    count = [0]

    def rejects(q):
        count[0] += 1
        if count[0] > 2000 and not count[0] % 50:
            raise ValueError("no density there")
        return density(q)

    found = sample_model(model_of(rejects)[0], "nuts", n_samples=300, n_warmup=60, seed=0)
    failed = sum(chain.statistics["failed"].sum() for chain in found.chains)
    assert failed > 0
    assert any("ValueError: no density there" in chain.failure for chain in found.chains)
