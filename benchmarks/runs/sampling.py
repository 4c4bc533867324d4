"""Draws of a posterior: a solver is asked once for each problem, and what it gives is judged outside."""

from ...errors import StradaskError


def draw_and_judge(turn, asked):
    """Ask one solver for all problems of an objective that it offers; return one outcome for each.

    Parameters
    ----------
    turn : Turn
    asked : Asked

    Returns
    -------
    list of dict
        ``problem``, ``status`` ("ok", "refused" or "failed"), seconds, CPU seconds, and what the judge found.
    """
    plan, objective, solver = turn.plan, turn.objective, turn.solver
    outcomes = []
    for problem in objective.problems():
        if problem.call not in solver.calls:
            continue
        outcome = {"problem": problem.name}
        outcomes.append(outcome)
        limit = plan.seconds * plan.n_jobs
        try:
            figures, arrays = asked.call(problem.call, problem.arguments, limit, max_calls=1, budget=0.0)
            judged = objective.evaluate(problem, arrays)
        except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays of the wrong kind
            outcome |= {"status": "failed", "error": str(error)}
        else:
            status = {"status": "refused" if "refused" in judged else "ok"}
            outcome |= status | asked.told | figures | judged
    return outcomes
