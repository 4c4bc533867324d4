"""A sweep over dense rows against the same draws one after the other, in double precision."""

import numpy as np
import pytest

from stradask.kernels.lda import gibbs
from stradask.kernels.random import fill_uniform

SEED, PURPOSE, ROUND, INDEX = np.uint64(3), np.int64(1), np.int64(2), np.int64(0)
N_TOPICS, WIDTH, ALPHA, BETA = 37, 64, 0.3, 0.05


def _one_by_one(starts, token_doc, topics, n_documents, uniforms):
    """Take turns between three words, and draw each token after all counts are renewed."""
    topics, n_words = topics.copy(), len(starts) - 1
    of_document, of_word = np.zeros((n_documents, N_TOPICS), int), np.zeros((n_words, N_TOPICS), int)
    np.add.at(of_document, (token_doc, topics), 1)
    np.add.at(of_word, (np.repeat(np.arange(n_words), np.diff(starts)), topics), 1)
    inverse = 1 / (np.bincount(topics, minlength=N_TOPICS) + BETA * n_words)  # renewed every 4,096 tokens
    order = np.argsort(np.arange(N_TOPICS) % 16, kind="stable")  # lane after lane
    streams, coming, used = [None] * gibbs.STREAMS, 0, 0
    while True:
        for s in range(len(streams)):
            if streams[s] is None or streams[s][1] == starts[streams[s][0] + 1]:
                streams[s] = [coming, starts[coming]] if coming < n_words else None
                coming += 1
        live = [stream for stream in streams if stream is not None]
        if not live:
            return topics, used
        for stream in live:
            w, i = stream
            d, old = token_doc[i], topics[i]
            weight = (of_document[d] + ALPHA) * (of_word[w] + BETA) * inverse
            weight[old] = (of_document[d, old] - 1 + ALPHA) * (of_word[w, old] - 1 + BETA)
            weight[old] *= inverse[old] * (1 + inverse[old])
            sums = np.cumsum(weight[order])
            new = order[np.searchsorted(sums, uniforms[used] * sums[-1], side="right")]
            of_document[d, [old, new]] += [-1, 1] if old != new else [0, 0]
            of_word[w, [old, new]] += [-1, 1] if old != new else [0, 0]
            topics[i], used, stream[1] = new, used + 1, i + 1


@pytest.mark.parametrize("n_documents", [2, 5, 400])  # tokens at hand are of one document often, or hardly
def test_draws_made_together_are_those_made_in_turns(n_documents):
    rng = np.random.default_rng(n_documents)
    # Words that all have as many tokens end together, so that the turns are plain.
    starts = 40 * np.arange(16)
    n_tokens = int(starts[-1])
    token_doc = np.concatenate([np.sort(rng.integers(0, n_documents, 40)) for _ in range(15)])
    topics = rng.integers(0, N_TOPICS, n_tokens).astype(np.uint16)
    uniforms = np.empty(gibbs.DRAWS, np.float32)
    fill_uniform(uniforms, 0, SEED, PURPOSE, ROUND, INDEX)
    expected, used = _one_by_one(starts, token_doc, topics, n_documents, uniforms.astype(float))
    assert used == n_tokens < gibbs.DRAWS

    counts = np.zeros((n_documents, WIDTH), np.uint16)
    padded = np.append(token_doc, np.zeros(gibbs.AHEAD)).astype(np.uint32)
    gibbs.count_documents(padded, topics, counts)
    totals = np.bincount(topics, minlength=N_TOPICS)
    alpha = np.zeros(WIDTH, np.float32)
    alpha[:N_TOPICS] = ALPHA
    words, beta = np.arange(15, dtype=np.int32), np.full(15, BETA, np.float32)
    rows, found = np.zeros((0, N_TOPICS), np.int32), topics.copy()
    gibbs.sweep_dense(
        words, starts[:-1].copy(), starts[1:].copy(), starts, padded, found, topics.copy(),
        counts.reshape(-1), np.full(15, -1, np.int32), rows, totals, alpha, beta, np.float32(15 * BETA), 0,
        SEED, PURPOSE, ROUND, INDEX, None, gibbs.dense_work(N_TOPICS, WIDTH),
    )  # fmt: skip
    # Where a draw falls on a border to the last digit, it and those that follow from it may differ.
    differ = np.flatnonzero(found != expected)
    assert len(differ) < 0.02 * n_tokens
    np.testing.assert_array_equal(totals, np.bincount(found, minlength=N_TOPICS))
    held = np.zeros_like(counts)
    gibbs.count_documents(padded, found, held)
    np.testing.assert_array_equal(counts, held)
