r"""Gibbs sampling of topics with keywords and a switch: keyATM.

::

    z_di ~ theta_d,   s_di ~ Bernoulli(pi_z),   pi_k ~ Beta(g_on, g_off)
    w_di ~ phi_z ~ Dirichlet(beta)  where s is 0,   ~ phi~_z ~ Dirichlet(weights of its keywords)  where s is
    1

Topics and switches of tokens are drawn together, all else integrated out (`kernels.lda.models.keywords`).
Counts of words have the columns of all topics, then one for the keywords of each topic that has some;
documents have a count a topic. All else is `Gibbs`.

References: Eshima, Imai, Sasaki, "Keyword-assisted topic models", American Journal of Political Science 2024.
"""

from dataclasses import replace

import numpy as np
from scipy import sparse
from scipy.special import betaln, gammaln

from ....kernels.lda.models import keywords as kernels
from ..._streams import Purpose
from ..blocks.document_rows import document_rows
from .gibbs import Gibbs


class KeywordGibbs(Gibbs):
    """Gibbs sampling with keywords.

    Parameters
    ----------
    keywords : CSR array of shape (n_words, n_topics)
        Weights of keywords.
    switch : tuple of float
        g_on and g_off.

    Attributes
    ----------
    n_columns : int
        `n_topics` of the program: topics, and then keywords of topics that have some.
    seeds : CSR array of shape (n_words, n_columns)
        Of the program.
    """

    def __init__(self, keywords, switch):
        n_words, n_topics = keywords.shape
        self.parents = np.flatnonzero(np.asarray(keywords.sum(axis=0)).ravel())
        self.key_columns = np.full(n_topics, -1)
        self.key_columns[self.parents] = n_topics + np.arange(len(self.parents))
        self.switch = np.array(switch, np.float64)
        self.n_columns = n_topics + len(self.parents)
        none = sparse.csr_array((n_words, n_topics))
        self.seeds = sparse.csr_array(sparse.hstack([none, keywords[:, self.parents]], format="csr"))
        self.seeds.sort_indices()

    # At a shard -----------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, facts=None):
        """Allocate the counts of documents, one a topic."""
        n_topics, n_documents = len(self.key_columns), self.program.corpus.n_documents
        return document_rows(
            lengths, self.program.longest, n_topics, storage=storage, n_documents=n_documents
        )

    def tokens_in_order(self, shard):
        """As of `Gibbs`, topics in place of columns."""
        docs, columns = super().tokens_in_order(shard)
        topics = np.concatenate([np.arange(len(self.key_columns)), self.parents])
        return docs, topics.astype(columns.dtype)[columns]

    def lay_out(self, shard, storage):
        """Begin with topics of all words, and with keywords in the topics that have them."""
        topics = super().lay_out(shard, storage)
        first, starts = len(self.key_columns), shard.starts.astype(np.int64)
        plain = np.diff(self.program.seeded.of_all()[0]) == 0
        for_all = np.repeat(plain, np.diff(starts)) & (topics >= first)
        topics[for_all] = self.parents[topics[for_all] - first]
        return topics

    def sweep(self, shard, task, tokens, words):
        """Draw topics and switches."""
        program, documents, priors = self.program, shard.documents, shard.priors
        beta, beta_sum = priors.beta_of(task.round)
        beta = self.beta_of_words(beta, task.blocks).astype(np.float32)
        stream = (program.seed, Purpose.SWEEP.value, task.round, task.shard * program.n_blocks + task.blocks)
        switches = (program.seeded.of(task.blocks), self.key_columns, self.parents, self.switch)
        model = (*words, priors.alpha, beta, beta_sum, *switches, *stream)
        work = kernels.keyword_work(documents.n_topics, program.n_topics, documents.width)
        kernels.sweep_keywords(*tokens, documents.stored, documents.width, *model, work)

    def word_part(self, block, value, beta):
        """Sum over the words of a block of lnG(n + beta) - lnG(beta), of keywords with their weights."""
        counts = sparse.csr_array(sparse.vstack(self.counts_of_block(block, value), format="csr"))
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        prior = self.beta_of_words(beta, block)[row]
        on = counts.indices >= len(self.key_columns)
        weights = self.beta_of_words(self.seeds, block)
        prior[on] = np.asarray(weights[row[on], counts.indices[on]]).ravel()
        return float((gammaln(counts.data + prior) - gammaln(prior)).sum())

    # At the coordinator ---------------------------------------------------------------------------

    def log_likelihood(self, document_parts, word_part):
        """Compute log p(w, z, s) per token."""
        program, n = self.program, len(self.key_columns)
        sums = program.beta.sum()
        off, on, weights = program.totals[:n], program.totals[n:], program.seeded.sums[n:]
        total = sum(document_parts) + word_part
        total += (gammaln(sums) - gammaln(off + sums)).sum() + (
            gammaln(weights) - gammaln(on + weights)
        ).sum()
        g_on, g_off = self.switch
        total += (betaln(on + g_on, off[self.parents] + g_off) - betaln(g_on, g_off)).sum()
        return float(total / program.n_tokens)

    def completed(self, gathered):
        """Part the counts of keywords from others, and add the priors of keywords, both words x topics."""
        n = len(self.key_columns)
        off, on = gathered.words[:, :n], sparse.coo_array(gathered.words[:, n:])
        weights = sparse.coo_array(self.seeds[:, n:])
        keywords, weights = (
            sparse.csr_array((part.data, (part.row, self.parents[part.col])), shape=off.shape)
            for part in (on, weights)
        )
        extra = {"keywords": keywords, "weights": weights}
        return replace(gathered, words=sparse.csr_array(off), extra=extra)
