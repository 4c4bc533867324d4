"""Workers that die, hang, leave or come, and clients that vanish, in the midst of a fit."""

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import dask
import pytest

from stradask.errors import DataError, StradaskError, WorkerLost
from stradask.scheduler.workers import open_session

pytestmark = pytest.mark.cluster
SLOW_ROUND = 0.01  # seconds an update: a third of a second a round on one thread


@pytest.fixture(scope="module")
def reference(fit):
    """What the fit of these tests gives undisturbed."""
    results = {}

    def get(rounds=6, n_shards=4):
        if (rounds, n_shards) not in results:
            results[rounds, n_shards] = fit("local", rounds, n_shards=n_shards)[0]
        return results[rounds, n_shards]

    return get


class Disturbance:
    """Does something once, some time after a round: in the midst of the next ones, of which some wait for it.

    They wait until it is done, or until it is felt where the fit itself must go on for it to be done.
    """

    def __init__(self, action, after_round=1, delay=0.1, felt=None):
        self.after_round, self.timer = after_round, threading.Timer(delay, action)
        self.felt = felt or (lambda: not self.timer.is_alive())

    def __call__(self, info):
        if info.round == self.after_round:
            self.timer.start()
        elif info.round == self.after_round + 2:
            wait_until(self.felt)


def pids(client):
    return sorted(client.run(os.getpid).values())


def worker_sessions(client):
    def count(dask_worker):
        plugin = dask_worker.plugins.get("stradask-sessions")
        return len(plugin.worker_sessions) if plugin else 0

    return sum(client.run(count).values())


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.05)


# Dead and hanging workers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_killed_worker_costs_rounds_and_no_bit(start_cluster, fit, reference, n_workers):
    with start_cluster(n_workers, client=True) as (cluster, client):
        kill = Disturbance(lambda: os.kill(pids(client)[0], signal.SIGKILL))
        got, done = fit(cluster.scheduler_address, callback=kill, seconds=SLOW_ROUND)
    assert got == reference()
    assert done.n_recoveries >= 1


def test_a_worker_that_stops_answering_is_lost_in_time(start_cluster, fit, reference):
    with (
        dask.config.set({"stradask.timeout": "3s"}),
        start_cluster(client=True) as (cluster, client),
    ):
        victim = pids(client)[0]
        try:
            stop = Disturbance(lambda: os.kill(victim, signal.SIGSTOP))
            began = time.monotonic()
            got, done = fit(cluster.scheduler_address, callback=stop, seconds=SLOW_ROUND)
            assert time.monotonic() - began < 150  # Dask's own time limit for such a worker is 300
        finally:
            os.kill(victim, signal.SIGCONT)
        assert got == reference()
        assert done.n_recoveries >= 1
        wait_until(lambda: worker_sessions(client) == 0)  # also on the one that had been left behind


def test_without_any_worker_the_wait_ends(start_cluster, make_rotation):
    with (
        dask.config.set({"stradask.timeout": "2s"}),
        start_cluster(0, processes=False) as cluster,
    ):
        session = open_session(cluster.scheduler_address)
        with pytest.raises(StradaskError, match=r"no worker of inproc.* for 2 s .*stradask\.timeout"):
            session.open(make_rotation())
        session.close()


# Leaving and coming -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "processes"),
    [("retire", False), ("scale", False), pytest.param("scale", True, marks=pytest.mark.slow)],
)
def test_leaving_workers_hand_their_shards_on(start_cluster, fit, reference, how, processes, monkeypatch):
    # Processes are patient for the usual time, which a machine may be too busy for; and so are their nannies.
    monkeypatch.setattr("stradask.scheduler.sessions.worker._LINGER", 600.0)
    with start_cluster(client=True, processes=processes) as (cluster, client):
        address = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
        actions = {"retire": lambda: client.retire_workers([address]), "scale": lambda: cluster.scale(1)}
        leave = Disturbance(actions[how], felt=lambda: True)
        got, done = fit(cluster.scheduler_address, 12, callback=leave, seconds=SLOW_ROUND)
        wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1)
    assert got == reference(12)
    assert done.n_recoveries == 0


def test_a_shard_is_handed_on_whole(start_cluster):
    """Also what neither `load` nor a message brings back, in a program without blocks."""
    from stradask.scheduler import Program

    class Counting(Program):
        shards = (1, 2, 3)

        def load(self, data):
            return {"calls": 0, "data": data}

        def sync(self, state, message):
            state["told"] = message

        def update(self, state, task):
            state["calls"] += 1
            return state["calls"], state["data"], state["told"]

    with start_cluster(3, processes=False, client=True) as (cluster, client):
        session = open_session(cluster.scheduler_address)
        session.open(Counting())
        for r in range(3):
            if r:
                client.retire_workers([session.shard_at[0]])
                wait_until(lambda left=3 - r: len(session.threads) == left)
            want = [(r + 1, data, "once") for data in (1, 2, 3)]
            assert session.run(r, 0, [[(s, 0) for s in range(3)]], [] if r else ["once"]) == want
        session.close()


def test_a_state_that_does_not_pickle_is_loaded_again(start_cluster, make_rotation, fit):
    from stradask.scheduler import RotationSchedule, run

    class Locked(type(make_rotation())):
        def load(self, data):
            import threading

            return super().load(data) | {"lock": threading.Lock()}

    results = []
    with start_cluster(2, processes=False, client=True) as (cluster, client):
        address, session = (
            sorted(client.scheduler_info()["workers"])[0],
            open_session(cluster.scheduler_address),
        )
        leave = Disturbance(lambda: client.retire_workers([address]), felt=lambda: session.workers.leaving)
        for engine, callback in (("local", None), (session, leave)):
            program = Locked()
            program.seconds = SLOW_ROUND if callback else 0.0
            done = run(program, RotationSchedule(4, 8), max_rounds=6, engine=engine, callback=callback)
            results.append(program.sum)
    assert results[0] == results[1]
    assert done.n_recoveries == 1


def test_a_shard_that_cannot_be_handed_on_is_loaded_again(start_cluster, fit, reference):
    with start_cluster(1, client=True, processes=False) as (cluster, client):
        address, session = (
            next(iter(client.scheduler_info()["workers"])),
            open_session(cluster.scheduler_address),
        )

        def replace():
            cluster.scale(2)
            client.wait_for_workers(2, timeout=60)
            client.retire_workers([address])

        leave = Disturbance(replace, felt=lambda: session.workers.leaving)
        got, done = fit(session, 8, callback=leave, seconds=SLOW_ROUND)
    assert got == reference(8)
    assert done.n_recoveries == 1  # the newcomer held nothing


def test_newcomers_take_part_when_the_session_is_opened_again(start_cluster, make_rotation):
    with start_cluster(1, processes=False, client=True) as (cluster, client):
        session = open_session(cluster.scheduler_address)
        session.open(make_rotation())
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        assert len(set(session.shard_at)) == 1
        session.open(make_rotation())
        assert len(set(session.shard_at)) == 2
        session.close()


def test_a_newcomer_of_another_version_does_not_end_a_fit_that_begins_anew(
    start_cluster, make_rotation, monkeypatch
):
    from stradask.scheduler.sessions import workers

    with start_cluster(1, processes=False, client=True) as (cluster, client):
        session = open_session(cluster.scheduler_address)
        session.open(make_rotation())
        (old,) = set(session.shard_at)
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        opened = workers.opened
        monkeypatch.setattr(
            workers,
            "opened",
            lambda answer, member: "99.0" if member != old and "ok" in answer else opened(answer, member),
        )
        with pytest.warns(UserWarning, match="gets no work: stradask 99.0 is installed there"):
            session.open(make_rotation())
        assert set(session.shard_at) == {old}
        session.close()


def test_an_idle_scheduler_does_not_stop_under_a_fit(start_cluster, fit, reference):
    with (
        dask.config.set(
            {
                "distributed.scheduler.idle-timeout": "1s",
                "distributed.comm.timeouts.connect": "2s",  # or closing the cluster takes 30 s
            }
        ),
        start_cluster(processes=False) as cluster,
    ):
        got, done = fit(cluster.scheduler_address, 12, seconds=SLOW_ROUND)
        assert done.history.as_dict()["seconds"].sum() > 1.5
        assert cluster.scheduler.status.name == "running"
        assert done.n_recoveries == 0
        wait_until(lambda: cluster.scheduler.status.name == "closed")
    assert got == reference(12)


def test_an_adaptive_cluster_comes_for_a_fit_and_goes_after_it(start_cluster, fit, reference):
    with start_cluster(0, processes=False) as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=2)
        got, done = fit(cluster.scheduler_address, 12, seconds=SLOW_ROUND)
        assert done.n_recoveries == 0
        wait_until(lambda: not cluster.scheduler.workers)
    assert got == reference(12)


# Clients ----------------------------------------------------------------------------------------------------


@pytest.fixture
def start_client(tmp_path):
    """Start a process whose fit has shards of so many bytes on each of two workers; return it in mid-fit."""
    script = tmp_path / "client.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from stradask.scheduler import Program, StaticSchedule, run
        class Long(Program):
            shards = (0, 1)
            def load(self, data):
                import numpy as np, psutil
                n_bytes = int(sys_argv[2]) - psutil.Process().memory_info().rss
                return {"X": np.ones(max(n_bytes, 8) // 8)}
            def update(self, state, task):
                import time
                time.sleep(0.05)
        sys_argv = sys.argv  # the workers' are others
        if __name__ == "__main__":
            def tell(info):
                print("running", flush=True)
            run(Long(), StaticSchedule(1, n_shards=2), max_rounds=10_000, engine=sys.argv[1], callback=tell)
        """)
    )

    def start(cluster, n_bytes=0):
        command = [sys.executable, str(script), cluster.scheduler_address, str(n_bytes)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "running\n"
        return process

    return start


def kill(process):
    process.kill()
    process.communicate()


def statuses(client):
    return set(client.run(lambda dask_worker: dask_worker.status.name).values())


def test_a_killed_client_leaves_the_workers_free(processes, start_client):
    from distributed import Client

    with Client(processes) as client:
        process = start_client(processes)
        assert worker_sessions(client) == 2
        kill(process)
        wait_until(lambda: worker_sessions(client) == 0)
        assert client.submit(sum, [1, 2]).result(60) == 3


def test_workers_that_are_paused_by_the_shards_of_a_killed_client_run_again(start_cluster, start_client):
    limit = 800e6
    with start_cluster(2, client=True, memory_limit=limit) as (cluster, client):
        process = start_client(cluster, int(0.87 * limit))  # Dask pauses at .8, and kills at .95
        wait_until(lambda: statuses(client) == {"paused"})
        assert worker_sessions(client) == 2  # they go on
        kill(process)
        wait_until(lambda: statuses(client) == {"running"})
        assert worker_sessions(client) == 0
        assert client.submit(sum, [1, 2]).result(60) == 3


def test_a_session_whose_keep_alive_went_unseen_is_swept_away(start_cluster, start_client):
    """While a worker retires its shards are wanted, and then it may stay after all."""

    def set_status(name):
        def change(dask_worker):
            dask_worker.status = dask_worker.status.lookup[name]

        client.run(change)

    with (
        dask.config.set({"stradask.timeout": "2s"}),
        start_cluster(2, client=True) as (cluster, client),
    ):
        process = start_client(cluster)
        set_status("closing_gracefully")
        kill(process)

        def keys(dask_scheduler):
            return [key for key in dask_scheduler.tasks if key.startswith("stradask-keep-alive")]

        wait_until(lambda: not client.run_on_scheduler(keys))
        set_status("running")
        wait_until(lambda: worker_sessions(client) == 0)


@pytest.mark.slow
def test_a_scheduler_that_is_gone_ends_the_fit(start_cluster, make_rotation, monkeypatch):
    monkeypatch.setattr(
        "stradask.scheduler.sessions.worker._LINGER", 0.5
    )  # for shards to be handed on to nobody
    with start_cluster(1, processes=False) as cluster:
        session = open_session(cluster.scheduler_address)
        session.open(make_rotation())
    session.workers.timeout = 1.0  # not before: while there is a scheduler a busy machine may take its time
    with pytest.raises((WorkerLost, StradaskError)):
        session.measure([])
    with pytest.raises(StradaskError):
        session.open(make_rotation())
    session.close()


# The rest of the matrix ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_workers", "threads", "n_killed", "seed"),
    [(2, 2, 1, 0), (4, 1, 2, 1), (3, 1, 2, 2), (2, 1, 2, 3), (1, 2, 1, 4), (4, 1, 3, 5)],
)
def test_kills_at_random_moments_change_no_bit(
    start_cluster, fit, reference, n_workers, threads, n_killed, seed
):
    rng = random.Random(seed)
    with start_cluster(n_workers, threads, client=True) as (cluster, client):

        def murder():
            for pid in rng.sample(pids(client), n_killed):
                os.kill(pid, signal.SIGKILL)
                time.sleep(rng.uniform(0, 0.5))

        disturbance = Disturbance(murder, rng.randint(1, 3), rng.uniform(0, 0.4))
        got, done = fit(cluster.scheduler_address, 10, callback=disturbance, seconds=SLOW_ROUND)
        disturbance.timer.join()
    assert got == reference(10)
    assert done.n_recoveries >= 1


@pytest.mark.slow
def test_a_restart_of_all_workers_is_survived(start_cluster, fit, reference):
    with start_cluster(client=True) as (cluster, client):
        restart = Disturbance(lambda: client.restart(timeout=60), felt=lambda: True)
        got, done = fit(cluster.scheduler_address, 8, callback=restart, seconds=SLOW_ROUND)
    assert got == reference(8)
    assert done.n_recoveries >= 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate that vouches for itself, as Dask's options of all roles."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    options = {"tls_ca_file": cert}
    for role in ("scheduler", "worker", "client"):
        options |= {f"tls_{role}_key": key, f"tls_{role}_cert": cert}
    return options


@pytest.mark.parametrize("how", ["client", pytest.param("address", marks=pytest.mark.slow)])
def test_encrypted_connections(start_cluster, fit, reference, certificate, how):
    from distributed.security import Security

    security = Security(require_encryption=True, **certificate)
    config = {"distributed.comm.tls.ca-file": certificate["tls_ca_file"]}
    for role in ("scheduler", "worker", "client"):
        for part in ("key", "cert"):
            config[f"distributed.comm.tls.{role}.{part}"] = certificate[f"tls_{role}_{part}"]
    with start_cluster(protocol="tls", security=security, client=True) as (cluster, client):
        assert all(w.startswith("tls://") for w in client.scheduler_info(n_workers=-1)["workers"])
        with dask.config.set(config if how == "address" else {}):
            got, done = fit("dask" if how == "client" else cluster.scheduler_address)
        if how == "client":  # an address alone has no certificates
            with pytest.raises(DataError, match=r"certificates in dask\.config"):
                fit(cluster.scheduler_address)
    assert got == reference()
    assert done.n_recoveries == 0


@pytest.mark.slow
def test_data_that_die_with_a_worker_are_computed_again(start_cluster, fit, make_rotation):
    """Shards that are results of Dask tasks: the task of the lost ones runs again elsewhere."""
    import numpy as np

    from stradask.scheduler import RotationSchedule, run

    local, program = make_rotation(seconds=SLOW_ROUND), make_rotation(seconds=SLOW_ROUND)
    schedule = RotationSchedule(4, 8)
    run(local, schedule, max_rounds=6)
    with start_cluster(client=True) as (_cluster, client):
        program.shards = [client.submit(np.linspace, 0, 1 + s, 30) for s in range(4)]
        kill = Disturbance(lambda: os.kill(pids(client)[0], signal.SIGKILL))
        done = run(program, schedule, max_rounds=6, engine="dask", callback=kill)
    assert program.sum == local.sum
    assert done.n_recoveries >= 1
