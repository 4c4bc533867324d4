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
from .. import priors
from ..blocks.document_rows import DenseDocuments
from ..blocks.program import Gathered
from ..blocks.restoring import taken, unfit
from .annealing import Priors, annealed_sweeps
from .gibbs import RotatingGibbs
from .merging import Merging

_DRAW = 16  # purpose of a random stream
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


class HierarchicalPriors(Priors):
    """As `Priors`; alpha is drawn, and beta is never fitted."""

    def replaced(self, alpha, beta):
        """The same sweeps with another alpha."""
        return HierarchicalPriors(alpha, self.beta, self.annealed, self.first)

    def of_checkpoint(self, arrays):
        """The priors that a checkpoint holds, of these shapes."""
        found = super().of_checkpoint(arrays)
        return HierarchicalPriors(found.alpha, self.beta, found.annealed, self.first)


class RotatingHierarchical(RotatingGibbs):
    """`RotatingGibbs` with `Concentrations`; the sum of `alpha` is the first concentration of documents.

    With `merges` it begins as said above. Else all tokens begin in one topic, from which others part, shares
    are drawn from the first sweep on, and the chain is that of the posterior throughout.
    """

    prior_kind, prior_figures = HierarchicalPriors, "document_counts"

    def __init__(self, corpus, n_topics, alpha, beta, seed, *, concentrations, merges=False, **options):
        self.merging = Merging(n_topics, merges)
        first = np.full(n_topics, _EQUAL) if self.merging.wanted else alpha
        annealed = annealed_sweeps() if self.merging.wanted else 0
        super().__init__(corpus, n_topics, first, beta, seed, annealed=annealed, **options)
        self.concentrations, self.concentration = concentrations, float(alpha.sum())
        self.first_draw = annealed + 1  # the sweep after which shares are drawn for the first time
        self._of_tokens: dict = {}  # of the sweep that runs, by shard and block

    # At a shard -----------------------------------------------------------------------------------

    def lay_out(self, state, data, storage):
        """Begin with one topic, or as plain LDA."""
        if self.merging.wanted:
            return super().lay_out(state, data, storage)
        return storage.zeros(len(state["docs"]) - kernels.AHEAD, self.kind)

    def sync(self, state, message):
        """Take over totals, shares, and what topics are compared or become one."""
        super().sync(state, message)
        for name in ("overlap", "pairs", "names", "judges"):
            if name in message:
                state[name] = message[name]

    def before_sweep(self, state, value):
        """Let topics become one that are to."""
        names = state.pop("names", None)
        if names is None:
            return
        state["topics"][:] = names[state["topics"]]
        state["documents"].fill(*self.tokens_in_order(state))
        state |= state["documents"].arrays()
        state["totals"] = self.merging.added(state["totals"], names)
        state["priors"] = self._joined(state["priors"], names)
        if "sums" in state:
            state["sums"][:] = self.merging.added(state["sums"], names)
        value.rows[:] = self.merging.added(value.rows, names)
        value.tokens[:] = names[value.tokens]

    def _joined(self, own, names):
        """Priors when topics become one; a topic that is no more keeps a tiny part."""
        return own.replaced(self.merging.added(own.alpha, names, _LEAST), 0.0)

    def figures_of_documents(self, state):
        """How often counts of topics, and lengths, occur; what merging is about to decide upon."""
        documents, n_topics = state["documents"], self.n_topics
        if isinstance(documents, DenseDocuments):
            times = np.zeros((n_topics, int(documents.counts.max(initial=0)) + 1), np.int64)
            tally_dense(documents.counts, n_topics, times)
            topics, counts = np.nonzero(times)
            tally = topics, counts, times[topics, counts]
        else:
            tally = priors.tally(documents.csr())
        found = {"document_counts": tally, "lengths": priors.tally_values(state["lengths"])}
        return found | self.merging.of_documents(state)

    def figures_of_words(self, state, block, value):
        """What merging is about to decide upon; words say nothing of shares."""
        beta = state["priors"].beta[self.words.ids[self.words.of(block)]]
        return self.merging.of_words(state, self.counts_of_block(block, value), beta)

    def _may_run_steps(self, states):
        return not states[0]["judges"] and super()._may_run_steps(states)

    def figures_after(self, state, task, place):
        """Where topics are judged, add what the shard's tokens of the block say of them."""
        result = super().figures_after(state, task, place)
        if state["judges"]:
            block, starts = task.blocks, self._starts(state, task.blocks)
            tokens = (starts - starts[0], state["docs"][starts[0] :], state["topics"][starts[0] : starts[-1]])
            counts = sparse.csr_array(sparse.vstack(self.counts_of_block(block, task.value)))
            beta = state["priors"].beta
            own = beta[self.words.ids[self.words.of(block)]]
            priors_ = (state["totals"], state["priors"].alpha, own, float(beta.sum()))
            result["of_tokens"] = self.merging.of_tokens(*tokens, state["documents"].csr(), counts, *priors_)
        return result

    # At the coordinator ---------------------------------------------------------------------------

    def fits_priors_after(self, swept):
        """Whether shares are drawn when so many sweeps are done."""
        return swept >= self.first_draw

    def _fitted_priors(self):
        return {"alpha": self.alpha, "beta": 0.0} | self.merging.message()

    def aggregate(self, tasks, partials):
        """Keep what tokens say of topics, by shard and block, and the other figures."""
        for task, partial in zip(tasks, partials, strict=True):
            if "of_tokens" in partial:
                self._of_tokens[task.shard, task.blocks] = partial.pop("of_tokens")
        return super().aggregate(tasks, partials)

    def _fit_priors(self, swept):
        if self.merging.names is not None:  # which shards and blocks did before this sweep
            self.totals = self.merging.added(self.totals, self.merging.names)
            self.priors = self._joined(self.priors, self.merging.names)
        found = [figures.pop("document_counts") for figures in self._figures]
        counts = tuple(np.concatenate(part) for part in zip(*found, strict=True))
        lengths = tuple(
            np.concatenate(part) for part in zip(*(f["lengths"] for f in self._figures), strict=True)
        )
        barred = self.merging.gone.copy()  # those of now join others when the next sweep begins
        of_tokens = [self._of_tokens[key] for key in sorted(self._of_tokens)]
        self._of_tokens.clear()
        self.merging.decide(
            swept,
            self._figures,
            self._block_figures,
            of_tokens,
            self.totals,
            self.alpha,
            counts,
            self.concentrations.gamma,
            float(self.beta.sum()),
        )
        alpha = self.alpha
        if not self.concentrations.draws_alpha:
            alpha = alpha * (self.concentration / alpha.sum())
        rng = np.random.default_rng([int(self.seed), _DRAW, swept])
        alpha, gamma = draw_shares(counts, lengths, alpha, self.concentrations, rng)
        self.concentrations = replace(self.concentrations, gamma=float(gamma))
        alpha[barred] = _LEAST
        self.priors = self.priors.replaced(alpha, 0.0)

    def collect(self, ask, documents=True):
        """Gather the model, and gamma; topics that are to join others have joined in it."""
        gathered, names = vars(Gathered.of(self, ask, documents)), self.merging.names
        if names is not None:
            place = (np.ones(self.n_topics, np.int32), (np.arange(self.n_topics), names))
            joins = sparse.csr_array(place, shape=(self.n_topics, self.n_topics))
            for part in ("words", "documents"):
                if gathered[part] is not None:
                    gathered[part] = sparse.csr_array(gathered[part] @ joins)
            gathered["alpha"] = self.merging.added(self.alpha, names, _LEAST)
        numbers = self.merging.numbers
        return GatheredHierarchical(**gathered, gamma=self.concentrations.gamma, numbers=numbers)

    def arrays(self):
        """Arrays of a checkpoint besides shards and blocks."""
        gamma = np.float64(self.concentrations.gamma)
        return super().arrays() | {"gamma": gamma} | self.merging.arrays()

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters."""
        (gamma,) = taken(arrays, "gamma")
        if gamma.shape != () or gamma.dtype != np.float64 or not (np.isfinite(gamma) and gamma > 0):
            raise unfit("gamma")
        super().restore(arrays)
        self.merging.restore(arrays)
        self.concentrations = replace(self.concentrations, gamma=float(gamma))


@dataclass(frozen=True)
class GatheredHierarchical(Gathered):
    """A fitted model, the concentration of its topics' shares, and `Merging.numbers`."""

    gamma: float
    numbers: np.ndarray
