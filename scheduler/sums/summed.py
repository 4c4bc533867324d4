"""A value and a gradient that are sums over portions of data, as a program."""

import math
import sys
import time
from typing import NamedTuple

import numpy as np

from ...errors import DataError, StradaskError, in_brief, shortened
from ..program import Program
from ..threads import computed_here
from .portions import TreeSum


class NonFiniteObjective(StradaskError, ArithmeticError):
    """An objective or gradient that is not finite; the message says where."""


class Trouble(NamedTuple):
    """What is wrong with a portion, instead of a partial sum."""

    portion: int
    what: str


class Summed(Program):
    """A value and a gradient that are sums over portions of the data, its shards.

    ``fun_and_grad(portion, x)`` returns a number and a vector as long as x, and must not change x. Dask
    collections in a portion are computed on its worker. With ``hessp(portion, x, v)`` a pass over a matrix of
    the rows x and v gives the sum of the products of the Hessians at x and v.
    """

    def __init__(self, fun_and_grad, portions, hessp=None):
        self.fun_and_grad, self.shards, self.hessp = fun_and_grad, portions, hessp

    def load(self, data):
        """Return the portion; in a session of this process, Dask collections in it are computed."""
        return computed_here(data)[0] if "dask" in sys.modules else data

    def renew(self, state):
        """Nothing changes a portion."""
        return state

    def portion(self, number, state, x):
        """Evaluate one portion and check the result; numpy raises if x is written into."""
        read_only = x.view()
        read_only.flags.writeable = False
        if x.ndim == 2:
            return self._product(number, state, *read_only)
        answer = _called("fun_and_grad", number, self.fun_and_grad, state, read_only)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise DataError(
                f"fun_and_grad must return a value and a gradient, got {shortened(answer)} in portion "
                f"{number}"
            )
        value, gradient = _real(number, *answer)
        if gradient.shape != x.shape:
            raise DataError(
                f"fun_and_grad returned a gradient of shape {gradient.shape} in portion {number}; x has the "
                f"shape {x.shape}"
            )
        if not math.isfinite(value):
            return Trouble(number, f"the objective is {value}")
        with np.errstate(over="ignore", invalid="ignore"):
            finite = math.isfinite(gradient.sum()) or np.isfinite(gradient).all()
        return (value, gradient) if finite else Trouble(number, "the gradient is not finite")

    def _product(self, number, state, x, v):
        """The product of a portion's Hessian and v, with the number 0."""
        product = _called("hessp", number, self.hessp, state, x, v)
        product = _real(number, 0.0, product, "hessp must return a vector of numbers")[1]
        if product.shape != x.shape:
            raise DataError(
                f"hessp returned an array of shape {product.shape} in portion {number}; x has the shape "
                f"{x.shape}"
            )
        if not np.isfinite(product).all():
            return Trouble(number, "the product with the Hessian is not finite")
        return 0.0, product

    def partial(self, states, x, first, last, current, ordered=True):
        """Sum portions `first` to `last`, as a node of the tree; or return a `Trouble`.

        None if ``current()`` has become false meanwhile: no caller waits for the answer any more.
        """
        total = TreeSum(last - first, ordered=ordered)
        for number in range(first, last):
            if not current():
                return None
            found = self.portion(number, states[number], x)
            if isinstance(found, Trouble):
                return found
            total.add(number - first, 1, *found)
        return total.value, total.vector

    def kind(self, x):
        """Name the passes that take about as long as this."""
        return "product" if np.ndim(x) == 2 else ""

    def answer_bytes(self, x):
        """Bytes of a portion's vector."""
        return x.nbytes // x.ndim

    def answer(self, worker_state, round_, first, last, ordered):
        """On a worker: the partial sum of an order, and the seconds it took."""
        began = time.perf_counter()
        message, x = worker_state.message
        if message != round_:
            return None, math.nan
        found = self.partial(
            worker_state.states, x, first, last, lambda: worker_state.message[0] == round_, ordered
        )
        return found, math.nan if found is None else time.perf_counter() - began


def _called(name, number, function, *arguments):
    """Call a function of the user's; what it raises says for which portion."""
    try:
        return function(*arguments)
    except Exception as error:
        error.add_note(f"raised by {name} in portion {number}")
        raise


def _real(number, value, gradient, wanted="fun_and_grad must return a number and a vector of numbers"):
    """Return value and gradient in double precision."""
    try:
        if np.iscomplexobj(gradient):
            raise TypeError("complex numbers in the gradient")
        return float(value), np.asarray(gradient, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{wanted}, got {shortened(value, 40)} and {shortened(gradient)} in portion {number}: "
            f"{in_brief(error)}"
        ) from error


def raise_trouble(trouble):
    """Raise the `Trouble` of a portion."""
    raise NonFiniteObjective(f"{trouble.what} in portion {trouble.portion}")
