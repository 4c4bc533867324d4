"""Every public estimator has an entry in the cases of the contracts."""

import inspect

from contract_cases import CASES
from sklearn.base import BaseEstimator

import stradask as sd


def test_every_public_estimator_has_a_case():
    classes = {name for name in sd.__all__ if inspect.isclass(getattr(sd, name))}
    estimators = {name for name in classes if issubclass(getattr(sd, name), BaseEstimator)}
    assert estimators == {type(case.make()).__name__ for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


def test_what_is_broken_names_the_issue_that_mends_it():
    reasons = [reason for case in CASES for reason in case.broken.values()]
    assert all("#46" in reason or "#47" in reason for reason in reasons), reasons
