"""Data sets of torch, loaders and batches as input of the torch estimators."""

import importlib.util
import itertools
import signal
import threading

import dask
import dask.array as da
import numpy as np
import pytest

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
import torch
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)

N = 120


def network(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, n_outputs))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5), dtype=np.float32)
    return X, (X[:, 0] > 0) + (X[:, 1] > 0).astype(np.int64)


def classifier(**options):
    settings = {"learning_rate": 0.1, "batch_size": 40, "micro_batches": 2, "max_iter": 3, "random_state": 0}
    return sd.TorchClassifier(network, **settings | options)


@pytest.fixture(scope="module")
def one(data):
    return classifier().fit(*data)


class Pairs(Dataset):
    def __init__(self, X, y, noise=0.0):
        self.X, self.y, self.noise, self.seen = X, y, noise, []

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        self.seen.append(i)
        x = torch.from_numpy(self.X[i])
        return x + self.noise * torch.randn(x.shape), int(self.y[i])


class Lone(Pairs):
    def __getitem__(self, i):
        return super().__getitem__(i)[0]


class Stream(IterableDataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __iter__(self):
        return zip(self.X, self.y, strict=True)


def batches(X, y, edges):
    """A function that makes batches, to be called on a worker."""
    return lambda: ((X[a:b], torch.from_numpy(y[a:b])) for a, b in itertools.pairwise(edges))


FORMS = {
    "tensors": lambda X, y: (TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),),
    "subset of tensors": lambda X, y: (
        Subset(
            Subset(
                TensorDataset(torch.from_numpy(X[::-1].copy()), torch.from_numpy(y[::-1].copy())), range(N)
            ),
            np.arange(N)[::-1].tolist(),
        ),
    ),
    "data set": lambda X, y: (Pairs(X, y),),
    "data set and y": lambda X, y: (Lone(X, y), y),
    "two data sets": lambda X, y: (ConcatDataset([Pairs(X[:50], y[:50]), Pairs(X[50:], y[50:])]),),
    "loader": lambda X, y: (DataLoader(Pairs(X, y), batch_size=7, shuffle=True),),
    "iterable data set": lambda X, y: (Stream(X, y),),
    "iterator": lambda X, y: (batches(X, y, [0, 70, N])(),),
    "function": lambda X, y: (batches(X, y, [0, 7, 70, N]),),
    "functions": lambda X, y: ([batches(X[:50], y[:50], [0, 20, 50]), batches(X[50:], y[50:], [0, N - 50])],),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_rows_changes_no_bit(data, one, form):
    model = classifier().fit(*FORMS[form](*data))
    assert np.array_equal(model.weights_, one.weights_)
    assert model.loss_curve_ == one.loss_curve_
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_features_in_ == 5


@pytest.mark.cluster
def test_workers_read_every_form(data, one, address):
    frame = pytest.importorskip("dask.dataframe").from_dask_array(da.from_array(data[0], chunks=(50, 5)))
    y = da.from_array(data[1], chunks=50)
    for arguments in (
        *(FORMS[form](*data) for form in ("data set", "functions", "iterable data set", "iterator")),
        (frame, y),
    ):
        model = classifier(engine=address, plan=[("0:2", 1), ("2:", 1)]).fit(*arguments)
        assert np.array_equal(model.weights_, one.weights_)


@pytest.mark.cluster
def test_rows_of_weight_zero_are_left_out_in_every_form(data, address):
    X, y = data
    weights = np.repeat([0.0, 1.0, 2.0], N // 3)  # none of the first chunk
    kept = classifier().fit(X[weights > 0], y[weights > 0], weights[weights > 0])
    for arguments in ((X, y), (Pairs(X, y),), (da.from_array(X, chunks=(N // 3, 5)), y)):
        model = classifier(engine=address).fit(*arguments, sample_weight=weights)
        assert np.array_equal(model.weights_, kept.weights_)


def test_items_are_read_where_they_are_used(data):
    pairs = Pairs(*data)
    classifier(max_iter=2).fit(pairs)
    assert sorted(pairs.seen) == sorted(
        [0, 0, 1, *range(N), *range(N), *range(N)]
    )  # form, trial, survey, epochs


@pytest.mark.parametrize("plan", ["data", [("0:2", 1), ("2:", 2)]])
def test_random_transforms_are_drawn_anew_and_repeated(data, one, plan):
    noisy = Pairs(*data, noise=0.5)
    state = torch.random.get_rng_state()
    model = classifier(plan=plan, n_jobs=2).fit(noisy)
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(model.weights_, classifier().fit(noisy).weights_)
    assert not np.array_equal(model.weights_, one.weights_)
    X = model_input(noisy, 0, 0, 0), model_input(noisy, 1, 0, 0)
    assert not np.array_equal(*X)


def model_input(pairs, epoch, step, micro):
    from stradask.algorithms.neural.torch_data import Items

    return Items.of(pairs)[:5].read((0, epoch, step, micro))


def test_data_sets_are_predicted_and_held_out(data, one):
    assert np.array_equal(one.predict(Pairs(*data)), one.predict(data[0]))
    assert np.array_equal(one.predict(DataLoader(Lone(*data))), one.predict(data[0]))
    assert np.array_equal(one.predict(TensorDataset(torch.from_numpy(data[0]))), one.predict(data[0]))
    model, want = (classifier(early_stopping=True).fit(*arguments) for arguments in ((Pairs(*data),), data))
    assert model.validation_scores_ == want.validation_scores_
    assert np.array_equal(model.weights_, want.weights_)


def test_fits_go_on_with_data_sets(data):
    X, y = data
    model, want = classifier(), classifier(max_iter=2).fit(X, y)
    model.partial_fit(Pairs(X, y), classes=[0, 1, 2]).partial_fit(batches(X, y, [0, N]))
    assert np.array_equal(model.weights_, want.weights_)
    with pytest.raises(DataError, match="y holds 7, which is none of the classes"):
        model.partial_fit(Pairs(X, y + 7))
    with pytest.raises(DataError, match="goes on from a model of the classes"):
        model.set_params(warm_start=True).fit(Pairs(X, y + 7))


def test_ctrl_c_while_items_are_read_changes_nothing(data):
    class Pressed(Pairs):
        def __getitem__(self, i):
            if i == 30:
                signal.raise_signal(signal.SIGINT)
            return super().__getitem__(i)

    model = classifier().fit(*data)
    before = model.weights_.copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit(Pressed(*data))
    assert np.array_equal(model.weights_, before)


class Stop(Exception):
    pass


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["data set", "function", "dask"])
def test_states_of_fits_know_their_data(data, address, tmp_path, form):
    X, y = data
    options = {"checkpoint": tmp_path, "max_iter": 7, "plan": "data", "engine": address}

    def given(X):
        return (da.from_array(X, chunks=(50, 5)), y) if form == "dask" else FORMS[form](X, y)

    def stop(info):
        if info.round == 6:
            raise Stop

    with pytest.raises(Stop):
        classifier(**options).fit(*given(X), callback=stop)
    rounds = []
    model = classifier(**options).fit(*given(X), callback=lambda info: rounds.append(info.round))
    assert rounds == [6, 7]
    assert np.array_equal(model.weights_, classifier(max_iter=7).fit(X, y).weights_)
    with pytest.raises(CheckpointMismatch):
        classifier(**options).fit(*given(X + np.float32(1)))


def broken():
    raise OSError("no such file")


def drawn_again(data):
    return RandomSampler(data, replacement=True)


def failing(X, y):
    yield X, y
    raise OSError("no such file")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda X, y: (Pairs(X, y), y), "item 0 of X has its own y: leave the argument y out"),
        (lambda X, y: (Lone(X, y),), r"item 0 of X is x alone: pass y, or let items be \(x, y\)"),
        (lambda X, y: (Lone(X, y), y[:-1]), "y has 119 rows, but X has 120"),
        (lambda X, y: (Pairs(X[:0], y),), "X is a data set without items"),
        (lambda X, y: (ConcatDataset([[(np.arange(5), 1)] * 4]),), "x of item 0 of X holds int64"),
        (lambda X, y: (Pairs(X, y[:9]),), "item 9 of X cannot be read: IndexError"),
        (lambda X, y: (Pairs([*X[:9], X[9, :2]], y),), r"item 9 of X has the shape \(2,\)"),
        (lambda X, y: (Pairs(np.where(X > 1.5, np.nan, X), y),), r"item \d+ of X contains NaN"),
        (lambda X, y: (TensorDataset(torch.zeros(3, 2)),), "TensorDataset of 1 tensors: it must be"),
        (lambda X, y: (TensorDataset(torch.zeros(3, 2)), y), "y has 120 rows, but X has 3"),
        (lambda X, y: (DataLoader(Pairs(X, y), collate_fn=list),), "collate_fn of its own"),
        (lambda X, y: (DataLoader(Pairs(X, y), batch_sampler=[[0, 1]]),), "batch_sampler"),
        (lambda X, y: (DataLoader(Pairs(X, y), sampler=drawn_again(Pairs(X, y))),), "a sampler"),
        (lambda X, y: (iter([]),), "X gave no batches: an iterator is read once"),
        (lambda X, y: (broken,), r"function 0 of X makes no iterable of batches: .*no such file"),
        (lambda X, y: (lambda: failing(X, y),), "batch 1 of function 0 of X cannot be read: .*no such file"),
        (lambda X, y: (iter([(X, y[:3])]),), r"x of the shape \(120, 5\) and y of \(3,\)"),
        (lambda X, y: (iter([X]),), "batch 0 of X is x alone"),
        (lambda X, y: (iter([(X, y, y)]),), "batch 0 of X has 3 parts"),
        (lambda X, y: (iter([(X, y), (X[:, :3], y)]),), r"batch 1 of X have the shape \(3,\)"),
        (lambda X, y: (iter([(X.astype(int), y)]),), "x of batch 0 of X holds int64"),
        (lambda X, y: (iter([(X / 0, y)]),), "batch 0 of X contains NaN or infinity"),
        (lambda X, y: (iter([(X, y), (X, y.astype(str))]),), "y of the batches of X has several types"),
        (lambda X, y: (batches(X, y, [0, N]), y), "X gives batches .* leave y out"),
        (lambda X, y: ([batches(X, y, [0, N]), batches(X[:, :3], y, [0, N])],), "rows of several shapes"),
        (lambda X, y: (X,), "y"),
    ],
)
def test_what_cannot_be_read_is_refused(data, given, said):
    with np.errstate(all="ignore"):
        arguments = given(*data)
        with pytest.raises(ValueError, match=said) as caught:
            classifier().fit(*arguments)
    assert len(str(caught.value)) < 300


def test_batches_that_do_not_end_are_refused(data, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.neural.torch_data._memory_limit", lambda: 10_000)
    with pytest.raises(DataError, match=r"X gave 3 batches, .* do they end"):
        classifier().fit(iter(lambda: data, None))


@pytest.mark.cluster
def test_functions_must_give_the_same_batches(data, address):
    X, y = data

    def made():
        yield X + np.random.default_rng().standard_normal(X.shape), y

    with pytest.raises(DataError, match="function 0 of X gave other batches than before"):
        classifier(engine=address).fit(made)
    locked = Pairs(X, y)
    locked.lock = threading.Lock()
    transforming = Pairs(X, y)
    transforming.transform = nn.ReLU()  # modules go Dask's own way
    transforming.transform.lock = threading.Lock()
    for bad in (locked, transforming):
        with pytest.raises(DataError, match="X cannot be shipped to workers"):
            classifier(engine=address).fit(bad)


def test_predictions_are_not_of_batches(data, one):
    with pytest.raises(DataError, match="predictions are of arrays or map-style data sets"):
        one.predict(iter([data]))
    with pytest.raises(DataError, match=r"X is a Delayed.*: of what is lazy, predictions are of Dask arrays"):
        one.predict(dask.delayed(data[0]))
