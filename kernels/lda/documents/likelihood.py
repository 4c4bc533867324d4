"""Probability of whole documents under fixed topics, with their topic shares integrated out.

    p(w | phi, alpha)  =  sum_z  p(z | alpha) prod_n phi[w_n, z_n]

is a sum over K^L assignments. Both estimates are averages of weights whose mean is that sum exactly. Topics
and streams of random numbers are as in `topic_inference.fold_in`: a document's answer follows from its own
content. Particles are drawn in turn at every token, so that their steps overlap. Both end early when another
thread sets ``stop[0]``.

References: Wallach, Murray, Salakhutdinov, Mimno, "Evaluation methods for topic models", ICML 2009;
Del Moral, Doucet, Jasra, "Sequential Monte Carlo samplers", JRSS B 2006; Neal, "Annealed importance
sampling", Statistics and Computing 2001.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ...indexing import at
from ...options import INNER, KERNEL
from ...random import fill_uniform
from ...vector import LANES, draw_dense
from ..gibbs import DRAWS
from ..inference import longest_document, word_row

_SAMPLE: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}
_SUM: dict[str, Any] = {**_SAMPLE, "fastmath": {"contract", "reassoc", "nsz", "arcp"}}


@nb.njit(**_SAMPLE)
def left_to_right(
    first, last, indptr, columns, data, counts_indptr, counts_topics, counts, beta, inverse, alpha, keys,
    seed, purpose, n_particles, n_moves, out, stop,
):  # fmt: skip
    """Estimate ``out[d] = log p(w_d)`` of documents ``first:last`` one token after the other.

    Before token n every particle draws the topics of earlier tokens anew, all of them or the next `n_moves`
    in turn, given the tokens so far; then ``p(w_n | z_<n)`` joins its weight. When the weights are worth no
    more than half as many equal ones, particles are drawn by their weights. The product of the weighted means
    of ``p(w_n | z_<n)`` has mean p(w_d).
    """
    n_topics, width = len(inverse), len(alpha)
    n_vectors = width // LANES
    longest, most_words = longest_document(first, last, indptr, data)
    phi = np.zeros((most_words, width), np.float32)
    place = np.empty(longest, np.int64)
    topics = np.empty((longest, n_particles), np.int32)
    held = np.empty((n_particles, width), np.int32)
    flat = held.ravel()
    weight, p = np.empty(n_particles), np.empty(n_particles)
    ancestor = np.empty(n_particles, np.int64)
    scratch = np.empty((2, width), np.float32)
    n_draws = max(DRAWS, n_particles // 4 * 4 + 4)
    uniforms = np.empty(n_draws, np.float32)
    alpha_sum = _sum(alpha)
    for d in range(first, last):
        length, estimate = _lay_out(
            indptr[d], indptr[d + 1], columns, data, counts_indptr, counts_topics, counts, beta, inverse, phi,
            place,
        )  # fmt: skip
        held[:] = 0
        weight[:] = 1 / n_particles
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn, turn = n_draws, 0, 0
        for n in range(length):
            for _ in range(min(n, n_moves)):
                if stop[0]:
                    return
                turn = turn + 1 if turn + 1 < n else 0
                row = phi[at(place[turn])]
                for c in range(n_particles):
                    if used == n_draws:
                        fill_uniform(uniforms, drawn, seed, purpose, high, low)
                        drawn += n_draws // 4
                        used = 0
                    old = np.int64(topics[turn, c])
                    new = draw_dense(
                        flat, c * width, n_vectors, old, row, 0, alpha, row[old], uniforms[used], scratch,
                        (c & 1) * width,
                    )  # fmt: skip
                    used += 1
                    new = min(new, n_topics - 1)
                    held[c, at(old)] -= 1
                    held[c, at(new)] += 1
                    topics[turn, c] = new
            row = phi[at(place[n])]
            mean, squares = 0.0, 0.0
            for c in range(n_particles):
                p[c] = weight[c] * _mixture(held[c], alpha, row) / (n + alpha_sum)
                mean += p[c]
            estimate += math.log(mean)
            for c in range(n_particles):
                weight[c] = p[c] / mean
                squares += weight[c] * weight[c]
            if used + 1 + n_particles > n_draws:
                fill_uniform(uniforms, drawn, seed, purpose, high, low)
                drawn += n_draws // 4
                used = 0
            if squares * n_particles > 2:
                _choose_by_weight(weight, uniforms[used], ancestor)
                used += 1
                for c in range(n_particles):
                    if ancestor[c] != c:
                        held[c] = held[ancestor[c]]
                        for i in range(n):
                            topics[i, c] = topics[i, ancestor[c]]
                weight[:] = 1 / n_particles
            for c in range(n_particles):
                new = draw_dense(
                    flat, c * width, n_vectors, -1, row, 0, alpha, row[0], uniforms[used], scratch,
                    (c & 1) * width,
                )  # fmt: skip
                used += 1
                new = min(new, n_topics - 1)
                held[c, at(new)] += 1
                topics[n, c] = new
        out[d] = estimate


@nb.njit(**_SAMPLE)
def annealed(
    first, last, indptr, columns, data, counts_indptr, counts_topics, counts, beta, inverse, alpha, keys,
    seed, purpose, n_particles, temperatures, out, stop,
):  # fmt: skip
    """Estimate ``out[d] = log p(w_d)`` of documents ``first:last`` on the way from prior to posterior.

    Every particle begins with topics drawn from the prior and makes one Gibbs sweep under
    ``p(z | alpha) prod_n phi[w_n, z_n]^t`` at each of the `temperatures` (rising, the last 1) but the last.
    Its weight is ``prod_t prod_n phi[w_n, z_n]^(t - t_before)``, with the topics as they were before the
    sweep at t; the weights have mean p(w_d).
    """
    n_topics, width = len(inverse), len(alpha)
    n_vectors = width // LANES
    longest, most_words = longest_document(first, last, indptr, data)
    phi = np.zeros((most_words, width), np.float32)
    powers, log_phi = np.zeros((most_words, width), np.float32), np.empty((most_words, width), np.float32)
    level = np.zeros(width, np.float32)
    level[:n_topics] = 1
    place = np.empty(longest, np.int64)
    topics = np.empty((longest, n_particles), np.int32)
    held = np.empty((n_particles, width), np.int32)
    flat = held.ravel()
    weight = np.empty(n_particles)
    scratch, uniforms = np.empty((2, width), np.float32), np.empty(DRAWS, np.float32)
    for d in range(first, last):
        length, estimate = _lay_out(
            indptr[d], indptr[d + 1], columns, data, counts_indptr, counts_topics, counts, beta, inverse, phi,
            place,
        )  # fmt: skip
        n_words = place[length - 1] + 1 if length else 0
        for r in range(n_words):
            for k in range(n_topics):
                log_phi[r, k] = math.log(phi[r, k])
        held[:] = 0
        weight[:] = 0
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn = DRAWS, 0
        for s in range(len(temperatures)):
            if s:
                for r in range(n_words):
                    for k in range(n_topics):
                        powers[r, k] = math.exp(np.float32(temperatures[s - 1]) * log_phi[r, k])
            step = temperatures[s] - (temperatures[s - 1] if s else 0.0)
            own = 1 if s else 0
            for i in range(length):
                if stop[0]:
                    return
                r = at(place[i])
                row = powers[r] if s else level
                for c in range(n_particles):
                    if used == DRAWS:
                        fill_uniform(uniforms, drawn, seed, purpose, high, low)
                        drawn += DRAWS // 4
                        used = 0
                    old = np.int64(topics[i, c]) if own else np.int64(0)
                    new = draw_dense(
                        flat, c * width, n_vectors, old - (1 - own), row, 0, alpha, row[old], uniforms[used],
                        scratch, (c & 1) * width,
                    )  # fmt: skip
                    used += 1
                    new = min(new, n_topics - 1)
                    held[c, at(old)] -= own
                    held[c, at(new)] += 1
                    topics[i, c] = new
            for i in range(length):
                r = at(place[i])
                for c in range(n_particles):
                    weight[c] += step * log_phi[r, at(topics[i, c])]
        out[d] = estimate + _log_mean_exp(weight)


@nb.njit(**_SAMPLE, **INNER)
def _lay_out(
    start, stop, columns, data, counts_indptr, counts_topics, counts, beta, inverse, phi, place
):  # fmt: skip
    """Write the rows of a document's words and each token's row; returns length and log scale."""
    length, log_scale = 0, 0.0
    for j in range(start, stop):
        r = j - start
        top = word_row(at(columns[j]), counts_indptr, counts_topics, counts, beta, inverse, phi[r])
        log_scale += data[j] * math.log(top)
        for _ in range(data[j]):
            place[length] = r
            length += 1
    return length, log_scale


@nb.njit(**_SUM, **INNER)
def _mixture(held, alpha, row):
    """``sum_k (C_k + alpha_k) phi_k``."""
    total = np.float64(0)
    for k in range(len(alpha)):
        total += (np.float64(held[k]) + np.float64(alpha[k])) * np.float64(row[k])
    return total


@nb.njit(**_SUM, **INNER)
def _sum(values):
    total = np.float64(0)
    for value in values:
        total += value
    return total


@nb.njit(**_SAMPLE, **INNER)
def _log_mean_exp(logs):
    most = logs.max()
    total = 0.0
    for value in logs:
        total += math.exp(value - most)
    return most + math.log(total / len(logs))


@nb.njit(**_SAMPLE)
def _choose_by_weight(weight, u, ancestor):
    """Draw ``len(weight)`` particles in systematic fashion; those that are drawn stay where they are.

    Particle c is drawn ``n weight[c]`` times on average, rounded up or down. The places of those that are not
    drawn take what the others have too many of: `ancestor[c]` is who comes to place c.
    """
    n = len(weight)
    ancestor[:] = 0
    cumulated, c = weight[0], 0
    for i in range(n):
        point = (i + u) / n
        while point >= cumulated and c < n - 1:
            c += 1
            cumulated += weight[c]
        ancestor[c] += 1  # so far, how often c is drawn
    source, spare = -1, 0
    for place in range(n):
        if ancestor[place]:
            continue
        while spare == 0:
            source += 1
            spare = _extra(ancestor, source)
        ancestor[place] = -1 - source
        spare -= 1
    for place in range(n):
        ancestor[place] = place if ancestor[place] > 0 else -1 - ancestor[place]


@nb.njit(**_SAMPLE, **INNER)
def _extra(times, place):
    """How often a particle is drawn beyond its own place."""
    return times[place] - 1 if times[place] > 1 else 0
