"""When WarpLDA's order hands over to Gibbs sampling, and what ran, with K_d, the topics of a document."""

import numpy as np

from ....errors import ModelFileError
from ..rules import WARP_SWEEPS
from .restoring import taken

_SHARE = 3  # fourths of the sweeps of a fit that keeps draws, after which Gibbs sampling takes over anyway


class Handover:
    """The samplers that ran, and whether it is time to hand over.

    Attributes
    ----------
    ran : list of dict
        See `LatentDirichletAllocation.sampler_`.
    trace : list of float
        K_d of each sweep of warp.
    """

    def __init__(self, n_topics, sweeps=None):
        self.n_topics = n_topics
        self._warp_sweeps = WARP_SWEEPS if sweeps is None else min(WARP_SWEEPS, max(_SHARE * sweeps // 4, 1))
        self.trace: list[float] = []
        self._write([1])

    def _write(self, sweeps):
        found = [None, *self.trace[-1:]]
        parts = zip(("warp", "gibbs"), sweeps, found, strict=False)
        self.ran = [{"name": n, "sweep": s, "topics_per_document": f} for n, s, f in parts]

    @property
    def done(self):
        """Whether Gibbs sampling has taken over."""
        return len(self.ran) > 1

    def after(self, topics_per_document):
        """Take in what a sweep of warp met; return whether it was the last one."""
        self.trace.append(float(topics_per_document))
        if len(self.trace) >= self._warp_sweeps:
            self._write([1, len(self.trace) + 1])
        return self.done

    def arrays(self):
        """Arrays of a checkpoint."""
        sweeps = np.array([part["sweep"] for part in self.ran], np.int64)
        return {"ran_sweep": sweeps, "ran_trace": np.array(self.trace)}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint; return those of the sampler that runs."""
        sweeps, trace = taken(arrays, "ran_sweep", "ran_trace")
        if not self._could_have_run(sweeps, trace):
            raise ModelFileError(
                "the checkpoint's samplers are not those of these parameters; remove the folder to start anew"
            )
        self.trace = trace.tolist()
        self._write(sweeps.tolist())
        return {name: array for name, array in arrays.items() if not name.startswith("ran_")}

    def _could_have_run(self, sweeps, trace):
        """Whether warp from the first sweep on, and Gibbs after the last of the trace, can be what ran."""
        fits = sweeps.dtype == np.int64 and trace.dtype == np.float64 and sweeps.ndim == trace.ndim == 1
        fits = fits and bool((np.isfinite(trace) & (trace >= 1) & (trace <= self.n_topics)).all())
        return fits and sweeps.tolist() in ([1], [1, len(trace) + 1] if len(trace) else [1])
