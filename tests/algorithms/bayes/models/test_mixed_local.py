"""Mixed models of any family with the effects of one factor integrated out by quadrature: shards of these."""

import pickle

import numpy as np
import pytest
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.mixed import families
from stradask.algorithms.bayes.mixed import model as mixed
from stradask.algorithms.bayes.mixed.design import MixedDesign, Term
from stradask.algorithms.bayes.mixed.priors import chosen_priors
from stradask.algorithms.bayes.models.scaling import Scaling
from stradask.algorithms.bayes.shards.mixed_rows import with_local_last
from stradask.errors import StradaskError
from stradask.kernels.bayes.densities.mixed_lattice import MOST_NODES, draw_group, integral, table_size

OWN = {
    "normal": [0.8],
    "student_t": [0.5, 3.0],
    "logistic": [],
    "binomial": [],
    "poisson": [],
    "negative_binomial": [0.4],
    "gamma": [2.0],
    "ordered": [-1.0, 0.2, 1.5],
}


def make_group(family, k, seed=0, n=7):
    """Predictors, targets, weights, columns and the root of the covariance of a group with large effects."""
    rng = np.random.default_rng(seed)
    Z = np.column_stack([np.ones(n), rng.normal(0.5, 1, (n, k - 1))])
    T = np.tril(rng.normal(0, 0.5, (k, k))) + 0.8 * np.eye(k)
    f = rng.normal(0, 0.7, n)
    made = families.new_observations(family, f + Z @ T @ rng.standard_normal(k), by_name(family), rng)
    return f, made.astype(float), rng.integers(1, 3, n).astype(float), Z, T


def by_name(family):
    own = np.array(OWN[family])
    if family == "ordered":
        return {"cut": own}
    return dict(zip(mixed.AUXILIARY.get(family, ()), own, strict=True))


def integrand(family, z, f, y, weights, Z, T, constant=True):
    """Log of the integrand at points z (K, k), by SciPy."""
    at = f + z @ (Z @ T).T
    likelihood = np.stack([families.log_density(family, one, y, by_name(family)) for one in at])
    return likelihood @ weights - 0.5 * (z**2).sum(axis=1) - z.shape[1] / 2 * np.log(2 * np.pi) * constant


def without_predictor(family, y, weights):
    """What the kernel leaves to the density: what depends on the target, or on own parameters, alone."""
    if family in ("normal", "student_t", "gamma"):
        return weights.sum() * mixed.kernel.constant(mixed._CODES[family], np.array(OWN[family]))
    return -weights @ special.gammaln(y + 1) if family in ("poisson", "negative_binomial") else 0.0


def by_kernel(family, k, f, y, weights, Z, T):
    queue, table = np.empty(MOST_NODES, np.int64), np.zeros(table_size(k), np.int32)
    own, by_f = np.array(OWN[family]), np.empty(len(f))
    by_own, by_T = np.zeros(len(own)), np.zeros((k, k))
    value = integral(mixed._CODES[family], f, y, weights, own, Z, T, queue, table, by_f, by_own, by_T)
    assert not table.any()
    return value, by_f


@pytest.mark.parametrize("k", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_integrals_are_those_of_a_fine_grid(family, k):
    for seed in range(3):
        f, y, weights, Z, T = make_group(family, k, seed)
        value, by_f = by_kernel(family, k, f, y, weights, Z, T)
        step = 0.02 if k == 1 else 0.05
        line = np.arange(-7, 7, step)
        z = np.stack(np.meshgrid(*[line] * k), axis=-1).reshape(-1, k)
        heights = integrand(family, z, f, y, weights, Z, T)
        expected = special.logsumexp(heights) + k * np.log(step)
        assert value + without_predictor(family, y, weights) == pytest.approx(expected, abs=2e-5)
        h = 1e-4
        up, down = (by_kernel(family, k, f + s * h, y, weights, Z, T)[0] for s in (1, -1))
        assert by_f.sum() == pytest.approx((up - down) / (2 * h), abs=1e-3)


@pytest.mark.slow
def test_all_modes_of_student_noise_are_found():
    """Two clusters of rows, forty noise scales apart, of a group with a wide prior: two modes."""
    y, n = np.array([-20.0, -20.1, 20.0, 20.2]), 4
    Z, T = np.ones((n, 1)), np.array([[15.0]])
    value, _ = by_kernel("student_t", 1, np.zeros(n), y, np.ones(n), Z, T)
    z = np.arange(-7, 7, 1e-4)[:, None]
    heights = integrand("student_t", z, np.zeros(n), y, np.ones(n), Z, T)
    expected = special.logsumexp(heights) + np.log(1e-4)
    weights = special.softmax(heights)
    assert min(weights[z[:, 0] < 0].sum(), weights[z[:, 0] > 0].sum()) > 0.05
    assert value + without_predictor("student_t", y, np.ones(n)) == pytest.approx(expected, abs=1e-4)


def test_integrals_of_too_many_nodes_are_not_numbers():
    """Never a wrong number: two modes of Student noise, each a ten-thousandth of the distance wide."""
    y, n = np.array([-30.0, 30.0]), 2
    queue, table = np.empty(MOST_NODES, np.int64), np.zeros(table_size(2), np.int32)
    value = integral(
        mixed._CODES["student_t"], np.zeros(n), y, np.ones(n), np.array([1e-4, 3.0]),
        np.column_stack([np.ones(n), [1.0, 1.0]]), 15.0 * np.eye(2), queue, table, np.empty(n), np.zeros(2),
        np.zeros((2, 2)),
    )  # fmt: skip
    assert np.isnan(value)
    assert not table.any()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "k"), [("poisson", 2), ("student_t", 1), ("ordered", 3)])
def test_effects_are_drawn_from_their_conditional_distribution(family, k):
    f, y, weights, Z, T = make_group(family, k, 5)
    queue, table = np.empty(MOST_NODES, np.int64), np.zeros(table_size(k), np.int32)
    heights = np.empty(MOST_NODES)
    stream, draws = np.array([0, 1, 2, 3, 4, 5], np.uint32), np.empty((4000, k))
    for r, u in enumerate(draws):
        stream[:2] = 0, r
        draw_group(
            mixed._CODES[family], f, y, weights, np.array(OWN[family]), Z, T, queue, table, heights, stream, u
        )
    assert not table.any()
    made = np.linalg.solve(T, draws.T).T
    step = {1: 0.01, 2: 0.08, 3: 0.25}[k]
    line = np.arange(-6, 6, step)
    z = np.stack(np.meshgrid(*[line] * k), axis=-1).reshape(-1, k)
    shares = special.softmax(integrand(family, z, f, y, weights, Z, T))
    for j in range(k):
        levels = np.array([shares[np.abs(z[:, j] - at) < step / 2].sum() for at in line])
        below = np.interp(made[:, j], line + step / 2, np.cumsum(levels))
        assert stats.kstest(below, "uniform").pvalue > 1e-4


def make_design(family, n=120, n_groups=12, seed=0):
    """Slopes by group and crossed intercepts, the former last as shards have them."""
    rng = np.random.default_rng(seed)
    x, g, h = rng.normal(1, 1, n), np.arange(n) % n_groups, rng.integers(0, 4, n)
    Z = np.column_stack([np.ones(n), x])
    terms = (
        Term("g", ("Intercept", "x"), np.arange(n_groups), Z, g),
        Term("h", ("Intercept",), np.arange(4), Z[:, :1], h),
    )
    f = 0.3 + 0.5 * x + rng.normal(0, 0.5, n_groups)[g] + rng.normal(0, 0.4, 4)[h]
    own = {"sigma": 0.8, "freedom": 5.0, "overdispersion": 0.4, "shape": 2.0, "cut": np.array([-1, 0.2, 1.5])}
    y = families.new_observations(family, f, own, rng).astype(float)
    levels = 4 if family == "ordered" else 0
    design = MixedDesign(("x",), x[:, None], y, np.ones(n), np.zeros(n), terms, not levels, levels)
    return with_local_last(design)


SLOW = [
    pytest.param(f, marks=[pytest.mark.slow] * (f not in ("normal", "ordered"))) for f in families.FAMILIES
]


@pytest.mark.parametrize("family", SLOW)
def test_shards_multiply_to_the_joint_density_without_the_effects(family):
    """Gradients by differences; shards add up to the whole, and this to the density with all effects."""
    design = make_design(family)
    scaling, priors = Scaling(design.centres, design.spreads), chosen_priors(None, family, design)
    common, groups = mixed.inspect_design(family, design, scaling), design.terms[-1].groups
    make = lambda rows, power: mixed.mixed_model(family, design[rows], scaling, priors, power, common)  # noqa: E731
    whole = make(np.arange(len(groups)), 1.0)
    shards = [make(np.flatnonzero(groups % 3 == m), 1 / 3) for m in range(3)]
    Q = whole.start + np.random.default_rng(0).normal(0, 0.3, (3, len(whole.start)))
    gaps = whole.logp_batch(Q) - sum(shard.logp_batch(Q) for shard in shards)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)
    _, gradient = whole.logp_grad(Q[0])
    h = 1e-4 * np.eye(len(Q[0]))
    found = (whole.logp_grads(Q[0] + h)[0] - whole.logp_grads(Q[0] - h)[0]) / 2e-4
    np.testing.assert_allclose(gradient, found, rtol=1e-5, atol=1e-3)
    again = pickle.loads(pickle.dumps(shards[0]))
    np.testing.assert_array_equal(again.logp_batch(Q), shards[0].logp_batch(Q))
    np.testing.assert_array_equal(shards[0].without_data().values(Q), shards[0].values(Q))
    if family == "normal":
        alone = with_local_last(
            MixedDesign(design.names, design.X, design.y, design.weights, design.offsets, (design.terms[-1],))
        )
        priors = chosen_priors(None, family, alone)
        closed = mixed.mixed_model(family, alone, scaling, priors)
        common = mixed.inspect_design(family, alone, scaling)
        by_nodes = mixed.mixed_model(family, alone, scaling, priors, common=common)
        q = closed.start + 0.1
        assert closed.logp_grad(q)[0] == pytest.approx(by_nodes.logp_grad(q)[0], abs=1e-6)
        np.testing.assert_allclose(closed.logp_grad(q)[1], by_nodes.logp_grad(q)[1], atol=1e-4)


def test_chains_of_a_shard_sample_all_its_effects_and_keep_what_shards_share():
    design = make_design("poisson")
    scaling, priors = Scaling(design.centres, design.spreads), chosen_priors(None, "poisson", design)
    common, rows = (
        mixed.inspect_design("poisson", design, scaling),
        np.flatnonzero(design.terms[-1].groups % 3 == 1),
    )
    shard, whole = (
        mixed.mixed_model("poisson", design[rows], scaling, priors, power, common) for power in (1 / 3, 1)
    )
    rng, joint = np.random.default_rng(0), shard.chained
    q = joint.start + rng.normal(0, 0.3, (2, joint.n_params))
    assert joint.n_params == shard.n_params + 4 * 2
    kept, logps, _ = shard.reduced(q)
    n = sum(len(shape) if isinstance(shape, list) else 1 for shape in shard.mixed.shared.values()) + 4
    np.testing.assert_allclose(joint.values(q)[:, :n], shard.values(kept)[:, :n], rtol=1e-12)
    np.testing.assert_array_equal(logps, shard.logp_grads(kept)[0])
    # The density of the shard's own effects has no part of the prior's power: no other shard has them.
    other = q.copy()
    other[:, shard.n_params + 2 :] += rng.normal(0, 0.3, (2, 6))  # not their mean, which moves coefficients
    np.testing.assert_allclose(
        joint.logp_grads(other)[0] - joint.logp_grads(q)[0],
        whole.chained.logp_grads(other)[0] - whole.chained.logp_grads(q)[0],
    )
    h = 1e-5 * np.eye(joint.n_params)
    found = (joint.logp_grads(q[0] + h)[0] - joint.logp_grads(q[0] - h)[0]) / 2e-5
    np.testing.assert_allclose(joint.logp_grad(q[0])[1], found, rtol=1e-6, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "formula"),
    [
        ("poisson", "y ~ x + (1 | g)"),
        ("logistic", "y ~ x + (x | g)"),
        ("student_t", "y ~ x + (1 | g)"),
        ("normal", "y ~ x + (1 | g) + (1 | h)"),
        ("gamma", "y ~ x + (x || g)"),
        ("negative_binomial", "y ~ x + (1 | g)"),
        ("ordered", "y ~ x + (1 | g)"),
    ],
)
def test_shards_have_the_posterior_of_all_rows(family, formula):
    """All parameters and effects, against chains in one piece; crossed effects and slopes among them."""
    pytest.importorskip("formulaic")
    rng, n = np.random.default_rng(1), 480
    x, g, h = rng.normal(0, 1, n), np.arange(n) % 40, rng.integers(0, 5, n)
    u, v = rng.normal(0, 0.5, (40, 2)), rng.normal(0, 0.4, 5)
    if family in ("logistic", "negative_binomial", "gamma", "ordered"):
        u, v = 2 * u, 2 * v  # with less a standard deviation of zero fits too, and "auto" refuses
    f = 0.3 + 0.6 * x + u[g, 0] + 0.6 * u[g, 1] * x * ("x |" in formula) + v[h] * ("| h" in formula)
    own = {"sigma": 0.7, "freedom": 5.0, "overdispersion": 0.3, "shape": 2.0, "cut": np.array([-0.5, 1.0])}
    data = {"y": families.new_observations(family, f, own, rng), "x": x, "g": g, "h": h}
    fit = lambda **options: sd.BayesianGLM(formula, family, random_state=0, **options).fit(data).posterior_  # noqa: E731
    n_samples = 1000 if family == "ordered" else 500  # cuts and crossed effects mix slowly
    whole, shards = fit(n_samples=2000), fit(n_samples=n_samples, n_shards=3)
    assert set(whole.names) == set(shards.names)
    assert shards.diagnostics.level < 2, shards.diagnostics.verdict
    made = shards.draws[:, [shards.names.index(name) for name in whole.names]]
    mean, sds = whole.draws.mean(axis=0), whole.draws.std(axis=0)
    np.testing.assert_allclose((made.mean(axis=0) - mean) / sds, 0, atol=0.16)
    np.testing.assert_allclose(np.log(made.std(axis=0) / sds), 0, atol=0.16)


def test_places_without_an_integral_are_left_out_and_no_draw_may_have_one():
    design = make_design("logistic")
    scaling, priors = Scaling(design.centres, design.spreads), chosen_priors(None, "logistic", design)
    model = mixed.mixed_model(
        "logistic", design, scaling, priors, common=mixed.inspect_design("logistic", design, scaling)
    )
    q, draw = model.start.copy(), model.chained.start[None].copy()
    place = model.names.index("log sd_g[x]")
    q[place] = draw[0, place] = 24.7
    assert model.logp_grad(q)[0] == -np.inf
    with pytest.raises(StradaskError, match="does not converge at a draw of a shard"):
        model.reduced(draw)


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ a + (a + b + c | g)", "has 4 effects a group, and quadrature takes 3"),
        pytest.param(
            "y ~ (1 | g) + (1 | h) + (0 + a | h)",
            "all shards would share 80 effects of the groups of h",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_where_shards_do_not_serve_the_fit_is_in_one_piece(formula, words, tmp_path):
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal(100) for name in "abc"}
    data |= {"y": rng.poisson(2.0, 100), "g": np.arange(100) % 50, "h": rng.permutation(100) % 40}
    model = sd.BayesianGLM(formula, "poisson", n_shards=2, n_samples=20, n_warmup=40, random_state=0)
    with pytest.warns(UserWarning, match=words):
        model.fit(data)
    assert model.n_shards_ == 1
    assert list(model.groups_) == [term.name for term in model._formula.terms]
    one = sd.BayesianGLM(formula, "poisson", n_samples=20, n_warmup=40, random_state=0).fit(data)
    assert set(one.posterior_.names) == set(model.posterior_.names)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "model.npz").predict(data), model.predict(data))
