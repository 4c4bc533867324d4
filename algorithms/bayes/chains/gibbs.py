"""Which models Gibbs sampling knows: linear regression with normal noise and a normal or flat prior."""

from ....errors import DataError
from ....kernels.bayes import gibbs as bayes_gibbs
from ....kernels.bayes import glm as bayes_glm
from ....kernels.bayes import priors as bayes_priors


def check_conjugate(model):
    """Check that every block of a model can be drawn exactly given the others.

    Parameters
    ----------
    model : Model

    Raises
    ------
    DataError
        For any other than a linear regression with normal noise and normal prior.
    """
    normal = model.density is bayes_glm.linear
    if not normal or model.meta[bayes_priors.PRIOR] != bayes_priors.NORMAL:
        raise DataError(
            "sampler='gibbs' takes linear regression with normal noise and prior='normal', without groups, "
            "whose conditional distributions can be drawn exactly: take sampler='auto' here"
        )


def run(model, q, name, n):
    """Make `n` draws from q on, as `kernels.bayes_chain.run` returns them."""
    check_conjugate(model)
    return bayes_gibbs.run(q, name, n, model.data, model.meta)
