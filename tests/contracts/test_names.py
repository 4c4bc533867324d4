"""A model that was fitted to a frame knows its columns by their names, and refuses other ones."""

import pickle

import numpy as np
import pytest
from contract_cases import COLUMNS, cases, readers, short_fits

import stradask as sd
from stradask.errors import DataError

OTHER_COLUMNS = {
    "permuted": lambda X: X[X.columns[::-1]],
    "renamed": lambda X: X.rename(columns={X.columns[1]: "new"}),
    "missing": lambda X: X.drop(columns=X.columns[1]),
    "added": lambda X: X.assign(new=X[X.columns[1]]),
}


@pytest.mark.parametrize("case", cases("names", lambda case: case.has_columns))
def test_names_are_kept_and_compared(case, tmp_path):
    model, given, columns = case.fitted_to_frame, case.frame, COLUMNS[case.data]
    if not case.name.startswith("Torch"):  # a module has no place in a file
        model.save(tmp_path / "model")
        check_names(sd.load(tmp_path / "model"), given, columns)
        check_names(pickle.loads(pickle.dumps(model)), given, columns)
    check_names(model, given, columns)
    np.testing.assert_allclose(case.answer(model, given), case.answer(case.fitted), rtol=1e-6, atol=1e-8)
    assert not hasattr(case.fitted, "feature_names_in_")


def check_names(model, given, columns):
    assert list(model.feature_names_in_) == columns
    for name, read in readers(model).items():
        with short_fits():
            read(given)
        for form, change in OTHER_COLUMNS.items():
            other = given._replace(X=change(given.X))
            with pytest.raises(DataError), short_fits():
                assert read(other) is None, f"{name} took columns that are {form}"
