"""The base of estimators that sample a posterior: they keep it, and their files do."""

from typing import Any

from dask.base import normalize_token

from .._base import Estimator
from .posterior.draws import Posterior
from .settings import SamplerParameters


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
