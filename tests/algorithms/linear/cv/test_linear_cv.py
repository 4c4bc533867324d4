"""Cross-validated paths: against scikit-learn, against fits of the training rows alone, and on bad input."""

import tracemalloc

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer, max_error
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, ShuffleSplit, cross_val_score
from sklearn.utils.fixes import parse_version

import stradask as sd
from stradask.algorithms.linear.cv import folds
from stradask.errors import DataError

rng = np.random.default_rng(0)
N, P = 70, 25
X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.6) * rng.uniform(0.3, 3, P) + rng.uniform(0, 1, P)
Y = X @ (rng.standard_normal(P) * (rng.random(P) < 0.3)) + rng.standard_normal(N) + 3
WEIGHTS = rng.uniform(0, 2, N) * (rng.random(N) < 0.9)
ONE_FREE = np.arange(P) > 0  # penalty factors with which columns are read anew for each fold
TIGHT = {"alphas": 12, "eps": 0.02, "tol": 1e-11}


def theirs_of(cls, **options):
    """Make scikit-learn's, where the number of penalties had a name of its own before 1.7."""
    if isinstance(options.get("alphas"), int) and parse_version(sklearn.__version__) < parse_version("1.7"):
        options["n_alphas"] = options.pop("alphas")
    return getattr(linear_model, cls)(**options)


def both(weights=None, cls="LassoCV", form=np.asarray, **options):
    """Fit ours and scikit-learn's, both far beyond what is compared."""
    ours = getattr(sd, cls)(**{**TIGHT, **options}).fit(form(X), Y, sample_weight=weights)
    options = {**TIGHT, **options, "max_iter": 100_000}
    return ours, theirs_of(cls, **options).fit(form(X), Y, sample_weight=weights)


def assert_same(ours, theirs, rtol=1e-6):
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-9)
    assert ours.mse_path_.shape == theirs.mse_path_.shape
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=rtol)
    assert ours.alpha_ == pytest.approx(theirs.alpha_, rel=1e-9)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-5)


# Against scikit-learn -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        pytest.param(np.asfortranarray, marks=pytest.mark.slow),
        sparse.csc_array,
        pytest.param(sparse.csr_matrix, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"positive": True}, {"cv": 3}], ids=str)
def test_lasso_cv_is_scikit_learns(form, options):
    assert_same(*both(form=form, **options))


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
def test_weights_count_as_in_scikit_learn(form):
    assert_same(*both(WEIGHTS, form=form))


def test_a_fold_of_float32_stays_float32():
    ours = sd.LassoCV(alphas=8, eps=0.05, tol=1e-6).fit(X.astype(np.float32), Y)
    theirs = theirs_of("LassoCV", alphas=8, eps=0.05, tol=1e-10, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-3)
    assert ours.coef_.dtype == np.float32
    assert type(ours.intercept_) is float
    assert ours.predict(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("l1_ratio", [0.4, [0.7], [0.2, 0.9, 1.0]])
def test_elastic_net_cv_is_scikit_learns(l1_ratio):
    ours, theirs = both(cls="ElasticNetCV", l1_ratio=l1_ratio)
    assert_same(ours, theirs)
    assert ours.l1_ratio_ == theirs.l1_ratio_


@pytest.mark.filterwarnings("ignore:(Coordinate descent without L1|Objective did not)")  # of scikit-learn 1.6
@pytest.mark.parametrize("l1_ratio", [0.5, [0.0, 0.5, 1.0]])
def test_given_alphas(l1_ratio):
    ours, theirs = both(cls="ElasticNetCV", l1_ratio=l1_ratio, alphas=[0.05, 2.0, 0.3])
    assert_same(ours, theirs, rtol=1e-5)
    assert ours.alphas_.tolist() == [2.0, 0.3, 0.05]
    assert ours.scores_.shape == ours.mse_path_.shape
    assert ours.scores_mean_.shape == ours.mse_path_.shape[:-1]


def test_n_alphas_is_the_older_name():
    new, old = sd.LassoCV(alphas=7).fit(X, Y), sd.LassoCV(n_alphas=7).fit(X, Y)
    np.testing.assert_array_equal(new.mse_path_, old.mse_path_)


# A fold is the fit of its training rows -------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"standardize": True}, {"penalty_factor": np.r_[0, 2, np.ones(P - 2)]}, {"fit_intercept": False}],
    ids=["plain", "standardized", "factors", "no intercept"],
)
@pytest.mark.parametrize(
    ("weights", "form"),
    [
        (None, sparse.csc_array),
        (WEIGHTS, np.asarray),
        pytest.param(None, np.asarray, marks=pytest.mark.slow),
        pytest.param(WEIGHTS, sparse.csc_array, marks=pytest.mark.slow),
    ],
    ids=["sparse", "dense, weights", "dense", "sparse, weights"],
)
def test_a_fold_is_the_fit_of_its_rows(form, weights, options):
    cv = KFold(4, shuffle=True, random_state=3)
    model = sd.LassoCV(alphas=[1.0, 0.3, 0.05], tol=1e-12, cv=cv, **options)
    model.fit(form(X), Y, sample_weight=weights)
    for fold, (train, test) in enumerate(cv.split(X)):
        part = {} if weights is None else {"sample_weight": weights[train]}
        for at, alpha in enumerate(model.alphas_):
            alone = sd.Lasso(alpha, tol=1e-12, **options).fit(form(X[train]), Y[train], **part)
            error = (alone.predict(X[test]) - Y[test]) ** 2
            expected = np.average(error, weights=None if weights is None else weights[test])
            assert model.mse_path_[at, fold] == pytest.approx(expected, rel=1e-6)


def test_rows_that_are_drawn_twice_count_twice():
    train = rng.integers(N, size=N)
    test = np.setdiff1d(np.arange(N), train)
    model = sd.LassoCV(alphas=[0.5, 0.1], tol=1e-12, cv=[(train, test)]).fit(X, Y)
    for at, alpha in enumerate(model.alphas_):
        alone = sd.Lasso(alpha, tol=1e-12).fit(X[train], Y[train])
        assert model.mse_path_[at, 0] == pytest.approx(
            ((alone.predict(X[test]) - Y[test]) ** 2).mean(), rel=1e-6
        )
    # Nothing is known of the error of a single fold.
    assert model.scores_se_.tolist() == [0, 0]
    assert model.alpha_1se_ == model.alpha_min_


def test_divisions_in_every_form():
    splits = list(KFold(3).split(X))
    masks = [tuple(np.isin(np.arange(N), part) for part in split) for split in splits]
    found = [
        sd.LassoCV(alphas=4, cv=cv).fit(X, Y).mse_path_ for cv in (3, KFold(3), splits, iter(splits), masks)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_groups_reach_the_splitter():
    groups = rng.integers(5, size=N)
    by_groups = sd.LassoCV(alphas=4, cv=GroupKFold(3)).fit(X, Y, groups=groups)
    splits = list(GroupKFold(3).split(X, Y, groups))
    np.testing.assert_array_equal(by_groups.mse_path_, sd.LassoCV(alphas=4, cv=splits).fit(X, Y).mse_path_)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_x_is_not_copied(form):
    wide = form(np.where(rng.random((1000, 1500)) < 0.5, rng.standard_normal((1000, 1500)), 0))
    y = wide[:, [3]] @ np.ones(1) + 0.1 * rng.standard_normal(1000)
    size = wide.data.nbytes
    model = sd.LassoCV(alphas=[0.5, 0.2], cv=5)
    model.fit(wide[:, :50], y)  # compiles, imports
    tracemalloc.start()
    model.fit(wide, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * size


def test_blas_gets_its_threads_back():
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        sd.LassoCV(alphas=5, n_jobs=4).fit(X, Y)
        assert threads() == before


# The path on all rows, the scores and the choice --------------------------------------------------


def test_the_model_is_the_point_of_the_path():
    model = sd.LassoCV(**TIGHT).fit(X, Y)
    alphas, coefs, _, intercepts = sd.lasso_path(X, Y, alphas=model.alphas_, tol=1e-11, fit_intercept=True)
    np.testing.assert_allclose(model.coef_path_.toarray(), coefs, atol=1e-6)
    np.testing.assert_allclose(model.intercept_path_, intercepts, atol=1e-6)
    at = int(np.flatnonzero(alphas == model.alpha_)[0])
    np.testing.assert_array_equal(model.coef_, model.coef_path_[:, [at]].toarray().ravel())
    np.testing.assert_array_equal(model.sparse_coef_.toarray().ravel(), model.coef_)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    assert model.coef_path_.format == "csc"
    # The gap as numpy has it.
    residual = Y - Y.mean() - (X - X.mean(axis=0)) @ model.coef_
    slope = np.abs((X - X.mean(axis=0)).T @ residual).max()
    strength = N * model.alpha_
    y = Y - Y.mean()
    s = min(y @ residual / (residual @ residual), strength / slope)
    primal = residual @ residual / 2 + strength * np.abs(model.coef_).sum()
    dual = s * (y @ residual) - s**2 * (residual @ residual) / 2
    assert (primal - dual) / N <= 1e-11 * (y @ y) / 2 / N + 1e-13
    assert model.dual_gap_ == pytest.approx((primal - dual) / N, abs=1e-12)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "deviance"])
def test_any_score_may_choose(scoring):
    model = sd.LassoCV(**TIGHT, scoring=scoring).fit(X, Y)
    plain = sd.LassoCV(**TIGHT).fit(X, Y)
    np.testing.assert_array_equal(model.mse_path_, plain.mse_path_)
    np.testing.assert_allclose(model.scores_mean_, model.scores_.mean(axis=1))
    assert model.alpha_min_ == model.alphas_[model.scores_.mean(axis=1).argmax()]
    if scoring == "deviance":
        np.testing.assert_array_equal(model.scores_, -plain.mse_path_)
    else:
        train, test = list(KFold(5).split(X))[2]
        alone = sd.Lasso(model.alphas_[6], tol=1e-11).fit(X[train], Y[train])
        error = Y[test] - alone.predict(X[test])
        expected = 1 - error @ error / ((Y[test] - Y[test].mean()) ** 2).sum()
        expected = expected if scoring == "r2" else -abs(error).mean()
        assert model.scores_[6, 2] == pytest.approx(expected, rel=1e-5)


def test_a_score_may_be_a_function():
    def last(model, X_rows, y_rows):
        return -abs(model.predict(X_rows)[-1] - y_rows[-1])

    model = sd.LassoCV(**TIGHT, scoring=last).fit(X, Y)
    train, test = list(KFold(5).split(X))[1]
    alone = sd.Lasso(model.alphas_[3], tol=1e-11).fit(X[train], Y[train])
    assert model.scores_[3, 1] == pytest.approx(last(alone, X[test], Y[test]), rel=1e-5)


def test_the_rule_of_one_standard_error():
    best = sd.LassoCV(**TIGHT).fit(X, Y)
    sparing = sd.LassoCV(**TIGHT, rule="1se").fit(X, Y)
    error = best.mse_path_.mean(axis=1)
    at = error.argmin()
    limit = error[at] + best.mse_path_[at].std(ddof=1) / np.sqrt(5)
    assert best.alpha_ == best.alpha_min_ == best.alphas_[at]
    assert (
        sparing.alpha_ == sparing.alpha_1se_ == best.alphas_[np.flatnonzero(error <= limit)[0]] > best.alpha_
    )
    expected = sd.Lasso(sparing.alpha_, tol=1e-11).fit(X, Y)
    np.testing.assert_allclose(sparing.coef_, expected.coef_, atol=1e-6)


# As an estimator ------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_search(monkeypatch):
    monkeypatch.setattr(folds.LeastSquares, "solve", lambda *args, **options: ([], Interrupted))
    with pytest.raises(KeyboardInterrupt):
        sd.LassoCV(alphas=5, penalty_factor=ONE_FREE).fit(X, Y)


class Interrupted:
    reason = "interrupted"


def test_progress_counts_fits(capsys):
    sd.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=3, cv=4, verbose=1, n_jobs=2).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("ElasticNetCV: 8/8")


def test_what_did_not_converge_is_told_once():
    with pytest.warns(ConvergenceWarning, match=r"LassoCV: \d+ of 60 fits did not reach tol=1e-15") as caught:
        sd.LassoCV(alphas=10, tol=1e-15, max_iter=2).fit(X, Y)
    assert len(caught) == 1


# Bad input ------------------------------------------------------------------------------------------------

BAD = {
    "negative alpha": ({"alphas": [1.0, -0.1]}, {}, r"alphas"),
    "alpha is not a number": ({"alphas": [1.0, np.nan]}, {}, r"alphas"),
    "no alphas": ({"alphas": []}, {}, r"alphas"),
    "words for alphas": ({"alphas": ["many"]}, {}, r"alphas"),
    "too many folds": ({"cv": N + 1}, {}, rf"cv=KFold\(n_splits={N + 1}, .*\) cannot divide {N} rows"),
    "groups missing": ({"cv": GroupKFold(3)}, {}, "'groups' parameter should not be None"),
    "row that is not there": (
        {"cv": [([0, N], [1])]},
        {},
        f"fold 0 of cv names the train row {N}; there are",
    ),
    "negative row": ({"cv": [([0, 1], [-1])]}, {}, "fold 0 of cv names the test row -1"),
    "fold without rows": ({"cv": [(np.arange(5), [])]}, {}, "the test rows of fold 0 of cv must be"),
    "no folds": ({"cv": []}, {}, "gives no fold"),
    "fold without weight": (
        {"cv": 2},
        {"sample_weight": np.arange(N) < N // 2},
        "has no weight in its training",
    ),
    "y of two columns": ({}, {"y": np.column_stack([Y, Y])}, "1d"),
    "wrong score": ({"scoring": "roc_auc"}, {}, "scoring='roc_auc' cannot judge this model"),
    "score without weights": (
        {"scoring": make_scorer(max_error, greater_is_better=False)},
        {"sample_weight": WEIGHTS},
        "cannot judge this model: .*sample_weight",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    parameters, data, message = BAD[case]
    with pytest.raises(DataError, match=message):
        sd.LassoCV(**parameters).fit(**{"X": X, "y": Y, **data})


@pytest.mark.parametrize(
    "parameters", [{"rule": "best"}, {"eps": 0}, {"alphas": 0}, {"scoring": 2}, {"cv": "five"}], ids=str
)
def test_bad_parameters_are_named(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"The '{name}' parameter of LassoCV must be"):
        sd.LassoCV(**parameters).fit(X, Y)


@pytest.mark.parametrize("l1_ratio", [[0.5, 1.5], [-0.1], [], ["much"], [[0.5]], [np.nan]], ids=str)
def test_bad_shares_of_the_l1_penalty_are_named(l1_ratio):
    with pytest.raises(DataError, match="l1_ratio must"):
        sd.ElasticNetCV(l1_ratio=l1_ratio, alphas=3).fit(X, Y)


def test_ridge_has_no_largest_alpha():
    with pytest.raises(DataError, match="l1_ratio=0"):
        sd.ElasticNetCV(l1_ratio=[0.5, 0.0]).fit(X, Y)


def test_a_score_that_is_not_a_number_names_its_fold():
    with pytest.raises(DataError, match=r"is nan, not a finite number, in fold 2"):
        sd.LassoCV(scoring=lambda model, X, y: np.nan if 30 in X[:, 0] else 0.0, alphas=3).fit(
            np.column_stack([np.arange(N), X]), Y
        )


def test_a_score_that_is_infinite_names_its_fold():
    with pytest.raises(DataError, match=r"is -inf, not a finite number, in fold 0"):
        sd.LassoCV(scoring=lambda model, X, y: -np.inf, alphas=3).fit(X, Y)


def test_a_fold_of_equal_targets_does_not_decide_by_r2():
    y = np.where(np.arange(60) < 12, 1.0, Y[:60])
    model = sd.LassoCV(scoring="r2", alphas=8, eps=0.05, tol=1e-11).fit(X[:60], y)
    for k, alpha in enumerate(model.alphas_):
        fitted = linear_model.Lasso(alpha, tol=1e-11, max_iter=100_000)
        expected = cross_val_score(fitted, X[:60], y, cv=5, scoring="r2")
        np.testing.assert_allclose(model.scores_[k], expected, rtol=1e-6, atol=1e-8)
    assert not model.scores_[:, 0].any()
    assert model.scores_mean_.max() > 0.1
    assert model.coef_.any()


def test_r2_needs_two_rows_to_judge_by():
    with pytest.raises(
        DataError, match=r"scoring='r2' is nan, not a finite number, in fold 0; use fewer folds"
    ):
        sd.LassoCV(scoring="r2", alphas=3, cv=LeaveOneOut()).fit(X[:20], Y[:20])


def test_an_unknown_score_is_named_with_its_neighbours():
    with pytest.raises(
        DataError, match=r"scoring='rmse' is not .* \(did you mean 'mse'\?\); there are"
    ) as caught:
        sd.LassoCV(scoring="rmse").fit(X, Y)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("labels", "cv", "message"),
    [
        (
            ["rare"] + 69 * ["much"],
            KFold(7),
            r"class 'rare' has 1 row \(with weight\), none .* of fold 0 of cv=KFold\(n_splits=7,.* use fewer",
        ),
        (
            20 * ["early"] + 50 * ["late"],
            KFold(3),
            r"class 'early' has 20 rows .* fold 0 of cv=KFold\(n_splits=3, .* shuffle the rows, or use a",
        ),
        (
            20 * ["early"] + 50 * ["late"],
            [(np.arange(30, 70), np.arange(30))],
            r"fold 0 of the given cv: a fold without",
        ),
    ],
)
def test_a_class_that_a_fold_lacks_is_named(labels, cv, message):
    with pytest.raises(DataError, match=message):
        sd.SparseLogisticRegressionCV(alphas=3, cv=cv).fit(X, labels)


def test_a_rare_class_names_the_cv_that_is_meant_by_none():
    told = pytest.warns(UserWarning, match="least populated class")
    with (
        told,
        pytest.raises(DataError, match=r"'rare' has 1 row .* of cv=StratifiedKFold\(n_splits=5, .*drop it"),
    ):
        sd.SparseLogisticRegressionCV(alphas=3).fit(X, ["rare"] + 69 * ["much"])


def test_a_constant_target_gives_zero_models():
    model = sd.LassoCV(alphas=4).fit(X, np.full(N, 2.5))
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(2.5)
    assert model.mse_path_.max() == pytest.approx(0)


def test_folds_share_the_matrix(monkeypatch):
    seen, inner = [], folds.PathProblem.path
    monkeypatch.setattr(
        folds.PathProblem, "path", lambda self, X, *args: seen.append(X) or inner(self, X, *args)
    )
    fortran = np.asfortranarray(X)
    sd.LassoCV(alphas=3, cv=ShuffleSplit(7, random_state=0), penalty_factor=ONE_FREE).fit(fortran, Y)
    assert len(seen) == 8  # seven folds, and all rows
    assert all(np.shares_memory(matrix, fortran) and matrix.shape == X.shape for matrix in seen)


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
def test_alpha_max_is_that_of_each_l1_ratio(form):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 5))
    b = A[:, 0] + rng.standard_normal(60)
    ratios = [0.2, 0.5, 1.0]
    found = sd.ElasticNetCV(l1_ratio=ratios).alpha_max(form(A), b)
    expected = [sd.ElasticNet(l1_ratio=ratio).alpha_max(form(A), b) for ratio in ratios]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(sd.ElasticNetCV(l1_ratio=ratios, cv=3).fit(form(A), b).alphas_[:, 0], found)
    classes = sd.SparseLogisticRegressionCV(l1_ratios=ratios).alpha_max(form(A), b > 0, offset=np.ones(60))
    single = sd.SparseLogisticRegression(l1_ratio=0.5).alpha_max(form(A), b > 0, offset=np.ones(60))
    assert classes[1] == single
    assert isinstance(sd.ElasticNetCV(l1_ratio=0.5).alpha_max(A, b), float)
    assert sd.LassoCV().alpha_max(A, b) == pytest.approx(expected[2])
    with pytest.raises(ValueError, match="l1_ratio must lie between 0 and 1, got 2"):
        sd.ElasticNetCV(l1_ratio=[0.5, 2]).alpha_max(A, b)


def test_an_offset_is_a_known_part_of_the_target():
    """In fits and scores: of arrays and of rows of a Dask array, by moments and by passes over columns."""
    offset = rng.standard_normal(N)
    for options in ({}, {"penalty_factor": ONE_FREE}, {"scoring": "neg_mean_absolute_error"}):
        plain = sd.LassoCV(alphas=4, cv=3, **options).fit(X, Y - offset)
        for form in (np.asarray, lambda X: pytest.importorskip("dask.array").from_array(X, chunks=(35, -1))):
            model = sd.LassoCV(alphas=4, cv=3, **options).fit(form(X), Y, offset=offset)
            np.testing.assert_allclose(model.scores_, plain.scores_, rtol=1e-9)
            np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-9)
    np.testing.assert_allclose(model.predict(X, offset=offset), plain.predict(X) + offset, atol=1e-9)
