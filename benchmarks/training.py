"""Quality against time: one long run of a solver, whose states are judged when it has ended."""

import numpy as np

from ..errors import StradaskError
from .process import OverTime, WorkerProcess


def train_and_judge(plan, objective, solver, repeat, python, data, folder):
    """Run one solver once and judge its snapshots; return one outcome.

    Parameters
    ----------
    plan : Plan
    objective : object
        As `stradask.benchmarks.objectives` describes.
    solver : SolverFile
    repeat : int
    python : Path
        The solver's interpreter.
    data, folder : Path
        Folders of the objective's arrays and for this run.

    Returns
    -------
    list of dict
        ``status`` "ok" and what the worker measured, or "failed" and the ``error``.
    """
    job = {
        "procedure": "training",
        "settings": objective.settings() | {"n_jobs": plan.n_jobs, "seed": plan.seed + repeat},
        "checkpoints": plan.checkpoints(objective.n_states),
    }
    limit = plan.time_limit or 60 + 5 * plan.seconds
    try:
        with WorkerProcess(python, solver, job, data=data, folder=folder, n_jobs=plan.n_jobs) as worker:
            children = [0.0]
            result = worker.answer(limit, meanwhile=lambda: children.append(worker.memory_of_children()))
        result["peak_mb"] += max(children)
        for snapshot in result["snapshots"]:
            with np.load(folder / snapshot.pop("file"), allow_pickle=False) as arrays:
                snapshot.update(objective.evaluate(arrays))
    except OverTime as error:
        said = f"{error}; {plan.seconds:g} s of training were asked for"
        return [{"status": "failed", "error": said}]
    except (StradaskError, ValueError, KeyError) as error:  # the latter two: arrays that cannot be judged
        return [{"status": "failed", "error": str(error)}]
    return [{"status": "ok"} | result]
