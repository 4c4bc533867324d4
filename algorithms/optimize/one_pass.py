"""One pass over rows that have just come: steps of one replica of Downpour's, from where the last ended."""

from typing import NamedTuple

import numpy as np

from ...scheduler.parameters import stream
from .._streams import Purpose
from .downpour import ReplicaSettings, found_rate, steps
from .minibatches import n_rows_of, take_rows


class Passed(NamedTuple):
    """Where a pass has ended.

    Attributes: `x`, `squares`: array (n_parameters,); parameters, and Adagrad's sums of squared gradients.
    `loss`: the mean over the minibatches, each before its step; NaN where a value or a gradient was not
    finite, `x` being the last good point.
    """

    x: np.ndarray
    squares: np.ndarray
    rate: float
    loss: float


def one_pass(fun_and_grad, x, squares, portion, *, learning_rate, batch_size, seed, number):
    """Take a step of Adagrad's for each minibatch of a portion, all of its rows once in a drawn order.

    `x`, `squares`: array (n_parameters,); where the pass begins; zeros where no gradient has come. Not
    changed. `portion`: array, sparse matrix, or tuple of them. `learning_rate`: gamma; None looks for one, as
    `minimize_downpour` does. `batch_size`: the last minibatch takes what is left. `seed`, `number`: of the
    order: what comes later has another number.
    """
    settings = ReplicaSettings(
        fun_and_grad=fun_and_grad, n_parameters=len(x), batch_size=batch_size, seed=seed
    )
    rate = learning_rate
    if rate is None:
        rate = found_rate(settings, x, settings.batches(portion, 0))
    order = stream(seed, Purpose.ONE_PASS.value, number).permutation(n_rows_of(portion))
    starts = range(0, len(order), batch_size)
    minibatches = (take_rows(portion, order[start : start + batch_size]) for start in starts)
    x, squares, losses = steps(settings, rate, x, squares, minibatches)
    return Passed(x, squares, rate, float(np.mean(losses)) if len(losses) == len(starts) else np.nan)
