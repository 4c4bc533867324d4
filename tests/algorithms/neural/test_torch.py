"""TorchClassifier and TorchRegressor: plans, a plain torch loop, scikit-learn's contract, files, errors."""

import importlib.util
import os
import signal
import threading
import warnings

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError, DeviceError, InterruptedFitWarning, StradaskError

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import torch
from torch import nn

from stradask.algorithms.neural.training.torch_stage import TorchStage
from stradask.algorithms.neural.training.torch_workers import chosen_device


def small_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, n_outputs))


def linear_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, n_outputs))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 10), dtype=np.float32)
    return X, np.array(["ham", "jam", "spam"])[(X[:, 0] > 0) + (X[:, 1] > 0).astype(int)]


def classifier(module=small_net, **options):
    settings = {"learning_rate": 0.1, "batch_size": 100, "micro_batches": 4, "max_iter": 4, "random_state": 0}
    return sd.TorchClassifier(module, **settings | options)


@pytest.fixture(scope="module")
def one(data):
    return classifier().fit(*data)


# The same model by every plan ---------------------------------------------------------------------------

PLANS = {
    "data, 2": {"n_jobs": 2, "plan": "data"},
    "data, 4": {"n_jobs": 4, "plan": "data"},
    "timed": {"n_jobs": 2, "plan": "auto"},
    "pipeline": {"n_jobs": 3, "plan": "pipeline"},
    "1f1b": {"plan": [("0:2", 1), ("2:", 1)]},
    "gpipe": {"plan": [(":1", 1), ("1:", 1)], "order": "gpipe", "recompute": True},
    "hybrid": {"plan": [("0:3", 2), ("3:", 1)], "n_jobs": 2},
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_change_no_bit(data, one, name):
    model = classifier(**PLANS[name]).fit(*data)
    assert np.array_equal(model.weights_, one.weights_)
    assert model.loss_curve_ == one.loss_curve_
    assert "micro-batches" in model.plan_.table()
    timeline = model.timeline_
    assert set(timeline["place"]) == set(range(sum(n for *_, n in model.plan_.stages)))
    assert (timeline["end"] >= timeline["start"]).all()
    assert (timeline["start"] >= 0).all()


@pytest.mark.cluster
def test_workers_change_no_bit(data, one, address):
    for plan in ([("0:2", 1), ("2:", 1)], "data", "pipeline"):
        model = classifier(engine=address, plan=plan).fit(*data)
        assert sum(n for *_, n in model.plan_.stages) == 2
        assert np.array_equal(model.weights_, one.weights_)


@pytest.mark.cluster
def test_layers_split_over_workers_are_those_of_one_place(data, address):
    X, y = data[0].astype(float), data[1]

    def net(n_features, n_outputs):
        return linear_net(n_features, n_outputs).double()

    one, here = classifier(net).fit(X, y), classifier(net, plan="split", n_jobs=2).fit(X, y)
    there = classifier(net, plan=[("0:", 2, "split")], engine=address).fit(X, y)
    assert np.abs(here.weights_ - one.weights_).max() < 1e-12
    assert np.array_equal(here.weights_, there.weights_)
    assert "split of 10-16-3 units: 0.0128 MB a step" in here.plan_.table()
    assert there.history_["bytes_sent"][-1] == 4 * 12_800  # in an epoch of 4 steps
    with pytest.raises(DataError, match="which have no two"):
        classifier(plan="split", n_jobs=2).fit(X, y)


@pytest.mark.cluster
def test_numbers_that_travel_may_be_rounded(data, one, address):
    sent = {}
    for wire in (None, "bfloat16", "log8"):
        model = classifier(wire=wire, plan=[("0:2", 1), ("2:", 1)], engine=address).fit(*data)
        sent[wire] = model.history_["bytes_sent"][1:].max()
        assert model.score(*data) > one.score(*data) - 0.02
        assert np.array_equal(model.weights_, one.weights_) == (wire is None)
    assert 0.45 < sent["bfloat16"] / sent[None] < 0.6
    assert 0.2 < sent["log8"] / sent[None] < 0.4
    assert classifier(wire="log8", n_jobs=2).fit(*data).plan_.stages == ((0, 4, 2),)  # not by timings


@pytest.mark.cluster
def test_dask_arrays_stay_on_the_workers(data, one, address):
    X, y = da.from_array(data[0], chunks=(90, 10)), da.from_array(data[1], chunks=70)
    assert np.array_equal(classifier().fit(X, y).weights_, one.weights_)  # no client: computed here
    model = classifier(engine=address, plan="data").fit(X, y)
    assert np.array_equal(model.weights_, one.weights_)
    held = classifier(engine=address, early_stopping=True).fit(X, y)
    assert np.array_equal(held.weights_, classifier(early_stopping=True).fit(*data).weights_)
    with pytest.raises(DataError, match="X contains NaN or infinity"):
        classifier(engine=address).fit(da.where(X > 2, np.nan, X).astype(np.float32), y)
    with pytest.raises(DataError, match="X holds int64"):
        classifier(engine=address).fit(X.astype(int), y)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    "options",
    [
        {"plan": [("0:2", 1), ("2:", 1)]},
        {"plan": "data"},
        {"plan": "split"},
        {"plan": [("0:2", 1), ("2:", 1)], "order": "pipedream", "wire": "log8"},
    ],
    ids=["pipeline", "data", "split", "pipedream"],
)
def test_a_killed_worker_changes_no_bit(data, options):
    import distributed

    net = linear_net if options["plan"] == "split" else small_net
    options = options | {"max_iter": 80}
    want = classifier(net, n_jobs=2, **options).fit(*data)
    killed = []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(info):
            if info.round == 10:
                killed.append(list(client.run(os.getpid).values())[-1])
                threading.Timer(0.02, os.kill, (killed[0], signal.SIGKILL)).start()
            if info.round == 80:  # it died meanwhile
                assert killed[0] not in client.run(os.getpid).values()

        model = classifier(net, engine="dask", **options).fit(*data, callback=kill)
    assert killed
    assert np.array_equal(model.weights_, want.weights_)


def undrawn_net(n_features, n_outputs):
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(n_features, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, n_outputs)
        )


@pytest.mark.cluster
def test_places_draw_the_parameters_of_a_module_on_the_meta_device(data, address, tmp_path):
    model = classifier(undrawn_net).fit(*data)
    for options in (
        {"plan": [("0:1", 1), ("1:2", 1), ("2:", 1)], "order": "gpipe"},
        {"plan": [("0:2", 1), ("2:", 1)], "engine": address, "checkpoint": tmp_path.as_uri()},
        {"plan": "pipeline", "engine": address},
    ):
        again = classifier(undrawn_net, **options).fit(*data)
        assert np.array_equal(again.weights_, model.weights_)
        assert np.array_equal(again.buffers_, model.buffers_)
    assert not np.array_equal(classifier(undrawn_net, random_state=1).fit(*data).weights_, model.weights_)
    assert model.score(*data) > 0.6
    assert not any(t.is_meta for t in model.module_.state_dict().values())
    model.save(tmp_path / "model.npz")
    read = sd.load(tmp_path / "model.npz", module=undrawn_net)
    assert np.array_equal(read.predict(data[0]), model.predict(data[0]))
    before = model.loss_
    assert model.set_params(warm_start=True, max_iter=1).fit(*data).loss_ < before


def test_layers_are_drawn_as_they_draw_themselves():
    from stradask.algorithms.neural.training.torch_stage import _START, TorchLayers, seeded

    layer = nn.Linear(10, 16)
    with seeded(3, _START, 0):
        layer.reset_parameters()
    drawn = TorchLayers(undrawn_net(10, 2)).stage(0, 2).start(3)
    rest = np.ones(16), np.zeros(16), np.zeros(16), np.ones(16), np.zeros(1)  # of the normalisation
    assert np.array_equal(
        drawn, np.concatenate([layer.weight.detach().ravel(), layer.bias.detach(), *rest]).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda net: net.append(nn.Linear(3, 3)), "some parameters on the meta device and others not"),
        (lambda net: net.append(Scaled()), "its part Scaled has no method reset_parameters"),
    ],
)
def test_what_cannot_be_drawn_is_refused(data, change, said):
    with pytest.raises(DataError, match=said):
        classifier(lambda a, b: change(undrawn_net(a, b))).fit(*data)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, device="meta"))

    def forward(self, x):
        return x * self.scale


def test_a_split_of_what_places_draw_is_refused(data):
    for plan in ("split", [("0:", 2, "split")]):
        with pytest.raises(DataError, match="plan splits layers whose parameters are on the meta device"):
            classifier(undrawn_net, plan=plan, n_jobs=2).fit(*data)


def test_gradients_are_those_of_a_plain_loop(data):
    """One mini-batch an epoch holds all rows: their order does not matter."""
    X, y = data
    numbers = torch.from_numpy(np.searchsorted(np.unique(y), y))
    net = linear_net(10, 3).double()
    with torch.random.fork_rng():
        model = classifier(net, batch_size=400, max_iter=20, weight_decay=0.01).fit(X.astype(float), y)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.from_numpy(X).double()), numbers)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    own = torch.cat([p.detach().ravel() for p in model.module_.parameters()])
    peer = torch.cat([p.detach().ravel() for p in net.parameters()])
    assert (own - peer).abs().max() < 1e-6
    assert model.loss_curve_ == pytest.approx(losses, rel=1e-6)


def test_images_pass_through_layers_that_are_cut():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((96, 1, 8, 8), dtype=np.float32), np.arange(96) % 2
    X[y == 1, :, 2:5, 2:5] += 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2)
        )
    fits = [
        classifier(net, batch_size=32, max_iter=5, plan=plan).fit(X, y)
        for plan in ("auto", [("0:2", 1), ("2:", 1)], [("0:3", 1), ("3:", 2)])
    ]
    assert fits[0].score(X, y) > 0.9
    for model in fits[1:]:
        assert np.array_equal(model.weights_, fits[0].weights_)
        assert np.array_equal(model.buffers_, fits[0].buffers_)
    assert fits[0].module_[1].num_batches_tracked == 5 * 3 * 4
    assert fits[0].module_[1].running_var.std() > 0


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


# The contract --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [sd.TorchClassifier, pytest.param(sd.TorchRegressor, marks=pytest.mark.slow)]
)
def test_scikit_learns_checks_pass(kind):
    weights, integers = "rows are put into mini-batches, a repeated one into several", "integers are refused"
    expected = {
        "check_sample_weight_equivalence_on_dense_data": weights,
        "check_estimators_dtypes": integers,
        "check_classifier_data_not_an_array": integers,
        "check_sample_weights_not_an_array": integers,
        "check_sample_weights_pandas_series": integers,
        "check_sample_weights_shape": integers,
        "check_regressor_multioutput": "predictions are of the type of the module",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(linear_net, max_iter=20, batch_size=50, learning_rate=3e-3, optimizer="adam")
        outcomes = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [(o["check_name"], o["exception"]) for o in outcomes if o["status"] == "failed"]
    assert len(outcomes) > 40
    assert not failed


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


def test_clones_and_grids(data):
    model = classifier()
    assert clone(model).get_params().keys() == model.get_params().keys()
    grid = GridSearchCV(model, {"learning_rate": [1e-4, 0.1]}, cv=2).fit(*data)
    assert grid.best_params_ == {"learning_rate": 0.1}


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
def test_the_optimizer_goes_on_from_call_to_call(data, optimizer):
    X, y = data
    options = {"optimizer": optimizer, "learning_rate": 0.01}
    model = classifier(**options)
    for _ in range(3):
        model.partial_fit(X, y, classes=np.unique(y))
    assert np.array_equal(model.weights_, classifier(max_iter=3, **options).fit(X, y).weights_)
    start = classifier(max_iter=1, **options).fit(X, y)
    again = classifier(start.module_, max_iter=1, **options).fit(X, y)
    assert np.array_equal(start.set_params(warm_start=True).fit(X, y).weights_, again.weights_)


def test_weights_of_rows_count(data):
    X, y = data
    one = classifier(batch_size=400, micro_batches=1).fit(X, y, sample_weight=np.where(y == "ham", 5.0, 0.0))
    assert (one.predict(X) == "ham").all()


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
    assert one.module_name_.endswith("test_torch:small_net")
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


def test_ctrl_c_keeps_the_model(data):
    def press(info):
        if info.round == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="2 of 9 rounds"):
        model = classifier(max_iter=9).fit(*data, callback=press)
    assert model.n_iter_ == 2
    assert model.predict(data[0]).shape == (400,)


# Errors before any work ------------------------------------------------------------------------------------


def _locked(n_features, n_outputs):
    net = linear_net(n_features, n_outputs)
    net.lock = threading.Lock()
    return net


def _tied(n_features, n_outputs):
    net = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10), nn.Linear(10, 3))
    net[1].weight = net[0].weight
    return net


def _frozen(n_features, n_outputs):
    return linear_net(n_features, n_outputs).requires_grad_(False)


class Applied(nn.Module):
    """A function of the output as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _then(function):
    return lambda n, k: nn.Sequential(nn.Linear(n, k), Applied(function))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"module": _frozen}, "module has no parameter to train"),
        ({"module": _then(torch.Tensor.detach)}, "module's output has no gradient"),
        ({"module": _then(torch.Tensor.long), "plan": [("0:1", 1), ("1:", 1)]}, "output has no gradient"),
        ({"module": _then(lambda x: x.mean(0, keepdim=True))}, "module gives 1 rows for 2"),
        ({"module": None}, "module must be a torch.nn.Module, or a function"),
        ({"module": lambda a: a}, "function of 1 arguments"),
        ({"module": lambda: 3}, "made 3, and must make"),
        ({"module": lambda n, k: linear_net(n, k + 1)}, r"module gives \(4,\) for each row"),
        ({"module": lambda n, k: linear_net(n + 1, k)}, "module fails on rows of the shape"),
        ({"module": lambda n, k: linear_net(n, k).half()}, "types: torch.float16"),
        ({"module": lambda n, k: nn.Sequential(nn.LazyLinear(k))}, "parameters without a shape"),
        ({"module": _locked}, "module cannot be copied"),
        ({"module": _tied, "plan": [("0:1", 1), ("1:", 1)]}, "plan has 2 stages, but the network is one"),
        ({"micro_batches": 3}, "micro_batches=3 does not divide batch_size=100"),
        ({"plan": [("0:2", 3), ("2:", 1)]}, "4 micro-batches cannot be shared by 3 replicas"),
        ({"plan": [("0:2", 1), ("3:", 1)]}, "must cut layers 0 to 4"),
        ({"plan": [("0:2", 1), ("2:9", 1)]}, "must cut layers 0 to 4"),
        ({"plan": [("0:2", 1)]}, "must cut layers 0 to 4"),
        ({"plan": [("all", 1)]}, "plan must be a list such as"),
        (
            {"order": "pipedream", "micro_batches": "auto", "plan": [("0:2", 2), ("2:", 1)]},
            "1 micro-batches cannot be shared by 2 replicas",
        ),
        ({"early_stopping": True, "checkpoint": "folder"}, "set one of them only"),
        ({"plan": "pipeline", "n_jobs": 2, "checkpoint": "folder"}, "is chosen by timings"),
        ({"plan": "pipeline"}, "plan='pipeline' needs 2 layers and 2 places at least, got 4 and 1"),
        ({"learning_rate": 1e38, "max_iter": 3}, "output of stage 0 is not finite in epoch 1, mini-batch"),
        (
            {"learning_rate": 1e38, "plan": [("0:2", 1), ("2:", 1)], "order": "gpipe"},
            r"output of stage [01] is not finite in epoch 1, mini-batch \d",
        ),
        (
            {"learning_rate": 1e40, "batch_size": 400, "max_iter": 1},
            "parameters are not finite after the last step of epoch 1: scale X",
        ),
        (
            {"module": linear_net, "plan": "split", "n_jobs": 2, "learning_rate": 1e38},
            "output of stage 0 is not finite in epoch 1, mini-batch 2",
        ),
        (
            {"module": lambda n, k: nn.Sequential(nn.BatchNorm1d(n), nn.Linear(n, k)), "batch_size": 4},
            "leave one row or none to normalise by",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(data, options, said):
    model = classifier(**options)
    with pytest.raises(DataError, match=said) as caught:
        model.fit(*data)
    assert len(str(caught.value)) < 300
    assert not hasattr(model, "classes_")


def test_a_plan_that_was_given_has_no_simulation(one, tmp_path):
    with pytest.raises(DataError, match="timeline_ is what was measured"):
        one.plan_.timeline()
    one.save(tmp_path / "model.npz")
    for name in ("plan_", "timeline_"):
        with pytest.raises(AttributeError, match=f"there is no {name}"):
            getattr(sd.load(tmp_path / "model.npz"), name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X: X.astype(int), "X holds int64"),
        (lambda X: np.where(X > 2, np.nan, X), "NaN"),
        (lambda X: X[:, 0], "1D array"),
    ],
)
def test_bad_rows_are_refused(data, one, change, said):
    with pytest.raises(ValueError, match=said):
        classifier().fit(change(data[0]), data[1])
    with pytest.raises(ValueError, match=said):
        one.predict(change(data[0]))


def test_other_input_is_refused(data, one):
    X, y = data
    with pytest.raises(DataError, match="X is sparse"):
        classifier().fit(sparse.csr_array(X), y)
    with pytest.raises(DataError, match=r"shape \(10, 2\), but those of the fit had \(10,\)"):
        one.predict(np.zeros((3, 10, 2), np.float32))


@pytest.mark.cluster
def test_workers_that_do_not_suffice_are_refused(data, address, monkeypatch):
    with pytest.raises(DataError, match="plan takes 3 places, but the workers have 2 threads"):
        classifier(engine=address, plan=[("0:1", 1), ("1:2", 1), ("2:", 1)]).fit(*data)
    from stradask.algorithms.neural.training import torch_workers

    monkeypatch.setattr(torch_workers, "_equipment", _old)
    with pytest.raises(StradaskError, match=r"worker tcp://.* has torch 1.0, and this process"):
        classifier(engine=address).fit(*data)
    monkeypatch.setattr(torch_workers, "_equipment", _without)
    with pytest.raises(StradaskError, match=r"worker tcp://.* has no torch, and this process"):
        classifier(engine=address).fit(*data)
    monkeypatch.setattr(torch_workers, "_equipment", _small)
    with pytest.raises(DataError, match=r"stage 0 needs .* MiB .* cut the network into more stages"):
        classifier(engine=address, plan="data").fit(*data)


class _Local:
    """What is copied, and not pickled."""

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("an open connection")


@pytest.mark.cluster
def test_a_module_that_does_not_pickle_is_refused(data, address):
    def net(n_features, n_outputs):
        made = linear_net(n_features, n_outputs)
        made[1].connection = _Local()
        return made

    with pytest.raises(DataError, match="module cannot be sent to workers: an open connection; it must"):
        classifier(net, engine=address).fit(*data)
    assert classifier(net, max_iter=1).fit(*data).n_iter_ == 1


# Devices ---------------------------------------------------------------------------------------------------


def test_a_device_has_copies_and_gives_the_same(data, one, monkeypatch):
    """Without a GPU: "cpu:0" takes all steps of one."""
    from stradask.algorithms.neural.training import torch_workers

    monkeypatch.setattr(torch_workers, "chosen_device", lambda device, gpus: "cpu:0")
    copies, changed = [], TorchStage.changed

    def watched(self):
        copies.append(self._bound._leaves.tensors[0])
        changed(self)

    monkeypatch.setattr(TorchStage, "changed", watched)
    model = classifier(device="cuda").fit(*data)
    assert np.array_equal(model.weights_, one.weights_)
    assert len({copy.data_ptr() for copy in copies}) == len(copies) == 4 * 4  # one for each step
    assert np.array_equal(model.predict_proba(data[0]), one.predict_proba(data[0]))
    for order, plan in (("1f1b", [("0:2", 1), ("2:", 1)]), ("pipedream", [("0:2", 1), ("2:", 1)])):
        micro = 1 if order == "pipedream" else 4
        options = {"order": order, "plan": plan, "micro_batches": micro}
        on_device = classifier(device="cuda", **options).fit(*data)
        with monkeypatch.context() as patch:
            patch.setattr(torch_workers, "chosen_device", lambda device, gpus: "cpu")
            assert np.array_equal(on_device.weights_, classifier(**options).fit(*data).weights_)


@pytest.mark.parametrize(
    ("device", "gpus", "chosen"),
    [
        ("cpu", {}, "cpu"),
        ("auto", {"a": 1, "b": 2}, "cuda"),
        ("auto", {"a": 1, "b": "torch finds none"}, "cpu"),
        ("cuda", {"a": 1}, "cuda"),
        ("cuda:1", {"a": 2}, "cuda:1"),
        ("cuda:1", {"a": 1}, r"device='cuda:1', but torch has no such GPU in a \(it has 1 of them"),
        ("cuda", {"a": 1, "b": "torch finds none"}, r"in b \(torch finds none\): set device='cpu'"),
        ("gpu", {}, "device must be 'cpu', 'cuda', 'cuda:0'.* got 'gpu'"),
        ("cuda:x", {}, "device must be"),
        ("cpu:1", {}, "device must be"),
    ],
)
def test_devices_are_chosen_by_what_all_places_have(device, gpus, chosen):
    if chosen.startswith(("cpu", "cuda")):
        assert chosen_device(device, gpus) == chosen
    else:
        with pytest.raises((DataError, DeviceError), match=chosen):
            chosen_device(device, gpus)


@pytest.mark.cluster
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named(data, address):
    for engine, place in (("local", "this process"), (address, "worker tcp")):
        with pytest.raises(DeviceError, match=f"device='cuda', but torch has no such GPU in {place}"):
            classifier(device="cuda", engine=engine).fit(*data)
    assert np.array_equal(
        classifier(device="auto", engine=address, plan="data").fit(*data).weights_,
        classifier(plan="data").fit(*data).weights_,
    )


def _old():
    return "1.0", 0, 1, 0


def _without():
    return None, 0, 1, 0


def _small():
    return torch.__version__, 1000, 1, 0


@pytest.mark.cluster
def test_auto_splits_two_heavy_layers_over_workers_alone(address, monkeypatch):
    """Over a slow link the sums of all gradients take longer than the rows of two layers."""
    from stradask.algorithms.neural.training import fitting
    from stradask.scheduler.planning import Link

    X = np.random.default_rng(0).standard_normal((16, 64))
    y = X[:, 0] > 0

    def net(n_features, n_outputs):
        return nn.Sequential(nn.Linear(n_features, 8192), nn.ReLU(), nn.Linear(8192, n_outputs)).double()

    slow = Link(1e-5, 1e9, sum_bandwidth=1e6)
    monkeypatch.setattr(fitting, "measure_link", lambda engine: slow)
    monkeypatch.setattr(fitting, "THREADS", slow)
    options = {"batch_size": 16, "micro_batches": 1, "max_iter": 3}
    model = classifier(net, engine=address, **options).fit(X, y)
    assert model.plan_.kind == "split"
    assert "split 2" in model.plan_.table()
    given = classifier(net, engine=address, plan="split", **options).fit(X, y)
    assert np.array_equal(model.weights_, given.weights_)
    one = classifier(net, **options).fit(X, y)
    assert np.abs(model.weights_ - one.weights_).max() < 1e-12
    assert classifier(net, n_jobs=2, **options).fit(X, y).plan_.kind != "split"


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
