"""Models of other libraries in one piece: a time series against its formula, deterministic sites."""

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.errors import DataError

T = 60
SERIES = np.cumsum(np.random.default_rng(0).standard_normal(T)) * 0.5
POINTS = np.random.default_rng(1).normal(0, 0.5, (3, 2))  # of rho and log sigma


def log_density(q):
    """x_t ~ N(rho x_(t-1), sigma), rho ~ N(0, 1), sigma half-normal, with the Jacobian of its logarithm."""
    rho, sigma = q[0], np.exp(q[1])
    total = stats.norm.logpdf(SERIES[1:], rho * SERIES[:-1], sigma).sum()
    return total + stats.norm.logpdf(rho) + stats.halfnorm.logpdf(sigma) + q[1]


def slope(q):
    h = 1e-5 * np.eye(2)
    return np.array([(log_density(q + one) - log_density(q - one)) / 2e-5 for one in h])


def numpyro_model():
    import numpyro
    from numpyro import distributions as dist

    def model(x):
        rho = numpyro.sample("rho", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        numpyro.deterministic("variance", sigma**2)
        numpyro.factor("series", dist.Normal(rho * x[:-1], sigma).log_prob(x[1:]).sum())

    return sd.from_numpyro(model, {"x": SERIES})


def pymc_model():
    import pymc as pm

    with pm.Model() as model:
        rho, sigma = pm.Normal("rho", 0, 1), pm.HalfNormal("sigma", 1)
        pm.Deterministic("variance", sigma**2)
        pm.Normal("series", rho * SERIES[:-1], sigma, observed=SERIES[1:])
    return sd.from_pymc(model)


class Program:
    """`bridgestan.StanModel` of the same program, by the formula."""

    def __init__(self, library, data, *, warn):
        assert set(data) == {"x"}

    def param_unc_num(self):
        return 2

    def param_unc_names(self):
        return ["rho", "sigma"]

    def param_names(self, *, include_tp=False, include_gq=False):
        return ["rho", "sigma"] + ["variance"] * include_tp

    def param_constrain(self, q, *, include_tp=False):
        return np.array([q[0], np.exp(q[1]), np.exp(2 * q[1])])[: 2 + include_tp]

    def log_density_gradient(self, q):
        if not np.isfinite(q).all():
            raise RuntimeError("nan")
        return log_density(q), slope(q)


@pytest.fixture
def stand_in(monkeypatch, called_in_c):
    module = ModuleType("bridgestan")
    module.StanModel = called_in_c(Program)
    monkeypatch.setitem(sys.modules, "bridgestan", module)


def stan_model():
    return sd.from_bridgestan("library", {"x": SERIES})


def _missing(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@pytest.mark.filterwarnings("ignore")  # of libraries of their own
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(numpyro_model, id="numpyro", marks=_missing("numpyro")),
        pytest.param(pymc_model, id="pymc", marks=_missing("pymc")),
        pytest.param(stan_model, id="stan"),
    ],
)
def test_a_time_series(make):
    model = make()
    assert model.names[0].startswith("rho")
    gaps = []
    for q in POINTS:
        value, gradient = model.functions.likelihood(q, ())
        gaps.append(value - log_density(q))  # constants may be left out
        np.testing.assert_allclose(gradient, slope(q), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)
    posterior = sd.sample(model, n_samples=300, n_warmup=300, sampler="nuts", random_state=0)
    np.testing.assert_allclose(posterior["variance"], posterior["sigma"] ** 2)
    grid = np.stack(np.meshgrid(np.linspace(0.5, 1.4, 80), np.linspace(-1.2, 0.2, 80)), axis=-1).reshape(
        -1, 2
    )
    weights = np.exp([log_density(q) - log_density([0.95, -0.7]) for q in grid])
    mean = weights @ grid[:, 0] / weights.sum()
    spread = np.sqrt(weights @ (grid[:, 0] - mean) ** 2 / weights.sum())
    assert abs(posterior["rho"].mean() - mean) < 0.2 * spread
    with pytest.raises(DataError, match="has no data_axis by which rows could be cut"):
        sd.sample(model, n_shards=2)
