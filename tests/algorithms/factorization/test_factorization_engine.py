"""Matrix factorization through the engine: workers, losses, checkpoints, Ctrl-C, and memory."""

import itertools
import logging
import os
import time
import tracemalloc

import distributed
import numpy as np
import pytest
import scipy
from scipy import sparse

from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
from stradask.algorithms.factorization.solvers import ccd
from stradask.algorithms.factorization.solvers.als import AlternatingLeastSquares
from stradask.datasets import make_ratings
from stradask.errors import CheckpointMismatch, DataError

FITS = {
    "sgd": {"solver": "sgd"},
    "half": {"solver": "sgd", "wire": "float16"},
    "bytes": {"solver": "sgd", "wire": "log8", "dtype": "float64"},
    "als": {"solver": "als", "tol": 0},
    "gibbs": {"solver": "gibbs"},
    "implicit": {"implicit": True, "tol": 0},
    "non-negative": {"solver": "als", "non_negative": True, "tol": 0},
    "ccd": {"solver": "ccd", "tol": 0},
    "bpr": {"implicit": True, "loss": "bpr", "reg": 0.01},
}
# scipy copies the indices, 4 bytes each, while it turns rows into columns, but not from 1.17 on.
INDICES = 4 if tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 17) else 0
PARTS = ("user_factors_", "item_factors_", "user_bias_", "item_bias_", "mean_")


@pytest.fixture(scope="module")
def ratings():
    return abs(make_ratings(90, 70, 3, density=0.3, noise=0.3, random_state=0)[0])


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Several shards of these few ratings for "ccd" too."""
    monkeypatch.setattr(ccd, "_LEAST", 500)


def fitted(R, name="sgd", callback=None, **options):
    options = {"max_iter": 6, "random_state": 1} | FITS[name] | options
    return MatrixFactorization(4, **options).fit(R, callback=callback)


def equal(one, other):
    for name in PARTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.history_["objective"], other.history_["objective"])


def started(**options):
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL} | options
    return distributed.LocalCluster(**options)


@pytest.fixture(scope="module")
def cluster():
    with started(n_workers=3, processes=False) as cluster, distributed.Client(cluster):
        yield cluster


@pytest.fixture(scope="module")
def two_processes():
    with started(n_workers=2) as cluster:
        yield cluster.scheduler_address


@pytest.mark.cluster
@pytest.mark.parametrize("name", FITS)
def test_two_worker_processes_change_no_bit(two_processes, ratings, name):
    far = fitted(ratings, name, engine=two_processes)
    equal(far, fitted(ratings, name))
    assert far.history_["bytes_sent"].sum() > 0
    np.testing.assert_array_equal(far.seen_.toarray(), fitted(ratings, name).seen_.toarray())


def test_what_travels_are_the_blocks_of_items(cluster, ratings):
    """Each of n_blocks workers hands on every item once an epoch, or less: K padded to 16, and 4, floats."""
    far = fitted(ratings, engine=cluster.scheduler_address, n_blocks=3)
    equal(far, fitted(ratings, n_blocks=3))
    assert 0 < far.history_["bytes_sent"][1] <= 3 * 70 * (16 + 4) * 4 + 1000


@pytest.mark.parametrize(("wire", "width"), [("float16", 2), ("bfloat16", 2), ("log8", 1)])
def test_blocks_of_fewer_bytes_are_as_short_as_they_should_and_hardly_worse(cluster, ratings, wire, width):
    """An item has 16 factors of so many bytes, and 16 bytes more; log8 has 2 a block of 256 numbers."""
    whole = fitted(ratings, engine="dask", n_blocks=6)
    short = fitted(ratings, wire=wire, engine="dask", n_blocks=6)
    sent = [model.history_["bytes_sent"].sum() for model in (whole, short)]
    share = (width * 16 + 16) / (4 * 16 + 16)
    assert share - 0.01 < sent[1] / sent[0] < share + 0.05
    assert not np.array_equal(whole.item_factors_, short.item_factors_)
    assert short.score(ratings) == pytest.approx(whole.score(ratings), rel=0.02)


def test_a_format_that_holds_all_digits_changes_no_bit(ratings):
    equal(fitted(ratings, wire="float32"), fitted(ratings))


@pytest.mark.parametrize("options", [{"solver": "als"}, {"solver": "auto"}, {"implicit": True}])
def test_a_format_where_no_blocks_travel_is_refused(ratings, options):
    with pytest.raises(DataError, match="wire='log8' is for the blocks of solver='sgd'"):
        MatrixFactorization(4, wire="log8", **options).fit(ratings)


def test_early_stopping_looks_at_the_workers(cluster, ratings):
    options = {"early_stopping": True, "max_iter": 20}
    far, near = (fitted(ratings, engine=engine, **options) for engine in ("dask", "local"))
    equal(far, near)
    np.testing.assert_array_equal(far.validation_errors_, near.validation_errors_)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "name", ["sgd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("als", "ccd", "gibbs", "bpr"))]
)
def test_a_killed_worker_changes_no_bit(ratings, killing, name):
    with started(n_workers=2) as cluster, distributed.Client(cluster) as client:
        pids = sorted(client.run(os.getpid).values())
        far = fitted(ratings, name, engine="dask", callback=killing(2, pids[0]), max_iter=60)
        assert pids[0] not in client.run(os.getpid).values()
        equal(far, fitted(ratings, name, max_iter=60))


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("name", ["sgd", "als", "implicit"])
def test_a_killed_worker_changes_no_bit_where_workers_keep_the_state(ratings, killing, name, monkeypatch):
    """The snapshot of before the loss is on two workers of three; the client has none."""
    from stradask.scheduler import engine
    from stradask.scheduler.sessions import cluster as sessions
    from stradask.scheduler.stores.copies import Copies

    monkeypatch.setattr(sessions, "SMALL", 0)
    monkeypatch.setattr(engine, "_KEEP_SECONDS", 0.0)
    returned, plain = [], engine.Engine._return_to
    monkeypatch.setattr(
        engine.Engine, "_return_to", lambda own, kept: (returned.append(kept.shards), plain(own, kept))[1]
    )
    with started(n_workers=3) as cluster, distributed.Client(cluster) as client:
        pids = sorted(client.run(os.getpid).values())
        far = fitted(ratings, name, engine="dask", callback=killing(30, pids[0]), max_iter=90)
        assert pids[0] not in client.run(os.getpid).values()
    assert returned
    assert all(isinstance(shards, Copies) for shards in returned)
    equal(far, fitted(ratings, name, max_iter=90))


def test_the_number_of_shards_changes_no_factor(ratings, monkeypatch):
    """Rows of a factor do not see each other, and what a shard keeps of the others is up to date."""
    many = fitted(ratings, "ccd")
    monkeypatch.setattr(ccd, "_LEAST", 10**9)
    one = fitted(ratings, "ccd")
    for name in PARTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))


@pytest.mark.parametrize("name", FITS)
def test_a_checkpoint_is_gone_on_from(ratings, name, tmp_path):
    whole = fitted(ratings, name, max_iter=12)
    options = {"max_iter": 12, "checkpoint": tmp_path / "state"}
    part = fitted(ratings, name, callback=lambda info: info.round == 7, **options)
    assert part.n_iter_ == 7
    rounds = []
    rest = fitted(ratings, name, callback=lambda info: rounds.append(info.round), **options)
    assert rounds == list(range(8, 13))
    equal(rest, whole)
    again = fitted(ratings, name, callback=rounds.append, **options)  # there is nothing left to do
    assert len(rounds) == 5
    equal(again, whole)


@pytest.mark.parametrize("change", ["ratings", "reg", "random_state", "max_iter"])
def test_a_checkpoint_of_something_else_is_refused(ratings, change, tmp_path):
    options = {"checkpoint": tmp_path / "state"}
    fitted(ratings, **options)
    R = ratings.copy()
    if change == "ratings":
        R.data[5] += 1
    else:
        options[change] = {"reg": 0.2, "random_state": 2, "max_iter": 7}[change]
    with pytest.raises(CheckpointMismatch):
        fitted(R, **options)


def test_options_that_do_not_go_together_are_refused(ratings):
    with pytest.raises(DataError, match="keeps the best model of this call"):
        MatrixFactorization(early_stopping=True, checkpoint="here").fit(ratings)
    with pytest.raises(DataError, match="draws factors of any sign"):
        MatrixFactorization(solver="gibbs", non_negative=True).fit(ratings)
    with pytest.raises(DataError, match="engine='nowhere' is unknown"):
        MatrixFactorization(engine="nowhere").fit(ratings)


def test_blocks_decide_the_order_and_threads_do_not(ratings):
    few, many = (fitted(ratings, n_blocks=n, n_jobs=2) for n in (2, 8))
    assert not np.array_equal(few.user_factors_, many.user_factors_)
    equal(few, fitted(ratings, n_blocks=2))
    equal(fitted(ratings, n_blocks=128), fitted(ratings, n_blocks=90))  # not more than there are users


@pytest.mark.parametrize(("solver", "most"), [("sgd", 12.3), ("als", 8.3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_of_a_fit_is_that_promised(solver, most, dtype):
    """Beside the matrix and what has the size of the factors."""
    rng = np.random.default_rng(0)
    n, m, size = 1200, 900, 900_000
    cells = np.sort(rng.choice(n * m, size, replace=False))
    indptr = np.searchsorted(cells // m, np.arange(n + 1)).astype(np.int32)
    R = sparse.csr_array((rng.random(size).astype(dtype), (cells % m).astype(np.int32), indptr), shape=(n, m))
    assert R.indices.dtype == np.int32
    del cells
    options = {"solver": solver, "max_iter": 1, "random_state": 0}
    MatrixFactorization(2, **options).fit(R)  # compiles
    tracemalloc.start()
    model = MatrixFactorization(2, **options).fit(R)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    factors = 12 * (n + m) * 16 * 4  # drawn in float64, collected, put in order
    copied = 4 if dtype == "float64" else 0
    copied += 8 * (solver == "sgd")  # penalties are estimated from a copy of a million ratings at most
    seen = model.seen_
    assert seen.data.nbytes + seen.indices.nbytes == 5 * size
    assert peak - factors < (most + copied + INDICES) * size


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("solver", "most"), [("sgd", 12.3), ("als", 8.3)])
def test_memory_of_ten_million_ratings(solver, most):
    """At most 16 bytes a rating with the factors' own: as measured small, at the size that matters."""
    rng = np.random.default_rng(0)
    n, m, size = 70_000, 10_000, 10_000_000
    indptr = np.arange(n + 1, dtype=np.int64) * size // n
    indices = np.empty(indptr[-1], np.int32)
    for u in range(n):  # different items, sorted
        count = indptr[u + 1] - indptr[u]
        indices[indptr[u] : indptr[u + 1]] = (rng.integers(m) + np.arange(count) * (m // count)) % m
        indices[indptr[u] : indptr[u + 1]].sort()
    R = sparse.csr_array((rng.random(size, np.float32), indices, indptr.astype(np.int32)), shape=(n, m))
    options = {"solver": solver, "max_iter": 1, "random_state": 0}
    MatrixFactorization(32, **options).fit(R[:100])  # compiles
    tracemalloc.start()
    MatrixFactorization(32, **options).fit(R)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - 12 * (n + m) * 32 * 4 < (most + INDICES) * size
    assert peak < (16 + INDICES) * size + 12 * (n + m) * 32 * 4


def test_a_state_that_is_made_anew_is_as_loaded(ratings):
    """Also when a message comes late."""
    program = object.__new__(AlternatingLeastSquares)
    rows = [(np.ones((n, 2)), np.zeros(n)) for n in (2, 3)]
    data = [("users", (0, 2)), ("items", (0, 3))], rows
    state = program.load(data)
    program.sync(state, [("means", 0, "means")])
    renewed = program.renew(state)
    assert renewed == program.load(data)
    program.sync(state, [("means", 1, "late")])  # a message of before
    assert renewed == program.load(data)


@pytest.mark.parametrize("name", ["als", "implicit"])
def test_the_client_receives_a_number_of_each_shard(cluster, ratings, name, monkeypatch):
    """And, of implicit feedback, axes; rows go from worker to worker, once a side and iteration."""
    from stradask.scheduler.sessions import payloads, workers

    came, opened = [], workers.opened

    def counted(answer, worker):
        came.append(sum(map(payloads.bytes_of, answer["ok"])) if answer and answer.get("ok") else 0)
        return opened(answer, worker)

    monkeypatch.setattr(workers, "opened", counted)
    R = abs(make_ratings(3000, 500, 3, density=0.01, noise=0.3, random_state=0)[0])
    rounds = []
    far = fitted(R, name, engine="dask", callback=lambda info: rounds.append(sum(came)), max_iter=5)
    assert max(np.diff(rounds)) < 40_000  # of 3,500 rows of 16 numbers, 224,000 bytes
    sent, rows = far.history_["bytes_sent"][1:], 3500 * (16 + 1) * 4
    assert (sent > rows).all()
    assert (sent < 3 * rows).all()  # to three workers, each of which has a third
    equal(far, fitted(R, name, max_iter=5))


def test_shards_of_least_squares_begin_again_as_they_began(ratings):
    from stradask.algorithms.factorization.solvers.implicit import ImplicitFeedback
    from stradask.scheduler.sessions.local import LocalSession

    made, plain = [], ImplicitFeedback.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImplicitFeedback, "collect", lambda *args: (made.append(args[0]), plain(*args))[1])
        fitted(ratings, "implicit", reg=0.1)
    (program,) = made
    session = LocalSession(1)
    session.open(program)
    for shard, data in zip(session.states, program.shards, strict=True):
        program.sync(shard, program.publish())
        shard["user_factors"] = None
        again, loaded = program.renew(shard), program.load(data)
        for name in program.saved:
            np.testing.assert_array_equal(again[name], loaded[name])
        assert again["axes"] == [None, None]
        assert again.keys() == loaded.keys()


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["sgd", pytest.param("implicit", marks=pytest.mark.slow)])
def test_a_worker_that_joins_takes_part(ratings, name, monkeypatch):
    from stradask.scheduler.sessions.cluster import ClusterSession

    sessions, plain = [], ClusterSession.run

    def run(session, *args, **given):
        found = plain(session, *args, **given)
        sessions.append((session, set(session.shard_at)))
        return found

    monkeypatch.setattr(ClusterSession, "run", run)
    with started(n_workers=1, processes=False) as cluster, distributed.Client(cluster) as client:

        def join(info):
            if info.round == 2:
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            end = time.monotonic() + 60
            while info.round == 4 and time.monotonic() < end:
                if sessions[-1][0].moves.ready or len(set(sessions[-1][0].shard_at)) == 2:  # will have shards
                    break
                time.sleep(0.01)

        far = fitted(ratings, name, engine="dask", callback=join, reg=0.1, max_iter=8)
    assert len(sessions[0][1]) == 1
    assert len(sessions[-1][1]) == 2
    equal(far, fitted(ratings, name, reg=0.1, max_iter=8))


def test_workers_whose_axes_have_other_signs_agree(cluster, ratings, monkeypatch):
    """Linear algebra of another processor may find other signs: all workers turn rows to the axes of one."""
    from stradask.algorithms.factorization.solvers import implicit

    expected = fitted(ratings, "implicit")
    calls, found = itertools.count(), implicit.principal_axes

    def flipped(gram, frame, n_components):
        axes, turn, spectrum = found(gram, frame, n_components)
        signs = np.where((next(calls) >> np.arange(len(gram))) & 1, -1.0, 1.0).astype(gram.dtype)
        return axes * signs, turn * signs, spectrum

    monkeypatch.setattr(implicit, "principal_axes", flipped)
    far = fitted(ratings, "implicit", engine=cluster.scheduler_address)
    products = [model.user_factors_ @ model.item_factors_.T for model in (far, expected)]
    np.testing.assert_allclose(*products, rtol=1e-3, atol=1e-4)
    assert next(calls) > 4
