"""`minimize`: any objective that is a sum over portions of the data."""

import hashlib
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from ..._typing import ArrayLike, Callback, FileName
from ...errors import DataError, shortened
from ...scheduler.loop import Monitor, unmasked_interrupt
from ...scheduler.parameters import check_count
from ...scheduler.sessions.session import open_session
from ...scheduler.threads import single_threaded_blas
from ..inputs.matrices import check_takes
from .lbfgs import check_tolerances
from .sandblaster import as_portions, run_sharded, run_whole
from .space import as_numbers, checked_start
from .states import PieceStates, States

_PIECE = 1 << 17  # numbers read at a time


def minimize(
    fun_and_grad: Callable[..., Any],
    x0: ArrayLike,
    portions: Any,
    *,
    l1: float | ArrayLike = 0.0,
    engine: str = "local",
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

    L-BFGS (with `l1` OWL-QN) steers, and each pass over the portions is Sandblaster's: idle workers take
    the next portion, slow ones are helped out near the end, a lost worker's portions are computed by the
    others in the same pass.

    Parameters
    ----------
    fun_and_grad : callable
        ``fun_and_grad(portion, x)`` returns a number and its gradient, as long as x, which is
        read-only: numpy raises ValueError where it is written into. It is called on several threads at once.
    x0 : array-like of shape (n_parameters,)
        Where to begin. One that is sharded may be a Dask array; it is read piece by piece.
    portions : sequence, Dask array or DataFrame
        What `fun_and_grad` takes: arrays, tuples of them, names of files... On a cluster each is sent once,
        to the worker where it stays; Dask's futures, delayed values and arrays are not moved. An
        array or DataFrame falls into its chunks of rows. Make them many more than there are threads.
    l1 : float or array-like of shape (n_parameters,), default=0.0
        Weights of the l1 penalty; 0 for coordinates without.
    engine : str, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; or the address of a Dask
        scheduler.
    memory : int, default=10
        Pairs of vectors that L-BFGS keeps.
    max_iter : int, default=1000
        Steps.
    tol : float, default=1e-6
        Stop when the 2-norm of the gradient (with `l1` of the pseudo-gradient) is at most this part of that
        at `x0`.
    tol_objective : float, default=0.0
        Stop when a step lowers the objective by at most this part of itself; 0 never does.
    n_jobs : int or None, default=None
        Threads; on Dask of each worker, None for as many as it has.
    deterministic : bool, default=False
        On Dask: the same bits whatever the workers, and whoever of them is lost. Locally it is always so.
    shard_from : int, default=1_000_000
        On Dask, from so many parameters on every vector is in slices on the workers, and this process
        sees only scalars. The result's vectors are then Dask arrays (numpy arrays where `engine` is an
        address). After the loss of a worker the minimiser goes on from the last point, without its pairs.
    callback : callable, default=None
        ``callback(iterate)`` after each step, with an `Iterate` of `stradask.algorithms.optimize.lbfgs`; True
        stops.
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
        ``x``, ``fun``, ``jac`` (of the smooth part), ``nit``, ``nfev`` (passes), ``success``, ``status`` (0:
        converged; 1: `max_iter`; 2: no lower point was found, or the objective falls without end; 3:
        `callback`; 4: the objective is not finite, x being the last good point), ``message``, ``history``
        (dict of arrays objective, gradient_norm, passes, seconds; the first row is `x0`), ``n_recoveries``
        (workers lost), ``bytes_sent``.

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
    if not callable(fun_and_grad):
        raise DataError(
            f"fun_and_grad must be callable as fun_and_grad(portion, x), got {shortened(fun_and_grad)}"
        )
    check_takes("fun_and_grad", fun_and_grad, "portion", "x")
    if not isinstance(verbose, Integral):
        raise DataError(f"verbose must be a whole number, got a {type(verbose).__name__}")
    check_tolerances(tol=tol, tol_objective=tol_objective)
    check_count("shard_from", shard_from)
    check_count("checkpoint_every", checkpoint_every)
    portions = as_portions(portions)
    session = open_session(engine, n_jobs)
    sharded = session.remote and np.ndim(x0) == 1 and len(x0) >= shard_from
    if not sharded:
        x0 = checked_start(x0)
    l1 = _checked_weights(l1, len(x0))
    options = {"memory": memory, "l1": l1, "max_iter": max_iter}
    options |= {"tol_gradient": tol, "tol_objective": tol_objective}
    states = None
    if checkpoint is not None:
        identity = _fingerprint(fun_and_grad, x0, portions, l1, memory)
        states = (PieceStates if sharded else States)(checkpoint, checkpoint_every, identity)
    with (
        unmasked_interrupt(),
        single_threaded_blas(),
        Monitor(
            max_iter, label="minimize", unit="evaluation", verbose=verbose, holds_interrupt=False
        ) as monitor,
    ):
        n_passes = 0

        def each(iterate):
            nonlocal n_passes
            updates, n_passes = iterate.nfev - n_passes, iterate.nfev
            monitor.record({"objective": iterate.fun, "updates": updates}, gap=iterate.gap)
            return callback is not None and callback(iterate)

        problem = fun_and_grad, portions, x0, session, deterministic
        return (run_sharded if sharded else run_whole)(*problem, each, states, options)


def _checked_weights(l1, n):
    """Return None for no penalty, else a float or a vector."""
    weights = as_numbers("l1", l1)
    if weights.ndim and weights.shape != (n,):
        raise DataError(f"l1 must be a number or {n} weights, got the shape {weights.shape}")
    if not (weights.min() >= 0 and weights.max() < np.inf):
        raise DataError("l1 must be finite and not negative: a number, or one weight a parameter")
    if not weights.any():
        return None
    return weights if weights.ndim else float(weights)


def _fingerprint(fun_and_grad, x0, portions, l1, memory):
    """Identity of a checkpoint; the portions are not read."""
    digest = hashlib.blake2b(digest_size=16)
    for vector in (x0, np.atleast_1d(0.0 if l1 is None else l1)):
        for start in range(0, len(vector), _PIECE):
            digest.update(np.asarray(vector[start : start + _PIECE], np.float64).tobytes())
    return {
        "minimize": getattr(fun_and_grad, "__qualname__", type(fun_and_grad).__qualname__),
        "n_parameters": len(x0),
        "n_portions": len(portions),
        "memory": int(memory),
        "x0_and_l1": digest.hexdigest(),
    }
