"""Autocovariances of chains: by a transform, or at small lags by their sums, which is all that most need."""

import numba as nb
import numpy as np
from scipy import fft

from .. import one_form

# Sums over draws in the order that suits the processor's vectors.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract"}}


def autocovariances(x, n_lags):
    """Compute ``sum_t x_t x_(t + k) / n``, averaged over chains, for lags k below `n_lags`: (d, n_lags).

    x (d, chains, n) holds each chain less its mean; `n_lags` is n for all lags.
    """
    n = x.shape[2]
    if n_lags < n:
        return _near(x, n_lags)
    length = fft.next_fast_len(2 * n, real=True)
    waves = fft.rfft(x, length)
    power = (waves.real**2 + waves.imag**2).mean(axis=1)  # of all chains: the transform back is linear
    return fft.irfft(power, length)[:, :n] / n


@one_form.njit(nb.float64[:, ::1](nb.float64[:, :, ::1], nb.int64), **_OPTIONS)
def _near(x, n_lags):
    d, chains, n = x.shape
    out = np.zeros((d, n_lags))
    for i in range(d):
        for c in range(chains):
            for k in range(n_lags):
                total = 0.0
                for t in range(n - k):
                    total += x[i, c, t] * x[i, c, t + k]
                out[i, k] += total
    return out / (chains * n)
