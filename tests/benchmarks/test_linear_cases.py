"""The data of the linear benchmarks: what the letters promise, and files."""

import gzip
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

from stradask.benchmarks import linear_cases
from stradask.benchmarks.linear_cases import load_classification, load_regression
from stradask.benchmarks.objectives.lasso import Objective as LassoObjective
from stradask.benchmarks.objectives.sparse_logistic import Objective as LogisticObjective
from stradask.errors import DataError


def correlations(X, lag):
    return np.mean([X[:, j] @ X[:, j + lag] / len(X) for j in range(0, X.shape[1] - lag, 7)])


def test_neighbours_of_an_autoregressive_design_correlate_by_half():
    X = linear_cases.ar_design(np.random.default_rng(0), 2000, 300)
    assert X.flags.f_contiguous
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1)
    assert correlations(X, 1) == pytest.approx(0.5, abs=0.02)
    assert correlations(X, 2) == pytest.approx(0.25, abs=0.02)


def test_columns_of_a_block_correlate_and_those_of_two_do_not():
    X = linear_cases.block_design(np.random.default_rng(0), 2000, 200)
    C = X.T @ X / 2000
    block = np.arange(200) // 50
    inside = block[:, None] == block[None, :]
    assert C[inside & ~np.eye(200, dtype=bool)].mean() == pytest.approx(0.95, abs=0.01)
    assert np.abs(C[~inside]).mean() < 0.05


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "path"])
def test_a_seed_names_a_data_set(name):
    X, y = load_regression(name, seed=3, quick=True)
    again, target = load_regression(name, seed=3, quick=True)
    other, _ = load_regression(name, seed=4, quick=True)
    np.testing.assert_array_equal(y, target)
    assert abs(X - again).max() == 0
    assert abs(X - other).max() > 0
    assert X.dtype == y.dtype == np.float64
    assert y.mean() == pytest.approx(0, abs=1e-10)
    if sparse.issparse(X):
        assert X.format == "csc"
        assert X.indices.dtype == X.indptr.dtype == np.int32
        assert X.has_sorted_indices


def test_the_whole_designs_have_the_sizes_of_the_table(monkeypatch):
    made = []

    def design(rng, n_samples, n_features):
        made.append((n_samples, n_features))
        return np.ones((2, n_features))

    for name, (whole, quick) in linear_cases.REGRESSIONS.items():
        monkeypatch.setitem(linear_cases.REGRESSIONS, name, ((design, *whole[1:]), quick))
        with pytest.raises(ValueError, match="broadcast"):  # two rows instead of those asked for
            load_regression(name, seed=0)
    assert made == [(500, 20_000), (5_000, 2_000), (20_000, 200_000), (1_000, 10_000)]


def test_the_signal_is_three_times_the_noise():
    rng = np.random.default_rng(5)
    X, y = load_regression("b", seed=5, quick=True)
    design = linear_cases.ar_design(rng, 1_500, 600)
    np.testing.assert_array_equal(X, design)
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    # The noise keeps 900 of its 1,500 degrees of freedom.
    assert np.var(y) / (np.var(residual) * 1500 / 900) == pytest.approx(10, rel=0.15)


def write_svmlight(path, labels):
    rng = np.random.default_rng(0)
    lines = [f"{label} 1:{rng.normal():.3f} {2 + i % 3}:{rng.normal():.3f}" for i, label in enumerate(labels)]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")
    return str(path)


def test_a_gzipped_svmlight_file_is_a_data_set(tmp_path):
    path = write_svmlight(tmp_path / "small.svm.gz", [1, 2, 2, 1, 2, 1])
    X, y = load_regression(path, seed=0)
    assert X.shape == (6, 4)
    assert X.format == "csc"
    np.testing.assert_allclose(y, [-0.5, 0.5, 0.5, -0.5, 0.5, -0.5])
    _, y = load_classification(path, seed=0)
    np.testing.assert_array_equal(y, [-1, 1, 1, -1, 1, -1])
    described = LassoObjective(path, seed=0, parameters=LassoObjective.defaults).describe()
    assert described["name"] == "small"
    assert (described["train_rows"], described["train_columns"], described["train_nonzeros"]) == (6, 4, 12)


def test_what_is_no_problem_is_an_error_that_says_why(tmp_path):
    three = write_svmlight(tmp_path / "three.svm.gz", [1, 2, 3])
    with pytest.raises(DataError, match="3 different labels"):
        load_classification(three, seed=0)
    with pytest.raises(DataError, match="'z' is neither one of a, b, c, d, path nor a file"):
        load_regression("z", seed=0)
    constant = write_svmlight(tmp_path / "constant.svm.gz", [1, 1, 1])
    with pytest.raises(DataError, match="constant"):
        LassoObjective(constant, seed=0, parameters=LassoObjective.defaults)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"divisor": 1}, "divisor is 1"),
        ({"divisor": (10, "x")}, "divisor is 'x'"),
        ({"divisor": True}, "divisor is True"),
        ({"intercept": 1}, "intercept is 1"),
    ],
)
def test_wrong_parameters_are_errors(changes, said):
    parameters = {**LassoObjective.defaults, **changes}
    with pytest.raises(DataError, match=said):
        LassoObjective("a", seed=0, parameters=parameters, quick=True)


@pytest.fixture(scope="module")
def lasso():
    return LassoObjective("a", seed=0, parameters={"divisor": 10, "intercept": False}, quick=True)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"coef": np.zeros(3), "intercept": 0.0}, "shape"),
        ({"coef": np.full(4000, np.nan), "intercept": 0.0}, "not finite"),
        ({"coef": np.zeros(4000), "intercept": 1.0}, "none was asked for"),
    ],
)
def test_what_is_no_solution_is_not_judged(lasso, arrays, said):
    (problem,) = lasso.problems()
    with pytest.raises(DataError, match=said):
        lasso.evaluate(problem, arrays)


def test_the_zero_model_is_judged_by_hand(lasso):
    (problem,) = lasso.problems()
    judged = lasso.evaluate(problem, {"coef": np.zeros(4000), "intercept": 0.0})
    # s = 1/10 is the largest that the dual allows: gap = 1 - (2 s - s^2).
    assert judged["gap"] == pytest.approx(0.81)
    assert judged["nonzeros"] == 0


def test_the_largest_penalty_of_a_classification_is_where_coefficients_begin():
    for intercept in (False, True):
        parameters = {**LogisticObjective.defaults, "divisor": 1.001, "intercept": intercept}
        objective = LogisticObjective("a", seed=0, parameters=parameters, quick=True)
        zero = {"coef": np.zeros(1000), "intercept": 0.0}
        if intercept:
            share = (objective.y > 0).mean()
            zero["intercept"] = np.log(share / (1 - share))
        (problem,) = objective.problems()
        gap = objective.evaluate(problem, zero)["gap"]
        assert 0 < gap < 1e-3  # just below alpha_max the zero model is almost, but not quite, the best


def test_a_classification_takes_penalties_by_c_and_one_class_of_several(tmp_path):
    path = tmp_path / "three.svm"
    path.write_text("\n".join(f"{k % 3} 1:{1 + k} 2:{2 * k % 5}" for k in range(12)))
    parameters = {**LogisticObjective.defaults, "C": (0.5, 2), "one_class": 1, "unit_rows": True}
    objective = LogisticObjective(str(path), seed=0, parameters=parameters)
    assert objective.describe()["name"] == "three, class 1 or not, unit rows"
    assert objective.y.tolist() == [-1.0, 1.0, -1.0] * 4
    np.testing.assert_allclose(np.square(objective.X.toarray()).sum(axis=1), 1)
    problems = objective.problems()
    assert [(p.name, p.arguments["alpha"]) for p in problems] == [("C=0.5", 1 / 6), ("C=2", 1 / 24)]
    theirs = linear_model.LogisticRegression(
        C=2, l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-10
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older versions want the name of the penalty
        if theirs.get_params().get("penalty") == "l2":
            theirs.set_params(penalty="l1", l1_ratio=None)
        theirs.fit(objective.X, objective.y)
    assert objective.evaluate(problems[1], {"coef": theirs.coef_[0], "intercept": 0.0})["gap"] < 1e-7
    with pytest.raises(DataError, match="C is 0; numbers above 0 are needed"):
        LogisticObjective(str(path), seed=0, parameters=parameters | {"C": 0})
    with pytest.raises(DataError, match="unit_rows is 1; give True or False"):
        LogisticObjective(str(path), seed=0, parameters=parameters | {"unit_rows": 1})
    with pytest.raises(DataError, match="3 different labels; two are needed"):
        LogisticObjective(str(path), seed=0, parameters=LogisticObjective.defaults)


def test_the_path_is_judged_at_the_penalty_it_chose():
    objective = LassoObjective("path", seed=0, parameters=LassoObjective.defaults, quick=True)
    (problem,) = objective.problems()
    assert problem.call == "cross_validate"
    alphas = problem.arguments["alphas"]
    assert alphas[0] / alphas[-1] == pytest.approx(1000)
    arrays = {"coef": np.zeros(20_000), "intercept": 0.0, "errors": np.ones(30)}
    largest = objective.evaluate(problem, arrays | {"alpha": alphas[0]})
    assert largest["gap"] == pytest.approx(0, abs=1e-12)
    assert largest["errors"] == [1.0] * 30
    assert objective.evaluate(problem, arrays | {"alpha": alphas[-1]})["gap"] > 0.9
