"""The record of the rules that choose a method for small linear problems, and the command that renews it."""

import json

import numpy as np
import pytest

from stradask.algorithms.linear import rules
from stradask.benchmarks.experiments.linear import linear_rules
from stradask.benchmarks.experiments.linear.linear_rules import FITS, RECORD, cases, draw, limited, main


def test_every_rule_has_cases_on_both_sides_of_its_limits_in_the_record():
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
    for name, (_, forms) in FITS.items():
        for is_sparse in forms:
            own = [row for row in rows if row["rule"] == name and (row["stored"] is not None) == is_sparse]
            assert [(row["rows"], row["columns"]) for row in own] == cases(name, is_sparse)
            assert {row["within"] for row in own} == {True, False}
            for row in own:  # the record was made with the limits of today
                held = getattr(rules, name).hold(row["rows"], row["columns"], row["stored"])
                assert held == row["within"]
                assert row["ratio"] == pytest.approx(row["with"] / row["without"])
            # Where the method is taken it is the faster one: by the median, and nowhere much slower.
            ratios = np.array([row["ratio"] for row in own if row["within"]])
            assert np.median(ratios) < 1
            assert ratios.max() < 2


def test_sizes():
    sizes = rules.Sizes(10, 1000, 50)
    assert [sizes.hold(n, 10) for n in (10, 11)] == [True, False]
    assert not sizes.hold(1, 11)
    assert [sizes.hold(20, 5, stored) for stored in (31, 32)] == [True, False]


@pytest.mark.parametrize("name", FITS)
def test_limits_say_which_method_runs(name, monkeypatch):
    """The methods give the same model; only where the rule holds the special one is entered."""
    from stradask.algorithms.linear import ridge
    from stradask.algorithms.linear.glm import small
    from stradask.algorithms.linear.sparse import moments

    entered = []

    def watched(module, function):
        before = getattr(module, function)

        def run(*args, **options):
            entered.append(function)
            return before(*args, **options)

        monkeypatch.setattr(module, function, run)

    where = {"SMALL_SMOOTH": (small, "newton_step"), "SMALL_RIDGE": (ridge, "solve_ridge")}
    watched(*where.get(name, (moments, "moments_of")))
    X, y = draw(60, 4, FITS[name][1] == (True,))
    for sizes, runs in (
        (rules.Sizes(4 + 1, 1e4, 1e4), True),
        (rules.Sizes(3, 1e4, 1e4), False),
        (rules.Sizes(5, 900.0, 1.0), False),
    ):
        entered.clear()
        with limited(name, sizes):
            FITS[name][0](X, y)
        assert bool(entered) == runs


def test_the_command(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(linear_rules, "cases", lambda name, is_sparse: [(40, 3)])
    monkeypatch.setattr(linear_rules, "RECORD", tmp_path / "made" / "records.jsonl")
    main(["--repeats", "1", "--write"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        name for name, (_, forms) in FITS.items() for _ in forms
    ]
    record = tmp_path / "made" / "records.jsonl"
    before = record.read_text().splitlines()
    assert len(before) == len(lines) - 1
    main(["--repeats", "1", "--write", "--rules", "MOMENTS"])
    after, names = record.read_text().splitlines(), [json.loads(line)["rule"] for line in before]
    assert [json.loads(line)["rule"] for line in after] == names
    for line, old, name in zip(after, before, names, strict=True):
        assert (line == old) == (name != "MOMENTS")
    with pytest.raises(SystemExit):
        main(["--repeats", "0"])
    assert "at least 1" in capsys.readouterr().err
