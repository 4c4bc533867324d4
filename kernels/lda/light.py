"""LightLDA's cycle of Metropolis-Hastings proposals for LDA: one sweep over one block of tokens.

A token's topic s is exposed to proposals t from its word and from its document in turn::

    p(k)    ~  (C_dk + alpha_k) (C_wk + beta_w) / (C_k + sum(beta))      the collapsed conditional
    q_w(k)  ~  C_wk + beta_w
    q_d(k)  ~  C_dk + alpha_k
    accept t with probability  min(1, p(t) q(s) / (p(s) q(t)))

Every count is live and leaves the token itself out, in p and in q: while the token moves, both are fixed
functions of k, each step leaves p as it is, and so a sweep leaves the posterior as it is. With the own count
in q it would not.

Tokens lie word by word, so that a draw from C_wk is the topic of another token of the word. LightLDA, which
goes document by document, needs an alias table of each word for that, and has it stale. C_wk itself is
counted once a word and block, over the word's tokens alone. A document's counts are a list of packed
``topic << shift | count`` in lines of 16 (`stradask.kernels.lda.gibbs.sweep_sparse`). No step grows with K.

`lda/light.cu` does the same on a GPU, bit for bit: no products are fused with sums here.

Reference: Yuan et al., "LightLDA: big topic models on modest computer clusters", WWW 2015. There q_w is
divided by C_k + sum(beta), which makes no difference to the held-out perplexity after a number of sweeps, and
q holds the token's own count.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import INNER, KERNEL
from ..random import hash32, philox4x32
from ..vector import LANES, draw_slot, find_topic, prefetch
from .gibbs import AHEAD

# A token's steps count no references to their arrays: numba would, atomically, for a fifth of a sweep's time.
_INLINE: dict[str, Any] = {**KERNEL, "forceinline": True, "_nrt": False}
_GOLDEN, _OTHER, _ONE = np.uint32(0x9E3779B9), np.uint32(0x5BD1E995), np.uint32(1)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_PER_STEP = np.uint32(3 * 0x5BD1E995 & 0xFFFFFFFF)
_UNIT = 2.0**-32  # makes a number below 1 of 32 bits
_LINE, _AHEAD = np.uint64(LANES), np.uint64(AHEAD)


@nb.njit(**_INLINE, **INNER)
def _slot_of(topic, entries, first, end, bits, mask):
    """Slot of a topic that the document has, else `end`."""
    return find_topic(entries, first, end, np.uint32(np.uint32(topic) << bits), mask)


@nb.njit(**_INLINE, **INNER)
def _add(topic, slot, entries, first, end, bits, mask):
    """Count a token in its topic's slot, or in an empty one if that is `end`; True if the list grows."""
    if slot == end:
        slot = first
        while slot < end and entries[slot] & mask:
            slot += np.uint64(1)
        entries[slot] = np.uint32(np.uint32(topic) << bits)
    entries[slot] += _ONE
    return slot == end


@nb.njit(**_INLINE, **INNER)
def _below(bits, n):
    """A number below `n` from 32 random bits."""
    return (np.uint64(bits) * np.uint64(n)) >> _HALF


@nb.njit(**_INLINE, **INNER)
def _from_alpha(bits, n_topics, aliases, limits):
    """Draw a topic with the weights of the tables, or of equal weights if there are none."""
    product = np.uint64(bits) * np.uint64(n_topics)
    topic = product >> _HALF
    if len(limits) and np.uint32(product & _LOW) >= limits[topic]:
        topic = np.uint64(aliases[topic])
    return topic


@nb.njit(**_INLINE, **INNER)
def _draws(x, key):
    """Draw a uniform, 32 random bits and another uniform."""
    choice, pick = hash32(x ^ key), hash32(x ^ np.uint32(key + _OTHER))
    u = hash32(x ^ np.uint32(key + _OTHER + _OTHER))
    return np.float64(choice) * _UNIT, pick, np.float64(u) * _UNIT


@nb.njit(**_INLINE, **INNER)
def _key(word, seed, purpose, round_, index):
    """Key of the draws of one word in one block."""
    return philox4x32(
        np.uint32(word), np.uint32(index), np.uint32(round_), np.uint32(purpose),
        np.uint32(seed & _LOW), np.uint32(seed >> _HALF),
    )[0]  # fmt: skip


@nb.njit(**_INLINE, **INNER)
def _move(
    i, number, word_first, word_last, doc_others, own_slot, topics, counts, entries, first, stop, bits, mask,
    totals, alpha, alpha_sum, aliases, limits, b, beta_sum, n_steps, key,
):  # fmt: skip
    """Expose the topic of token i to `n_steps` pairs of proposals; every count leaves the token out.

    Its draws are those of token `number`. Returns the topic that it ends with, and the slot of that topic in
    its document's list (the end of the list if it is not there); with the topic that the token has, the slot
    means nothing.
    """
    n_topics = len(totals)
    word_others, smooth = np.int64(word_last - word_first), n_topics * b
    s, slot = at(topics[i]), own_slot
    x, lane = np.uint32(np.uint32(number) * _GOLDEN), key
    for _ in range(n_steps):
        # From the word: its part of p cancels, and the document's decides.
        u0, pick, u = _draws(x, lane)
        lane = np.uint32(lane + _PER_STEP)
        other = word_first + _below(pick, word_others)
        other += np.uint64(other >= i)
        t = at(topics[min(other, word_last)])
        t = t if u0 * (word_others + smooth) < word_others else _below(pick, n_topics)
        if t != s:
            t_slot = _slot_of(t, entries, first, stop, bits, mask)
            c_s = np.float64(entries[slot] & mask) if slot < stop else 0.0
            c_t = np.float64(entries[t_slot] & mask) if t_slot < stop else 0.0
            go = (c_t + alpha[t]) * (totals[s] + beta_sum)
            if u * (c_s + alpha[s]) * (totals[t] + beta_sum) < go:
                s, slot = t, t_slot
        # From the document: the word's part decides.
        u0, pick, u = _draws(x, lane)
        lane = np.uint32(lane + _PER_STEP)
        if u0 * (doc_others + alpha_sum) < doc_others:
            t_slot = draw_slot(entries, first, np.uint32(_below(pick, doc_others)), mask)
            t = at(entries[t_slot] >> bits)
        else:
            t = _from_alpha(pick, n_topics, aliases, limits)
            t_slot = _slot_of(t, entries, first, stop, bits, mask)
        go = (counts[t] + b) * (totals[s] + beta_sum)
        if u * (counts[s] + b) * (totals[t] + beta_sum) < go:
            s, slot = t, t_slot
    return s, slot


@nb.njit(**KERNEL)
def sweep(
    words, begin, end, word_start, token_doc, topics, entries, line_start, n_lines, shift, lengths,
    row_of_word, rows, totals, changes, alpha, alpha_sum, aliases, limits, beta, beta_sum, n_steps, seed,
    purpose, round_, index, names=None, firsts=None,
):  # fmt: skip
    """Move the tokens ``begin[w]:end[w]`` of each of `words`.

    Tokens, words with rows and totals are as in `gibbs.sweep_dense`, `topics` being those of all tokens;
    lists of documents as in `gibbs.sweep_sparse`, and `lengths` (int64) the tokens of documents. Where
    `changes` is not empty, the totals do not move, and their changes are added to it. Priors are float64;
    `aliases` and `limits` are Walker's tables of alpha (`alias.tables_of`). `n_steps` are the pairs of
    proposals a token. Each word has a random stream of its own, named by `seed`, `purpose`, `round_` and
    `index`. `names` and `firsts` number a word, and its first token, in a corpus of which these are a part.
    """
    bits, mask = np.uint32(shift), np.uint32((np.int64(1) << shift) - 1)
    scratch = np.zeros(len(totals), np.int32)
    for w in words:
        if begin[w] == end[w]:
            continue
        r, b = row_of_word[w], beta[w]
        counts = rows[r] if r >= 0 else scratch
        if r < 0:
            for i in span(word_start, w):
                counts[at(topics[i])] += 1
        word_first, word_last = at(word_start[w]), at(word_start[w + 1] - 1)
        key = _key(w if names is None else names[w], seed, purpose, round_, index)
        before = at(0) if firsts is None else at(firsts[w]) - word_first
        for i in range(at(begin[w]), at(end[w])):
            number = i + before
            coming = line_start[at(token_doc[i + _AHEAD])] * LANES
            for line in range(3):
                prefetch(entries, coming + line * LANES)
            d, old = at(token_doc[i]), at(topics[i])
            first = at(line_start[d]) * _LINE
            stop = first + at(n_lines[d]) * _LINE
            own_slot = _slot_of(old, entries, first, stop, bits, mask)
            entries[own_slot] -= _ONE
            counts[old] -= 1
            totals[old] -= 1
            s, slot = _move(
                i, number, word_first, word_last, lengths[d] - 1, own_slot, topics, counts, entries, first,
                stop, bits, mask, totals, alpha, alpha_sum, aliases, limits, b, beta_sum, n_steps, key,
            )  # fmt: skip
            counts[s] += 1
            if len(changes):
                totals[old] += 1
                changes[old] -= 1
                changes[s] += 1
            else:
                totals[s] += 1
            if s == old:
                entries[own_slot] += _ONE
            else:
                topics[i] = s
                n_lines[d] += _add(s, slot, entries, first, stop, bits, mask)
        if r < 0:
            for i in span(word_start, w):
                counts[at(topics[i])] = 0


@nb.njit(**KERNEL)
def sweep_common(
    words, first_doc, last_doc, word_start, token_doc, topics, entries, line_start, n_lines, shift, lengths,
    row_of_word, rows, totals, changes, alpha, alpha_sum, aliases, limits, beta, beta_sum, n_steps, seed,
    purpose, round_, index,
):  # fmt: skip
    """Move tokens of `words`, whose counts and topics, like the totals, stand still meanwhile.

    Those of the documents from `first_doc` on and before `last_doc`; so a GPU can move a common word's tokens
    in many documents at a time, and gives the same topics. The counts of documents are live. Other parameters
    are those of `sweep`; `changes` are summed up.
    """
    bits, mask = np.uint32(shift), np.uint32((np.int64(1) << shift) - 1)
    counts = np.zeros(len(totals), np.int32)
    for w in words:
        for i in span(word_start, w):
            counts[at(topics[i])] += 1
        word_first, word_last = at(word_start[w]), at(word_start[w + 1] - 1)
        coming = np.empty(word_start[w + 1] - word_start[w], topics.dtype)
        key = _key(w, seed, purpose, round_, index)
        for i in span(word_start, w):
            d, old = at(token_doc[i]), at(topics[i])
            if d < first_doc or d >= last_doc:
                continue
            first = at(line_start[d]) * _LINE
            stop = first + at(n_lines[d]) * _LINE
            own_slot = _slot_of(old, entries, first, stop, bits, mask)
            entries[own_slot] -= _ONE
            counts[old] -= 1
            totals[old] -= 1
            s, slot = _move(
                i, i, word_first, word_last, lengths[d] - 1, own_slot, topics, counts, entries, first, stop,
                bits, mask, totals, alpha, alpha_sum, aliases, limits, beta[w], beta_sum, n_steps, key,
            )  # fmt: skip
            counts[old] += 1
            totals[old] += 1
            coming[i - word_first] = s
            if s == old:
                entries[own_slot] += _ONE
            else:
                n_lines[d] += _add(s, slot, entries, first, stop, bits, mask)
        for i in span(word_start, w):
            counts[at(topics[i])] = 0
        for i in span(word_start, w):
            if token_doc[i] < first_doc or token_doc[i] >= last_doc:
                continue
            old, s = at(topics[i]), at(coming[i - word_first])
            changes[old] -= 1
            changes[s] += 1
            if row_of_word[w] >= 0:
                rows[row_of_word[w], old] -= 1
                rows[row_of_word[w], s] += 1
            topics[i] = s
