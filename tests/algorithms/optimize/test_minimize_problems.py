"""`minimize` with bounds, products of the Hessian, further arguments and parameters of any form."""

import collections

import numpy as np
import pytest
from scipy.optimize import Bounds, lsq_linear
from scipy.optimize import minimize as scipy_minimize

import stradask as sd
from stradask.algorithms.optimize.trees import Tree
from stradask.errors import CheckpointMismatch, DataError

RNG = np.random.default_rng(3)
X = RNG.standard_normal((200, 8)) @ np.diag(np.geomspace(0.1, 10, 8)) @ RNG.standard_normal((8, 8))
Y = X @ RNG.standard_normal(8) + RNG.standard_normal(200)
PORTIONS = [(X[rows], Y[rows]) for rows in np.array_split(np.arange(200), 5)]


def squared(portion, w):
    X, y = portion
    residual = X @ w - y
    return residual @ residual / 2, X.T @ residual


def logistic(portion, w, ridge=0.01):
    X, y = portion
    margin = np.sign(y) * (X @ w)
    value = np.logaddexp(0, -margin).sum() + ridge * (w @ w) / 2
    return value, ridge * w - X.T @ (np.sign(y) / (1 + np.exp(margin)))


def of_logistic(portion, w, v, ridge=0.01):
    X, _ = portion
    p = 1 / (1 + np.exp(-X @ w))
    return ridge * v + X.T @ (p * (1 - p) * (X @ v))


# Bounds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, np.inf), (-0.1, 0.1), (-np.inf, 0.05)])
def test_bounded_least_squares_are_scipys(low, high):
    result = sd.minimize(squared, np.zeros(8), PORTIONS, bounds=Bounds(low, high), tol=1e-10)
    exact = lsq_linear(X, Y, (low, high), tol=1e-14)
    assert result.success
    np.testing.assert_allclose(result.x, exact.x, atol=1e-7)
    at = exact.active_mask != 0
    assert at.any()
    assert np.isin(result.x[at], [low, high]).all()  # exactly there


def test_it_is_l_bfgs_b_where_many_bounds_hold():
    n = 300

    def rosenbrock(portion, x):
        value = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        g = np.zeros(n)
        g[1:] = 200 * (x[1:] - x[:-1] ** 2)
        g[:-1] += -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
        return value, g

    pairs = [(None, 0.7) if j % 3 == 0 else (-2, None) if j % 3 == 1 else None for j in range(n)]
    result = sd.minimize(rosenbrock, np.full(n, -1.0), [0], bounds=pairs, tol=1e-9)
    peer_pairs = [pair or (None, None) for pair in pairs]
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxfun": 10**6, "maxiter": 10**5}
    peer = scipy_minimize(
        lambda x: rosenbrock(0, x), np.full(n, -1.0), jac=True, bounds=peer_pairs, options=options
    )
    assert result.success
    assert result.fun <= peer.fun + 1e-9 * abs(peer.fun)


def test_f_is_never_computed_outside():
    seen = []

    def loss(portion, x):  # without a value for x < 0
        seen.append(x.copy())
        return (np.sqrt(x) - portion * x).sum() + (x**2).sum(), 0.5 / np.sqrt(x + 1e-300) - portion + 2 * x

    result = sd.minimize(loss, np.full(3, 2.0), [4.0], bounds=Bounds(1e-3, 3.0))
    assert result.success
    assert (np.array(seen) >= 1e-3).all()
    assert (np.array(seen) <= 3.0).all()


def test_a_penalty_within_one_sign_is_the_positive_lasso():
    lasso = sd.Lasso(0.5, positive=True, fit_intercept=False, tol=1e-13, max_iter=10_000).fit(X, Y)
    result = sd.minimize(squared, np.zeros(8), PORTIONS, bounds=[(0, None)] * 8, l1=100.0, tol=1e-10)
    np.testing.assert_allclose(result.x, lasso.coef_, atol=1e-8)
    assert (result.x == 0).any()
    with pytest.raises(DataError, match=r"x\[0\] has the bounds \(-1, inf\)"):
        sd.minimize(squared, np.zeros(8), PORTIONS, bounds=[(-1, None)] * 8, l1=100.0)


def test_a_fixed_parameter_stays():
    pairs = [(0.25, 0.25)] + [(None, None)] * 7
    result = sd.minimize(squared, np.full(8, 0.25), PORTIONS, bounds=pairs, tol=1e-10)
    assert result.x[0] == 0.25
    rest = np.linalg.lstsq(X[:, 1:], Y - 0.25 * X[:, 0], rcond=None)[0]
    np.testing.assert_allclose(result.x[1:], rest, atol=1e-6)


def test_a_start_at_the_minimum_in_a_corner_has_converged():
    result = sd.minimize(lambda p, x: (x.sum(), np.ones(2)), np.zeros(2), [0], bounds=Bounds(0, 1))
    assert result.success
    assert result.nit == 0


def test_threads_change_no_bit_and_a_checkpoint_goes_on(tmp_path):
    options = {"bounds": Bounds(-0.1, 0.2), "tol": 1e-10}
    whole = [sd.minimize(squared, np.zeros(8), PORTIONS, n_jobs=k, **options) for k in (1, 3)]
    assert whole[0].x.tobytes() == whole[1].x.tobytes()
    sd.minimize(squared, np.zeros(8), PORTIONS, max_iter=3, checkpoint=tmp_path, **options)
    again = sd.minimize(squared, np.zeros(8), PORTIONS, checkpoint=tmp_path, **options)
    assert again.x.tobytes() == whole[0].x.tobytes()
    with pytest.raises(CheckpointMismatch):
        sd.minimize(squared, np.zeros(8), PORTIONS, checkpoint=tmp_path, bounds=Bounds(-0.1, 0.3))


# Products of the Hessian ----------------------------------------------------------------------------------


def test_newton_ends_where_l_bfgs_does_in_fewer_steps():
    newton = sd.minimize(logistic, np.zeros(8), PORTIONS, hessp=of_logistic, tol=1e-10)
    plain = sd.minimize(logistic, np.zeros(8), PORTIONS, tol=1e-10)
    assert newton.success
    np.testing.assert_allclose(newton.x, plain.x, atol=1e-6)
    assert newton.nit < plain.nit / 2
    assert newton.nfev > newton.nit  # products are passes


def test_newton_goes_down_where_the_objective_is_not_convex():
    def loss(portion, x):
        return np.cos(x).sum() + (x**4).sum() / 100, -np.sin(x) + x**3 / 25

    def of_loss(portion, x, v):
        return (-np.cos(x) + 3 * x**2 / 25) * v

    result = sd.minimize(loss, np.array([0.1, -0.3]), [0], hessp=of_loss, tol=1e-10)
    assert result.success
    assert (of_loss(0, result.x, np.ones(2)) > 0).all()


def test_wrong_products_are_named():
    for product, text in (
        (lambda p, x, v: v[:2], r"hessp returned an array of shape \(2,\) in portion 0"),
        (lambda p, x, v: "no", "hessp must return a vector of numbers"),
        (lambda p, x: x, "hessp is called as hessp"),
    ):
        with pytest.raises(DataError, match=text):
            sd.minimize(logistic, np.zeros(8), PORTIONS, hessp=product)
    result = sd.minimize(logistic, np.zeros(8), PORTIONS, hessp=lambda p, x, v: np.nan * v)
    assert result.status == 4
    assert "the product with the Hessian is not finite in portion 0" in result.message


# Arguments and forms --------------------------------------------------------------------------------------


def test_further_arguments_reach_both_functions(tmp_path):
    plain = sd.minimize(lambda p, w: logistic(p, w, 3.0), np.zeros(8), PORTIONS, tol=1e-9)
    given = sd.minimize(logistic, np.zeros(8), PORTIONS, args=(3.0,), tol=1e-9, checkpoint=tmp_path)
    assert given.x.tobytes() == plain.x.tobytes()
    newton = sd.minimize(logistic, np.zeros(8), PORTIONS, args=(3.0,), hessp=of_logistic, tol=1e-9)
    np.testing.assert_allclose(newton.x, plain.x, atol=1e-6)
    with pytest.raises(CheckpointMismatch):
        sd.minimize(logistic, np.zeros(8), PORTIONS, args=(4.0,), tol=1e-9, checkpoint=tmp_path)


Layer = collections.namedtuple("Layer", "w b")


def of_dict(portion, x):
    X, y = portion
    residual = X @ x["layer"].w @ x["rest"][0] + x["layer"].b.sum() - y
    d = X.T @ residual
    g = {"rest": [x["layer"].w.T @ d], "layer": Layer(np.outer(d, x["rest"][0]), np.full(2, residual.sum()))}
    return residual @ residual / 2, g


START = {"layer": Layer(RNG.standard_normal((8, 2)), np.zeros(2)), "rest": [np.ones(2)]}


def test_a_nested_start_is_a_flat_one_in_other_clothes():
    tree = Tree(START, "x0")
    seen = []
    result = sd.minimize(of_dict, START, PORTIONS, max_iter=50, callback=lambda i: seen.append(i.x))

    def flat(portion, x):
        value, g = of_dict(portion, tree.nested(x))
        return value, tree.flat(g, "g")

    plain = sd.minimize(flat, tree.flat(START, "x0"), PORTIONS, max_iter=50)
    assert tree.flat(result.x, "x").tobytes() == plain.x.tobytes()
    assert tree.flat(result.jac, "jac").tobytes() == plain.jac.tobytes()
    assert isinstance(result.x["layer"], Layer)
    assert result.x["layer"].w.shape == seen[0]["layer"].w.shape == (8, 2)


def test_bounds_and_penalties_have_the_form_of_the_start():
    start = {"w": np.zeros(8), "b": 0.0}

    def loss(portion, x):
        X, y = portion
        residual = X @ x["w"] + x["b"] - y
        return residual @ residual / 2, {"w": X.T @ residual, "b": residual.sum()}

    result = sd.minimize(loss, start, PORTIONS, bounds={"w": (0, None), "b": None}, tol=1e-10)
    low = np.append(np.zeros(8), -np.inf)
    exact = lsq_linear(np.column_stack([X, np.ones(200)]), Y, (low, np.inf), tol=1e-14).x
    np.testing.assert_allclose(np.append(result.x["w"], result.x["b"]), exact, atol=1e-7)
    lasso = sd.Lasso(0.5, tol=1e-13, max_iter=10_000).fit(X, Y)
    result = sd.minimize(loss, start, PORTIONS, l1={"w": 100.0, "b": 0.0}, tol=1e-10)
    np.testing.assert_allclose(result.x["w"], lasso.coef_, atol=1e-6)
    assert result.x["b"] == pytest.approx(lasso.intercept_, abs=1e-6)


def test_a_matrix_is_a_form_too():
    centre = np.arange(6.0).reshape(2, 3)
    result = sd.minimize(lambda p, x: (((x - centre) ** 2).sum(), 2 * (x - centre)), np.zeros((2, 3)), [0])
    np.testing.assert_allclose(result.x, centre)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x0": {"w": np.zeros(2), "b": "a"}}, r"x0\['b'\] must be real numbers"),
        ({"x0": {"w": np.array([0.0, np.nan])}}, r"x0\['w'\]\[1\] is nan"),
        ({"x0": {}}, "at least one number"),
        ({"args": 3}, r"args must be a tuple of further arguments, got 3: write \(value,\)"),
        ({"args": (1, 2)}, "fun_and_grad is called as"),
        ({"bounds": [(0, 1)]}, r"2 pairs \(lower, upper\)"),
        ({"bounds": 3}, r"2 pairs \(lower, upper\)"),
        ({"bounds": [(0, 1), (2, 1)]}, r"bounds\[1\], \(2, 1\), has its lower end above"),
        ({"bounds": [(0, np.nan), None]}, r"bounds\[0\], .* is not a number"),
        ({"bounds": [(np.inf, None), None]}, "leaves no finite number"),
        ({"bounds": [("a", None), None]}, "bounds must be real numbers"),
        ({"bounds": Bounds([0, 0, 0], 1)}, r"bounds.lb must be a number or 2 numbers"),
        ({"bounds": Bounds(2, 3)}, r"x0\[0\] is 1, outside of \[2, 3\]: begin from numpy.clip"),
        ({"bounds": Bounds(0, 3), "hessp": lambda p, x, v: v}, "goes neither with bounds nor with l1"),
        ({"hessp": lambda p, x, v: v, "l1": 1.0}, "goes neither with bounds nor with l1"),
        ({"hessp": 3}, "hessp must be callable"),
    ],
)
def test_bad_input(arguments, text):
    given = {"fun_and_grad": lambda p, x: (x @ x, 2 * x), "x0": np.ones(2), "portions": [0, 1]} | arguments
    with pytest.raises(DataError, match=text):
        sd.minimize(given.pop("fun_and_grad"), given.pop("x0"), given.pop("portions"), **given)


@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        (
            {"w": np.zeros(2)},
            r"the gradient must be a dict with the keys \['w', 'b'\] of x0, got the keys \['w'\]",
        ),
        ({"w": np.zeros(3), "b": 0.0}, r"the gradient\['w'\] has the shape \(3,\), where x0 has \(2,\)"),
        (np.zeros(3), "must be a dict with the keys"),
    ],
)
def test_a_gradient_of_another_form(gradient, text):
    with pytest.raises(DataError, match=text) as caught:
        sd.minimize(lambda p, x: (0.0, gradient), {"w": np.zeros(2), "b": 0.0}, [0])
    assert "raised by fun_and_grad in portion 0" in caught.value.__notes__


# A gradient that is not that of the value -----------------------------------------------------------------


def test_a_right_gradient_has_no_error():
    start = RNG.standard_normal(8)
    assert sd.check_gradient(logistic, start, PORTIONS, args=(0.3,), hessp=of_logistic).error < 1e-6
    assert sd.check_gradient(of_dict, START, PORTIONS).error < 1e-6
    far = sd.check_gradient(lambda p, x: (1e8 + (x**2).sum(), 2 * x), np.array([1e-3, 1e3]), [0])
    assert far.error < 1e-5


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_wrong_entry_is_named_however_small(size):
    def wrong(portion, x):
        value, g = of_dict(portion, x)
        w = g["layer"].w.copy()
        w[3, 1] *= 1.05
        return value * size, {"layer": Layer(w * size, g["layer"].b * size), "rest": [g["rest"][0] * size]}

    found = sd.check_gradient(wrong, START, PORTIONS)
    assert found.worst == "x0['layer'][0][3, 1]"
    assert found.error == pytest.approx(0.05 / 1.05, rel=1e-3)
    assert found.derivative == pytest.approx(1.05 * found.quotient, rel=1e-3)


def test_rounding_that_hides_differences_is_no_verdict():
    with pytest.raises(DataError, match="rounding hides"):
        sd.check_gradient(lambda p, x: (1e12 + (x**2).sum(), 3 * x), np.ones(3), [0])


def test_a_wrong_entry_that_is_not_drawn_is_seen_in_a_direction_of_all():
    def wrong(portion, x):
        return (x**2).sum(), 2 * x + 40.0 * (np.arange(1000) == 777)

    found = sd.check_gradient(wrong, np.ones(1000), [0])
    assert found.worst == "a direction of all parameters"
    assert found.error > 1e-2
    assert sd.check_gradient(lambda p, x: ((x**2).sum(), 2 * x), np.ones(1000), [0]).error < 1e-6


def test_a_wrong_product_is_named():
    found = sd.check_gradient(logistic, np.ones(8), PORTIONS, hessp=lambda p, x, v: 2 * of_logistic(p, x, v))
    assert found.worst == "hessp"
    assert found.error == pytest.approx(0.5, rel=1e-3)


@pytest.mark.cluster
def test_a_cluster_has_the_bits_of_threads(address):
    options = {"bounds": Bounds(-0.1, 0.2), "tol": 1e-10}
    local = sd.minimize(squared, np.zeros(8), PORTIONS, **options)
    far = sd.minimize(squared, np.zeros(8), PORTIONS, engine=address, deterministic=True, **options)
    assert far.x.tobytes() == local.x.tobytes()
    options = {"hessp": of_logistic, "tol": 1e-10}
    local = sd.minimize(logistic, np.zeros(8), PORTIONS, **options)
    far = sd.minimize(logistic, np.zeros(8), PORTIONS, engine=address, deterministic=True, **options)
    assert far.x.tobytes() == local.x.tobytes()
    nested = sd.minimize(of_dict, START, PORTIONS, engine=address, max_iter=5)
    assert nested.x["layer"].w.shape == (8, 2)
    with pytest.raises(DataError, match="set shard_from, now 8, above that number"):
        sd.minimize(squared, np.zeros(8), PORTIONS, engine=address, shard_from=8, bounds=Bounds(0, 1))
