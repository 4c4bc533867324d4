r"""Gibbs sampling of topics with keywords and a switch: keyATM.

::

    z_di ~ theta_d,   s_di ~ Bernoulli(pi_z),   pi_k ~ Beta(g_on, g_off)
    w_di ~ phi_z ~ Dirichlet(beta)  where s is 0,   ~ phi~_z ~ Dirichlet(weights of its keywords)  where s is
    1

Topics and switches of tokens are drawn together, all else integrated out (`kernels.lda.models.keywords`).
Counts have the columns of all topics, then one for the keywords of each topic that has some; all else is
`RotatingGibbs`.

References: Eshima, Imai, Sasaki, "Keyword-assisted topic models", American Journal of Political Science 2024.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import betaln, gammaln

from ....kernels.lda.models import keywords as kernels
from ..blocks.averages import shares_of
from ..blocks.document_rows import DenseDocuments
from ..blocks.program import Gathered
from .gibbs import RotatingGibbs
from .gibbs_steps import SWEEP


class RotatingKeywords(RotatingGibbs):
    """`RotatingGibbs` with keywords.

    Parameters
    ----------
    corpus, n_topics, alpha, beta, seed, **options
        See `RotatingGibbs`; `n_topics` and `alpha` without columns of keywords.
    keywords : CSR array of shape (n_words, n_topics)
        Weights of keywords.
    switch : tuple of float
        g_on and g_off.
    """

    seeded: Any

    def __init__(self, corpus, n_topics, alpha, beta, seed, *, keywords, switch, **options):
        self.parents = np.flatnonzero(np.asarray(keywords.sum(axis=0)).ravel())
        self.key_columns = np.full(n_topics, -1)
        self.key_columns[self.parents] = n_topics + np.arange(len(self.parents))
        self.switch = np.array(switch, np.float64)
        n_columns = n_topics + len(self.parents)
        # Columns of keywords have the priors of their topics, which only the sum over both is drawn with.
        alpha = np.concatenate([alpha, alpha[self.parents]])
        none = sparse.csr_array((keywords.shape[0], n_topics))
        seeds = sparse.csr_array(sparse.hstack([none, keywords[:, self.parents]], format="csr"))
        seeds.sort_indices()
        super().__init__(corpus, n_columns, alpha, beta, seed, seeds=seeds, **options)

    @property
    def fold(self):
        """Columns to topics, 0 and 1."""
        topics = np.concatenate([np.arange(len(self.key_columns)), self.parents])
        ones = np.ones(len(topics), np.int32)
        return sparse.csr_array((ones, (np.arange(len(topics)), topics)), dtype=np.int32)

    # At a shard -----------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, labels=None):
        """Allocate the counts of documents, dense."""
        return DenseDocuments(len(lengths), self.longest, self.n_topics, storage)

    def lay_out(self, state, data, storage):
        """Begin with topics of all words, and with keywords in the topics that have them."""
        topics = super().lay_out(state, data, storage)
        first, starts = len(self.key_columns), state["starts"].astype(np.int64)
        plain = np.diff(self.seeded.of_all()[0]) == 0
        for_all = np.repeat(plain, np.diff(starts)) & (topics >= first)
        topics[for_all] = self.parents[topics[for_all] - first]
        return topics

    def run_steps(self, states, blocks, round, first, steps, n_jobs):
        """Steps are made one by one."""
        return None

    def _sweep(self, state, task, place, words):
        own, documents = state["priors"], state["documents"]
        beta, beta_sum = own.beta_of(task.round)
        beta = beta[self.words.ids[self.words.of(task.blocks)]].astype(np.float32)
        stream = (self.seed, SWEEP, task.round, task.shard * self.n_blocks + task.blocks)
        switches = (self.seeded.of(task.blocks), self.key_columns, self.parents, self.switch)
        given = (*words, own.alpha, beta, beta_sum, *switches, *stream)
        kernels.sweep_keywords(*place, documents.counts, *given, kernels.keyword_work(self.n_topics))

    def measure(self, state):
        """Compute the part of a shard's documents for the log-likelihood."""
        n = len(self.key_columns)
        alpha, lengths = state["priors"].alpha[:n], state["lengths"]
        counts = sparse.csr_array(self.document_csr(state) @ self.fold)
        own = alpha[counts.indices]
        part = (gammaln(counts.data + own) - gammaln(own)).sum()
        part += (gammaln(alpha.sum()) - gammaln(lengths + alpha.sum())).sum()
        self.put_away(state)
        return float(part)

    def document_shares(self, state):
        """Topic shares of a shard's documents, 0 in the columns of keywords."""
        n = len(self.key_columns)
        sums = state["sums"][:, : self.n_topics] @ self.fold
        shares = shares_of(sums, state["lengths"], state["priors"].alpha[:n])
        if shares is None:
            return None
        return np.pad(shares, ((0, 0), (0, len(self.parents))))[np.argsort(state["order"])]

    def word_part(self, block, value, beta):
        """Sum over the words of a block of lnG(n + beta) - lnG(beta), of keywords with their weights."""
        counts = sparse.csr_array(sparse.vstack(self.counts_of_block(block, value), format="csr"))
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        prior = beta[self.words.ids[self.words.of(block)]][row]
        on = counts.indices >= len(self.key_columns)
        weights = self.seeds[self.words.ids[self.words.of(block)]]
        prior[on] = np.asarray(weights[row[on], counts.indices[on]]).ravel()
        return float((gammaln(counts.data + prior) - gammaln(prior)).sum())

    # At the coordinator ---------------------------------------------------------------------------

    def joint(self, document_parts, word_part):
        """Compute log p(w, z, s) per token."""
        n, sums = len(self.key_columns), self.beta.sum()
        off, on, weights = self.totals[:n], self.totals[n:], self.seeded.sums[n:]
        total = sum(document_parts) + word_part
        total += (gammaln(sums) - gammaln(off + sums)).sum() + (
            gammaln(weights) - gammaln(on + weights)
        ).sum()
        g_on, g_off = self.switch
        total += (betaln(on + g_on, off[self.parents] + g_off) - betaln(g_on, g_off)).sum()
        return float(total / self.n_tokens)

    def collect(self, ask):
        """Gather the model, and the topics of its columns."""
        return GatheredKeywords(**vars(Gathered.of(self, ask)), fold=self.fold)


@dataclass(frozen=True)
class GatheredKeywords(Gathered):
    """A fitted model, with the topics of its columns, as in `RotatingKeywords.fold`."""

    fold: sparse.csr_array
