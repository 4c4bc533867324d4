"""The objective that is a sum over portions, computed by Sandblaster's passes."""

from collections.abc import Iterable

import numpy as np

from ...errors import DataError, WorkerLost, shortened
from ...scheduler.parameters import ATTEMPTS
from ...scheduler.sums.passes import open_passes
from ...scheduler.sums.summed import Summed
from ...scheduler.workers import open_session
from ..inputs.pieces import delayed_blocks, is_dask
from .methods.lbfgs import minimize_lbfgs


def as_portions(portions):
    """Return the portions as a list; a Dask array or DataFrame falls into its chunks of rows.

    Raises DataError: If there are none, or an array is chunked along another axis, too.
    """
    if is_dask(portions):
        if not hasattr(portions, "to_delayed"):
            raise DataError(f"portions is a single {type(portions).__name__}: give a list of them")
        pieces = delayed_blocks(portions, "portions")
    else:
        if isinstance(portions, (str, bytes)) or not isinstance(portions, Iterable):
            raise DataError(f"portions must be a sequence, one entry a portion, got {shortened(portions)}")
        pieces = list(portions)
    if not pieces:
        raise DataError("portions is empty: give at least one portion of the data")
    return pieces


class Sandblaster:
    """An objective f(x) = sum_i f_i(x) over portions, for the minimisers.

    Portions are loaded once, on threads of this process or on the workers of a Dask cluster (futures, delayed
    values and arrays, also within a tuple, list or dict, are not moved); each call is a pass over all of
    them. ``fun_and_grad(portion, x)`` must not change x, and runs on several threads at once.
    `deterministic`: on Dask, whether the sum has the same bits for any workers; locally it always has.
    ``hessp(portion, x, v)``: the product of a portion's Hessian at x and v, for `product`. `n_taken_over`:
    workers lost so far. Close it, or use it in a ``with``.
    """

    def __init__(
        self, fun_and_grad, portions, *, hessp=None, engine="local", n_jobs=None, deterministic=False
    ):
        program = Summed(fun_and_grad, as_portions(portions), hessp)
        self._passes = open_passes(open_session(engine, n_jobs), program, ordered=deterministic)

    def __call__(self, x):
        """Return value and gradient; raises `NonFiniteObjective` if a portion has none."""
        return self._passes.run(x)

    def product(self, x, v):
        """Return the product of the Hessian at x and v."""
        return self._passes.run(np.stack([x, v]))[1]

    @property
    def n_taken_over(self):
        """Workers lost so far."""
        return self._passes.n_taken_over

    def close(self):
        """Release the portions."""
        self._passes.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def run_whole(fun_and_grad, portions, x0, session, deterministic, each, states, options, hessp=None):
    """Minimise with vectors of this process; the parameters are those of `minimize`, checked.

    `each`: called with each `Iterate`; True stops. `options`: for `minimize_lbfgs`.
    """

    def after(iterate):
        if states is not None:
            states.take(iterate)
        return each(iterate)

    place = {"engine": session, "deterministic": deterministic}
    with Sandblaster(fun_and_grad, portions, hessp=hessp, **place) as objective:
        resume = None if states is None else states.load()
        if hessp is not None:
            options = options | {"product": objective.product}
        result = minimize_lbfgs(objective, x0, proves=True, callback=after, resume=resume, **options)
        if states is not None:
            states.finish()
    return _completed(result, objective.n_taken_over, session)


def run_sharded(fun_and_grad, portions, x0, session, deterministic, each, states, options):
    """As `run_whole`, with vectors in slices on the workers of a session."""
    from .sharded import ShardedProgram, ShardedSpace

    program = ShardedProgram(fun_and_grad, portions)
    try:
        space = ShardedSpace(session, program, len(x0), ordered=deterministic)
    except BaseException:
        session.close()
        raise
    last, lost, n_recoveries = None, 0, 0

    def after(iterate):
        nonlocal last, lost
        space.accept(iterate.x)
        last, lost = iterate.state(whole=False), 0
        if states is not None:
            states.take(iterate, space)
        return each(iterate)

    try:
        while True:
            try:
                x = space.recover() if lost else None
                if x is None:
                    last = None if states is None else states.load(space)
                    x = space.lay(x0) if last is None else last["x"]
                result = minimize_lbfgs(
                    space, x, space=space, proves=True, callback=after, resume=last, **options
                )
                if states is not None:
                    states.finish(space)
                result.x = space.published(result.x)
                result.jac = None if result.jac is None else space.published(result.jac)
                return _completed(result, n_recoveries, session)
            except WorkerLost:
                lost, n_recoveries = lost + 1, n_recoveries + 1
                if states is not None:
                    states.forget()
                if lost == ATTEMPTS:
                    raise
    finally:
        space.close()


def _completed(result, n_recoveries, session):
    result.n_recoveries, result.bytes_sent = n_recoveries, session.bytes_sent
    return result
