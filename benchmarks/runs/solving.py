"""Time to a gap: a solver is asked for finer and finer tolerances until every target is met.

Libraries mean different things by their tolerance, so each is stepped by decades from loose to tight; the
steps before each target are halved twice, to a quarter of a decade, which finds the loosest (and cheapest)
tolerance that meets it. What a tolerance gives is judged here, by the objective, between the calls.
"""

import math

from ...errors import StradaskError
from .process import OverTime

MAX_CALLS = 3
BUDGET, QUICK_BUDGET = 0.5, 0.1  # a call is timed again until so many, or so many seconds, are spent
NEAR = 0.5  # a gap above this share of its target wastes nothing that halving could save
QUARTERS = 4  # steps in a decade of tolerances


def time_to_gaps(turn, worker):
    """Solve all problems of an objective with one solver; return one outcome for each.

    An outcome has ``problem``, ``measure``, ``targets``, ``status`` ("ok", "failed" or "not offered") and
    ``solves``: dicts of tolerance, seconds, CPU seconds, gap, ...; ``over_time``: whether a call was stopped.
    """
    plan, objective, solver = turn.plan, turn.objective, turn.solver
    outcomes = []
    for problem in objective.problems():
        outcome = {"problem": problem.name, "measure": problem.measure, "targets": problem.targets}
        outcome["solves"] = []
        outcomes.append(outcome)
        if problem.call not in solver.calls:
            outcome |= {"status": "not offered", "error": f"no {problem.call}"}
            continue
        limit = plan.seconds * problem.patience * plan.n_jobs
        try:
            budget = QUICK_BUDGET if plan.quick else BUDGET
            over_time = _solve(worker, objective, problem, limit, budget, outcome["solves"])
        except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays of the wrong kind
            outcome |= {"status": "failed", "error": str(error)}
        else:
            outcome |= {"status": "ok", "over_time": over_time} | worker.about
    return outcomes


def _solve(worker, objective, problem, limit, budget, solves):
    """Append the solves of one problem; return whether a call had to be stopped."""
    over_time = []

    def gap_at(tolerance):
        try:
            arguments = problem.arguments | {"tolerance": tolerance}
            # Within the budget the last timing starts.
            figures, arrays = worker.call(
                problem.call, arguments, limit + budget, max_calls=MAX_CALLS, budget=budget
            )
        except OverTime:
            over_time.append(tolerance)
            return None
        judged = objective.evaluate(problem, arrays)
        solves.append({"tolerance": tolerance} | figures | judged)
        return judged["gap"]

    if problem.measure == "gap":
        search(gap_at, problem.targets, worker.start()["tolerances"])
    else:
        for tolerance in problem.targets:
            gap_at(tolerance)
    return bool(over_time)


def search(gap_at, targets, tolerances):
    """Ask for tolerances by decades until all targets are met, and more finely where one was just met.

    ``gap_at`` solves with a tolerance and returns the gap, or None where it took too long; then the decade
    before is halved in the same way, towards the tightest tolerance that there is time for. `targets` fall;
    `tolerances` are the loosest and the tightest one, powers of ten.
    """
    first, last = (round(-QUARTERS * math.log10(tolerance)) for tolerance in tolerances)
    gaps: dict[int, float | None] = {}

    def ask(step):
        if step not in gaps:
            gaps[step] = gap_at(10.0 ** (-step / QUARTERS))
        return math.inf if gaps[step] is None else gaps[step]

    def in_time(step):
        ask(step)
        return gaps[step] is not None

    before = first
    for step in range(first, last + 1, QUARTERS):
        tight = step
        while not in_time(tight) and tight - before > 1:
            tight = (before + tight) // 2
        for target in targets:
            _refine(ask, before, tight, target)
        if ask(tight) <= targets[-1] or tight < step or not in_time(tight):
            return
        before = tight


def _refine(ask, misses, meets, target):
    """Halve the steps between one that misses a target and one that meets it; nothing if they do not."""
    # A gap just below the target leaves nothing to save.
    while ask(meets) < NEAR * target < target < ask(misses) and meets - misses > 1:
        middle = (meets + misses) // 2
        if ask(middle) <= target:
            meets = middle
        else:
            misses = middle
