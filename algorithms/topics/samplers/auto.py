"""WarpLDA's order first, Gibbs sampling in the end: the sampler that follows K_d, the topics of a document.

While documents hold many topics, passes of WarpLDA's order bring the model forward at a part of the cost of
Gibbs sweeps, whose time grows with the topics of a document. Once documents have settled, on few topics or on
no fewer, or when three quarters of the sweeps are done, Gibbs sampling takes over (`Takeover`): its counts
are live, so the assignments that the model is read from are draws of the posterior. Annealed sweeps are
warp's.
"""

import numpy as np

from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.rotation import RotationSchedule
from ....scheduler.schedules.switching import SwitchSchedule
from .annealing import annealed_sweeps
from .gibbs import GibbsState
from .handover import Takeover
from .warp import WarpState


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
    takeover : Takeover
    """

    name, barrier, unit = "auto", "step", "token"

    def __init__(self, X, n_topics, alpha, beta, seed, *, max_sweeps, anneals=False, **options):
        self._make = (X, n_topics, alpha, beta, seed)
        self._options = options
        self.takeover = Takeover(n_topics, max_sweeps)
        passes = self.takeover.passes
        # Priors are fitted by Gibbs sampling alone: early counts of warp would make alpha too large.
        early = {name: value for name, value in options.items() if name != "fits_priors"}
        early["annealed"] = annealed_sweeps(max_sweeps, passes) if anneals else 0
        self.current = WarpState(*self._make, passes=passes, **early)
        self.shards, self.n_blocks = self.current.shards, len(self.current.shards)
        self.measure_every = self.current.measure_every
        self.schedule = SwitchSchedule(self.current.schedule, RotationSchedule(self.n_blocks))

    @property
    def ran(self):
        """What `LatentDirichletAllocation.sampler_` says."""
        return self.takeover.ran

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
        if not outcome.updates or self.takeover.done:
            return outcome
        if not self.takeover.after(self.current.topics_per_document, self.current.annealed):
            return outcome
        self.current = self._gibbs(self.current)
        return Outcome(self.current.totals, updates=outcome.updates, priorities=np.ones(1))

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
        return self.takeover.arrays() | self.current.arrays()

    def restore(self, arrays):
        """See `CorpusState`."""
        went_over = self.takeover.done
        own = self.takeover.restore(arrays)
        if self.takeover.done and not went_over:
            self.current = self._gibbs(self.current)
        self.current.restore(own)
