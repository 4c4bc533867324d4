"""Densities of mixed models against SciPy, closed forms and each other."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.mixed import families
from stradask.algorithms.bayes.mixed import model as mixed
from stradask.algorithms.bayes.mixed.design import MixedDesign, Term
from stradask.algorithms.bayes.mixed.draws import MixedLikelihoods, prior_values
from stradask.algorithms.bayes.mixed.model import MixedLayout, inspect_design, mixed_model
from stradask.algorithms.bayes.mixed.priors import chosen_priors, location, stretched
from stradask.algorithms.bayes.models.layout import NamedLayout
from stradask.algorithms.bayes.models.named import named_model
from stradask.algorithms.bayes.models.scaling import Scaling
from stradask.errors import DataError

OWN = {
    "sigma": 0.8, "freedom": 5.0, "overdispersion": 0.5, "shape": 2.0, "cut": np.array([-1.0, 0.0, 0.8]),
}  # fmt: skip


def make_design(family, n_terms=2, n=80, seed=0, k=2, n_groups=5):
    """Rows with weights and offsets; terms of correlated and of single effects."""
    rng = np.random.default_rng(seed)
    X, g, h = rng.normal(3, 2, (n, 2)), rng.integers(0, n_groups, n), rng.integers(0, 4, n)
    Z = np.column_stack([np.ones(n), X])[:, :k]
    terms = [
        Term("g", ("Intercept", "a", "b")[:k], np.arange(n_groups), Z, g),
        Term("h", ("Intercept", "a"), np.arange(4), Z[:, :2], h, correlated=False),
    ][:n_terms]
    f = 0.3 * X[:, 0] - 0.2 * X[:, 1] + 0.1 + rng.normal(0, 0.5, n_groups)[g]
    y = families.new_observations(family, f, OWN, rng).astype(float)
    ordered = family == "ordered"
    weights = rng.integers(1, 3, n).astype(float)
    return MixedDesign(
        ("a", "b"), X, y, weights, rng.normal(0, 0.1, n), tuple(terms), not ordered, 4 if ordered else 0
    )


def make_model(family, design, size=1.0, **options):
    scaling, priors = Scaling(design.centres, design.spreads, size=size), chosen_priors(None, family, design)
    design = replace(design, y=design.y / size, offsets=design.offsets / size)
    return mixed_model(family, design, scaling, priors, **options)


def by_name(model, q):
    values = model.values(q[None])[0]
    found, first = {}, 0
    variables = model.mixed.variables if model.mixed.sampled else model.mixed.shared
    for name, shape in variables.items():
        size = len(shape) if isinstance(shape, list) else int(np.prod(shape))
        part = values[first : first + size]
        found[name], first = (part if shape else float(part[0])), first + size
    assert first == len(values)
    return found


def covariance(values, term):
    s = np.asarray(values[f"sd_{term.name}"])
    R = np.eye(len(s))
    if term.has_correlations:
        for r, (i, _, j, _) in zip(values[f"cor_{term.name}"], term.pairs, strict=True):
            R[i, j] = R[j, i] = r
    return s[:, None] * R * s


def log_prior(family, design, values, priors):
    """Of all that groups share, by SciPy, on the user's scale, with the Jacobians of logarithms."""
    total = 0.0
    for name, b in zip(design.names, values["coef"], strict=True):
        total += stats.norm.logpdf(b, 0, float(dict(priors[f"coef[{name}]"].arguments)["sd"]))
    shift = values["coef"] @ design.centres
    if design.intercept:
        _, (_, location), (_, scale) = (None, *priors["intercept"].arguments[:2])
        total += stats.t.logpdf(values["intercept"] + shift, 3, location, scale)
    for term in design.terms:
        s = np.asarray(values[f"sd_{term.name}"])
        scales = np.asarray(dict(priors[f"sd_{term.name}"].arguments)["scale"])
        total += stats.halfnorm.logpdf(s, scale=scales).sum() + np.log(s).sum()
        if term.has_correlations:
            total += np.log1p(-np.square(values[f"cor_{term.name}"])).sum()  # one: the derivative of tanh
    densities = {
        "sigma": lambda x: stats.expon.logpdf(x, scale=1 / float(dict(priors["sigma"].arguments)["rate"])),
        "freedom": lambda x: stats.gamma.logpdf(x, 2, scale=10),
        "overdispersion": lambda x: stats.halfcauchy.logpdf(x),
        "shape": lambda x: stats.lognorm.logpdf(x, 2, scale=np.exp(1)),
    }
    for name, density in densities.items():
        if name in values:
            total += density(values[name]) + np.log(values[name])
    if family == "ordered":
        cut = values["cut"] - shift
        location = float(dict(priors["cut"].arguments)["location"])
        total += stats.t.logpdf(cut, 3, location, 2.5).sum() + np.log(np.diff(cut)).sum()
    return total


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("bits", [(0, 0), (1, 2), (3, 3)])
def test_the_joint_density_is_prior_times_effects_times_likelihood(family, bits):
    design, size = make_design(family), 3.0 if family in ("normal", "student_t") else 1.0
    model, priors = make_model(family, design, size), chosen_priors(None, family, design)
    first = model.meta[mixed.kernel.TERMS_AT] + mixed.kernel.CENTRED
    model.meta[[first, first + mixed.kernel.TERM]] = bits
    rng, apart = np.random.default_rng(1), []
    for _ in range(3):
        q = model.start + rng.normal(0, 0.4, len(model.start))
        values = by_name(model, q)
        total = log_prior(family, design, values, priors)
        f = design.offsets + design.X @ values["coef"] + values.get("intercept", 0.0)
        for term in design.terms:
            U = np.stack([values[f"{term.name}:{column}"] for column in term.columns], axis=1)
            total += stats.multivariate_normal.logpdf(U, np.zeros(len(U[0])), covariance(values, term)).sum()
            f += (term.Z * U[term.groups]).sum(axis=1)
        own = {name: values[name] for name in mixed.AUXILIARY.get(family, ())}
        total += design.weights @ families.log_density(family, f, design.y, own)
        # Centred columns are v itself, but for the first row; the others z = T^-1 v, with a factor T_jj each.
        for t, term in enumerate(design.terms):
            bits = model.meta[
                model.meta[mixed.kernel.TERMS_AT] + t * mixed.kernel.TERM + mixed.kernel.CENTRED
            ]
            for j, scale in enumerate(np.diag(np.linalg.cholesky(covariance(values, term)))):
                n_free = 1 if bits >> j & 1 else len(term.levels)
                total += n_free * np.log(scale) + (len(term.levels) - n_free) * np.log(size)
        apart.append(total - model.logp_grad(q)[0])
    # Coefficients and the intercept are in units of y; the correlation has the density 1/2.
    units = np.append(design.spreads, 1.0 if design.intercept else size) / size
    expected = model.log_constant + np.log(units).sum() + np.log(2)
    np.testing.assert_allclose(apart, expected, atol=1e-6)


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("n_terms", [0, 1, 2])
def test_gradients(family, n_terms):
    model = make_model(family, make_design(family, n_terms, k=3))
    if family != "normal" and n_terms:
        model.meta[model.meta[mixed.kernel.TERMS_AT] + mixed.kernel.CENTRED] = 5
    q = model.start + np.random.default_rng(2).normal(0, 0.3, len(model.start))
    _, gradient = model.logp_grad(q)
    h = 1e-5 * np.eye(len(q))
    found = (model.logp_grads(q + h)[0] - model.logp_grads(q - h)[0]) / 2e-5
    np.testing.assert_allclose(gradient, found, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("k", "n"), [(1, 80), (2, 80), (3, 80), (3, 12)]
)  # the last: groups of fewer rows than k
def test_effects_are_integrated_out_as_a_multivariate_normal(k, n):
    design = make_design("normal", 1, n=n, k=k)
    model, priors = make_model("normal", design), chosen_priors(None, "normal", design)
    rng, apart = np.random.default_rng(1), []
    (term,) = design.terms
    same = term.groups[:, None] == term.groups
    for _ in range(3):
        q = model.start + rng.normal(0, 0.4, len(model.start))
        values = by_name(model, q)
        V = same * (term.Z @ covariance(values, term) @ term.Z.T) + np.diag(
            values["sigma"] ** 2 / design.weights
        )
        mean = design.offsets + design.X @ values["coef"] + values["intercept"]
        total = stats.multivariate_normal.logpdf(design.y, mean, V)
        # A row of weight w counts as w rows, whose differences are lost in their mean.
        total -= (design.weights - 1).sum() * np.log(values["sigma"])
        total += log_prior("normal", design, values, priors)
        if k == 3:  # partial correlations of LKJ(1) are not uniform: the layout's own density has its tests
            values = {**values, "cor_g": np.zeros(0)}
            total += stratum(model, q) - np.log1p(-np.square(by_name(model, q)["cor_g"])).sum()
        apart.append(total - model.logp_grad(q)[0])
    np.testing.assert_allclose(apart, apart[0], atol=1e-7)


def stratum(model, q):
    """Log density of the correlations of LKJ(1) in free numbers, by the named parameter."""
    layout = NamedLayout({"L": sd.cholesky(3)}, {"L": sd.priors.lkj(1)})
    free = [i for i, name in enumerate(model.names) if "cor" in name]
    return named_model(None, None, None, np.zeros(3), layout=layout).logp_grad(q[free])[0]


def test_effects_are_drawn_from_their_conditional_distribution():
    design = make_design("normal", 1)
    model = make_model("normal", design)
    q = model.start + 0.2
    values, (term,) = by_name(model, q), design.terms
    made, columns = model.draw_local(np.tile(q, (20_000, 1)), seed=3)
    assert sorted(columns) == list(range(10))
    S = np.linalg.inv(covariance(values, term))
    rest = design.y - design.offsets - design.X @ values["coef"] - values["intercept"]
    for g in range(5):
        rows = term.groups == g
        Z, w = term.Z[rows], design.weights[rows] / values["sigma"] ** 2
        C = np.linalg.inv(S + (Z * w[:, None]).T @ Z)
        mean = C @ (Z * w[:, None]).T @ rest[rows]
        own = made[:, [int(np.flatnonzero(columns == g)[0]), int(np.flatnonzero(columns == 5 + g)[0])]]
        sds = np.sqrt(np.diag(C))
        np.testing.assert_allclose((own.mean(axis=0) - mean) / sds, 0, atol=4 / np.sqrt(20_000))
        np.testing.assert_allclose(np.cov(own.T) / np.outer(sds, sds), C / np.outer(sds, sds), atol=0.05)


def test_both_engines_sample_one_posterior(monkeypatch):
    design = make_design("normal", 1, n=160, n_groups=9)
    integrated = make_model("normal", design)
    monkeypatch.setattr(mixed, "is_integrated", lambda family, terms: False)
    joint = make_model("normal", design)
    from stradask.algorithms.bayes.chains.sampling import sample_model

    moments = []
    for model in (integrated, joint):
        sample = sample_model(model, "nuts", n_samples=1000, n_warmup=500, seed=1, n_jobs=1)
        draws = sample.stacked()
        values = model.values(draws.reshape(-1, draws.shape[-1]))[:, :7]
        moments.append((values.mean(axis=0), values.std(axis=0)))
    (m0, s0), (m1, s1) = moments
    np.testing.assert_allclose((m1 - m0) / s0, 0, atol=0.12)
    np.testing.assert_allclose(s1 / s0, 1, atol=0.12)


def test_shards_multiply_to_all():
    """At any point the log densities of shards add up to that of all rows, up to one constant."""
    design = make_design("normal", 1)
    scaling, priors = Scaling(design.centres, design.spreads), chosen_priors(None, "normal", design)
    whole = mixed_model("normal", design, scaling, priors)
    groups = design.terms[0].groups
    shards = [
        mixed_model("normal", design[np.flatnonzero(groups % 2 == m)], scaling, priors, power=0.5)
        for m in (0, 1)
    ]
    Q = whole.start + np.random.default_rng(0).normal(0, 0.5, (4, len(whole.start)))
    gaps = whole.logp_batch(Q) - sum(shard.logp_batch(Q) for shard in shards)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)
    columns = np.concatenate([shard.draw_local(Q, seed=0)[1] for shard in shards])
    assert sorted(columns) == list(range(10))
    again = pickle.loads(pickle.dumps(shards[0]))
    np.testing.assert_array_equal(again.logp_batch(Q), shards[0].logp_batch(Q))


@pytest.mark.parametrize("family", families.FAMILIES)
def test_densities_of_families_are_scipys(family):
    rng = np.random.default_rng(0)
    f = rng.normal(0, 1, (4, 50))
    y = families.new_observations(family, f, OWN, rng)
    r, mean = 1 / OWN["overdispersion"], np.exp(f)
    edges = np.concatenate([[-np.inf], OWN["cut"], [np.inf]])
    expected = {
        "normal": lambda: stats.norm.logpdf(y, f, 0.8),
        "student_t": lambda: stats.t.logpdf(y, 5, f, 0.8),
        "logistic": lambda: stats.bernoulli.logpmf(y, stats.logistic.cdf(f)),
        "binomial": lambda: stats.binom.logpmf(y, 1, stats.logistic.cdf(f)),
        "poisson": lambda: stats.poisson.logpmf(y, mean),
        "negative_binomial": lambda: stats.nbinom.logpmf(y, r, r / (r + mean)),
        "gamma": lambda: stats.gamma.logpdf(y, 2, scale=mean / 2),
        "ordered": lambda: np.log(
            stats.logistic.cdf(edges[y.astype(int) + 1] - f) - stats.logistic.cdf(edges[y.astype(int)] - f)
        ),
    }[family]()
    np.testing.assert_allclose(families.log_density(family, f, y, OWN), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_new_observations_have_the_mean(family):
    rng, f = np.random.default_rng(0), np.full(200_000, 0.4)
    y, mean = families.new_observations(family, f, OWN, rng), families.mean(family, f[:1], OWN)[0]
    if family == "ordered":
        np.testing.assert_allclose(np.bincount(y) / len(y), mean, atol=0.005)
    else:
        assert abs(y.mean() - mean) < 5 * y.std() / np.sqrt(len(y))


def test_draws_of_the_prior_have_its_moments():
    design = make_design("gamma", 2, k=3)
    priors = chosen_priors({"cor": sd.priors.lkj(2), "sd": sd.priors.exponential(2)}, "gamma", design)
    layout = MixedLayout("gamma", design, Scaling(design.centres, design.spreads), priors, 2)
    values = prior_values(layout, 40_000, np.random.default_rng(0))
    names = [
        f"{name}[{label}]" if label else name
        for name, shape in layout.variables.items()
        for label in (shape if isinstance(shape, list) else [""])
    ]
    column = dict(zip(names, values.T, strict=True))
    tests = {
        "coef[a]": stats.norm(0, 2.5 / design.spreads[0]),
        "sd_g[Intercept]": stats.expon(scale=0.5),
        "cor_g[a~Intercept]": stats.beta(2.5, 2.5, loc=-1, scale=2),  # of LKJ(2) in three dimensions
        "cor_g[b~a]": stats.beta(2.5, 2.5, loc=-1, scale=2),
        "shape": stats.lognorm(2, scale=np.exp(1)),
    }
    for name, distribution in tests.items():
        assert stats.kstest(column[name], distribution.cdf).pvalue > 1e-4, name
    u = column["g:b[3]"] / column["sd_g[b]"]
    assert stats.kstest(u, stats.norm.cdf).pvalue > 1e-4
    assert (
        stats.kstest(
            column["intercept"] + values[:, :2] @ design.centres,
            stats.t(3, np.log(np.average(design.y, weights=design.weights)), 2.5).cdf,
        ).pvalue
        > 1e-4
    )


def test_pointwise_likelihoods_are_weighted_log_densities():
    design = make_design("ordered", 1)
    model = make_model("ordered", design)
    q = model.start + np.random.default_rng(0).normal(0, 0.3, (2, len(model.start)))
    named = [by_name(model, one) for one in q]
    values = {name: np.array([one[name] for one in named]) for name in named[0]}
    made = MixedLikelihoods("ordered", design)(values)
    for one, row in zip(named, made, strict=True):
        U = np.stack([one["g:Intercept"], one["g:a"]], axis=1)
        f = (
            design.offsets
            + design.X @ one["coef"]
            + (design.terms[0].Z * U[design.terms[0].groups]).sum(axis=1)
        )
        expected = design.weights * families.log_density("ordered", f, design.y, {"cut": one["cut"]})
        np.testing.assert_allclose(row, expected)


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"slope": sd.priors.normal()}, "priors has 'slope', but parameters are coef, sd, cor"),
        ({"a": 3}, "must be a density such as"),
        ({"a": sd.priors.half_normal(1)}, "coefficients may be any numbers"),
        ({"sd": sd.priors.normal("a", 1)}, "arguments must be numbers here"),
        ({"sigma": sd.priors.lkj(1)}, "sigma"),
        ([1], "priors must be a dict"),
    ],
)
def test_priors_that_are_refused(priors, words):
    design = make_design("normal", 1)
    with pytest.raises(DataError, match=words):
        mixed_model(
            "normal", design, Scaling(design.centres, design.spreads), chosen_priors(priors, "normal", design)
        )


def test_effects_of_nested_groups_are_told_apart_at_first_sight():
    rng = np.random.default_rng(0)
    inner = np.repeat(np.arange(600), 6)
    outer, ones = inner // 5, np.ones((3600, 1))
    terms = (
        Term("a", ("Intercept",), np.arange(120), ones, outer),
        Term("a:b", ("Intercept",), np.arange(600), ones, inner),
    )
    for sds in ((0.5, 0.9), (0.9, 0.8)):
        f = rng.normal(0, sds[0], 120)[outer] + rng.normal(0, sds[1], 600)[inner]
        y = f + rng.normal(0, 0.7, 3600)
        design = MixedDesign((), np.zeros((3600, 0)), y, np.ones(3600), np.zeros(3600), terms)
        found = inspect_design("normal", design, Scaling(design.centres, design.spreads)).spreads
        np.testing.assert_allclose(np.concatenate(found), sds, rtol=0.35)


@pytest.mark.parametrize(
    ("prior", "known"),
    [
        (sd.priors.half_normal(2.0), stats.halfnorm(scale=2)),
        (sd.priors.half_cauchy(2.0), stats.halfcauchy(scale=2)),
        (sd.priors.lognormal(0.5, 2.0), stats.lognorm(2, scale=np.exp(0.5))),
        (sd.priors.exponential(2.0), stats.expon(scale=0.5)),
        (sd.priors.gamma(3.0, 2.0), stats.gamma(3, scale=0.5)),
        (sd.priors.inverse_gamma(3.0, 2.0), stats.invgamma(3, scale=2)),
    ],
)
def test_priors_of_scales_in_other_units_are_the_same_densities(prior, known):
    other = named_model(
        None, None, None, np.zeros(1), layout=NamedLayout({"s": sd.positive()}, {"s": stretched(prior, 4.0)})
    )
    for s in (0.3, 2.0, 9.0):  # the density of log s, that of log(4 s)
        assert other.logp_grad(np.log([4 * s]))[0] == pytest.approx(known.logpdf(s) + np.log(s), abs=1e-9)


@pytest.mark.parametrize("family", ["student_t", "gamma", "ordered"])
def test_the_log_prior_of_draws_is_that_of_scipy(family):
    """Of scale priors and correlations too; intercept and cuts are at the means of the columns."""
    design = make_design(family)
    given = chosen_priors({"cor": sd.priors.lkj(3)}, family, design)
    layout = MixedLayout(family, design, Scaling(design.centres, design.spreads), given)
    draws = prior_values(layout, 7, np.random.default_rng(0))
    values, found = layout.with_log_prior(draws)
    expected, first = [], 0
    parts = {}
    for name, shape in layout.shared.items():
        size = len(shape) if isinstance(shape, list) else int(np.prod(shape))
        parts[name], first = draws[:, first : first + size], first + size
    for k in range(7):
        one = {name: part[k] for name, part in parts.items()}
        total = log_prior(family, design, one | {"cor_g": np.zeros(1)}, given).sum()
        total += 2 * np.log1p(-(one["cor_g"] ** 2)).sum()  # without the Jacobians of logarithms:
        logs = [one[name] for name in one if name.startswith("sd_") or name in ("sigma", "freedom", "shape")]
        total -= np.log(np.concatenate(logs)).sum()
        total -= np.log(np.diff(one["cut"])).sum() if family == "ordered" else 0.0
        expected.append(total)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], atol=1e-9)
    shift = draws[:, :2] @ design.centres
    at = 2 if design.intercept else values.shape[1] - 3
    sign = 1 if design.intercept else -1
    np.testing.assert_allclose(values[:, at], draws[:, at] + sign * shift)


def test_the_intercept_of_a_gamma_family_lies_where_its_unit_puts_it():
    design = make_design("gamma")
    middle, _ = location("gamma", replace(design, y=1e-9 * design.y))
    mean = np.log(1e-9 * np.average(design.y, weights=design.weights))
    assert middle == pytest.approx(mean - np.average(design.offsets, weights=design.weights))
