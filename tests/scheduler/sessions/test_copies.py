"""Snapshots that workers keep for one another: what they hold, who is lost, and what the coordinator gets."""

import os

import numpy as np
import pytest

from stradask.scheduler import engine as engine_module
from stradask.scheduler.program import Program
from stradask.scheduler.sessions import cluster as cluster_module
from stradask.scheduler.sessions.cluster import ClusterSession
from stradask.scheduler.stores.copies import Copies, CopiesLost, other_holders


@pytest.fixture
def kept_by_workers(monkeypatch):
    """Snapshots of any size are kept by workers, after every round; returns them as they are made."""
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):
        monkeypatch.setattr(engine_module, name, 0.0)
    monkeypatch.setattr(cluster_module, "SMALL", -1)
    monkeypatch.setattr(Program, "keeps_copies", True)
    made, copies = [], ClusterSession.copies

    def recorded(self, messages):
        made.append(copies(self, messages))
        return made[-1]

    monkeypatch.setattr(ClusterSession, "copies", recorded)
    return made


def test_copies_are_on_another_machine_if_there_is_one():
    workers = [f"tcp://10.0.0.{machine}:{port}" for machine in (1, 2, 3) for port in (1, 2)]
    found = other_holders(workers)
    assert all(a.rpartition(":")[0] != b.rpartition(":")[0] for a, b in found.items())
    assert other_holders(["tcp://a:1", "tcp://a:2"]) == {"tcp://a:1": "tcp://a:2", "tcp://a:2": "tcp://a:1"}


def test_holders_that_are_gone_are_not_called():
    kept = Copies(1, {"shard-0": ("tcp://a:1", "tcp://b:1"), "block-0": ("tcp://b:1", "tcp://a:1")})
    assert set(kept.among(["tcp://b:1"]).holders.values()) == {("tcp://b:1",)}
    with pytest.raises(CopiesLost, match="shard-0 was kept by tcp://a:1 and tcp://b:1"):
        kept.among(["tcp://c:1"])


def test_the_coordinator_fetches_no_snapshot(fit, one_process, kept_by_workers, monkeypatch):
    def refused(self, messages):
        raise AssertionError("the snapshot came to the coordinator")

    want, _ = fit("local")
    monkeypatch.setattr(ClusterSession, "snapshot", refused)
    got, _ = fit(one_process.scheduler_address)
    assert got == want
    assert len(kept_by_workers) == 6
    last = kept_by_workers[-1]
    assert isinstance(last, Copies)
    assert set(last.holders) == {f"shard-{s}" for s in range(4)} | {f"block-{b}" for b in range(8)}
    assert all(len(set(holders)) == 2 for holders in last.holders.values())


def test_workers_let_go_of_older_snapshots(fit, one_process, kept_by_workers):
    import time

    seen = []

    def look(info):
        end = time.monotonic() + 60
        while time.monotonic() < end:  # they hear of it some time soon
            plugins = [worker.plugins["stradask-sessions"] for worker in one_process.workers.values()]
            sessions = [s for plugin in plugins for s in plugin.worker_sessions.values()]
            held = [[key for key in s.spare if key[0] == "copies"] for s in sessions]
            if info.round < 2 or all(len(keys) == 1 for keys in held):
                seen.append(held)
                return
            time.sleep(0.02)
        raise AssertionError(held)

    fit(one_process.scheduler_address, callback=look)
    assert len(seen) == 6


@pytest.mark.parametrize("keeps_copies", [False, True])
def test_small_snapshots_come_to_the_coordinator(fit, one_process, monkeypatch, keeps_copies):
    monkeypatch.setattr(cluster_module, "SMALL", 10**6 if keeps_copies else -1)
    monkeypatch.setattr(Program, "keeps_copies", keeps_copies)
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):
        monkeypatch.setattr(engine_module, name, 0.0)
    fetched, snapshot = [], ClusterSession.snapshot

    def counted(self, messages):
        fetched.append(self)
        return snapshot(self, messages)

    monkeypatch.setattr(ClusterSession, "snapshot", counted)
    fit(one_process.scheduler_address)
    assert len(fetched) == 6


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("n_lost", [1, 2])
def test_losses_cost_no_bit(fit, start_cluster, kept_by_workers, killing, n_lost):
    """One of three workers is lost; or two, and with them both copies of some parts: it begins anew."""
    opened, open_ = [], ClusterSession.open

    def recorded(self, program, snapshot=None, **options):
        opened.append(snapshot)
        return open_(self, program, snapshot, **options)

    want, _ = fit("local", rounds=8, n_shards=6)
    with start_cluster(3, client=True) as (cluster, client), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterSession, "open", recorded)
        before = sorted(client.run(os.getpid).values())
        kill = killing(4, *before[:n_lost], delay=0.05)
        got, done = fit(cluster.scheduler_address, rounds=8, n_shards=6, seconds=0.02, callback=kill)
        assert len(set(client.run(os.getpid).values()) & set(before)) == 3 - n_lost
    assert got == want
    assert done.n_recoveries >= 1
    assert any(isinstance(snapshot, Copies) for snapshot in opened)
    if n_lost == 1:  # from the copies alone
        assert [snapshot for snapshot in opened[1:] if not isinstance(snapshot, Copies)] == []


def test_a_checkpoint_in_a_folder_is_fetched(fit, one_process, kept_by_workers, tmp_path, make_rotation):
    from stradask.scheduler import RotationSchedule, run

    want = make_rotation()
    run(want, RotationSchedule(4, 8), max_rounds=6)
    for rounds in (4, 6):
        program, options = make_rotation(), {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
        options["engine"] = one_process.scheduler_address
        run(program, RotationSchedule(4, 8), max_rounds=rounds, **options)
    np.testing.assert_array_equal(program.sum, want.sum)
