"""``stradask bench placement`` end to end."""

import numpy as np
import pytest

from stradask.benchmarks.neural import placement
from stradask.benchmarks.run import read_records
from stradask.cli.arguments import main


def test_records_table_and_page(tmp_path, capsys):
    options = ["--dataset", "branches", "recurrent", "--param", "places=2,4", "max_iter=20"]
    assert main(["bench", "placement", *options, "--out", str(tmp_path)]) == 0
    records = read_records(tmp_path / "records.jsonl")
    assert len(records) == 2 * 2 * 3
    for record in records:
        assert record["ratio"] == pytest.approx(record["seconds"] / record["lower_bound"], rel=1e-4)
        assert record["ratio"] >= 1 - 1e-12
    ratios = {(r["problem"], r["places"], r["method"]): r["ratio"] for r in records}
    for problem, places in (("branches", 2), ("recurrent", 4)):
        one, listed, learnt = (ratios[problem, places, method] for method in placement.METHODS)
        assert listed < min(one, 1.2)
        assert learnt < one
        assert f"{listed:.3f}" in placement.table(records)
    printed = capsys.readouterr().out
    assert "recurrent, 4 places" in printed
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img ") == 1
    assert f"{ratios['branches', 2, 'list']:.3f}" in page


def test_graphs_have_no_cycles_and_the_operations_that_they_name():
    for name, make in placement.GRAPHS.items():
        graph = make(np.random.default_rng(0))
        assert all(a < b for a, b, _ in graph.edges), name
        assert min(graph.cost) >= 0 < sum(graph.cost)
    small = placement.recurrent(np.random.default_rng(0), layers=2, steps=3)
    assert len(small.cost) == 3 * (1 + 2 + 1)
    assert len(small.edges) == 3 * 3 + 2 * 2  # up and to the output; along both layers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--against sklearn", "has no peers"),
        ("--dataset vgg", "placement has recurrent, translator, branches, random, not 'vgg'"),
        ("--param size=3", "placement has the parameters places and max_iter"),
    ],
)
def test_what_it_does_not_have(arguments, message, capsys, tmp_path):
    assert main(["bench", "placement", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
