"""One's own densities of named parameters: all forms, priors alone, references, shards, files."""

import copy
import math
import pickle

import numba as nb
import numpy as np
import pytest
from reference_posteriors import POSTERIORS
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.models.autodiff import differentiated
from stradask.algorithms.bayes.models.layout import NamedLayout
from stradask.algorithms.bayes.models.named import named_model
from stradask.algorithms.bayes.posterior.convergence import ess
from stradask.algorithms.bayes.posterior.tables import column_names
from stradask.errors import DataError, StradaskError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
Y = X @ [1.0, -2.0] + RNG.normal(0, 0.5, 60)
KIND = RNG.integers(0, 3, 60)
DATA = (X, Y, KIND)
PARAMETERS = {"beta": sd.real(2), "sigma": sd.positive(), "w": sd.simplex(3)}
PRIORS = {"beta": sd.priors.normal(0, 2.5), "sigma": sd.priors.half_cauchy(1)}


def likelihood(p, data):
    X, y, kind = data
    r = (y - X @ p.beta) / p.sigma
    return -0.5 * (r**2).sum() - len(y) * np.log(p.sigma) + np.log(p.w[kind]).sum()


def likelihood_and_slope(p, data):
    X, y, kind = data
    r = (y - X @ p.beta) / p.sigma
    slope = {"sigma": ((r**2).sum() - len(y)) / p.sigma, "w": np.bincount(kind, minlength=3) / p.w}
    return likelihood(p, data), slope | {"beta": X.T @ r / p.sigma}


def likelihood_adding(p, data, g):
    X, y, kind = data
    r = (y - X @ p.beta) / p.sigma
    g.beta[:] += X.T @ r / p.sigma
    g.sigma[0] += ((r**2).sum() - len(y)) / p.sigma
    for k in kind:
        g.w[k] += 1 / p.w[k]
    return -0.5 * (r**2).sum() - len(y) * np.log(p.sigma) + np.log(p.w[kind]).sum()


def prior(p):
    return -(p.beta[0] ** 2) * p.sigma


def prior_and_slope(p):
    slope = [np.array([-2 * p.beta[0] * p.sigma, 0]), -(p.beta[0] ** 2), np.zeros(3)]
    return prior(p), slope


def prior_adding(p, g):
    g.beta[0] -= 2 * p.beta[0] * p.sigma
    g.sigma[0] -= p.beta[0] ** 2
    return -(p.beta[0] ** 2) * p.sigma


SLOW = pytest.mark.slow
FEW = pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")  # draws
COMPILED = {f: nb.njit(f) for f in (likelihood, prior, likelihood_adding, prior_adding)}
FORMS = {
    "Python": (likelihood, prior),
    "Python with slopes": (likelihood_and_slope, prior_and_slope),
    "compiled": (COMPILED[likelihood], COMPILED[prior]),
    "compiled with slopes": (COMPILED[likelihood_adding], COMPILED[prior_adding]),
    "compiled, mixed": (COMPILED[likelihood_adding], COMPILED[prior]),
    "mixed": (COMPILED[likelihood], prior_and_slope),
}


def expected(q, power):
    """The log density by hand; the simplex by its definition."""
    V = np.array([[1, 1], [-1, 1], [0, -2]]) / np.sqrt([2, 6])
    beta, sigma, w = q[:2], math.exp(q[2]), special.softmax(V @ q[3:])
    p = NamedLayout(PARAMETERS).named(np.concatenate([beta, [sigma], w]))
    logp = stats.norm(0, 2.5).logpdf(beta).sum() + stats.halfcauchy.logpdf(sigma) + prior(p)
    return power * (logp + q[2] + np.log(w).sum() + math.log(3) / 2) + likelihood(p, DATA)


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=[SLOW] * (f.startswith("compiled") and f != "compiled")) for f in FORMS]
)
def test_all_forms_are_one_density(form):
    layout = NamedLayout(PARAMETERS, PRIORS)
    model = named_model(*FORMS[form], DATA, layout.start(), layout=layout, power=0.25)
    assert model.names == (
        "beta[0]",
        "beta[1]",
        "log sigma",
        "log ratio of w[1]",
        "log ratio of w[2]",
    )
    copy = pickle.loads(pickle.dumps(model))
    h = 1e-6
    for q in ([0.3, -1.0, 0.2, 0.1, -0.5], [1.0, -2.0, -0.7, 0.5, 1.5]):
        q = np.array(q)
        logp, gradient = model.logp_grad(q)
        assert logp == pytest.approx(expected(q, 0.25), rel=1e-12)
        slopes = [(expected(q + e, 0.25) - expected(q - e, 0.25)) / (2 * h) for e in h * np.eye(5)]
        np.testing.assert_allclose(gradient, slopes, rtol=2e-6, atol=2e-6)
        assert copy.logp_grad(q)[0] == logp


def _agree(x, cdf):
    """Draws of chains (chains, T) against a distribution: shares below its quartiles, within 4.5 errors."""
    for level in (0.25, 0.5, 0.75):
        below = (cdf(x) < level).astype(float)
        error = math.sqrt(level * (1 - level) / ess(below[..., None])[0])
        assert abs(below.mean() - level) < 4.5 * error


def test_priors_alone_have_their_known_distributions():
    P = sd.priors
    parameters = {"w": sd.simplex(4), "flat": sd.simplex(3), "L": sd.cholesky(3), "R": sd.cholesky(4)}
    parameters |= {"c": sd.ordered(4), "s": sd.positive(), "u": sd.unit(2), "i": sd.interval(-1, 3)}
    parameters |= {"low": sd.interval(2, np.inf), "m": sd.real(), "t": sd.positive(), "z": sd.real(2)}
    priors = {"w": P.dirichlet([1, 2, 3, 0.5]), "L": P.lkj(2), "c": P.normal(1, 2), "s": P.gamma(2, 3)}
    priors |= {"u": P.beta([2, 5], [5, 1]), "low": P.exponential(0.5), "m": P.normal(1, 2)}
    priors |= {"t": P.inverse_gamma(6, 8), "z": P.normal("m", "t")}
    posterior = sd.sample(
        None,
        parameters=parameters,
        priors=priors,
        sampler="nuts",
        n_samples=3000,
        n_warmup=500,
        random_state=0,
    )
    assert posterior.variables == {
        "w": (4,), "flat": (3,), "L": (3, 3), "R": (4, 4), "c": (4,), "s": (), "u": (2,), "i": (), "low": (),
        "m": (), "t": (), "z": (2,),
    }  # fmt: skip
    x = {name: posterior[name].reshape(4, 3000, *shape) for name, shape in posterior.variables.items()}
    alpha = np.array([1, 2, 3, 0.5])
    for j in range(4):
        _agree(x["w"][..., j], stats.beta(alpha[j], alpha.sum() - alpha[j]).cdf)
        below = stats.norm(1, 2).cdf(x["c"][..., j])
        _agree(below, stats.beta(1 + j, 4 - j).cdf)  # order statistics
    for j in range(3):
        _agree(x["flat"][..., j], stats.beta(1, 2).cdf)
    for name, k, eta in (("L", 3, 2.0), ("R", 4, 1.0)):
        R = x[name] @ x[name].swapaxes(2, 3)
        half = eta + (k - 2) / 2
        for i, j in zip(*np.tril_indices(k, -1), strict=True):
            _agree(R[..., i, j], stats.beta(half, half, -1, 2).cdf)
    _agree(x["s"], stats.gamma(2, scale=1 / 3).cdf)
    _agree(x["u"][..., 0], stats.beta(2, 5).cdf)
    _agree(x["u"][..., 1], stats.beta(5, 1).cdf)
    _agree(x["i"], stats.uniform(-1, 4).cdf)
    _agree(x["low"], stats.expon(loc=2, scale=2).cdf)
    _agree(x["t"], stats.invgamma(6, scale=8).cdf)
    for j in range(2):
        _agree((x["z"][..., j] - x["m"]) / x["t"], stats.norm.cdf)


def _is_reference(name, x):
    """Means of x (draws, d) within the errors of the reference and of x, by its effective size."""
    mean, spread, error = np.array([POSTERIORS[name]["reference"][key] for key in ("mean", "sd", "error")])
    own = x.reshape(4, -1, x.shape[1])
    z = (x.mean(axis=0) - mean) / np.hypot(x.std(axis=0) / np.sqrt(ess(own)), error)
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(x.std(axis=0), spread, rtol=0.12)


def test_eight_schools_in_their_plain_form_are_the_reference():
    found = POSTERIORS["eight_schools"]

    @nb.njit
    def schools(p, data, g):
        y, sigma = data
        logp = 0.0
        for j in range(8):
            r = (y[j] - p.mu - p.tau * p.z[j]) / sigma[j]
            logp -= 0.5 * r * r
            g.mu[0] += r / sigma[j]
            g.tau[0] += r / sigma[j] * p.z[j]
            g.z[j] += r / sigma[j] * p.tau
        return logp

    P = sd.priors
    posterior = sd.sample(
        schools, None, (np.array(found["y"]), np.array(found["errors"])),
        parameters={"z": sd.real(8), "mu": sd.real(), "tau": sd.positive()},
        priors={"z": P.normal(0, 1), "mu": P.normal(0, 5), "tau": P.half_cauchy(5)},
        n_samples=4000, random_state=0,
    )  # fmt: skip
    mu, tau = posterior["mu"], posterior["tau"]
    order = np.column_stack([mu[:, None] + tau[:, None] * posterior["z"], mu, tau])
    _is_reference("eight_schools", order)
    assert posterior.diagnostics.level < 2  # a draw or two diverge


@SLOW
def test_a_mixture_in_its_own_parameters_is_the_reference():
    @nb.njit
    def mixture(p, y, g):
        logp = 0.0
        for x in y:
            u, v = (x - p.mu[0]) / p.s[0], (x - p.mu[1]) / p.s[1]
            first = math.log(p.w) - math.log(p.s[0]) - u * u / 2.0
            second = math.log1p(-p.w) - math.log(p.s[1]) - v * v / 2.0
            top = max(first, second)
            total = top + math.log(math.exp(first - top) + math.exp(second - top))
            share = math.exp(first - total)
            logp += total
            g.mu[0] += share * u / p.s[0]
            g.mu[1] += (1.0 - share) * v / p.s[1]
            g.s[0] += share * (u * u - 1.0) / p.s[0]
            g.s[1] += (1.0 - share) * (v * v - 1.0) / p.s[1]
            g.w[0] += share / p.w - (1.0 - share) / (1.0 - p.w)
        return logp

    P = sd.priors
    parameters = {"mu": sd.ordered(2), "s": sd.positive(2), "w": sd.unit()}
    priors = {"mu": P.normal(0, 2), "s": P.half_normal(2), "w": P.beta(5, 5)}
    posterior = sd.sample(
        mixture, None, np.array(POSTERIORS["mixture"]["y"]), {"mu": [-2, 2]}, parameters=parameters,
        priors=priors, sampler="nuts", n_samples=500, n_warmup=300, random_state=0,
    )  # fmt: skip
    _is_reference("mixture", posterior.draws)


CUT = {"n_shards": 3, "n_samples": 400, "random_state": 0}


def test_shards_are_combined_in_unconstrained_numbers_and_give_the_whole():
    # Counts of four kinds: the posterior is Dirichlet, in closed form; shards have a third of the prior each.
    kind = np.random.default_rng(1).choice(4, 300, p=[0.1, 0.2, 0.3, 0.4])
    parameters, priors = {"w": sd.simplex(4)}, {"w": sd.priors.dirichlet([1, 2, 3, 4])}

    @nb.njit
    def counts(p, kind, g):
        for k in kind:
            g.w[k] += 1 / p.w[k]
        return np.log(p.w[kind]).sum()

    posterior = sd.sample(counts, None, kind, parameters=parameters, priors=priors, **CUT)
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, dashboard_address=":0"):
        far = sd.sample(counts, None, kind, parameters=parameters, priors=priors, engine="dask", **CUT)
    assert (far.draws == posterior.draws).all()
    alpha = np.bincount(kind, minlength=4) + np.arange(1, 5)
    exact = stats.dirichlet(alpha)
    assert posterior.shard_draws.shape == (3, 4, 400, 4)
    np.testing.assert_allclose(posterior.shard_draws.sum(axis=3), 1)
    spread = np.sqrt(exact.var())
    assert (np.abs(posterior.mean()["w"] - exact.mean()) < 0.15 * spread).all()
    np.testing.assert_allclose(posterior.sd()["w"], spread, rtol=0.1)


@FEW
def test_a_run_resumes_by_its_parameters_and_priors(tmp_path):
    options = {"sampler": "nuts", "n_samples": 100, "n_warmup": 100, "n_chains": 2, "random_state": 3}
    options |= {"parameters": PARAMETERS, "checkpoint": tmp_path}
    functions = (likelihood_and_slope, None, DATA)
    first = sd.sample(*functions, **options, priors=PRIORS)
    n_files = len(list(tmp_path.iterdir()))
    again = sd.sample(*functions, **options, priors=PRIORS)
    assert (first.draws == again.draws).all()
    assert len(list(tmp_path.iterdir())) == n_files
    other = sd.sample(*functions, **options, priors=PRIORS | {"beta": sd.priors.normal(0, 2.4)})
    assert (other.draws != first.draws).any()


@FEW
def test_files_keep_names_and_shapes(tmp_path):
    posterior = sd.sample(
        likelihood_and_slope, None, DATA, parameters=PARAMETERS, priors=PRIORS, n_samples=100, random_state=0
    )
    loaded = sd.Posterior.load(posterior.save(tmp_path / "p.npz") and tmp_path / "p.npz")
    assert loaded.variables == {"beta": (2,), "sigma": (), "w": (3,)}
    assert (loaded["w"] == posterior["w"]).all()
    assert loaded.names == ["beta[0]", "beta[1]", "sigma", "w[0]", "w[1]", "w[2]"]
    np.testing.assert_allclose(loaded["w"].sum(axis=1), 1)


@FEW
def test_arviz_gets_values_by_name():
    pytest.importorskip("arviz_base")
    posterior = sd.sample(
        None, parameters={"L": sd.cholesky(3), "s": sd.positive()}, priors={"s": sd.priors.gamma(2, 2)},
        sampler="nuts", n_samples=100, n_warmup=100, n_chains=2, random_state=0,
    )  # fmt: skip
    tree = posterior.to_arviz()
    assert tree["posterior"]["L"].shape == (2, 100, 3, 3)
    assert tree["posterior"]["s"].shape == (2, 100)
    assert tree["sample_stats"]["diverging"].shape == (2, 100)
    found = posterior.to_arviz(log_likelihood=lambda v: -Y * v["s"][:, None])["log_likelihood"]["y"]
    np.testing.assert_array_equal(found, -Y * tree["posterior"]["s"].to_numpy()[..., None])
    with pytest.raises(DataError, match="for 200 draws, got"):
        posterior.to_arviz(log_likelihood=lambda v: np.zeros(60))


@FEW
@pytest.mark.parametrize("form", ["Python", "compiled with slopes", "vector"])
def test_log_likelihoods_of_observations_are_those_of_rows_alone(form):
    options = {"sampler": "nuts", "n_samples": 20, "n_warmup": 50, "n_chains": 2, "random_state": 0}
    if form == "vector":
        posterior = sd.sample(nb.njit(lambda q, y: -0.5 * ((y - q[0]) ** 2).sum()), None, Y, [0.0], **options)
        expected = -0.5 * (Y - posterior["theta"]) ** 2
    else:
        posterior = sd.sample(FORMS[form][0], None, DATA, parameters=PARAMETERS, priors=PRIORS, **options)
        sigma, chosen = posterior["sigma"][:, None], posterior["w"][:, KIND]
        expected = -0.5 * ((Y - posterior["beta"] @ X.T) / sigma) ** 2 - np.log(sigma) + np.log(chosen)
    order = np.random.RandomState(0).randint(2**31)
    found = posterior.log_likelihood(n=40, random_state=0)
    rows = np.random.Generator(np.random.Philox(order)).permutation(40)
    np.testing.assert_allclose(found, expected[rows], rtol=1e-10)


def test_compiled_functions_get_rows_of_any_number_of_axes():
    shape = (2, 1, 3, 1, 2)
    rows = np.arange(math.prod(shape)).reshape(shape) % 7 + 0.5, np.ones(shape, int)
    model = named_model(
        nb.njit(lambda p, d: -((p.a - d[0].sum() - 10 * d[1].sum() - d[0].ndim) ** 2)),
        None, rows, [0.0], layout=NamedLayout({"a": sd.real()}), check=False,
    )  # fmt: skip
    assert model.logp_grad([0.0])[0] == -((rows[0].sum() + 10 * rows[1].sum() + len(shape)) ** 2)


@FEW
def test_pickles_hold_neither_functions_nor_data():
    y = np.random.default_rng(0).standard_normal(50_000)
    posterior = sd.sample(
        lambda p, y: -0.5 * ((y - p.a) ** 2).sum(), None, y, parameters={"a": sd.real()},
        n_samples=20, n_warmup=20, n_chains=2, random_state=0,
    )  # fmt: skip
    found = pickle.dumps(posterior)
    assert len(found) < y.nbytes / 10
    again = pickle.loads(found)
    np.testing.assert_array_equal(again["a"], posterior["a"])
    with pytest.raises(StradaskError, match="give log_likelihood"):
        again.log_likelihood(n=5)
    assert copy.deepcopy(posterior).log_likelihood(n=5).shape == (5, 50_000)


def test_a_likelihood_that_is_no_sum_has_no_log_likelihoods_of_rows():
    def neighbours(p, y):
        return -((np.diff(y) - p.a) ** 2).sum()

    options = {"parameters": {"a": sd.real()}, "random_state": 0, "n_samples": 100}
    posterior = sd.sample(neighbours, None, Y, **options)
    with pytest.raises(DataError, match=r"no sum over rows.*give to_arviz\(log_likelihood=\) a function"):
        posterior.log_likelihood(n=10)
    uneven = sd.sample(lambda p, data: neighbours(p, data[0]), None, (Y, np.ones(2)), **options)
    with pytest.raises(DataError, match=r"have the lengths \[60, 2\]"):
        uneven.log_likelihood(n=10)


@FEW
def test_derivatives_of_pytorch_are_those_by_hand():
    torch = pytest.importorskip("torch")

    def by_torch(p, data):
        X, y, kind = data
        r = (y - X @ p.beta) / p.sigma
        return -0.5 * (r**2).sum() - len(y) * torch.log(p.sigma) + torch.log(p.w[kind]).sum()

    layout = NamedLayout(PARAMETERS, PRIORS)
    function = differentiated({"log_likelihood": by_torch}, "torch")["log_likelihood"]
    model = named_model(function, None, DATA, layout.start(), layout=layout)
    other = named_model(likelihood_and_slope, None, DATA, layout.start(), layout=layout)
    for q in RNG.standard_normal((3, 5)):
        one, two = model.logp_grad(q), other.logp_grad(q)
        assert one[0] == pytest.approx(two[0], rel=1e-12)
        np.testing.assert_allclose(one[1], two[1], rtol=1e-9, atol=1e-9)
    options = {"parameters": PARAMETERS, "priors": PRIORS, "random_state": 0, "n_samples": 100, "n_shards": 2}
    posterior = sd.sample(by_torch, None, DATA, autodiff="torch", **options)
    assert abs(posterior.mean()["beta"] - [1, -2]).max() < 0.3
    assert posterior.log_likelihood(n=5).shape == (5, 60)


def test_derivatives_of_a_vector_by_jax():
    jnp = pytest.importorskip("jax.numpy")

    def by_jax(q, x):
        return -0.5 * ((x - q[0]) ** 2).sum() * jnp.exp(-2 * q[1]) - len(x) * q[1]

    (function,) = differentiated({"log_likelihood": by_jax}, "jax").values()
    value, slope = function(np.array([0.5, 0.1]), Y)
    expected = [(Y - 0.5).sum() * math.exp(-0.2), ((Y - 0.5) ** 2).sum() * math.exp(-0.2) - 60]
    assert value == pytest.approx(-0.5 * ((Y - 0.5) ** 2).sum() * math.exp(-0.2) - 6.0)
    np.testing.assert_allclose(slope, expected, rtol=1e-12)


def test_what_pytorch_cannot_differentiate_is_refused():
    torch = pytest.importorskip("torch")
    wrong = {
        "must return a tensor": lambda p, x: p.sigma.item(),
        "take the sum": lambda p, x: p.beta,
        "returns float32": lambda p, x: p.beta.sum().to(torch.float32),
    }
    for words, function in wrong.items():
        with pytest.raises(DataError, match=words):
            sd.sample(function, None, Y, autodiff="torch", **OWN)
    with pytest.raises(DataError, match="add their derivatives to g"):
        sd.sample(nb.njit(lambda p, x: 0.0), None, Y, autodiff="torch", **OWN)
    with pytest.raises(DataError, match="autodiff must be"):
        sd.sample(likelihood, None, DATA, autodiff="tensorflow", **OWN)
    constant = differentiated({"f": lambda q, x: torch.zeros((), dtype=torch.float64)}, "torch")["f"]
    assert constant(np.zeros(2), Y)[1].tolist() == [0, 0]


@FEW
def test_the_start_may_name_some_values():
    # Nowhere else is there a density.
    def near(p):
        return 0.0 if abs(p.w[0] - 0.7) < 0.05 and abs(p.s - 30) < 2 else -np.inf

    start = {"w": [0.7, 0.2, 0.1], "s": 30.0}
    posterior = sd.sample(
        None, near, start=start, parameters={"w": sd.simplex(3), "s": sd.positive(), "x": sd.real()},
        priors={"x": sd.priors.normal()}, sampler="slice", n_samples=50, n_warmup=50, random_state=0,
    )  # fmt: skip
    assert (np.abs(posterior["s"] - 30) < 2).all()


def test_chains_are_judged_by_values_that_mix_parameters_too():
    layout = NamedLayout({"w": sd.simplex(3), "c": sd.ordered(2), "L": sd.cholesky(2), "s": sd.positive()})
    names = column_names(layout.variables)
    watched = [names[j] for j in layout.watched]
    assert watched == ["w[0]", "w[1]", "w[2]", "c[1]", "L[1,0]", "L[1,1]"]


def test_errors_of_functions_have_their_place_and_nan_is_counted():
    @nb.njit
    def fails(p, x):
        if p.s > 1.5:
            raise ValueError("too large")
        return -x.sum() * p.s

    model = named_model(fails, None, np.ones(3), [0.0], layout=NamedLayout({"s": sd.positive()}))
    model.take_tally()
    assert model.logp_grad([1.0])[0] == -np.inf
    tally = model.take_tally()
    assert tally.failed == 1
    assert "too large, at log s = 1" in tally.first


def wrong_slope(p, data):
    value, slope = likelihood_and_slope(p, data)
    return value, slope | {"sigma": 0.0}


def without_sigma(p, data):
    value, slope = likelihood_and_slope(p, data)
    return value, {"beta": slope["beta"], "w": slope["w"], "typo": 0.0}


OWN = {"parameters": PARAMETERS, "priors": PRIORS}
REFUSED = {
    "data is missing": lambda: sd.sample(likelihood, **OWN),
    "data are of no use": lambda: sd.sample(None, None, DATA, **OWN),
    "leave names out": lambda: sd.sample(likelihood, None, DATA, names=["a"], **OWN),
    "priors are those of named": lambda: sd.sample(likelihood, None, DATA, priors=PRIORS),
    "log_prior must be a function": lambda: sd.sample(likelihood, 3, DATA, **OWN),
    "are given as priors=": lambda: sd.sample(likelihood, PRIORS, DATA, **OWN),
    r"log_likelihood is called as log_likelihood\(p, data\)": lambda: sd.sample(
        lambda p: 0.0, None, DATA, **OWN
    ),
    r"it takes 1 arguments": lambda: sd.sample(nb.njit(lambda p: 0.0), None, DATA, **OWN),
    "gradient for the parameter 'log sigma'": lambda: sd.sample(wrong_slope, None, DATA, **OWN),
    "lacks 'sigma'": lambda: sd.sample(without_sigma, None, DATA, **OWN),
    "must be a dict with an array": lambda: sd.sample(lambda p, x: (0.0, 1.0), None, DATA, **OWN),
    r"for 'beta' has the shape \(3,\), the parameter \(2,\)": lambda: sd.sample(
        lambda p, x: (0.0, [np.zeros(3), 0.0, np.zeros(3)]), None, DATA, **OWN
    ),
    "does not compile": lambda: sd.sample(nb.njit(lambda p, x: p.gamma), None, DATA, **OWN),
    "must return one number": lambda: sd.sample(nb.njit(lambda p, x: p.beta), None, DATA, **OWN),
    "must be an array of numbers": lambda: sd.sample(nb.njit(lambda p, x: 0.0), None, np.array(["a"]), **OWN),
    "let the function refer to a number": lambda: sd.sample(nb.njit(lambda p, x: 0.0), None, (X, 3), **OWN),
    "does not fall along": lambda: sd.sample(None, parameters={"a": sd.positive()}),
    "no sum over rows": lambda: sd.sample(
        lambda p, x: -(((x - p.sigma) ** 2).mean()), None, Y, **OWN, n_shards=2
    ),
    "must be None with a GaussianMixtureDensity": lambda: sd.sample(
        sd.GaussianMixtureDensity(2), None, Y, **OWN
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_input_is_refused(words):
    with pytest.raises(DataError, match=words):
        REFUSED[words]()


def test_a_density_that_takes_the_parameters_for_a_dict_is_told_their_form():
    with pytest.raises(TypeError, match="tuple indices") as seen:
        sd.sample(lambda p, y: -((y - p["a"]) ** 2).sum(), data=np.zeros(5), parameters={"a": sd.real()})
    assert "parameters are attributes of the first argument: p.a" in seen.value.__notes__
