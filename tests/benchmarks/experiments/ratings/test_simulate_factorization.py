"""Simulated factorization against what can be said in closed form."""

import pytest

from stradask.benchmarks.experiments.ratings.simulate_factorization import binding, epochs, item_bytes, main
from stradask.benchmarks.scheduling.rotation_model import Machines


def test_an_item_has_whole_vectors_of_factors_and_four_numbers():
    assert item_bytes(32, 4) == 36 * 4
    assert item_bytes(33, 2) == 48 * 2 + 16


def test_below_the_bound_work_divides_and_above_it_the_wire_decides():
    machines = Machines(1, 1, 1e6, 0, 1e9, 0)
    bound = binding(1e8, 1e6, 32, machines, 4)
    assert bound == pytest.approx(1e8 / 1e6 / (1e6 * 144 / 1e9))
    wide = Machines(1, 1, 1e6, 0, 1e6, 0)  # at a thousandth of the width: above 0.7 workers
    assert binding(1e8, 1e6, 32, wide, 4) == pytest.approx(bound / 1000)
    (free,), (bound_row,) = (epochs(1e8, 1e6, 32, machine, [8]) for machine in (machines, wide))
    assert free["speedup_4"] == pytest.approx(8, rel=0.05)
    # Each of the steps ends when a block, of a 16th of the items, has come after the first group's work.
    assert bound_row["seconds_4"] == pytest.approx(144 + 100 / 8 / 2, rel=0.05)
    assert bound_row["seconds_2"] == pytest.approx(80 + 100 / 8 / 2, rel=0.05)
    assert bound_row["bytes_4"] / bound_row["bytes_2"] == pytest.approx(144 / 80)
    assert bound_row["bytes_4"] == pytest.approx(8 * 144e6)  # every worker receives every item


def test_the_table_is_printed(capsys):
    main(["--workers", "2", "4", "--threads", "1", "--factors", "32", "--rate", "1e6"])
    out = capsys.readouterr().out.splitlines()
    assert "binds above" in out[0]
    assert [line.split()[0] for line in out[2:]] == ["2", "4"]
    with pytest.raises(SystemExit):
        main(["--factors", "32", "64", "--rate", "1e6"])
