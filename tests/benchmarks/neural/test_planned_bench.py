"""``stradask bench plan``: its stages, its tables, and a run on two processes."""

import numpy as np
import pytest

from stradask.benchmarks.neural import planned
from stradask.benchmarks.run import read_records
from stradask.cli.arguments import main
from stradask.scheduler.planning import Link


def test_every_network_has_plans_of_each_kind():
    for name, profile in planned.networks(1e-9, 1e-9).items():
        tried, chosen = planned.plans(profile, Link(1e-3, 1e9))
        kinds = [plan.kind for plan in tried]
        assert kinds[:2] in (["one place", "data"], ["one place", "pipeline"]), name
        assert {plan.micro_batches for plan in tried if plan.kind == "pipeline"} >= set(planned.MICRO_BATCHES)
        assert any(plan.seconds == chosen.seconds for plan in tried)


def test_stages_wait_as_long_as_their_profile_says():
    profile = planned.networks(0.0, 0.0)["three layers"]
    stage = planned.Waiting(profile, 0, 2)
    assert len(stage.start(0)) == 2 * 4e4 / 4
    waited = []
    stage._wait = lambda work, n_rows: waited.append(work * n_rows)
    y, context = stage.forward(stage.start(0), np.zeros((8, 256), np.float32), (0,))
    assert y.shape == (8, 256)
    assert stage.backward(context, y, stage.start(0)).shape == (8, 256)
    assert waited == [8, 16]


def record(problem, plan, measured, predicted, chosen):
    facts = {"data": {"latency": 1e-3, "bandwidth": 1e9}, "settings": {"batch_size": 128}}
    times = {"measured": measured, "predicted": predicted, "chosen": chosen}
    return facts | times | {"problem": problem, "plan": plan}


def test_tables_compare_the_choice_with_the_best_that_was_measured():
    records = [
        record("even", "one place 1, M = 1", 0.4, 0.4, False),
        record("even", "data 2, M = 2", 0.2, 0.21, False),
        record("even", "pipeline 1-1, M = 4", 0.25, 0.2, True),
    ]
    choices, whole = planned.all_tables(records)
    assert choices.rows == [["even", "data 2, M = 2", "pipeline 1-1, M = 4", "1.25", "1.60"]]
    assert whole.rows[1] == ["even, data 2, M = 2", "200", "210", "+5%"]
    assert whole.rows[2][0] == "even, pipeline 1-1, M = 4 (chosen)"


@pytest.mark.slow
@pytest.mark.cluster
def test_records_and_page(tmp_path):
    assert main(["bench", "plan", "--quick", "--dataset", "three layers", "--out", str(tmp_path)]) == 0
    records = read_records(tmp_path / "records.jsonl")
    assert sum(r["chosen"] for r in records) == 1
    one = next(r for r in records if r["plan"].startswith("one place"))
    assert one["measured"] > 0.39  # which its layers wait
    assert one["predicted"] == pytest.approx(0.4, rel=0.05)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img ") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--against sklearn", "has no peers"),
        ("--dataset vgg", "plan has even, uneven, three layers"),
        ("--param size=3", "plan has no parameters"),
    ],
)
def test_what_it_does_not_have(arguments, message, capsys, tmp_path):
    assert main(["bench", "plan", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
