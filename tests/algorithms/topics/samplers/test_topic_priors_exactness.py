"""Sweeps with seed words and labels of documents leave the posterior as it is, by enumeration.

Every replicate starts from an exact draw of the posterior, found by enumerating all assignments, and makes
one sweep: if that leaves the posterior as it is, the replicates are again independent exact draws.
"""

import itertools
from functools import cache

import numba as nb
import numpy as np
import pytest
from lda_chains import Chain
from scipy import sparse, stats
from scipy.special import gammaln

from stradask.kernels.lda.gibbs import dense_work, sparse_work, sweep_dense, sweep_sparse
from stradask.kernels.lda.models.labels import count_labelled, labelled_work, sweep_labelled

REPLICATES = 80_000
# Five words, so that the words drawn in turn with others make room for further ones.
COUNTS = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 2, 0], [1, 0, 0, 1, 0]])
SEEDS = np.array([[1.5, 0, 0], [0, 0.7, 3.0], [0, 0, 0], [0, 0.4, 2.0], [0, 0, 0.9]])  # words x topics
LABELS = np.array([[1, 1, 0], [0.5, 0, 2.0], [1, 1, 1]])  # documents x topics
ALPHA, BETA = [0.2, 0.5, 1.1], [0.3, 0.1, 0.7, 0.2, 0.4]
CASES = {  # alpha, beta, seeds, labels
    "seeds": (ALPHA, BETA, SEEDS, None),
    "labels": (ALPHA, BETA, None, LABELS),
    "both": (ALPHA, BETA, SEEDS, LABELS),
}
# A sixth word that no document has has nearly all of beta: stale totals do not matter.
DROWNED = (ALPHA, [*BETA, 1e5], np.vstack([SEEDS, [3e5, 0, 0]]), None)


def _case(name):
    alpha, beta, seeds, labels = DROWNED if name == "drowned" else CASES[name]
    X = np.pad(COUNTS, ((0, 0), (0, len(beta) - COUNTS.shape[1])))
    known = {"seeds": seeds, "labels": labels}
    known = {key: None if part is None else sparse.csr_array(part) for key, part in known.items()}
    state = Chain(
        sparse.csr_array(X.astype(np.int32)), 3, np.array(alpha), np.array(beta), 0, exact=True, **known
    )
    words_by_topic = state.beta[:, None] + (0 if seeds is None else seeds) + np.zeros((len(beta), 3))
    documents_by_topic = (np.ones((3, 3)) if labels is None else labels) * state.alpha
    return state, words_by_topic, documents_by_topic[state.order]


def _joint(state, beta, alpha, assignments):
    """log p(w, z) straight from the definition, -inf for what is forbidden."""
    words = np.repeat(np.arange(len(beta)), np.diff(state.word_start))
    docs = state.token_doc[: state.n_tokens]
    total = np.zeros(len(assignments))
    sums = np.array([np.bincount(docs).astype(float)])
    total += (gammaln(alpha.sum(axis=1)) - gammaln(sums + alpha.sum(axis=1))).sum()
    for k in range(3):
        mine = assignments == k
        total += gammaln(beta[:, k].sum()) - gammaln(mine.sum(axis=1) + beta[:, k].sum())
        for d in range(3):
            held = mine[:, docs == d].sum(axis=1)
            if alpha[d, k] > 0:
                total += gammaln(held + alpha[d, k]) - gammaln(alpha[d, k])
            else:
                total[held > 0] = -np.inf
        for w in np.unique(words):
            total += gammaln(mine[:, words == w].sum(axis=1) + beta[w, k]) - gammaln(beta[w, k])
    return total


@cache
def _enumeration(name):
    state, beta, alpha = _case(name)
    assignments = np.array(list(itertools.product(range(3), repeat=state.n_tokens)), np.uint16)
    joint = _joint(state, beta, alpha, assignments)
    posterior = np.exp(joint - joint.max())
    return assignments, posterior / posterior.sum(), joint


# Not literals, for which numba would compile the kernels once more.
_STREAM, _ZERO = (np.uint64(1), np.int64(1)), np.int64(0)


@nb.njit
def _counted(topics, word_start, token_doc, n_docs):
    """Totals, rows of words and rows of documents."""
    totals, rows = np.zeros(3, np.int64), np.zeros((len(word_start) - 1, 3), np.int32)
    counts = np.zeros((n_docs, 32), np.uint16)
    for w in range(len(word_start) - 1):
        for i in range(word_start[w], word_start[w + 1]):
            totals[topics[i]] += 1
            rows[w, topics[i]] += 1
            counts[token_doc[i], topics[i]] += 1
    return totals, rows, counts


@nb.njit
def _sweep_dense(starts, place, row_of_word, labels, priors, exact, seeds, rooms):
    n_docs = len(labels[0]) - 1
    for r in range(len(starts)):
        totals, rows, counts = _counted(starts[r], place[3], place[4], n_docs)
        words = (row_of_word, rows, totals)
        rest = (*words, *priors, exact, *_STREAM, r, _ZERO, seeds, rooms[0])
        sweep_dense(*place, starts[r], starts[r], counts.reshape(-1), *rest)


@nb.njit
def _sweep_lists(starts, place, row_of_word, labels, priors, exact, seeds, rooms):
    n_docs = len(labels[0]) - 1
    lines = np.arange(n_docs + 1)
    for r in range(len(starts)):
        totals, rows, counts = _counted(starts[r], place[3], place[4], n_docs)
        entries, n_lines = np.zeros((n_docs + 4) * 16, np.uint32), np.ones(n_docs, np.int32)
        for d in range(n_docs):
            at = d * 16
            for k in range(3):
                if counts[d, k] > 0:
                    entries[at] = k << 16 | counts[d, k]
                    at += 1
        lists = (entries, lines, n_lines, np.int64(16))
        words = (row_of_word, rows, totals)
        rest = (*words, *priors, exact, *_STREAM, r, _ZERO, seeds, rooms[1])
        sweep_sparse(*place, starts[r], starts[r], *lists, *rest)


@nb.njit
def _sweep_labelled(starts, place, row_of_word, labels, priors, exact, seeds, rooms):
    for r in range(len(starts)):
        totals, rows, _ = _counted(starts[r], place[3], place[4], len(labels[0]) - 1)
        held = np.zeros(len(labels[1]), np.int32)
        count_labelled(place[4], starts[r], labels[0], labels[1], held)
        words = (row_of_word, rows, totals)
        rest = (*words, *priors, exact, *_STREAM, r, _ZERO, seeds, rooms[2])
        sweep_labelled(*place, starts[r], starts[r], *labels, held, *rest)


def _swept(name, how, *, exact=1, rows=True):
    state, _, alpha = _case(name)
    assignments, posterior, _ = _enumeration(name)
    starts = assignments[np.random.default_rng(0).choice(len(assignments), REPLICATES, p=posterior)]
    row_of_word = np.where(rows, np.arange(len(state.beta)), -1).astype(np.int32)
    labels = sparse.csr_array(
        alpha > 0 if state.program.labels is None else state.program.labels[state.order]
    )
    lists = (labels.indptr.astype(np.int64), labels.indices.astype(np.int32), labels.data.astype(np.float32))
    alpha32 = np.zeros(32, np.float32)
    alpha32[:3] = state.alpha
    place = (state.group_words[0], *state.bounds, state.word_start, state.token_doc)
    priors = (alpha32, state.beta.astype(np.float32), np.float32(state.beta.sum()))
    sampled = starts.copy()
    seeds = _for_kernels(state.program.seeds)
    rooms = (dense_work(3, 32, seeds), sparse_work(3, seeds), labelled_work(3, 3, seeds))
    how(sampled, place, row_of_word, lists, priors, exact, seeds, rooms)
    return sampled


def _for_kernels(seeds):
    """By word, not by block."""
    if seeds is None:
        return None
    sums = np.asarray(seeds.sum(axis=0)).ravel().astype(np.float32)
    return seeds.indptr.astype(np.int64), seeds.indices.astype(np.int32), seeds.data.astype(np.float32), sums


def _p_value(name, sampled):
    """Chi-square of the sizes of the topics, and the topics of the first and the last token."""
    assignments, posterior, _ = _enumeration(name)
    sizes = [(assignments == k).sum(axis=1) for k in range(3)]
    statistic = np.column_stack([*sizes, assignments[:, 0], assignments[:, -1]])
    _, cell = np.unique(statistic, axis=0, return_inverse=True)
    cell = cell.ravel()
    code = sampled.astype(np.int64) @ (3 ** np.arange(sampled.shape[1])[::-1])
    expected = np.bincount(cell, weights=posterior) * len(sampled)
    observed = np.bincount(cell[code], minlength=len(expected))
    assert observed[expected == 0].sum() == 0, "a forbidden assignment"
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    return stats.chisquare(observed[kept], expected[kept] * observed.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("rows", [True, False], ids=["kept rows", "recounted"])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("seeds", _sweep_dense),
        ("seeds", _sweep_lists),
        ("labels", _sweep_labelled),
        ("both", _sweep_labelled),
    ],
    ids=["seeds, dense", "seeds, lists", "labels", "both"],
)
def test_one_sweep_leaves_the_posterior_as_it_is(name, how, rows):
    assert _p_value(name, _swept(name, how, rows=rows)) > 1e-4


@pytest.mark.parametrize("how", [_sweep_dense, _sweep_lists], ids=["dense", "lists"])
def test_the_fast_mode_takes_the_own_count_out_of_seed_words_too(how):
    assert _p_value("drowned", _swept("drowned", how, exact=0)) > 1e-4


@pytest.mark.parametrize(
    ("name", "how"), [("seeds", _sweep_dense), ("labels", _sweep_labelled)], ids=["seeds", "labels"]
)
def test_a_planted_bias_of_three_per_cent_is_rejected(name, how):
    """A defect that in 3 % of the sweeps gives the first token the topic 0, which its document may have."""
    sampled = _swept(name, how)
    struck = np.random.default_rng(1).random(len(sampled)) < 0.03
    assert sampled[struck, 0].any()
    sampled[struck, 0] = 0
    assert _p_value(name, sampled) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_state_reports_the_joint_that_was_enumerated(name):
    state, *_ = _case(name)
    assignments, posterior, joint = _enumeration(name)
    for place in np.flatnonzero(posterior)[[0, 100, -1]]:
        state.begin_from(assignments[place])
        assert state.joint_log_likelihood() * state.n_tokens == pytest.approx(joint[place], rel=1e-12)
