"""What a number of topics is judged by: how often counts occur, and where tokens would go without a topic."""

import numba as nb
import numpy as np

from ..options import BORROWS, KERNEL


@nb.njit(**KERNEL, **BORROWS)
def tally_dense(counts, n_topics, times):
    """Add to ``times[k, c]`` the documents that have c > 0 tokens of topic k; `counts` are dense rows."""
    for d in range(counts.shape[0]):
        for k in range(n_topics):
            c = counts[d, k]
            if c > 0:
                times[k, c] += 1


@nb.njit(**KERNEL, **BORROWS)
def add_gains_without(
    starts, docs, topics, documents, words, inverse, alpha, beta, scratch, gains, moves
):  # fmt: skip
    """Add up what tokens gain without their topic, by topic, and count to which others they would go.

    A token of topic k gains ``ln sum(p_j, j != k)`` and loses the entropy of its topic given all others'; p_j
    is ``(C_dj + alpha_j) (C_wj + beta_w) inverse_j``, in the entropy without the token itself. Tokens of word
    w are ``starts[w]:starts[w + 1]``. Counts of `documents` and `words` are CSR (indptr, indices, data);
    `scratch` has three rows of a number a topic.
    """
    phi, smooth, terms = scratch[0], scratch[1], scratch[2]
    n_topics = len(alpha)
    for w in range(len(beta)):
        if starts[w] == starts[w + 1]:
            continue
        for k in range(n_topics):
            phi[k] = beta[w] * inverse[k]
        for e in range(words[0][w], words[0][w + 1]):
            phi[words[1][e]] += words[2][e] * inverse[words[1][e]]
        first, second = 0, 1  # the likeliest topics in a document that has none
        total, entropy = 0.0, 0.0
        for k in range(n_topics):
            smooth[k] = alpha[k] * phi[k]
            terms[k] = smooth[k] * np.log(smooth[k])
            total += smooth[k]
            entropy += terms[k]
            if k > 0 and smooth[k] > smooth[first]:
                first, second = k, first
            elif k > 1 and smooth[k] > smooth[second]:
                second = k
        for i in range(starts[w], starts[w + 1]):
            d, old = docs[i], topics[i]
            new = second if first == old else first
            best, others, sums = smooth[new], max(total - smooth[old], smooth[new]), entropy - terms[old]
            for e in range(documents[0][d], documents[0][d + 1]):
                k = documents[1][e]
                p = (documents[2][e] + alpha[k]) * phi[k]
                if k == old:  # without the token
                    rest = 1 / inverse[k]
                    own = (p - phi[k]) * (1 - inverse[k] / phi[k]) * (rest / (rest - 1))
                    continue
                others += documents[2][e] * phi[k]
                sums += p * np.log(p) - terms[k]
                if p > best:
                    new, best = k, p
            whole = others + own
            sums += own * np.log(own) if own > 0 else 0.0
            gains[old] += np.log(others) - (np.log(whole) - sums / whole)
            moves[old, new] += 1
