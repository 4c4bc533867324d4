"""A model that was saved, pickled or copied answers as before; a clone is as new; all of them are shown."""

import copy
import inspect
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from contract_cases import assert_same_bits, cases
from sklearn.base import clone

import stradask as sd

NOT_IN_A_FILE = {"_formula", "_plan", "_spec", "_template", "_timeline"}  # which pickles hold
LEAST = 8000  # bytes of names and parameters


@pytest.mark.parametrize("case", cases("saved models"))
def test_a_copy_answers_as_the_model_does(case, tmp_path):
    model, path = case.fitted, tmp_path / "model"
    answer, state = case.answer(model), set(vars(model))
    model.save(path)
    module = {"module": model.module} if case.name.startswith("Torch") else {}
    copies = [sd.load(path, **module), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for other in copies:
        np.testing.assert_array_equal(case.answer(other), answer)
        assert state - set(vars(other)) <= NOT_IN_A_FILE
        assert_same_bits(other, model)
        assert repr(other) == repr(model)
        assert other.__getstate__().keys() <= state | {"_sklearn_version"}
    new = clone(model)
    assert repr(new) == repr(model)
    assert vars(new).keys() == vars(case.make()).keys()
    assert type(model).__name__ in model._repr_html_()
    np.testing.assert_array_equal(case.answer(case.fit(model=new)), answer)


@pytest.mark.parametrize("case", cases("pickled size", lambda case: case.data != "ratings"))
def test_a_pickle_is_no_larger_than_the_model(case, tmp_path):
    """Of many rows: a model that keeps them hidden is found."""
    many = case.given.rows(np.tile(np.arange(len(case.given.X)), 20))
    model = case.fit(many)
    model.save(tmp_path / "model")
    events = getattr(vars(model).get("_timeline"), "nbytes", 0)
    assert len(pickle.dumps(model)) <= os.path.getsize(tmp_path / "model") + events + LEAST


@pytest.mark.parametrize("case", cases("set_output", lambda case: hasattr(case.make(), "set_output")))
def test_shares_and_columns_come_as_a_frame(case):
    model = copy.copy(case.fitted_to_frame).set_output(transform="pandas")
    frame, by_row = case.frame.X, case.given.by_row
    taken = inspect.signature(model.transform).parameters
    rows = {name: values for name, values in by_row.items() if name in taken}
    output, plain = model.transform(frame, **rows), case.fitted_to_frame.transform(frame, **rows)
    assert isinstance(output, pd.DataFrame)
    assert list(output.columns) == list(model.get_feature_names_out())
    np.testing.assert_array_equal(output.to_numpy(), plain)
