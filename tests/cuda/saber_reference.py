"""A sweep of SaberLDA in plain numpy, token by token from dense counts.

All forms of the sampler must give its topics, bit for bit.
"""

import numpy as np

F = np.float32
GOLDEN, OTHER, THIRD = 0x9E3779B9, 0x5BD1E995, 0x85EBCA6B


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ k0,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ k1,
            p0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def hash32(x):
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def unit(bits):
    return F(bits >> 8) * F(2.0**-24)


def scan(v):
    """Inclusive prefix sums of 32 lanes, the last axis, in the order of a warp."""
    for d in (1, 2, 4, 8, 16):
        v = np.concatenate([v[..., :d], v[..., d:] + v[..., :-d]], axis=-1)
    return v


def total(v):
    """Sum of 32 lanes by halves."""
    while v.shape[-1] > 1:
        half = v.shape[-1] // 2
        v = v[..., :half] + v[..., half:]
    return v[..., 0]


def in_lanes(v):
    """Cut a vector into rows of 32, filled up with zeros."""
    return np.concatenate([v, np.zeros(-len(v) % 32, F)]).reshape(-1, 32)


def lane_sums(weights):
    sums = np.zeros(32, F)
    for row in in_lanes(weights):
        sums = sums + row
    return sums, scan(sums)


def draw_lanes(weights, sums, prefix, x):
    """Index with the weight in which x falls: the lane first, then down the lane. None has no weight."""
    held = np.flatnonzero(sums > 0)
    inside = held[x < prefix[held]]
    lane = inside[0] if len(inside) else held[-1] if len(held) else 0
    x = F(x - (prefix[lane - 1] if lane else F(0)))
    found = lane
    for i in range(lane, len(weights), 32):
        if weights[i] == 0:
            continue
        found, x = i, F(x - weights[i])
        if x < 0:
            break
    return found


class Tree:
    def __init__(self, leaves):
        self.leaves = in_lanes(leaves)
        self.n = len(leaves)
        sums = in_lanes(total(self.leaves))
        self.groups = scan(sums)
        tops = np.zeros(32, F)
        tops[: len(sums)] = self.groups[:, 31]
        self.tops = scan(tops)
        self.total = self.tops[31]

    def draw(self, x):
        n_groups = -(-self.n // 32)
        top, x = self._descend(self.tops, -(-n_groups // 32), x)
        group, x = self._descend(self.groups[top], min(32, n_groups - 32 * top), x)
        first = 32 * (32 * top + group)
        leaf, _ = self._descend(scan(self.leaves[first // 32]), min(32, self.n - first), x)
        return first + leaf

    @staticmethod
    def _descend(prefix, n, x):
        below = np.flatnonzero(x < prefix[:n])
        child = below[0] if len(below) else n - 1
        return child, F(x - (prefix[child - 1] if child else F(0)))


def sweep(
    topics, word_start, token_doc, alpha, inverse, lift, per_beta, seed, purpose, round_, tries=8, rare=4
):
    """Topics of all tokens after a sweep; `tally` counts in which part each was drawn."""
    K = len(alpha)
    old_topics, topics = topics.astype(int), topics.copy()
    tokens_of = [np.flatnonzero(token_doc == d) for d in range(int(token_doc.max()) + 1)]
    doc_counts = [np.bincount(old_topics[tokens], minlength=K) for tokens in tokens_of]
    base = alpha * inverse
    shared = Tree(base)
    key = (int(seed) & 0xFFFFFFFF, int(seed) >> 32)
    tally = dict.fromkeys(("document", "list", "tree", "shared", "again", "without"), 0)
    for w in range(len(word_start) - 1):
        tokens = range(word_start[w], word_start[w + 1])
        counts, factor = np.bincount(old_topics[tokens.start : tokens.stop], minlength=K), per_beta[w]
        g = inverse * (F(1) + counts.astype(F) * factor)
        is_rare = len(tokens) < K // rare
        listed = np.flatnonzero(counts)
        own = counts[listed].astype(F) * base[listed]
        own_sums, own_prefix = lane_sums(own)
        list_total = F(factor * own_prefix[31]) if is_rare else F(0)
        tree = shared if is_rare else Tree(alpha * g)
        for i in tokens:
            doc, old = doc_counts[token_doc[i]], old_topics[i]
            has = np.flatnonzero(doc)
            weights = doc[has].astype(F) * g[has]
            sums, prefix = lane_sums(weights)
            r = philox((i & 0xFFFFFFFF, i >> 32, round_, purpose), key)
            first_bits = r[3]
            for attempt in range(tries):
                if attempt:
                    x = (first_bits + attempt * GOLDEN) & 0xFFFFFFFF
                    r = hash32(x), hash32(x ^ OTHER), hash32(x ^ THIRD)
                    tally["again"] += 1
                S = prefix[31]
                x, y = F(unit(r[0]) * F(F(S + list_total) + tree.total)), unit(r[1])
                if x < S:
                    part, topic = "document", has[draw_lanes(weights, sums, prefix, x)]
                elif x < F(S + list_total):
                    part, topic = "list", listed[draw_lanes(own, own_sums, own_prefix, F(y * own_prefix[31]))]
                else:
                    part, topic = "shared" if is_rare else "tree", tree.draw(F(y * tree.total))
                if topic != old:
                    break
                c, a = F(doc[old]), alpha[old]
                less = max(F(g[old] - F(factor * inverse[old])), F(0))
                left = F(F(F(c - F(1)) + a) * F(less * lift[old]))
                if F(unit(r[2]) * F(F(c + a) * g[old])) < left:
                    break
            else:
                x = (first_bits + tries * GOLDEN) & 0xFFFFFFFF
                part, topic = (
                    "without",
                    _without(old, left, has, weights, alpha * g, unit(hash32(x)), unit(hash32(x ^ OTHER))),
                )
            tally[part] += 1
            topics[i] = topic
    return topics, tally


def _without(old, own, has, weights, everything, u, v):
    """Draw by topics one by one, with the weight `own` for the old one."""
    weights, everything = np.where(has == old, F(0), weights), everything.copy()
    everything[old] = 0
    (sums, prefix), (all_sums, all_prefix) = lane_sums(weights), lane_sums(everything)
    document, rest = prefix[31], all_prefix[31]
    x = F(u * F(F(own + document) + rest))
    if x < own or document + rest == 0:
        return old
    if x < F(own + document):
        return has[draw_lanes(weights, sums, prefix, F(x - own))]
    return draw_lanes(everything, all_sums, all_prefix, F(v * rest))
