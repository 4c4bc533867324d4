"""Quality against time: one long run of a solver, whose states are judged when it has ended."""

import numpy as np

from ...errors import StradaskError
from .process import OverTime


def train_and_judge(turn, worker):
    """Run one solver once and judge its snapshots; return one outcome.

    Its ``status`` is "ok", with what the worker measured, or "failed", with the ``error``.
    """
    plan, objective = turn.plan, turn.objective
    limit = plan.time_limit or 60 + 5 * plan.seconds
    children = [0.0]
    try:
        worker.start()
        result = worker.about | worker.ask(
            {"checkpoints": plan.checkpoints(objective.n_states)},
            limit,
            meanwhile=lambda: children.append(worker.memory_of_children()),
        )
        result["peak_mb"] += max(children)
        for snapshot in result["snapshots"]:
            with np.load(worker.folder / snapshot.pop("file"), allow_pickle=False) as arrays:
                snapshot.update(objective.evaluate(arrays))
    except OverTime as error:
        said = f"{error}; {plan.seconds:g} s of training were asked for"
        return [{"status": "failed", "error": said}]
    except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays that cannot be judged
        return [{"status": "failed", "error": str(error)}]
    return [{"status": "ok"} | result]
