"""A session that is opened again reads only what was lost, and every fit ends with the same bits."""

import asyncio
import collections
import os
import signal
import threading
import time

import numpy as np
import pytest
from early_auto import make_early
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.corpus.shard_input import Survey, corpus_of_matrix
from stradask.algorithms.topics.samplers.choose import annealed_of, program_of
from stradask.errors import WorkerLost
from stradask.scheduler import Program, RotationSchedule, StaticSchedule, run
from stradask.scheduler.sessions.cluster import ClusterSession
from stradask.scheduler.sessions.placement import place, stays
from stradask.scheduler.workers import open_session


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Work of an epoch that broke is waited for as long as a busy machine takes."""
    monkeypatch.setattr("stradask.scheduler.sessions.worker._PATIENCE", 60.0)


_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((300, 60))
Y = X @ np.linspace(-1, 1, 60) + _RNG.standard_normal(300)
COUNTS = sparse.csr_array(_RNG.poisson(0.4, (300, 40)))
RATINGS = COUNTS.astype(float)


def factors(engine, **options):
    options = {"max_iter": 6} | options
    model = sd.MatrixFactorization(4, engine=engine, random_state=0, **options)
    return model.fit(RATINGS).item_factors_


def topics(engine, **options):
    options = {"max_iter": 6, "random_state": 0, "n_groups": 4} | options
    model = sd.LatentDirichletAllocation(5, engine=engine, **options).fit(COUNTS)
    return model.components_


def labelled(engine):
    labels = np.tile([1.0, 1.0, 0.0, 1.0, 1.0], (300, 1))
    model = sd.LatentDirichletAllocation(5, engine=engine, max_iter=6, random_state=0, n_groups=4)
    return model.fit(COUNTS, doc_labels=labels).components_


def given(engine):
    """Topics that a fit begins from: its first topics are read with the shards."""
    begun = np.random.default_rng(1).random((5, 40))
    model = sd.LatentDirichletAllocation(5, engine=engine, max_iter=6, random_state=0, n_groups=4)
    return model.fit(COUNTS, topics=begun).components_


def chunked(engine, chunks=(75, 60), **options):
    """Rows, or columns, that lie in shards."""
    import dask.array as da

    return sd.Lasso(alpha=0.01, engine=engine, **options).fit(da.from_array(X, chunks=chunks), Y).coef_


def minimize(engine):
    def of_portion(portion, w):
        A, b = portion
        residual = A @ w - b
        return 0.5 * float(residual @ residual), A.T @ residual

    cut = [(X[a : a + 75], Y[a : a + 75]) for a in range(0, 300, 75)]
    return sd.minimize(of_portion, np.zeros(60), cut, tol=1e-8, engine=engine, deterministic=True).x


def linear(engine, **options):
    return sd.Lasso(alpha=0.01, engine=engine, **options).fit(X, Y).coef_


def implicit(engine):
    model = sd.MatrixFactorization(4, max_iter=6, engine=engine, random_state=0, implicit=True, loss="bpr")
    return model.fit(RATINGS).item_factors_


def surveyed(engine):
    program = Survey([RATINGS[a : a + 75] for a in range(0, 300, 75)])
    run(program, StaticSchedule(1, n_shards=4), max_rounds=1, engine=engine)
    return [found["n_tokens"] for found in program.found]


FITS = {
    "columns": linear,
    "columns in chunks": lambda engine: chunked(engine, (300, 15)),
    "scales": lambda engine: chunked(engine, standardize=True),
    "rows": chunked,
    "dynamic": lambda engine: linear(engine, schedule="dynamic", random_state=0),
    "minimize": minimize,
    "least squares": lambda engine: factors(engine, solver="als", max_iter=12, tol=0),
    "coordinate descent": lambda engine: factors(engine, solver="ccd", max_iter=12, tol=0),
    "gradient descent": lambda engine: factors(engine, solver="sgd"),
    "drawn factors": lambda engine: factors(engine, solver="gibbs"),
    "ranking": implicit,
    "gibbs": lambda engine: topics(engine, sampler="gibbs"),
    "light": lambda engine: topics(engine, sampler="light"),
    "warp": lambda engine: topics(engine, sampler="warp"),
    "labels": labelled,
    "given topics": given,
    "survey": surveyed,
}


SUMS = {"minimize", "columns", "columns in chunks", "rows", "scales"}


@pytest.fixture
def reads(monkeypatch):
    """How often each shard of each program was read, whoever asks."""
    noted, load = collections.Counter(), ClusterSession.load

    async def noting(session, shard, *args):
        noted[id(session), id(session._opened), shard] += 1
        return await load(session, shard, *args)

    monkeypatch.setattr(ClusterSession, "load", noting)
    return noted


@pytest.fixture
def lose(monkeypatch):
    """Let a call to the members be carried out, and then count as lost."""

    def lose(after, methods=("run", "ask")):
        calls, left = ClusterSession.calls, [after]

        async def losing(session, method, *args):
            answers = await calls(session, method, *args)
            if method in methods:
                left[0] -= 1
                if left[0] == 0:
                    session.is_complete = False
                    raise WorkerLost("so this test says")
            return answers

        monkeypatch.setattr(ClusterSession, "calls", losing)
        return left

    return lose


# Sums go to each member for itself: see `test_cluster_passes`.
@pytest.mark.parametrize("name", [name for name in FITS if name not in SUMS])
@pytest.mark.parametrize("after", [1, 4])
def test_shards_of_members_that_are_left_are_not_read_again(one_process, reads, lose, name, after):
    fit, address = FITS[name], one_process.scheduler_address
    expected = fit(address)
    reads.clear()
    left = lose(after)
    # Of columns that workers own a lost shard costs the same bits, not the tolerance: see `owned_blocks`.
    np.testing.assert_allclose(fit(address), expected, rtol=1e-10 if name == "dynamic" else 0)
    assert left[0] <= 0 or name == "survey"  # which is over before
    assert set(reads.values()) == {1}


@pytest.mark.parametrize("name", FITS)
def test_no_fit_forgets_a_part_of_its_state(one_process, monkeypatch, name):
    """A snapshot each round: the first one is tried, see `saved`."""
    expected = FITS[name](one_process.scheduler_address)
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", 0.0)
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 0.0)
    np.testing.assert_array_equal(FITS[name](one_process.scheduler_address), expected)


@pytest.mark.parametrize(("after", "keeps"), [(2, False), (7, False), (7, True), (8, False), (8, True)])
def test_shards_are_kept_over_the_change_of_samplers(one_process, monkeypatch, reads, lose, after, keeps):
    """From warp to Gibbs sampling and, where there is no snapshot, back again."""
    make_early(monkeypatch)
    counts = sparse.csr_array(_RNG.poisson(3.0, (60, 40)))

    def fit():
        priors = np.full(80, 0.1), np.full(40, 0.01)
        corpus, annealed = corpus_of_matrix(counts, 4), annealed_of("both")
        program = program_of("both", corpus, 80, *priors, 5, annealed=annealed)
        found = run(program, program.schedule, max_rounds=9, engine=one_process.scheduler_address).fetched
        return found.words.toarray(), found.ran

    words, ran = fit()
    assert [part["name"] for part in ran] == ["warp", "gibbs"]
    if keeps:
        monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", 0.0)
        monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 0.0)
    reads.clear()
    left = lose(after)
    again, ran_again = fit()
    np.testing.assert_array_equal(again, words)
    assert (ran_again, left[0] <= 0, set(reads.values())) == (ran, True, {1})


def readers(folder):
    """Which processes read each shard."""
    found = collections.defaultdict(list)
    for path in sorted(folder.iterdir()):
        shard, pid, _ = path.name.split("-")
        found[int(shard)].append(int(pid))
    return found


def slow_to_read(folder, n_shards, seconds, renews=False):
    """Make a program that leaves a file for each shard that is read."""

    class Slow(Program):
        shards = tuple(range(n_shards))
        n_blocks = n_shards

        def __init__(self):
            self.folder, self.total = str(folder), 0

        def load(self, data):
            import os
            import time
            import uuid

            time.sleep(seconds)
            with open(f"{self.folder}/{data}-{os.getpid()}-{uuid.uuid4().hex}", "w"):
                return {"value": data, "used": 0}

        def update(self, state, task):
            state["used"] += 1
            return state["value"] + state["used"]

        def aggregate(self, tasks, partials):
            self.total += sum(partials)

        def renew(self, state):
            return state | {"used": 0} if renews else None

        def arrays(self):
            return {"total": np.array(self.total)}

        def restore(self, arrays):
            self.total = int(arrays["total"])

    return Slow()


@pytest.mark.cluster
@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_killed_while_shards_are_read_takes_only_its_own(start_cluster, tmp_path, threads):
    program = slow_to_read(tmp_path, 12, 0.15)
    with start_cluster(2, threads, client=True) as (cluster, client):
        session, victims = open_session(cluster.scheduler_address), []

        def kill():
            while not victims:
                for readers_of_one in readers(tmp_path).values():
                    if readers_of_one[0] in pids and sum(map(len, readers(tmp_path).values())) >= 5:
                        victims.append(readers_of_one[0])
                        os.kill(victims[0], signal.SIGKILL)
                        break

        pids = set(client.run(os.getpid).values())
        killer = threading.Thread(target=kill)
        killer.start()
        session.open(program)
        killer.join()
        assert session.run(0, 0, [[(s, s) for s in range(12)]], []) == [s + 1 for s in range(12)]
        session.close()
    for shard, by in readers(tmp_path).items():
        others = [pid for pid in by if pid not in victims]
        assert len(others) == 1, f"shard {shard} was read by {by}, of which {victims} was killed"


@pytest.mark.parametrize("renews", [False, True])
def test_shards_that_were_used_are_kept_if_the_program_can_renew_them(one_process, tmp_path, lose, renews):
    program = slow_to_read(tmp_path, 4, 0.0, renews)
    lose(1)
    schedule = RotationSchedule(4, 4)
    run(program, schedule, max_rounds=3, engine=one_process.scheduler_address)
    assert {len(by) for by in readers(tmp_path).values()} == ({1} if renews else {2})
    undisturbed = slow_to_read(tmp_path, 4, 0.0)
    run(undisturbed, schedule, max_rounds=3)
    assert program.total == undisturbed.total


def test_another_program_gets_nothing_of_the_one_before(one_process, tmp_path):
    session = open_session(one_process.scheduler_address)
    steps = [[(s, s) for s in range(4)]]
    for _ in range(2):
        session.open(slow_to_read(tmp_path, 4, 0.0, True))
        assert session.run(0, 0, steps, []) == [1, 2, 3, 4]
    assert {len(by) for by in readers(tmp_path).values()} == {2}
    session.close()


def test_what_still_works_on_a_shard_is_waited_for(one_process, tmp_path, monkeypatch):
    """Or an update of the epoch before would write into the state that is kept."""
    program = slow_to_read(tmp_path, 4, 0.0)
    kind, update = type(program), type(program).update

    def in_place(self, state):
        state["used"] = 0
        return state

    def slowly(self, state, task):
        import time

        time.sleep(0.5)
        return update(self, state, task)

    async def losing(member):
        await asyncio.sleep(0.2)
        raise WorkerLost("so this test says")

    kind.renew, kind.update = in_place, slowly
    session, steps = open_session(one_process.scheduler_address), [[(s, s) for s in range(4)]]
    session.open(program)
    with monkeypatch.context() as patch:
        patch.setattr(session.workers, "watch", losing)
        with pytest.raises(WorkerLost):
            session.run(0, 0, steps, [])
    session.open(program)
    assert session.run(0, 0, steps, []) == [1, 2, 3, 4]
    assert {len(by) for by in readers(tmp_path).values()} == {1}
    session.close()


# Where shards stay ------------------------------------------------------------------------------------------


def test_kept_items_stay_and_others_fill_up():
    threads = {"a": 1, "b": 2}
    kept = stays(9, threads, {0: "b", 4: "a", 5: "a", 6: "a", 7: "a", 8: "gone"})
    assert kept == {0: "b", 4: "a", 5: "a", 6: "a"}
    homes = place(9, threads, [{"a": 8}] * 9, kept)
    assert homes == ["b", "b", "b", "b", "a", "a", "a", "b", "b"]
    assert place(9, threads, (), kept) == homes


def test_dask_computes_again_only_what_was_lost(one_process, tmp_path, lose):
    import dask

    folder = str(tmp_path)

    def make(number):
        import uuid

        with open(f"{folder}/{number}-0-{uuid.uuid4().hex}", "w"):
            return np.full(3, float(number))

    class Sums(Program):
        def __init__(self, shards):
            self.shards, self.total = shards, 0.0

        def renew(self, state):
            return state

        def update(self, state, task):
            return float(state.sum())

        def aggregate(self, tasks, partials):
            self.total = sum(partials)

    program = Sums([dask.delayed(make)(number) for number in range(4)])
    lose(1)
    run(program, StaticSchedule(1, n_shards=4), max_rounds=2, engine=one_process.scheduler_address)
    assert program.total == 18.0
    assert {number: len(by) for number, by in readers(tmp_path).items()} == dict.fromkeys(range(4), 1)


def test_a_worker_that_must_import_first_is_not_waited_for(start_cluster, tmp_path, monkeypatch):
    from stradask.scheduler.sessions import worker as members

    with start_cluster(1, processes=False, client=True) as (cluster, client):
        session, program = open_session(cluster.scheduler_address), slow_to_read(tmp_path, 4, 0.0, True)
        session.open(program)
        (old,) = session.threads
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        opening, hold = members.SessionPlugin._open, asyncio.Event()

        async def slowly(plugin, *args, **message):
            if plugin.worker.address != old:
                await hold.wait()
            return await opening(plugin, *args, **message)

        monkeypatch.setattr(members.SessionPlugin, "_open", slowly)
        session.open(program)  # or it would wait for ever
        assert set(session.threads) == set(session.shard_at) == {old}
        client.loop.add_callback(hold.set)
        while len(session.moves.ready) < 1:
            time.sleep(0.01)
        session.open(program)
        assert set(session.shard_at) == set(session.threads) != {old}
        assert sum(map(len, readers(tmp_path).values())) == 6  # two went to the other
        session.close()
