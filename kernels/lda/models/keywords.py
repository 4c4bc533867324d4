"""Gibbs sampling where topics have keywords, and a switch says which tokens are keywords: keyATM.

A topic k with keywords has two columns: k, of tokens drawn from all words, and another one of tokens drawn
from its keywords. For a token of word w in document d, own count left out::

    p(column k)         ~  (C_dk + alpha_k) off_k (n_wk + beta_w) / (n_k + sum(beta))
    p(keywords of k)    ~  (C_dk + alpha_k) on_k (m_wk + weight_wk) / (m_k + sum(weight_k))
    on_k = (m_k + g_on) / (n_k + m_k + g_on + g_off),   off_k = 1 - on_k,  1 without keywords

with n and m the counts of the two columns, and C_dk those of both in the document: documents have a count a
topic, in any of the forms of `documents.rows`. Totals are live.
"""

from typing import Any

import numba as nb
import numpy as np

from ...options import BORROWS, INNER, KERNEL
from ...random import fill_uniform
from ..documents.rows import ask_for_row, load_row, move_token

_SWEEP: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INLINE: dict[str, Any] = {**_SWEEP, **INNER}
DRAWS = 1024  # uniforms made at a time
AHEAD = 12  # tokens by which a document's counts are asked for in advance


def keyword_work(n_topics, n_columns, width):
    """Scratch of `sweep_keywords`; documents have `width` counts."""
    expanded, held = np.zeros(width + 32, np.uint8), np.zeros(n_topics)
    factors = np.zeros((2, n_columns)), np.zeros(n_columns, np.int64)
    return *factors, np.zeros(DRAWS, np.float32), held, expanded


@nb.njit(**_INLINE)
def _renew(factors, totals, column, n_topics, twins, parents, beta_sum, sums, switch):
    """Make the factors of a column, and of its twin, by which its words' counts are multiplied."""
    k = parents[column - n_topics] if column >= n_topics else column
    twin = twins[k]
    if twin < 0:
        factors[k] = 1.0 / (totals[k] + beta_sum)
        return
    both = totals[k] + totals[twin] + switch[0] + switch[1]
    factors[k] = (totals[k] + switch[1]) / (both * (totals[k] + beta_sum))
    factors[twin] = (totals[twin] + switch[0]) / (both * (totals[twin] + sums[twin]))


@nb.njit(**_SWEEP)
def sweep_keywords(
    words, begin, end, word_start, token_doc, topics, all_topics, stored, width, row_of_word, rows, totals,
    alpha, beta, beta_sum, seeds, twins, parents, switch, seed, purpose, round_, index, work,
):  # fmt: skip
    """Draw the tokens ``begin[w]:end[w]`` of each of `words`; parameters as of `gibbs.sweep_dense`.

    `totals` and `rows` have the columns of all topics, then those of keywords. `stored` are the documents'
    counts (`documents.rows`), rows of `width`. `seeds` are the weights of keywords in their columns
    (`lda.seeds`); ``twins[k]`` is the column of the keywords of topic k, or -1, ``parents`` the topic of each
    such column, `switch` are g_on and g_off.
    """
    n_topics, n_columns = len(twins), len(totals)
    (factors, weights), counts, uniforms, held, expanded = work
    used, drawn = DRAWS, 0
    for k in range(n_topics):
        _renew(factors, totals, k, n_topics, twins, parents, beta_sum, seeds[3], switch)
    for w in words:
        if begin[w] == end[w]:
            continue
        r = row_of_word[w]
        if r >= 0:
            for c in range(n_columns):
                counts[c] = rows[r, c]
        else:
            for c in range(n_columns):
                counts[c] = 0
            for i in range(word_start[w], word_start[w + 1]):
                counts[all_topics[i]] += 1
        b = np.float64(beta[w])
        for i in range(begin[w], end[w]):
            if used == DRAWS:
                fill_uniform(uniforms, drawn, seed, purpose, round_, index)
                drawn += DRAWS // 4
                used = 0
            ask_for_row(stored, token_doc[i + AHEAD], width)
            d, old = token_doc[i], np.int64(topics[i])
            before = parents[old - n_topics] if old >= n_topics else old
            load_row(stored, d, width, expanded, held)
            held[before] -= 1
            counts[old] -= 1
            totals[old] -= 1
            _renew(factors, totals, old, n_topics, twins, parents, beta_sum, seeds[3], switch)
            for k in range(n_topics):
                weights[k] = (held[k] + alpha[k]) * (counts[k] + b) * factors[k]
            total = 0.0
            for k in range(n_topics):
                total += weights[k]
            regular = total
            for j in range(seeds[0][w], seeds[0][w + 1]):
                c = np.int64(seeds[1][j])
                k = parents[c - n_topics]
                weights[c] = (held[k] + alpha[k]) * (counts[c] + np.float64(seeds[2][j])) * factors[c]
                total += weights[c]
            left = np.float64(uniforms[used]) * total
            used += 1
            new = n_topics - 1
            if left < regular or seeds[0][w] == seeds[0][w + 1]:
                for k in range(n_topics):
                    left -= weights[k]
                    if left < 0:
                        new = k
                        break
            else:
                left -= regular
                for j in range(seeds[0][w], seeds[0][w + 1]):
                    new = np.int64(seeds[1][j])
                    left -= weights[new]
                    if left < 0:
                        break
            topics[i] = new
            move_token(stored, d, width, before, parents[new - n_topics] if new >= n_topics else new)
            counts[new] += 1
            totals[new] += 1
            _renew(factors, totals, new, n_topics, twins, parents, beta_sum, seeds[3], switch)
        if r >= 0:
            for c in range(n_columns):
                rows[r, c] = counts[c]
