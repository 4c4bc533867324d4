"""NumPyro: NUTS, in double precision, chains one after another."""

import numpy as np


class Solver:
    """`numpyro.infer.MCMC` with `NUTS` and its defaults.

    A run before the timed one compiles what NumPyro keeps. It keeps not all: on small data most of a run is
    compiling, for a user as here, and it is counted.
    """

    name = "numpyro"
    method = "NUTS (JAX; a run compiles in part)"
    requires = ("numpyro==0.22.0", "jax==0.10.2", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Make the model and compile."""
        import numpyro
        from _mcmc_numpyro import MODELS, arrays

        self.kind, self.data = str(data.kind), arrays(data)
        self.mcmc = numpyro.infer.MCMC(
            numpyro.infer.NUTS(MODELS[self.kind]),
            num_warmup=self.settings.n_warmup,
            num_samples=self.settings.n_samples,
            num_chains=self.settings.n_chains,
            chain_method="sequential",
            progress_bar=False,
        )
        self._run(self.settings.seed)

    def _run(self, seed):
        import jax

        self.mcmc.run(jax.random.PRNGKey(seed), **self.data)
        samples = self.mcmc.get_samples(group_by_chain=True)
        return {name: np.asarray(values) for name, values in samples.items()}

    def sample(self):
        """Chains of the whole posterior."""
        from _mcmc_numpyro import judged

        return {"draws": judged(self.kind, self._run(self.settings.seed + 1))}
