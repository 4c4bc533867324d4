"""Until a fit ends the estimator is as it was, also if it fails; then nothing is left of an earlier fit."""

import pickle

import numpy as np
import pytest
from contract_cases import assert_close, cases

from stradask.errors import DataError


class Stop(Exception):
    """Raised by a callback."""


@pytest.mark.parametrize("case", cases("state"))
def test_a_fit_leaves_its_own_state_or_none(case):
    new, fitted = case.make(), case.fit(case.frame if case.has_columns else case.given)
    for model in (new, fitted):
        before = dict(vars(model))
        with pytest.raises(DataError):
            case.fit(spoiled(case), model=model)
        assert same_state(vars(model), before)
        if case.takes("callback"):
            with pytest.raises(Stop):
                case.fit(model=model, callback=stopping(case, model, before))
            assert same_state(vars(model), before)
    case.fit(model=fitted)
    assert vars(fitted).keys() == vars(case.fitted).keys()
    np.testing.assert_array_equal(case.answer(fitted), case.answer(case.fitted))


def spoiled(case):
    """The data with what no fit takes in the last row."""
    X = case.given.X.copy()
    if case.data == "table":
        return case.given._replace(X=X.assign(c0=np.where(np.arange(len(X)) == len(X) - 1, np.nan, X["c0"])))
    if case.data == "ratings":
        X.data[-1] = np.inf
    else:
        X[-1, -1] = np.nan
    return case.given._replace(X=X)


def stopping(case, model, before):
    """A callback that raises; what it can take of the fit can be pickled, and answers."""

    def stop(info):
        assert same_state(vars(model), before)
        if info.snapshot is not None:
            snapshot = info.snapshot()
            assert_close(case.answer(pickle.loads(pickle.dumps(snapshot))), case.answer(snapshot))
        raise Stop

    return stop


def same_state(state, before):
    """Whether attributes are the very objects that they were."""
    return state.keys() == before.keys() and all(state[name] is before[name] for name in state)
