"""The model of fits on many workers against closed forms, and against the record of measured sweeps."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stradask.algorithms.topics.planning import sweep_of
from stradask.benchmarks.experiments import how_many_workers
from stradask.benchmarks.scheduling import cluster_model
from stradask.scheduler.planning.rounds import Machines, RoundNeeds, binding, stages
from stradask.scheduler.sessions.routes import partners

ROOT = Path(__file__).parents[3]
RECORD = json.loads(how_many_workers.RECORD.read_text(encoding="utf-8"))
FREE = {"latency": 0.0, "bandwidth": 1e30, "message": 0.0, "hub": 0.0, "idle": 0.0}


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7, 8, 16, 1000])
def test_the_exchange_has_as_many_waits_as_workers_have_partners(n_workers):
    assert stages(n_workers) == max(len(partners(rank, n_workers)) for rank in range(n_workers))


def test_work_divides_among_cores_and_no_further():
    for n_workers in (1, 5, 50):
        parts = RoundNeeds(work=100.0).on(Machines(n_workers, 2, **FREE))
        assert parts == {
            "compute": 50.0 / n_workers,
            "row": 0.0,
            "blocks": 0.0,
            "messages": 0.0,
            "hub": 0.0,
            "disk": 0.0,
        }
    assert RoundNeeds(work=100.0).on(Machines(50, 2, **FREE, cores=4))["compute"] == 25.0
    assert RoundNeeds(work=100.0, most_threads=10).on(Machines(50, 2, **FREE))["compute"] == 10.0
    assert RoundNeeds(work=100.0, longest=7.0).on(Machines(50, 2, **FREE))["row"] == 6.0
    assert RoundNeeds(work=100.0, reads=6e11).on(Machines(2, 100, **FREE))["compute"] == 3.0
    with pytest.raises(ValueError, match="60 idle processes take all of 2 cores"):
        RoundNeeds(work=1.0).on(Machines(60, idle=0.04, cores=2))


def test_messages_blocks_and_the_hub_cost_what_they_must():
    m = Machines(4, latency=1.0, bandwidth=10.0, message=0.25, hub=0.5, idle=0.0)
    needed = RoundNeeds(
        work=40.0, waits=3, wait_bytes=20.0, blocks=8, travels=100.0, hides=0.5, hub_bytes=30.0
    )
    assert needed.on(m) == {
        "compute": 10.0,
        "row": 0.0,
        "blocks": 8 * 1.25 + 10.0 - 5.0,
        "messages": 3 * (0.25 + 1.0 + 2.0),
        "hub": 4 * 0.5 + 3.0 + 2.0,
        "disk": 0.0,
    }
    assert binding(needed.on(m)) == "blocks"
    shared = needed.on(Machines(4, latency=1.0, bandwidth=10.0, message=0.25, hub=0.5, idle=0.0, cores=2))
    assert shared["messages"] == 4 * 11 * 0.25 / 2 + 3 * 3.0
    assert shared["blocks"] == max(8 + 10.0 - 0.5 * 20.0, 0)


def test_disks_read_while_threads_work():
    free = FREE | {"disk": 2.0}
    assert RoundNeeds(work=40.0, disk=30.0).on(Machines(4, **free))["disk"] == 15.0 - 10.0
    assert RoundNeeds(work=80.0, disk=30.0).on(Machines(4, **free))["disk"] == 0.0
    assert (
        RoundNeeds(work=80.0, disk=30.0).on(Machines(4, **free, cores=4))["disk"] == 4 * 15.0 - 20.0
    )  # one disk


def test_memory_is_shared_or_each_workers_own():
    assert RoundNeeds(0.0, held=2.0).fits(Machines(2, memory=1.0))
    assert not RoundNeeds(0.0, held=2.1).fits(Machines(2, memory=1.0))
    assert not RoundNeeds(0.0, held=1.0, held_by_each=0.6).fits(Machines(2, memory=1.0))


def test_the_model_is_within_a_fifth_of_every_measured_sweep():
    rows = how_many_workers.comparison(RECORD)
    assert {(row[0], row[1]) for row in rows} == {
        (n, network) for n in (1, 2, 4, 8, 16) for network in ("this machine", "1 ms, 1 Gbit/s")
    }
    for n_workers, network, measured, predicted in rows:
        assert predicted == pytest.approx(measured, rel=0.2), (n_workers, network)
    assert len({row["model"] for row in RECORD["rows"]}) == 1


def test_bytes_of_gibbs_sampling_are_those_measured():
    """Each worker sends all rows once a sweep, and totals: the rows are the same on any number of workers."""
    about, several = RECORD["about"], [row for row in RECORD["rows"] if row["workers"] > 1]
    width = how_many_workers.row_bytes(about, several[0])
    for row in several:
        own = {"per_token": 1.0, "n_groups": about["groups"], "n_words": about["words"], "row_bytes": width}
        sweep = sweep_of(about["tokens"], about["topics"], Machines(row["workers"]), **own)
        sent = row["workers"] * (sweep.travels + sweep.waits * sweep.wait_bytes)
        assert sent == pytest.approx(row["bytes"], rel=0.005)


@pytest.mark.parametrize("n_threads", [16, 64])
def test_messages_of_topics_grow_with_workers_alone(n_threads):
    own = {"per_token": 1e-6, "n_words": 1000, "row_bytes": 100.0}
    gibbs = sweep_of(1e6, 1000, Machines(128, n_threads), **own)
    assert (gibbs.blocks, gibbs.waits) == (128, 7 * 64)
    assert gibbs.travels == 1e5
    warp = sweep_of(1e6, 1000, Machines(128, n_threads), **own, warp=True)
    assert (warp.blocks, warp.waits) == (2 * 128, 2 * 7)
    few = sweep_of(1e6, 1000, Machines(4, 8), **own)
    assert (few.blocks, few.waits) == (32, 2 * 32)


@pytest.mark.parametrize(("n_workers", "n_topics", "sent"), [(2, 100, 469_320), (4, 1000, 2_099_013)])
def test_bytes_of_warp_are_those_measured(n_workers, n_topics, sent):
    """Of 201,720 tokens of 3,000 words in 16 groups, in a sweep."""
    own = {"per_token": 1.0, "n_words": 3000, "warp": True}
    sweep = sweep_of(201_720, n_topics, Machines(n_workers), **own)
    assert n_workers * sweep.travels == pytest.approx(sent, rel=0.06)


def test_threads_of_one_process_take_tasks_in_steps():
    sweep = partial(cluster_model.sweep_on_threads, 1600, 4, per_block=0.5, spread=0.0)
    assert sweep(1, per_token=0.01, per_task=0.125) == 16 * (1.0 + 0.5 + 0.125)
    assert sweep(2, per_token=0.01, per_task=0.125) == 8 * (1.0 + 0.5) + 16 * 0.125
    assert sweep(3, per_token=0.01) == sweep(2, per_token=0.01)
    assert sweep(64, per_token=0.01) == sweep(4, per_token=0.01) == 4 * 1.5
    rng = np.random.default_rng(0)
    last = (1 + 0.05 * rng.standard_normal((20_000, 64))).max(axis=1).mean()  # tasks that end a step
    found = cluster_model.sweep_on_threads(64**2, 64, 64, per_token=1.0, per_block=0.0)
    assert found / 64 == pytest.approx(last, rel=2e-3)


def test_an_epoch_waits_for_the_items_where_a_worker_has_few_ratings():
    """Every worker receives all items, of 32 factors and four numbers of 4 bytes, or of 2 and 4."""
    m = Machines(8, latency=0.0, bandwidth=1e6, message=0.0, hub=0.0, idle=0.0)
    for width, item in ((4, 144), (2, 80)):
        epoch = cluster_model.ratings(1e8, 1e7, 1e6, 32, m, per_rating=1e-6, width=width).on(m)
        assert epoch["compute"] == pytest.approx(100 / 8)
        assert epoch["blocks"] == pytest.approx(item - 100 / 8 / 2)


def test_cpu_seconds_are_those_of_all_processes():
    m = Machines(4, latency=1.0, bandwidth=10.0, message=0.25, hub=0.5, idle=0.0, cores=2)
    needed = RoundNeeds(work=40.0, waits=3, blocks=8, asked=5, answers=6, alone=2.0)
    assert needed.messages(4) == 4 * 11 + 5
    assert needed.cpu_seconds(m) == 40.0 + 49 * 0.25 + 2.0 + 6 * 0.5
    parts = needed.on(m)
    assert parts["messages"] == 49 * 0.25 / 2 + 3 * 1.0
    assert parts["hub"] == 2.0 + 6 * 0.5 + 2.0


def test_the_model_is_within_a_fifth_of_other_fits():
    """But for the Lasso on eight processes, of which the page says so."""
    record = json.loads(how_many_workers.FITS.read_text(encoding="utf-8"))
    rows = how_many_workers.fits_comparison(record)
    assert {row[:3] for row in rows} == {
        (fit, n, network)
        for fit in ("logistic", "lasso", "ratings")
        for n in (1, 2, 4, 8)
        for network in ("this machine", "1 ms, 1 Gbit/s")
    }
    for fit, n_workers, network, clock, predicted, cpu, predicted_cpu in rows:
        within = 0.31 if (fit, n_workers) == ("lasso", 8) else 0.2
        assert predicted == pytest.approx(clock, rel=within), (fit, n_workers, network)
        assert predicted_cpu == pytest.approx(cpu, rel=within), (fit, n_workers, network)


def test_every_worker_gets_all_blocks_of_items_in_an_epoch():
    rows = json.loads(how_many_workers.FITS.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        if row["fit"] == "ratings":
            epoch = cluster_model.ratings(1e6, 20_000, 5000, 32, Machines(row["workers"]), per_rating=1.0)
            assert row["workers"] * epoch.travels == row["bytes"]


def test_the_table_of_threads_is_in_the_guide():
    assert how_many_workers.threads_table() in (ROOT / "docs" / "topics.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_record():
    page = (ROOT / "docs" / "how-many-workers.md").read_text(encoding="utf-8")
    assert page == how_many_workers.page(RECORD)


def test_the_threads_from_which_warp_waits_for_its_blocks_follow_from_their_bytes():
    """By hand: 12.5 bytes a token arrive from others, and threads save the work that warp spares."""
    rates = RECORD["rates"]
    saved = 1 / rates["tokens of gibbs, 1000 topics"] - 4 / rates["tokens of warp, 1000 topics"]
    for n_workers, bandwidth in ((2, 1.25e9), (4, 3.125e9), (8, 1.25e10)):
        by_hand = saved * bandwidth / (4 * 2.5 * 10 / 8) / (n_workers - 1)
        found = how_many_workers.most_threads(RECORD, n_workers, bandwidth)
        assert found == pytest.approx(by_hand, rel=0.3)  # latencies and exchanges are left out
    assert how_many_workers.most_threads(RECORD, 2, 1.25e8) == 0
