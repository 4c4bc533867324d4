"""Cross-validated logistic paths against fits of the training rows alone, and against scikit-learn."""

import matplotlib as mpl
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

import stradask as sd
from stradask.errors import DataError

mpl.use("agg")
rng = np.random.default_rng(0)
N, P = 110, 20
X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.7)
WEIGHTS = rng.uniform(0.1, 2, N)
LABELS = {}
for K in (2, 3):
    slopes = 1.5 * rng.standard_normal((P, K)) * (rng.random((P, K)) < 0.3)
    LABELS[K] = np.array(["ant", "bee", "cow"])[(X @ slopes + rng.gumbel(size=(N, K))).argmax(axis=1)]
ALPHAS = [0.1, 0.03, 0.01]


def fold_scores(model, y, scorer, *, weights=None, offset=None, form=np.asarray, **options):
    """Scores of every fold by fits of its training rows alone."""
    found = np.empty(model.scores_.shape)
    for fold, (train, test) in enumerate(StratifiedKFold(5).split(X, y)):
        part = {} if weights is None else {"sample_weight": weights[train]}
        if offset is not None:
            part["offset"] = offset[train]
        for at, alpha in enumerate(model.alphas_):
            alone = sd.SparseLogisticRegression(alpha, tol=1e-12, **options).fit(
                form(X[train]), y[train], **part
            )
            found[at, fold] = scorer(alone, test)
    return found


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("K", "options"),
    [
        (2, {}),
        (2, {"class_weight": "balanced"}),
        (2, {"standardize": True, "fit_intercept": False}),
        (2, {"l1_ratio": 0.6}),
        (3, {"class_weight": "balanced"}),
        pytest.param(3, {}, marks=pytest.mark.slow),
        pytest.param(3, {"standardize": True, "fit_intercept": False}, marks=pytest.mark.slow),
        pytest.param(3, {"l1_ratio": 0.6}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_fold_is_the_fit_of_its_rows(K, form, options):
    y = LABELS[K]
    ratio = options.get("l1_ratio", 1.0)
    search = {name: value for name, value in options.items() if name != "l1_ratio"}
    model = sd.SparseLogisticRegressionCV(alphas=ALPHAS, l1_ratios=ratio, tol=1e-12, **search)
    model.fit(form(X), y, sample_weight=WEIGHTS)

    def scorer(alone, test):
        chance = alone.predict_proba(X[test])
        return -2 * log_loss(y[test], chance, sample_weight=WEIGHTS[test], labels=model.classes_)

    expected = fold_scores(model, y, scorer, weights=WEIGHTS, form=form, **options)
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-5)
    on_all = sd.SparseLogisticRegression(model.alpha_, tol=1e-12, **options)
    on_all.fit(form(X), y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.coef_, on_all.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, on_all.intercept_, atol=1e-5)
    assert model.classes_.tolist() == on_all.classes_.tolist()


@pytest.mark.parametrize(
    ("K", "scoring"),
    [
        (2, "roc_auc"),
        (2, "accuracy"),
        (3, "accuracy"),
        pytest.param(3, "roc_auc_ovr", marks=pytest.mark.slow),
    ],
)
def test_any_score_may_choose(K, scoring):
    y = LABELS[K]
    model = sd.SparseLogisticRegressionCV(alphas=ALPHAS, tol=1e-10, scoring=scoring).fit(X, y)
    expected = fold_scores(model, y, lambda alone, test: get_scorer(scoring)(alone, X[test], y[test]))
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-6)
    assert model.alpha_ == model.alphas_[expected.mean(axis=1).argmax()]


def test_scikit_learn_finds_the_same():
    y = LABELS[2]
    model = sd.SparseLogisticRegressionCV(alphas=ALPHAS, tol=1e-12, fit_intercept=False).fit(X, y)
    # Another solver: of older versions of scikit-learn the penalty has another name.
    newer = LogisticRegression().get_params()["penalty"] == "deprecated"
    lasso = {"l1_ratio": 1.0} if newer else {"penalty": "l1"}
    options = {"solver": "liblinear", "fit_intercept": False, "tol": 1e-10, "max_iter": 100_000, **lasso}
    for fold, (train, test) in enumerate(StratifiedKFold(5).split(X, y)):
        for at, alpha in enumerate(model.alphas_):
            theirs = LogisticRegression(C=1 / (alpha * len(train)), **options).fit(X[train], y[train])
            deviance = 2 * log_loss(y[test], theirs.predict_proba(X[test]))
            assert model.scores_[at, fold] == pytest.approx(-deviance, rel=1e-5)


def test_offsets_are_part_of_fits_and_scores():
    y, offset = LABELS[2], rng.standard_normal(N)
    model = sd.SparseLogisticRegressionCV(alphas=ALPHAS, tol=1e-12).fit(X, y, offset=offset)

    def scorer(alone, test):
        return -2 * log_loss(y[test], alone.predict_proba(X[test], offset=offset[test]))

    np.testing.assert_allclose(model.scores_, fold_scores(model, y, scorer, offset=offset), rtol=1e-5)


def test_folds_are_stratified_and_groups_reach_the_splitter():
    y = np.sort(LABELS[2])
    model = sd.SparseLogisticRegressionCV(alphas=3).fit(X, y)
    by_hand = sd.SparseLogisticRegressionCV(alphas=3, cv=list(StratifiedKFold(5).split(X, y))).fit(X, y)
    np.testing.assert_array_equal(model.scores_, by_hand.scores_)
    groups = rng.integers(6, size=N)
    splits = list(GroupKFold(3).split(X, y, groups))
    grouped = sd.SparseLogisticRegressionCV(alphas=3, cv=GroupKFold(3)).fit(X, y, groups=groups)
    by_hand = sd.SparseLogisticRegressionCV(alphas=3, cv=splits).fit(X, y)
    np.testing.assert_array_equal(grouped.scores_, by_hand.scores_)


@pytest.mark.parametrize("K", [2, 3])
def test_the_same_bits_on_any_number_of_threads(K):
    options = {"alphas": 6, "l1_ratios": [0.5, 1.0]}
    models = [sd.SparseLogisticRegressionCV(n_jobs=n, **options).fit(X, LABELS[K]) for n in (1, 3)]
    for name in ("scores_", "coef_", "intercept_", "alphas_"):
        np.testing.assert_array_equal(*(getattr(model, name) for model in models))


@pytest.mark.parametrize("K", [2, 3])
def test_the_rule_of_one_standard_error(K):
    model = sd.SparseLogisticRegressionCV(alphas=12, rule="1se").fit(X, LABELS[K])
    best = model.scores_mean_.argmax()
    limit = model.scores_mean_[best] - model.scores_[best].std(ddof=1) / np.sqrt(5)
    assert model.alpha_ == model.alphas_[np.flatnonzero(model.scores_mean_ >= limit)[0]]
    at = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
    n_outputs = 1 if K == 2 else K
    own = model.coef_path_[:, at * n_outputs : (at + 1) * n_outputs].toarray().T
    np.testing.assert_array_equal(model.coef_, own)


# Class weights of 1000 and 0.0001 leave gaps near 1e-4, of which a warning tells.


def test_plot_of_three_classes_is_of_norms():
    from matplotlib.figure import Figure

    model = sd.SparseLogisticRegressionCV(alphas=5, scoring="accuracy").fit(X, LABELS[3])
    upper, lower = model.plot(Figure().subplots(2), n_named=1)
    largest = np.linalg.norm(model.coef_, axis=0).argmax()
    expected = np.linalg.norm(model.coef_path_[[largest]].toarray().reshape(5, 3), axis=1)
    np.testing.assert_allclose(upper.lines[0].get_ydata(), expected)
    assert upper.texts[0].get_text() == f"x{largest}"
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("norm of the coefficients", "accuracy")


BAD = {
    "a fold without a class": (
        {"cv": KFold(2)},
        {"y": np.sort(LABELS[2])},
        "class 'ant' has 51 rows .*, none of them among the training rows of fold 0 of cv=KFold",
    ),
    "one class": ({}, {"y": np.full(N, "ant")}, "needs two classes or more"),
    "mse": ({"scoring": "mse"}, {}, "scoring='mse' is not a score of classification"),
    "r2": ({"scoring": "r2"}, {}, "scoring='r2' cannot judge this model"),
    "area of three classes": ({"scoring": "roc_auc"}, {"y": LABELS[3]}, "scoring='roc_auc' cannot judge"),
    "class that is not there": ({"class_weight": {"dog": 1.0}}, {}, "class_weight names the class 'dog'"),
    "area of a fold of one class": (
        {"scoring": "roc_auc", "cv": [(np.arange(N), np.flatnonzero(LABELS[2] == "ant"))]},
        {},
        "scoring='roc_auc' is nan, not a finite number, in fold 0; its test rows may lack a class",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    parameters, data, message = BAD[case]
    with pytest.raises(DataError, match=message):
        sd.SparseLogisticRegressionCV(**{"alphas": 3, **parameters}).fit(**{"X": X, "y": LABELS[2], **data})
