"""Quality against time: one long run of a solver, whose states are judged when it has ended."""

import numpy as np

from ...errors import StradaskError
from .process import OverTime


def train_and_judge(turn, asked):
    """Run one solver once and judge its snapshots; return one outcome.

    Parameters
    ----------
    turn : Turn
    asked : Asked

    Returns
    -------
    list of dict
        ``status`` "ok" and what the worker measured, or "failed" and the ``error``.
    """
    plan, objective = turn.plan, turn.objective
    limit = plan.time_limit or 60 + 5 * plan.seconds
    children = [0.0]
    try:
        asked.start()
        result = asked.told | asked.ask(
            {"checkpoints": plan.checkpoints(objective.n_states)},
            limit,
            meanwhile=lambda: children.append(asked.memory_of_children()),
        )
        result["peak_mb"] += max(children)
        for snapshot in result["snapshots"]:
            with np.load(asked.folder / snapshot.pop("file"), allow_pickle=False) as arrays:
                snapshot.update(objective.evaluate(arrays))
    except OverTime as error:
        said = f"{error}; {plan.seconds:g} s of training were asked for"
        return [{"status": "failed", "error": said}]
    except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays that cannot be judged
        return [{"status": "failed", "error": str(error)}]
    return [{"status": "ok"} | result]
