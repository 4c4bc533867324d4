"""``stradask bench pipeline``, ``allreduce``, ``networks``: ideals, tables, refusals, and runs."""

import sys

import numpy as np
import pytest

from stradask.benchmarks.neural import allreduce, networks, pipeline, torch_loops
from stradask.benchmarks.run import read_records
from stradask.cli.arguments import main
from stradask.scheduler.planning import Link, simulate


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("n", "M"), [(1, 4), (2, 4), (4, 32), (8, 4)])
def test_the_ideal_is_that_of_messages_without_cost(n, M, order):
    stages = [(k, k + 1, 1) for k in range(n)]
    options = {"batch_size": pipeline.BATCH, "micro_batches": M, "order": order}
    found = simulate(pipeline.equal_stages(n), stages, Link(0, 1e30), **options).seconds
    assert pipeline.STEP / found == pytest.approx(pipeline.ideal(n, M), rel=1e-6)


def test_tables():
    facts = {"places": 2, "micro_batches": 4, "order": "1f1b"}
    record = facts | {"seconds": 0.64, "speedup": 1.5, "ideal": 1.6}
    assert pipeline.made_table([record]).rows == [["2 places, 1f1b, M = 4", "640", "1.50", "1.60", "93.8%"]]
    record = {"megabytes": 8, "seconds": 0.016, "step": 0.02, "bytes": 1.0, "apart": 0.16}
    assert allreduce.made_table([record]).rows == [["8 MB", "16.0", "524", "20.0", "1.000", "160", "10.0"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("pipeline --against sklearn", "has no peers"),
        ("pipeline --dataset a", "pipeline has no data"),
        ("pipeline --param size=3", "pipeline has the parameters places, micro_batches, memory"),
        ("pipeline --param memory=3", "memory=3: give True or False"),
        ("pipeline --param places=0", "numbers of 1 or more"),
        ("pipeline --param micro_batches=3", "divisors of 128"),
        ("allreduce --against torch", "has no peers"),
        ("allreduce --dataset a", "allreduce has no data"),
        ("allreduce --param megabytes=0", "give numbers from 0.001 to 4096"),
        ("allreduce --param parts=1", "2 or more"),
        ("networks --against torch", "as its peers, always"),
        ("networks --dataset a", "digits only"),
        ("networks --param depth=3", "networks has the parameters accuracy, epochs, width"),
        ("networks --param epochs=1", "epochs=1: give an integer of 2 or more"),
        ("networks --param accuracy=2", "accuracy=2: give a share above 0"),
    ],
)
def test_what_they_do_not_have(arguments, message, capsys, tmp_path):
    assert main(["bench", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_networks_without_torch_is_refused_before_work(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["bench", "networks", "--out", str(tmp_path)]) == 2
    assert "torch cannot be imported" in capsys.readouterr().err


def test_table_of_networks_has_medians_over_the_right_process():
    def record(method, rate, seconds=2.0, same=None):
        facts = {"method": method, "steps_per_second": rate, "epochs": 3, "seconds": seconds}
        facts["cpu"] = 0.5 / rate
        return facts | {"same_parameters": same}

    records = [record("one place", v, same=True) for v in (9.0, 10.0, 30.0)]
    records += [record("data", 15.0, same=True), record("data", 17.0, same=False)]
    records += [record("torch loop", 8.0), record("torch DDP", 12.0, None)]
    rows = networks.made_table(records).rows
    assert rows[0] == ["one place", "10.00", "1.00", "50.0", "1.00", "3", "2.0", "equal"]
    assert rows[1] == ["data", "16.00", "1.60", "31.4", "1.59", "3", "2.0", "differ"]
    assert rows[3] == ["torch DDP", "12.00", "1.50", "41.7", "1.50", "3", "not reached", ""]


def test_of_two_processes_that_share_mini_batches_the_slower_counts():
    seconds, cpu = [9.0, 11.0, 13.0], [9.0, 9.6, 10.2]  # of which the first epoch does not count
    course = torch_loops.Course(seconds, [0.1, 0.2, 0.3], cpu)
    slower = torch_loops.Course([9.0, 12.0, 15.0], [0.1, 0.2, 0.3], [9.0, 9.3, 9.6])
    assert networks.steps_a_second([course, slower], 6) == pytest.approx(2)
    assert networks.busiest([course, slower], 6) == pytest.approx(0.1)
    assert networks.time_to(course, 0.2) == (2, 11.0)
    assert networks.time_to(course, 0.4) == (None, None)


def test_network_and_digits_are_drawn_by_the_seed():
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    one, two, other = (
        torch.nn.utils.parameters_to_vector(networks.network(4, seed).parameters()) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())
    (X, y), (rest, _) = networks.digits(0)
    assert (X.shape, rest.shape) == ((1536, 1, 8, 8), (261, 1, 8, 8))
    found = torch_loops.accuracy(
        lambda X: torch.nn.functional.one_hot(torch.zeros(len(X), dtype=int)), (X, y)
    )
    assert found == np.mean(y == 0)


@pytest.mark.slow
@pytest.mark.cluster
def test_networks_on_two_processes(tmp_path):
    pytest.importorskip("torch")
    arguments = "networks --quick --param width=8 epochs=6 accuracy=0.25"
    assert main(["bench", *arguments.split(), "--out", str(tmp_path)]) == 0
    by_name = {r["method"]: r for r in read_records(tmp_path / "records.jsonl")}
    assert list(by_name) == [*networks.PLANS, *networks.LOOPS]
    assert all(by_name[name]["same_parameters"] for name in networks.PLANS)
    alone, shared = (by_name[name]["course"]["accuracy"] for name in ("torch loop", "torch DDP"))
    assert shared == pytest.approx(alone, abs=0.03)  # halves of the same mini-batches: but for rounding
    assert all(r["seconds"] > 0 for r in by_name.values())
    assert "on two processes" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_records_and_pages(tmp_path):
    arguments = "pipeline --quick --param places=2 micro_batches=2 memory=False"
    assert main(["bench", *arguments.split(), "--out", str(tmp_path / "p")]) == 0
    records = read_records(tmp_path / "p" / "records.jsonl")
    assert [r["order"] for r in records] == ["1f1b", "gpipe"]
    assert all(r["seconds"] > 0.99 * pipeline.STEP * 3 / 4 for r in records)  # which its layers wait
    assert "places that wait" in (tmp_path / "p" / "report.html").read_text()
    assert (
        main(["bench", "allreduce", "--quick", "--param", "megabytes=1", "--out", str(tmp_path / "a")]) == 0
    )
    (record,) = read_records(tmp_path / "a" / "records.jsonl")
    assert record["bytes"] == pytest.approx(1.0, abs=0.01)  # 2 (N - 1) / N of the gradient
    assert "All-reduce over two processes" in (tmp_path / "a" / "report.html").read_text()
