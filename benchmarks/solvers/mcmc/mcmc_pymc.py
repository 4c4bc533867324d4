"""PyMC: NUTS, chains one after another."""


class Solver:
    """`pymc.sample` with PyMC's own NUTS and its defaults; the graph is compiled beforehand."""

    name = "pymc"
    method = "NUTS (PyTensor)"
    requires = ("pymc==5.28.5", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the model; a few draws compile its functions, which PyTensor keeps."""
        from _mcmc_pymc import build

        self.kind = str(data.kind)
        self.model = build(self.kind, data)
        self._draw(n_samples=10, n_warmup=10)

    def _draw(self, n_samples, n_warmup):
        import logging

        import pymc as pm

        logging.getLogger("pymc").setLevel(logging.ERROR)
        with self.model:
            return pm.sample(
                draws=n_samples,
                tune=n_warmup,
                chains=self.settings.n_chains,
                cores=1,
                random_seed=self.settings.seed,
                progressbar=False,
                compute_convergence_checks=False,
            ).posterior

    def sample(self):
        """Chains of the whole posterior."""
        from _mcmc_pymc import judged

        posterior = self._draw(self.settings.n_samples, self.settings.n_warmup)
        return {"draws": judged(self.kind, {name: posterior[name].values for name in posterior.data_vars})}
