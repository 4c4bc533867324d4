"""Layers split over places: gradients and fits of one place, on threads and on Dask."""

import itertools

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.neural.network import Network
from stradask.algorithms.neural.training.fitting import DenseLayers, TrainingSettings, Vectors, train
from stradask.algorithms.neural.training.optimizers import SGD, Adam
from stradask.algorithms.neural.training.plans import Plan, make_plan
from stradask.algorithms.neural.training.split import indices
from stradask.errors import DataError
from stradask.scheduler.schedules.pipeline import Layout, levels, operations

SIZES = (12, 10, 26, 16, 8, 3)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, SIZES[0]))
    return X, (X[:, 0] > 0) + (X[:, 1] > 0).astype(np.int64)


def dense(activation="tanh"):
    network = Network(SIZES, activation, "softmax", 0.0, 1)
    layers = DenseLayers(network)
    return layers, (network.start(3, np.float64), np.empty(0))


def linear(bias=True):
    torch = pytest.importorskip("torch")
    from stradask.algorithms.neural.training.torch_stage import TorchLayers, seeded

    nn = torch.nn
    with seeded(3):
        net = nn.Sequential(
            nn.Linear(12, 10),
            nn.Dropout(0.2),
            nn.Linear(10, 26, bias=bias),
            nn.GELU(),
            nn.Linear(26, 16, bias=bias),
            nn.ReLU(),
            nn.Linear(16, 3),
        )
    layers = TorchLayers(net.double())
    return layers, layers.start


def fit(case, rows, stages, splits=(), optimizer=None, engine="local", n_micro=4, order="1f1b"):
    layers, start = case
    optimizer = optimizer or SGD(0.1, 0.9, True, 0.01)
    decays, n_jobs = isinstance(layers, DenseLayers), 2 if engine == "local" else None
    settings = TrainingSettings("softmax", optimizer, 7, 2, engine=engine, n_jobs=n_jobs, counts_decay=decays)
    vectors = Vectors(*start, optimizer.slots(start[0]))
    return train(layers, vectors, rows, settings, Plan(stages, n_micro, order, splits=splits), 3)


@pytest.mark.parametrize(
    "case", [dense, linear, lambda: linear(bias=False)], ids=["dense", "torch", "no bias"]
)
@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, 0.9, True, 0.01), Adam(0.01, weight_decay=0.01)], ids=["sgd", "adam"]
)
def test_split_layers_are_the_layers(case, rows, optimizer):
    case = case()
    n = len(case[0].sizes)
    one = fit(case, rows, ((0, n, 1),), optimizer=optimizer)
    for stages, splits, order in (
        (((0, n, 2),), (True,), "1f1b"),
        (((0, n, 5),), (True,), "gpipe"),
        (((0, n - 1, 3), (n - 1, n, 2)), (True, False), "1f1b"),
        (((0, 1, 1), (1, n, 2)), (False, True), "gpipe"),
    ):
        done = fit(case, rows, stages, splits, optimizer, order=order)
        assert np.abs(done.vectors.trained - one.vectors.trained).max() < 1e-12
        assert np.abs(done.vectors.slots - one.vectors.slots).max() < 1e-12
        assert done.history.as_dict()["objective"] == pytest.approx(
            one.history.as_dict()["objective"], rel=1e-12
        )
        assert set(done.timeline["place"]) == set(range(sum(n for *_, n in stages)))


@pytest.mark.cluster
@pytest.mark.parametrize("case", [dense, linear], ids=["dense", "torch"])
def test_workers_change_no_bit(case, rows, address):
    case = case()
    arguments = rows, ((0, len(case[0].sizes), 2),), (True,)
    assert np.array_equal(
        fit(case, *arguments, engine=address).vectors.trained, fit(case, *arguments).vectors.trained
    )


def test_more_micro_batches_than_rows(rows):
    few = rows[0][:5], rows[1][:5]
    case = dense()
    one = fit(case, few, ((0, 5, 1),))
    two = fit(case, few, ((0, 5, 2),), (True,))
    assert np.abs(one.vectors.trained - two.vectors.trained).max() < 1e-12


def test_the_input_begins_a_pair(rows):
    """The first two layers are split: nothing needs the gradient of X."""
    network = Network((12, 40, 3), "relu", "softmax", 0.0, 1)
    case = DenseLayers(network), (network.start(3, np.float64), np.empty(0))
    one, two = fit(case, rows, ((0, 2, 1),)), fit(case, rows, ((0, 2, 4),), (True,))
    assert np.abs(one.vectors.trained - two.vectors.trained).max() < 1e-12


@pytest.mark.parametrize("columns_first", [True, False])
@pytest.mark.parametrize("biases", list(itertools.product([True, False], repeat=2)))
def test_parts_have_every_entry_once(columns_first, biases):
    n = 5 * 7 + 7 * 3 + 7 * biases[0] + 3 * biases[1]
    found = indices(5, 7, 3, 3, columns_first=columns_first, biases=biases)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(n))


def test_operations_of_parts_never_wait_for_each_other():
    for parts, order in itertools.product([(2,), (3, 1), (1, 2), (2, 2, 1)], ["gpipe", "1f1b"]):
        layout = Layout((1,) * len(parts), 4, 2, order, parts)
        lists = operations(layout)
        assert len(lists) == sum(parts)
        assert all([op.step for op in ops if op.updates] == [0, 1] for ops in lists)
        seen = [op for level in levels(layout) for op in level]
        assert sorted(map(repr, seen)) == sorted(repr(op) for ops in lists for op in ops)
        for level in levels(layout):
            assert len({op.place for op in level}) == len(level) == len({op.block for op in level})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": (1, 1), "parts": (2,)}, "parts must be 2 numbers"),
        ({"replicas": (2,), "n_micro": 2, "parts": (2,)}, "is split, or has replicas, and not both"),
        ({"replicas": (1,), "parts": (2,), "order": "pipedream"}, "has no split stages"),
    ],
)
def test_wrong_layouts_are_refused(given, said):
    with pytest.raises(DataError, match=said):
        Layout(**given)


def planned(plan, n_layers=5, n_places=4, recompute=False):
    options = {"micro_batches": 4, "order": "1f1b", "recompute": recompute, "bounded": False}
    return make_plan(plan, n_layers, n_places, **options)


def test_plans_name_split_stages():
    plan = planned([("0:2", 1), ("2:", 3, "split")])
    assert plan.stages == ((0, 2, 1), (2, 5, 3))
    assert plan.splits == (False, True)
    assert "split 3" in plan.table()
    for given, said in (
        (([("0:", 2, "cut")],), r"such as \('0:4', 2\) or \('0:3', 2, 'split'\)"),
        (([("0:", 2, "split")], 5, 4, True), "a split stage keeps its activations"),
    ):
        with pytest.raises(DataError, match=said):
            planned(*given)


def test_what_cannot_be_split_is_refused(rows):
    layers, _ = dense()
    with pytest.raises(DataError, match="layers 0:1, which are not two dense layers"):
        layers.split(0, 1, 2)
    with pytest.raises(DataError, match="26 hidden units into 27 parts"):
        layers.split(0, 5, 27)
    layers, _ = linear()
    with pytest.raises(DataError, match="layers 0:3, which have no two"):
        layers.split(0, 3, 2)


def test_estimators_split_layers(rows):
    X, y = rows
    options = {"hidden_layer_sizes": (40, 30), "solver": "sgd", "max_iter": 3, "random_state": 0, "n_jobs": 2}
    with pytest.warns(match="has not converged"):
        one, two = (sd.MLPClassifier(plan=plan, **options).fit(X, y) for plan in ("data", "split"))
    for a, b in zip(one.coefs_, two.coefs_, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert "split of 12-40-30 units: 0.0864 MB a step; data, data would move 0.0269" in two.plan_.table()
    with pytest.raises(DataError, match="plan='split' needs two places or more"):
        sd.MLPClassifier(plan="split", **options | {"n_jobs": 1}).fit(X, y)
