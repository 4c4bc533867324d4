"""Stages, optimisers and the training program: the same tests for dense and torch stages."""

import itertools
import sys

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms._streams import Purpose
from stradask.algorithms.neural.network import Network
from stradask.algorithms.neural.training.fitting import DenseLayers, Vectors
from stradask.algorithms.neural.training.optimizers import SGD, Adam
from stradask.algorithms.neural.training.program import Training
from stradask.algorithms.neural.training.stage import DenseStage, check_stage
from stradask.benchmarks.neural.pipeline_memory import Weighed
from stradask.errors import DataError, StradaskError
from stradask.scheduler import run
from stradask.scheduler.parameters import stream
from stradask.scheduler.planning.memory import gradient_vectors
from stradask.scheduler.schedules.pipeline import Layout, Operation, PipelineSchedule

SIZES = (12, 16, 16, 16, 3)
PLANS = {
    "gpipe": ([2], (1, 1), "gpipe", False),
    "1f1b": ([2], (1, 1), "1f1b", False),
    "1f1b of all layers": (None, None, "1f1b", False),
    "recomputed": ([1, 2], (1, 1, 1), "gpipe", True),
    "2 replicas": ([], (2,), "1f1b", False),
    "4 replicas": ([], (4,), "1f1b", True),
    "a replica for each micro-batch": ([], (8,), "1f1b", False),
    "hybrid 2-1": ([2], (2, 1), "1f1b", False),
    "hybrid 1-4-2": ([1, 2], (1, 4, 2), "1f1b", True),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((301, SIZES[0]), dtype=np.float32)
    return X, (X[:, 0] > 0) + (X[:, 1] > 0).astype(np.int64)


class DenseCase:
    layers = DenseLayers(Network(SIZES, "tanh", "softmax", 0.0, 1))
    start = layers.network.start(3, np.float32), np.empty(0, np.float32)
    decays = True

    @staticmethod
    def exact():
        """A stage that computes in double precision, without kinks."""
        stage = DenseStage(SIZES, "logistic")
        stage.start = lambda seed: stage.network.start(seed, np.float64)
        return stage


class TorchCase:
    decays = False

    def __init__(self):
        torch = pytest.importorskip("torch")
        from stradask.algorithms.neural.training.torch_stage import TorchLayers, TorchStage, seeded

        nn = torch.nn
        with seeded(3):
            net = nn.Sequential(
                nn.Linear(12, 16),
                nn.Tanh(),
                nn.Dropout(0.3),
                nn.Linear(16, 16),
                nn.BatchNorm1d(16, momentum=None),
                nn.ReLU(inplace=True),
                nn.Linear(16, 3),
            )
        self.layers = TorchLayers(net)
        self.start = self.layers.start
        self.exact = lambda: TorchStage(list(net.double().children())[:5])


@pytest.fixture(params=[DenseCase, TorchCase])
def case(request):
    return request.param()


def fit(
    case,
    rows,
    cuts,
    replicas,
    order="1f1b",
    recompute=False,
    *,
    optimizer=None,
    n_micro=8,
    wire=None,
    **options,
):
    """Train for 3 epochs of 5 mini-batches; return all numbers and the losses."""
    n_layers, sizes = len(case.layers.sizes), case.layers.sizes
    cuts = range(1, n_layers) if cuts is None else cuts
    replicas = (1,) * n_layers if replicas is None else replicas
    stages = [(a, b, n) for (a, b), n in zip(itertools.pairwise([0, *cuts, n_layers]), replicas, strict=True)]
    optimizer = optimizer or SGD(0.1, 0.9, True, 0.01)
    layout = Layout(replicas, n_micro, 5, order)
    start = Vectors(*case.start, optimizer.slots(case.start[0]))

    class Seen(Training):
        def numbers(self, state):
            return state["params"].copy()

    program = Seen(
        [case.layers.stage(a, b) for a, b, _ in stages],
        layout,
        rows,
        loss="softmax",
        optimizer=optimizer,
        seed=7,
        starts=start.cut(sizes, stages),
        recompute=recompute,
        counts_decay=case.decays,
        wire=wire,
    )
    collect, program.everywhere = program.collect, []

    def collected(ask):  # what every place holds, too
        program.everywhere = ask(lambda session, messages: session.measure(messages, "numbers"))
        collect(ask)

    program.collect = collected
    done = run(program, PipelineSchedule(layout), max_rounds=3, **options)
    vectors = Vectors.joined(program.held, stages, sizes)
    return vectors, done.history.as_dict()["objective"], program


def test_gradients_are_finite_differences(case):
    assert check_stage(case.exact(), np.random.default_rng(0).standard_normal((9, 12))) < 1e-6


def test_a_wrong_gradient_is_found():
    class Wrong(DenseStage):
        def backward(self, context, dy, grads):
            dx = super().backward(context, dy, grads)
            grads[3] += 0.1
            return dx

    assert check_stage(Wrong((3, 2), "tanh"), np.ones((4, 3))) > 1e-3

    class Unsteady(DenseStage):
        def forward(self, params, x, key):
            y, context = super().forward(params, x, key)
            return y + np.random.default_rng().random(), context

    with pytest.raises(DataError, match="other values for the same key"):
        check_stage(Unsteady((3, 2), "tanh"), np.ones((4, 3)))

    class Overwriting(DenseStage):
        def backward(self, context, dy, grads):
            grads[:] = 0
            return super().backward(context, dy, grads)

    with pytest.raises(DataError, match="backward must add to grads"):
        check_stage(Overwriting((3, 2), "tanh"), np.ones((4, 3)))


@pytest.mark.parametrize("n_micro", [1, 2, 3, 4, 6, 7, 8])
def test_gradients_need_as_many_vectors_as_the_planner_counts(rows, n_micro):
    sizes, layout = (12, 16, 3), Layout((1, 1), n_micro, 2)
    stages = [DenseStage(sizes[:2], "tanh"), DenseStage(sizes[1:], "tanh", 1, ends=True)]
    program = Weighed(stages, layout, rows, loss="softmax", optimizer=SGD(0.1, 0.9), seed=7)
    run(program, PipelineSchedule(layout), max_rounds=2)
    for stage, most in zip(stages, program.most, strict=True):
        nbytes = 4 * stage.network.n_parameters
        assert most["gradients"] == gradient_vectors(n_micro) * nbytes
        assert most["weights"] == 2 * nbytes


@pytest.mark.parametrize("engine", ["local", pytest.param("dask", marks=pytest.mark.cluster)])
def test_places_draw_the_parameters_that_they_are_not_given(rows, engine, request):
    network = Network(SIZES, "tanh", "softmax", 0.0, 1)
    layers, stages, layout = DenseLayers(network), [(0, 2, 1), (2, 4, 2)], Layout((1, 2), 4, 3)
    start = network.start(5, np.float32)
    start = Vectors(start, start[:0], SGD(0.1, 0.9).slots(start)).cut(layers.sizes, stages)
    found = []
    for starts in (start, None):
        cut = [layers.stage(a, b) for a, b, _ in stages]
        options = {"loss": "softmax", "optimizer": SGD(0.1, 0.9), "seed": 5, "starts": starts}
        program = Training(cut, layout, rows, **options)
        place = request.getfixturevalue("address") if engine == "dask" else engine
        run(program, PipelineSchedule(layout), max_rounds=2, engine=place)
        found.append(Vectors.joined(program.held, stages, layers.sizes))
    assert np.array_equal(found[0].trained, found[1].trained)
    assert np.array_equal(found[0].slots, found[1].slots)


@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1, 0.9, True, 0.01), pytest.param(Adam(0.01, weight_decay=0.01), marks=pytest.mark.slow)],
    ids=["sgd", "adam"],
)
def test_plans_change_no_bit(case, rows, optimizer):
    one, losses, _ = fit(case, rows, [], (1,), optimizer=optimizer)
    assert losses[-1] < losses[0]
    for name, plan in PLANS.items():
        vectors, curve, program = fit(case, rows, *plan, optimizer=optimizer, n_jobs=2)
        assert np.array_equal(vectors.trained, one.trained), name
        assert np.array_equal(vectors.slots, one.slots), name
        assert np.array_equal(curve, losses), name
        if (
            program.layout.replicas[0] == 1 and name != "hybrid 1-4-2"
        ):  # each replica has its own running means
            assert np.array_equal(vectors.buffers, one.buffers), name


@pytest.mark.cluster
@pytest.mark.parametrize(
    "plan",
    ["hybrid 2-1", *(pytest.param(name, marks=pytest.mark.slow) for name in ("recomputed", "4 replicas"))],
)
def test_workers_change_no_bit(case, rows, plan, address):
    one, losses, _ = fit(case, rows, [], (1,))
    vectors, curve, _ = fit(case, rows, *PLANS[plan], engine=address)
    assert np.array_equal(vectors.trained, one.trained)
    assert np.array_equal(curve, losses)


def test_a_pipeline_without_flush_is_the_delayed_method(rows):
    """PipeDream against its definition: gradients at the parameters that the forward pass read."""
    case, optimizer = DenseCase(), SGD(0.05, 0.9)
    vectors, _, program = fit(case, rows, [1, 3], (1, 1, 1), "pipedream", optimizer=optimizer, n_micro=1)
    network = Network(SIZES, "tanh", "softmax", 0.0, 1)
    w = [case.start[0].copy()]
    slots, ends = optimizer.slots(w[0]), np.cumsum([0, *(n for n, _ in case.layers.sizes)])[[0, 1, 3, 4]]
    for epoch in range(3):
        order = program_order(program, epoch)
        began = len(w) - 1
        for step in range(5):
            read = np.empty_like(w[0])
            for k in range(3):  # stage k has made 2 - k fewer steps than mini-batches it has seen
                version = began + max(0, step - (2 - k))
                read[ends[k] : ends[k + 1]] = w[version][ends[k] : ends[k + 1]]
            part = order[301 * step // 5 : 301 * (step + 1) // 5]
            _, gradient = network.loss((rows[0][part], rows[1][part]), read)
            new = w[-1].copy()
            optimizer.step(new, gradient / np.float32(len(part)), slots, 1)
            w.append(new)
    assert np.abs(w[-1] - case.start[0]).max() > 0.01
    assert np.abs(vectors.trained - w[-1]).max() < 1e-6


@pytest.mark.parametrize(
    ("replicas", "n_micro"), [((2, 1), 2), ((1, 2), 4), ((2, 3, 1), 6), ((3,), 3), ((4, 2), 8)]
)
def test_replicas_without_flush_are_the_delayed_method(rows, replicas, n_micro):
    """Each micro-batch against its definition: a stage has made those steps whose last one came back."""
    case, optimizer = DenseCase(), SGD(0.05, 0.9)
    cuts = [1, 3][: len(replicas) - 1]
    vectors, _, program = fit(case, rows, cuts, replicas, "pipedream", optimizer=optimizer, n_micro=n_micro)
    network, K = Network(SIZES, "tanh", "softmax", 0.0, 1), len(replicas)
    n_layers = len(case.layers.sizes)
    ends = np.cumsum([0, *(n for n, _ in case.layers.sizes)])[[0, *cuts, n_layers]]
    w = [case.start[0].copy()]
    slots = optimizer.slots(w[0])
    for epoch in range(3):
        began = len(w) - 1
        for step in range(5):
            total, n_rows = np.zeros_like(w[0]), 0
            for micro in range(n_micro):
                read = np.empty_like(w[0])
                for k in range(K):
                    n, own = replicas[k], n_micro // replicas[k]  # micro-batches of a replica in each step
                    under_way = -(-sum(replicas[k:]) // n)
                    back = step * own + micro // n - under_way + 1  # micro-batches that came back before
                    version = began + max(0, back) // own
                    read[ends[k] : ends[k + 1]] = w[version][ends[k] : ends[k + 1]]
                order = stream(program.seed, Purpose.EPOCH.value, epoch, micro).permutation(
                    len(rows[0][micro::n_micro])
                )
                part = np.arange(micro, 301, n_micro)[order[slice(*program._range(step, micro))]]
                total += network.loss((rows[0][part], rows[1][part]), read)[1]
                n_rows += len(part)
            new = w[-1].copy()
            optimizer.step(new, total / np.float32(n_rows), slots, 1)
            w.append(new)
    assert np.abs(vectors.trained - w[-1]).max() < 1e-6
    again = fit(case, rows, cuts, replicas, "pipedream", optimizer=optimizer, n_micro=n_micro, n_jobs=3)[0]
    assert np.array_equal(vectors.trained, again.trained)


@pytest.mark.cluster
def test_replicas_without_flush_are_the_same_on_workers(rows, address):
    plan = {"cuts": [2], "replicas": (2, 1), "order": "pipedream", "n_micro": 4}
    here, there = (fit(DenseCase(), rows, engine=engine, **plan)[0] for engine in ("local", address))
    assert np.array_equal(here.trained, there.trained)


def program_order(program, epoch):
    return stream(program.seed, Purpose.EPOCH.value, epoch, 0).permutation(program.n_rows)


def test_an_epoch_takes_every_row_once(rows):
    for n_micro, n_steps in ((1, 5), (4, 7), (8, 40)):
        layout = Layout((1,), n_micro, n_steps)
        program = Training([DenseStage(SIZES)], layout, rows, loss="softmax", optimizer=SGD(0.1))
        sizes = [program.sizes(step) for step in range(n_steps)]
        assert np.sum(sizes) == 301
        totals = np.sum(sizes, axis=1)
        assert totals.max() - totals.min() <= n_micro
        state = program.load(program.shards[0])
        parts = [Operation("forward", 0, 0, *pair) for pair in np.ndindex(n_steps, n_micro)]
        for epoch in (0, 1):
            seen = np.concatenate([program._rows(state, epoch, op, 0)[0] for op in parts])
            assert not np.array_equal(seen, rows[0])
            assert np.array_equal(np.sort(seen, axis=0), np.sort(rows[0], axis=0))


def test_fewer_rows_than_micro_batches_are_no_error(rows):
    few = rows[0][:5], rows[1][:5]
    one, _, _ = fit(DenseCase(), few, [], (1,))
    two, _, _ = fit(DenseCase(), few, [2], (2, 1))
    assert np.isfinite(one.trained).all()
    assert np.array_equal(one.trained, two.trained)


def test_optimizers_are_those_of_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal(50_000), rng.standard_normal((4, 50_000))
    for own, peer in (
        (SGD(0.1, 0.9, False, 0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
        (SGD(0.1, 0.9, True), lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
        (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (Adam(0.1, weight_decay=0.01), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01)),
    ):
        params, tensor = start.copy(), torch.tensor(start, requires_grad=True)
        slots, optimizer = own.slots(params), peer([tensor])
        for number, gradient in enumerate(gradients, 1):
            own.step(params, gradient.copy(), slots, number)
            tensor.grad = torch.tensor(gradient)
            optimizer.step()
        assert np.abs(params - tensor.detach().numpy()).max() < 1e-12


def test_without_torch_the_remedy_is_named(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    model = sd.TorchClassifier(lambda: None)
    assert "module" in model.get_params()
    with pytest.raises(StradaskError, match=r"install it, for instance with pip install 'stradask\[torch\]'"):
        model.fit(*rows)


def test_a_loss_that_is_not_finite_names_step_and_stage(rows):
    huge = rows[0] * np.float32(1e30), rows[1]
    relu = DenseCase()
    relu.layers = DenseLayers(Network(SIZES, "relu", "softmax", 0.0, 1))
    with pytest.raises(DataError, match=r"output of stage 0 is not finite in epoch 1, mini-batch 2: scale X"):
        fit(relu, huge, [2], (1, 1), optimizer=SGD(1e3))


class Rounded:
    """A stage that rounds its input and the gradient of its output itself."""

    def __init__(self, stage, wire, first, last):
        self.stage, self.wire, self.first, self.last = stage, wire, first, last
        self.n_buffers = getattr(stage, "n_buffers", 0)

    def forward(self, params, x, key):
        return self.stage.forward(params, x if self.first else self.wire.rounded(x), key)

    def backward(self, context, dy, grads):
        return self.stage.backward(context, dy if self.last else self.wire.rounded(dy), grads)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "log8"])
def test_what_travels_is_rounded(case, rows, name):
    from stradask.scheduler.wire import Wire

    plan = [2], (1, 1)
    one, losses, _ = fit(case, rows, *plan)
    vectors, curve, _ = fit(case, rows, *plan, wire=name)
    if name == "float32":
        assert np.array_equal(vectors.trained, one.trained)
    else:
        assert 0 < np.abs(vectors.trained - one.trained).max() < 0.1
        assert curve[-1] == pytest.approx(losses[-1], rel=0.05)

    class Case:
        layers, start, decays = type("Layers", (), {"sizes": case.layers.sizes})(), case.start, False

    n = len(case.layers.sizes)
    Case.layers.stage = lambda a, b: Rounded(case.layers.stage(a, b), Wire(name), a == 0, b == n)
    plain, _, _ = fit(Case, rows, *plan)
    if not case.decays:  # torch: dense stages have decays of their own
        assert np.array_equal(vectors.trained, plain.trained)


@pytest.mark.parametrize("replicas", [(2,), (4,), (8,), (3,)])
def test_replicas_agree_on_rounded_sums(rows, replicas):
    n_micro = 6 if replicas == (3,) else 8
    _, _, program = fit(DenseCase(), rows, [], replicas, wire="log8", n_micro=n_micro)
    assert len(program.everywhere) == replicas[0]
    for one in program.everywhere[1:]:
        assert np.array_equal(one, program.everywhere[0])


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["folder", "shared"])
@pytest.mark.parametrize("far", [False, True], ids=["threads", "workers"])
def test_replicas_are_saved_once(rows, address, tmp_path, kind, far):
    """A fit that goes on from such a state is the fit that never stopped."""
    case = DenseCase()
    plan = ([2], (2, 2))
    whole, losses, _ = fit(case, rows, *plan)
    options = {"engine": address if far else "local", "checkpoint_every": 1, "fingerprint": {}}
    options["checkpoint"] = f"file://{tmp_path}/fit" if kind == "shared" else tmp_path / "fit"
    fit(case, rows, *plan, stop=lambda history: len(history) == 2, **options)
    saved = {
        name
        for path in (tmp_path / "fit").rglob("*.npz")
        for name in ([path.stem] if kind == "shared" else np.load(path).files)
        if name.startswith("shard-")
    }
    assert {name.partition("/")[0] for name in saved} == {"shard-0", "shard-2"}
    vectors, again, program = fit(case, rows, *plan, **options)
    assert np.array_equal(vectors.trained, whole.trained)
    assert again.tolist() == losses.tolist()
    assert all(np.array_equal(program.everywhere[k], program.everywhere[k + 1]) for k in (0, 2))


def test_replicas_with_numbers_of_their_own_are_no_twins(rows):
    _, _, program = fit(TorchCase(), rows, [5], (2, 2))
    assert program.twins == [0, 1, 2, 2]  # batch normalisation is in the first stage


@pytest.mark.cluster
@pytest.mark.parametrize("plan", [([2], (1, 1)), ([], (4,))], ids=["1f1b", "4 replicas"])
def test_rounding_is_the_same_on_workers(rows, plan, address):
    here, there = (
        fit(DenseCase(), rows, *plan, wire="log8", engine=place)[0] for place in ("local", address)
    )
    assert np.array_equal(here.trained, there.trained)


def test_tied_frozen_and_moving_numbers_are_those_of_torch():
    torch = pytest.importorskip("torch")
    from stradask.algorithms.neural.training.torch_stage import TorchLayers

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
            self.two.weight = self.one.weight
            self.two.bias.requires_grad_(False)
            self.unused = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("mean", torch.zeros(5))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.count += 1
            self.mean = 0.5 * self.mean + x.detach().mean(0)  # another tensor
            return torch.tanh(self.two(torch.tanh(self.one(x)))) + self.mean

    torch.manual_seed(0)
    peer = Tied()
    layers = TorchLayers(peer)
    stage, params = layers.stage(0, 1), np.concatenate(layers.start)
    n, grads = layers.sizes[0][0], np.zeros(layers.sizes[0][0], np.float32)
    for seed in range(3):  # gradients add up, buffers go on, and numbers change in place
        x = np.random.default_rng(seed).standard_normal((7, 5)).astype(np.float32)
        y, context = stage.forward(params, x, (0, seed))
        stage.backward(context, np.ones_like(y), grads)
        wanted = peer(torch.from_numpy(x))
        wanted.sum().backward()
        assert np.abs(y - wanted.detach().numpy()).max() < 1e-6
        trained = [p for p in peer.parameters() if p.requires_grad]
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        assert np.abs(grads - torch.cat([g.ravel() for g in slopes]).numpy()).max() < 1e-5
        buffers = torch.cat([peer.two.bias, peer.mean.ravel(), peer.count.ravel().float()])
        assert np.abs(params[n:] - buffers.numpy()).max() < 1e-6
        params[:n] *= 1.1
        with torch.no_grad():
            for parameter in trained:
                parameter *= 1.1
