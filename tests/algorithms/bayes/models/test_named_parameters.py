"""Named parameters and priors by name: transforms, Jacobians, densities, derivatives, what is refused."""

import math

import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.models.layout import NamedLayout
from stradask.algorithms.bayes.models.named import named_model
from stradask.errors import DataError
from stradask.kernels.bayes.densities import parameter_priors

KINDS = {
    "real": sd.real((2, 2)),
    "positive": sd.positive(3),
    "unit": sd.unit(2),
    "interval": sd.interval(-1, 4),
    "above": sd.interval(2, math.inf),
    "below": sd.interval(-math.inf, 3, 2),
    "simplex": sd.simplex(4, 2),
    "ordered": sd.ordered(4, 2),
    "one": sd.ordered(1),
    "rates": sd.ordered(3, 2, low=0),
    "bounded": sd.ordered(2, low=-1.5),
    "cholesky": sd.cholesky(4),
    "several": sd.cholesky(2, 3),
}
P = sd.priors
PRIORS = {
    "normal": (sd.real(3), P.normal(1, [1, 2, 3]), stats.norm(1, [1, 2, 3])),
    "student_t": (sd.real(2), P.student_t(3, 1, 2), stats.t(3, 1, 2)),
    "cauchy": (sd.ordered(2), P.cauchy(1, 2), stats.cauchy(1, 2)),
    "laplace": (sd.real(2), P.laplace(-1, 0.5), stats.laplace(-1, 0.5)),
    "lognormal": (sd.positive(2), P.lognormal(0.3, 0.7), stats.lognorm(0.7, scale=math.exp(0.3))),
    "half_normal": (sd.positive(2), P.half_normal(2), stats.halfnorm(scale=2)),
    "half_cauchy": (sd.positive(2), P.half_cauchy(2), stats.halfcauchy(scale=2)),
    "rising_gamma": (sd.ordered(3, low=0), P.gamma([2, 0.5, 1], 3), stats.gamma([2, 0.5, 1], scale=1 / 3)),
    "exponential": (sd.positive(2), P.exponential(3), stats.expon(scale=1 / 3)),
    "gamma": (sd.positive(2), P.gamma([2, 0.5], 3), stats.gamma([2, 0.5], scale=1 / 3)),
    "inverse_gamma": (sd.positive(2), P.inverse_gamma(2.5, 3), stats.invgamma(2.5, scale=3)),
    "beta": (sd.unit(2), P.beta(0.5, 3), stats.beta(0.5, 3)),
    "uniform": (sd.interval(0, 2), P.uniform(-1, 4), stats.uniform(-1, 5)),
}
COVARIANCE = np.array([[2, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 3]])


def evaluated(layout, q):
    """Values by name, log of the Jacobian, log of the priors."""
    table, reals = layout.tables
    numbers, places = np.append(1.0, reals), np.concatenate([[2, layout.n_values], table])
    work = np.zeros(4 * layout.n_values + len(q))
    jacobian = parameter_priors.place(q, work, numbers, places)
    whole = parameter_priors.begin(q, work, numbers, places)
    return layout.named(work[: layout.n_values]), jacobian, whole - jacobian


def points(layout, n=3):
    rng = np.random.default_rng(0)
    return [rng.normal(0, 1 + i, layout.n_free) for i in range(n)]


def free_entries(parameter, values):
    """Entries of a value to which its density refers."""
    k = parameter.size
    values = np.reshape(values, (parameter.n_copies, *parameter.entry))
    if parameter.entry == (k, k):
        rows, columns = np.tril_indices(k, -1)
        return (values @ values.transpose(0, 2, 1))[:, rows, columns].ravel()
    is_simplex = parameter.n_free < parameter.n_values
    return (values[:, :-1] if is_simplex else values).ravel()


@pytest.mark.parametrize("kind", KINDS)
def test_jacobians_are_determinants_of_differences(kind):
    layout, parameter = NamedLayout({"x": KINDS[kind]}), KINDS[kind]
    for q in points(layout):
        h = 1e-6
        rows = [
            (free_entries(parameter, evaluated(layout, q + step)[0].x)
             - free_entries(parameter, evaluated(layout, q - step)[0].x)) / (2 * h)
            for step in h * np.eye(len(q))
        ]  # fmt: skip
        sign, expected = np.linalg.slogdet(np.array(rows))
        assert abs(sign) == 1
        assert evaluated(layout, q)[1] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_is_where_its_values_are(kind):
    layout = NamedLayout({"x": KINDS[kind]})
    assert len(layout.names) == len(set(layout.names)) == layout.n_free
    for q in points(layout):
        np.testing.assert_allclose(layout.start({"x": evaluated(layout, q)[0].x}), q, rtol=1e-6, atol=1e-9)


def test_values_lie_in_their_supports_however_far_out():
    layout = NamedLayout(KINDS)
    for size in (1.0, 30.0, 500.0):
        for way in (1.0, -1.0):
            signs = np.where(np.arange(layout.n_free) % 3, way, -way)
            p, jacobian, _ = evaluated(layout, size * signs)
            assert np.isfinite(jacobian)
            assert (p.positive >= 0).all()
            assert ((p.unit >= 0) & (p.unit <= 1)).all()
            assert -1 <= p.interval <= 4
            assert p.above >= 2
            assert (p.below <= 3).all()
            np.testing.assert_allclose(p.simplex.sum(axis=1), 1)
            assert (np.diff(p.ordered, axis=1) >= 0).all()
            assert (np.diff(p.rates, axis=1, prepend=0) >= 0).all()
            np.testing.assert_allclose((p.cholesky**2).sum(axis=1), 1)


@pytest.mark.parametrize("name", PRIORS)
def test_priors_are_those_of_scipy(name):
    parameter, prior, expected = PRIORS[name]
    layout = NamedLayout({"x": parameter}, {"x": prior})
    for q in points(layout):
        p, _, found = evaluated(layout, q)
        assert found == pytest.approx(np.sum(expected.logpdf(p.x)), rel=1e-9, abs=1e-9)


def test_priors_of_vectors_are_those_of_scipy():
    parameters = {"w": sd.simplex(3), "even": sd.simplex(4, 2), "x": sd.real((2, 3)), "T": sd.simplex(2, 2)}
    priors = {"w": P.dirichlet([1, 2, 0.5]), "even": P.dirichlet(0.7), "T": P.dirichlet([[4, 1], [2, 3]])}
    priors["x"] = P.multivariate_normal([0, 1, 2], COVARIANCE)
    layout = NamedLayout(parameters, priors)
    for q in points(layout):
        p, _, found = evaluated(layout, q)
        expected = stats.dirichlet([1, 2, 0.5]).logpdf(p.w)
        expected += sum(stats.dirichlet([0.7] * 4).logpdf(w) for w in p.even)
        expected += stats.dirichlet([4, 1]).logpdf(p.T[0]) + stats.dirichlet([2, 3]).logpdf(p.T[1])
        expected += stats.multivariate_normal([0, 1, 2], COVARIANCE).logpdf(p.x).sum()
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("k", "volume"), [(2, 2.0), (3, math.pi**2 / 2), (4, 32 * math.pi**2 / 27)])
def test_lkj_of_one_is_uniform_over_the_volume_of_correlation_matrices(k, volume):
    layout = NamedLayout({"L": sd.cholesky(k)}, {"L": P.lkj(1)})
    other = NamedLayout({"L": sd.cholesky(k)}, {"L": P.lkj(2.5)})
    apart = []
    for q in points(layout):
        p, _, found = evaluated(layout, q)
        assert found == pytest.approx(-math.log(volume))
        apart.append(evaluated(other, q)[2] - 1.5 * np.linalg.slogdet(p.L @ p.L.T)[1])
    assert np.ptp(apart) < 1e-6  # nearly singular ones, whose determinants cancel
    if k == 2:  # a beta variable on (-1, 1)
        p, _, found = evaluated(other, np.array([0.4]))
        assert found == pytest.approx(stats.beta(2.5, 2.5, -1, 2).logpdf(p.L[1, 0]))


def test_derivatives_agree_with_differences():
    parameters = KINDS | {name: parameter for name, (parameter, _, _) in PRIORS.items()}
    parameters |= {
        "z": sd.real(3),
        "s": sd.positive(3),
        "m": sd.real(),
        "t": sd.positive(),
        "v": sd.real((2, 3)),
    }
    priors = {name: prior for name, (_, prior, _) in PRIORS.items()}
    priors |= {"z": P.normal("m", "s"), "s": P.half_cauchy("t"), "t": P.exponential("u")}
    parameters |= {
        "u": sd.positive(),
        "a": sd.real(2),
        "b": sd.real(2),
        "c": sd.positive(2),
        "d": sd.positive(),
    }
    priors |= {"a": P.student_t(3, "m", "t"), "b": P.laplace("m", "t"), "c": P.lognormal("m", "t")}
    priors |= {"simplex": P.dirichlet([1, 2, 3, 0.5]), "cholesky": P.lkj(2), "d": P.half_normal("u")}
    priors |= {"v": P.multivariate_normal([0, 1, 2], COVARIANCE), "above": P.half_normal(3)}
    model = named_model(None, None, None, np.zeros(NamedLayout(parameters).n_free), power=0.25,
                        layout=NamedLayout(parameters, priors), check=False)  # fmt: skip
    h = 1e-5
    for q in points(model.layout):
        steps = h * np.eye(len(q))
        above, below = model.logp_grads(q + steps)[0], model.logp_grads(q - steps)[0]
        gradient = model.logp_grad(q)[1]
        np.testing.assert_allclose(gradient, (above - below) / (2 * h), rtol=2e-5, atol=2e-5)


REFUSED = {
    "k must be an integer of at least 2, got 0": lambda: sd.simplex(0),
    "ordered: k must be an integer of at least 1": lambda: sd.ordered(0),
    "ordered: low must be a number": lambda: sd.ordered(2, low=math.nan),
    "ordered: low must be below inf": lambda: sd.ordered(2, low=math.inf),
    "cholesky: k must be": lambda: sd.cholesky(True),
    "low must be below high, got low=2": lambda: sd.interval(2, 1),
    "low must be below high": lambda: sd.interval(1, 1),
    "neither bound is finite": lambda: sd.interval(-math.inf, math.inf),
    "low must be a number": lambda: sd.interval("1", 2),
    "wider than numbers go": lambda: sd.interval(-1e308, 1e308),
    "every side of shape": lambda: sd.real(0),
    "shape must be an integer": lambda: sd.real(1.5),
    "sd must be above zero": lambda: P.normal(0, 0),
    "mean must be finite": lambda: P.normal(math.nan),
    "mean must be numbers": lambda: P.normal({}),
    "rate must be above zero": lambda: P.gamma(1, -1),
    "freedom must be one number": lambda: P.student_t([1, 2]),
    "low must be below high, both": lambda: P.uniform(1, 0),
    "symmetric and positive definite": lambda: P.multivariate_normal([0, 0], [[1, 2], [2, 1]]),
    "covariance must be symmetric": lambda: P.multivariate_normal([0, 0], [[1, 0.5], [0.4, 1]]),
    "mean must have the shape": lambda: P.multivariate_normal([0, 0], [[1.0]]),
    "must be a dict of names": lambda: NamedLayout([("a", sd.real())]),
    "with one entry or more": lambda: NamedLayout({}),
    "cannot be a name": lambda: NamedLayout({"log sd": sd.real()}),
    "'lambda' cannot be a name": lambda: NamedLayout({"lambda": sd.real()}),
    "reads p.\u00b5 as p.\u03bc": lambda: NamedLayout({"\u00b5": sd.real()}),  # the micro sign of a keyboard
    r"parameters\['a'\] must be one of": lambda: NamedLayout({"a": 3}),
    "priors has 'b', but parameters are a": lambda: NamedLayout({"a": sd.real()}, {"b": P.normal()}),
    r"priors\['a'\] must be a density": lambda: NamedLayout({"a": sd.real()}, {"a": 1}),
    "priors must be a dict": lambda: NamedLayout({"a": sd.real()}, [P.normal()]),
    r"half_normal\(scale=1.0\), but a is any real": lambda: NamedLayout(
        {"a": sd.real()}, {"a": P.half_normal()}
    ),
    r"take positive\(\)": lambda: NamedLayout({"a": sd.unit()}, {"a": P.gamma(1, 1)}),
    r"take unit\(\)": lambda: NamedLayout({"a": sd.interval(0, 2)}, {"a": P.beta(1, 1)}),
    "inside these bounds": lambda: NamedLayout({"a": sd.interval(0, 2)}, {"a": P.uniform(0, 1)}),
    "as many entries": lambda: NamedLayout({"w": sd.simplex(3)}, {"w": P.dirichlet([1, 1])}),
    "a concentration for each": lambda: NamedLayout({"w": sd.simplex(2, 2)}, {"w": P.dirichlet([[1, 1]])}),
    "dirichlet for a simplex": lambda: NamedLayout({"w": sd.simplex(3)}, {"w": P.normal()}),
    "as many entries as mean": lambda: NamedLayout(
        {"x": sd.real(2)}, {"x": P.multivariate_normal(np.zeros(3), np.eye(3))}
    ),
    r"mean has the shape \(2,\), but a has \(3,\)": lambda: NamedLayout(
        {"a": sd.real(3)}, {"a": P.normal([0, 0])}
    ),
    "mean is 'm', but parameters are a": lambda: NamedLayout({"a": sd.real()}, {"a": P.normal("m")}),
    "which may be negative": lambda: NamedLayout({"a": sd.real(), "s": sd.real()}, {"a": P.normal(0, "s")}),
    "or of the same shape": lambda: NamedLayout({"a": sd.real(3), "m": sd.real(2)}, {"a": P.normal("m")}),
    "in a circle": lambda: NamedLayout(
        {"a": sd.real(), "b": sd.real()}, {"a": P.normal("b"), "b": P.normal("a")}
    ),
    "a depend on each other": lambda: NamedLayout({"a": sd.real()}, {"a": P.normal("a")}),
    "start has 'b'": lambda: NamedLayout({"a": sd.real()}).start({"b": 1}),
    "start must be a dict": lambda: NamedLayout({"a": sd.real()}).start([1.0]),
    r"start\['a'\] has the shape \(2,\)": lambda: NamedLayout({"a": sd.real()}).start({"a": [1, 2]}),
    r"start\['a'\] must be numbers": lambda: NamedLayout({"a": sd.real()}).start({"a": "x"}),
    "outside of the support: it must be between 0 and inf": lambda: NamedLayout({"a": sd.positive()}).start(
        {"a": 0}
    ),
    "positive numbers of sum 1": lambda: NamedLayout({"a": sd.simplex(2)}).start({"a": [0.5, 0.6]}),
    "2 rising numbers": lambda: NamedLayout({"a": sd.ordered(2)}).start({"a": [1, 1]}),
    "2 rising numbers above 0": lambda: NamedLayout({"a": sd.ordered(2, low=0)}).start({"a": [0, 1]}),
    "rows of length 1": lambda: NamedLayout({"a": sd.cholesky(2)}).start({"a": np.eye(2) * 2}),
    "outside of the support": lambda: NamedLayout({"a": sd.real()}).start({"a": math.nan}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_input_is_refused_by_name(words):
    with pytest.raises(DataError, match=words):
        REFUSED[words]()


@pytest.mark.parametrize(
    ("parameter", "prior", "kept"),
    [
        (sd.positive(), P.normal(0, "s"), True),  # a half
        (sd.interval(-math.inf, 2), P.student_t(3, 2, "s"), True),
        (sd.positive(), P.half_cauchy("s"), True),
        (sd.ordered(3), P.normal(1, "s"), True),  # a sixth
        (sd.ordered(3, low=0), P.normal(0, "s"), True),
        (sd.ordered(3, low=0), P.exponential("s"), True),
        (sd.unit(), P.normal(0, 1), True),
        (sd.positive(), P.normal(1, "s"), False),
        (sd.positive(), P.normal("s", 1), False),
        (sd.unit(), P.exponential("s"), False),
        (sd.interval(1, math.inf), P.half_normal("s"), False),
        (sd.ordered(3), P.normal([0, 1, 2], "s"), False),
        (sd.ordered(3, low=0), P.normal(1, "s"), False),
    ],
)
def test_what_a_support_leaves_of_a_prior_depends_on_no_parameter(parameter, prior, kept):
    """Else the density of s would lack the part that is left: a factor that depends on s."""
    parameters = {"x": parameter, "s": sd.positive()}
    if kept:
        assert NamedLayout(parameters, {"x": prior}).priors["x"] is prior
    else:
        with pytest.raises(DataError, match=r"depends on s, and stradask does not.* log_prior\(p\)"):
            NamedLayout(parameters, {"x": prior})
