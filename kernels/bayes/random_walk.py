"""Random-walk Metropolis: a normal step in the coordinates z, of the size ``tuning[0]``.

It needs no gradient; the gradient at the draws is kept all the same, because ways of combining shards use it.
Coordinates and arguments: see ``hmc``.

References: Metropolis, Rosenbluth, Rosenbluth, Teller, Teller, Journal of Chemical Physics 1953. Gelman,
Roberts, Gilks, "Efficient Metropolis jumping rules", Bayesian Statistics 5, 1996.
"""

import numba as nb

from .hmc import acceptance, decide, evaluate
from .streams import CALLED, fill_normal


@nb.njit(**CALLED)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One proposal and the decision; returns the log density where the chain then is."""
    q, g, new_z, new_gz = work[0], work[1], work[2], work[3]
    fill_normal(stream, new_z)
    for i in range(len(z)):
        new_z[i] = z[i] + tuning[0] * new_z[i]
    new_logp = evaluate(density, new_z, new_gz, q, g, mu, A, data, meta)
    gain = new_logp - logp
    info[0], info[1], info[2], info[3], info[4] = acceptance(gain), 1.0, 0.0, 0.0, -logp
    return decide(z, gz, logp, new_z, new_gz, new_logp, gain, stream)
