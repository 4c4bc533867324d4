"""What torch estimators refuse, before any work."""

import threading

import numpy as np
import pytest
from scipy import sparse
from torch_nets import classifier, linear_net, nn, torch

import stradask as sd
from stradask.errors import DataError, StradaskError


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
            "1 micro-batches cannot be shared by 2 replicas of a stage: .*, or a larger batch_size",
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


def test_rows_of_whole_numbers_are_refused(data, one):
    for read in (lambda X: classifier().fit(X, data[1]), one.predict):
        with pytest.raises(ValueError, match="X holds int64"):
            read(data[0].astype(int))


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
    from stradask.algorithms.neural.training import fitting, torch_workers

    monkeypatch.setattr(torch_workers, "_equipment", _old)
    with pytest.raises(StradaskError, match=r"worker tcp://.* has torch 1.0, and this process"):
        classifier(engine=address).fit(*data)
    monkeypatch.setattr(torch_workers, "_equipment", _without)
    with pytest.raises(StradaskError, match=r"worker tcp://.* has no torch, and this process"):
        classifier(engine=address).fit(*data)
    monkeypatch.setattr(torch_workers, "_equipment", _small)
    with pytest.raises(DataError, match=r"stage 0 needs .* MiB .* cut the network into more stages"):
        classifier(engine=address, plan="data").fit(*data)
    monkeypatch.setattr(fitting, "profile_layers", None)  # times nothing
    for plan in ("auto", "pipeline"):
        with pytest.raises(DataError, match=r"layer 0 needs .* MiB .* no stage can hold it; take larger"):
            classifier(engine=address, plan=plan).fit(*data)
    enough = 4 * 5 * (10 * 16 + 16)  # bytes, for each layer
    monkeypatch.setattr(torch_workers, "_equipment", lambda optimizer: (torch.__version__, enough, 0))
    two = [nn.Linear(16, 10), nn.Linear(10, 16), nn.Linear(16, 3)]
    with pytest.raises(DataError, match=r"the network needs .* MiB .* and 2 places have .* take more or"):
        classifier(nn.Sequential(nn.Linear(10, 16), *two), engine=address).fit(*data)


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


def _old(optimizer):
    return "1.0", None, 0


def _without(optimizer):
    return None, None, 0


def _small(optimizer):
    return torch.__version__, 1000, 0


class _Pair(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 4)

    def forward(self, x):
        return self.layer(x), x[:, :1]


class _Joined(nn.Module):
    def forward(self, parts):
        return torch.cat(parts, 1)


class _Whole(nn.Module):
    def forward(self, x):
        return x.long()


def _tuples(n_features, n_outputs):
    return nn.Sequential(_Pair(n_features), _Joined(), nn.Linear(5, n_outputs))


def _of_tokens(n_features, n_outputs):
    return nn.Sequential(_Whole(), nn.Embedding(50, 4), nn.Flatten(), nn.Linear(4 * n_features, n_outputs))


def test_remedies_of_what_is_refused_work(data):
    """Tokens are taken as floats that the module makes whole, and tuples by plans that do not cut there."""
    X, y = data
    tokens = (np.abs(X) * 10).astype(int)
    with pytest.raises(DataError, match=r"X holds int64.* begins with x.long\(\) before its nn.Embedding"):
        classifier(_of_tokens).fit(tokens, y)
    model = classifier(_of_tokens).fit(tokens.astype("float32"), y)
    assert model.predict(tokens.astype("float32")).shape == y.shape
    with pytest.raises(DataError, match=r"shows where.* nn.Embedding needs x.long\(\)"):
        classifier(lambda n, k: nn.Sequential(*_of_tokens(n, k)[1:])).fit(tokens.astype("float32"), y)
    with pytest.raises(DataError, match="layer 0 returns a tuple, and one tensor can be handed on"):
        classifier(_tuples, plan=[("0:1", 1), ("1:", 1)]).fit(X, y)
    expected = classifier(_tuples).fit(X, y)
    found = classifier(_tuples, plan=[("0:2", 1), ("2:", 1)]).fit(X, y)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    with pytest.raises(DataError, match=r"one layer cannot be cut .* so take plan='data'"):
        classifier(lambda n, k: nn.Linear(n, k), plan="pipeline", n_jobs=2).fit(X, y)
