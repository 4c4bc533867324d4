"""Topics of documents under fixed topics, of which there are many: nothing is as large as words x topics.

A word's probabilities are those of its counts and a rest that is the same for all words but for a factor::

    phi_wk  =  (C_wk + beta_w) / (C_k + sum(beta))  =  (C_wk + beta_w) i_k

so that sums over topics are sums over the word's non-zero counts, over the document's tokens, and numbers
that all words share. The same distributions as in `topic_inference`, whose rows over all topics are faster as
long as there are few.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ...indexing import at, span
from ...options import INNER, KERNEL
from ...random import fill_uniform
from ..gibbs import DRAWS
from ..inference import CHAINS, longest_document

_OPTIONS: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}
_INLINE: dict[str, Any] = {**_OPTIONS, "forceinline": True}


@nb.njit(**_INLINE, **INNER)
def _first_above(running, start, stop, target):
    """Find the first place in ``start:stop`` whose running sum is above the target; the last if none is."""
    low, high = start, stop - 1
    while low < high:
        middle = (low + high) // 2
        if running[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@nb.njit(**_INLINE, **INNER)
def _count_of(topic, start, stop, counts_topics, counts):
    """Look up the count of a topic in a word's row, topics ascending; 0 if the word has none."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if counts_topics[middle] < topic:
            low = middle + 1
        else:
            high = middle
    return counts[low] if low < stop and counts_topics[low] == topic else 0


@nb.njit(**_INLINE, **INNER)
def _prior_sums(start, stop, columns, counts_indptr, counts_topics, counts, inverse, alpha, row, running):
    """Write running sums of ``alpha_k C_wk i_k``; those of the document's word r lie from ``row[r]`` on."""
    n = 0
    for r in range(stop - start):
        row[r], total = n, 0.0
        for e in span(counts_indptr, at(columns[start + r])):
            k = at(counts_topics[e])
            total += alpha[k] * (counts[e] * inverse[k])
            running[n] = total
            n += 1
    row[stop - start] = n


@nb.njit(**_OPTIONS)
def fold_in(
    first, last, indptr, columns, data, counts_indptr, counts_topics, counts, beta, inverse, alpha, keys,
    seed, purpose, burn_in, kept, theta, stop,
):  # fmt: skip
    """Posterior mean of the topic shares of documents ``first:last`` by Gibbs sampling, topics fixed.

    As `topic_inference.fold_in`, and with its parameters, but that the noise of the chain stays in the
    averages of the conditional probabilities. These have three parts, each drawn from and averaged apart::

        p(z = k)  ~  C_dk phi_wk  +  alpha_k C_wk i_k  +  beta_w alpha_k i_k

    A draw takes time by the document's distinct topics; they lie in slots, some of which may be empty.
    """
    n_topics = len(inverse)
    longest, most_words = longest_document(first, last, indptr, data)
    most_entries = 0
    for d in range(first, last):
        n_entries = 0
        for j in span(indptr, d):
            n_entries += counts_indptr[columns[j] + 1] - counts_indptr[columns[j]]
        most_entries = max(most_entries, np.int64(n_entries))
    smooth, alpha_sum, total = np.empty(n_topics), 0.0, 0.0  # running sums of alpha_k i_k
    for k in range(n_topics):
        total += alpha[k] * inverse[k]
        smooth[k] = total
        alpha_sum += alpha[k]
    smooth_sum = total
    row, running = np.empty(most_words + 1, np.int64), np.empty(most_entries)
    place, slot = np.empty(longest, np.int64), np.empty(longest, np.int64)  # of each token: word and slot
    topic, count, cumulated = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest)
    free, slot_of = np.empty(longest, np.int64), np.full(n_topics, -1, np.int64)
    from_prior = np.empty(most_words)  # sums of the second part, by word
    uniforms = np.empty(DRAWS, np.float32)
    for d in range(first, last):
        length, n_words = 0, indptr[d + 1] - indptr[d]
        for r in range(n_words):
            for _ in range(data[indptr[d] + r]):
                place[length] = r
                length += 1
        _prior_sums(
            indptr[d],
            indptr[d + 1],
            columns,
            counts_indptr,
            counts_topics,
            counts,
            inverse,
            alpha,
            row,
            running,
        )
        theta[d] = 0
        from_prior[:n_words] = 0
        from_rest = 0.0
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn, n_slots, n_free = DRAWS, 0, 0, 0
        for step in range(CHAINS * (burn_in + kept + 1) if length else 0):
            sweep = step % (burn_in + kept + 1)
            if sweep == 0:  # a new chain
                for s in range(n_slots):
                    slot_of[at(topic[s])] = -1
                n_slots, n_free = 0, 0
            for i in range(length):
                if stop[0]:
                    return
                if used + 2 > DRAWS:
                    fill_uniform(uniforms, drawn, seed, purpose, high, low)
                    drawn += DRAWS // 4
                    used = 0
                r = place[i]
                w = columns[indptr[d] + r]
                begin, end, b = counts_indptr[w], counts_indptr[w + 1], beta[w]
                if sweep:
                    s = slot[i]
                    count[s] -= 1
                    if count[s] == 0:
                        slot_of[at(topic[s])] = -1
                        free[n_free] = s
                        n_free += 1
                document = 0.0
                for s in range(n_slots):
                    if count[s]:
                        k = topic[s]
                        own = _count_of(k, begin, end, counts_topics, counts) + b
                        document += count[s] * (own * inverse[at(k)])
                    cumulated[s] = document
                prior = running[row[r + 1] - 1] if end > begin else 0.0
                rest = b * smooth_sum
                total = document + prior + rest
                if sweep > burn_in:
                    before = 0.0
                    for s in range(n_slots):
                        theta[d, at(topic[s])] += (cumulated[s] - before) / total
                        before = cumulated[s]
                    from_prior[r] += prior / total
                    from_rest += rest / total
                target = uniforms[used] * total
                if target < document:
                    s = _first_above(cumulated, 0, n_slots, target)
                else:
                    if target - document < prior:
                        place_in_row = _first_above(running, row[r], row[r + 1], target - document) - row[r]
                        new = np.int64(counts_topics[begin + place_in_row])
                    else:
                        new = _first_above(smooth, 0, n_topics, uniforms[used + 1] * smooth_sum)
                    s = slot_of[at(new)]
                    if s < 0:
                        if n_free:
                            n_free -= 1
                            s = free[n_free]
                        else:
                            s = n_slots
                            n_slots += 1
                        topic[s], count[s], slot_of[at(new)] = new, 0, s
                used += 2
                count[s] += 1
                slot[i] = s
        for s in range(n_slots):
            slot_of[at(topic[s])] = -1
        for r in range(n_words):
            w = columns[indptr[d] + r]
            for e in span(counts_indptr, w):
                k = at(counts_topics[e])
                theta[d, k] += from_prior[r] * (alpha[k] * (counts[e] * inverse[k]) / running[row[r + 1] - 1])
        for k in range(n_topics):
            drawn_here = theta[d, k] + from_rest * (alpha[k] * inverse[k] / smooth_sum)
            theta[d, k] = (drawn_here / (CHAINS * kept) + alpha[k]) / (length + alpha_sum)


@nb.njit(**_OPTIONS)
def completion(
    first, last, indptr, columns, data, held_indptr, held_columns, held_data, counts_indptr, counts_topics,
    counts, beta, inverse, alpha, n_steps,
):  # fmt: skip
    """Log-likelihood of the held-out tokens of documents ``first:last``, topic shares fitted to the others.

    As `topic_inference.expectation_maximisation` and `log_likelihood`. A step takes time by the topics and by
    the non-zero counts of the document's words.
    """
    n_topics = len(inverse)
    share, mass = np.empty(n_topics), np.zeros(n_topics)  # shares but for `scale`; what words ask of a topic
    likelihood = 0.0
    for d in range(first, last):
        share[:] = 1
        scale, base = 1 / n_topics, inverse.sum()  # base: the sum of share_k i_k
        for _ in range(n_steps):
            rest, total, coming = 0.0, 0.0, 0.0
            for j in span(indptr, d):
                w = at(columns[j])
                found = _sum_of(w, share, base, counts_indptr, counts_topics, counts, beta, inverse)
                ratio = data[j] / (scale * found)
                rest += ratio * beta[w]
                for e in span(counts_indptr, w):
                    mass[at(counts_topics[e])] += ratio * counts[e]
            for k in range(n_topics):
                new = share[k] * scale * (mass[k] + rest) * inverse[k] + alpha[k]
                share[k], mass[k] = new, 0
                total += new
                coming += new * inverse[k]
            scale, base = 1 / total, coming
        for j in span(held_indptr, d):
            w = at(held_columns[j])
            found = _sum_of(w, share, base, counts_indptr, counts_topics, counts, beta, inverse)
            likelihood += held_data[j] * math.log(scale * found)
    return likelihood


@nb.njit(**_INLINE, **INNER)
def _sum_of(w, share, base, counts_indptr, counts_topics, counts, beta, inverse):
    """``sum_k share_k phi_wk``."""
    total = beta[w] * base
    for e in span(counts_indptr, w):
        k = at(counts_topics[e])
        total += share[k] * (counts[e] * inverse[k])
    return total
