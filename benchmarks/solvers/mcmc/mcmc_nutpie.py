"""nutpie: its NUTS, with its own adaptation, on PyMC's model compiled by numba."""


class Solver:
    """`nutpie.sample` with its defaults; the model is compiled beforehand."""

    name = "nutpie"
    method = "NUTS (Rust, numba)"
    requires = ("nutpie==0.16.8", "pymc==5.28.5", "numba", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the model and compile it."""
        import nutpie
        from _mcmc_pymc import build

        self.kind = str(data.kind)
        self.model = nutpie.compile_pymc_model(build(self.kind, data))
        self._draw(n_samples=10, n_warmup=50)

    def _draw(self, n_samples, n_warmup):
        import nutpie

        return nutpie.sample(
            self.model,
            draws=n_samples,
            tune=n_warmup,
            chains=self.settings.n_chains,
            cores=self.settings.n_jobs,
            seed=self.settings.seed,
            progress_bar=False,
        ).posterior

    def sample(self):
        """Chains of the whole posterior."""
        from _mcmc_pymc import judged

        posterior = self._draw(self.settings.n_samples, self.settings.n_warmup)
        return {"draws": judged(self.kind, {name: posterior[name].values for name in posterior.data_vars})}
