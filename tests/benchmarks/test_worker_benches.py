"""``stradask bench pipeline`` and ``allreduce``: ideals, tables, refusals, and runs on two processes."""

import pytest

from stradask.benchmarks import allreduce, pipeline
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
        ("pipeline --param size=3", "pipeline has the parameters places, micro_batches"),
        ("pipeline --param places=0", "numbers of 1 or more"),
        ("pipeline --param micro_batches=3", "divisors of 128"),
        ("allreduce --against torch", "has no peers"),
        ("allreduce --dataset a", "allreduce has no data"),
        ("allreduce --param megabytes=0", "give numbers from 0.001 to 4096"),
        ("allreduce --param parts=1", "2 or more"),
    ],
)
def test_what_they_do_not_have(arguments, message, capsys, tmp_path):
    assert main(["bench", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.cluster
def test_records_and_pages(tmp_path):
    arguments = "pipeline --quick --param places=2 micro_batches=2"
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
