"""What the base class of all estimators gives."""

from numbers import Integral

import pytest
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import Interval, InvalidParameterError

from stradask.algorithms._base import Estimator
from stradask.errors import DataError


class Thin(Estimator):
    _parameter_constraints = {"size": [Interval(Integral, 1, None, closed="left")]}  # noqa: RUF012

    def __init__(self, size=1):
        self.size = size

    def fit(self, X, y=None):
        self._validate_params()
        self.size_ = self.size
        return self


def test_parameters_are_checked_by_scikit_learn():
    with pytest.raises(InvalidParameterError, match=r"The 'size' parameter of Thin must be an int .* Got 0"):
        Thin(size=0).fit(None)
    assert clone(Thin(size=3)).fit(None).size_ == 3


def test_sparse_input_is_declared():
    assert get_tags(Thin()).input_tags.sparse


def test_a_class_that_load_would_not_find_cannot_be_saved(tmp_path):
    with pytest.raises(DataError, match="Thin is not one of stradask's own estimators"):
        Thin().save(tmp_path / "thin")
    assert list(tmp_path.iterdir()) == []
