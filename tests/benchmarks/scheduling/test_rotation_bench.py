"""The benchmark of a topic model on a cluster: its predictions, its table, and a run."""

import json

import numpy as np
import pytest

from stradask.benchmarks.pages import rotation as shown
from stradask.benchmarks.scheduling import rotation
from stradask.cli.arguments import main

GROUPS = shown.GROUPS


def made(n_workers, worked, waited, seconds, sent=0, n_rounds=6):
    """A run whose sweeps are all alike."""
    activity = {
        name: [] for name in ("round", "step", "worker", "working", "waiting", "sending", "bytes_sent")
    }
    for round_ in range(1, n_rounds + 1):
        for step in range(GROUPS):
            for worker in range(n_workers):
                row = (round_, step, f"tcp://{worker}", worked / GROUPS, waited / GROUPS, 0.0, 0)
                for column, value in zip(activity.values(), row, strict=True):
                    column.append(value)
    return {
        "activity": activity,
        "bytes_sent": [sent] * n_rounds,
        "seconds": [seconds] * n_rounds,
        "tokens_per_second": [1e6 / seconds] * n_rounds,
        "median_seconds": seconds,
        "digest": "0123",
        "n_tokens": 1_000_000,
        "settings": {"n_components": 10, "sampler": "gibbs"},
        "name": f"{n_workers} workers",
        "predicted": None,
    }


def test_two_workers_take_half_the_work_and_an_answer_each():
    one, two = made(1, worked=2.0, waited=0.0, seconds=2.4), made(2, 1.0, 0.1, 1.5)
    message = GROUPS * 1e-3  # one exchange of totals after each step; two between four workers
    found = rotation.predict(one, two, 1_000_000, 2, 10, latency=0, bandwidth=1e30)
    assert found == pytest.approx(1.0 + 2 * 0.4 + message)
    four = rotation.predict(one, made(4, 0.5, 0, 1), 1_000_000, 4, 10, latency=0, bandwidth=1e30)
    assert four == pytest.approx(0.5 + 4 * 0.4 + 2 * message)
    # Blocks of 1 MB at 10 MB/s: they take longer than what is done meanwhile.
    slow = rotation.predict(
        one, made(2, 1, 0, 1, 2 * GROUPS * 1e6), 1_000_000, 2, 10, latency=0, bandwidth=1e7
    )
    hidden = (1 - 2 / GROUPS) * 1.0
    assert slow == pytest.approx(1.0 + message + GROUPS * 0.1 - hidden + 0.8 + message, rel=1e-3)


def test_figures_are_of_the_sweeps_but_the_first_three():
    run = made(2, worked=1.0, waited=0.25, seconds=1.5)
    first = np.array(run["activity"]["round"]) <= 3
    run["activity"]["working"] = np.where(first, 99.0, run["activity"]["working"]).tolist()
    assert shown.settled(run) == {f"tcp://{n}": pytest.approx((1.0, 0.25, 0.0)) for n in (0, 1)}
    (row,), header, _ = shown.runs_table([run])
    assert dict(zip(header, row, strict=True)) == {
        "": "2 workers",
        "s a sweep": "1.5",
        "predicted": "",
        "M tokens/s": "0.667",
        "of threads": "",
        "MB a sweep": "0",
        "ms a step beside work": "62.5",
        "waiting": "20%",
        "model": "0123",
    }
    assert "2 workers" in shown.table([run])


def test_turns_are_one_row_of_the_median_with_the_spread_of_their_ratios():
    turns = [made(2, 1.0, 0.0, s) | {"of_threads": 1.2 / s} for s in (2.0, 1.5, 1.25)]
    (row,), header, _ = shown.runs_table(turns)
    found = dict(zip(header, row, strict=True))
    assert found["s a sweep"] == "1.5"
    assert found["of threads"] == "0.80 (0.60..0.96)"
    assert found["model"] == "0123"
    other = made(2, 1.0, 0.0, 9.0) | {"settings": {"n_components": 20, "sampler": "gibbs"}}
    assert [row[1] for row in shown.runs_table([*turns, other]).rows] == ["1.5", "9"]
    turns[0]["digest"] = "4567"
    assert shown.runs_table(turns).rows[0][-1] == "4567, 0123"


def test_pictures_of_runs():
    pytest.importorskip("matplotlib")
    page = shown.page([made(1, 2.0, 0.0, 2.4), made(2, 1.0, 0.1, 1.5)]).html()
    assert page.count("<figure>") == 2
    assert "<td>1.5</td>" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--param", "colour=3"], "'colour' is none of rotation's"),
        (["--param", "max_iter=3"], "give 6 or more"),
        (["--param", "workers=0"], "workers=0: give how many processes"),
        (["--param", "workers=1.5"], "workers=1.5: give how many processes"),
        (["--dataset", "a", "b"], "takes one corpus"),
        (["--against", "gensim"], "has no peers"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path, capsys):
    assert main(["bench", "rotation", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_other_families_know_no_cluster(tmp_path, capsys):
    assert main(["bench", "ssp", "--cluster", "tcp://127.0.0.1:9", "--out", str(tmp_path)]) == 2
    assert "--cluster: lda and rotation" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_run_with_a_loss(tmp_path, capsys):
    assert main(["bench", "rotation", "--quick", "--out", str(tmp_path)]) == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [r["name"] for r in records][:-1] == [
        "1 thread, no cluster",
        "1 worker",
        "2 threads, no cluster",
        "2 workers",
    ]
    assert "killed" in records[-1]["name"]
    assert len({r["digest"] for r in records}) == 1
    assert records[3]["predicted"] > 0
    assert (tmp_path / "report.html").exists()
    assert "M tokens/s" in capsys.readouterr().out
