"""Texts, NaN and long values in place of numbers: messages name the fault and a remedy, and stay short."""

import dask.bag
import numpy as np
import pandas as pd
import pytest

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError, shortened

TEXT = "the quick brown fox jumps over the lazy dog " * 400
TEXTS = [TEXT, "cats and dogs"]


def _refused(call, *args):
    with pytest.raises(DataError, match="X holds t") as caught:
        call(*args)
    message = str(caught.value)
    assert "text_counts" in message
    assert len(message) < 500
    assert message.count("quick") < 5


@pytest.fixture(scope="module")
def fitted():
    X = np.arange(12).reshape(4, 3)
    y = [0, 1, 0, 1]
    return sd.LatentDirichletAllocation(2, max_iter=2).fit(X), sd.Lasso(0.01).fit(X, y)


NUMBERS = np.random.default_rng(0).poisson(2.0, (30, 3)) + 1
LABELS = np.arange(30) % 2


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
