"""`minimize` on threads: answers of other libraries, any number of threads, bad input, checkpoints."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from stradask import Lasso
from stradask.algorithms.optimize.minimize import minimize
from stradask.algorithms.optimize.sandblaster import Sandblaster
from stradask.errors import CheckpointMismatch, DataError
from stradask.scheduler.sums.summed import NonFiniteObjective


def logistic(portion, w):
    X, y = portion
    margin = y * (X @ w)
    value = np.logaddexp(0, -margin).sum() + len(y) * 1e-3 * (w @ w)
    return value, 2e-3 * len(y) * w - X.T @ (y / (1 + np.exp(margin)))


def squared(portion, w):
    X, y = portion
    residual = X @ w - y
    return residual @ residual / 2, X.T @ residual


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 12)) * np.geomspace(0.3, 3, 12)
    return X, np.sign(X @ rng.standard_normal(12) + 2 * rng.logistic(size=500))


def cut(data, n):
    X, y = data
    return [(X[rows], y[rows]) for rows in np.array_split(np.arange(len(y)), n)]


@pytest.mark.parametrize("n_portions", [1, 2, 7, 100])
def test_the_minimum_is_scipys_however_the_data_are_cut(data, n_portions):
    result = minimize(logistic, np.zeros(12), cut(data, n_portions), tol=1e-10)
    options = {"ftol": 0, "gtol": 1e-8}
    peer = scipy_minimize(
        lambda w: logistic(data, w), np.zeros(12), jac=True, method="L-BFGS-B", options=options
    )
    assert result.success
    assert result.fun == pytest.approx(peer.fun, rel=1e-12)
    np.testing.assert_allclose(result.x, peer.x, atol=1e-6)
    assert result.nfev == result.history["passes"][-1]


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
@pytest.mark.parametrize("start", [20.0, 100.0])
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 5.0),
        ({"bounds": [(1, None)] * 5}, 5 * (np.e - 1)),
        ({"l1": 0.5}, 5.0),
        ({"hessp": lambda unit, x, v: unit * np.exp(x) * v}, 5.0),
    ],
    ids=["plain", "bounds", "l1", "hessp"],
)
def test_the_gradient_at_a_far_start_is_no_measure(options, least, start, unit):
    """Of exp(x) - x it falls to a millionth of that at 20 where f is 270 times its minimum."""
    options = {name: unit * option if name == "l1" else option for name, option in options.items()}

    def f(unit, x):
        return unit * np.sum(np.exp(x) - x), unit * (np.exp(x) - 1)

    result = minimize(f, np.full(5, start), [unit], **options)
    assert result.success, result.message
    assert result.fun == pytest.approx(unit * least, rel=2e-5)


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("start", [1e-3, 1.0, 1e6])
def test_a_minimum_of_zero_is_found_without_end_of_steps(power, start):
    result = minimize(
        lambda _, x: (np.sum(x**power), power * x ** (power - 1)), start * np.arange(1.0, 4), [0]
    )
    assert result.success, result.message
    assert result.fun <= 1e-15 * min(1.0, 3.0**power * start**power)
    assert result.nit < 150


def test_any_number_of_threads_gives_the_same_bits(data):
    results = [minimize(logistic, np.zeros(12), cut(data, 23), n_jobs=k) for k in (1, 2, 3, 30)]
    assert len({r.x.tobytes() for r in results}) == 1
    assert len({tuple(r.history["objective"]) for r in results}) == 1
    assert all(r.bytes_sent == r.n_recoveries == 0 for r in results)


@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_with_l1_it_is_the_lasso(data, alpha):
    X, y = data
    result = minimize(squared, np.zeros(12), cut(data, 9), l1=alpha * len(y), tol=1e-10)
    coef = Lasso(alpha=alpha, fit_intercept=False, tol=1e-13, max_iter=10_000).fit(X, y).coef_
    np.testing.assert_array_equal(result.x != 0, coef != 0)
    exact = squared(data, coef)[0] + alpha * len(y) * abs(coef).sum()
    assert result.fun == pytest.approx(exact, rel=1e-12)


def test_a_vector_of_weights_is_that_number_everywhere(data):
    one = minimize(squared, np.zeros(12), cut(data, 4), l1=20.0)
    many = minimize(squared, np.zeros(12), cut(data, 4), l1=np.full(12, 20.0))
    assert one.x.tobytes() == many.x.tobytes()
    free = minimize(squared, np.zeros(12), cut(data, 4), l1=np.append(np.full(11, 1e9), 0.0))
    assert (free.x[:11] == 0).all()
    assert free.x[11] != 0


def test_a_dask_array_falls_into_its_chunks(data):
    dask_array = pytest.importorskip("dask.array")
    X = np.column_stack(data)

    def joined(portion, w):
        return logistic((portion[:, :-1], portion[:, -1]), w)

    lazy = minimize(joined, np.zeros(12), dask_array.from_array(X, chunks=(100, -1)))
    plain = minimize(joined, np.zeros(12), np.array_split(X, 5))
    assert lazy.x.tobytes() == plain.x.tobytes()
    with pytest.raises(DataError, match="rechunk"):
        minimize(joined, np.zeros(12), dask_array.from_array(X, chunks=(100, 5)))


# Objectives that fail -------------------------------------------------------------------------------------


def test_a_portion_that_is_not_finite_is_named_and_the_last_good_point_kept(data):
    portions = cut(data, 6)

    def failing(portion, w):
        value, gradient = logistic(portion, w)
        return (np.nan if portion is portions[4] and abs(w).max() > 0.3 else value), gradient

    result = minimize(failing, np.zeros(12), portions, n_jobs=2)
    assert (result.status, result.success) == (4, False)
    assert "the objective is nan in portion 4" in result.message
    assert np.isfinite(result.fun)
    assert result.fun == pytest.approx(logistic(data, result.x)[0])
    assert 0 < abs(result.x).max() <= 0.3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite(data, bad):
    portions = cut(data, 3)

    def failing(portion, w):
        value, gradient = logistic(portion, w)
        return value, np.where(np.arange(12) == 5, bad, gradient) if portion is portions[1] else gradient

    with np.errstate(all="raise"):
        result = minimize(failing, np.zeros(12), portions)
    assert result.status == 4
    assert result.message == "the gradient is not finite in portion 1 at x0"
    with Sandblaster(failing, portions) as objective, pytest.raises(NonFiniteObjective, match="portion 1"):
        objective(np.zeros(12))


def test_a_large_gradient_is_finite():
    """The sum of its entries, which is what is looked at first, overflows."""
    with Sandblaster(lambda p, x: (0.0, np.full(2, 1.5e308) * p), [1.0, 0.0]) as objective:
        assert objective(np.zeros(2))[1].tolist() == [1.5e308, 1.5e308]
    with Sandblaster(lambda p, x: (0.0, np.full(2, 1.5e308) * p), [1.0, 1.0]) as objective:
        assert np.isinf(objective(np.zeros(2))[1]).all()


def test_an_error_of_the_function_names_the_portion(data):
    def failing(portion, w):
        raise KeyError("no such thing")

    with pytest.raises(KeyError) as caught:
        minimize(failing, np.zeros(12), cut(data, 3), n_jobs=2)
    assert any("portion" in note for note in caught.value.__notes__)


def test_a_pass_that_failed_leaves_nothing_behind(data):
    trouble = [True]

    def sometimes(portion, w):
        if trouble[0]:
            raise KeyError("once")
        return logistic(portion, w)

    with Sandblaster(sometimes, cut(data, 9), n_jobs=3) as objective:
        for _ in range(2):
            trouble[0] = True
            with pytest.raises(KeyError):
                objective(np.zeros(12))
            trouble[0] = False
            assert objective(np.ones(12))[0] == pytest.approx(logistic(data, np.ones(12))[0])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (3.0, "must return a value and a gradient"),
        ((1.0, np.zeros(3)), r"a gradient of shape \(3,\) in portion 0; x has the shape \(2,\)"),
        ((1.0, 0.0), "a gradient of shape"),
        ((np.ones(2), np.zeros(2)), "must return a number and a vector of numbers, .* in portion 0"),
        ((1j, np.zeros(2)), "must return a number and a vector of numbers, .* in portion 0"),
        ((1.0, np.zeros(2) + 1j), "complex numbers in the gradient"),
        ((1.0, ["a", "b"]), "must return a number and a vector of numbers"),
    ],
)
def test_an_answer_of_another_form(answer, text):
    with pytest.raises(DataError, match=text):
        minimize(lambda portion, x: answer, np.zeros(2), [0])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"fun_and_grad": 3}, "fun_and_grad must be callable"),
        ({"x0": [np.nan, 0.0]}, r"x0\[0\] is nan"),
        ({"x0": 1.0}, "x0 must be a vector"),
        ({"x0": ["a", "b"]}, "x0 must be real numbers"),
        ({"x0": np.ones(2) * 1j}, "x0 must be real numbers"),
        ({"l1": [[1.0], [1.0, 2.0]]}, "l1 must be real numbers"),
        ({"portions": []}, "portions is empty"),
        ({"portions": 5}, "portions must be a sequence"),
        ({"portions": "file"}, "portions must be a sequence"),
        ({"l1": -1.0}, "l1 must be finite and not negative"),
        ({"l1": [0.0, np.nan]}, "l1 must be finite and not negative"),
        ({"l1": np.inf}, "l1 must be finite and not negative"),
        ({"l1": [1.0]}, "l1 must be a number or 2 weights"),
        ({"engine": "cloud"}, "engine='cloud' is unknown"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"max_iter": 2.5}, "max_iter must be an integer"),
        ({"tol": -1.0}, "^tol must be a number that is not negative"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"shard_from": 0}, "shard_from must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
    ],
)
def test_bad_input(arguments, text):
    given = {"fun_and_grad": lambda p, x: (x @ x, 2 * x), "x0": np.ones(2), "portions": [0, 1]} | arguments
    with pytest.raises(DataError, match=text):
        minimize(given.pop("fun_and_grad"), given.pop("x0"), given.pop("portions"), **given)


@pytest.mark.parametrize("slope", [1.0, 1e8])
def test_an_objective_without_a_minimum_has_not_converged(slope):
    def loss(portion, x):  # falls along x[0]; x[1] has a minimum
        return -slope * x[0] + (x[1] - portion) ** 2, np.array([-slope, 2 * (x[1] - portion)])

    result = minimize(loss, np.zeros(2), [0.0, 1.0, 2.0])
    assert not result.success
    assert result.status == 2
    assert "falls without end along a direction" in result.message


@pytest.mark.parametrize("far", [1e4, 1e8, 1e10])
def test_a_minimum_far_away_is_found(far):
    result = minimize(lambda p, x: ((x[0] / far - 1) ** 2 / 2, (x / far - 1) / far), np.zeros(1), [0])
    assert result.success
    assert result.x[0] == pytest.approx(far, rel=1e-5)


# Callbacks, checkpoints -----------------------------------------------------------------------------------


def test_callback_and_bar(data, capsys):
    seen = []

    def callback(iterate):
        seen.append((iterate.nit, iterate.fun))
        return iterate.nit == 3

    result = minimize(logistic, np.zeros(12), cut(data, 3), callback=callback, verbose=1)
    assert (result.status, result.nit) == (3, 3)
    assert [nit for nit, _ in seen] == [1, 2, 3]
    assert [fun for _, fun in seen] == result.history["objective"][1:].tolist()
    assert "objective" in capsys.readouterr().err


@pytest.mark.parametrize("l1", [0.0, 10.0])
def test_a_checkpoint_goes_on_bitwise(data, tmp_path, l1):
    options = {"tol": 1e-9, "l1": l1, "memory": 4}
    whole = minimize(logistic, np.zeros(12), cut(data, 5), **options)
    for steps in (2, 5, 6):
        part = minimize(
            logistic,
            np.zeros(12),
            cut(data, 5),
            max_iter=steps,
            checkpoint=tmp_path / "c",
            checkpoint_every=3,
            **options,
        )
        assert part.nit == steps
    resumed = minimize(logistic, np.zeros(12), cut(data, 5), checkpoint=tmp_path / "c", **options)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert (resumed.nit, resumed.nfev) == (whole.nit, whole.nfev)
    assert resumed.history["objective"].tobytes() == whole.history["objective"].tobytes()
    again = minimize(logistic, np.zeros(12), cut(data, 5), checkpoint=tmp_path / "c", **options)
    assert again.x.tobytes() == whole.x.tobytes()


def test_states_are_written_on_the_way(data, tmp_path):
    def callback(iterate):
        if iterate.nit == 8:
            raise KeyboardInterrupt

    options = {"tol": 1e-9, "checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        minimize(logistic, np.zeros(12), cut(data, 5), callback=callback, **options)
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == [
        "round-000000003.npz",
        "round-000000006.npz",
    ]
    resumed = minimize(logistic, np.zeros(12), cut(data, 5), **options)
    assert resumed.x.tobytes() == minimize(logistic, np.zeros(12), cut(data, 5), tol=1e-9).x.tobytes()


def test_a_checkpoint_of_another_problem(data, tmp_path):
    minimize(logistic, np.zeros(12), cut(data, 5), max_iter=2, checkpoint=tmp_path)
    for changed in ({"x0": np.ones(12)}, {"portions": cut(data, 6)}, {"memory": 3}, {"l1": 1.0}):
        given = {"x0": np.zeros(12), "portions": cut(data, 5)} | changed
        with pytest.raises(CheckpointMismatch):
            minimize(logistic, given.pop("x0"), given.pop("portions"), checkpoint=tmp_path, **given)


def test_the_page_runs(capsys):
    page = (Path(__file__).parents[3] / "docs" / "optimize.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page[page.index("## Any objective") :], re.DOTALL)
    exec("\n".join(blocks), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["True"] * 3


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_x_cannot_be_written_into(n_jobs):
    def careless(centre, x):
        x -= centre
        return x @ x / 2, x

    with pytest.raises(ValueError, match="read-only"):
        minimize(careless, np.ones(3), [1.0, 2.0, 3.0], n_jobs=n_jobs)
