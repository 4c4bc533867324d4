"""Topics of documents under fixed topic-word probabilities: Gibbs fold-in and EM.

`phi` lies word by word (words x padded topics, float32, zero beyond the last topic), only for the
words that the documents hold.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from .lda_gibbs import DRAWS
from .random import fill_uniform
from .vector import LANES, draw_dense

_SAMPLE: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract"}, "error_model": "numpy"}
# Sums over topics may be cut into vector lanes: the same on every run of one kind of machine.
_SUM: dict[str, Any] = {**_SAMPLE, "fastmath": {"contract", "reassoc", "nsz", "arcp"}}


@nb.njit(**_SAMPLE)
def content_keys(indptr, indices, data):
    """A 64-bit hash of each row's content (splitmix64 steps over columns and values)."""
    keys = np.empty(len(indptr) - 1, np.uint64)
    for d in range(len(keys)):
        h = np.uint64(0x9E3779B97F4A7C15)
        for j in range(indptr[d], indptr[d + 1]):
            h ^= (np.uint64(indices[j]) << np.uint64(32)) | np.uint64(data[j])
            h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            h ^= h >> np.uint64(31)
        keys[d] = h
    return keys


@nb.njit(**_SAMPLE)
def fold_in(first, last, indptr, rows, data, phi, alpha, n_topics, keys, seed, purpose, burn_in, kept, theta):
    """Mean topic shares of documents ``first:last`` by Gibbs sampling with `phi` fixed.

    Draws ``z ~ (C_dk + alpha_k) phi_wk`` with the token's own count out, `burn_in` sweeps and then
    `kept` sweeps whose ``(C_dk + alpha_k) / (L_d + sum(alpha))`` are averaged into ``theta[d]``.
    A document's random stream is named by its content (`keys`), so its answer depends neither on the
    documents beside it nor on its place among them.
    """
    width = phi.shape[1]
    n_vectors = width // LANES
    longest = 0
    for d in range(first, last):
        length = 0
        for j in range(indptr[d], indptr[d + 1]):
            length += data[j]
        longest = max(longest, length)
    words, topics = np.empty(longest, np.int64), np.empty(longest, np.int32)
    counts, summed = np.zeros(width, np.int32), np.zeros(n_topics)
    scratch, uniforms = np.empty(width + LANES, np.float32), np.empty(DRAWS, np.float32)
    alpha_sum = 0.0
    for k in range(n_topics):
        alpha_sum += alpha[k]
    for d in range(first, last):
        length = 0
        for j in range(indptr[d], indptr[d + 1]):
            for _ in range(data[j]):
                words[length] = rows[j]
                length += 1
        counts[:] = 0
        summed[:] = 0
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn = DRAWS, 0
        for sweep in range(burn_in + kept + 1):
            own = 0 if sweep == 0 else 1
            for i in range(length):
                if used == DRAWS:
                    fill_uniform(uniforms, drawn, seed, purpose, high, low)
                    drawn += DRAWS // 4
                    used = 0
                row = phi[words[i]]
                old = np.int64(topics[i]) if own else np.int64(0)
                new = draw_dense(
                    counts, 0, n_vectors, old - (1 - own), row, alpha, row[old], uniforms[used], scratch
                )
                used += 1
                new = min(new, n_topics - 1)
                counts[old] -= own
                counts[new] += 1
                topics[i] = new
            if sweep > burn_in:
                for k in range(n_topics):
                    summed[k] += counts[k]
        for k in range(n_topics):
            theta[d, k] = (summed[k] / kept + alpha[k]) / (length + alpha_sum)


@nb.njit(**_SUM)
def expectation_maximisation(first, last, indptr, rows, data, phi, alpha, n_topics, n_steps, theta):
    """Topic shares of documents ``first:last`` by EM with `phi` fixed, from equal shares.

    One step: ``theta_k ~ alpha_k + theta_k sum_w n_w phi_wk / (sum_j theta_j phi_wj)``.
    """
    width = phi.shape[1]
    share, mass = np.empty(width, np.float32), np.empty(width, np.float32)
    for d in range(first, last):
        share[:] = np.float32(1.0 / n_topics)
        for _ in range(n_steps):
            mass[:] = 0
            for j in range(indptr[d], indptr[d + 1]):
                row = phi[rows[j]]
                total = np.float32(0)
                for k in range(width):
                    total += share[k] * row[k]
                if total > 0:
                    ratio = np.float32(data[j]) / total
                    for k in range(width):
                        mass[k] += ratio * row[k]
            total = np.float32(0)
            for k in range(n_topics):
                share[k] = share[k] * mass[k] + alpha[k]
                total += share[k]
            scale = np.float32(1) / total
            for k in range(n_topics):
                share[k] *= scale
        for k in range(n_topics):
            theta[d, k] = share[k]


@nb.njit(**_SUM)
def log_likelihood(first, last, indptr, rows, data, phi, theta):
    """Sum over documents ``first:last`` of ``n_dw log(sum_k theta_dk phi_wk)``."""
    n_topics = theta.shape[1]
    total = 0.0
    for d in range(first, last):
        for j in range(indptr[d], indptr[d + 1]):
            row = phi[rows[j]]
            p = 0.0
            for k in range(n_topics):
                p += np.float64(theta[d, k]) * np.float64(row[k])
            total += data[j] * math.log(p)
    return total
