"""Torch estimators: the same model by every plan, and as a plain loop of torch trains it."""

import os

import dask.array as da
import numpy as np
import pytest
from torch_nets import classifier, linear_net, nn, small_net, torch

from stradask.errors import DataError

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
def test_a_killed_worker_changes_no_bit(data, killing, options):
    import distributed

    net = linear_net if options["plan"] == "split" else small_net
    options = options | {"max_iter": 80}
    want = classifier(net, n_jobs=2, **options).fit(*data)
    killed, kill_it = [], []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(info):
            if info.round == 10:
                killed.append(list(client.run(os.getpid).values())[-1])
                kill_it.append(killing(10, killed[0]))
            if kill_it:
                kill_it[0](info)
            if info.round == 80:  # it died meanwhile
                assert killed[0] not in client.run(os.getpid).values()

        model = classifier(net, engine="dask", **options).fit(*data, callback=kill)
    assert killed
    assert np.array_equal(model.weights_, want.weights_)


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
