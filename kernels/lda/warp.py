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
Counts are those at the beginning of a pass, except that a token leaves itself out. A proposal from a document
is a topic that its tokens come to in the pass. A proposal from a word is one that its tokens had at the
beginning, which is what shards of documents know of each other; if one shard has all its tokens, it is one
that they come to.

Reference: Chen, Li, Zhu, Chen, "WarpLDA: a cache efficient O(1) algorithm for latent Dirichlet allocation",
VLDB 2016. There, counts and proposals include the token itself.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import BORROWS, INNER, KERNEL
from ..random import hash32, philox4x32
from ..vector import prefetch

_PASS: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INLINE: dict[str, Any] = {**_PASS, **INNER, "forceinline": True}
_ONE, _UNIT = np.float32(1), np.float32(2.0**-32)
_GOLDEN, _OTHER = np.uint32(0x9E3779B9), np.uint32(0x5BD1E995)
_FIRST = np.int64(0)  # token of a word or document that is whole; typed, so that steps are compiled once
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@nb.njit(**_INLINE)
def _accept(current, proposed, moved, first, n, counts, prior, inverse, inverse_less, key):
    """Write the topics of `n` tokens into `moved`: proposals with the probability above, or what they are.

    They are of a word or a document with these `counts`, from its token number `first` on. `prior` is a
    vector over topics, or one element. All is looked up at the token, so that the loop is vectorised.
    """
    for i in range(n):
        s, t = current[i], proposed[i]
        u = np.float32(hash32(np.uint32(first + i) * _GOLDEN ^ key)) * _UNIT
        a = prior[at(s)] if len(prior) > 1 else prior[0]
        stay = (np.float32(counts[at(s)]) - _ONE + a) * inverse_less[at(s)]
        a = prior[at(t)] if len(prior) > 1 else prior[0]
        moved[i] = t if u * stay < (np.float32(counts[at(t)]) + a) * inverse[at(t)] else s


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
def _keys(name, seed, purpose, round_):
    """Two keys for the draws of one word or document."""
    r0, r1, _, _ = philox4x32(
        np.uint32(name), np.uint32(name >> 32), np.uint32(round_), np.uint32(purpose),
        np.uint32(seed & _LOW), np.uint32(seed >> _HALF),
    )  # fmt: skip
    return np.uint32(r0), np.uint32(r1)


@nb.njit(**_INLINE)
def _invert(totals, beta_sum, inverse, inverse_less):
    """``1 / (C_k + sum(beta))``, and with one token less, which a topic without any does not lose."""
    for k in range(len(totals)):
        inverse[k] = _ONE / np.float32(max(totals[k], 0) + beta_sum)
        inverse_less[k] = _ONE / np.float32(max(totals[k] - 1, 0) + beta_sum)


def work_for(n_topics, longest, kind):
    """Scratch of a pass over documents or words of at most `longest` tokens; `kind` is the type of topics.

    Counts, which are zero between two of them, both inverse totals, and topics, proposals and next topics of
    the tokens.
    """
    by_topic = np.zeros(n_topics, np.int32), *np.empty((2, n_topics), np.float32)
    return (*by_topic, *np.empty((3, longest), kind))


@nb.njit(**_PASS)
def document_pass(
    first, last, doc_start, position, names, pairs, flat, totals, alpha, alpha_sum, aliases, limits, beta_sum,
    counted, work, seed, purpose, round_,
):  # fmt: skip
    """Accept the words' proposals for the documents ``first:last``, and draw new ones from the documents.

    The tokens of document d are ``position[doc_start[d]:doc_start[d + 1]]``, places in `pairs` (topic and
    proposal; `flat` are these as a vector), which change in place; their topics after the pass are added to
    `counted`. `names` (int64) name the random streams of documents. `aliases` and `limits` are Walker's
    tables of alpha (`alias.tables_of`); `work` is scratch (`work_for`). Returns the distinct topics of the
    documents before the pass, summed.
    """
    n_topics = len(totals)
    counts, inverse, inverse_less, current, proposed, moved = work
    _invert(totals, beta_sum, inverse, inverse_less)
    n_documents, distinct = len(doc_start) - 1, 0
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
            k = pairs[p, 0]
            current[i] = k
            proposed[i] = pairs[p, 1]
            counts[at(k)] += 1
        accepting, proposing = _keys(names[d], seed, purpose, round_)
        _accept(current, proposed, moved, _FIRST, n, counts, alpha, inverse, inverse_less, accepting)
        smooth = alpha_sum / (alpha_sum + n - 1)
        _propose(moved[:n], proposed, _FIRST, n, smooth, n_topics, aliases, limits, proposing)
        for i in range(n):
            p, k = at(place[i]), at(current[i])
            distinct += counts[k] > 0
            counts[k] = 0
            counted[at(moved[i])] += 1
            pairs[p, 0] = moved[i]
            pairs[p, 1] = proposed[i]
    return distinct


@nb.njit(**_PASS)
def word_pass(
    names, starts, first, pairs, totals, beta, beta_sum, aliases, limits, counted, work, seed, purpose, round_
):
    """Accept the documents' proposals for all tokens of some words, and draw new ones from the words.

    The tokens of shard g of the word w are those from ``starts[w, g]`` to ``starts[w + 1, g]`` behind the
    place ``first[g]`` of `pairs`. They change in place, and their topics after the pass are added to
    `counted`. `names` (int32) name the random streams of words. `aliases` and `limits` are `alias.NO_TABLES`:
    all topics have one beta; `work` is scratch (`work_for`).
    """
    n_topics, n_shards = len(totals), starts.shape[1]
    counts, inverse, inverse_less, current, proposed, moved = work
    _invert(totals, beta_sum, inverse, inverse_less)
    for w in range(len(names)):
        n, most, prior = np.int64(0), np.int64(0), n_topics * np.float64(beta[w])
        for g in range(n_shards):
            most = max(most, starts[w + 1, g] - starts[w, g])
            for p in range(first[g] + starts[w, g], first[g] + starts[w + 1, g]):
                k = pairs[at(p), 0]
                current[n] = k
                proposed[n] = pairs[at(p), 1]
                counts[at(k)] += 1
                n += 1
        accepting, proposing = _keys(np.int64(names[w]), seed, purpose, round_)
        own = (counts, beta[w : w + 1], inverse, inverse_less)
        _accept(current, proposed, moved, _FIRST, n, *own, accepting)
        theirs, smooth = moved[:n] if most == n else current[:n], prior / (prior + n - 1)
        _propose(theirs, proposed, _FIRST, n, smooth, n_topics, aliases, limits, proposing)
        n = 0
        for g in range(n_shards):
            for p in range(first[g] + starts[w, g], first[g] + starts[w + 1, g]):
                k = moved[n]
                pairs[at(p), 0] = k
                pairs[at(p), 1] = proposed[n]
                counted[at(k)] += 1
                counts[at(current[n])] = 0  # before the next word
                n += 1


@nb.njit(**_PASS)
def word_part(
    names, begin, end, word_start, tokens, rows, starts, pairs, totals, beta, beta_sum, aliases, limits,
    change, work, seed, purpose, round_,
):  # fmt: skip
    """The part of one shard in `word_pass`, of words whose other tokens are known by their topics alone.

    `tokens` are the topics that all tokens of the block have at the beginning of the pass, those of a word
    bounded by `word_start`, and the shard's among them by `begin` and `end`; in `pairs`, which change in
    place, a word's begin at `starts`. `rows` (int32) are the counts of the first words' `tokens`; other words
    are counted anew. The changes of the topic totals are added to `change`.
    """
    n_topics = len(totals)
    scratch, inverse, inverse_less, _, proposed, moved = work
    _invert(totals, beta_sum, inverse, inverse_less)
    for w in range(len(names)):
        n, first, prior = end[w] - begin[w], begin[w] - word_start[w], n_topics * np.float64(beta[w])
        if n == 0:
            continue
        theirs, drawn = tokens[word_start[w] : word_start[w + 1]], pairs[starts[w] : starts[w] + n]
        n_all = len(theirs)
        current, counts = tokens[begin[w] : end[w]], rows[w] if w < len(rows) else scratch
        if w >= len(rows):
            for i in range(len(theirs)):
                counts[at(theirs[i])] += 1
        for i in range(n):
            proposed[i] = drawn[i, 1]
        accepting, proposing = _keys(np.int64(names[w]), seed, purpose, round_)
        own = (counts, beta[w : w + 1], inverse, inverse_less)
        _accept(current, proposed, moved, first, n, *own, accepting)
        theirs, smooth = moved[:n] if n == n_all else theirs, prior / (prior + n_all - 1)
        _propose(theirs, proposed, first, n, smooth, n_topics, aliases, limits, proposing)
        for i in range(n):
            drawn[i, 0] = moved[i]
            drawn[i, 1] = proposed[i]
            change[at(current[i])] -= 1
            change[at(moved[i])] += 1
        if w >= len(rows):  # back to zero before the next word
            for i in range(word_start[w], word_start[w + 1]):
                counts[at(tokens[i])] = 0


@nb.njit(**_PASS)
def gather(starts, first, pairs, topics):
    """Copy the topics of the tokens of some words, placed as in `word_pass`, word by word."""
    n = 0
    for w in range(len(starts) - 1):
        for g in range(starts.shape[1]):
            for p in range(first[g] + starts[w, g], first[g] + starts[w + 1, g]):
                topics[n] = pairs[at(p), 0]
                n += 1
