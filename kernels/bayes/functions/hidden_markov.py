"""Log likelihood of a hidden Markov model: the forward algorithm, and its derivatives by one pass back."""

import math

import numba as nb
import numpy as np

from ..streams import OPTIONS


@nb.njit(**OPTIONS)
def hidden_markov(start, transition, emissions, by_start=None, by_transition=None, by_emissions=None):
    """Return the log likelihood of a hidden Markov model, all paths of its states summed.

    ``L = sum over k_1 ... k_T of start[k_1] e_1(k_1) prod_t transition[k_(t-1), k_t] e_t(k_t)``, with ``log
    e_t(k) = emissions[t, k]``. Sums are of logarithms, so that nothing underflows; T K^2 exponentials, and as
    many for derivatives (Baum et al. 1970; Rabiner 1989).

    Parameters
    ----------
    start : array of shape (K,)
        Probabilities of the states at the first observation; weights of any sum are taken as they are.
    transition : array of shape (K, K)
        ``transition[j, k]``: from state j to state k.
    emissions : array of shape (T, K)
        Log density of each observation in each state.
    by_start, by_transition, by_emissions : arrays of the same shapes, optional
        Derivatives are added to those that are given. Those in `emissions` are the probabilities of the
        states given all observations. Those at a start of 0 are left out.

    Returns
    -------
    float
        -inf if no path is possible; NaN if a number that a path takes is.
    """
    T, K = emissions.shape
    log_transition = np.empty((K, K))
    logs = np.empty((T, K))  # of paths that end in k at t
    for j in range(K):
        logs[0, j] = math.log(start[j]) + emissions[0, j]
        for k in range(K):
            log_transition[j, k] = math.log(transition[j, k])
    for t in range(1, T):
        for k in range(K):
            highest = -math.inf
            for j in range(K):
                highest = max(highest, logs[t - 1, j] + log_transition[j, k])
            total = 0.0
            if highest > -math.inf:
                for j in range(K):
                    total += math.exp(logs[t - 1, j] + log_transition[j, k] - highest)
                highest += math.log(total)
            else:
                for j in range(K):  # `max` passes over NaN, which is no zero
                    highest += logs[t - 1, j] + log_transition[j, k]
            logs[t, k] = highest + emissions[t, k]
    highest = -math.inf
    for k in range(K):
        highest = max(highest, logs[T - 1, k])
    if highest == -math.inf:
        for k in range(K):
            highest += logs[T - 1, k]
        return highest
    weights, total = np.empty(K), 0.0
    for k in range(K):
        weights[k] = math.exp(logs[T - 1, k] - highest)
        total += weights[k]
    if by_start is not None or by_transition is not None or by_emissions is not None:
        for k in range(K):
            weights[k] /= total
        _go_back(start, transition, emissions, logs, weights, by_start, by_transition, by_emissions)
    return highest + math.log(total)


@nb.njit(**OPTIONS)
def _go_back(start, transition, emissions, logs, weights, by_start, by_transition, by_emissions):
    """Add derivatives; `weights` are those in the last row of `logs`."""
    T, K = emissions.shape
    before = np.empty(K)
    for t in range(T - 1, 0, -1):
        for j in range(K):
            before[j] = 0.0
        for k in range(K):
            weight, reached = weights[k], logs[t, k] - emissions[t, k]
            if by_emissions is not None:
                by_emissions[t, k] += weight
            if weight == 0.0:
                continue
            for j in range(K):
                share = weight * math.exp(logs[t - 1, j] - reached)
                before[j] += share * transition[j, k]
                if by_transition is not None:
                    by_transition[j, k] += share
        for j in range(K):
            weights[j] = before[j]
    for k in range(K):
        if by_emissions is not None:
            by_emissions[0, k] += weights[k]
        if by_start is not None and start[k] > 0.0:
            by_start[k] += weights[k] / start[k]
