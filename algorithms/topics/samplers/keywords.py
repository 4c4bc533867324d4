r"""Gibbs sampling of topics with keywords and a switch: keyATM.

::

    z_di ~ theta_d,   s_di ~ Bernoulli(pi_z),   pi_k ~ Beta(g_on, g_off)
    w_di ~ phi_z ~ Dirichlet(beta)  where s is 0,   ~ phi~_z ~ Dirichlet(weights of its keywords)  where s is
    1

Topics and switches of tokens are drawn together, all else integrated out (`kernels.lda.models.keywords`).
Counts of words have the columns of all topics, then one for the keywords of each topic that has some;
documents have a count a topic. All else is `RotatingGibbs`.

References: Eshima, Imai, Sasaki, "Keyword-assisted topic models", American Journal of Political Science 2024.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import betaln, gammaln

from ....kernels.lda.models import keywords as kernels
from ..blocks.document_rows import document_rows
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
        none = sparse.csr_array((keywords.shape[0], n_topics))
        seeds = sparse.csr_array(sparse.hstack([none, keywords[:, self.parents]], format="csr"))
        seeds.sort_indices()
        super().__init__(corpus, n_columns, alpha, beta, seed, seeds=seeds, **options)

    # At a shard -----------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, labels=None):
        """Allocate the counts of documents, one a topic."""
        n_topics, n_documents = len(self.key_columns), self.corpus.n_documents
        return document_rows(lengths, self.longest, n_topics, storage=storage, n_documents=n_documents)

    def tokens_in_order(self, state):
        """As of `RotatingGibbs`, topics in place of columns."""
        docs, columns = super().tokens_in_order(state)
        topics = np.concatenate([np.arange(len(self.key_columns)), self.parents])
        return docs, topics.astype(columns.dtype)[columns]

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
        work = kernels.keyword_work(documents.n_topics, self.n_topics, documents.width)
        kernels.sweep_keywords(*place, documents.stored, documents.width, *given, work)

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

    def collect(self, ask, documents=True):
        """Gather the model, counts of keywords apart from others."""
        found, n = Gathered.of(self, ask, documents), len(self.key_columns)
        off, on = found.words[:, :n], sparse.coo_array(found.words[:, n:])
        weights = sparse.coo_array(self.seeds[:, n:])
        keywords, weights = (
            sparse.csr_array((part.data, (part.row, self.parents[part.col])), shape=off.shape)
            for part in (on, weights)
        )
        own = vars(replace(found, words=sparse.csr_array(off)))
        return GatheredKeywords(**own, keywords=keywords, weights=weights)


@dataclass(frozen=True)
class GatheredKeywords(Gathered):
    """A fitted model; `words` lack the tokens that keywords gave.

    These are `keywords`, and the priors of keywords `weights`, both words x topics.
    """

    keywords: sparse.csr_array
    weights: sparse.csr_array
