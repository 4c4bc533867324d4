"""What the base class of all estimators gives."""

import pytest

from stradask.algorithms._base import Estimator
from stradask.errors import DataError


class Thin(Estimator):
    pass


def test_a_class_that_load_would_not_find_cannot_be_saved(tmp_path):
    with pytest.raises(DataError, match="Thin is not one of stradask's own estimators"):
        Thin().save(tmp_path / "thin")
    assert list(tmp_path.iterdir()) == []
