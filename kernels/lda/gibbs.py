"""Collapsed Gibbs sampling for LDA on the CPU: one sweep over one block of tokens.

Tokens lie word by word, and inside a word by document, so that one word's topic counts stay in the
first-level cache while its tokens are drawn::

    p(z = k | rest)  ~  (C_dk + alpha_k) (C_wk + beta_w) / (C_k + sum(beta)),   own count left out

With seed words (`lda_seeds`) beta has an entry a topic for some words.
A document's topic counts are a dense row (`sweep_dense`, few topics; for short documents see
`short_rows`) or a list of packed ``topic << shift | count`` in lines of 16 (`sweep_sparse`, many topics);
document and word counts are live always. The topic totals C_k belong to the caller's block: with ``exact``
they are live too, and a sweep is an exact Gibbs sweep; without, their reciprocals are renewed every few
thousand tokens, which saves two divisions a token.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at
from ..options import BORROWS, INNER, KERNEL
from ..random import fill_uniform
from ..vector import LANES, aligned, draw_dense, draw_sparse, prefetch
from .document_priors import ask_for_prior, prior_of
from .models.responses import accepted
from .seeds import clear_extra, load_extra, smoothed, smoothed_total
from .short_rows import ask_for_counts, change_counts, row_of_counts

AHEAD = 12  # tokens by which a document's row is asked for in advance
STREAMS = 3  # words drawn in turn, so that their chains of dependent steps overlap; `_are_apart` knows it
DRAWS = 4096  # uniforms made at a time; totals are renewed as often

_SWEEP: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INLINE: dict[str, Any] = {**_SWEEP, **INNER, "forceinline": True}
_ONE = np.float32(1)
_ROW = np.int64(0)  # of the only word in use; typed, so that what takes a row is compiled once


def padded(n):
    """Round up to whole vectors."""
    return (n + LANES - 1) // LANES * LANES


@nb.njit(**_SWEEP)
def count_documents(token_doc, topics, doc_counts):
    """Fill dense document rows from the tokens' topics."""
    doc_counts[:] = 0
    for i in range(len(topics)):
        doc_counts[token_doc[i], topics[i]] += 1


def list_documents(token_doc, topics, entries, line_start, n_lines, shift):
    """Fill the documents' packed lists from the tokens' topics."""
    _list_documents(token_doc, topics, entries, line_start, n_lines, shift, np.zeros(len(n_lines), np.int64))


@nb.njit(**_SWEEP)
def _list_documents(token_doc, topics, entries, line_start, n_lines, shift, used):
    entries[:] = 0
    bits = np.uint32(shift)
    for i in range(len(topics)):
        d, k = token_doc[i], np.uint32(topics[i])
        start = line_start[d] * LANES
        j = 0
        while j < used[d] and entries[start + j] >> bits != k:
            j += 1
        if j == used[d]:
            entries[start + j] = k << bits
            used[d] += 1
        entries[start + j] += np.uint32(1)
    for d in range(len(n_lines)):
        n_lines[d] = (used[d] + LANES - 1) // LANES


@nb.njit(**_INLINE)
def _renew(inverse, totals, beta_sum, seeds, n_topics):
    for k in range(n_topics):
        inverse[k] = _ONE / smoothed_total(totals[k], beta_sum, seeds, k)


@nb.njit(**_INLINE)
def _load_word(w, counts, word_start, all_topics, row_of_word, rows, n_topics):
    """Topic counts of a word: from its row if it keeps one, else counted from its tokens."""
    r = row_of_word[w]
    if r >= 0:
        for k in range(n_topics):
            counts[k] = rows[r, k]
    else:
        for k in range(n_topics):
            counts[k] = 0
        for i in range(word_start[w], word_start[w + 1]):
            counts[all_topics[i]] += 1


def dense_work(n_topics, width, seeds=None):
    """Scratch of `sweep_dense` for rows of `width` counts, for later sweeps too."""
    phi, inverse = aligned((STREAMS, width), np.float32), aligned(width, np.float32)
    counts = np.zeros((STREAMS, n_topics), np.int32)
    extra = None if seeds is None else np.zeros((STREAMS, n_topics), np.float32)
    scratch, uniforms = aligned((STREAMS, width + LANES), np.float32), aligned(DRAWS, np.float32)
    places, expanded = np.zeros((5, STREAMS), np.int64), aligned(STREAMS * (width + 32), np.uint8)
    return phi, inverse, counts, extra, scratch, uniforms, places, expanded


@nb.njit(**_INLINE)
def _are_apart(token_doc, next_, t):
    """Whether the tokens that are next in the three streams are of three documents."""
    one, two = token_doc[at(next_[0] + t)], token_doc[at(next_[1] + t)]
    three = token_doc[at(next_[2] + t)]
    return (one != two) & (one != three) & (two != three)


@nb.njit(**_INLINE)
def _draw_next(
    i, m, b, token_doc, topics, doc_counts, totals, counts, extra, phi, inverse, alpha, beta_sum, seeds,
    exact, u, scratch, expanded,
):  # fmt: skip
    """Draw a topic for token i of the word in stream m, and ask for the row of a coming one."""
    n_topics, width = len(totals), len(inverse)
    n_vectors = (n_topics + LANES - 1) // LANES  # what follows in a row is padding
    ask_for_counts(doc_counts, token_doc[i + at(AHEAD)], width)
    doc_row, row = row_of_counts(doc_counts, token_doc[i], width, expanded, m)
    ask_for_prior(alpha, token_doc[i + at(AHEAD)])
    old = at(topics[i])
    phi_old = smoothed(counts[m, old] - 1, b, extra, m, old)
    if exact:
        phi_old /= smoothed_total(totals[old] - 1, beta_sum, seeds, old)
    else:  # 1 / (C - 1) = (1 / C) (1 + 1 / C) up to the third order
        phi_old = phi_old * inverse[old] * (_ONE + inverse[old])
    here, there, prior = (
        np.int64(m * at(width)),
        np.int64(m * at(width + LANES)),
        prior_of(alpha, token_doc[i]),
    )
    new = draw_dense(doc_row, row, n_vectors, np.int64(old), phi, here, prior, phi_old, u, scratch, there)
    return min(new, n_topics - 1)


@nb.njit(**_INLINE)
def _move(i, m, b, new, token_doc, topics, doc_counts, totals, counts, extra, phi, inverse):
    """Give token i of the word in stream m a topic; phi is renewed where the word's counts changed."""
    old, k = at(topics[i]), at(new)
    change_counts(doc_counts, token_doc[i], len(inverse), old, k)
    topics[i] = new
    totals[old] -= 1
    totals[k] += 1
    counts[m, old] -= 1
    counts[m, k] += 1
    phi[m, old] = smoothed(counts[m, old], b, extra, m, old) * inverse[old]
    phi[m, k] = smoothed(counts[m, k], b, extra, m, k) * inverse[k]


def _sweep_dense(
    words, begin, end, word_start, token_doc, topics, all_topics, doc_counts, row_of_word, rows, totals,
    alpha, beta, beta_sum, exact, seed, purpose, round_, index, seeds, work,
):  # fmt: skip
    """Draw the tokens ``begin[w]:end[w]`` of each of `words`, document rows dense.

    `words` (int32) has frequent ones first. `begin`, `end` (int64, by word) bound this block's tokens of a
    word in `token_doc` (padded by `AHEAD` entries) and `topics`, which are drawn in place; `word_start`
    bounds all tokens of a word in `all_topics`. That is `topics` itself, or the topics of all tokens, this
    block's as before the sweep; it may lack those of words that keep a row. Word w has row
    ``row_of_word[w]`` of `rows` (int32), or is counted from its tokens where that is -1. `doc_counts` is
    documents x padded topics, as a vector, or what short documents have in its place (`short_rows`).
    `totals` (int64) change in place; `alpha` is float32, padded with zeros, a table of rows
    (`document_priors`), or has the responses of documents (`responses`), `beta` float32, by word. `seed`,
    `purpose`, `round_` and `index` name the random stream. `seeds` are what seed words add to beta
    (`lda.seeds`), or None; `work` is scratch (`dense_work`).
    """
    n_topics = len(totals)
    phi, inverse, counts, extra, scratch, uniforms, places, expanded = work
    slot, word, next_, stop = places[0], places[1], places[2], places[3]  # of streams
    drawn_topics = places[4]
    for s in range(STREAMS):  # while there are words for all streams, each is in the slot of its number
        slot[s] = s
    used, drawn, active, x = DRAWS, 0, 0, 0
    _renew(inverse, totals, beta_sum, seeds, n_topics)
    while True:
        s = 0
        while s < STREAMS:  # give every stream a word with tokens left, while there are words
            if s < active and next_[slot[s]] < stop[slot[s]]:
                s += 1
                continue
            if s < active:
                m = slot[s]
                clear_extra(seeds, word[m], extra, m)
                r = row_of_word[word[m]]
                if r >= 0:
                    for k in range(n_topics):
                        rows[r, k] = counts[m, k]
            while x < len(words) and begin[words[x]] == end[words[x]]:
                x += 1
            if x == len(words):
                if s >= active:
                    break
                active -= 1  # this stream is done; the last one takes its place
                slot[s], slot[active] = slot[active], slot[s]
                continue
            w = words[x]
            x += 1
            active = max(active, s + 1)
            m = slot[s]
            word[m], next_[m], stop[m] = w, begin[w], end[w]
            _load_word(w, counts[m], word_start, all_topics, row_of_word, rows, n_topics)
            load_extra(seeds, w, extra, m)
            for k in range(n_topics):
                phi[m, k] = smoothed(counts[m, k], beta[w], extra, m, k) * inverse[k]
            s += 1
        if active == 0:
            break
        if used + active > DRAWS:
            fill_uniform(uniforms, drawn, seed, purpose, round_, index)
            drawn += DRAWS // 4
            used = 0
            _renew(inverse, totals, beta_sum, seeds, n_topics)
            for s in range(active):
                m = slot[s]
                for k in range(n_topics):
                    phi[m, k] = smoothed(counts[m, k], beta[word[m]], extra, m, k) * inverse[k]
        n = (DRAWS - used) // active
        for s in range(active):
            n = min(n, stop[slot[s]] - next_[slot[s]])
        for t in range(n):
            if active == STREAMS and not exact and _are_apart(token_doc, next_, t):
                # All draws before the counts change, for a load waits until it is known where stores before
                # it go. The result is that of taking turns: no draw reads what another one changes.
                for s in range(STREAMS):
                    m = at(s)
                    drawn_topics[m] = _draw_next(
                        at(next_[m] + t), m, beta[at(word[m])], token_doc, topics, doc_counts, totals, counts,
                        extra, phi, inverse, alpha, beta_sum, seeds, np.int64(0), uniforms[at(used + s)],
                        scratch, expanded,
                    )  # fmt: skip
                for s in range(STREAMS):
                    m = at(s)
                    i = at(next_[m] + t)
                    new = accepted(alpha, token_doc[i], topics[i], drawn_topics[m], i)
                    _move(
                        i, m, beta[at(word[m])], new, token_doc, topics, doc_counts, totals, counts, extra,
                        phi, inverse,
                    )  # fmt: skip
                used += STREAMS
                continue
            for s in range(active):
                m = at(slot[at(s)])
                i, b = at(next_[m] + t), beta[at(word[m])]
                new = _draw_next(
                    i, m, b, token_doc, topics, doc_counts, totals, counts, extra, phi, inverse, alpha,
                    beta_sum, seeds, exact, uniforms[at(used)], scratch, expanded,
                )  # fmt: skip
                new, old = accepted(alpha, token_doc[i], topics[i], new, i), at(topics[i])
                _move(i, m, b, new, token_doc, topics, doc_counts, totals, counts, extra, phi, inverse)
                used += 1
                if exact:
                    new = at(new)
                    inverse[old] = _ONE / smoothed_total(totals[old], beta_sum, seeds, old)
                    inverse[new] = _ONE / smoothed_total(totals[new], beta_sum, seeds, new)
                    for other in range(active):
                        q = at(slot[at(other)])
                        theirs = beta[at(word[q])]
                        phi[q, old] = smoothed(counts[q, old], theirs, extra, q, old) * inverse[old]
                        phi[q, new] = smoothed(counts[q, new], theirs, extra, q, new) * inverse[new]
        for s in range(active):
            next_[slot[s]] += n


sweep_dense: Any = nb.njit(_sweep_dense, **_SWEEP)
# For kernels that draw many blocks: those that call `sweep_dense` compile all of it a second time.
sweep_dense_within: Any = nb.njit(_sweep_dense, **_SWEEP, inline="always")


@nb.njit(**_INLINE)
def _draw_smooth(none, n_vectors, phi, alpha, old, phi_old, u, scratch):
    """Draw a topic with weight ``alpha[k] * phi[k]``, `phi_old` standing in at `old`; `none` is all zero."""
    kept = phi[old]
    phi[old] = phi_old
    k = draw_dense(none, 0, n_vectors, -1, phi, 0, alpha, phi_old, u, scratch, 0)
    phi[old] = kept
    return k


def sparse_work(n_topics, seeds=None):
    """Scratch of `sweep_sparse`, for later sweeps too."""
    width = padded(n_topics)  # of the longest list, too
    phi, none = aligned(width, np.float32), np.zeros(width, np.uint16)
    counts, extra = np.zeros(n_topics, np.int32), None
    if seeds is not None:
        extra = np.zeros((1, n_topics), np.float32)
    inverse, uniforms = np.zeros(n_topics, np.float32), aligned(DRAWS, np.float32)
    scratch = aligned(width, np.float32)
    return phi, inverse, counts, extra, scratch, uniforms, none


@nb.njit(**_SWEEP)
def sweep_sparse(
    words, begin, end, word_start, token_doc, topics, all_topics, entries, line_start, n_lines, shift,
    row_of_word, rows, totals, alpha, beta, beta_sum, exact, seed, purpose, round_, index, seeds, work,
    responses=None,
):  # fmt: skip
    """Draw the tokens ``begin[w]:end[w]`` of each of `words`, document rows as packed lists.

    `entries` (uint32) holds for document ``d`` lines of 16 slots from line ``line_start[d]`` on, of
    which ``n_lines[d]`` are in use; a slot is ``topic << shift | count``. A document has space for
    ``min(length, K)`` topics, so a new topic always finds a slot. The other parameters are those of
    `sweep_dense`, with `responses` (`models.responses`) apart from `alpha`. Outside the list the weight of a
    token is ``alpha_k phi_k``, summed once a word.
    """
    n_topics = len(totals)
    # phi[k] of the current word, beta_w / C_k where it has no token; zero beyond the last topic.
    phi, inverse, counts, extra, scratch, uniforms, none = work
    n_vectors = len(phi) // LANES
    count_mask = np.uint32((np.int64(1) << shift) - 1)
    bits = np.uint32(shift)
    used, drawn = DRAWS, 0
    base_beta, base = np.float32(-1), np.float64(0)
    for w in words:
        if begin[w] == end[w]:
            continue
        b = beta[w]
        if used + 2 > DRAWS or b != base_beta:
            _renew(inverse, totals, beta_sum, seeds, n_topics)
            base, base_beta = np.float64(0), b
            for k in range(n_topics):
                phi[k] = b * inverse[k]
                base += np.float64(alpha[k]) * np.float64(phi[k])
        r = row_of_word[w]
        smooth = base
        if r >= 0:
            for k in range(n_topics):
                counts[k] = rows[r, k]
                phi[k] = (np.float32(counts[k]) + b) * inverse[k]
                smooth += np.float64(alpha[k]) * np.float64(np.float32(counts[k]) * inverse[k])
        else:
            for i in range(word_start[w], word_start[w + 1]):
                k = all_topics[i]
                counts[k] += 1
                phi[k] = (np.float32(counts[k]) + b) * inverse[k]
                smooth += np.float64(alpha[k]) * np.float64(inverse[k])
        if seeds is not None:
            load_extra(seeds, w, extra, _ROW)
            for j in range(seeds[0][w], seeds[0][w + 1]):
                k = seeds[1][j]
                phi[k] = smoothed(counts[k], b, extra, _ROW, k) * inverse[k]
                smooth += np.float64(alpha[k]) * np.float64(extra[0, k] * inverse[k])
        for i in range(begin[w], end[w]):
            if used + 2 > DRAWS:
                fill_uniform(uniforms, drawn, seed, purpose, round_, index)
                drawn += DRAWS // 4
                used = 0
                _renew(inverse, totals, beta_sum, seeds, n_topics)
                base, smooth = np.float64(0), np.float64(0)
                for k in range(n_topics):
                    phi[k] = smoothed(counts[k], b, extra, _ROW, k) * inverse[k]
                    smooth += np.float64(alpha[k]) * np.float64(phi[k])
                    base += np.float64(alpha[k]) * np.float64(b * inverse[k])
            coming = line_start[token_doc[i + AHEAD]] * LANES
            for line in range(3):
                prefetch(entries, coming + line * LANES)
            ask_for_prior(responses, token_doc[i + AHEAD])
            d = np.int64(token_doc[i])
            start, lines = line_start[d] * LANES, np.int64(n_lines[d])
            old = np.int64(topics[i])
            phi_old = smoothed(counts[old] - 1, b, extra, _ROW, old)
            if exact:
                phi_old /= smoothed_total(totals[old] - 1, beta_sum, seeds, old)
            else:
                phi_old = phi_old * inverse[old] * (_ONE + inverse[old])
            outside = np.float32(smooth - alpha[old] * (phi[old] - phi_old))
            found = draw_sparse(
                entries, start, lines, shift, old, phi, phi_old, outside, uniforms[used], scratch
            )
            used += 1
            slot, slot_old = found & 0xFFFFFFFF, found >> 32
            if slot != 0xFFFFFFFF:
                # Rounding can point at a slot of no weight; such a draw belongs to the smooth part.
                count = entries[start + slot] & count_mask
                if count == 0 or (slot == slot_old and count == 1):
                    slot = 0xFFFFFFFF
            if slot != 0xFFFFFFFF:
                drawn_topic = np.int64(entries[start + slot] >> bits)
            else:
                drawn_topic = _draw_smooth(none, n_vectors, phi, alpha, old, phi_old, uniforms[used], scratch)
                drawn_topic = np.int64(min(drawn_topic, n_topics - 1))
                used += 1
            new = np.int64(accepted(responses, d, old, drawn_topic, i))
            if new != drawn_topic:
                continue  # refused: nothing changes
            entries[start + slot_old] -= np.uint32(1)
            if slot != 0xFFFFFFFF:
                entries[start + slot] += np.uint32(1)
            else:
                slot, empty = np.int64(-1), np.int64(-1)
                for j in range(lines * LANES):
                    e = entries[start + j]
                    if e & count_mask == 0:
                        if empty < 0:
                            empty = j
                    elif np.int64(e >> bits) == new:
                        slot = j
                        break
                if slot >= 0:
                    entries[start + slot] += np.uint32(1)
                else:
                    if empty < 0:
                        empty = lines * LANES
                        n_lines[d] = lines + 1
                    entries[start + empty] = (np.uint32(new) << bits) | np.uint32(1)
            topics[i] = new
            totals[old] -= 1
            totals[new] += 1
            counts[old] -= 1
            counts[new] += 1
            before = np.float64(alpha[old] * phi[old]) + (
                np.float64(alpha[new] * phi[new]) if new != old else 0.0
            )
            if exact:
                base -= np.float64(b) * np.float64(alpha[old] * inverse[old])
                if new != old:
                    base -= np.float64(b) * np.float64(alpha[new] * inverse[new])
                inverse[old] = _ONE / smoothed_total(totals[old], beta_sum, seeds, old)
                inverse[new] = _ONE / smoothed_total(totals[new], beta_sum, seeds, new)
                base += np.float64(b) * np.float64(alpha[old] * inverse[old])
                if new != old:
                    base += np.float64(b) * np.float64(alpha[new] * inverse[new])
            phi[old] = smoothed(counts[old], b, extra, _ROW, old) * inverse[old]
            phi[new] = smoothed(counts[new], b, extra, _ROW, new) * inverse[new]
            after = np.float64(alpha[old] * phi[old]) + (
                np.float64(alpha[new] * phi[new]) if new != old else 0.0
            )
            smooth += after - before
        if r >= 0:
            for k in range(n_topics):
                rows[r, k] = counts[k]
                counts[k] = 0
                phi[k] = b * inverse[k]
        else:
            # A topic that the word left has counts 0 and phi at its base already.
            for i in range(word_start[w], word_start[w + 1]):
                k = all_topics[i]
                counts[k] = 0
                phi[k] = b * inverse[k]
            for i in range(begin[w], end[w]):
                k = topics[i]
                counts[k] = 0
                phi[k] = b * inverse[k]
        if seeds is not None:
            for j in range(seeds[0][w], seeds[0][w + 1]):
                phi[seeds[1][j]] = b * inverse[seeds[1][j]]
            clear_extra(seeds, w, extra, _ROW)


@nb.njit(**_SWEEP)
def compact_lists(first_doc, last_doc, entries, line_start, n_lines, shift):
    """Close the gaps in the lists of documents ``first_doc:last_doc``; returns how many entries are left."""
    count_mask = np.uint32((np.int64(1) << shift) - 1)
    total = 0
    for d in range(first_doc, last_doc):
        start, kept = line_start[d] * LANES, 0
        for j in range(n_lines[d] * LANES):
            e = entries[start + j]
            if e & count_mask:
                entries[start + kept] = e
                kept += 1
        for j in range(kept, n_lines[d] * LANES):
            entries[start + j] = 0
        n_lines[d] = (kept + LANES - 1) // LANES
        total += kept
    return total
