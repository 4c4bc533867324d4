"""Geweke's joint test of the samplers that claim to be exact.

Documents and topics can be drawn together in two ways: from the prior, or by turns, topics by a sweep given
the words and words from the model given the topics. If a sweep leaves the posterior of every corpus as it is,
both have one distribution. Every replicate starts from the prior and takes turns of its own: replicates are
independent and need no allowance for autocorrelation.

Reference: Geweke, "Getting it right: joint distribution tests of posterior simulators", JASA 2004.
"""

import numpy as np
import pytest
from lda_chains import Chain
from scipy import sparse, stats

from stradask.algorithms.topics.blocks import document_rows
from stradask.algorithms.topics.samplers.gibbs import Gibbs
from stradask.algorithms.topics.samplers.light import Light

DOCS = np.repeat(np.arange(4), [6, 4, 3, 1])
ALPHA, BETA = np.array([0.2, 0.5, 1.1]), np.array([0.3, 0.1, 0.7, 0.4])
TURNS, REPLICATES, FEWER, FROM_PRIOR = 3, 1500, 400, 40_000


def _words(topics, rng):
    """Words of tokens with these topics, one row a replicate; topics fresh from their prior in each."""
    phi = rng.dirichlet(BETA, size=(len(topics), len(ALPHA))).cumsum(axis=2)
    own = np.take_along_axis(phi, topics[:, :, None], axis=1)
    return (rng.random(topics.shape)[:, :, None] > own[:, :, :-1]).sum(axis=2)


def _prior(n, rng):
    """Topics and words of n corpora."""
    shares = rng.dirichlet(ALPHA, size=(n, DOCS[-1] + 1)).cumsum(axis=2)[:, DOCS]
    topics = (rng.random((n, len(DOCS)))[:, :, None] > shares[:, :, :-1]).sum(axis=2)
    return topics, _words(topics, rng)


def _swept(sampler, topics, words, seed, **options):
    """Topics after a sweep over one corpus; tokens of a document in any order."""
    X = sparse.coo_array(
        (np.ones(len(DOCS), np.int32), (DOCS, words)), shape=(DOCS[-1] + 1, len(BETA))
    ).tocsr()
    state = Chain(X, len(ALPHA), ALPHA, BETA, seed, sampler=sampler, **options)
    place = np.argsort(state.order)[DOCS]
    order = np.lexsort((place, words))  # as the state lays tokens out
    assert (state.token_doc[: len(DOCS)] == place[order]).all()
    state.begin_from(topics[order]).sweep(0)
    after = np.empty_like(topics)
    after[order] = state.topics
    return after


def _by_turns(sampler, replicates=REPLICATES, **options):
    rng = np.random.default_rng(1)
    topics, words = _prior(replicates, rng)
    for turn in range(TURNS):
        if turn:
            words = _words(topics, rng)
        for r in range(replicates):
            seed = r * TURNS + turn
            topics[r] = _swept(sampler, topics[r], words[r], seed, **options)
    return topics, words


def _statistics(topics, words):
    """Numbers of pairs of tokens that agree in topic and in word or document, and the size of a topic."""
    first, second = np.triu_indices(len(DOCS), k=1)
    alike = topics[:, first] == topics[:, second]
    same_word = words[:, first] == words[:, second]
    return {
        "topic and word": (alike & same_word).sum(axis=1),
        "topic, not word": (alike & ~same_word).sum(axis=1),
        "topic and document": (alike & (DOCS[first] == DOCS[second])).sum(axis=1),
        "size of a topic": (topics == 0).sum(axis=1),
        "a word's share of a topic": ((topics == 1) & (words == 2)).sum(axis=1),
    }


def _p_values(sampled):
    """Of a chi-square test for each statistic, in cells of about a twentieth of the draws from the prior."""
    expected, found = _statistics(*_prior(FROM_PRIOR, np.random.default_rng(0))), _statistics(*sampled)
    p = {}
    for name, values in expected.items():
        edges = np.unique(np.quantile(values, np.linspace(0, 1, 21)[1:-1]))
        table = [
            np.bincount(np.searchsorted(edges, v), minlength=len(edges) + 1) for v in (values, found[name])
        ]
        p[name] = stats.chi2_contingency(np.array(table)[:, np.sum(table, axis=0) > 0]).pvalue
    return p


@pytest.mark.parametrize("replicates", [FEWER, pytest.param(REPLICATES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["dense rows", "lists", "light"])
def test_the_exact_modes_draw_from_the_joint_distribution(how, replicates, monkeypatch):
    monkeypatch.setattr(document_rows, "DENSE_TOPICS", 0 if how == "lists" else 256)
    p = _p_values(_by_turns("light" if how == "light" else "gibbs", replicates, exact=True))
    assert min(p.values()) > 1e-4, p


class _OtherProposals(Light):
    """Proposals from alpha come twice as often as the acceptance takes into account."""

    def proposals(self, alpha):
        alpha_sum, *tables = super().proposals(alpha)
        return (2 * alpha_sum, *tables)


class _OtherPrior(Gibbs):
    """Sweeps under an alpha a half larger."""

    def first_priors(self, alpha, beta, annealed):
        return super().first_priors(1.5 * alpha, beta, annealed)


@pytest.mark.parametrize("wrong", [_OtherProposals, _OtherPrior])
@pytest.mark.slow
def test_a_planted_defect_is_rejected(wrong):
    p = _p_values(_by_turns(wrong(), exact=True))
    assert min(p.values()) < 1e-6, p
