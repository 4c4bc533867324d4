"""Twelve models of posteriordb, and a Student regression, in NumPyro; BlackJAX takes its densities from here.

Names of sites are those of the Stan programs. Parameters with flat priors are improper, as there.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

numpyro.enable_x64()


def _flat(name, size):
    return numpyro.sample(name, dist.ImproperUniform(constraints.real, (), (size,)))


def _flat_scale():
    return numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))


def _columns(*columns):
    return np.column_stack([np.asarray(column, float) for column in columns])


def kidiq(d):
    """Test scores on two columns and their product."""
    hs, iq = (np.asarray(d[name], float) for name in ("mom_hs", "mom_iq"))
    X, y = _columns(np.ones(d["N"]), hs, iq, hs * iq), np.asarray(d["kid_score"], float)

    def model(X, y):
        sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
        numpyro.sample("y", dist.Normal(X @ _flat("beta", 4), sigma), obs=y)

    return model, {"X": X, "y": y}


def _linear(X, y):
    def model(X, y):
        beta, sigma = _flat("beta", X.shape[1]), _flat_scale()
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)

    return model, {"X": X, "y": y}


def earnings(d):
    """Logarithms of earnings."""
    male, height = np.asarray(d["male"], float), np.asarray(d["height"], float)
    return _linear(_columns(np.ones(d["N"]), height, male, height * male), np.log(d["earn"]))


def mesquite(d):
    """Logarithms of leaf weights."""
    names = ("diam1", "diam2", "canopy_height", "total_height", "density")
    logged = [np.log(d[name]) for name in names]
    return _linear(_columns(np.ones(d["N"]), *logged, d["group"]), np.log(d["weight"]))


def nes(d):
    """Party identification."""
    ages = [np.asarray(d["age_discrete"]) == level for level in (2, 3, 4)]
    X = _columns(np.ones(d["N"]), d["real_ideo"], d["race_adj"], *ages, d["educ1"], d["gender"], d["income"])
    return _linear(X, np.asarray(d["partyid7"], float))


def autoregression(d):
    """Order K, given the first K values."""
    y, K = np.asarray(d["y"], float), d["K"]
    X = _columns(*(y[K - k : len(y) - k] for k in range(1, K + 1)))

    def model(X, y):
        alpha = numpyro.sample("alpha", dist.Normal(0, 10))
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([X.shape[1]]))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
        numpyro.sample("y", dist.Normal(alpha + X @ beta, sigma), obs=y)

    return model, {"X": X, "y": y[K:]}


def vote(d):
    """Votes on income."""

    def model(x, y):
        alpha = numpyro.sample("alpha", dist.ImproperUniform(constraints.real, (), ()))
        numpyro.sample("y", dist.BernoulliLogits(alpha + x * _flat("beta", 1)[0]), obs=y)

    return model, {"x": np.asarray(d["income"], float), "y": np.asarray(d["vote"])}


def poisson(d):
    """Counts on a cubic of the year."""
    year = np.asarray(d["year"], float)

    def model(X, y):
        alpha = numpyro.sample("alpha", dist.Uniform(-20, 20))
        beta = [numpyro.sample(f"beta{k}", dist.Uniform(-10, 10)) for k in (1, 2, 3)]
        numpyro.sample("y", dist.Poisson(jnp.exp(alpha + X @ jnp.stack(beta))), obs=y)

    return model, {"X": _columns(year, year**2, year**3), "y": np.asarray(d["C"])}


def schools(d):
    """Eight schools, not centred."""

    def model(y, sigma):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        z = numpyro.sample("theta_trans", dist.Normal(0, 1).expand([len(y)]))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)

    return model, {name: np.asarray(d[name], float) for name in ("y", "sigma")}


def radon(d, centred):
    """Intercepts of counties, in either form."""
    n_counties = d["J"]

    def model(X, county, y):
        mu = numpyro.sample("mu_alpha", dist.Normal(0, 10))
        spread = numpyro.sample("sigma_alpha", dist.HalfNormal(1))
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([2]))
        sigma = numpyro.sample("sigma_y", dist.HalfNormal(1))
        if centred:
            alpha = numpyro.sample("alpha", dist.Normal(mu, spread).expand([n_counties]))
        else:
            z = numpyro.sample("alpha_raw", dist.Normal(0, 1).expand([n_counties]))
            alpha = numpyro.deterministic("alpha", mu + spread * z)
        numpyro.sample("y", dist.Normal(alpha[county] + X @ beta, sigma), obs=y)

    columns = _columns(d["log_uppm"], d["floor_measure"])
    county = np.asarray(d["county_idx"]) - 1
    return model, {"X": columns, "county": county, "y": np.asarray(d["log_radon"], float)}


def mixture(d):
    """Two normals in order."""

    def model(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
        numpyro.factor("prior", dist.Normal(0, 2).log_prob(mu).sum())
        sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]))
        theta = numpyro.sample("theta", dist.Beta(5, 5))
        one = jnp.log(theta) + dist.Normal(mu[0], sigma[0]).log_prob(y)
        two = jnp.log1p(-theta) + dist.Normal(mu[1], sigma[1]).log_prob(y)
        numpyro.factor("y", jnp.logaddexp(one, two).sum())

    return model, {"y": np.asarray(d["y"], float)}


def seeds(d):
    """Binomial counts, with an effect for each plate times its scale."""
    one, two = np.asarray(d["x1"], float), np.asarray(d["x2"], float)

    def model(X, n, N):
        names = ("alpha0", "alpha1", "alpha2", "alpha12")
        alpha = jnp.stack([numpyro.sample(name, dist.Normal(0, 1000)) for name in names])
        tau = numpyro.sample("tau", dist.Gamma(1e-3, 1e-3))
        sigma = numpyro.deterministic("sigma", tau**-0.5)
        z = numpyro.sample("b_raw", dist.Normal(0, 1).expand([len(n)]))
        b = numpyro.deterministic("b", sigma * z)
        numpyro.sample("n", dist.Binomial(N, logits=X @ alpha + b), obs=n)

    X = _columns(np.ones(d["I"]), one, two, one * two)
    return model, {"X": X, "n": np.asarray(d["n"]), "N": np.asarray(d["N"])}


def student(d):
    """The Student regression of ``peers.py``."""

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(0, 5).expand([X.shape[1]]))
        log_sigma = numpyro.sample("log_sigma", dist.Normal(0, 1))
        numpyro.sample("y", dist.StudentT(4, X @ beta, jnp.exp(log_sigma)), obs=y)

    return model, {name: np.asarray(d[name], float) for name in ("X", "y")}


MODELS = {
    "kidiq-kidscore_interaction": kidiq,
    "earnings-logearn_interaction": earnings,
    "mesquite-logmesquite": mesquite,
    "nes1972-nes": nes,
    "arK-arK": autoregression,
    "nes_logit_data-nes_logit_model": vote,
    "GLM_Poisson_Data-GLM_Poisson_model": poisson,
    "eight_schools-eight_schools_noncentered": schools,
    "radon_mn-radon_hierarchical_intercept_centered": lambda d: radon(d, centred=True),
    "radon_mn-radon_hierarchical_intercept_noncentered": lambda d: radon(d, centred=False),
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "seeds_data-seeds_model": seeds,
    "student": student,
}


class NumPyro:
    """Chains one after another; the model is compiled for the data, once."""

    def __init__(self, name, data, counts, *, dense=False):
        from numpyro.infer import MCMC, NUTS

        model, self.data = MODELS[name](data)
        self.mcmc = MCMC(
            NUTS(model, dense_mass=dense),
            num_warmup=counts["n_warmup"],
            num_samples=counts["n_samples"],
            num_chains=counts["n_chains"],
            chain_method="sequential",
            progress_bar=False,
        )

    def sample(self, seed):
        """Return draws by name, and the numbers of gradients of the draws."""
        self.mcmc.run(jax.random.PRNGKey(seed), extra_fields=("num_steps",), **self.data)
        samples = self.mcmc.get_samples(group_by_chain=True)
        steps = int(self.mcmc.get_extra_fields(group_by_chain=True)["num_steps"].sum())
        return {name: np.asarray(values) for name, values in samples.items()}, {"gradients": steps}


class BlackJAX:
    """Window adaptation and NUTS in one compiled function of a chain."""

    def __init__(self, name, data, counts):
        import blackjax
        from numpyro.infer.util import initialize_model

        model, self.data = MODELS[name](data)
        made = initialize_model(jax.random.PRNGKey(0), model, model_kwargs=self.data, dynamic_args=True)
        potential, constrain = made.potential_fn, made.postprocess_fn
        self.start, self.n_chains = made.param_info.z, counts["n_chains"]

        def chain(key, start, data):
            def logp(q):
                return -potential(**data)(q)

            key_warm_up, key_draws = jax.random.split(key)
            warm_up = blackjax.window_adaptation(blackjax.nuts, logp)
            (state, tuning), before = warm_up.run(key_warm_up, start, counts["n_warmup"])
            kernel = blackjax.nuts(logp, **tuning)

            def step(state, key):
                state, info = kernel.step(key, state)
                return state, (state.position, info.num_integration_steps)

            keys = jax.random.split(key_draws, counts["n_samples"])
            positions, steps = jax.lax.scan(step, state, keys)[1]
            draws = jax.vmap(constrain(**data))(positions)
            return draws, steps.sum(), before.info.num_integration_steps.sum()

        self.chain = jax.jit(chain)

    def sample(self, seed):
        """Return draws by name, and the numbers of gradients."""
        keys = jax.random.split(jax.random.PRNGKey(seed), self.n_chains)
        draws, steps, before = zip(*(self.chain(key, self.start, self.data) for key in keys), strict=True)
        stacked = {name: np.stack([np.asarray(one[name]) for one in draws]) for name in draws[0]}
        counted = {"gradients": sum(map(int, steps)), "warm_up_gradients": sum(map(int, before))}
        return stacked, counted
