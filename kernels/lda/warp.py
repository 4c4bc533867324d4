"""WarpLDA's order of Metropolis-Hastings for LDA: one pass by words, one by documents, counts delayed.

Each token has a topic z and a proposal z'. The pass over words accepts or rejects proposals that were drawn
from documents, and draws new ones from words; the pass over documents the other way round. The target is the
collapsed conditional, own count left out::

    p(z = k | rest)  ~  (C_dk + alpha_k) (C_wk + beta_w) / (C_k + sum(beta))

A proposal from the document has the probability ``(C_dk + alpha_k) / normaliser``: the topic of another
token of the document, or a draw from alpha. It cancels the document's part of the target, so that the
acceptance

    min(1, (C_wt + beta_w) (C_s + sum(beta)) / ((C_ws + beta_w) (C_t + sum(beta))))

needs one word's counts, which lie in the first-level cache; and the same with words and documents exchanged.
Counts are those at the beginning of a pass, except that a token leaves itself out.

Reference: Chen, Li, Zhu, Chen, "WarpLDA: a cache efficient O(1) algorithm for latent Dirichlet allocation",
VLDB 2016. There, counts and proposals include the token itself.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..random import hash32, philox4x32
from ..vector import prefetch

_PASS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract"}, "error_model": "numpy"}
_INLINE: dict[str, Any] = {**_PASS, "forceinline": True}
_ONE, _UNIT = np.float32(1), np.float32(2.0**-32)
_GOLDEN, _OTHER = np.uint32(0x9E3779B9), np.uint32(0x5BD1E995)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@nb.njit(**_PASS)
def documents(doc_start, position, token_doc):
    """Fill the document of each token, word by word."""
    for d in range(len(doc_start) - 1):
        for i in span(doc_start, d):
            token_doc[at(position[i])] = d


@nb.njit(**_INLINE)
def _accept(current, proposed, first, n, weight, own, key):
    """Move tokens to their proposals with probability ``weight[proposed] / own[current]``, at most 1.

    They are `n` tokens of a word or a document, from its token number `first` on.
    """
    for i in range(n):
        s, t = current[i], proposed[i]
        u = np.float32(hash32(np.uint32(first + i) * _GOLDEN ^ key)) * _UNIT
        current[i] = t if u * own[at(s)] < weight[at(t)] else s


@nb.njit(**_INLINE)
def _propose(current, proposed, first, n_own, smooth, n_topics, aliases, limits, key):
    """Draw the topic of another token, or with probability `smooth` one from the prior.

    For `n_own` tokens, from number `first` on, of the word or document of which `current` has all topics.
    """
    key2, n = key ^ _OTHER, len(current)
    others = np.uint64(max(n - 1, 1))
    threshold = np.uint32(min(smooth * 4294967296.0, 4294967295.0)) if n > 1 else np.uint32(0xFFFFFFFF)
    for i in range(n_own):
        name = np.uint64(first + i)
        a = np.uint64(hash32(np.uint32(name) * _GOLDEN ^ key))
        b = hash32(np.uint32(name) * _GOLDEN ^ key2)
        k = a * np.uint64(n_topics)
        drawn = k >> _HALF
        if len(limits) and np.uint32(k & _LOW) >= limits[drawn]:
            drawn = np.uint64(aliases[drawn])
        j = (a * others) >> _HALF
        j += np.uint64(j >= name)
        taken = current[min(j, np.uint64(n - 1))]
        proposed[i] = drawn if b <= threshold else taken


@nb.njit(**_INLINE)
def _weigh(current, proposed, n, prior, inverse, inverse_less, counts, weight, own):
    """Weights of the topics at hand: with all tokens, and with one token of the topic itself left out.

    `counts` is zero before and after; `prior` is a vector over topics, or one element. Returns how many
    topics the tokens have.
    """
    for i in range(n):
        counts[at(current[i])] += 1
        k = at(proposed[i])
        weight[k] = (prior[k] if len(prior) > 1 else prior[0]) * inverse[k]
    distinct = 0
    for i in range(n):
        k = at(current[i])
        c = np.float32(counts[k])
        if c > 0:
            a = prior[k] if len(prior) > 1 else prior[0]
            distinct += 1
            weight[k] = (c + a) * inverse[k]
            own[k] = (c - _ONE + a) * inverse_less[k]
            counts[k] = 0
    return distinct


@nb.njit(**_INLINE)
def _keys(name, seed, purpose, round_):
    """Two keys for the draws of one word or document."""
    r0, r1, _, _ = philox4x32(
        np.uint32(name), np.uint32(name >> 32), np.uint32(round_), np.uint32(purpose),
        np.uint32(seed & _LOW), np.uint32(seed >> _HALF),
    )  # fmt: skip
    return r0, r1


@nb.njit(**_INLINE)
def _invert(totals, beta_sum):
    """``1 / (C_k + sum(beta))``, and with one token less, which a topic without any does not lose."""
    inverse, inverse_less = np.empty(len(totals), np.float32), np.empty(len(totals), np.float32)
    for k in range(len(totals)):
        inverse[k] = _ONE / np.float32(max(totals[k], 0) + beta_sum)
        inverse_less[k] = _ONE / np.float32(max(totals[k] - 1, 0) + beta_sum)
    return inverse, inverse_less


@nb.njit(**_INLINE)
def _longest(first, last, start):
    longest = 0
    for x in range(first, last):
        longest = max(longest, start[x + 1] - start[x])
    return longest


@nb.njit(**_PASS)
def document_pass(
    first, last, doc_start, position, names, pairs, totals, alpha, alpha_sum, aliases, limits, beta_sum,
    changed, seed, purpose, round_,
):  # fmt: skip
    """Accept the words' proposals for the documents ``first:last``, and draw new ones from the documents.

    The tokens of document d are ``position[doc_start[d]:doc_start[d + 1]]``, places in `pairs` (topic and
    proposal), which change in place; so do the topic totals, whose changes are added to `changed`. `names`
    (int64) name the random streams of documents. `aliases` and `limits` are Walker's tables of alpha
    (`alias.tables_of`). Returns the distinct topics of the documents before the pass, summed.
    """
    n_topics = len(totals)
    inverse, inverse_less = _invert(totals, beta_sum)
    weight, own = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    counts = np.zeros(n_topics, np.int32)
    longest = _longest(first, last, doc_start)
    current, proposed = np.empty(longest, pairs.dtype), np.empty(longest, pairs.dtype)
    flat, n_documents, distinct = pairs.reshape(-1), len(doc_start) - 1, 0
    for d in range(first, last):
        start = doc_start[d]
        n = doc_start[d + 1] - start
        if d + 1 < n_documents:
            for i in span(doc_start, d + 1):
                prefetch(flat, 2 * np.int64(position[i]))
        if n == 0:
            continue
        place = position[start : start + n]
        for i in range(n):
            p = at(place[i])
            current[i] = pairs[p, 0]
            proposed[i] = pairs[p, 1]
            changed[at(current[i])] -= 1
        accepting, proposing = _keys(names[d], seed, purpose, round_)
        distinct += _weigh(current, proposed, n, alpha, inverse, inverse_less, counts, weight, own)
        _accept(current, proposed, 0, n, weight, own, accepting)
        smooth = alpha_sum / (alpha_sum + n - 1)
        _propose(current[:n], proposed, 0, n, smooth, n_topics, aliases, limits, proposing)
        for i in range(n):
            p = at(place[i])
            changed[at(current[i])] += 1
            pairs[p, 0] = current[i]
            pairs[p, 1] = proposed[i]
    return distinct


@nb.njit(**_PASS)
def word_pass(
    names, begin, end, word_start, tokens, rows, starts, pairs, totals, beta, beta_sum, seed, purpose, round_
):  # fmt: skip
    """Accept the documents' proposals for a shard's tokens of some words, and draw new ones from the words.

    Counts are those of a word's tokens as they come: shards that the block has met in this pass have drawn
    theirs, the others not yet. With one shard they are those at the beginning of the pass.

    `names` (int32) name the random streams of words. `tokens` are the topics of all tokens of the block,
    those of a word bounded by `word_start`, and the shard's among them by `begin` and `end`; these are taken
    from `pairs`, topic and proposal, where a word's begin at `starts`, and both are changed in place. `rows`
    (int32) are the counts of the first words' `tokens`, kept up to date; other words are counted anew. The
    changes of the topic totals are added when all words are done.
    """
    n_topics = len(totals)
    inverse, inverse_less = _invert(totals, beta_sum)
    weight, own = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    scratch, change = np.zeros(n_topics, np.int32), np.zeros(n_topics, np.int64)
    aliases, limits = np.empty(0, np.int64), np.empty(0, np.uint32)  # one beta for all topics
    most = 0
    for w in range(len(names)):
        most = max(most, end[w] - begin[w])
    current, proposed = np.empty(most, pairs.dtype), np.empty(most, pairs.dtype)
    for w in range(len(names)):
        n_own = end[w] - begin[w]
        if n_own == 0:
            continue
        n, prior, kept = word_start[w + 1] - word_start[w], np.float32(beta[w]), w < len(rows)
        mine, theirs = tokens[begin[w] : end[w]], tokens[word_start[w] : word_start[w + 1]]
        drawn, counts = pairs[starts[w] : starts[w] + n_own], rows[w] if kept else scratch
        for i in range(n_own):
            current[i] = drawn[i, 0]
            proposed[i] = drawn[i, 1]
        if kept:
            for i in range(n_own):
                counts[at(mine[i])] -= 1
                counts[at(current[i])] += 1
        mine[:] = current[:n_own]
        if not kept:
            for i in range(n):
                counts[at(theirs[i])] += 1
        for i in range(n_own):
            s, t = at(current[i]), at(proposed[i])
            own[s] = (np.float32(counts[s]) - _ONE + prior) * inverse_less[s]
            weight[t] = (np.float32(counts[t]) + prior) * inverse[t]
        accepting, proposing = _keys(names[w], seed, purpose, round_)
        first = begin[w] - word_start[w]
        _accept(current, proposed, first, n_own, weight, own, accepting)
        if kept:
            for i in range(n_own):
                counts[at(mine[i])] -= 1
                counts[at(current[i])] += 1
        else:  # back to zero before the next word
            for i in range(n):
                counts[at(theirs[i])] = 0
        for i in range(n_own):
            change[at(mine[i])] -= 1
            change[at(current[i])] += 1
            mine[i] = current[i]
        smooth = n_topics * beta[w] / (n_topics * beta[w] + n - 1)
        _propose(theirs, proposed, first, n_own, smooth, n_topics, aliases, limits, proposing)
        for i in range(n_own):
            drawn[i, 0] = current[i]
            drawn[i, 1] = proposed[i]
    totals += change
