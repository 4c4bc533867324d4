"""The models of `stradask.benchmarks.mcmc_cases` in PyMC, for the solvers that take them."""

import numpy as np


def build(kind, data):
    """Return the model of a kind."""
    import pymc as pm

    y = data.y
    with pm.Model() as model:
        if kind == "logistic":
            b = pm.Normal("b", 0, 2.5, shape=data.X.shape[1])
            pm.Bernoulli("y", logit_p=pm.math.dot(data.X, b), observed=y.astype(int))
        elif kind == "eight-schools":
            mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
            pm.Normal("y", mu + tau * pm.Normal("z", 0, 1, shape=8), data.s, observed=y)
        elif kind == "poisson-gamma":
            a, b = pm.LogNormal("a", 0, 1), pm.LogNormal("b", 0, 1)
            pm.NegativeBinomial("y", mu=a / b, alpha=a, observed=y.astype(int))
        else:
            m, gap, s = pm.Normal("m", 0, 5), pm.LogNormal("gap", 0, 1), pm.LogNormal("s", 0, 1)
            logit = pm.Normal("logit", 0, 1.5, initval=float(data.start[3]))
            m_at, gap_at = float(data.start[0]), float(np.exp(data.start[1]))
            model.set_initval(m, m_at)
            model.set_initval(gap, gap_at)
            parts = pm.Normal.dist(mu=pm.math.stack([m, m + gap]), sigma=s)
            w = pm.math.sigmoid(logit)
            pm.Mixture("y", w=pm.math.stack([w, 1 - w]), comp_dists=parts, observed=y)
    return model


def judged(kind, values):
    """Put side by side what is judged."""
    if kind == "logistic":
        return values["b"]
    if kind == "eight-schools":
        return np.stack([values["mu"], np.log(values["tau"])], axis=-1)
    if kind == "poisson-gamma":
        return np.stack([np.log(values["a"]), np.log(values["b"])], axis=-1)
    return np.stack([values["m"], np.log(values["gap"]), np.log(values["s"]), values["logit"]], axis=-1)
