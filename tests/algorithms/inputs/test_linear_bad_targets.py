"""Targets, weights, penalty factors and offsets that cannot be, by every sparse linear model."""

import numpy as np
import pandas as pd
import pytest
from linear_inputs import LABELS, MODELS, X, Y

import stradask as sd
from stradask.errors import DataError


@pytest.fixture(params=MODELS)
def case(request):
    cls, y = MODELS[request.param]
    return cls(0.05), y


# --- y, weights, factors, offset --------------------------------------------------------------------
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("targets", [1, 2])
def test_targets_that_are_not_finite_are_named_with_their_row(value, word, targets):
    y = Y.copy() if targets == 1 else np.column_stack([Y, Y])
    y[3] = value
    with pytest.raises(DataError, match=f"^y contains {word} in row 3: Lasso .*drop the row"):
        sd.Lasso().fit(X, y)


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (np.r_[0.0, 1.0, np.nan, LABELS[3:]], "NaN"),
        (np.r_[0.0, 1.0, np.inf, LABELS[3:]], "infinity"),
        (np.array(["a", "b", None, "b"] + ["a"] * 36, dtype=object), "None"),
        (pd.Series(["a", "b", pd.NA, "b"] + ["a"] * 36, dtype="string"), "<NA>"),
        (pd.Series([0, 1, pd.NA, 1] + [0] * 36, dtype="Int64"), "NaN"),
    ],
)
def test_labels_that_are_missing_are_named_with_their_row(labels, word):
    with pytest.raises(DataError, match=f"^y contains {word} in row 2: SparseLogisticRegression .*drop"):
        sd.SparseLogisticRegression().fit(X, labels)


@pytest.mark.parametrize(
    ("y", "row", "text"),
    [
        ([1.5] * 3 + ["a"] + [2.5] * 36, 3, "a"),
        (np.array(["1"] * 40), 0, "1"),
        (pd.Series([1.0] * 5 + ["a"] * 35, dtype=object), 5, "a"),
        (pd.Series(["low", "high"] * 20, dtype="category"), 0, "low"),
    ],
    ids=["list", "numpy", "pandas", "category"],
)
def test_text_among_targets_is_shown_with_its_row(y, row, text):
    with pytest.raises(DataError, match=f"y holds the text '{text}' in row {row}; Lasso takes numbers: conv"):
        sd.Lasso().fit(X, y)


def test_targets_of_the_wrong_kind():
    with pytest.raises(DataError, match="Complex data not supported: y is complex128"):
        sd.Lasso().fit(X, Y + 1j)
    with pytest.raises(DataError, match="array with dim 3"):
        sd.Lasso().fit(X, np.zeros((40, 2, 2)))
    with pytest.raises(DataError, match="y must be a vector of 40 targets"):
        sd.Lasso().fit(X, 3.0)
    with pytest.raises(DataError, match="Unknown label type: continuous"):
        sd.SparseLogisticRegression().fit(X, Y)
    with pytest.raises(DataError, match="1d array"):
        sd.SparseLogisticRegression().fit(X, np.column_stack([LABELS, LABELS]))


@pytest.mark.parametrize("labels", [np.zeros(40), ["a"] * 40])
def test_one_class(labels):
    with pytest.raises(DataError, match=r"y holds 1 class, .*: SparseLogisticRegression needs two classes"):
        sd.SparseLogisticRegression().fit(X, labels)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (np.ones(5), r"penalty_factor has the shape \(5,\); pass a vector of 6"),
        (
            np.r_[np.ones(5), -1],
            r"penalty_factor must be 0 or above \(inf excludes .*\), got -1 for column 5",
        ),
        (np.r_[np.ones(5), np.nan], r"penalty_factor must be .* got nan for column 5"),
        (np.r_[np.ones(5), -np.inf], r"penalty_factor must be .* got -inf for column 5"),
        (["a"] * 6, r"penalty_factor must hold numbers"),
    ],
)
def test_penalty_factors_that_cannot_be(case, factor, message):
    model, y = case
    with pytest.raises(DataError, match=message):
        model.set_params(penalty_factor=factor).fit(X, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ({7: 2.0}, r"class_weight names the class 7, which y does not have; it has \[0, 1\]"),
        ({1: -1.0}, r"class_weight of the class 1 must be positive and finite, got -1\.0"),
        ({1: "x"}, r"class_weight of the class 1 must be positive"),
        ({1: 0}, r"of the class 1 must be positive and finite, got 0; to fit without .* leave out its rows"),
    ],
)
def test_class_weights_that_cannot_be(weight, message):
    with pytest.raises(DataError, match=message):
        sd.SparseLogisticRegression(class_weight=weight).fit(X, LABELS)
