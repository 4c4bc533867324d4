"""SaberLDA's sweep for LDA on the CPU: every token is drawn from the counts of the sweep before.

Counts do not move within a sweep, so tokens may be drawn in any order, and on any number of threads. With b
the word's beta, o the token's topic so far and u = C_wk / b, a token is drawn with the weights::

    q(k)  =  (C_dk + alpha_k) g_k,   g_k = (1 + u_k) / (C_k + sum(beta)),   own count left out at k = o

which is the collapsed conditional times a constant of the word. The draw is in parts: ``C_dk g_k`` over the
topics of the document, a packed list; and ``alpha_k g_k`` over all topics, by a tree of prefix sums whose
nodes have 32 children. A word of few tokens builds no tree: it has ``alpha_k u_k / (C_k + sum(beta))`` over
its own list of topics, and ``alpha_k / (C_k + sum(beta))`` by a tree that all words share.

Lists and trees count the token itself. It is left out by rejection: if o is drawn, it stays with the
probability q(o) without the token / q(o) with it, else all is drawn anew; after a number of rejections from
q itself, topic by topic. Equal tokens of a document share their sums.

`lda/saber.cu` does the same on a GPU, bit for bit: lists are summed in 32 lanes and lanes are added in one
order; nothing but + - * / of float32 decides on a topic, and no operations are fused.

References: Li, Chen, Chen, Zhu, "SaberLDA: sparsity-aware learning of topic models on GPUs", ASPLOS 2017;
Zaheer, Wick, Tristan, Smola, Steele, "Exponential stochastic cellular automata for massively parallel
inference", AISTATS 2016. Both count the token itself.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import INNER, KERNEL
from ..random import hash32, philox4x32
from ..vector import prefetch

LINE = 32  # entries of a list that are summed side by side; children of a node
AHEAD = 12  # tokens by which a document's list is asked for in advance
TRIES = 8  # draws by lists and trees, before one by all topics
RARE = 4  # a word of less than K / RARE tokens builds no tree

# A token's steps count no references to their arrays: numba would, atomically, for a tenth of a sweep's time.
_STEP: dict[str, Any] = {**KERNEL, "_nrt": False}
_INLINE: dict[str, Any] = {**_STEP, "forceinline": True}
_ZERO, _ONE, _UNIT, _BITS = np.float32(0), np.float32(1), np.float32(2.0**-24), np.uint32(8)
_COUNT, _SHIFT = np.uint32(0xFFFF), np.uint32(16)
_GOLDEN, _OTHER, _THIRD = np.uint32(0x9E3779B9), np.uint32(0x5BD1E995), np.uint32(0x85EBCA6B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


# Lists of topics ------------------------------------------------------------------------------------


@nb.njit(**KERNEL)
def by_document(begin, end, token_doc, topics, first, doc_start, placed):
    """Copy the topics of the tokens ``begin[w]:end[w]`` to where their documents' begin, from `first` on."""
    cursor = doc_start - doc_start[0]
    for w in range(len(begin)):
        for i in range(at(begin[w]), at(end[w])):
            d = at(token_doc[i] - first)
            placed[at(cursor[d])] = topics[i]
            cursor[d] += 1


@nb.njit(**KERNEL, **INNER)
def _list(tokens, counts, own, entries, start):
    """Count topics into a list of ``topic << 16 | count``, ascending; return how many lines it takes.

    `counts` is zero before and after.
    """
    n = 0
    for k in tokens:
        if counts[at(k)] == 0:
            own[n] = k
            n += 1
        counts[at(k)] += 1
    own[:n].sort()
    for j in range(n):
        k = at(own[j])
        entries[at(start + j)] = (np.uint32(k) << _SHIFT) | np.uint32(counts[k])
        counts[k] = 0
    lines = (n + LINE - 1) // LINE
    for j in range(n, lines * LINE):
        entries[at(start + j)] = 0
    return lines


@nb.njit(**KERNEL)
def document_lists(doc_start, placed, line_start, n_lines, entries, n_topics):
    """Fill the lists of documents whose tokens' topics are ``placed``; both begin at the first of them."""
    counts, own = np.zeros(n_topics, np.int32), np.empty(n_topics, np.uint16)
    for d in range(len(n_lines)):
        tokens = placed[doc_start[d] - doc_start[0] : doc_start[d + 1] - doc_start[0]]
        n_lines[d] = _list(tokens, counts, own, entries, line_start[d] * LINE)


# Draws ----------------------------------------------------------------------------------------------


@nb.njit(**_INLINE, **INNER)
def _scan(sums, prefix):
    """Add up 32 lanes, as a warp does in five steps."""
    for lane in range(LINE):
        prefix[lane] = sums[lane]
    for exponent in range(5):
        step = 1 << exponent
        for lane in range(LINE - 1, step - 1, -1):
            prefix[lane] += prefix[lane - step]
    return prefix[LINE - 1]


@nb.njit(**KERNEL, **INNER)
def _total(values, first, last):
    """Add up at most 32 values, as a warp does by halves."""
    held = np.zeros(LINE, np.float32)
    for i in range(first, last):
        held[i - first] = values[i]
    half = LINE // 2
    while half:
        for lane in range(half):
            held[lane] += held[lane + half]
        half //= 2
    return held[0]


@nb.njit(**_INLINE, **INNER)
def _pick(sums, prefix, x):
    """Find the lane in which x falls, of those that hold anything; the last if rounding leaves none."""
    last = 0
    for lane in range(LINE):
        if sums[lane] > _ZERO:
            if x < prefix[lane]:
                return lane
            last = lane
    return last


@nb.njit(**_INLINE, **INNER)
def _before(prefix, lane):
    return prefix[lane - 1] if lane else _ZERO


@nb.njit(**_INLINE, **INNER)
def _sum_list(entries, start, lines, weights, sums, prefix):
    """Sum ``count * weights[topic]`` of a list."""
    for lane in range(LINE):
        sums[lane] = _ZERO
    for j in range(lines):
        for lane in range(LINE):
            e = entries[at(start + j * LINE + lane)]
            sums[lane] += np.float32(e & _COUNT) * weights[at(e >> _SHIFT)]
    return _scan(sums, prefix)


@nb.njit(**_STEP, **INNER)
def _draw_list(entries, start, lines, weights, sums, prefix, x):
    """Entry of a list in which x, below the sum, falls."""
    lane = _pick(sums, prefix, x)
    x -= _before(prefix, lane)
    found = entries[at(start + lane)]
    for j in range(lines):
        e = entries[at(start + j * LINE + lane)]
        if e == 0:
            break
        found = e
        x -= np.float32(e & _COUNT) * weights[at(e >> _SHIFT)]
        if x < _ZERO:
            break
    return found


@nb.njit(**_STEP, **INNER)
def _count_of(topic, entries, start, lines):
    """Count of a topic that is in the list."""
    for i in range(at(start), at(start + lines * LINE)):
        if np.int64(entries[i] >> _SHIFT) == topic and entries[i] & _COUNT:
            return entries[i] & _COUNT
    return np.uint32(0)


@nb.njit(**KERNEL)
def grow_tree(alpha, weights, groups, tops):
    """Fill a tree over ``alpha * weights``: prefix sums of the sums of 32 leaves, and of 32 of those."""
    n = len(weights)
    n_groups = (n + LINE - 1) // LINE
    leaves, lanes = np.zeros(LINE, np.float32), np.zeros(LINE, np.float32)
    tops_raw = np.zeros(LINE, np.float32)
    for top in range((n_groups + LINE - 1) // LINE):
        lanes[:] = _ZERO
        for child in range(min(LINE, n_groups - top * LINE)):
            first = (top * LINE + child) * LINE
            m = min(LINE, n - first)
            for i in range(m):
                leaves[i] = alpha[first + i] * weights[first + i]
            lanes[child] = _total(leaves, 0, m)
        prefix = np.empty(LINE, np.float32)
        tops_raw[top] = _scan(lanes, prefix)
        for child in range(min(LINE, n_groups - top * LINE)):
            groups[top * LINE + child] = prefix[child]
    return _scan(tops_raw, tops)


@nb.njit(**_STEP, **INNER)
def _descend(prefix, first, n, x):
    """Child in which x falls, the last one if rounding leaves none; and x without those before."""
    child = n - 1
    for i in range(n):
        if x < prefix[first + i]:
            child = i
            break
    return child, x - (prefix[first + child - 1] if child else _ZERO)


@nb.njit(**KERNEL, **INNER)
def _draw_tree(alpha, weights, groups, tops, x):
    """Leaf of a tree in which x, below the sum, falls."""
    n = len(weights)
    n_groups = (n + LINE - 1) // LINE
    top, x = _descend(tops, 0, (n_groups + LINE - 1) // LINE, x)
    group, x = _descend(groups, top * LINE, min(LINE, n_groups - top * LINE), x)
    first = (top * LINE + group) * LINE
    leaves, prefix = np.zeros(LINE, np.float32), np.empty(LINE, np.float32)
    m = min(LINE, n - first)
    for i in range(m):
        leaves[i] = alpha[first + i] * weights[first + i]
    _scan(leaves, prefix)
    leaf, _ = _descend(prefix, 0, m, x)
    return first + leaf


@nb.njit(**KERNEL, **INNER)
def _draw_without(old, own, alpha, weights, entries, start, lines, u, v):
    """Draw with the weight `own` for `old`, and the others' as they are, topic by topic."""
    sums, prefix = np.zeros(LINE, np.float32), np.empty(LINE, np.float32)
    all_sums, all_prefix = np.zeros(LINE, np.float32), np.empty(LINE, np.float32)
    for j in range(lines * LINE):
        e = entries[at(start + j)]
        if np.int64(e >> _SHIFT) != old:
            sums[j % LINE] += np.float32(e & _COUNT) * weights[at(e >> _SHIFT)]
    for k in range(len(weights)):
        if k != old:
            all_sums[k % LINE] += alpha[k] * weights[k]
    document, everything = _scan(sums, prefix), _scan(all_sums, all_prefix)
    x = u * ((own + document) + everything)
    if x < own or document + everything == _ZERO:
        return old
    found = old
    if x < own + document:
        x -= own
        lane = _pick(sums, prefix, x)
        x -= _before(prefix, lane)
        for j in range(lane, lines * LINE, LINE):
            e = entries[at(start + j)]
            if e and np.int64(e >> _SHIFT) != old:
                found = np.int64(e >> _SHIFT)
                x -= np.float32(e & _COUNT) * weights[found]
                if x < _ZERO:
                    break
        return found
    x = v * everything
    lane = _pick(all_sums, all_prefix, x)
    x -= _before(all_prefix, lane)
    for k in range(lane, len(weights), LINE):
        if k != old:
            found = k
            x -= alpha[k] * weights[k]
            if x < _ZERO:
                break
    return found


@nb.njit(**_INLINE, **INNER)
def _unit(bits):
    return np.float32(bits >> _BITS) * _UNIT


@nb.njit(**_INLINE, **INNER)
def _more(bits, attempt):
    """Three draws of a later attempt."""
    x = np.uint32(bits + np.uint32(attempt) * _GOLDEN)
    return hash32(x), hash32(x ^ _OTHER), hash32(x ^ _THIRD)


@nb.njit(**KERNEL)
def sample_words(
    first, last, word_start, token_doc, topics, entries, line_start, n_lines, alpha, inverse, base, lift,
    groups, tops, per_beta, counted, seed, purpose, round_,
):  # fmt: skip
    """Draw the tokens of the words ``first:last``; their topics are added to `counted`.

    `token_doc` is padded by `AHEAD` entries; `topics` change in place. The list of document d is `entries`
    (uint32) from ``32 * line_start[d]`` on, in lines of 32 filled up with zeros. By topic, float32: `alpha`;
    `inverse`, 1 / (C_k + sum(beta)); `base`, their product; `lift`, (C_k + sum(beta)) / (C_k - 1 +
    sum(beta)). `groups` and `tops` are the tree of ``alpha * inverse`` (`grow_tree`); `per_beta` is 1 / beta,
    by word. Each token has a random stream of its own, named by `seed`, `purpose` and `round_`.
    """
    n_topics = len(alpha)
    counts, own = np.zeros(n_topics, np.int32), np.empty(n_topics, np.uint16)
    weights = inverse.copy()
    own_groups, own_tops = np.empty_like(groups), np.empty_like(tops)
    listed = np.empty((n_topics // RARE + LINE) // LINE * LINE + LINE, np.uint32)
    list_sums, list_prefix = np.empty(LINE, np.float32), np.empty(LINE, np.float32)
    sums, prefix = np.empty(LINE, np.float32), np.empty(LINE, np.float32)
    shared_total = tops[LINE - 1]
    k0, k1 = np.uint32(seed & _LOW), np.uint32(seed >> _HALF)
    for w in range(first, last):
        begin, end = at(word_start[w]), at(word_start[w + 1])
        if begin == end:
            continue
        factor, rare = per_beta[w], np.int64(end - begin) < n_topics // RARE
        lines, list_total, tree_total = 0, _ZERO, shared_total
        if rare:
            lines = _list(topics[begin:end], counts, own, listed, 0)
            list_total = factor * _sum_list(listed, 0, lines, base, list_sums, list_prefix)
            for j in range(lines * LINE):
                if listed[j]:
                    k = at(listed[j] >> _SHIFT)
                    weights[k] = inverse[k] * (_ONE + np.float32(listed[j] & _COUNT) * factor)
        else:
            for i in range(begin, end):
                counts[at(topics[i])] += 1
            for k in range(n_topics):
                weights[k] = inverse[k] * (_ONE + np.float32(counts[k]) * factor)
                counts[k] = 0
            tree_total = grow_tree(alpha, weights, own_groups, own_tops)
        known, start, own_lines, total = np.int64(-1), np.int64(0), np.int64(0), _ZERO
        for i in range(begin, end):
            coming = line_start[at(token_doc[i + np.uint64(AHEAD)])] * LINE
            for line in range(4):
                prefetch(entries, coming + line * 16)
            d, old = np.int64(token_doc[i]), np.int64(topics[i])
            if d != known:
                known, start, own_lines = d, line_start[at(d)] * LINE, np.int64(n_lines[at(d)])
                total = _sum_list(entries, start, own_lines, weights, sums, prefix)
            r0, r1, r2, r3 = philox4x32(
                np.uint32(i & _LOW), np.uint32(i >> _HALF), np.uint32(round_), np.uint32(purpose), k0, k1
            )
            attempt = 0
            while True:
                x, y = _unit(r0) * ((total + list_total) + tree_total), _unit(r1)
                count = np.uint32(0)
                if x < total:
                    e = _draw_list(entries, start, own_lines, weights, sums, prefix, x)
                    topic, count = np.int64(e >> _SHIFT), e & _COUNT
                elif x < total + list_total:
                    x = y * list_prefix[LINE - 1]
                    e = _draw_list(listed, 0, lines, base, list_sums, list_prefix, x)
                    topic = np.int64(e >> _SHIFT)
                elif rare:
                    topic = _draw_tree(alpha, inverse, groups, tops, y * tree_total)
                else:
                    topic = _draw_tree(alpha, weights, own_groups, own_tops, y * tree_total)
                if topic != old:
                    break
                if count == 0:
                    count = _count_of(old, entries, start, own_lines)
                o, c = at(old), np.float32(count)
                less = weights[o] - factor * inverse[o]  # g without the token
                left = ((c - _ONE) + alpha[o]) * (max(less, _ZERO) * lift[o])
                if _unit(r2) * ((c + alpha[o]) * weights[o]) < left:
                    break
                attempt += 1
                r0, r1, r2 = _more(r3, attempt)
                if attempt == TRIES:
                    u, v = _unit(r0), _unit(r1)
                    topic = _draw_without(old, left, alpha, weights, entries, start, own_lines, u, v)
                    break
            topics[i] = topic
            counted[topic] += 1
        if rare:
            for j in range(lines * LINE):
                if listed[j]:
                    k = at(listed[j] >> _SHIFT)
                    weights[k] = inverse[k]
        else:
            for every in range(len(weights)):
                weights[every] = inverse[every]
