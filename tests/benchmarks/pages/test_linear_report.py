"""Figures of solved problems: tables, ratios, the page and the README's part."""

import math

import pytest

from stradask.benchmarks import run
from stradask.benchmarks.pages import solving, tables, training


def solve(tolerance, seconds, gap, **more):
    cpu = {"cpu_seconds": seconds, "seconds": 2 * seconds, "beyond_mb": 10 * seconds}
    return {"tolerance": tolerance, "gap": gap, **cpu, **more}


def record(solver, solves=(), *, repeat=0, ours=False, problem="/10", **changes):
    made = {
        "family": "lasso",
        "procedure": "solving",
        "started": "2026-01-01T00:00:00+00:00",
        "machine": {"processor": "<abacus & co>", "cores": 2},
        "data": {"name": "a", "train_rows": 2**14, "train_columns": 2**15, "alpha_max": 2.0},
        "settings": {"intercept": False, "max_seconds": 10.0, "n_jobs": 1},
        "solver": solver,
        "method": "by hand",
        "ours": ours,
        "repeat": repeat,
        "status": "ok",
        "problem": problem,
        "measure": "gap",
        "targets": [1e-4, 1e-6],
        "over_time": False,
        "versions": {"numpy": "2"},
        "warm_up_seconds": 0.5,
        "setup_seconds": 0.25,
        "solves": [solve(*values) if isinstance(values, tuple) else values for values in solves],
    }
    return made | changes


OURS = [(1e-4, 1.0, 5e-5), (1e-6, 2.0, 5e-7)]
# The tighter tolerance was cheaper, as it may be: the cheapest that meets a target counts.
QUICK = [(1e-3, 6.0, 9e-5), (1e-4, 3.0, 2e-5)]
SLOW = [(1e-4, 4.0, 5e-5), (1e-6, 16.0, 5e-7), (1e-7, 8.0, 1e-7)]


@pytest.fixture
def records():
    return [
        record("quick", QUICK),
        record("slow", SLOW),
        record("stradask", OURS, ours=True),
        record("quick", QUICK, repeat=1),
        record("slow", SLOW, repeat=1),
        record("stradask", [(t, 2 * s, g) for t, s, g in OURS], ours=True, repeat=1),
        record("broken", [], status="failed", error="<b>fell</b>"),
        record("other", [], status="not offered", error="no solve"),
    ]


def test_the_cheapest_solve_that_meets_a_target_counts():
    assert solving.time_to(record("q", QUICK), 1e-4) == 3.0
    assert solving.time_to(record("s", SLOW), 1e-6) == 8.0
    assert solving.time_to(record("q", QUICK), 1e-6) == math.inf


def test_several_threads_are_compared_by_the_wall_clock():
    several = record("s", SLOW, settings={"n_jobs": 2, "max_seconds": 10.0, "intercept": False})
    assert solving.time_to(several, 1e-6) == 16.0


def test_ratios_are_to_the_best_peer_of_the_round(records):
    (by_solver,) = tables.by_problem(records).values()
    assert list(by_solver) == ["stradask", "quick", "slow"]
    spread, best = solving.ratio_to_best(by_solver, 1e-4)
    assert (spread.low, spread.median, spread.high) == pytest.approx((1 / 3, 1 / 2, 2 / 3))
    assert best == "quick"
    spread, best = solving.ratio_to_best(by_solver, 1e-6)
    assert (spread.low, spread.high) == (2 / 8, 4 / 8)
    assert best == "slow"


def test_the_table_says_what_was_not_reached_and_why(records):
    records.append(record("stuck", [(1e-4, 1.0, 1e-3)], over_time=True, repeat=0))
    lines = solving.table(records).splitlines()
    assert lines[0].split() == ["seconds", "stradask", "quick", "slow", "stuck", "ours", "/", "best", "peer"]
    assert lines[1].startswith("a /10 to gap 1e-4")
    assert lines[1].split()[5:] == [
        "1.50",
        "(1.00..2.00)",
        "3.00",
        "4.00",
        "stopped",
        "0.5",
        "(0.33..0.67)",
        "(quick)",
    ]
    assert lines[2].split()[7:9] == ["never", "8.00"]
    assert lines[-1] == "broken a /10: failed: <b>fell</b>"
    assert not any("other" in line for line in lines)


def test_a_target_that_one_side_misses_is_said_in_words():
    ours, peer = record("stradask", OURS, ours=True), record("peer", QUICK)
    rows = solving.seconds_table([ours, peer]).rows
    assert [row[-1] for row in rows] == ["0.33 (peer)", "no peer"]
    ours, peer = record("stradask", QUICK, ours=True), record("peer", OURS)
    rows = solving.seconds_table([ours, peer]).rows
    assert [row[-1] for row in rows] == ["3.00 (peer)", "not ours (peer)"]
    rows = solving.seconds_table([record("stradask", QUICK, ours=True), record("peer", QUICK)]).rows
    assert [row[-1] for row in rows] == ["1.00 (peer)", "-"]
    rows = solving.seconds_table([ours]).rows
    assert [row[-1] for row in rows] == ["-", "-"]


def test_memory_is_beside_what_rows_and_columns_allow(records):
    (memory, warm_up, setup), header, _ = solving.cost_table(records)
    assert header[1:] == ["stradask", "quick", "slow"]
    assert memory[0].endswith("32 a column: 2.00)")  # 2**14 * 64 + 2**15 * 32 bytes
    assert memory[1:] == ["30.0 (20.0..40.0)", "60.0", "160"]
    assert warm_up[1:] == ["0.5"] * 3
    assert setup[1:] == ["0.25"] * 3


def test_a_system_without_a_single_solve_has_a_line_of_its_own():
    stuck = record("stuck", [], over_time=True)
    text = solving.table([record("stradask", OURS, ours=True), stuck])
    assert "stopped" in text
    assert solving.result_of(stuck).endswith("0 solves, least gap nan, then stopped")


def path(solver, errors, alpha, **changes):
    solves = [
        solve(1e-4, 2.0, 1e-9, errors=[error * 1.1 for error in errors], alpha=alpha),
        solve(1e-6, 5.0, 1e-9, errors=errors, alpha=alpha),
    ]
    return record(solver, solves, problem="3 x 5", measure="tolerance", **changes)


def test_paths_are_compared_at_equal_tolerances_and_by_their_curves():
    records = [path("stradask", [4.0, 2.0, 1.0], 0.5, ours=True), path("peer", [4.0, 2.0, 1.02], 0.25)]
    rows = solving.seconds_table(records).rows
    assert [row[0] for row in rows] == ["a 3 x 5 at tolerance 1e-4", "a 3 x 5 at tolerance 1e-6"]
    # The gap of the last fit would have let the loose solve stand for the tight one.
    assert [row[1] for row in rows] == ["2.00", "5.00"]
    curves = solving.agreement_table(records).rows
    assert [row[0].rpartition(" ")[2] for row in curves] == ["stradask", "stradask", "peer", "peer"]
    # To the median of the two tight curves, 1.01 at the last penalty.
    assert [row[1] for row in curves] == ["1.0e-01", "9.9e-03", "1.1e-01", "9.9e-03"]
    assert [row[2] for row in curves] == ["0.2500", "0.2500", "0.1250", "0.1250"]


def test_the_front_keeps_what_nothing_beats_in_both():
    np = pytest.importorskip("numpy")
    points = np.array([[3.0, 1e-3], [1.0, 1e-1], [2.0, 1e-3], [2.5, 1e-2], [4.0, 1e-5]])
    assert solving.front(points).tolist() == [[1.0, 1e-1], [2.0, 1e-3], [4.0, 1e-5]]
    assert solving.front(np.empty((0, 2))).shape == (0, 2)


def test_a_problem_that_all_solve_exactly_is_drawn():
    pytest.importorskip("matplotlib")
    exact = [record("stradask", [(1e-2, 1.0, 0.0)], ours=True), record("quick", [(1e-2, 2.0, 0.0)])]
    text = solving.page(exact).html()
    assert "/10 to 1e-6: 0.5 times the seconds of the best peer, quick" in text


def test_the_page_shows_each_data_set_and_escapes_what_it_is_told(records, tmp_path):
    pytest.importorskip("matplotlib")
    records += [path("stradask", [2.0, 1.0], 0.5, ours=True), path("slow", [2.0, 1.0], 0.5)]
    for other in records[-2:]:
        other["data"] = other["data"] | {"name": "path"}
    text = solving.page(records).write(tmp_path / "report.html").read_text()
    assert text.count("<img") == 1  # the path has no gaps to be drawn
    assert "/10 to 1e-4: 0.5 times the seconds of the best peer, quick" in text
    assert "&lt;b&gt;fell&lt;/b&gt;" in text
    assert "&lt;abacus &amp; co&gt;" in text
    assert "path 3 x 5 at tolerance 1e-6" in text
    for page in ([records[0]], [records[6]]):  # without ours; and with nothing at all
        assert solving.page(page).html().endswith("</html>\n")


def test_the_family_tells_which_table_and_page_its_records_have():
    pytest.importorskip("matplotlib")
    assert run.view_of("lasso") is run.view_of("sparse-logistic") is solving
    assert run.view_of("lda") is training


def test_limits_that_differ_are_all_told():
    settings = {"intercept": False, "n_jobs": 1}
    several = [record("s", SLOW, settings=settings | {"max_seconds": limit}) for limit in (5.0, 12.0, 6.0)]
    assert solving.setting(several).endswith("stopped: beyond 5 to 12 s, by data set.")
    assert solving.setting(several[:1]).endswith("stopped: beyond 5 s.")
