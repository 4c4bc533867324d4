"""The models of `stradask.benchmarks.mcmc_cases` in NumPyro, for the solvers that take them."""

import numpy as np


def arrays(data):
    """Return the arguments of a model, as arrays of JAX in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    names = {"logistic": ("X", "y"), "eight-schools": ("y", "s")}.get(str(data.kind), ("y",))
    return {name: jax.numpy.asarray(getattr(data, name)) for name in names}


def logistic(X, y):
    """Normal priors."""
    import numpyro
    from numpyro import distributions as dist

    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)


def schools(y, s):
    """Eight schools, not centred."""
    import numpyro
    from numpyro import distributions as dist

    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([8]).to_event(1))
    numpyro.sample("y", dist.Normal(mu + tau * z, s), obs=y)


def poisson_gamma(y):
    """The rates integrated out."""
    import numpyro
    from numpyro import distributions as dist

    a, b = (numpyro.sample(name, dist.LogNormal(0, 1)) for name in ("a", "b"))
    numpyro.sample("y", dist.GammaPoisson(a, b), obs=y)


def mixture(y):
    """Two normal components, the second above the first."""
    import numpyro
    from jax.nn import sigmoid
    from jax.numpy import stack
    from numpyro import distributions as dist

    m = numpyro.sample("m", dist.Normal(0, 5))
    gap, s = (numpyro.sample(name, dist.LogNormal(0, 1)) for name in ("gap", "s"))
    w = sigmoid(numpyro.sample("logit", dist.Normal(0, 1.5)))
    parts = dist.Normal(stack([m, m + gap]), s)
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(probs=stack([w, 1 - w])), parts), obs=y)


MODELS = {"logistic": logistic, "eight-schools": schools, "poisson-gamma": poisson_gamma, "mixture": mixture}


def judged(kind, values):
    """Put side by side what is judged."""
    if kind == "logistic":
        return values["b"]
    if kind == "eight-schools":
        return np.stack([values["mu"], np.log(values["tau"])], axis=-1)
    if kind == "poisson-gamma":
        return np.stack([np.log(values["a"]), np.log(values["b"])], axis=-1)
    return np.stack([values["m"], np.log(values["gap"]), np.log(values["s"]), values["logit"]], axis=-1)
