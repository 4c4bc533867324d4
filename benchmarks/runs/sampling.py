"""Draws of a posterior: a solver is called once for each problem, and the objective scores the draws."""

from ...errors import StradaskError


def draw_and_judge(turn, worker):
    """Ask one solver for all problems of an objective that it offers; return one outcome for each.

    An outcome has ``problem``, ``status`` ("ok", "refused" or "failed"), seconds, and what the judge found.
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
            figures, arrays = worker.call(problem.call, problem.arguments, limit, max_calls=1, budget=0.0)
            judged = objective.evaluate(problem, arrays)
        except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays of the wrong kind
            outcome |= {"status": "failed", "error": str(error)}
        else:
            status = {"status": "refused" if "refused" in judged else "ok"}
            outcome |= status | worker.about | figures | judged
    return outcomes
