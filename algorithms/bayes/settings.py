"""The parameters that `sample` and the Bayesian regressions share, and their checks."""

import os
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from dask.base import normalize_token
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import Engine, FileName, RandomState
from ...errors import DataError, shortened
from ...scheduler.parameters import check_count, random_source
from ...scheduler.threads import effective_n_jobs
from ...scheduler.workers import check_engine
from .._base import ENGINES, Estimator
from .chains.sampling import SAMPLER_NAMES, SEARCH_MODES, TUNED_BY_ACCEPTANCE, check_metric, check_settings
from .combine.combiners import COMBINERS
from .posterior.draws import Posterior

_COUNT = Interval(Integral, 1, None, closed="left")
# For scikit-learn's validation of estimators.
CONSTRAINTS: dict[str, list] = {
    "n_samples": [_COUNT],
    "n_chains": [_COUNT],
    "n_warmup": [_COUNT],
    "target_accept": [Interval(Real, 0, 1, closed="neither")],
    "sampler": [StrOptions(set(SAMPLER_NAMES))],
    "n_shards": [StrOptions({"auto"}), _COUNT],
    "combine": [StrOptions(COMBINERS.keys())],  # a view: entries may be added
    "n_proposals": [_COUNT],
    "engine": ENGINES,
    "checkpoint": [None, str, os.PathLike],
    "n_jobs": [None, Integral],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


@dataclass(kw_only=True, eq=False, repr=False)
class SamplerParameters:
    """How a posterior is sampled, for `sample` and for estimators; see `BayesianLogisticRegression`."""

    n_samples: int = 1000
    n_chains: int = 4
    n_warmup: int = 1000
    target_accept: float = 0.8
    sampler: str = "auto"
    n_shards: int | str = 1
    combine: str = "auto"
    n_proposals: int = 4000
    engine: Engine = "local"
    checkpoint: FileName | None = None
    n_jobs: int | None = None
    random_state: RandomState | None = None
    verbose: int = 0


class SampledEstimator(SamplerParameters, Estimator):
    """Base of the Bayesian regressions and `BayesianGLM`: `posterior_`, and how it was sampled.

    Parameters are the fields of data classes, each declared once with its default.
    """

    _state_attributes: tuple[str, ...] = ("_posterior_state",)
    _posterior_state: dict[str, Any]

    @property
    def posterior_(self) -> Posterior:
        """The draws: a `Posterior`."""
        if "_posterior_state" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no 'posterior_': it is not fitted yet")
        if "_posterior" not in vars(self):
            self._posterior = Posterior.from_state(self._posterior_state)
        return self._posterior

    def __dask_tokenize__(self):
        """Identify a model by its fit too: Dask takes data classes for their fields alone."""
        return normalize_token((type(self), self.__getstate__()))

    def _keep(self, posterior, samplers):
        """Keep the draws and the names of the samplers of all shards."""
        self.sampler_ = ", ".join(sorted(set(samplers)))
        self._posterior_state, self._posterior = posterior.state(), posterior


@dataclass(kw_only=True, eq=False, repr=False)
class SamplingSettings(SamplerParameters):
    """The parameters of one run, checked; see `sample`."""

    callback: Any = None
    metric: str = "auto"

    def checked(self):
        """Return the settings; raise a DataError for the first that is unknown or out of range."""
        if not isinstance(self.combine, str) or self.combine not in COMBINERS:
            raise DataError(
                f"combine={shortened(self.combine)} is unknown: take one of {', '.join(COMBINERS)}"
            )
        automatic = isinstance(self.n_shards, str) and self.n_shards == "auto"
        if not automatic and (isinstance(self.n_shards, bool) or not isinstance(self.n_shards, Integral)):
            raise DataError(f"n_shards must be 'auto' or an integer, got {shortened(self.n_shards)}")
        check_settings(self.sampler, **self.counts)
        check_metric(self.metric)
        if self.metric != "auto" and self.sampler in SEARCH_MODES:
            raise DataError(
                f"metric={shortened(self.metric)} has no effect on sampler={shortened(self.sampler)}, whose "
                "coordinates are those of the modes: take sampler='nuts', or leave metric='auto'"
            )
        check_count("n_proposals", self.n_proposals)
        effective_n_jobs(self.n_jobs)
        if not isinstance(self.target_accept, Real) or not 0 < self.target_accept < 1:
            raise DataError(
                f"target_accept must be a number between 0 and 1, got {shortened(self.target_accept)}"
            )
        if not isinstance(self.verbose, Integral):
            raise DataError(f"verbose must be a whole number, got a {type(self.verbose).__name__}")
        check_engine(self.engine)
        _check_checkpoint(self.checkpoint, self.random_state)
        return self

    def check_combines(self):
        """Refuse a sampler whose draws cannot be combined."""
        if self.sampler in ("laplace", "smc"):
            kind = "weighted draws" if self.sampler == "laplace" else "populations of the whole"
            raise DataError(f"sampler={self.sampler!r} gives {kind}, which no combination takes: n_shards=1")

    @cached_property
    def seed(self):
        """The seed of all random numbers, taken from `random_state` once."""
        return int(random_source(self.random_state).randint(2**31))

    @property
    def counts(self):
        """Draws and chains, as samplers take them."""
        return {"n_samples": self.n_samples, "n_chains": self.n_chains, "n_warmup": self.n_warmup}

    @property
    def target(self):
        """The acceptance that step sizes are adapted to; None leaves it to the sampler."""
        return self.target_accept if self.sampler in ("auto", "smc", *TUNED_BY_ACCEPTANCE) else None


def _check_checkpoint(checkpoint, random_state):
    """Refuse a checkpoint without a seed, whose files would never be found again."""
    if checkpoint is not None and (
        isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer))
    ):
        raise DataError(
            f"checkpoint={shortened(str(checkpoint), 200)} needs random_state to be an integer, by which a "
            f"later run finds the files; got {shortened(random_state)}"
        )
