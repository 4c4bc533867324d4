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
def positions(indptr, indices, data, order, doc_start, starts, position):
    """Fill where each token lies word by word, document by document.

    Document number d is row ``order[d]`` of the CSR counts; its tokens are
    ``position[doc_start[d]:doc_start[d + 1]]``. ``starts`` (int64, by word) begins as the word's first token
    and ends behind its last.
    """
    for d in range(len(order)):
        to = doc_start[d]
        for j in range(indptr[order[d]], indptr[order[d] + 1]):
            w = indices[j]
            for _ in range(data[j]):
                position[to] = starts[w]
                starts[w] += 1
                to += 1


@nb.njit(**_PASS)
def documents(doc_start, position, token_doc):
    """Fill the document of each token, word by word."""
    for d in range(len(doc_start) - 1):
        for i in span(doc_start, d):
            token_doc[at(position[i])] = d


@nb.njit(**_PASS)
def begin(topics, pairs, totals):
    """Give each token its topic, which is its first proposal too; add the topics to `totals`."""
    for i in range(len(topics)):
        pairs[i, 0] = pairs[i, 1] = topics[i]
        totals[at(topics[i])] += 1


@nb.njit(**_INLINE)
def _accept(current, proposed, n, weight, own, key):
    """Move each token to its proposal with probability ``weight[proposed] / own[current]``, at most 1."""
    for i in range(n):
        s, t = current[i], proposed[i]
        u = np.float32(hash32(np.uint32(i) * _GOLDEN ^ key)) * _UNIT
        current[i] = t if u * own[at(s)] < weight[at(t)] else s


@nb.njit(**_INLINE)
def _propose(current, proposed, n, smooth, n_topics, aliases, limits, key):
    """Draw for each token the topic of another one, or with probability `smooth` one from the prior."""
    key2 = key ^ _OTHER
    others = np.uint64(max(n - 1, 1))
    threshold = np.uint32(min(smooth * 4294967296.0, 4294967295.0)) if n > 1 else np.uint32(0xFFFFFFFF)
    for i in range(n):
        a = np.uint64(hash32(np.uint32(i) * _GOLDEN ^ key))
        b = hash32(np.uint32(i) * _GOLDEN ^ key2)
        k = a * np.uint64(n_topics)
        drawn = k >> _HALF
        if len(limits) and np.uint32(k & _LOW) >= limits[drawn]:
            drawn = np.uint64(aliases[drawn])
        j = (a * others) >> _HALF
        j += np.uint64(j >= np.uint64(i))
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
def word_pass(first, last, word_start, pairs, totals, beta, beta_sum, counted, seed, purpose, round_):
    """Work on the words ``first:last``: accept proposals of documents, make those of words.

    Parameters
    ----------
    word_start : int64 array
        Where the tokens of a word begin.
    pairs : unsigned array (n_tokens, 2)
        Topic and proposal of each token, word by word; changed in place.
    totals : int64 array (n_topics,)
        C_k.
    beta : float64 array, by word; beta_sum : float
    counted : int64 array (n_topics,)
        The tokens' topics after the pass are added.
    seed, purpose, round_
        Name of the random streams, of which each word has its own.
    """
    n_topics = len(totals)
    inverse, inverse_less = _invert(totals, beta_sum)
    weight, own = np.empty(n_topics, np.float32), np.empty(n_topics, np.float32)
    counts, prior = np.zeros(n_topics, np.int32), np.zeros(1, np.float32)
    longest = _longest(first, last, word_start)
    current, proposed = np.empty(longest, pairs.dtype), np.empty(longest, pairs.dtype)
    aliases, limits = np.empty(0, np.int64), np.empty(0, np.uint32)  # one beta for all topics
    for w in range(first, last):
        start = word_start[w]
        n = word_start[w + 1] - start
        if n == 0:
            continue
        prior[0] = np.float32(beta[w])
        mine = pairs[start : start + n]
        for i in range(n):
            current[i] = mine[i, 0]
            proposed[i] = mine[i, 1]
        accepting, proposing = _keys(w, seed, purpose, round_)
        _weigh(current, proposed, n, prior, inverse, inverse_less, counts, weight, own)
        _accept(current, proposed, n, weight, own, accepting)
        smooth = n_topics * beta[w] / (n_topics * beta[w] + n - 1)
        _propose(current, proposed, n, smooth, n_topics, aliases, limits, proposing)
        for i in range(n):
            counted[at(current[i])] += 1
            mine[i, 0] = current[i]
            mine[i, 1] = proposed[i]


@nb.njit(**_PASS)
def document_pass(
    first, last, doc_start, position, names, pairs, totals, alpha, alpha_sum, aliases, limits, beta_sum,
    counted, seed, purpose, round_,
):  # fmt: skip
    """Work on the documents ``first:last``: accept proposals of words, make those of documents.

    Parameters
    ----------
    doc_start : int64 array
        Where the tokens of a document begin in `position`.
    position : integer array, by token, document by document
        The token's place in `pairs`.
    names : int64 array, by document
        Of its random stream.
    alpha : float32 array (n_topics,); alpha_sum : float
    aliases, limits : int64 and uint32 arrays (n_topics,) or (0,)
        Walker's tables of alpha (`alias_tables`); empty where it is symmetric.
    The others as in `word_pass`.

    Returns
    -------
    int
        Distinct topics of the documents before the pass, summed.
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
        accepting, proposing = _keys(names[d], seed, purpose, round_)
        distinct += _weigh(current, proposed, n, alpha, inverse, inverse_less, counts, weight, own)
        _accept(current, proposed, n, weight, own, accepting)
        smooth = alpha_sum / (alpha_sum + n - 1)
        _propose(current, proposed, n, smooth, n_topics, aliases, limits, proposing)
        for i in range(n):
            p = at(place[i])
            counted[at(current[i])] += 1
            pairs[p, 0] = current[i]
            pairs[p, 1] = proposed[i]
    return distinct


@nb.njit(**_PASS)
def part_of_words(
    names, begin, end, word_start, tokens, starts, pairs, totals, beta, beta_sum, seed, purpose, round_
):  # fmt: skip
    """Work on those tokens of words that are at hand, when of the others only the topics are.

    As `word_pass`; but a word's counts are those of its tokens as they come, some of them drawn in this
    pass and some not yet.

    Parameters
    ----------
    names : int32 array, by word
        Of its random streams.
    begin, end : int64 arrays, by word
        Places of the own tokens in `tokens`.
    word_start : int64 array
        Bounds of all tokens of a word in `tokens`.
    tokens : unsigned array
        Topics of all tokens; those of the own ones become what `pairs` says, and then what is drawn.
    starts : int64 array
        Where the own tokens of a word begin in `pairs`.
    pairs : unsigned array (n, 2)
        Topic and proposal of each own token; changed in place.
    totals : int64 array (n_topics,)
        C_k; the changes are added when all words are done.
    beta : float64 array, by word; beta_sum : float
    seed, purpose, round_
        Name of the random streams.
    """
    n_topics = len(totals)
    inverse, inverse_less = _invert(totals, beta_sum)
    counts, change = np.zeros(n_topics, np.int32), np.zeros(n_topics, np.int64)
    for w in range(len(names)):
        if begin[w] == end[w]:
            continue
        first, n = word_start[w], word_start[w + 1] - word_start[w]
        shift, prior = starts[w] - begin[w], np.float32(beta[w])
        for i in range(begin[w], end[w]):
            tokens[i] = pairs[i + shift, 0]
        for i in span(word_start, w):
            counts[at(tokens[i])] += 1
        accepting, proposing = _keys(names[w], seed, purpose, round_)
        for i in range(begin[w], end[w]):
            s, t = pairs[i + shift, 0], pairs[i + shift, 1]
            u = np.float32(hash32(np.uint32(i - first) * _GOLDEN ^ accepting)) * _UNIT
            own = (np.float32(counts[at(s)]) - _ONE + prior) * inverse_less[at(s)]
            if s != t and u * own < (np.float32(counts[at(t)]) + prior) * inverse[at(t)]:
                tokens[i] = t
                change[at(s)] -= 1
                change[at(t)] += 1
        for i in range(begin[w], end[w]):  # counts go back to zero before the next word
            counts[at(pairs[i + shift, 0])] = 0
            pairs[i + shift, 0] = tokens[i]
        for i in span(word_start, w):
            counts[at(tokens[i])] = 0
        smooth = n_topics * beta[w] / (n_topics * beta[w] + n - 1)
        others = np.uint64(max(n - 1, 1))
        threshold = np.uint32(min(smooth * 4294967296.0, 4294967295.0)) if n > 1 else np.uint32(0xFFFFFFFF)
        for i in range(begin[w], end[w]):
            name = np.uint64(i - first)
            a = np.uint64(hash32(np.uint32(name) * _GOLDEN ^ proposing))
            b = hash32(np.uint32(name) * _GOLDEN ^ (proposing ^ _OTHER))
            j = (a * others) >> _HALF
            j += np.uint64(j >= name)
            taken = tokens[at(first) + min(j, np.uint64(n - 1))]
            drawn = (a * np.uint64(n_topics)) >> _HALF
            pairs[i + shift, 1] = drawn if b <= threshold else taken
    totals += change
