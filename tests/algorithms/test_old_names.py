"""Names of version 0.2 that were renamed work, with a warning, in every way in which they were used."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import stradask as sd
from stradask.algorithms import _old_names

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4))
Y = X[:, 0] + RNG.standard_normal(40)
SEARCH = {"alphas": [0.1, 0.05], "cv": 3}
PARAMETERS = [(name, *pair) for name, pairs in _old_names.PARAMETERS.items() for pair in pairs.items()]
ATTRIBUTES = [(name, *pair) for name, pairs in _old_names.ATTRIBUTES.items() for pair in pairs.items()]


@pytest.mark.parametrize(("name", "old", "new"), PARAMETERS)
def test_an_old_parameter_is_taken_and_read(name, old, new):
    cls, warns = getattr(sd, name), pytest.warns(FutureWarning, match=f"{old} of {name} is now {new}")
    with warns as caught:
        model = cls(**{old: 0.5})
    assert caught[0].filename == __file__
    assert model.get_params()[new] == 0.5
    assert old not in model.get_params()
    assert clone(model).get_params()[new] == 0.5
    with pytest.warns(FutureWarning, match=old):
        assert model.set_params(**{old: 0.25}).get_params()[new] == 0.25
    with pytest.warns(FutureWarning, match=old):
        assert getattr(model, old) == 0.25
    with pytest.raises(TypeError, match="pass the latter alone"):
        cls(**{old: 0.5, new: 0.5})


@pytest.mark.filterwarnings("ignore:l1_ratio of")
def test_a_search_sets_an_old_parameter():
    model = GridSearchCV(sd.SparseLogisticRegressionCV(**SEARCH), {"l1_ratio": [0.5]}, cv=2).fit(X, Y > 0)
    assert model.best_estimator_.l1_ratio_ == 0.5


@pytest.mark.parametrize(("name", "old", "new"), ATTRIBUTES)
def test_an_old_attribute_is_read(name, old, new):
    model = getattr(sd, name)(**SEARCH)
    assert not hasattr(model, old)
    model.fit(X, Y)
    new, convert = new
    with pytest.warns(FutureWarning, match=f"{old} of {name} is now {new}"):
        np.testing.assert_array_equal(getattr(model, old), convert(getattr(model, new)))


def test_a_model_file_of_version_0_2_is_read(tmp_path):
    model = sd.GroupLassoCV(2, l1_ratios=0.3, **SEARCH).fit(X, Y)
    model.save(tmp_path / "model")
    with np.load(tmp_path / "model") as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    header["parameters"]["l1_ratio"] = header["parameters"].pop("l1_ratios")
    header["attributes"]["losses_se_"] = header["attributes"].pop("scores_se_")
    header["attributes"]["losses_"] = header["attributes"].pop("scores_")
    del header["parameters"]["scoring"]
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(tmp_path / "old", "wb") as file:
        np.savez(file, **arrays)
    old = sd.load(tmp_path / "old")
    assert old.get_params() == model.get_params() | {"engine": "local"}
    np.testing.assert_array_equal(old.scores_, -model.scores_)
    np.testing.assert_array_equal(old.scores_se_, model.scores_se_)
