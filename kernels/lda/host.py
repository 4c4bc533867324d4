"""What a fit on a GPU needs of the host, in numpy: the layout of tokens, their first topics, lists as CSR.

A GPU's path does not import numba. The functions do what those of the same names in `lda_gibbs`, `random` and
`lda_saber` do, bit for bit; numba compiles `alias_tables` from here (`alias`).
"""

import itertools

import numpy as np

LINE = 32  # as in `lda_saber`
LANES = 16  # as in `vector`: entries of a line of a packed list
_QUARTER = 1024  # blocks of four draws that are made at a time: DRAWS / 4 of `lda_gibbs`
_LOT = 2**16 * 4  # tokens whose first topics are drawn at a time, in a thread

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # Philox: Salmon et al. 2011
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms(blocks, seed, purpose, round_, index):
    """Four uniforms on [0, 1) of each numbered block of a stream, float32 of shape (4, len(blocks))."""
    c0 = blocks.astype(np.uint64) & _LOW
    c1, c2, c3 = (np.full_like(c0, int(word) & 0xFFFFFFFF) for word in (index, round_, purpose))
    k0, k1 = int(seed) & 0xFFFFFFFF, int(seed) >> 32
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _HIGH) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _HIGH) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return (np.stack([c0, c1, c2, c3]) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def lay_out(X, order, token_doc):
    """Lay the tokens of a CSR matrix of counts out word by word, and inside a word by document.

    Document number d is row ``order[d]``; `token_doc` takes the document of each token. Returns where the
    tokens of each word begin, and where those of the last one end.
    """
    by_word = X[order].tocsc()
    n_tokens = int(by_word.data.sum(dtype=np.int64))
    token_doc[:n_tokens] = np.repeat(by_word.indices.astype(np.uint32), by_word.data)
    return np.concatenate([[0], np.cumsum(by_word.data, dtype=np.int64)])[by_word.indptr]


def begins(X, order, cuts, word_start):
    """Where the tokens of each word begin in each run of documents, ``cuts[c]:cuts[c + 1]``.

    int64, (runs + 1) x words; the last row: where they end.
    """
    if len(cuts) == 2:
        return np.stack([word_start[:-1], word_start[1:]])
    runs = (X[order[a:b]].sum(axis=0, dtype=np.int64) for a, b in itertools.pairwise(cuts))
    parts = np.array([np.asarray(run).ravel() for run in runs])
    return word_start[:-1] + np.concatenate([np.zeros_like(parts[:1]), np.cumsum(parts, axis=0)])


def tokens_between(begin, end):
    """The numbers from each `begin` on and before its `end`, one run after the other."""
    size = end - begin
    return np.repeat(begin - np.cumsum(size) + size, size) + np.arange(size.sum())


def cut(begin, end, n_pieces):
    """Cut ranges into so many nearly equal pieces each: the range of a piece, where it begins and ends."""
    which, pieces = np.repeat(np.arange(len(begin)), n_pieces), np.repeat(n_pieces, n_pieces)
    piece = np.arange(len(which)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first, size = begin[which], (end - begin)[which]
    return which, first + size * piece // pieces, first + size * (piece + 1) // pieces


def first_choices(first, n_own, n_all, seed, purpose, n_choices):
    """Rows of documents from `first` on, of `n_all`, as `fill_uniform` fills those of all: float32."""
    number = np.arange(first * n_choices, (first + n_own) * n_choices)
    drawn = uniforms(number % n_all, seed, purpose, 0, 0)
    return drawn[number // n_all, np.arange(len(number))].reshape(n_own, n_choices)


def lots(n_tokens):
    """Where lots of tokens begin that `assign_first` takes at a time."""
    return range(0, n_tokens, _LOT)


def assign_first(token_doc, topics, n_topics, choices, spread, seed, purpose, first):
    """Give each token of a lot at random one of its document's topics, ``choices[d]`` (in units of [0, 1)).

    Tokens of documents with ``spread[d]`` get one of all topics.
    """
    few, own = choices.shape[1], topics[first : first + _LOT]
    blocks = np.arange(first // 4, (first + _LOT) // 4)
    drawn = uniforms(blocks, seed, purpose, 0, first >> 34).reshape(4, -1, _QUARTER)
    u = drawn.transpose(1, 0, 2).ravel()[: len(own)].astype(np.float64)
    d = token_doc[first : first + len(u)]
    chosen = choices[d, np.minimum((u * few).astype(np.int64), few - 1)]
    u = np.where(spread[d], u, chosen)
    own[:] = np.minimum((u * n_topics).astype(np.int64), n_topics - 1)


def grow_tree(leaves):
    """Prefix sums of the sums of 32 leaves, and of 32 of those, as `lda_saber.grow_tree` adds them up.

    Float32, one a group of 32 leaves, and 32.
    """
    n_groups = -(-len(leaves) // LINE)
    held = np.zeros((LINE, LINE, LINE), np.float32)
    held.reshape(-1)[: len(leaves)] = leaves
    while held.shape[-1] > 1:
        half = held.shape[-1] // 2
        held = held[..., :half] + held[..., half:]
    groups = _scan(held[..., 0])
    tops = np.zeros(LINE, np.float32)
    n_tops = -(-n_groups // LINE)
    tops[:n_tops] = groups[:n_tops, -1]
    return groups.reshape(-1)[:n_groups].copy(), _scan(tops)


def _scan(v):
    """Add up 32 lanes, the last axis, as a warp does in five steps."""
    for step in (1, 2, 4, 8, 16):
        v = np.concatenate([v[..., :step], v[..., step:] + v[..., :-step]], axis=-1)
    return v


def listed(entries, line_start, n_lines, line=LINE, shift=16):
    """Read lists of ``topic << shift | count``, in lines of `line` entries filled up with zeros.

    Returns topics and counts (int32) of all lists one after the other, and the entries of each list (int64).
    """
    n_reserved = np.diff(line_start)
    place = np.arange(line_start[-1]) - np.repeat(line_start[:-1], n_reserved)
    lines = entries[: line_start[-1] * line].reshape(-1, line)[place < np.repeat(n_lines, n_reserved)]
    counts = lines & np.uint32((1 << shift) - 1)
    sizes = np.zeros(len(n_lines), np.int64)
    np.add.at(sizes, np.repeat(np.arange(len(n_lines)), n_lines), np.count_nonzero(counts, axis=1))
    held = counts > 0
    return (lines[held] >> np.uint32(shift)).astype(np.int32), counts[held].astype(np.int32), sizes


def list_documents(token_doc, topics, line_start, shift, line=LANES):
    """List the topics of documents as ``topic << shift | count``, in the order in which tokens have them.

    Returns entries (uint32) and used lines (int32).
    """
    n_topics = int(topics.max(initial=0)) + 1
    key = token_doc.astype(np.int64) * n_topics + topics
    order = np.argsort(key, kind="stable")
    new = np.flatnonzero(np.diff(key[order], prepend=-1))
    first, counts = order[new], np.diff(np.append(new, len(key)))
    by_document = np.lexsort((first, token_doc[first]))
    first, counts = first[by_document], counts[by_document]
    document = token_doc[first].astype(np.int64)
    sizes = np.bincount(document, minlength=len(line_start) - 1)
    slot = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    entries = np.zeros(line_start[-1] * line, np.uint32)
    packed = topics[first].astype(np.uint32) << np.uint32(shift) | counts.astype(np.uint32)
    entries[line_start[document] * line + slot] = packed
    return entries, (-(-sizes // line)).astype(np.int32)


def alias_tables(weights, aliases, limits):
    """Fill the tables of a distribution: place k is k for 32 bits below its limit, else its alias.

    `weights` are not negative, with a positive sum; `aliases` are int64, `limits` uint32.
    """
    n = len(weights)
    total = 0.0
    for k in range(n):
        total += weights[k]
    share = np.empty(n)
    poor, rich = np.empty(n, np.int64), np.empty(n, np.int64)
    n_poor = n_rich = 0
    for k in range(n):
        share[k] = weights[k] / total * n
        aliases[k], limits[k] = k, np.uint32(0xFFFFFFFF)
        if share[k] < 1.0:
            poor[n_poor] = k
            n_poor += 1
        else:
            rich[n_rich] = k
            n_rich += 1
    while n_poor and n_rich:
        n_poor -= 1
        k, giver = poor[n_poor], rich[n_rich - 1]
        aliases[k] = giver
        limits[k] = np.uint32(min(share[k] * 4294967296.0, 4294967295.0))
        share[giver] -= 1.0 - share[k]
        if share[giver] < 1.0:
            n_rich -= 1
            poor[n_poor] = giver
            n_poor += 1
