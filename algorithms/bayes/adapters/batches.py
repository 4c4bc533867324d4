"""A density of Python that evaluates several points in one call, which chains in step then share."""

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.bayes.callback import callback_together
from ..models.called import CALLBACK, address_in_c, vector_at
from ..models.named import PythonModel


@dataclass(frozen=True, eq=False)
class BatchModel(PythonModel):
    """A model with ``batch(Q) -> (log densities, gradients)`` for points (n, d).

    The call, not the arithmetic, is what small densities cost. Rounding may depend on the points that are
    evaluated together, so the same chains always are.
    """

    batch: Any = None
    in_one_group = True

    def __post_init__(self):
        super().__post_init__()
        failures, d = vars(self)["_failures"], self.n_params

        def call(places, _, n):
            of_Q, of_G, of_logps = (ctypes.c_int64 * 3).from_address(ctypes.addressof(places.contents))
            Q, G = (vector_at(place, n * d).reshape(n, d) for place in (of_Q, of_G))
            logps = vector_at(of_logps, n)
            if failures.has_ended():
                logps[:] = np.nan
                return 0.0
            try:
                logps[:], G[:] = self.batch(Q.copy())
                for value in logps[np.isnan(logps)]:
                    failures.note_value(value)
            except BaseException as error:
                G[:] = np.nan
                logps[:] = failures.note(error, Q[0].copy())
            return 0.0

        pointer = CALLBACK(call)
        meta = np.array([self.meta[0], address_in_c(pointer)], dtype=np.int64)
        self.__dict__.update(meta=meta, _of_several=pointer)

    @property
    def together(self):
        """See `Model`."""
        return callback_together

    def without_data(self):
        """Return the model without its functions, which hold the data."""
        return replace(self, function=None, batch=None)
