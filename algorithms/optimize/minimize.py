"""`minimize`: any objective that is a sum over portions of the data."""

import dataclasses
from collections.abc import Callable
from numbers import Integral
from typing import Any

from ..._typing import Callback, Engine, FileName
from ...errors import DataError
from ...scheduler.coordinator import coordinated, on_cluster
from ...scheduler.loop import Monitor, unmasked_interrupt
from ...scheduler.parameters import check_count
from ...scheduler.threads import single_threaded_blas
from ...scheduler.workers import open_session
from .methods.lbfgs import check_tolerances
from .problem import Problem
from .sandblaster import as_portions, run_sharded, run_whole
from .states import PieceStates, States


@coordinated
def minimize(
    fun_and_grad: Callable[..., Any],
    x0: Any,
    portions: Any,
    *,
    args: tuple = (),
    bounds: Any = None,
    l1: Any = 0.0,
    hessp: Callable[..., Any] | None = None,
    engine: Engine = "local",
    memory: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-6,
    tol_objective: float = 0.0,
    n_jobs: int | None = None,
    deterministic: bool = False,
    shard_from: int = 1_000_000,
    callback: Callback | None = None,
    checkpoint: FileName | None = None,
    checkpoint_every: int = 10,
    verbose: int = 0,
) -> Any:
    """Minimise sum_i f(portion_i, x) + sum_j l1_j abs(x_j), the portions computed on threads or on Dask.

    L-BFGS makes the steps (with `l1` OWL-QN, with `bounds` L-BFGS by projection, with `hessp` Newton's method
    by conjugate gradients), and each pass over the portions is Sandblaster's: idle workers take the next
    portion, slow ones are helped out near the end, a lost worker's portions are computed by the others in the
    same pass.

    Parameters
    ----------
    fun_and_grad : callable
        ``fun_and_grad(portion, x, *args)`` returns a number and its gradient, of the form of x, which is
        read-only: numpy raises ValueError where it is written into. It is called on several threads at once.
        `stradask.check_gradient` holds the gradient against differences.
    x0 : array-like of shape (n_parameters,), or nested dict, list or tuple of arrays
        Where to begin. x, gradients, `l1` and `bounds` have the same form: with ``{"W": ..., "b": ...}``
        `fun_and_grad` gets such a dict and returns one. An array may have any number of dimensions. A vector
        that is sharded may be a Dask array; it is read piece by piece.
    portions : sequence, Dask array or DataFrame
        What `fun_and_grad` takes: arrays, tuples of them, names of files... On a cluster each is sent once,
        to the worker where it stays; Dask's futures, delayed values and arrays are not moved. An
        array or DataFrame falls into its chunks of rows. Make them many more than there are threads.
    args : tuple, default=()
        Further arguments of `fun_and_grad` and `hessp`.
    bounds : scipy.optimize.Bounds or sequence of pairs, default=None
        Of a vector a pair (lower, upper) for each parameter; of another form of x0 the same form with a pair
        for each array, its ends numbers or arrays. None, for an end or a pair, is no bound. The objective is
        never computed outside. Takes about 4 memory^2 n_parameters operations a step where bounds hold.
    l1 : float or array-like of shape (n_parameters,), default=0.0
        Weights of the l1 penalty, of x0's form or one number; 0 for coordinates without. With `bounds` those
        of the penalised coordinates must not have both signs within.
    hessp : callable, default=None
        ``hessp(portion, x, v, *args)`` returns the product of the portion's Hessian at x and v, of the form
        of x. Newton's method then needs few steps, each with some passes for products. The objective need
        not be convex. Goes neither with `bounds` nor with `l1`.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or the address of
        a Dask scheduler.
    memory : int, default=10
        Pairs of vectors that L-BFGS keeps.
    max_iter : int, default=1000
        Steps.
    tol : float, default=1e-6
        Stop when the 2-norm of the gradient (with `l1` of the pseudo-gradient, with `bounds` of its part that
        no bound holds) is at most this part of that at `x0`, and the estimated excess of the objective over
        its minimum at most this part of the objective; or about 1e-16 where the minimum is 0. The estimate is
        that of the last steps, and then of products with the Hessian, which differences of gradients make in
        6 to 200 further passes: to the last steps alone a curved valley looks like a minimum.
    tol_objective : float, default=0.0
        Stop when a step lowers the objective by at most this part of itself; 0 never does.
    n_jobs : int or None, default=None
        Threads; on Dask of each worker, None for as many as it has.
    deterministic : bool, default=False
        On Dask: the same bits for any number of workers, also after losses. Locally it is always so.
    shard_from : int, default=1_000_000
        On Dask, from so many parameters on every vector is in slices on the workers, and this process
        sees only scalars. The result's vectors are then Dask arrays (numpy arrays where `engine` is an
        address). After the loss of a worker the minimiser goes on from the last point, without its pairs.
    callback : callable, default=None
        ``callback(iterate)`` after each step, with an `Iterate` of
        `stradask.algorithms.optimize.methods.lbfgs`; True stops.
    checkpoint : path-like, default=None
        Folder of states. If it holds one of the same problem, the minimiser goes on from it: bitwise as if it
        had not stopped, where sums have the same bits; sharded vectors keep the point only, not the pairs.
    checkpoint_every : int, default=10
        Steps between two states.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, ``fun``, ``jac`` (of the smooth part), ``nit``, ``nfev`` (passes, with those of `hessp`),
        ``success``, ``status`` (0: converged; 1: `max_iter`; 2: no lower point was found, or
        the objective falls without end; 3: `callback`; 4: the objective is not finite, x being the last good
        point), ``message``, ``history`` (dict of arrays objective, gradient_norm, passes, seconds; the first
        row is `x0`), ``n_recoveries`` (workers lost), ``bytes_sent``.

    Raises
    ------
    DataError
        For arguments that cannot be used, and a `fun_and_grad` that returns something else.
    CheckpointMismatch
        If `checkpoint` is of another problem.

    References
    ----------
    Dean et al., "Large scale distributed deep networks", NIPS 2012.

    Examples
    --------
    Logistic regression on three portions:

    >>> import numpy as np
    >>> from stradask.algorithms.optimize.minimize import minimize
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 4))
    >>> y = np.sign(X @ np.array([1.0, -2.0, 0.0, 0.5]) + rng.logistic(size=300))
    >>> def loss(portion, w):
    ...     X, y = portion
    ...     margin = y * (X @ w)
    ...     return np.logaddexp(0, -margin).sum(), -X.T @ (y / (1 + np.exp(margin)))
    >>> portions = [(X[rows], y[rows]) for rows in np.array_split(np.arange(300), 3)]
    >>> result = minimize(loss, np.zeros(4), portions, l1=5.0)
    >>> result.success, (result.x != 0).tolist()
    (True, [True, True, False, True])
    """
    problem = Problem(fun_and_grad, x0, args, bounds, l1, hessp)
    if not isinstance(verbose, Integral):
        raise DataError(f"verbose must be a whole number, got a {type(verbose).__name__}")
    check_tolerances(tol=tol, tol_objective=tol_objective)
    check_count("shard_from", shard_from)
    check_count("checkpoint_every", checkpoint_every)
    portions = as_portions(portions)
    options = {"memory": memory, "max_iter": max_iter, **problem.options()}
    options |= {"tol_gradient": tol, "tol_objective": tol_objective}
    session = open_session(engine, n_jobs)
    sharded = session.remote and problem.size >= shard_from
    if sharded and (bounds is not None or hessp is not None):
        session.close()
        raise DataError(
            f"bounds and hessp need the {problem.size} parameters in this process: set shard_from, now "
            f"{shard_from}, above that number, or leave them out"
        )
    if sharded and on_cluster():
        session.close()
        raise DataError(
            f"the {problem.size} parameters would stay on workers, which the process that calls must reach: "
            "set stradask.coordinator of Dask's configuration to 'client', or shard_from, now "
            f"{shard_from}, above that number"
        )
    start = problem.x0 if sharded else problem.start()
    states = None
    if checkpoint is not None:
        identity = problem.identity() | {"n_portions": len(portions), "memory": int(memory)}
        states = (PieceStates if sharded else States)(checkpoint, checkpoint_every, identity)
    bar = {"label": "minimize", "unit": "evaluation", "verbose": verbose, "holds_interrupt": False}
    with unmasked_interrupt(), single_threaded_blas(), Monitor(max_iter, **bar) as monitor:
        each = _reporter(problem, monitor, callback)
        common = problem.function, portions, start, session, deterministic, each, states, options
        result = run_sharded(*common) if sharded else run_whole(*common, problem.hessp)
        result.x, result.jac = problem.outside(result.x), problem.outside(result.jac)
        return result


def _reporter(problem, monitor, callback):
    """Make the function of each step: it records, and calls the callback with the user's form of x."""
    n_passes = 0

    def each(iterate):
        nonlocal n_passes
        updates, n_passes = iterate.nfev - n_passes, iterate.nfev
        monitor.record({"objective": iterate.fun, "updates": updates}, gap=iterate.gap)
        if callback is None:
            return False
        if problem.nested:
            form = {"x": problem.outside(iterate.x), "jac": problem.outside(iterate.jac)}
            iterate = dataclasses.replace(iterate, **form)
        return callback(iterate)

    return each
