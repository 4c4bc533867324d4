"""Perceptrons with ``device="cuda"``: the same numbers, through arrays that never mix with the host's."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy import sparse
from sklearn.datasets import load_digits

import stradask as sd
from stradask.algorithms.neural.network import Network
from stradask.algorithms.neural.training.stage import DenseStage, check_stage
from stradask.errors import DataError, DeviceError
from stradask.kernels.cuda import device


class There(NDArrayOperatorsMixin):
    """An array of a device: it takes part in nothing with an array of the host, as CuPy's do not."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype, self.shape, self.nbytes = self.values.dtype, self.values.shape, self.values.nbytes

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __array_function__(self, *_):
        raise TypeError("a function of NumPy's on an array of the device")

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **settings):
        got = getattr(ufunc, method)(*map(held, inputs), out=tuple(map(held, out)) or None, **settings)
        return out[0] if out else There(got)

    def __len__(self):
        return len(self.values)

    def __float__(self):
        return float(self.values)

    def __getitem__(self, key):
        return There(self.values[keys(key)])

    def __setitem__(self, key, value):
        self.values[keys(key)] = held(value)

    @property
    def T(self):
        return There(self.values.T)

    def reshape(self, *shape):
        return There(self.values.reshape(*shape))

    def copy(self):
        return There(self.values.copy())

    def astype(self, dtype):
        return There(self.values.astype(dtype))

    def sum(self, **settings):
        return There(self.values.sum(**settings))

    def max(self, **settings):
        return There(self.values.max(**settings))


def held(value):
    """What is inside an array of the device, or a number."""
    if isinstance(value, np.ndarray):
        raise TypeError("an array of the host among those of the device")
    return value.values if isinstance(value, There) else value


def keys(key):
    return tuple(map(held, key)) if isinstance(key, tuple) else held(key)


XP = SimpleNamespace(
    ndarray=There,
    maximum=np.maximum,
    tanh=np.tanh,
    exp=np.exp,
    log=np.log,
    logaddexp=np.logaddexp,
    arange=lambda n: There(np.arange(n)),
    empty_like=lambda a: There(np.empty_like(a.values)),
    where=lambda *three: There(np.where(*map(held, three))),
    sum=lambda a, **settings: a.sum(**settings),
    vdot=lambda a, b: There(np.vdot(held(a), held(b))),
)


class StrictDevice(device.Device):
    """A device of such arrays, that counts what is copied to it."""

    def __init__(self, memory=2**30):
        properties = {"multiProcessorCount": 1, "sharedMemPerBlockOptin": 1, "l2CacheSize": 1}
        super().__init__(0, "strict device", properties)
        self.memory, self.copied = memory, []

    @property
    def xp(self):
        return XP

    def free_memory(self):
        return self.memory

    @contextlib.contextmanager
    def computing(self):
        yield

    def put(self, array):
        self.copied.append(array.shape)
        return There(np.array(array))

    def get(self, array):
        return array.values.copy()


NO_GPU = device.why_no_device()


@pytest.fixture
def gpu():
    with device.standing_in(StrictDevice()) as there:
        yield there


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16, y[:400]


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.parametrize("loss", ["squared", "softmax", "logistic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_and_gradient_are_those_of_the_cpu(gpu, activation, loss, dtype):
    rng = np.random.default_rng(0)
    n_outputs = 1 if loss == "logistic" else 3
    X = (40 * rng.standard_normal((20, 5))).astype(dtype)  # some outputs saturate
    y = (
        rng.standard_normal((20, 3)).astype(dtype)
        if loss == "squared"
        else rng.integers(n_outputs + 1, size=20)
    )
    if loss == "softmax":
        y = y % 3
    rows = X, y, rng.uniform(0, 2, 20).astype(dtype)
    here = Network((5, 4, n_outputs), activation, loss, 0.5, 60)
    there = Network((5, 4, n_outputs), activation, loss, 0.5, 60, "cuda")
    w = here.start(1, np.float64)
    value, gradient = here.loss(rows, w)
    eps = float(np.finfo(dtype).eps)
    for given in (rows, there.on_device(rows)):  # rows of the host, and rows that are there
        got = there.loss(given, w)
        assert got[0] == pytest.approx(value, rel=20 * eps)
        assert got[1].dtype == np.float64
        assert got[1] == pytest.approx(gradient, rel=50 * eps, abs=50 * eps * np.abs(gradient).max())
    assert there.output(X, w.astype(dtype)) == pytest.approx(here.output(X, w.astype(dtype)), rel=1e-5)
    assert there.output(X, w.astype(dtype)).dtype == dtype


def test_a_fit_copies_its_rows_once(gpu, digits):
    X, y = digits
    options = {"max_iter": 20, "tol": 1e-2, "random_state": 0}
    there = sd.MLPClassifier(16, solver="sandblaster", device="cuda", **options)
    with pytest.warns(match="has not converged"):
        there.fit(X, y)
    assert there.device_ == "cuda"
    assert gpu.copied.count((400, 64)) == 1
    assert gpu.copied.count((Network((64, 16, 10), "relu", "softmax", 0, 1).n_parameters,)) >= there.n_iter_
    with pytest.warns(match="has not converged"):
        here = sd.MLPClassifier(16, solver="sandblaster", **options).fit(X, y)
    assert here.device_ == "cpu"
    assert there.loss_curve_ == pytest.approx(here.loss_curve_, rel=1e-5)
    probabilities = there.predict_proba(X)
    assert probabilities == pytest.approx(here.predict_proba(X), abs=1e-3)
    assert gpu.copied.count((400, 64)) == 2  # it predicts there, too
    with device.standing_in(None):  # and here, on a machine without a GPU
        assert there.predict_proba(X) == pytest.approx(probabilities, rel=1e-9)


def test_rows_without_room_are_copied_each_pass(digits, monkeypatch):
    X, y = digits
    monkeypatch.setattr(Network, "rows_at_once", lambda network: 100)
    part = X[:100].nbytes + y[:100].nbytes
    with device.standing_in(StrictDevice(memory=2 * (2 * part + 8))) as gpu, pytest.warns(match="converged"):
        model = sd.MLPClassifier(4, solver="sandblaster", device="cuda", max_iter=3, random_state=0).fit(X, y)
    passes = model.t_ // 400
    assert passes >= 3
    assert gpu.copied.count((100, 64)) == 2 + 2 * passes


def test_downpour_and_early_stopping(gpu, digits):
    X, y = digits
    model = sd.MLPClassifier(
        32, solver="downpour", device="auto", n_replicas=1, early_stopping=True, max_iter=40, random_state=0
    ).fit(X, y)
    assert model.device_ == "cuda"
    assert model.score(X, y) > 0.9
    assert (200, 64) in gpu.copied
    targets = np.column_stack([X[:, 20], X[:, 30]])
    reg = sd.MLPRegressor((), solver="sandblaster", device="cuda", alpha=0, tol=1e-8, random_state=0).fit(
        X[:, :10], targets
    )
    want = np.linalg.lstsq(np.column_stack([X[:, :10], np.ones(400)]), targets, rcond=None)[0]
    assert reg.predict(X[:, :10]) == pytest.approx(
        np.column_stack([X[:, :10], np.ones(400)]) @ want, abs=1e-4
    )


@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("plan", ["auto", "pipeline"])
def test_minibatches_are_those_of_the_cpu(gpu, digits, solver, plan):
    X, y = digits
    options = {"max_iter": 3, "solver": solver, "plan": plan, "n_jobs": 2, "random_state": 0, "tol": 0.0}
    with pytest.warns(match="converged"):
        there, here = (
            sd.MLPClassifier((16, 12), device=place, **options).fit(X, y) for place in ("cuda", "cpu")
        )
    assert (there.device_, here.device_) == ("cuda", "cpu")
    assert there.loss_curve_ == pytest.approx(here.loss_curve_, rel=1e-6)
    for a, b in zip(there.coefs_, here.coefs_, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_parameters_are_copied_once_a_step(gpu, digits):
    X, y = digits
    with pytest.warns(match="converged"):
        sd.MLPRegressor(16, solver="adam", device="cuda", batch_size=100, max_iter=2, random_state=0).fit(
            X, y
        )
    assert gpu.copied.count((64 * 16 + 16 + 16 + 1,)) == 8


def test_parts_of_split_layers_are_of_the_cpu(gpu, digits):
    with pytest.raises(DataError, match="parts compute on the CPU: set device='cpu'"):
        sd.MLPClassifier((16, 12), device="cuda", plan="split", n_jobs=2).fit(*digits)


def test_a_stage_on_a_device_keeps_to_the_protocol(gpu):
    stage = DenseStage((5, 4, 3), "tanh", device="cuda")
    assert check_stage(stage, np.random.default_rng(0).normal(size=(6, 5))) < 1e-6


def test_sparse_rows_stay_on_the_cpu(gpu, digits):
    X, y = digits
    thin = sparse.csr_array(X)
    with pytest.raises(DataError, match=r"device='cuda' takes a dense X, .* use device='cpu' or 'auto'"):
        sd.MLPClassifier(4, solver="sandblaster", device="cuda").fit(thin, y)
    model = sd.MLPClassifier(4, solver="sandblaster", device="auto", tol=0.5, random_state=0).fit(thin, y)
    assert model.device_ == "cpu"
    model.predict(thin)
    assert gpu.copied == []


@pytest.mark.skipif(NO_GPU is None, reason="there is one")
def test_without_a_gpu(digits):
    X, y = digits
    with pytest.raises(DeviceError):
        sd.MLPClassifier(4, solver="sandblaster", device="cuda").fit(X, y)
    assert (
        sd.MLPClassifier(4, solver="sandblaster", device="auto", tol=0.3, random_state=0).fit(X, y).device_
        == "cpu"
    )


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [sd.MLPClassifier, sd.MLPRegressor])
@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_minibatches_on_a_gpu(digits, dtype, kind, solver):
    X, y = digits
    options = {"solver": solver, "activation": "tanh", "max_iter": 5, "tol": 0.0, "random_state": 0}
    with pytest.warns(match="converged"):
        there, here = (kind(16, device=place, **options).fit(X.astype(dtype), y) for place in ("cuda", "cpu"))
    assert there.loss_curve_ == pytest.approx(here.loss_curve_, rel=1e-4)
    assert there.predict(X.astype(dtype)) == pytest.approx(here.predict(X.astype(dtype)), abs=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [sd.MLPClassifier, sd.MLPRegressor])
def test_on_a_gpu(digits, dtype, kind):
    X, y = digits
    X = X.astype(dtype)
    options = {"activation": "tanh", "max_iter": 30, "tol": 1e-2, "random_state": 0}
    there, here = (
        kind(16, solver="sandblaster", device=place, **options).fit(X, y) for place in ("cuda", "cpu")
    )
    assert there.device_ == "cuda"
    assert there.loss_ == pytest.approx(here.loss_, rel=0.05)
    assert there.loss_curve_[:3] == pytest.approx(here.loss_curve_[:3], rel=1e-3)
    networks = (Network((64, 16, 10), "relu", "softmax", 0.1, 400, place) for place in ("cuda", "cpu"))
    w = np.random.default_rng(0).uniform(-0.3, 0.3, 64 * 16 + 16 + 160 + 10)
    (value, gradient), (want, slopes) = (network.loss((X, y), w) for network in networks)
    assert value == pytest.approx(want, rel=1e-5)
    assert gradient == pytest.approx(slopes, abs=1e-5 * np.abs(slopes).max())
