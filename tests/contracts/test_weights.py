"""Weights are numbers of rows, or shares of the whole, as the class says; a weight of 0 leaves a row out."""

import inspect
import re

import numpy as np
import pytest
from contract_cases import cases, ratings

WEIGHTS = np.random.default_rng(1).integers(0, 4, 1000).astype(float)
WEIGHTS[:3] = [0, 1, 2]
SPLITS = [(np.arange(0, 40), np.arange(40, 60)), (np.arange(20, 60), np.arange(20))]

# What the docstring of each class, or of its `fit`, says of its weights.
SENTENCES = {
    "frequencies": r"counts as two rows|Weights w enter as numbers of rows",
    "relative": r"[Oo]nly ratios count|[Tt]hey are relative|Weights are relative",
}


def answer_of(case, given, weights, splits):
    model = case.tight()
    if case.takes("batch_size", "__init__") and case.name.startswith("Torch"):
        model.set_params(batch_size=60)  # of all rows: a row of weight 0 is in no minibatch
    if case.takes("cv", "__init__") and "RidgeCV" not in case.name:
        model.set_params(cv=splits)
    return case.answer(case.fit(given, model=model, sample_weight=weights), case.given)


@pytest.mark.parametrize("case", cases("weights", lambda case: case.weights and case.variant != "implicit"))
def test_weights_are_of_the_kind_that_is_stated(case):
    doc = " ".join(f"{inspect.getdoc(type(case.make()))} {inspect.getdoc(case.make().fit)}".split())
    assert re.search(SENTENCES[case.weights], doc)
    assert case.weights == "frequencies" or not re.search(SENTENCES["frequencies"], doc)
    given = ratings(case) if case.data == "ratings" else case.given
    n = len(given.X)
    weights, tolerance = WEIGHTS[:n], {"rtol": 1e-6, "atol": 1e-8}
    kept = np.flatnonzero(weights)
    left = [tuple(np.flatnonzero(np.isin(kept, part)) for part in split) for split in SPLITS]
    expected = answer_of(case, given, weights, SPLITS)
    without = answer_of(case, given.rows(kept), weights[kept], left)
    np.testing.assert_allclose(expected, without, **tolerance, err_msg="rows of weight 0")
    # Minibatches are of rows, a rating is one of its cell, and ties of times are not rows of one weight.
    if case.scales != "network" and case.data not in ("ratings", "survival"):
        copies = np.repeat(np.arange(n), weights.astype(int))
        several = [tuple(np.flatnonzero(np.isin(copies, part)) for part in split) for split in SPLITS]
        repeated = answer_of(case, given.rows(copies), None, several)
        np.testing.assert_allclose(expected, repeated, **tolerance, err_msg="copies of rows")
    else:
        alike = answer_of(case, given.rows(kept), None, left)
        assert np.abs(expected - alike).max() > 1e-4, "weights above zero do not matter"
    if "float or array-like" in inspect.getdoc(case.make().fit):
        alike = [answer_of(case, given, value, SPLITS) for value in (2.0, np.full(n, 2.0))]
        np.testing.assert_allclose(*alike, **tolerance, err_msg="one weight for all rows")
    for factor in (1e-6, 1e6) if case.weights == "relative" else ():
        scaled = answer_of(case, given, factor * weights, SPLITS)
        np.testing.assert_allclose(scaled, expected, **tolerance, err_msg=f"weights times {factor}")
