"""Plans of fits against sums by hand, and against programs and the workers' own check."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.inputs.memory import rate_in_bytes
from stradask.algorithms.topics.blocks.memory import (
    KERNELS,
    CorpusSizes,
    bytes_of_program,
    bytes_of_worker,
    plan_for,
)
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.planning import ENDS, PAUSES, measure_rate
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.errors import DataError

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "benchmarks" / "results" / "billions" / "record.json"
LARGE = {"n_tokens": 4e9, "n_words": 1e5, "n_documents": 2e7, "longest": 1000}


def test_the_bytes_of_warp_in_memory_are_those_by_hand():
    N, V, D, G, P, T, K = 4_000_000_000, 100_000, 20_000_000, 64, 4, 4, 1000
    plan = sd.plan_lda(K, **LARGE, n_machines=P, n_threads=T)
    # Topic, proposal and place of a token; of a document where it begins; of a shard where words begin.
    shards, blocks = 8 * N + 32 * D + 10 * V * G, 2 * N
    copies = 4 * (4 * N + blocks) / P  # a new snapshot beside the last, on two workers
    besides = KERNELS + 44 * V + (8 + 20 * T) * K
    assert plan.memory["needed"] == math.ceil((besides + (shards + blocks) / P + copies) / ENDS)
    assert plan.model["n_groups"] == G
    assert plan.network["a snapshot"] == (4 * N + blocks) / P
    # 2.5 topics of 10 bits a token and sizes, from other workers; totals twice in two stages.
    received = (2.5 * N * 10 / 8 + V * G) * 3 / 4 + 2 * 2 * 8 * K
    assert plan.network["a sweep"] == received
    assert (plan.disk["a sweep"], plan.storage) == (0, "memory")


def test_the_bytes_of_light_on_disks_are_those_by_hand():
    N, V, D, G, P, T, K = 4_000_000_000, 100_000, 20_000_000, 256, 4, 4, 100_000
    fixed = {"n_machines": P, "n_threads": T, "n_groups": G, "sampler": "light"}
    plan = sd.plan_lda(K, **LARGE, **fixed, memory="20GB")
    assert plan.fits
    assert plan.storage == "disk"
    blocks, lists = 4 * N, 4 * (N + 8 * D) + 12 * D  # last lines of lists are half full
    shards = 8 * N + lists + 16 * D + 10 * V * G
    work = T * (shards + 2 * (blocks + 20 * N)) / G + 32 * D / P  # a shard, and blocks that are packed, too
    besides = KERNELS + 44 * V + (8 + 20 * T) * K
    assert plan.memory["needed"] == math.ceil((besides + work + 2 * blocks / P) / PAUSES)
    assert plan.disk["a sweep"] == (4 + 2 * 4) * N / P + 2 * blocks
    assert plan.network["a sweep"] == blocks + 2 * 64 * 8 * K


@pytest.mark.parametrize("sampler", ["gibbs", "light", "warp"])
def test_a_plan_of_files_is_what_the_program_is_checked_by(sampler, tmp_path):
    X = sd.datasets.make_lda_corpus(3000, 800, 5, mean_length=80, random_state=0)[0]
    sd.datasets.save_uci_bow(X, tmp_path / "docword.txt")
    fixed = {"n_machines": 2, "n_threads": 2, "n_groups": 8, "sampler": sampler}
    plan = sd.plan_lda(50, files=str(tmp_path / "docword.txt"), **fixed)
    longest = int(X.sum(axis=1).max())
    seen = {"tokens": int(X.sum()), "words": 800, "documents": 3000, "longest": longest}
    assert plan.corpus == seen
    program = program_of(sampler, corpus_of_matrix(X, 8), 50, np.full(50, 0.1), np.full(800, 0.01), 0)
    blocks = program.bytes_of_blocks, program.packed_bytes
    checked = sum(bytes_of_worker(bytes_of_program(program), *blocks, 2, n_threads=4, n_workers=2))
    besides = KERNELS + 44 * np.count_nonzero(X.sum(axis=0)) + 48 * 50
    assert plan.memory["needed"] * ENDS == pytest.approx(besides + checked, abs=0.01 * checked)


@pytest.mark.parametrize("sampler", ["gibbs", "light", "warp"])
@pytest.mark.parametrize("n_machines", [1, 4])
def test_the_verdict_turns_where_memory_is_short(sampler, n_machines):
    fixed = LARGE | {"sampler": sampler, "n_machines": n_machines}
    smallest = sd.plan_lda(1000, **fixed, memory=1000).memory["smallest"]
    assert sd.plan_lda(1000, **fixed, memory=smallest).fits
    short = sd.plan_lda(1000, **fixed, memory=smallest - 1)
    assert not short.fits
    assert f"needs {math.ceil(smallest / 1e6):,} MB" in short.verdict
    assert f"give {math.ceil(smallest / 1e6):,} MB, or take {short.memory['machines']:,}" in short.remedy
    fixed["n_machines"] = short.memory["machines"]
    assert sd.plan_lda(1000, **fixed, memory=smallest - 1).fits
    fixed["n_machines"] -= 1
    assert fixed["n_machines"] == n_machines or not sd.plan_lda(1000, **fixed, memory=smallest - 1).fits


@pytest.mark.parametrize(("sampler", "written"), [("light", 7.73e6), ("warp", 21.23e6)])
def test_blocks_on_disks_are_as_measured(sampler, written):
    """Of two workers with files, by the system's count of a sweep of 1,911,277 tokens, 1,000 topics."""
    plan = sd.plan_lda(1000, **LARGE, n_machines=2, memory=1000, sampler=sampler)
    assert plan.storage == "disk"
    of_tokens = (4 + (8 if sampler == "warp" else 2) * 2) * 4e9  # the rest is written and read
    assert (2 * plan.disk["a sweep"] - of_tokens) / 2 / 4e9 == pytest.approx(written / 1_911_277, rel=0.02)


def test_one_machine_is_planned_as_a_fit_within_a_limit():
    fixed = LARGE | {"n_groups": 64, "memory": "1TB", "sampler": "gibbs"}
    limit = sd.plan_lda(1000, **fixed).memory["needed"]
    tokens, documents = np.full(64, 4e9 / 64), np.full(64, 2e7 / 64)
    sizes = CorpusSizes(tokens, documents, 1000, 100_000)
    assert plan_for([("gibbs", None)], sizes, 1000, limit + 2, None).at_once is None
    assert plan_for([("gibbs", None)], sizes, 1000, limit - 2, None).at_once is not None
    assert sd.plan_lda(1000, **fixed | {"memory": limit - 2}).storage == "disk"


@pytest.mark.parametrize("sampler", ["gibbs", "light", "warp"])
def test_more_machines_need_no_more_each(sampler):
    plans = [sd.plan_lda(5000, **LARGE, sampler=sampler, n_machines=n) for n in (2, 4, 8, 32, 128)]
    for few, more in itertools.pairwise(plans):
        assert more.memory["needed"] <= few.memory["needed"]
        assert more.seconds["compute"] <= few.seconds["compute"]
        assert more.disk["kept"] <= few.disk["kept"]
        assert more.network["a snapshot"] <= few.network["a snapshot"]
    slow = sd.plan_lda(5000, **LARGE, sampler=sampler, n_machines=8, network="100Mbit/s")
    assert slow.bottleneck == "network"
    assert slow.hours["likely"] > plans[2].hours["likely"]


def test_hours_are_those_of_the_sweeps():
    plan = sd.plan_lda(1000, **LARGE, n_machines=4, rate=1e-6, n_threads=2, max_iter=99, network=1e12)
    assert plan.seconds["compute"] == pytest.approx(4e9 * 1e-6 / 8, rel=0.03)  # idle shares, and bytes packed
    assert plan.bottleneck == "compute"
    assert plan.hours["likely"] == pytest.approx(100 * plan.seconds["sweep"] / 3600)
    assert plan.hours["least"] < plan.hours["likely"] < plan.hours["most"]
    assert "1e+03 ns of a thread for a token (as given)" in plan.measured[0]
    assert str(plan).startswith("verdict     fits, with tokens in memory\n")


def test_a_rate_is_measured_in_cpu_seconds():
    assert 1e-9 < measure_rate("warp", 10, n_documents=300, sweeps=4) < 1e-5


def test_rates_have_units():
    rates = {"500MB/s": 5e8, "10Gbit/s": 1.25e9, "2 GB/s": 2e9, "1.5Mbit/s": 187_500, "8B/s": 8, 7: 7}
    rates |= {"1e9": 1e9, "500MiB/s": 500 * 2**20}
    for text, value in rates.items():
        assert rate_in_bytes(text, "disk") == value
    words = ("500MB", "10Gb/s", "fast", "-1MB/s", "0B/s", "1..5MB/s", "1e999")
    for wrong in (*words, 0, -1, 10**400, math.nan, math.inf, True, None):
        with pytest.raises(DataError, match=r"network=.* is no rate above zero: give '500MB/s', '10Gbit/s'"):
            rate_in_bytes(wrong, "network")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sampler": "saber"}, "sampler='saber': a plan knows 'gibbs', 'light', 'warp'"),
        ({"n_tokens": None}, "n_tokens is missing: give tokens and words of the corpus, or its files"),
        ({"n_tokens": 1.5}, "n_tokens=1.5: give a whole number"),
        ({"n_documents": 0}, "n_documents=0: give a whole number"),
        ({"n_words": math.nan}, "n_words=nan: give a whole number"),
        ({"n_machines": 0}, "n_machines must be at least 1"),
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"files": "docword.txt"}, "files tell the numbers of the corpus: leave out n_tokens, n_words"),
        ({"memory": "lots"}, "memory='lots' is no amount of memory"),
        ({"disk": "500MB"}, "disk='500MB' is no rate"),
        ({"n_tokens": 10}, "n_words=100,000 are more than n_tokens=10"),
        ({"memory": math.inf}, "memory=inf is no amount of memory"),
        ({"memory": None}, "memory=None is no amount of memory"),
        ({"memory": True}, "memory=True is no amount of memory"),
        ({"n_documents": 1e10}, "n_documents=10,000,000,000 are more than n_tokens=4,000,000,000"),
        ({"longest": 199}, "longest=199 cannot be of 4,000,000,000 tokens in 20,000,000 documents: give 200"),
        ({"n_machines": 200, "cores": 2}, "200 idle processes take all of 2 cores: give more cores"),
        ({"rate": -1}, "rate=-1: give seconds above zero, or 'measure'"),
        (
            {"sampler": "light", "n_components": 10**6, "longest": 5000},
            "no room for a document of 5,000",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        sd.plan_lda(**{"n_components": 1000, **LARGE, **wrong})


def test_numbers_of_numpy_are_taken_and_no_group_is_empty():
    plan = sd.plan_lda(np.int64(1000), **LARGE, n_machines=np.int64(3), n_groups=np.int64(10**9))
    assert plan == sd.plan_lda(1000, **LARGE, n_machines=3, n_groups=10**9)
    assert plan.model["n_groups"] == LARGE["n_documents"]
    json.dumps(plan.as_dict(), allow_nan=False)


@pytest.mark.parametrize("fits", json.loads(RECORD.read_text(encoding="utf-8")))
def test_plans_are_held_to_fits_of_processes(fits):
    """Of `many_workers` on 2 to 16 processes; sparse changes of totals take fewer bytes than planned."""
    about = fits["about"]
    fixed = {f"n_{name}": about[name] for name in ("tokens", "words", "documents", "groups")}
    fixed |= {"sampler": about["sampler"], "longest": about["longest"], "n_threads": 1}
    for row in fits["rows"][fits["rows"][0]["workers"] == 1 :]:
        plan = sd.plan_lda(about["topics"], **fixed, n_machines=row["workers"])
        sent = row["workers"] * plan.network["a sweep"]
        assert sent >= 0.94 * row["bytes"]
        assert sent <= 1.02 * row["bytes"] or (about["sampler"], about["topics"]) == ("light", 100_000)
        assert row["memory"] <= plan.memory["needed"] <= 1.25 * row["memory"]


def test_the_page_has_the_plans():
    page = (ROOT / "docs" / "billions-of-tokens.md").read_text(encoding="utf-8")
    for sampler in ("warp", "light"):
        for n_machines in (8, 24):
            for memory in ("384GB", "8TB"):
                fixed = {"n_tokens": 2e11, "n_words": 1e6, "n_machines": n_machines, "sampler": sampler}
                plan = sd.plan_lda(10**6, **fixed, memory=memory)
                figures = [plan.memory["needed"], plan.disk["kept"], plan.disk["a sweep"]]
                cells = [sampler, str(n_machines), plan.storage]
                cells += [f"{n / 1e9:,.0f}" for n in (*figures, plan.network["a sweep"])]
                cells += [f"{plan.seconds['sweep']:,.0f}", plan.bottleneck]
                cells.append("{likely:,.0f} ({least:,.0f} to {most:,.0f})".format(**plan.hours))
                assert f"| {' | '.join(cells)} |\n" in page
