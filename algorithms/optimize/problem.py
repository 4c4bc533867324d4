"""What a minimiser is given, checked: functions of parameters of any form, as functions of one vector."""

import hashlib
from typing import Any

import numpy as np

from ...errors import DataError, shortened
from ..inputs.matrices import check_takes
from ..inputs.pieces import is_dask
from .space import as_numbers, checked_start
from .trees import Tree

_PIECE = 1 << 17  # numbers read at a time


class Problem:
    """An objective of `minimize` with its start, bounds and penalty.

    `x0`: a vector, which may be Dask's. `low`, `high`: vectors, or None without bounds. `l1`: None, a number
    or a vector. `function`, `hessp`: of a portion and flat vectors; `hessp` may be None.

    Raises DataError: For what cannot be used.
    """

    def __init__(self, fun_and_grad, x0, args=(), bounds=None, l1=0.0, hessp=None):
        self.args = _checked_args(args)
        self._check_function("fun_and_grad", fun_and_grad, ["portion", "x"])
        self.given = fun_and_grad
        self.form = Tree(np.broadcast_to(0.0, len(x0)) if is_dask(x0) else x0, "x0")
        self.nested = not self.form.is_plain
        self.x0 = self.form.flat(x0, "x0") if self.nested else x0
        self.size = self.form.size
        self.l1 = self._checked_weights(l1)
        self.low: Any = None
        self.high: Any = None
        if bounds is not None:
            self.low, self.high = self._checked_bounds(bounds)
        self.function = OfVector(fun_and_grad, self.args, self.form) if self.nested or args else fun_and_grad
        self.hessp = hessp
        if hessp is not None:
            self._check_function("hessp", hessp, ["portion", "x", "v"])
            if bounds is not None or self.l1 is not None:
                raise DataError("hessp goes neither with bounds nor with l1: leave it out, or them")
            self.hessp = ProductOfVector(hessp, self.args, self.form) if self.nested or args else hessp

    def start(self):
        """Return x0 as a vector of its own, checked."""
        x = checked_start(self.x0) if not self.nested else self.x0.copy()
        bad = np.flatnonzero(~np.isfinite(x))
        if len(bad):
            raise DataError(f"x0 must be finite, but {self.form.address(bad[0], 'x0')} is {x[bad[0]]}")
        if not len(x):
            raise DataError("x0 must hold at least one number")
        if self.low is not None:
            out = np.flatnonzero((x < self.low) | (x > self.high))
            if len(out):
                j = out[0]
                raise DataError(
                    f"x0 must lie within bounds, but {self.form.address(j, 'x0')} is {x[j]:g}, outside of "
                    f"[{self.low[j]:g}, {self.high[j]:g}]: begin from numpy.clip(x0, lower, upper)"
                )
        return x

    def outside(self, x):
        """Return a flat vector in the form that x0 has."""
        return self.form.nested(x) if self.nested and x is not None else x

    def options(self):
        """Return what `minimize_lbfgs` is to know."""
        if self.low is None:
            return {"l1": self.l1}
        return {"bounds": (self.low, self.high, self._linear())}

    def identity(self):
        """Return what a checkpoint is compared by; the portions are not read."""
        digest = hashlib.blake2b(digest_size=16)
        for vector in (self.x0, np.atleast_1d(0.0 if self.l1 is None else self.l1)):
            _digested(digest, vector)
        identity = {
            "minimize": _name(self.given),
            "n_parameters": int(self.size),
            "x0_and_l1": digest.hexdigest(),
        }
        if self.low is not None:
            digest = hashlib.blake2b(digest_size=16)
            _digested(digest, self.low)
            _digested(digest, self.high)
            identity["bounds"] = digest.hexdigest()
        if self.hessp is not None:
            identity["hessp"] = True
        if self.args:
            from dask.base import tokenize

            identity["args"] = tokenize(self.args)
        return identity

    def _check_function(self, name, function, arguments):
        form = ", ".join([*arguments, *(["*args"] if self.args else [])])
        if not callable(function):
            raise DataError(f"{name} must be callable as {name}({form}), got {shortened(function)}")
        check_takes(name, function, *arguments, *(f"args[{i}]" for i in range(len(self.args))), shown=form)

    def _checked_weights(self, l1):
        if self.nested and (isinstance(l1, (dict, list, tuple)) or np.ndim(l1)):
            weights = self.form.spread(l1, "l1")
        else:
            weights = as_numbers("l1", l1)
        if weights.ndim and weights.shape != (self.size,):
            raise DataError(f"l1 must be a number or {self.size} weights, got the shape {weights.shape}")
        if not (weights.min(initial=0.0) >= 0 and weights.max(initial=0.0) < np.inf):
            raise DataError("l1 must be finite and not negative: a number, or one weight a parameter")
        if not weights.any():
            return None
        return weights if weights.ndim else float(weights)

    def _checked_bounds(self, bounds):
        if self.nested:
            low, high = self.form.bounds(bounds, "bounds")
        elif hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            low, high = (_ends(side, end, self.size) for side, end in (("lb", bounds.lb), ("ub", bounds.ub)))
        else:
            low, high = _pairs(bounds, self.size)
        for wrong, text in (
            (np.isnan(low) | np.isnan(high), "is not a number: for no bound give None"),
            (low > high, "has its lower end above its upper one"),
            ((low == np.inf) | (high == -np.inf), "leaves no finite number"),
        ):
            if wrong.any():
                j = int(np.flatnonzero(wrong)[0])
                raise DataError(f"{self.form.address(j, 'bounds')}, ({low[j]:g}, {high[j]:g}), {text}")
        return low, high

    def _linear(self):
        """The l1 penalty as the weights of a linear term, which it is where x keeps its sign."""
        if self.l1 is None:
            return None
        l1 = np.broadcast_to(self.l1, (self.size,))
        both = np.flatnonzero((l1 > 0) & (self.low < 0) & (self.high > 0))
        if len(both):
            raise DataError(
                f"l1 and bounds go together where x keeps its sign, but {self.form.address(both[0], 'x')} "
                f"has the bounds ({self.low[both[0]]:g}, {self.high[both[0]]:g}): write it as the difference "
                "of two parameters that are not negative, or set its weight in l1 to 0"
            )
        return np.where(self.low >= 0, l1, -l1)


class OfVector:
    """``fun_and_grad(portion, x, *args)`` with x in its own form, as a function of a portion and a vector."""

    def __init__(self, fun_and_grad, args, form):
        self.fun_and_grad, self.args, self.form = fun_and_grad, args, form

    def __call__(self, portion, x):
        """Return the value, and the gradient as a vector."""
        answer = self.fun_and_grad(portion, self.form.nested(x), *self.args)
        if self.form.is_plain or not isinstance(answer, tuple) or len(answer) != 2:
            return answer
        return answer[0], self.form.flat(answer[1], "the gradient")


class ProductOfVector:
    """``hessp(portion, x, v, *args)`` likewise."""

    def __init__(self, hessp, args, form):
        self.hessp, self.args, self.form = hessp, args, form

    def __call__(self, portion, x, v):
        """Return the product as a vector."""
        product = self.hessp(portion, self.form.nested(x), self.form.nested(v), *self.args)
        return product if self.form.is_plain else self.form.flat(product, "the product")


def _checked_args(args):
    if not isinstance(args, (tuple, list)):
        raise DataError(f"args must be a tuple of further arguments, got {shortened(args)}: write (value,)")
    return tuple(args)


def _pairs(bounds, n):
    try:
        pairs = [(None, None) if pair is None else tuple(pair) for pair in bounds]
    except TypeError:
        pairs = None
    if pairs is None or len(pairs) != n or any(len(pair) != 2 for pair in pairs):
        raise DataError(
            f"bounds must be scipy.optimize.Bounds or {n} pairs (lower, upper), one a parameter, got "
            f"{shortened(bounds)}"
        )
    low = [-np.inf if low is None else low for low, _ in pairs]
    high = [np.inf if high is None else high for _, high in pairs]
    return as_numbers("bounds", low), as_numbers("bounds", high)


def _ends(side, end, n):
    end = as_numbers(f"bounds.{side}", end)
    if end.shape not in ((), (1,), (n,)):
        raise DataError(f"bounds.{side} must be a number or {n} numbers, got the shape {end.shape}")
    return np.broadcast_to(end, (n,)).copy()


def _digested(digest, vector):
    for start in range(0, len(vector), _PIECE):
        digest.update(np.asarray(vector[start : start + _PIECE], np.float64).tobytes())


def _name(function):
    return getattr(function, "__qualname__", type(function).__qualname__)
