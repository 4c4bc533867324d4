"""Topics of documents under fixed topic-word probabilities: Gibbs fold-in and EM.

A word's probabilities lie together (words x padded topics, float32, zero beyond the last topic). The fold-in
makes those of one document at a time, which stay in the cache while its tokens are drawn.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import INNER, KERNEL
from ..random import fill_uniform
from ..vector import LANES, draw_dense
from .gibbs import DRAWS

CHAINS = 2  # chains drawn in turn, so that their steps overlap; divides DRAWS
SETTLING_STEPS = 5  # more of them bring the noise of second order back in
FIRST_CHECK = 4  # sweeps of each chain, burn-in apart, before the first of two or more estimates of its error
GROWTH = 4.0  # times as many before the next estimate, at most: the first ones are noisy

# No product is fused with a sum in what draws: a GPU fuses none, and its chains are to draw the same topics.
_SAMPLE: dict[str, Any] = KERNEL
# Sums over topics may be cut into vector lanes: the same on every run of one kind of machine, as long as no
# loop both sums and stores: such a one gets a second form, of another order, in case its arrays overlap.
_SUM: dict[str, Any] = {**KERNEL, "fastmath": {"contract", "reassoc", "nsz", "arcp"}}
# What others call has to be a part of them. Else it would be compiled a second time on its own, and which of
# the two ran, each with its own order of sums, would depend on what was read from the disk.
_PART: dict[str, Any] = {**_SUM, "forceinline": True}


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
def longest_document(first, last, indptr, data):
    """Most tokens, and most distinct words, that one of the documents ``first:last`` holds."""
    tokens, words = 0, 0
    for d in range(first, last):
        length = 0
        for j in span(indptr, d):
            length += data[j]
        tokens = max(tokens, length)
        words = max(words, np.int64(indptr[d + 1] - indptr[d]))
    return tokens, words


@nb.njit(**_SAMPLE)
def word_row(word, counts_indptr, counts_topics, counts, beta, inverse, row):
    """Write ``(C_wk + beta_w) / (C_k + sum(beta))`` of one word, divided by its maximum, which is returned.

    `inverse` holds the reciprocals of the divisors. Only proportions matter to a draw, and no prior is so
    small that these could vanish in float32.
    """
    b = beta[word]
    top = 0.0
    for k in range(len(inverse)):
        top = max(top, b * inverse[k])
    for j in span(counts_indptr, word):
        top = max(top, (counts[j] + b) * inverse[at(counts_topics[j])])
    base = b / top
    for k in range(len(inverse)):
        row[k] = base * inverse[k]
    for j in span(counts_indptr, word):
        k = at(counts_topics[j])
        row[k] = (counts[j] + b) / top * inverse[k]
    return top


@nb.njit(**_SAMPLE)
def fold_in(
    first, last, indptr, columns, data, counts_indptr, counts_topics, counts, beta, inverse, alpha, keys,
    seed, purpose, burn_in, kept, tolerance, theta, stop,
):  # fmt: skip
    """Posterior mean of the topic shares of documents ``first:last`` by Gibbs sampling, topics fixed.

    `CHAINS` chains draw ``z ~ (C_dk + alpha_k) phi_wk`` with the token's own count out, `burn_in` sweeps and
    then at most `kept` sweeps each, whose conditional probabilities are averaged and cleared of noise
    (`_settle`). ``theta[d] = (E[C_dk] + alpha_k) / (L_d + sum(alpha))`` is the mean of the chains.

    The chains are independent: half of their distance estimates the error of their mean, in total variation.
    A document is done when that is at most `tolerance`; 0 makes all sweeps. An estimate is noisy, so that the
    largest counts, each brought to the present number of sweeps by their root, and there are at least two.
    Until it is small enough the chains go on for as many sweeps as it asks for.

    A document's random stream is named by its content (`keys`), so its answer depends neither on the
    other documents nor on its place among them. It ends early when another thread sets ``stop[0]``.
    """
    n_topics, width = len(inverse), len(alpha)
    n_vectors = width // LANES
    longest, most_words = longest_document(first, last, indptr, data)
    phi = np.zeros((most_words, width), np.float32)
    # By chain and word: sums of the conditional probabilities of its tokens, and of their assignments.
    chosen, member = np.empty((CHAINS, most_words, width)), np.empty((CHAINS, most_words, width))
    settled, rest = np.empty((most_words, width)), np.empty((most_words, width))
    shares = np.empty((CHAINS, n_topics))
    times = np.empty(most_words, np.int64)
    place = np.empty(longest, np.int64)
    topics = np.empty((longest, CHAINS), np.int64)
    held = np.empty((CHAINS, width), np.int32)
    flat = held.ravel()
    scratch, uniforms = np.empty((CHAINS, width), np.float32), np.empty(DRAWS, np.float32)
    for d in range(first, last):
        # A plain 0 is a type of its own to numba, for which it would compile a second `_settle`.
        n_words, length = np.int64(0), 0
        for j in span(indptr, d):
            word_row(at(columns[j]), counts_indptr, counts_topics, counts, beta, inverse, phi[n_words])
            times[n_words] = data[j]
            for _ in range(data[j]):
                place[length] = n_words
                length += 1
            n_words += 1
        held[:] = 0
        chosen[:, :n_words] = 0
        member[:, :n_words] = 0
        check, noise = min(kept, FIRST_CHECK) if tolerance > 0 else kept, 0.0
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn = DRAWS, 0
        for sweep in range(burn_in + kept + 1 if length else 0):
            own = 0 if sweep == 0 else 1
            for i in range(length):
                if stop[0]:
                    return
                r = at(place[i])
                row = phi[r]
                if used == DRAWS:
                    fill_uniform(uniforms, drawn, seed, purpose, high, low)
                    drawn += DRAWS // 4
                    used = 0
                for c in range(CHAINS):
                    old = topics[i, c] if own else 0
                    new = draw_dense(
                        flat, c * width, n_vectors, old - (1 - own), phi, np.int64(r) * width, alpha,
                        row[old], uniforms[used + c], scratch, c * width,
                    )  # fmt: skip
                    new = min(new, n_topics - 1)
                    if sweep > burn_in:
                        total = np.float32(0)
                        for lane in range(LANES):
                            total += scratch[c, at(width - LANES + lane)]
                        _add_conditional(held[c], alpha, row, old, np.float32(1) / total, chosen[c, r])
                        member[c, r, at(old)] += 0.5
                        member[c, r, at(new)] += 0.5
                    held[c, at(old)] -= own
                    held[c, at(new)] += 1
                    topics[i, c] = new
                used += CHAINS
            if sweep - burn_in < check:
                continue
            for c in range(CHAINS):
                sums = (chosen[c], member[c], settled, rest)
                _settle(n_words, times, check, n_topics, phi, alpha, *sums, shares[c])
            error = _distance(shares[0], shares[1]) / 2
            noise = max(noise, check * error**2)
            enough = noise / tolerance**2 if tolerance > 0 else 0.0
            if check == kept or (check > FIRST_CHECK and check >= enough):
                break
            least = 2 * check if check == FIRST_CHECK else check + 2
            check = min(kept, max(np.int64(math.ceil(min(enough, GROWTH * check))), least))
        _mean_of_chains(shares, alpha, length, theta[d])


@nb.njit(**_PART, **INNER)
def _add_conditional(held, alpha, row, old, scale, out):
    """Add ``scale * (C_k + alpha_k) * phi_k`` to `out`, with one count of `old` taken out."""
    for k in range(len(alpha)):
        out[k] += (np.float32(held[k]) + alpha[k]) * row[k] * scale
    out[at(old)] -= row[at(old)] * scale


@nb.njit(**_PART, **INNER)
def _distance(p, q):
    """Total variation of two distributions."""
    total = 0.0
    for k in range(len(p)):
        total += abs(p[k] - q[k])
    return total / 2


@nb.njit(**_PART, **INNER)
def _mean_of_chains(shares, alpha, length, theta):
    """Write the mean of the chains' shares; of a document without tokens that of the prior."""
    alpha_sum = 0.0
    for k in range(len(theta)):
        alpha_sum += alpha[k]
    for k in range(len(theta)):
        theta[k] = (shares[0, k] + shares[1, k]) / CHAINS if length else alpha[k] / alpha_sum


@nb.njit(**_PART, **INNER)
def _settle(n_words, times, n_kept, n_topics, phi, alpha, chosen, member, settled, rest, theta):
    """Turn averages over a chain into topic shares, with the chain's own noise taken out to first order.

    Each token of word w has ``gamma_w = E[g_w(C)]``, g_w(C) being its conditional probabilities given the
    counts of the others. Their average R_w over the chain inherits the noise of the counts that the chain
    happened to visit, whose average is M. As ``E[C] = sum_v n_v gamma_v``, it can be found and removed::

        gamma_w  <-  R_w + g_w(sum_v n_v gamma_v - gamma_w) - g_w(M - M_w),     from gamma_w = R_w

    As the chain grows, R and M meet and a step changes nothing: the limit is the posterior mean for any
    number of steps. `chosen` and `member` are the sums of which R and M are made; `settled` and `rest` are
    written over.
    """
    mean, total, weight = np.zeros(n_topics), np.zeros(n_topics), np.empty(n_topics)
    alpha_sum, length = 0.0, 0.0
    for r in range(n_words):
        scale = 1 / (times[r] * np.float64(n_kept))
        for k in range(n_topics):
            settled[r, k] = chosen[r, k] * scale
            rest[r, k] = member[r, k] * scale
            total[k] += times[r] * settled[r, k]
            mean[k] += times[r] * rest[r, k]
    for r in range(n_words):  # from here on `rest` holds R_w - g_w(M - M_w)
        sum_ = _conditional(mean, rest[r], alpha, phi[r], weight)
        for k in range(n_topics):
            rest[r, k] = settled[r, k] - weight[k] / sum_
    for _ in range(SETTLING_STEPS):
        for k in range(n_topics):
            mean[k], total[k] = total[k], 0.0
        for r in range(n_words):
            sum_ = _conditional(mean, settled[r], alpha, phi[r], weight)
            for k in range(n_topics):
                settled[r, k] = max(weight[k] / sum_ + rest[r, k], 0.0)
                total[k] += times[r] * settled[r, k]
    for k in range(n_topics):
        alpha_sum += alpha[k]
        length += total[k]
    for k in range(n_topics):
        theta[k] = (total[k] + alpha[k]) / (length + alpha_sum)


@nb.njit(**_PART, **INNER)
def _conditional(mean, own, alpha, row, weight):
    """Write the weights of one token's topics given mean counts less its `own`; returns their sum."""
    sum_ = 0.0
    for k in range(len(weight)):
        weight[k] = (max(mean[k] - own[k], 0.0) + alpha[k]) * row[k]
    for k in range(len(weight)):
        sum_ += weight[k]
    return sum_


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
            for k in range(n_topics):
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
