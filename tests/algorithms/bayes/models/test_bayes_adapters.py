"""Models of NumPyro, PyMC and Stan, taken apart: against the same density written down by hand.

Each library's tests run where it is installed. Stan's need a program compiled by BridgeStan: the one below,
at the path STRADASK_TEST_STAN, or compiled here where BRIDGESTAN names its source. What the adapter itself
does is tested everywhere, with a stand-in for a compiled program.
"""

import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.models.called import differences
from stradask.algorithms.bayes.models.external import ExternalModel, Functions
from stradask.errors import DataError, StradaskError

N, K = 150, 2
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, K))
Y = X @ [1.0, -0.5] + 0.7 * RNG.standard_normal(N)
POINTS = RNG.standard_normal((4, K + 1)) * 0.3

STAN = """
data { int<lower=0> N; int<lower=1> K; matrix[N, K] X; vector[N] y; }
parameters { vector[K] b; real<lower=0> sigma; }
model { b ~ normal(0, 2); sigma ~ normal(0, 3); y ~ normal(X * b, sigma); }
"""


def log_likelihood(q, X=X, y=Y):
    return stats.norm.logpdf(y, X @ q[:K], np.exp(q[K])).sum()


def log_prior(q):
    return (
        stats.norm.logpdf(q[:K], 0, 2).sum() + stats.halfnorm.logpdf(np.exp(q[K]), scale=3) + q[K]
    )  # with the Jacobian


def quick_likelihood(q, X, y):
    """The same without constants, and its gradient."""
    rest, precision = y - X @ q[:K], np.exp(-2 * q[K])
    gradient = np.append(X.T @ rest * precision, rest @ rest * precision - len(y))
    return -0.5 * rest @ rest * precision - len(y) * q[K], gradient


def quick_prior(q):
    square = np.exp(2 * q[K]) / 9
    gradient = np.append(-q[:K] / 4, 1 - square)
    return -q[:K] @ q[:K] / 8 - 0.5 * square + q[K], gradient


def has(name):
    return importlib.util.find_spec(name) is not None


def numpyro_model():
    import numpyro
    from numpyro import distributions as dist

    def model(X, y):
        b = numpyro.sample("b", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(3))
        numpyro.deterministic("variance", sigma**2)
        numpyro.deterministic("mean", X.mean(axis=0) @ b)  # of the rows that there are: left out
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(X @ b, sigma), obs=y)

    return sd.from_numpyro(model, {"X": X, "y": Y}, data_axis="rows")


def pymc_model(backend=None):
    import pymc as pm

    with pm.Model() as model:
        x = pm.Data("X", X, dims=("rows", "columns"))
        y = pm.Data("seen", Y, dims="rows")
        b, sigma = pm.Normal("b", 0, 2, shape=K), pm.HalfNormal("sigma", 3)
        pm.Deterministic("variance", sigma**2)
        pm.Deterministic("mean", x.mean(axis=0) @ b)
        pm.Normal("y", x @ b, sigma, observed=y)
    return sd.from_pymc(model, data_axis="rows", backend=backend)


def pymc_by_numba():
    return pymc_model("numba")


def stan_model():
    return sd.from_bridgestan(stan_library(), {"N": N, "K": K, "X": X, "y": Y}, data_axis="N")


def stan_library():
    if "STRADASK_TEST_STAN" in os.environ:
        return os.environ["STRADASK_TEST_STAN"]
    import tempfile
    from pathlib import Path

    import bridgestan

    path = Path(tempfile.mkdtemp()) / "normal.stan"
    path.write_text(STAN)
    return bridgestan.compile_model(path)


class StandIn:
    """`bridgestan.StanModel` of the program above, by the formulas."""

    made, least = 0, -np.inf

    def __init__(self, library, data, *, warn):
        if data["N"] == 0 and library == "needs rows":
            raise RuntimeError("N is 0, but must be greater than or equal to 1")
        self.X, self.y = np.asarray(data["X"]), np.asarray(data["y"])
        assert len(self.X) == len(self.y) == data["N"]
        assert (data["K"], warn) == (K, False)
        StandIn.made += 1

    def param_unc_num(self):
        return K + 1

    def param_unc_names(self):
        return ["b.1", "b.2", "sigma"]

    def param_names(self, include_tp=False, include_gq=False):
        return [*self.param_unc_names(), *["variance"] * include_tp]

    def param_constrain(self, q, include_tp=False):
        sigma = np.exp(q[K])
        return np.concatenate([q[:K], [sigma], [sigma**2] * include_tp])

    def param_num(self):
        return K + 1

    def param_unconstrain(self, theta):
        return np.append(theta[:K], np.log(theta[K]))

    def log_density(self, q, *, propto):
        assert not propto
        return log_likelihood(q, self.X, self.y) + log_prior(q)

    def log_density_gradient(self, q):
        if not np.isfinite(q).all():
            raise RuntimeError("Location parameter is nan")
        if q[0] < self.least:
            raise RuntimeError("b.1 is too small")
        value, slope = quick_prior(q)
        more, other = quick_likelihood(q, self.X, self.y)
        return value + more, slope + other


@pytest.fixture
def stand_in(monkeypatch, called_in_c):
    module = ModuleType("bridgestan")
    module.StanModel = called_in_c(StandIn)
    monkeypatch.setitem(sys.modules, "bridgestan", module)
    return module.StanModel


def stand_in_model(start=None):
    return sd.from_bridgestan("library", {"N": N, "K": K, "X": X, "y": Y}, data_axis="N", start=start)


STAN_IS_THERE = has("bridgestan") and {"STRADASK_TEST_STAN", "BRIDGESTAN"} & {*os.environ}
WARNS = pytest.mark.filterwarnings("ignore")  # of libraries of their own
LIBRARIES = [
    pytest.param(
        numpyro_model,
        id="numpyro",
        marks=[WARNS, pytest.mark.skipif(not has("numpyro"), reason="NumPyro is not installed")],
    ),
    pytest.param(
        pymc_model,
        id="pymc",
        marks=[WARNS, pytest.mark.slow, pytest.mark.skipif(not has("pymc"), reason="PyMC is not installed")],
    ),
    pytest.param(
        pymc_by_numba,
        id="pymc-numba",
        marks=[WARNS, pytest.mark.slow, pytest.mark.skipif(not has("pymc"), reason="PyMC is not installed")],
    ),
    pytest.param(
        stan_model,
        id="stan",
        marks=[WARNS, pytest.mark.skipif(not STAN_IS_THERE, reason="no program compiled by BridgeStan")],
    ),
    pytest.param(stand_in_model, id="stand-in"),
]


@pytest.mark.parametrize("make", LIBRARIES)
def test_a_model_is_taken_apart_and_sampled_in_shards(make, request):
    if make is stand_in_model:
        request.getfixturevalue("stand_in")
    model = make()
    assert model.variables == {"b": (K,), "sigma": ()} | ({"variance": ()} if make is not stan_model else {})
    part = (model.data[0][:40], model.data[1][:40])
    for what, expected in (
        (lambda q: model.functions.likelihood(q, model.data), log_likelihood),
        (lambda q: model.functions.likelihood(q, part), lambda q: log_likelihood(q, X[:40], Y[:40])),
        (model.functions.prior, log_prior),
    ):
        gaps = [what(q)[0] - expected(q) for q in POINTS]  # constants may be left out
        np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-9)
        for q in POINTS:
            np.testing.assert_allclose(what(q)[1], differences(expected, q), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.functions.constrain(POINTS)[:, K], np.exp(POINTS[:, K]))

    def by_hand(q, data):
        return quick_likelihood(q, *data)

    settings = {"n_shards": 2, "n_samples": 200, "n_chains": 2, "n_warmup": 150, "random_state": 0}
    theirs = sd.sample(model, **settings)
    ours = sd.sample(by_hand, quick_prior, (X, Y), np.zeros(K + 1), **settings)
    assert theirs.mean()["b"].shape == (K,)
    gap = (theirs.mean()["b"] - ours.mean()["theta"][:K]) / ours.sd()["theta"][:K]
    assert np.abs(gap).max() < 0.25
    assert abs(theirs.mean()["sigma"] - 0.7) < 0.15
    if make is not stan_model:
        np.testing.assert_allclose(theirs["variance"], theirs["sigma"] ** 2, rtol=1e-12)
    few = theirs.sample(20, random_state=0)
    of_each = stats.norm.logpdf(Y, few["b"] @ X.T, few["sigma"][:, None])
    np.testing.assert_allclose(theirs.log_likelihood(20, random_state=0), of_each, rtol=1e-9)


@pytest.mark.cluster
@pytest.mark.parametrize("make", LIBRARIES[:1])
def test_a_model_travels_to_workers(make, tmp_path):
    from dask.distributed import Client

    model = make()
    settings = {"n_shards": 2, "n_samples": 100, "n_chains": 2, "n_warmup": 100, "random_state": 0}
    here = sd.sample(model, **settings)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        there = sd.sample(model, engine="dask", checkpoint=str(tmp_path / "run"), **settings)
    np.testing.assert_array_equal(here.draws, there.draws)


# Bad input ---------------------------------------------------------------------------------------


class Written(Functions):
    """A likelihood that a test gives, with a normal prior; `missed` is a term that an adapter has lost."""

    def __init__(self, function, missed):
        self.function, self.missed = function, missed
        self.start, self.row = np.zeros(1), (np.zeros(1),)

    def likelihood(self, q, data):
        return self.function(q, data[0]), np.zeros(1)

    def prior(self, q):
        return -0.5 * q[0] ** 2, -q

    def whole(self, data):
        return lambda q: self.likelihood(q, data)[0] + self.prior(q)[0] + self.missed(q[0])


def taken(function, x, missed=lambda a: 0.0):
    return ExternalModel(Written(function, missed), (x,), np.zeros(1), ("a",), {"a": ()})


def test_a_likelihood_that_is_no_sum_over_rows_is_refused():
    x = np.arange(10.0)
    taken(lambda q, x: -((x - q) ** 2).sum() + 3.0, x, lambda a: 7.0)  # a constant does no harm
    for missed in (lambda a: -a, lambda a: -(a**2), lambda a: -1e-4 * np.exp(a), lambda a: -np.inf):
        with pytest.raises(DataError, match=r"add up to the model's log density.*data_axis=None"):
            taken(lambda q, x: -((x - q) ** 2).sum(), x, missed)
    with pytest.raises(DataError, match="no sum over rows"):
        taken(lambda q, x: -((x - q) ** 2).mean(), x)
    with pytest.raises(DataError, match="no sum over rows"):
        taken(lambda q, x: -((x - q) ** 2).sum() - q[0] ** 2, x)  # a prior among the rows
    with pytest.raises(DataError, match="not finite"):
        taken(lambda q, x: np.nan, x)
    with pytest.raises(DataError, match=r"cannot be evaluated.*broadcast"):
        taken(lambda q, x: (x - np.zeros(10)).sum(), x)
    with pytest.raises(DataError, match="1 row"):
        taken(lambda q, x: 0.0, x[:1])


@pytest.mark.usefixtures("stand_in")
def test_a_program_that_needs_rows_is_refused():
    data = {"N": N, "K": K, "X": X, "y": Y}
    with pytest.raises(DataError, match="int<lower=0> N"):
        sd.from_bridgestan("needs rows", data, data_axis="N")
    with pytest.raises(DataError, match="must name the integer"):
        sd.from_bridgestan("library", data, data_axis="X")
    with pytest.raises(DataError, match="no array has as many rows"):
        sd.from_bridgestan("library", data | {"N": N + 1}, data_axis="N")
    with pytest.raises(DataError, match="start must have 3"):
        sd.from_bridgestan("library", data, data_axis="N", start=[0.0])


@pytest.mark.usefixtures("stand_in")
def test_a_program_is_made_once_for_a_shard():
    model = stand_in_model()
    before = StandIn.made
    for q in POINTS:
        model.functions.likelihood(q, model.data)
    assert StandIn.made == before + 1
    assert np.isnan(model.functions.prior(np.full(K + 1, np.nan))[0])


def test_points_that_stan_rejects_are_counted_with_its_message(stand_in, monkeypatch):
    monkeypatch.setattr(StandIn, "least", 0.8)  # it is .89, give or take .055
    settings = {"sampler": "nuts", "n_samples": 100, "n_warmup": 100, "random_state": 0}
    model = stand_in_model(start=[0.9, -0.6, -0.4])
    with pytest.warns(sd.errors.PosteriorWarning, match="divergences"):  # at the wall
        posterior = sd.sample(model, **settings)
    (line,) = [line for line in posterior.diagnostics.lines if line[0] == "failed"]
    assert "StanRejection: b.1 is too small, at b.1 = " in line[4]
    assert stand_in.freed >= line[1] > 0


def test_a_library_without_threads_is_called_by_one_at_a_time(stand_in, monkeypatch):
    settings = {"sampler": "nuts", "n_samples": 60, "n_warmup": 60, "random_state": 0, "n_jobs": 4}
    with_threads = sd.sample(stand_in_model(), **settings)
    monkeypatch.setattr(stand_in, "threads", "false")
    stand_in.most_inside = 0
    one_at_a_time = sd.sample(stand_in_model(), **settings)
    assert stand_in.most_inside == 1
    np.testing.assert_array_equal(one_at_a_time.draws, with_threads.draws)


@pytest.mark.usefixtures("stand_in")
def test_what_a_program_needs_to_compile_is_said(monkeypatch, tmp_path):
    path, bridgestan = tmp_path / "a.stan", sys.modules["bridgestan"]
    bridgestan.__version__ = "2.7.0"
    with pytest.raises(DataError, match="there is no file"):
        sd.from_bridgestan(path, {})
    path.write_text(STAN)
    for error, words in (
        (ValueError("Failed to download"), r"Failed to download.*bridgestan-2\.7\.0\.tar\.gz.*BRIDGESTAN"),
        (FileNotFoundError("make"), r"make.*C\+\+ compiler"),
        (RuntimeError("Syntax error in line 3"), "does not compile: .*Syntax error in line 3"),
    ):
        monkeypatch.setattr(bridgestan, "compile_model", raising(error, path), raising=False)
        with pytest.raises(StradaskError, match=words):
            sd.from_bridgestan(path, {})


def raising(error, expected):
    def compile_model(path, *, make_args):
        assert (path, make_args) == (str(expected), ["STAN_THREADS=True"])
        raise error

    return compile_model


@pytest.mark.usefixtures("stand_in")
def test_a_model_of_another_library_stands_alone():
    with pytest.raises(DataError, match="stands alone"):
        sd.sample(stand_in_model(), log_prior)
    with pytest.raises(DataError, match="start is missing"):
        sd.sample(log_likelihood, log_prior, (X, Y))


@pytest.mark.usefixtures("stand_in")
def test_models_are_told_apart_by_their_values():
    from dask.base import tokenize

    model, same = stand_in_model(), stand_in_model()
    other = sd.from_bridgestan("library", {"N": N, "K": K, "X": 2 * X, "y": Y}, data_axis="N")
    assert tokenize(model.functions) == tokenize(same.functions) != tokenize(other.functions)


def test_packages_and_arguments_are_named_before_a_model_is_looked_at(monkeypatch):
    def model(X, y):
        raise AssertionError("the model was run")

    wrong = {
        "model must be a function": (sd.from_numpyro, 3, {}),
        "data must be a dict, .* got a tuple": (sd.from_numpyro, model, (X, Y)),
        r"model\(X=\.\.\., z=\.\.\.\), and the one given": (sd.from_numpyro, model, {"X": X, "z": Y}),
        "data must be a dict, .* got a list": (sd.from_bridgestan, "library", [X, Y]),
    }
    for words, (door, *arguments) in wrong.items():
        with pytest.raises(DataError, match=words):
            door(*arguments, data_axis="rows")
    for package in ("numpyro", "pymc", "bridgestan"):
        monkeypatch.setitem(sys.modules, package, None)
    missing = {
        "from_numpyro needs numpyro": (sd.from_numpyro, model, {"X": X, "y": Y}),
        "from_pymc needs pymc": (sd.from_pymc, model),
        "from_bridgestan needs bridgestan": (sd.from_bridgestan, "library", {"rows": N, "X": X}),
    }
    for words, (door, *arguments) in missing.items():
        with pytest.raises(StradaskError, match=f"{words}, which is not installed: pip install"):
            door(*arguments, data_axis="rows")


@WARNS
@pytest.mark.skipif(not has("numpyro"), reason="NumPyro is not installed")
def test_numpyro_models_that_cannot_be_cut():
    import numpyro
    from numpyro import distributions as dist

    def of_rows(y):
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(z, 1), obs=y)

    def of_a_size(y, n):
        a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("rows", n):
            numpyro.sample("y", dist.Normal(a, 1), obs=y)

    def of_counts(y):
        a = numpyro.sample("a", dist.Poisson(3))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a, 1), obs=y)

    def outside(y, kind):
        """Of a mean and n rows of unit noise; each kind counts the rows once more."""
        a = numpyro.sample("a", dist.Normal(y.mean() if kind == "prior" else 0, 0.1))
        numpyro.factor("near", -(a**2) - len(y))  # of no row, and constant in a: both do no harm
        if kind == "factor":
            numpyro.factor("again", dist.Normal(a, 1).log_prob(y).sum())
        if kind == "observed":
            numpyro.sample("again", dist.Normal(a, 1), obs=y)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a, 1), obs=y)

    def standardised(x, y, scaled):
        z = (x - x.mean()) / (x.std() if scaled else 1.0)
        a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(a * z, 1), obs=y)

    def centred(y):
        a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.factor("near", -0.5 * (y - y.mean() - a) ** 2)

    remedy = "centres columns by their own mean.* Standardise the data before"
    for scaled, words in (
        (True, "fails with one row"),
        (False, "of a row of the site 'y' depends on the other"),
    ):
        with pytest.raises(DataError, match=f"{words}.*{remedy}"):
            sd.from_numpyro(standardised, {"x": X[:, 0], "y": Y, "scaled": scaled}, data_axis="rows")
    with pytest.raises(DataError, match=f"of a row of the site 'near' depends on the other.*{remedy}"):
        sd.from_numpyro(centred, {"y": Y}, data_axis="rows")

    for kind, name in (("prior", "a"), ("factor", "again"), ("observed", "again")):
        with pytest.raises(DataError, match=f"site '{name}' depends on the rows.*put it inside"):
            sd.from_numpyro(outside, {"y": Y, "kind": kind}, data_axis="rows")
        # In one piece all rows count: a precision of 100 and 2, N, and N again.
        posterior = sd.sample(sd.from_numpyro(outside, {"y": Y, "kind": kind}), random_state=0)
        n_times = 1 if kind == "prior" else 2
        assert posterior.sd()["a"] == pytest.approx((102 + n_times * N) ** -0.5, rel=0.05)
    sd.from_numpyro(outside, {"y": Y, "kind": ""}, data_axis="rows")
    with pytest.raises(DataError, match="'z' is inside the plate"):
        sd.from_numpyro(of_rows, {"y": Y}, data_axis="rows")
    with pytest.raises(DataError, match="is no plate"):
        sd.from_numpyro(of_rows, {"y": Y}, data_axis="row")
    with pytest.raises(DataError, match=r"take its size from the data|cannot be evaluated"):
        sd.from_numpyro(of_a_size, {"y": Y, "n": N}, data_axis="rows")
    with pytest.raises(DataError, match="discrete"):
        sd.from_numpyro(of_counts, {"y": Y}, data_axis="rows")


@WARNS
@pytest.mark.skipif(not has("pymc"), reason="PyMC is not installed")
def test_pymc_models_that_cannot_be_cut():
    import pymc as pm

    with pm.Model() as model:
        x = pm.Data("x", Y, dims="rows")
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", a, 1, observed=Y)
        pm.Deterministic("b", a + x.sum())
    with pytest.raises(DataError, match="no term of the log density depends on x"):
        sd.from_pymc(model, data_axis="rows")
    with pytest.raises(DataError, match=r"no pm\.Data"):
        sd.from_pymc(model, data_axis="row")
    with pm.Model() as model:
        x = pm.Data("x", Y, dims="rows")
        pm.Normal("y", pm.Normal("a", x.mean(), 1), 1, observed=x)
    with pytest.raises(DataError, match="'a' depends on rows"):
        sd.from_pymc(model, data_axis="rows")
    with pm.Model() as model:
        x, a = pm.Data("x", Y, dims="rows"), pm.Normal("a", 0, 1)
        pm.Normal("y", a, 1, observed=x)
    term = model.logp
    model.logp = lambda vars=None, **options: term(vars=vars, **options) * (1 if vars else 1.01)
    with pytest.raises(DataError, match="add up to the model's log density"):
        sd.from_pymc(model, data_axis="rows")


@WARNS
@pytest.mark.slow
@pytest.mark.skipif(not has("pymc"), reason="PyMC is not installed")
def test_densities_of_pymc_by_numba_read_all_kinds_of_data():
    import pymc as pm

    rng = np.random.default_rng(0)
    seen, group = rng.integers(0, 2, 40).astype(np.int32), rng.integers(0, 3, 40)
    with pm.Model() as model:
        x = pm.Data("x", rng.standard_normal((40, 2)), dims=("rows", "columns"))
        y, which = pm.Data("y", seen, dims="rows"), pm.Data("which", group, dims="rows")
        scale, about = pm.Data("scale", 2.5), pm.Data("about", np.array([0.1, 0.2]))
        u, b = pm.Normal("u", 0, scale, shape=3), pm.Normal("b", about, 1, shape=2)
        pm.Bernoulli("k", logit_p=(x * b).sum(axis=1) + u[which] / scale, observed=y)
    q = rng.standard_normal(5)
    own = sd.from_pymc(model, data_axis="rows", backend="numba")
    rows = tuple(one[::2] for one in own.data)
    functions, plain = own.functions, sd.from_pymc(model, data_axis="rows").functions
    density = functions.model_of(None, None, rows, own.start, power=0.5, names=own.names)
    (value, slope), (prior, other) = plain.likelihood(q, rows), plain.prior(q)
    found, gradient = density.logp_grad(q)
    assert found == pytest.approx(value + 0.5 * prior, rel=1e-12)
    np.testing.assert_allclose(gradient, slope + 0.5 * other, rtol=1e-10)
    with pytest.raises(DataError, match="backend must be None or"):
        sd.from_pymc(model, backend="fortran")


@WARNS
@pytest.mark.skipif(not has("pymc"), reason="PyMC is not installed")
def test_shards_of_pymc_on_several_threads_mix_no_arguments():
    functions = pymc_model().functions
    parts = [(X[first::2], Y[first::2]) for first in (0, 1)]
    q = np.full(K + 1, 0.1)
    expected = [functions.likelihood(q, part)[0] for part in parts]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(functions.likelihood, q, parts[i % 2]) for i in range(2000)]
        assert all(one.result(60)[0] == expected[i % 2] for i, one in enumerate(futures))
