"""The density of a PyMC model that PyTensor compiles by numba: the compiled sampler calls it without Python.

PyTensor's numba mode makes one function of numba of a graph. It takes arrays, whose addresses and shapes are
in `meta`: shards have one compiled density.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.bayes.address import VECTOR, anything, caller_of
from ....kernels.bayes.callback import callback
from ....kernels.options import BARE
from ..models.called import OPTIONS, CompiledCalls, guarded
from ..models.fingerprint import fingerprint
from ..models.named import shape_at


@dataclass(frozen=True, eq=False)
class PyTensorDensity(CompiledCalls):
    """The likelihood of some rows, and the prior to the power ``data[0]``.

    `own` are the `Functions` of the adapter, `rows` a tuple of arrays; None is a model without a density.
    """

    own: Any = None
    rows: tuple | None = None

    @property
    def n_own(self):
        """See `CompiledCalls`."""
        return len(self.meta) if self.rows is None else sum(1 + x.ndim for x in self._arrays)

    @property
    def _arrays(self):
        return vars(self)["_kept"]

    def __post_init__(self):
        if self.rows is not None:
            kept = self.own.arrays(self.rows)
            places = [number for x in kept for number in (x.ctypes.data, *x.shape)]
            density, meta = self.own.compiled[3], np.array(places, np.int64)
            self.__dict__.update(_kept=kept, density=density, meta=meta)
        super().__post_init__()

    def again(self, q):
        """See `CompiledCalls`."""
        self.own.likelihood(q, self.rows)
        self.own.prior(q)

    def values(self, Q):
        """The model's own parameters."""
        return self.own.constrain(self._points(Q))

    def without_data(self):
        """Return the model without its density, which holds the data."""
        return replace(self, density=callback, meta=np.zeros(0, np.int64), rows=None)

    def identity(self):
        """All that the density depends on, for digests."""
        functions = fingerprint((self.own.likelihood, self.own.prior))
        return functions, self.rows, float(self.data[0]), self.names, self.start

    def __getstate__(self):
        """Leave the compiled density, which is made anew from the model."""
        return super().__getstate__() | {"density": callback}


def compiled_density(likelihood, prior, of_likelihood, of_prior):
    """Put two functions of numba, ``f(q, *arrays) -> (value, gradient)``, together; `prior` may be None.

    The dtypes and numbers of axes of the arrays of each follow. Their addresses and shapes are the first
    numbers of `meta`, then those of the functions for evaluations that failed, and for NaN.
    """
    import numba as nb

    first = sum(1 + n for _, n in of_likelihood)
    last = first + sum(1 + n for _, n in of_prior)
    rows, fixed = _arrays_of(of_likelihood, 0), _arrays_of(of_prior, first)
    likelihood = _called(likelihood, of_likelihood)
    prior = None if prior is None else _called(prior, of_prior)

    @nb.njit(**OPTIONS)
    def of_rows(q, g, meta):
        value, slope = likelihood(q, rows(meta))
        for i in range(len(g)):
            g[i] = slope[i]
        return value.item()

    if prior is None:
        return guarded(nb.njit(**OPTIONS)(lambda q, g, data, meta: of_rows(q, g, meta)), last)

    @nb.njit(**OPTIONS)
    def both(q, g, data, meta):
        total, power = of_rows(q, g, meta), data[0]
        value, slope = prior(q, fixed(meta))
        for i in range(len(g)):
            g[i] += power * slope[i]
        return total + power * value.item()

    return guarded(both, last)


def _called(graph, kinds):
    """The function ``(q, arrays)`` that calls a graph, which takes any number of arrays."""
    import numba as nb

    arrays = [nb.types.Array(nb.from_dtype(np.dtype(dtype)), n, "C") for dtype, n in kinds]
    taken = nb.njit(nogil=True, **BARE)(lambda q, arrays: graph(q, *arrays))
    return caller_of(taken, VECTOR, nb.types.Tuple(arrays))


def _arrays_of(kinds, place):
    """A compiled function that makes a tuple of arrays of the numbers of `meta` from a place on."""
    import numba as nb

    options: dict[str, Any] = {"nogil": True} | BARE
    if not kinds:
        return nb.njit(**options)(lambda meta: ())
    (dtype, n_axes), *others = kinds
    at: Any = anything
    kind, after = np.dtype(dtype), place + 1 + n_axes
    rest = _arrays_of(others, after)
    if n_axes == 0:

        @nb.njit(**options)
        def array(meta):
            return nb.carray(at(meta[place]), (1,), kind).reshape(())

    else:
        shape = shape_at(place + 1, n_axes)

        @nb.njit(**options)
        def array(meta):
            return nb.carray(at(meta[place]), shape(meta), kind)

    @nb.njit(**options)
    def arrays(meta):
        return (array(meta), *rest(meta))

    return arrays
