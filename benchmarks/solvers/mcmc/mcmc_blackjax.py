"""BlackJAX: window adaptation and NUTS, in double precision, chains one after another."""

import numpy as np


class Solver:
    """`blackjax.window_adaptation`, then `blackjax.nuts` in a scan, on the density of NumPyro's model.

    What JAX compiles belongs to the lengths: a whole chain before the timed ones does that.
    """

    name = "blackjax"
    method = "NUTS (JAX)"
    requires = ("blackjax==1.7.1", "numpyro==0.22.0", "jax==0.10.2", "numpy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Make the density and compile one chain."""
        import blackjax
        import jax
        from _mcmc_numpyro import MODELS, arrays
        from numpyro.infer.util import initialize_model

        self.kind, self.data = str(data.kind), arrays(data)
        made = initialize_model(
            jax.random.PRNGKey(0), MODELS[self.kind], model_kwargs=self.data, dynamic_args=True
        )
        # The data are an argument, as constants they would be folded into the program.
        potential, constrain = made.potential_fn, made.postprocess_fn

        def chain(key, start, data):
            def logp(q):
                return -potential(**data)(q)

            key_warm_up, key_draws = jax.random.split(key)
            warm_up = blackjax.window_adaptation(blackjax.nuts, logp)
            (state, tuning), _ = warm_up.run(key_warm_up, start, self.settings.n_warmup)
            kernel = blackjax.nuts(logp, **tuning)

            def step(state, key):
                state, _ = kernel.step(key, state)
                return state, state.position

            keys = jax.random.split(key_draws, self.settings.n_samples)
            return jax.vmap(constrain(**data))(jax.lax.scan(step, state, keys)[1])

        self.start, self.chain = made.param_info.z, jax.jit(chain)
        self._run(self.settings.seed)

    def _run(self, seed):
        import jax

        keys = jax.random.split(jax.random.PRNGKey(seed), self.settings.n_chains)
        chains = [self.chain(key, self.start, self.data) for key in keys]
        return {name: np.stack([np.asarray(chain[name]) for chain in chains]) for name in chains[0]}

    def sample(self):
        """Chains of the whole posterior."""
        from _mcmc_numpyro import judged

        return {"draws": judged(self.kind, self._run(self.settings.seed + 1))}
