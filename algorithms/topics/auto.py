"""WarpLDA's order first, Gibbs sampling in the end: the sampler that follows K_d, the topics of a document.

While documents hold many topics, passes of WarpLDA's order bring the model forward at a part of the cost of
Gibbs sweeps, whose time grows with the topics of a document. Once documents have settled, on few topics or on
no fewer, or when three quarters of the sweeps are done, Gibbs sampling takes over: its counts are live, so
the assignments that the model is read from are draws of the posterior. Annealed sweeps are warp's.
"""

import numpy as np

from ...errors import ModelFileError
from ...scheduler.program import Outcome, Program
from ...scheduler.rotation import RotationSchedule
from ...scheduler.switching import SwitchSchedule
from .annealing import annealed_sweeps
from .document_rows import DENSE_TOPICS
from .gibbs import GibbsState
from .state import taken
from .warp import WarpState

LEAST_TOPICS = 64  # for fewer a Gibbs sweep is as cheap
_PASSES = (2, 4)  # pairs of passes a sweep, for dense rows and for lists: they do what a Gibbs sweep does
_FEW_TOPICS = 30.0  # K_d at which a Gibbs sweep over lists is cheaper than those passes
_SETTLED, _SPAN = 0.02, 10  # K_d has settled when it changes by no more than this part in so many sweeps
_LEAST_WARP = 5  # sweeps: documents begin with few topics
_SHARE = 0.75  # of all sweeps after which Gibbs sampling takes over anyway


class AutoState(Program):
    """A `WarpState`, and from some sweep on a `GibbsState`, of the same corpus.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, fits_priors, n_groups, folder
        See `CorpusState`.
    max_sweeps : int
        Sweeps in all.
    anneals : bool, default=False
        Whether the first sweeps are annealed (`annealing`).

    Attributes
    ----------
    current : WarpState or GibbsState
    ran : list of dict
        For each sampler that ran its ``name``, its first ``sweep`` (from 1) and ``topics_per_document``,
        the K_d that the sweep before met.
    """

    name, barrier, unit = "auto", "step", "token"

    def __init__(self, X, n_topics, alpha, beta, seed, *, max_sweeps, anneals=False, **options):
        self._make = (X, n_topics, alpha, beta, seed)
        self._options = options
        dense = n_topics <= DENSE_TOPICS
        self._few_topics = 0.0 if dense else _FEW_TOPICS
        self._last_warp = max(int(_SHARE * max_sweeps), 1)
        # Priors are fitted by Gibbs sampling alone: early counts of warp would make alpha too large.
        early = {name: value for name, value in options.items() if name != "fits_priors"}
        passes = _PASSES[not dense]
        early["annealed"] = annealed_sweeps(max_sweeps, passes) if anneals else 0
        self.current = WarpState(*self._make, passes=passes, **early)
        self.shards, self.n_blocks = self.current.shards, len(self.current.shards)
        self.measure_every = self.current.measure_every
        self.schedule = SwitchSchedule(self.current.schedule, RotationSchedule(self.n_blocks))
        self.ran = [{"name": "warp", "sweep": 1, "topics_per_document": None}]
        self._trace = []  # K_d of each sweep of warp

    # What the current state does ----------------------------------------------------------------------

    def __getattr__(self, name):
        if name.startswith("__") or "current" not in vars(self):
            raise AttributeError(name)
        return getattr(self.current, name)

    def load(self, group):
        """See `CorpusState`."""
        return self.current.load(group)

    def publish(self):
        """See `CorpusState`."""
        return self.current.publish()

    def sync(self, state, totals):
        """See `CorpusState`."""
        self.current.sync(state, totals)

    def update(self, state, task):
        """Do a step of the current sampler."""
        return self.current.update(state, task)

    def aggregate(self, tasks, partials):
        """Take over what the current sampler did; after a sweep, go over to Gibbs sampling if it is time."""
        outcome = self.current.aggregate(tasks, partials)
        if not outcome.updates or len(self.ran) > 1:
            return outcome
        self._trace.append(float(self.current.topics_per_document))
        if not self._is_time():
            return outcome
        after = {"name": "gibbs", "sweep": tasks[0].round + 2, "topics_per_document": self._trace[-1]}
        self.ran.append(after)
        self.current = self._gibbs(self.current)
        return Outcome(self.current.totals, updates=outcome.updates, priorities=np.ones(1))

    def _is_time(self):
        swept, now = len(self._trace) - self.current.annealed, self._trace[-1]
        few = swept >= _LEAST_WARP and now <= self._few_topics
        # All of the last sweeps, because K_d rises at first and then falls: two alone agree across its peak.
        recent = self._trace[-1 - _SPAN :]
        settled = swept > _SPAN and max(recent) - min(recent) <= _SETTLED * now
        return few or settled or len(self._trace) >= self._last_warp

    def _gibbs(self, before):
        """A Gibbs state with the topics and priors of the one before."""
        X, n_topics, *_, seed = self._make
        after = GibbsState(X, n_topics, before.alpha, before.beta, seed, **self._options)
        after.begin_from(before.topics)
        return after

    def measure(self, state):
        """See `CorpusState`."""
        return self.current.measure(state)

    def objective(self, parts):
        """See `CorpusState`."""
        return self.current.objective(parts)

    # Keeping ------------------------------------------------------------------------------------

    def arrays(self):
        """See `CorpusState`."""
        sweeps = np.array([part["sweep"] for part in self.ran], np.int64)
        return {"ran_sweep": sweeps, "ran_trace": np.array(self._trace)} | self.current.arrays()

    def restore(self, arrays):
        """See `CorpusState`."""
        own = {name: array for name, array in arrays.items() if not name.startswith("ran_")}
        sweeps, trace = taken(arrays, "ran_sweep", "ran_trace")
        if not self._could_have_run(sweeps, trace):
            raise ModelFileError(
                "the checkpoint's samplers are not those of these parameters; remove the folder to start anew"
            )
        self._trace = trace.tolist()
        if len(sweeps) > 1 and len(self.ran) == 1:
            self.current = self._gibbs(self.current)
        found = [None, *self._trace[-1:]]
        parts = zip(("warp", "gibbs"), sweeps.tolist(), found, strict=False)
        self.ran = [{"name": n, "sweep": s, "topics_per_document": f} for n, s, f in parts]
        self.current.restore(own)

    def _could_have_run(self, sweeps, trace):
        """Whether warp from the first sweep on, and Gibbs after the last of the trace, can be what ran."""
        fits = sweeps.dtype == np.int64 and trace.dtype == np.float64 and sweeps.ndim == trace.ndim == 1
        fits = fits and bool((np.isfinite(trace) & (trace >= 1) & (trace <= self._make[1])).all())
        return fits and sweeps.tolist() in ([1], [1, len(trace) + 1] if len(trace) else [1])
