"""Topics of single tokens under fixed topic-word probabilities, by Gibbs sampling, document by document."""

from typing import Any

import numba as nb
import numpy as np

from ...indexing import at, span
from ...options import KERNEL
from ...random import fill_uniform
from ..gibbs import DRAWS
from ..inference import longest_document, word_row

_SAMPLE: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}


@nb.njit(**_SAMPLE)
def token_topics(
    first, last, indptr, columns, data, counts_indptr, counts_topics, counts, beta, inverse, alpha, keys,
    seed, purpose, burn_in, kept, best, share, whole, stop,
):  # fmt: skip
    """Posterior probabilities of the topics of each word of documents ``first:last``.

    ``p(z = k | w, rest) ~ (C_dk + alpha_k) phi_wk``, the token's own count out, averaged over `kept` sweeps
    after `burn_in`, and over the document's tokens of the word. `best` and `share` take the most probable
    topic of each entry and its probability, `whole` (entries x topics) all, unless it is empty. Streams of
    random numbers are named by the document's content (`keys`). Another thread ends it by ``stop[0]``.
    """
    n_topics = len(inverse)
    longest, most_words = longest_document(first, last, indptr, data)
    phi = np.zeros((most_words, len(alpha)), np.float32)
    sums = np.empty((most_words, n_topics))
    place, topics = np.empty(longest, np.int64), np.empty(longest, np.int64)
    held, weight = np.empty(n_topics, np.int64), np.empty(n_topics)
    uniforms = np.empty(DRAWS, np.float32)
    for d in range(first, last):
        n_words, length = np.int64(0), 0
        for j in span(indptr, d):
            word_row(at(columns[j]), counts_indptr, counts_topics, counts, beta, inverse, phi[n_words])
            for _ in range(data[j]):
                place[length] = n_words
                length += 1
            n_words += 1
        held[:] = 0
        sums[:n_words] = 0
        high, low = keys[d] >> np.uint64(32), keys[d] & np.uint64(0xFFFFFFFF)
        used, drawn = DRAWS, 0
        for sweep in range(burn_in + kept + 1 if length else 0):
            for i in range(length):
                if stop[0]:
                    return
                if used == DRAWS:
                    fill_uniform(uniforms, drawn, seed, purpose, high, low)
                    drawn += DRAWS // 4
                    used = 0
                row = at(place[i])
                if sweep > 0:
                    held[at(topics[i])] -= 1
                total = 0.0
                for k in range(n_topics):
                    weight[k] = (held[k] + np.float64(alpha[k])) * np.float64(phi[row, k])
                    total += weight[k]
                if sweep > burn_in:
                    for k in range(n_topics):
                        sums[row, k] += weight[k] / total
                left = np.float64(uniforms[used]) * total
                used += 1
                new = np.int64(0)
                while new < n_topics - 1 and left >= weight[new]:
                    left -= weight[new]
                    new += 1
                held[new] += 1
                topics[i] = new
        for row in range(n_words):
            j = indptr[d] + row
            top = np.int64(0)
            for k in range(n_topics):
                if sums[row, k] > sums[row, top]:
                    top = k
            scale = 1.0 / (np.float64(data[j]) * kept)
            best[j], share[j] = top, sums[row, top] * scale
            if len(whole):
                for k in range(n_topics):
                    whole[j, k] = sums[row, k] * scale
