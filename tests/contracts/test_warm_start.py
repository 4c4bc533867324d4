"""A warm start goes on from the last model: to the same optimum in fewer rounds, and to no other problem."""

import pandas as pd
import pytest
from contract_cases import assert_close, cases
from sklearn.base import is_classifier

from stradask.errors import DataError


@pytest.mark.parametrize("case", cases("warm start", lambda case: case.takes("warm_start", "__init__")))
def test_a_warm_start_goes_on_from_the_last_model(case):
    model = case.fit(model=case.tight(warm_start=True))
    expected, rounds = case.answer(model), model.n_iter_
    case.fit(model=model)
    if case.scales in ("", "penalty"):
        assert model.n_iter_ < rounds
        assert_close(case.answer(model), expected)
    before, others = dict(vars(model)), [case.given._replace(X=case.given.X[:, 1:])]
    if is_classifier(model):
        others.append(case.given._replace(y=1 + pd.factorize(case.given.y)[0]))
    grouped = case.variant == "sparse group"
    named = not grouped and not case.name.startswith(
        ("Group", "Latent", "Torch")
    )  # whose groups, words or module misfit
    for given in others:
        with pytest.raises(DataError, match="warm_start=True goes on from" if named else None):
            case.fit(given, model=model)
        assert vars(model) == before
    frame = case.frame
    model = case.fit(frame, model=case.make().set_params(warm_start=True))
    with pytest.raises(DataError, match=r"feature names should match|a model of the columns"):
        case.fit(frame._replace(X=frame.X.iloc[:, ::-1]), model=model)
