"""TorchClassifier and TorchRegressor: scikit-learn's contract, files, checkpoints, predictions."""

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from torch_nets import classifier, linear_net, nn, small_net, torch

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError


def test_a_regression_learns_a_line():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3), dtype=np.float32)
    Y = X @ np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]]) + 1
    for loss in ("mse", "mae"):
        model = sd.TorchRegressor(nn.Linear, loss=loss, learning_rate=0.1, max_iter=40, random_state=0).fit(
            X, Y
        )
        assert model.score(X, Y) > 0.99
        assert model.predict(X).shape == (300, 2)
    assert sd.TorchRegressor(nn.Linear, random_state=0, max_iter=2).fit(X, Y[:, 0]).predict(X).shape == (300,)


def test_the_given_module_stays_as_it_is(data):
    net = linear_net(10, 3)
    before = [p.detach().clone() for p in net.parameters()]
    state = torch.random.get_rng_state()
    model = classifier(net).fit(*data)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert torch.equal(state, torch.random.get_rng_state())
    assert net.training
    assert not model.module_.training
    assert not torch.equal(before[0], model.module_[0].weight)


def test_the_best_scored_parameters_are_kept(data):
    X, y = data
    model = classifier(early_stopping=True, max_iter=60, n_iter_no_change=3).fit(X, y)
    scores = model.validation_scores_
    assert model.n_iter_ == len(scores) < 60
    assert model.best_validation_score_ == max(scores) == max(scores[:-3])
    assert max(scores[-3:]) <= max(scores[:-3])


def test_epochs_go_on(data):
    X, y = data
    model = classifier(max_iter=1)
    for _ in range(4):
        model.partial_fit(X, y, classes=["ham", "jam", "spam"])
    want = classifier(max_iter=4).fit(X, y)
    assert np.array_equal(model.weights_, want.weights_)
    assert model.loss_curve_ == want.loss_curve_
    with pytest.raises(DataError, match="'eggs', which is none of the classes"):
        model.partial_fit(X[:2], ["eggs", "ham"])
    again = classifier(max_iter=2, warm_start=True).fit(X, y)
    assert again.fit(X, y).loss_curve_[0] < again.set_params(warm_start=False).fit(X, y).loss_curve_[0]


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam"])
def test_the_optimizer_goes_on_from_call_to_call(data, optimizer, tmp_path):
    X, y = data
    options = {"optimizer": optimizer, "learning_rate": 0.01}
    model = classifier(**options)
    for _ in range(3):
        model.partial_fit(X, y, classes=np.unique(y))
    whole = classifier(max_iter=3, **options).fit(X, y)
    assert np.array_equal(model.weights_, whole.weights_)
    assert model.n_updates_ == whole.n_updates_ == 3 * 4
    model.save(tmp_path / "model")
    read = sd.load(tmp_path / "model", module=small_net)
    assert np.array_equal(read.partial_fit(X, y).weights_, model.partial_fit(X, y).weights_)
    start = classifier(max_iter=1, **options).fit(X, y)
    again = classifier(start.module_, max_iter=1, **options).fit(X, y)
    assert np.array_equal(start.set_params(warm_start=True).fit(X, y).weights_, again.weights_)


def test_weights_of_classes_count(data):
    X, y = data
    weights = np.where(y == "ham", 3.0, np.where(y == "jam", 1.0, 0.5))
    want = classifier().fit(X, y, sample_weight=weights)
    model = classifier(class_weight={"ham": 3.0, "spam": 0.5}).fit(X, y)
    assert np.array_equal(model.weights_, want.weights_)
    _, numbers, counts = np.unique(y, return_inverse=True, return_counts=True)
    want = classifier().fit(X, y, sample_weight=len(y) / (3 * counts[numbers]))
    assert np.array_equal(classifier(class_weight="balanced").fit(X, y).weights_, want.weights_)
    with pytest.raises(DataError, match="class_weight names the class 'eggs'"):
        classifier(class_weight={"eggs": 1.0}).fit(X, y)
    with pytest.raises(DataError, match="class_weight='balanced' would be another one in each call"):
        classifier(class_weight="balanced").partial_fit(X, y, classes=np.unique(y))
    with pytest.raises(ValueError, match="'class_weight' parameter of TorchClassifier"):
        classifier(class_weight=3).fit(X, y)


def test_files_hold_all_parameters(data, tmp_path):
    options = {
        "class_weight": {"ham": 3.0},
        "wire": "log8",
        "device": "auto",
        "plan": [("0:2", 1), ("2:", 1)],
    }
    model = classifier(linear_net, **options).fit(*data)
    assert clone(model).get_params() == model.get_params()
    model.save(tmp_path / "model")
    back = sd.load(tmp_path / "model", module=linear_net, device="auto")
    assert {name: getattr(back, name) for name in ("wire", "class_weight", "device")} == {
        name: options[name] for name in ("wire", "class_weight", "device")
    }
    assert np.array_equal(back.predict(data[0]), model.predict(data[0]))
    assert sd.load(tmp_path / "model").device == "cpu"  # a place: files do not set it


def test_files_hold_numbers_and_no_code(data, one, tmp_path):
    X, _ = data
    one.save(tmp_path / "model")
    back = sd.load(tmp_path / "model", module=small_net)
    assert np.array_equal(back.predict_proba(X), one.predict_proba(X))
    assert one.module_name_.endswith("torch_nets:small_net")
    with pytest.raises(DataError, match=r"no code: .*small_net"):
        sd.load(tmp_path / "model").predict(X)
    with pytest.raises(DataError, match="module has 63 parameters, but the model was fitted with 227"):
        sd.load(tmp_path / "model", module=lambda n, k: nn.Sequential(nn.Linear(20, 3))).predict(X)


def test_a_plan_with_checkpoints_does_not_depend_on_timings(data, one, tmp_path, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.neural.training.fitting.profile_layers", None)  # times nothing
    model = classifier(checkpoint=tmp_path / "states", n_jobs=2).fit(*data)
    assert model.plan_.stages == ((0, 4, 2),)
    np.testing.assert_array_equal(model.weights_, one.weights_)


def test_a_fit_goes_on_from_its_checkpoint(data, one, tmp_path):
    X, y = data

    class Stop(Exception):
        pass

    def stop(info):
        if info.round == 7:
            raise Stop

    with pytest.raises(Stop):
        classifier(checkpoint=tmp_path / "states", max_iter=12).fit(X, y, callback=stop)
    model = classifier(checkpoint=tmp_path / "states", max_iter=12).fit(X, y)
    want = classifier(max_iter=12).fit(X, y)
    assert np.array_equal(model.weights_, want.weights_)
    assert model.loss_curve_ == want.loss_curve_
    with pytest.raises(CheckpointMismatch):
        classifier(checkpoint=tmp_path / "states", learning_rate=0.2).fit(X, y)


def test_callbacks_see_the_model_and_stop(data):
    X, y = data
    scores = []

    def look(info):
        scores.append(info.snapshot().score(X, y))
        return len(scores) == 3

    model = classifier(max_iter=9).fit(X, y, callback=look)
    assert model.n_iter_ == 3
    assert scores[-1] == model.score(X, y)


def test_predictions_of_dask_arrays_and_frames_are_lazy(data, one):
    import dask.dataframe as dd
    import pandas as pd

    X, y = da.from_array(data[0], chunks=(90, 4)), data[1]
    for name in ("predict", "predict_proba", "predict_log_proba"):
        found, wanted = getattr(one, name)(X), getattr(one, name)(data[0])
        assert isinstance(found, da.Array)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.chunks[0] == (90, 90, 90, 90, 40)
        assert np.array_equal(found.compute(scheduler="threads"), wanted)
    assert one.score(X, da.from_array(y, chunks=70)) == one.score(*data)
    names = [f"x{k}" for k in range(10)]
    frame = pd.DataFrame(data[0], columns=names)
    named = classifier(max_iter=1).fit(frame, y)
    lazy = dd.from_pandas(frame, npartitions=3)
    assert np.array_equal(named.predict(lazy).compute(scheduler="threads"), named.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        named.predict(lazy[names[::-1]])
    with pytest.raises(ValueError, match="X has 9 features, but TorchClassifier is expecting 10"):
        one.predict(X[:, :9])
    with pytest.raises(DataError, match="X holds int64"):
        one.predict(X.astype(int))
    targets = data[0][:, :2]
    model = sd.TorchRegressor(linear_net, max_iter=1, random_state=0).fit(data[0], targets)
    assert np.array_equal(model.predict(X).compute(scheduler="threads"), model.predict(data[0]))
    assert model.score(X, targets) == model.score(data[0], targets)
    images = data[0].reshape(-1, 2, 5)
    model = classifier(lambda shape, k: nn.Sequential(nn.Flatten(), nn.Linear(10, k)), max_iter=1).fit(
        images, y
    )
    found = model.predict_proba(da.from_array(images, chunks=(150, 1, 3)))
    assert np.array_equal(found.compute(scheduler="threads"), model.predict_proba(images))


def test_scores_of_data_sets_take_their_targets(data, one):
    from torch.utils.data import DataLoader, TensorDataset

    number = np.searchsorted(one.classes_, data[1])
    X = torch.from_numpy(data[0])
    model = classifier(max_iter=1).fit(data[0], number)
    wanted = model.score(data[0], number)

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i], int(number[i])

    whole = TensorDataset(X, torch.from_numpy(number))
    for given in (
        whole,
        Pairs(),
        DataLoader(Pairs(), batch_size=7),
        lambda: DataLoader(Pairs(), batch_size=64),
    ):
        assert model.score(given) == wanted
    assert model.score(TensorDataset(X), number) == wanted
    weights = np.random.default_rng(0).random(len(X))
    assert model.score(Pairs(), sample_weight=weights) == model.score(data[0], number, weights)
    with pytest.raises(DataError, match=r"TorchClassifier.score needs y: pass it, or a data set of pairs"):
        model.score(data[0])
