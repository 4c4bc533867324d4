"""Texts, NaN and long values in place of numbers: messages name the fault and a remedy, and stay short."""

import copy
import functools
import inspect

import dask.bag
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError, shortened

TEXT = "the quick brown fox jumps over the lazy dog " * 400
TEXTS = [TEXT, "cats and dogs"]
FORMS = {
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "str": TEXT,
    "short str": "cats and dogs",
    "tokens": [text.split() for text in TEXTS],
    "tokens of one length": [["a", "b"], ["c", "d"]],
    "array": np.array(TEXTS),
    "column": np.array(TEXTS)[:, None],
    "objects": np.array(TEXTS, dtype=object),
    "Series": pd.Series(TEXTS),
    "DataFrame": pd.DataFrame({"text": TEXTS}),
    "bytes": [text.encode() for text in TEXTS],
}
REGRESSIONS = [sd.Lasso, sd.ElasticNet, sd.Ridge, sd.LassoCV, sd.MLPRegressor, sd.BayesianLinearRegression]
CLASSIFIERS = [sd.LogisticRegression, sd.SparseLogisticRegression, sd.MLPClassifier]


def _refused(call, *args):
    with pytest.raises(DataError, match="X holds t") as caught:
        call(*args)
    message = str(caught.value)
    assert "text_counts" in message
    assert len(message) < 500
    assert message.count("quick") < 5


@pytest.mark.parametrize("X", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", REGRESSIONS + CLASSIFIERS)
def test_fits_say_that_X_holds_texts(kind, X):
    _refused(kind().fit, X, [0, 1])


@pytest.fixture(scope="module")
def fitted():
    X = np.arange(12).reshape(4, 3)
    y = [0, 1, 0, 1]
    return sd.LatentDirichletAllocation(2, max_iter=2).fit(X), sd.Lasso(0.01).fit(X, y)


@pytest.mark.parametrize("X", FORMS.values(), ids=FORMS)
def test_methods_say_that_X_holds_texts(fitted, X):
    lda, lasso = fitted
    calls = [lda.fit, lda.partial_fit, lda.transform, lda.score, lda.perplexity, lda.coherence]
    for call in [*calls, lda.log_probability, lasso.predict]:
        _refused(call, X)


def all_estimators():
    known = {name: getattr(sd, name) for name in sd.__all__}
    return [
        name for name, kind in known.items() if isinstance(kind, type) and issubclass(kind, BaseEstimator)
    ]


NUMBERS = np.random.default_rng(0).poisson(2.0, (30, 3)) + 1
LABELS = np.arange(30) % 2
OF_X = (
    "fit",
    "partial_fit",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
)
OF_X += ("fit_transform", "score", "perplexity", "coherence", "log_probability")


RATERS = {"MatrixFactorization", "EASE", "SLIM", "ItemKNN", "Popularity"}  # take users and items
BY_FORMULA = {"BayesianGLM"}  # take frames of any columns, texts for categories


def labels_of(name):
    """Two targets, where a model takes several."""
    return np.column_stack([LABELS, LABELS]) if name.startswith("MultiTask") else LABELS


@functools.cache
def _fitted(name):
    if name.startswith("Torch"):
        torch = pytest.importorskip("torch")
        return getattr(sd, name)(torch.nn.Linear, max_iter=1).fit(NUMBERS / 10, LABELS)
    few = {"n_samples": 20, "n_warmup": 20, "n_chains": 1} if name.startswith("Bayesian") else {}
    if name == "DynamicTopicModel":
        return sd.DynamicTopicModel(2, max_iter=2).fit(NUMBERS, slices=LABELS)
    if name == "KeyATM":
        return sd.KeyATM(2, max_iter=2).fit(NUMBERS, seed_words=np.eye(2, 3))
    return getattr(sd, name)(**few).fit(NUMBERS, labels_of(name))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["list", "tokens", "objects", "DataFrame"])
@pytest.mark.parametrize("name", sorted(set(all_estimators()) - RATERS - BY_FORMULA))
def test_all_methods_of_all_estimators(name, form):
    model = _fitted(name)
    methods = [method for method in OF_X if hasattr(model, method)]
    assert {"fit"} < set(methods)
    for method in methods:
        call = getattr(copy.deepcopy(model), method)
        given = inspect.signature(call).parameters
        if {"slices", "fit_params"} & set(given) and name == "DynamicTopicModel":
            call = functools.partial(call, slices=[0, 1])
        if {"seed_words", "fit_params"} & set(given) and name == "KeyATM":
            call = functools.partial(call, seed_words=np.eye(2, 3))
        _refused(call, FORMS[form], *([[0, 1]] if "y" in given else []))


@pytest.mark.parametrize("X", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", sorted(RATERS - {"MatrixFactorization"}))
def test_item_models_refuse_texts_briefly(name, X):
    model = getattr(sd, name)().fit(RATED)
    calls = [model.fit, model.recommend, lambda X: model.fit(X, [1.0])]
    if X is not FORMS["tokens of one length"]:  # these could be pairs of ids
        calls += [model.predict, model.score, lambda X: model.score(X, [1.0, 2.0])]
    for call in calls:
        with pytest.raises(DataError) as caught:
            call(X)
        assert len(str(caught.value)) < 300


RATED = sparse.csr_array(np.arange(1, 13).reshape(4, 3) % 5 + 1)


@pytest.mark.parametrize("X", FORMS.values(), ids=FORMS)
def test_matrix_factorization_refuses_texts_briefly(X):
    model = sd.MatrixFactorization(2, max_iter=1, random_state=0).fit(RATED)
    calls = [model.fit, model.partial_fit, model.transform, model.recommend, model.similar_items]
    calls += [lambda X: model.explain(X, [0]), lambda X: sd.MatrixFactorization(2).fit(X, [1.0])]
    if X is not FORMS["tokens of one length"]:  # these could be pairs of ids
        calls += [model.predict, model.score, lambda X: model.score(X, [1.0, 2.0])]
    for call in calls:
        with pytest.raises(DataError) as caught:
            call(X)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [TEXT, TEXTS, list(range(10_000))], ids=["text", "texts", "numbers"])
@pytest.mark.parametrize(("kind", "name"), [(sd.Lasso, "alpha"), (sd.LatentDirichletAllocation, "sampler")])
def test_parameters_are_shown_in_short(kind, name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter") as caught:
        kind(**{name: value}).fit(NUMBERS, LABELS)
    assert str(caught.value).endswith("... instead.")
    assert len(str(caught.value)) < 400


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", [TEXT, "x" * 10_000])
def test_names_labels_and_ids_are_shown_in_short(name):
    pairs, new = np.array([["a", "b"], ["c", "d"]]), np.array([[name, "b"]])
    factors = sd.MatrixFactorization(2, max_iter=1, bias=False).fit(pairs, [1.0, 2.0])
    frame = pd.DataFrame(NUMBERS.astype(float), columns=[name, "b", "c"])
    frame.iloc[3, 0] = np.nan
    labels = np.array([name, "b"])
    calls = [
        lambda: factors.recommend([name]),
        lambda: factors.similar_items(name),
        lambda: factors.add_users([name, name], None),
        lambda: sd.MatrixFactorization(2).fit(np.vstack([new, new]), [1.0, 2.0]),
        lambda: sd.Lasso().fit(frame, LABELS),
        lambda: sd.Lasso().fit(NUMBERS, LABELS).predict(pd.DataFrame(NUMBERS[:, :2], columns=[name, "b"])),
        lambda: sd.LassoCV(scoring=name).fit(NUMBERS, LABELS),
        lambda: sd.LogisticRegression().fit(NUMBERS, [name] * 30),
        lambda: sd.LogisticRegression(class_weight={name: -1.0, "b": 1.0}).fit(NUMBERS, labels[LABELS]),
        lambda: sd.LatentDirichletAllocation(2).fit(NUMBERS, seed_words={0: [name]}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\w") as caught:
            call()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("bag", [TEXTS, [text.split() for text in TEXTS]], ids=["texts", "tokens"])
def test_a_bag_of_texts(fitted, bag):
    bag = dask.bag.from_sequence(bag, npartitions=1)
    _refused(fitted[0].fit, bag)
    for call in (fitted[0].transform, fitted[0].coherence, fitted[1].predict):
        with pytest.raises(DataError, match=r"Bag.*text_counts"):
            call(bag)


def test_names_of_absent_files_are_still_names(tmp_path):
    for name in ("missing.txt", str(tmp_path / "my documents"), "my documents.txt"):
        with pytest.raises(DataError, match=r"cannot be opened .*check the path"):
            sd.LatentDirichletAllocation(2).fit(name)


@pytest.mark.parametrize(
    ("model", "remedy"), [(sd.LatentDirichletAllocation(2), "set it to 0"), (sd.Lasso(), "SimpleImputer")]
)
def test_nan_has_a_remedy_that_helps(model, remedy):
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    with pytest.raises(DataError, match=remedy) as caught:
        model.fit(X, [0.0, 1.0])
    assert "NaN" in str(caught.value)
    assert "HistGradientBoosting" not in str(caught.value)


def test_a_model_reads_no_nan_either(fitted):
    for model, call in ((fitted[0], "transform"), (fitted[1], "predict")):
        with pytest.raises(DataError, match="NaN") as caught:
            getattr(model, call)(np.full((2, 3), np.nan))
        assert "HistGradientBoosting" not in str(caught.value)


def test_a_checkpoint_of_other_priors_names_the_parameter_first(tmp_path):
    X = np.random.default_rng(0).poisson(1.0, (20, 300))
    prior = np.linspace(0.01, 0.02, 300)
    lda = sd.LatentDirichletAllocation(2, topic_word_prior=prior, max_iter=2, checkpoint=tmp_path).fit(X)
    with pytest.raises(CheckpointMismatch, match=r"^topic_word_prior: 300 values: 0\.01,") as caught:
        lda.set_params(topic_word_prior=prior + 0.01).fit(X)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 300


@pytest.mark.parametrize("value", [TEXT, TEXTS, np.arange(10**6), list(range(10**4)), {"a": TEXT}, 1.5])
def test_shortened_keeps_to_its_length(value):
    assert len(shortened(value)) <= 84
    assert len(shortened(value, 30)) <= 36
