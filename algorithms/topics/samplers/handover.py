"""When WarpLDA's order hands over to Gibbs sampling: by K_d, the topics of a document, sweep by sweep."""

import numpy as np

from ....errors import ModelFileError
from .list_layout import DENSE_TOPICS
from .restoring import taken

_PASSES = (2, 4)  # pairs of passes a sweep, for dense rows and for lists: they do what a Gibbs sweep does
_FEW_TOPICS = 30.0  # K_d at which a Gibbs sweep over lists is cheaper than those passes
_SETTLED, _SPAN = 0.02, 10  # K_d has settled when it changes by no more than this part in so many sweeps
_LEAST_WARP = 5  # sweeps: documents begin with few topics
_SHARE = 0.75  # of all sweeps after which Gibbs sampling takes over anyway


class Takeover:
    """The samplers that ran, and whether it is time to hand over.

    Attributes
    ----------
    passes : int
        Pairs of passes that a sweep of warp has.
    ran : list of dict
        See `LatentDirichletAllocation.sampler_`.
    trace : list of float
        K_d of each sweep of warp.
    """

    def __init__(self, n_topics, max_sweeps):
        dense = n_topics <= DENSE_TOPICS
        self.n_topics, self.passes = n_topics, _PASSES[not dense]
        self._few_topics = 0.0 if dense else _FEW_TOPICS
        self._last_warp = max(int(_SHARE * max_sweeps), 1)
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

    def after(self, topics_per_document, annealed):
        """Take in what a sweep of warp met, `annealed` of which are; return whether it was the last one."""
        self.trace.append(float(topics_per_document))
        if self.is_time(annealed):
            self._write([1, len(self.trace) + 1])
        return self.done

    def is_time(self, annealed):
        """Whether documents have settled, or the sweeps of warp are used up."""
        swept, now = len(self.trace) - annealed, self.trace[-1]
        few = swept >= _LEAST_WARP and now <= self._few_topics
        # All of the last sweeps, because K_d rises at first and then falls: two alone agree across its peak.
        recent = self.trace[-1 - _SPAN :]
        settled = swept > _SPAN and max(recent) - min(recent) <= _SETTLED * now
        return few or settled or len(self.trace) >= self._last_warp

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
