"""Groups of columns that shards own: the minimum, a true gap, what travels, and lost workers."""

import os
import signal

import dask.array as da
import distributed
import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import expit, xlogy
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms.linear.sparse import distributed as sparse_distributed
from stradask.algorithms.linear.structured.mean_loss import MeanLoss
from stradask.algorithms.linear.structured.named import LOSSES
from stradask.algorithms.linear.structured.solving import owned_fit
from stradask.algorithms.linear.structured.solving.joint import PenaltyOfBlocks, best_shares, least_in_span
from stradask.algorithms.linear.structured.solving.owned_blocks import OwnedBlocks
from stradask.errors import DataError

N, P = 120, 240


def problem(kind="dense", loss="squared", seed=0, mean=1.0, dtype=np.float64):
    """Columns in pairs of correlation 0.95, one of each in either half: shards concern each other."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((N, P // 2)) + mean
    X = np.hstack([half, half + 0.3 * rng.standard_normal((N, P // 2))])
    if kind == "sparse":
        X *= rng.random((N, P)) < 0.3
    X = X.astype(dtype)
    f = X[:, :6] @ [3.0, -2, 1, 1, 2, -1]
    f = (f - f.mean()) / f.std()
    y = {
        "squared": f + 0.3 * rng.standard_normal(N) + 4,
        "logistic": (f + 0.5 * rng.standard_normal(N) > 0).astype(float),
        "poisson": rng.poisson(np.exp(f)).astype(float),
    }[loss]
    return X, y


def lazy(X, width=60, folder=None):
    """X in chunks of columns that workers make, and note if they do."""

    def read(block):
        import tempfile

        if folder is not None:
            tempfile.mkstemp(dir=folder)
        return sparse.csc_array(block) if as_sparse else block

    as_sparse = sparse.issparse(X)
    X = X.toarray() if as_sparse else X
    meta = sparse.csc_array((0, 0)) if as_sparse else np.empty((0, 0))
    return da.from_array(X, chunks=(N, width)).map_blocks(read, dtype=X.dtype, meta=meta)


def _excess(t, sizes, lam, l1):
    return np.linalg.norm(np.maximum(t * sizes - l1, 0)) - lam


def judged(X, y, loss, coef, intercept, groups, alpha, ratio, weights, offset, centre):
    """Objective and duality gap of a sparse-group penalty by plain numpy; weights have the sum 1."""
    f = X @ coef + intercept + offset
    if loss == "squared":
        value, u = 0.5 * (f - y) ** 2, f - y
    elif loss == "logistic":
        value, u = np.logaddexp(0, f) - y * f, expit(f) - y
    else:
        value, u = np.exp(f) - y * f, np.exp(f) - y

    def conjugate(s):
        v = s * u
        if loss == "squared":
            return v**2 / 2 + v * y
        mean = v + y
        return xlogy(mean, mean) + (xlogy(1 - mean, 1 - mean) if loss == "logistic" else -mean)

    if centre:
        assert abs(weights @ u) < 1e-9  # the intercept is the best one
    slopes = X.T @ (weights * u)
    penalty, s = 0.0, 1.0
    for group in groups:
        lam, l1 = alpha * (1 - ratio) * np.sqrt(len(group)), alpha * ratio
        penalty += lam * np.linalg.norm(coef[group]) + l1 * np.abs(coef[group]).sum()
        sizes = np.abs(slopes[group])
        if lam == 0:
            s = min(s, l1 / max(sizes.max(), 1e-300))
        elif _excess(1.0, sizes, lam, l1) > 0:
            s = min(s, optimize.brentq(_excess, 0, 1, (sizes, lam, l1), xtol=1e-15))
    primal = weights @ value + penalty
    dual = -weights @ conjugate(s) + s * np.sum(weights * u * offset)
    return primal, primal - dual


@pytest.mark.parametrize(
    ("kind", "loss", "size", "ratio", "options"),
    [
        ("dense", "squared", 4, 0.0, {}),
        ("sparse", "squared", 3, 0.4, {"weighted": True}),
        ("dense", "logistic", 4, 0.3, {"weighted": True, "offset": True}),
        ("sparse", "logistic", 1, 1.0, {}),
        ("dense", "poisson", 3, 0.0, {"offset": True}),
        ("dense", "squared", 4, 0.0, {"fit_intercept": False, "mean": 3.0}),
        pytest.param("sparse", "poisson", 1, 1.0, {"weighted": True}, marks=pytest.mark.slow),
        pytest.param("dense", "logistic", 4, 0.0, {"fit_intercept": False}, marks=pytest.mark.slow),
    ],
)
def test_it_comes_to_the_minimum_of_the_whole_problem(kind, loss, size, ratio, options):
    options = {"fit_intercept": True, "weighted": False, "offset": False, "mean": 1.0} | options
    X, y = problem(kind, loss, mean=options["mean"])
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, N).astype(float) if options["weighted"] else np.ones(N)
    offset = 0.3 * rng.standard_normal(N) if options["offset"] else None
    groups = np.repeat(np.arange(P // size), size)[rng.permutation(P)]
    model = sd.SparseGLM(
        loss, "sparse-group", groups=groups, l1_ratio=ratio, fit_intercept=options["fit_intercept"], tol=1e-9
    )
    model.alpha = alpha = 0.2 * model.alpha_max(X, y, weights, offset=offset)
    given = sparse.csc_array(X) if kind == "sparse" else X
    model.set_params(n_jobs=3).fit(lazy(given), y, weights, offset=offset)
    assert (model.schedule_, model.stopped_by_) == ("columns", "duality gap")
    lists = [np.flatnonzero(groups == g) for g in range(P // size)]
    rest = weights / weights.sum(), 0.0 if offset is None else offset, options["fit_intercept"]
    primal, gap = judged(X, y, loss, model.coef_, model.intercept_, lists, alpha, ratio, *rest)
    assert gap < 1e-8 * abs(primal)
    assert model.objective_ == pytest.approx(primal, rel=1e-12)
    assert model.dual_gap_ == pytest.approx(gap, abs=1e-9 * abs(primal))


def test_squared_penalties_several_targets_and_overlap_are_as_in_memory():
    X, y = problem()
    Y = np.column_stack([y, X[:, 1] - y, X[:, 3]])
    triples = [[i, i + 1, i + 2] for i in range(P - 2)]
    for model, target in (
        (sd.SparseGLM(penalty="elastic-net", alpha=0.1, l1_ratio=0.6, tol=1e-10), y),
        (sd.SparseGLM(penalty="l1", alpha=0.2, tol=1e-10), Y),
        (sd.GroupLasso(triples, overlap=True, alpha=0.2, tol=1e-10), y),
        (sd.SparseGLM("poisson", bounds=(-np.inf, 0), alpha=0.05, tol=1e-10), np.exp(y - 4).round()),
    ):
        expected = model.fit(X, target).coef_
        assert expected.any()
        objective = model.objective_
        found = model.set_params(n_jobs=2).fit(lazy(X), target)
        np.testing.assert_allclose(found.coef_, expected, atol=2e-6)
        assert found.objective_ == pytest.approx(objective, rel=1e-9)
        np.testing.assert_allclose(found.predict(lazy(X)).compute(), found.predict(X))
        assert expected.shape == found.coef_.shape


@pytest.mark.filterwarnings("ignore:'penalty' was deprecated:FutureWarning")
def test_sparse_logistic_regression_has_the_minimum_of_scikit_learn():
    X, y = problem(loss="logistic")
    names = np.array(["no", "yes"])[y.astype(int)]
    model = sd.SparseLogisticRegression(0.02, l1_ratio=0.8, schedule="dynamic", n_jobs=2, tol=1e-9)
    model.fit(lazy(X), names)
    assert model.schedule_ == "columns"
    peer = linear_model.LogisticRegression(
        C=1 / (0.02 * N), l1_ratio=0.8, solver="saga", tol=1e-8, max_iter=20_000, penalty="elasticnet"
    )
    peer.fit(X - X.mean(axis=0), names)  # saga is slow on columns far from zero
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)
    np.testing.assert_allclose(
        model.predict_proba(X)[:, 1], peer.predict_proba(X - X.mean(axis=0))[:, 1], atol=1e-4
    )


@pytest.mark.parametrize("options", [{"standardize": True}, {"positive": True, "class_weight": "balanced"}])
def test_sparse_logistic_regression_is_that_of_the_working_set(options):
    X, y = problem(loss="logistic", dtype=np.float32)
    X = (X * np.geomspace(0.5, 2, P)).astype(np.float32)
    factors = np.random.default_rng(2).uniform(0.5, 2, P)
    factors[3] = np.inf
    offset = 0.1 * np.arange(N) / N
    model = sd.SparseLogisticRegression(0.02, tol=1e-7, penalty_factor=factors, **options)
    expected = model.fit(X, y, offset=offset)
    coef, objective = expected.coef_, expected.history_["objective"][-1]
    found = model.set_params(schedule="dynamic", n_jobs=2).fit(lazy(X), y, offset=offset)
    assert found.coef_.dtype == np.float32
    np.testing.assert_allclose(found.coef_, coef, atol=3e-3)
    assert found.history_["objective"][-1] == pytest.approx(objective, rel=1e-6)
    assert found.coef_[0, 3] == 0
    warm = sd.SparseLogisticRegression(**{**found.get_params(), "warm_start": True, "tol": 1e-6})
    warm.classes_, warm.coef_, warm.intercept_ = found.classes_, found.coef_, found.intercept_
    warm.fit(lazy(X), y, offset=offset)
    assert len(warm.history_["round"]) < len(found.history_["round"]) / 3


def test_threads_change_no_bit_and_a_start_shortens():
    X, y = problem()
    fits = []
    for kind in (1, 2):
        program, _, done = owned_fit.solve_owned(*_parts(X, y), tol=1e-8, max_iter=100, n_jobs=kind, **_LABEL)
        fits.append((program, done))
    assert fits[0][0].n_shards == 1
    assert fits[1][0].n_shards == 2
    model = sd.GroupLasso(4, alpha=0.1, tol=1e-8, n_jobs=2)
    once, twice = model.fit(lazy(X), y).coef_, model.fit(lazy(X), y).coef_
    np.testing.assert_array_equal(once, twice)
    rounds = len(model.history_["round"])
    model.set_params(warm_start=True, tol=2e-8).fit(lazy(X), y)
    assert len(model.history_["round"]) <= 3 < rounds


_LABEL = {"fit_intercept": True, "label": "a test"}


def _parts(X, y):
    model = sd.GroupLasso(4, alpha=0.1)
    task = model._pose(lazy(X), y)
    terms = owned_fit.terms_of(model._penalty(task, 0.1), task.loss, "GroupLasso")
    return task.columns, task.loss, task.blocks, terms


def test_max_iter_and_a_callback_end_it():
    X, y = problem()
    model = sd.GroupLasso(4, alpha=0.01, max_iter=2, n_jobs=2)
    with pytest.warns(ConvergenceWarning, match=r"GroupLasso did not reach tol=.*max_iter=2 passes"):
        model.fit(lazy(X), y)
    seen = []
    model = sd.GroupLasso(4, alpha=0.01, n_jobs=2)
    model.fit(lazy(X), y, callback=lambda info: seen.append(info.snapshot().coef_.copy()) or info.round == 7)
    assert len(seen) == 7
    np.testing.assert_array_equal(seen[-1], model.coef_)
    assert model.stopped_by_ == "stopped"


def test_what_cannot_be_used_is_named():
    X, y = problem()
    for model, message in (
        (sd.SparseGLM(penalty="mcp"), "takes the penalties 'l1', 'elastic-net', 'group' and 'sparse-group'"),
        (sd.SparseGLM("huber"), "takes the losses 'squared', 'logistic', 'poisson'"),
        (sd.GroupLasso(4, penalty_factor=np.arange(60)), "column or group 0 has none"),
        (sd.SparseGLM(bounds=(-1, 1)), "takes bounds of 0 and infinity"),
        (sd.GroupLasso(7), "groups=7 is a size of groups and must divide the 240 columns"),
    ):
        with pytest.raises(DataError, match=message):
            model.fit(lazy(X), y)
    with pytest.raises(DataError, match="fits one alpha on columns of workers"):
        sd.GroupLasso(4).path(lazy(X), y)
    with pytest.raises(DataError, match="fits one alpha on columns of workers"):
        sd.SparseGLMCV(alphas=[0.1, 0.2]).fit(lazy(X), y)
    with pytest.raises(DataError, match="is for columns that workers own: pass engine='dask'"):
        sd.SparseLogisticRegression(schedule="dynamic").fit(X, y > 4)
    with pytest.raises(DataError, match="takes two classes, but y has 3"):
        sd.SparseLogisticRegression(schedule="dynamic").fit(lazy(X), np.arange(N) % 3)
    with pytest.raises(DataError, match="alpha or l1_ratio is 0"):
        sd.SparseLogisticRegression(l1_ratio=0, schedule="dynamic").fit(lazy(X), y > 4)
    bad = X.copy()
    bad[3, 200] = np.nan
    with pytest.raises(DataError, match=r"in the columns of X from 180 on: .*NaN in row 3, column 20"):
        sd.GroupLasso(4).fit(lazy(bad), y)


# Its parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
@pytest.mark.parametrize("intercept", [False, True])
def test_shares_are_those_of_a_general_minimiser(loss, intercept):
    rng = np.random.default_rng(3)
    y = {"squared": rng.standard_normal(30), "logistic": rng.integers(0, 2, 30) * 1.0}.get(loss)
    y = rng.poisson(2.0, 30) * 1.0 if y is None else y
    weights = rng.uniform(0.5, 2, 30)
    rows = MeanLoss(LOSSES[loss](), y[:, None], weights / weights.sum())
    f, changes = rng.standard_normal((30, 1)), rng.standard_normal((3, 30, 1))
    changes -= np.tensordot(changes[:, :, 0] @ rows.gradient(f), f * 0 + 3, 0)[:, 0]  # so that all help
    costs = np.array([0.02, -0.01, 0.05])

    def objective(x):
        return rows.value(f + np.tensordot(x[:3], changes, 1) + x[3]) + costs @ x[:3]

    bounds = [(0, 1)] * 3 + [(None, None) if intercept else (0, 0)]
    best = optimize.minimize(objective, np.zeros(4), bounds=bounds, method="L-BFGS-B", tol=1e-14)
    t, c = best_shares(rows, f, changes, costs, intercept=intercept)
    assert objective(np.append(t, c)) <= best.fun + 1e-9
    assert ((t >= 0) & (t <= 1)).all()


def test_the_least_in_a_span_is_that_of_a_general_minimiser():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((40, 6)), rng.standard_normal((6, 1))
    y = (rng.random(40) < expit(A @ B)[:, 0]) * 1.0
    rows = MeanLoss(LOSSES["logistic"](), y[:, None], np.full(40, 1 / 40))
    penalty = PenaltyOfBlocks(
        np.array([0, 2, 4]), np.array([0.05, 0.02, 0.1]), np.full(6, 0.01), np.full(6, 0.02)
    )
    moves = 0.1 * rng.standard_normal((2, 6, 1))
    images = np.einsum("nm,rmk->rnk", A, moves)

    def objective(x):
        step = np.tensordot(x[:2], moves, 1)
        return rows.rise(A @ B, A @ step + x[2]) + penalty.rise(B, step)

    step, image, c, n_rows = least_in_span(rows, A @ B, penalty, B, moves, images, intercept=True)
    found = rows.rise(A @ B, image + c) + penalty.rise(B, step)
    best = optimize.minimize(
        objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13}
    )
    np.testing.assert_allclose(image, A @ step, atol=1e-12)
    assert found <= 0.99 * best.fun < 0
    assert n_rows > 0


def test_rises_of_penalties_are_differences():
    rng = np.random.default_rng(0)
    penalty = PenaltyOfBlocks(np.array([0, 3]), np.array([0.5, 2.0]), rng.random(5), rng.random(5))
    B, step = rng.standard_normal((2, 5, 2))
    B[3:] = 0
    step[0] = -B[0]
    assert penalty.rise(B, step) == pytest.approx(penalty.value(B + step) - penalty.value(B))
    moves = rng.standard_normal((2, 5, 2))
    B += 0.1
    slope = [(penalty.value(B + 1e-6 * m) - penalty.value(B - 1e-6 * m)) / 2e-6 for m in moves]
    np.testing.assert_allclose(moves.reshape(2, -1) @ penalty.slope(B).ravel(), slope, rtol=1e-6)
    second = [
        [(penalty.slope(B + 1e-6 * m) * k).sum() - (penalty.slope(B) * k).sum() for m in moves] for k in moves
    ]
    np.testing.assert_allclose(penalty.curvature(B, moves), np.array(second) / 1e-6, rtol=1e-3)


# On a cluster -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    """Two processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.cluster
def test_workers_have_the_bits_of_threads_and_what_travels_is_the_formula(client, monkeypatch):
    X, y = problem(loss="logistic")
    expected, down_model = [], [0]
    aggregate = OwnedBlocks.aggregate

    def watched(self, tasks, partials):
        if self.request["phase"] == "solve":
            up = sum(8 * N * (len(p[1]) > 0) + (40 + 8) * len(p[1]) for p in partials)
        else:
            up = sum((16 + 4 * 4 * N) * len(p[2]) + p[5].nbytes for p in partials)
            assert {p[5].nbytes for p in partials} <= {0, 8 * N}
        expected.append(up + 2 * 8 * N + 2 * down_model[-1])
        outcome = aggregate(self, tasks, partials)
        model = outcome.message["model"]
        down_model.append(0 if model is None else 16 * len(model[0]))
        return outcome

    monkeypatch.setattr(OwnedBlocks, "aggregate", watched)
    model = sd.GroupLogisticRegression(4, alpha=0.01, tol=1e-8).fit(lazy(X, P // 2), y)
    assert model.history_["bytes_sent"].tolist() == expected
    dealt = sd.GroupLogisticRegression(4, alpha=0.01, tol=1e-8, engine="dask").fit(X, y)
    assert dealt.schedule_ == "columns"
    np.testing.assert_allclose(dealt.coef_, model.coef_, atol=1e-5)

    def no_client():
        raise ValueError("none")

    monkeypatch.setattr(distributed, "default_client", no_client)
    local = sd.GroupLogisticRegression(4, alpha=0.01, tol=1e-8, n_jobs=2).fit(lazy(X, P // 2), y)
    np.testing.assert_array_equal(model.coef_, local.coef_)
    assert model.dual_gap_ == local.dual_gap_


@pytest.mark.cluster
def test_blocks_are_read_for_each_pass_where_memory_is_short(client, tmp_path, monkeypatch):
    X, y = problem()
    kept = sd.GroupLasso(4, alpha=0.1, tol=1e-8).fit(lazy(X), y)
    monkeypatch.setattr(sparse_distributed, "_MOST_MEMORY", 1e-9)
    model = sd.GroupLasso(4, alpha=0.1, tol=1e-8).fit(lazy(X, folder=tmp_path), y)
    assert 4 < len(list(tmp_path.iterdir())) <= 4 * model.n_iter_
    np.testing.assert_array_equal(model.coef_, kept.coef_)
    auto = sd.SparseLogisticRegression(0.02).fit(lazy(X), y > 4)
    assert auto.schedule_ == "columns"


@pytest.mark.cluster
def test_folds_are_tasks_with_the_same_bits(client):
    X, y = problem()
    X = X[:, :24]
    model = sd.GroupLassoCV(4, alphas=4, cv=3, tol=1e-6)
    one = model.fit(X, y)
    scores, path = one.scores_.copy(), one.coef_path_.toarray()
    for options in ({"n_jobs": 2}, {"engine": "dask"}):
        found = sd.GroupLassoCV(4, alphas=4, cv=3, tol=1e-6, **options).fit(X, y)
        np.testing.assert_array_equal(found.scores_, scores)
        np.testing.assert_array_equal(found.coef_path_.toarray(), path)
    with pytest.warns(ConvergenceWarning) as seen:
        model.set_params(engine="dask", max_iter=1, tol=1e-9).fit(X, y)
    assert any("of 16 fits did not reach" in str(warning.message) for warning in seen)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("again", [False, True])
def test_a_killed_worker_costs_its_columns(tmp_path, monkeypatch, loss, again):
    if again:
        monkeypatch.setattr(sparse_distributed, "_MOST_MEMORY", 1e-9)
    X, y = problem(loss=loss)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        victim = next(iter(cluster.workers.values())).process.pid
        reads = []

        def kill(info):
            reads.append(len(list(tmp_path.iterdir())))
            if info.round == 5:
                os.kill(victim, signal.SIGKILL)

        model = sd.SparseGLM(loss, "group", groups=4, alpha=0.02, tol=1e-8)
        model.fit(lazy(X, folder=tmp_path), y, callback=kill)
    assert len(reads) > 8
    if not again:
        assert reads[4] == 4
        assert reads[-1] == 6  # the two blocks of the lost worker
    groups = np.arange(P).reshape(-1, 4)
    rest = groups, 0.02, 0.0, np.full(N, 1 / N), 0.0, True
    primal, gap = judged(X, y, loss, model.coef_, model.intercept_, *rest)
    assert gap < 1e-7 * primal


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_columns_of_three_times_the_memory_of_a_worker(loss):
    limit, n, width, size = 400_000_000, 5000, 300, 5
    p = 3 * limit // (8 * n * width) * width

    def columns(block_info=None):
        number = block_info[None]["chunk-location"][1]
        return np.random.default_rng(number).standard_normal((n, width))

    def block(number):
        return columns({None: {"chunk-location": (0, number)}})

    X = da.map_blocks(columns, chunks=((n,), (width,) * (p // width)), dtype=float, meta=np.empty((0, 0)))
    assert X.nbytes > 2.9 * limit
    f = block(3)[:, :10] @ np.arange(1.0, 11) / 8 + block(70)[:, :5].sum(axis=1)
    noise = np.random.default_rng(1000).standard_normal(n)
    y = f + noise if loss == "squared" else (f + noise > 0).astype(float)
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": limit, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        before = [worker.process.pid for worker in cluster.workers.values()]
        model = sd.SparseGLM(loss, "group", groups=size, alpha=0.03, tol=1e-6).fit(X, y)
        assert [worker.process.pid for worker in cluster.workers.values()] == before  # none was killed
    assert model.schedule_ == "columns"
    coef = model.coef_.reshape(-1, size)
    chosen = np.flatnonzero(coef.any(axis=1))
    assert 3 <= len(chosen) < len(coef) / 2
    f = np.full(n, float(model.intercept_))
    for k in range(p // width):
        f += block(k) @ model.coef_[k * width : (k + 1) * width]
    u = (f - y if loss == "squared" else expit(f) - y) / n
    u -= u.mean()
    norms = [np.linalg.norm((u @ block(k)).reshape(-1, size), axis=1) for k in range(p // width)]
    lam = 0.03 * np.sqrt(size)
    s = min(1.0, lam / np.concatenate(norms).max())
    primal = lam * np.linalg.norm(coef, axis=1).sum()
    if loss == "squared":
        primal += np.mean((f - y) ** 2) / 2
        dual, unit = -(n * (s * u) @ (s * u) / 2 + s * u @ y), y.var() / 2
    else:
        mean = n * s * u + y
        primal += np.mean(np.logaddexp(0, f) - y * f)
        dual = -np.mean(xlogy(mean, mean) + xlogy(1 - mean, 1 - mean))
        unit = -xlogy(y.mean(), y.mean()) - xlogy(1 - y.mean(), 1 - y.mean())
    assert primal - dual <= 1.01e-6 * unit
