r"""Gibbs sampling under a hierarchical Dirichlet prior of the topics' shares, truncated.

::

    pi ~ Dirichlet(gamma / T, ..., gamma / T),   theta_d ~ Dirichlet(alpha pi),   T topics at most
    alpha ~ Gamma(1, 1),  gamma ~ Gamma(1, 1)    where they are not given

As T grows this comes near the hierarchical Dirichlet process. A sweep draws the tokens' topics given alpha pi
by the kernel of plain LDA. After it, alpha, pi and gamma are drawn given the counts n_dk, with the numbers of
tables as auxiliary variables: topic k has in document d the successes of n_dk trials, with probabilities
``alpha pi_k / (alpha pi_k + i)``, i = 0, 1, ... So all of a topic's are a sum of binomials, one for each i,
over the documents with more than i tokens of it: what they cost does not grow with the documents.

Single tokens do not leave a topic for another that is much like it, so that parts of one topic stay apart for
thousands of sweeps. With `merges`, a fit begins as that of plain LDA with T topics, 80 sweeps annealed and
shares equal. After that shares are drawn, and every ten sweeps topics join others without which words, topics
and tables are more likely (`merging`): pairs up to sweep 150, leftovers from then on. So the number of topics
is that of a mode of the posterior. Without merges the chain is that of the posterior, in which topics of a
few tokens come and go.

References: Teh, Jordan, Beal, Blei, "Hierarchical Dirichlet processes", JASA 2006; Ishwaran, Zarepour, "Exact
and approximate sum representations for the Dirichlet process", Canadian Journal of Statistics 2002.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ....kernels.lda import gibbs as kernels
from ....kernels.lda.tallies import tally_dense
from ..._streams import Purpose
from .. import priors
from ..blocks.document_rows import DenseDocuments
from ..blocks.restoring import taken, unfit
from .annealing import Priors, annealed_sweeps
from .gibbs import Gibbs
from .merging import MergeOrders, Merging

_LEAST = 1e-20  # of pi, or of alpha: less is no float32, and no topic that a token would find
_SHAPE, _RATE = 1.0, 1.0  # of the gamma priors
_EQUAL = 0.1  # alpha of each topic before shares are drawn: that of plain LDA


@dataclass(frozen=True)
class Concentrations:
    """gamma, and whether alpha and gamma are drawn."""

    gamma: float
    draws_alpha: bool
    draws_gamma: bool


def draw_shares(counts, lengths, alpha, gamma, rng):
    """Draw alpha pi, and gamma, given how topics' counts occur among documents.

    Parameters
    ----------
    counts : three arrays
        Topics, counts above zero, and how many documents have this count of the topic.
    lengths : two arrays
        Lengths of documents, and how many have each.
    alpha : ndarray of shape (n_topics,)
        alpha pi, as it is.
    gamma : Concentrations
        gamma as it is, and what is drawn.
    rng : numpy Generator
    """
    total = alpha.sum()
    tables = _tables(counts, alpha, rng)
    concentration = total
    if gamma.draws_alpha:
        each = np.repeat(lengths[0], lengths[1])
        concentration = _concentration(total, int(tables.sum()), each[each > 0], rng)
    drawn = gamma.gamma
    n_topics = len(alpha)
    if gamma.draws_gamma and tables.any():
        groups = _tables_of_one(tables, gamma.gamma / n_topics, rng)
        drawn = _concentration(gamma.gamma, groups, tables.sum()[None], rng)
    # Not rng.dirichlet, which gives NaN where all parameters are tiny.
    shape = drawn / n_topics + tables
    logs = np.log(np.maximum(rng.standard_gamma(shape + 1), np.finfo(float).tiny))
    logs += np.log(np.maximum(rng.random(n_topics), np.finfo(float).tiny)) / shape
    shares = np.exp(logs - logs.max())
    shares = np.maximum(shares / shares.sum(), _LEAST)
    return concentration * (shares / shares.sum()), drawn


def _tables(counts, weights, rng):
    """Draw the sum of tables of each topic: successes among trials of probability w / (w + i), i < count."""
    topics, values, times = counts
    over = np.zeros((len(weights), int(values.max(initial=0)) + 1), np.int64)
    np.add.at(over, (topics, values), times)
    over = np.cumsum(over[:, ::-1], axis=1)[:, ::-1][:, 1:]  # documents with more than i tokens
    topic, place = np.nonzero(over)
    tables = rng.binomial(over[topic, place], weights[topic] / (weights[topic] + place))
    return np.bincount(topic, tables, len(weights)).astype(np.int64)


def _tables_of_one(counts, weight, rng):
    """As `_tables`, of one group of counts by topic, of equal weights; return all of them."""
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return int((rng.random(len(place)) * (weight + place) < weight).sum())


def _concentration(now, n_tables, sizes, rng):
    """Draw a concentration given the tables of groups of these sizes (Teh et al., appendix A)."""
    logs = np.log(rng.beta(now + 1, sizes)).sum()
    ones = (rng.random(len(sizes)) * (sizes + now) < sizes).sum()
    return max(rng.gamma(_SHAPE + n_tables - ones, 1 / (_RATE - logs)), 1e-6)


class HierarchicalGibbs(Gibbs):
    """Gibbs sampling with `Concentrations`; the sum of alpha is the first concentration of documents.

    With `merges` it begins as said above. Else all tokens begin in one topic, from which others part, shares
    are drawn from the first sweep on, and the chain is that of the posterior throughout.
    """

    prior_figures = "document_counts"
    merging: Merging

    def __init__(self, concentrations, merges=False):
        self.concentrations, self.merges = concentrations, merges

    def bound(self, program, corpus):
        """See `Gibbs`."""
        bound = super().bound(program, corpus)
        bound.merging = Merging(program.n_topics, self.merges)
        return bound

    def first_priors(self, alpha, beta, annealed):
        """See `Gibbs`; how many sweeps are annealed follows from the merges."""
        self.concentration, wanted = float(alpha.sum()), self.merging.wanted
        annealed = annealed_sweeps() if wanted else 0
        self.first_draw = annealed + 1  # the sweep after which shares are drawn for the first time
        first = np.full(len(alpha), _EQUAL) if wanted else alpha
        return Priors.of(first, beta, annealed, self.program.n_tokens)

    # At a shard -----------------------------------------------------------------------------------

    def lay_out(self, shard, storage):
        """Begin with one topic, or as plain LDA."""
        shard.merging = MergeOrders()
        if self.merging.wanted:
            return super().lay_out(shard, storage)
        return storage.zeros(len(shard.docs) - kernels.AHEAD, self.program.kind)

    def receive(self, shard, message):
        """Take what topics are compared, or become one."""
        if "merging" in message:
            shard.merging = MergeOrders(*message["merging"])

    def before_sweep(self, shard, value):
        """Let topics become one that are to."""
        names = shard.merging.names
        if names is None:
            return
        shard.merging = shard.merging._replace(names=None)
        shard.topics[:] = names[shard.topics]
        shard.documents.fill(*self.tokens_in_order(shard))
        shard.lists |= shard.documents.arrays()
        shard.totals = self.merging.added(shard.totals, names)
        shard.priors = self._joined(shard.priors, names)
        if shard.sums is not None:
            shard.sums[:] = self.merging.added(shard.sums, names)
        value.rows[:] = self.merging.added(value.rows, names)
        value.tokens[:] = names[value.tokens]

    def _joined(self, own, names):
        """Priors when topics become one; a topic that is no more keeps a tiny part."""
        return own.replaced(self.merging.added(own.alpha, names, _LEAST), 0.0)

    def figures_of_documents(self, shard):
        """How often counts of topics, and lengths, occur; what merging is about to decide upon."""
        documents, n_topics = shard.documents, self.program.n_topics
        if isinstance(documents, DenseDocuments):
            times = np.zeros((n_topics, int(documents.counts.max(initial=0)) + 1), np.int64)
            tally_dense(documents.counts, n_topics, times)
            topics, counts = np.nonzero(times)
            tally = topics, counts, times[topics, counts]
        else:
            tally = priors.tally(documents.csr())
        figures = {"document_counts": tally, "lengths": priors.tally_values(shard.lengths)}
        return figures | self.merging.of_documents(shard)

    def figures_of_words(self, shard, block, value):
        """What merging is about to decide upon; words say nothing of shares."""
        beta = self.beta_of_words(shard.priors.beta, block)
        return self.merging.of_words(shard.merging, self.counts_of_block(block, value), beta)

    def may_run_steps(self, shards):
        """See `Gibbs`."""
        return not shards[0].merging.judges and super().may_run_steps(shards)

    def figures_after(self, shard, task, place):
        """Where topics are judged, add what the shard's tokens of the block say of them."""
        figures = super().figures_after(shard, task, place)
        if shard.merging.judges:
            block, starts = task.blocks, self.starts_of(shard, task.blocks)
            tokens = (starts - starts[0], shard.docs[starts[0] :], shard.topics[starts[0] : starts[-1]])
            counts = sparse.csr_array(sparse.vstack(self.counts_of_block(block, task.value)))
            alpha, beta = shard.priors.alpha, shard.priors.beta
            priors_ = (shard.totals, alpha, self.beta_of_words(beta, block), float(beta.sum()))
            gains = self.merging.of_tokens(*tokens, shard.documents.csr(), counts, *priors_)
            figures[f"of_tokens_{block}"] = gains
        return figures

    # At the coordinator ---------------------------------------------------------------------------

    def fits_after(self, swept):
        """Whether shares are drawn when so many sweeps are done."""
        return swept >= self.first_draw

    def publish(self):
        """Return shares, and what topics are compared, or become one."""
        return {"alpha": self.program.alpha, "beta": 0.0, "merging": tuple(self.merging.orders())}

    def fit(self, swept):
        """Draw shares and concentrations, and decide which topics are compared next or become one."""
        program, merging = self.program, self.merging
        if merging.names is not None:  # which shards and blocks did before this sweep
            program.totals = merging.added(program.totals, merging.names)
            program.priors = self._joined(program.priors, merging.names)
        of_shards = program.shard_figures
        tallies = [figures.pop("document_counts") for figures in of_shards]
        counts = tuple(np.concatenate(part) for part in zip(*tallies, strict=True))
        lengths = tuple(np.concatenate(part) for part in zip(*(f["lengths"] for f in of_shards), strict=True))
        barred = merging.gone.copy()  # those of now join others when the next sweep begins
        keys = [f"of_tokens_{block}" for block in range(program.n_blocks)]
        of_tokens = [figures.pop(key) for figures in of_shards for key in keys if key in figures]
        alpha, gamma, beta_sum = program.alpha, self.concentrations.gamma, float(program.beta.sum())
        model = (program.totals, alpha, counts, gamma, beta_sum)
        merging.decide(swept, of_shards, program.block_figures, of_tokens, *model)
        if not self.concentrations.draws_alpha:
            alpha = alpha * (self.concentration / alpha.sum())
        rng = np.random.default_rng([int(program.seed), Purpose.TOPIC_SHARES, swept])
        alpha, gamma = draw_shares(counts, lengths, alpha, self.concentrations, rng)
        self.concentrations = replace(self.concentrations, gamma=float(gamma))
        alpha[barred] = _LEAST
        program.priors = program.priors.replaced(alpha, 0.0)

    def completed(self, gathered):
        """Add gamma and `Merging.numbers`; topics that are to join others have joined."""
        names, n_topics = self.merging.names, self.program.n_topics
        extra = {"gamma": self.concentrations.gamma, "numbers": self.merging.numbers}
        gathered = replace(gathered, extra=extra)
        if names is None:
            return gathered
        place = (np.ones(n_topics, np.int32), (np.arange(n_topics), names))
        joins = sparse.csr_array(place, shape=(n_topics, n_topics))
        counts = {
            part: sparse.csr_array(getattr(gathered, part) @ joins)
            for part in ("words", "documents")
            if getattr(gathered, part) is not None
        }
        return replace(gathered, alpha=self.merging.added(self.program.alpha, names, _LEAST), **counts)

    def arrays(self):
        """See `Gibbs`."""
        return {"gamma": np.float64(self.concentrations.gamma)} | self.merging.arrays()

    def restore(self, arrays):
        """See `Gibbs`."""
        (gamma,) = taken(arrays, "gamma")
        if gamma.shape != () or gamma.dtype != np.float64 or not (np.isfinite(gamma) and gamma > 0):
            raise unfit("gamma")
        self.merging.restore(arrays)
        self.concentrations = replace(self.concentrations, gamma=float(gamma))
