r"""Topics that change over slices of time: tokens by Gibbs sampling, words' probabilities at their mode.

::

    p(eta)  ~  prod_tkw phi_tkw^(beta / T) Normal(eta_tkw; eta_(t-1)kw, sigma^2),   phi = softmax(eta)
    theta_d ~ Dirichlet(alpha),   z_di ~ theta_d,   w_di ~ phi_(t(d), z_di)

An EM algorithm whose expectation is sampled. Given phi, slices know nothing of each other: a sweep of plain
LDA draws a slice's tokens, to whose counts of words phi is added with so many tokens that they do not
count themselves. After every `RAISE_EVERY` sweeps eta is raised given the topics of the tokens (`chains`),
topic by topic, and sigma is fitted where it is not given. In the last half of the sweeps counts are added
up, and eta is raised given their mean at the end.

A shard is a slice: slices are swept by as many threads or workers as there are. Shards send the words of
their tokens by topic, and receive all topics.

References: Blei, Lafferty, "Dynamic topic models", ICML 2006; Delyon, Lavielle, Moulines, "Convergence of a
stochastic approximation version of the EM algorithm", Annals of Statistics 1999.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.lda import blocks as lda_blocks
from ....kernels.lda import gibbs as lda_gibbs
from ....kernels.lda.models import chains as kernels
from ....scheduler.program import Outcome, Program, Task
from ....scheduler.threads import run_tasks
from ..._streams import Purpose
from ..blocks.program import TopicProgram
from ..blocks.restoring import taken, unfit
from ..blocks.shard import TopicShard
from ..blocks.word_blocks import Block
from . import chains
from .annealing import MEASURE_EVERY
from .gibbs import Gibbs

RAISE_EVERY = 5  # sweeps
_ROUNDS, _LAST_ROUNDS = 2, 20  # of rates, each time and at the end
_SCALE = 2.0**30  # tokens of a topic that phi stands for
_FEWEST_DRAWS = 4  # from which a variance is estimated
_LEAST_INFORMATION = 0.05  # of what there would be if the topics of tokens were known
_FIRST_VARIANCE = 0.01  # sigma's square, where it is fitted


class SliceGibbs(Gibbs):
    """Draws the tokens of one slice, in one shard and one block, of which all words keep a row.

    `first` are counts of a model of all slices together, n_words x n_topics CSR, from which tokens begin.
    """

    rows = "all"

    def __init__(self, first):
        self.first = first

    def bound(self, program, corpus):
        """See `Gibbs`; of `first` words of the slice alone."""
        bound = super().bound(program, corpus)
        bound.first = self.first[bound.words.ids]
        return bound

    def lay_out(self, shard, storage):
        """Give each token the topic of a token of its word in the model to begin with."""
        program = self.program
        topics = storage.zeros(len(shard.docs) - lda_gibbs.AHEAD, program.kind)
        rng = np.random.default_rng([int(program.seed), Purpose.FIRST_SLICES])
        ends, sums = self.first.indptr, np.concatenate([[0], np.cumsum(self.first.data, dtype=np.int64)])
        begin, end = sums[ends[:-1]], sums[ends[1:]]
        times = np.diff(shard.starts)
        drawn = np.repeat(begin, times) + rng.random(len(topics)) * np.repeat(end - begin, times)
        topics[:] = self.first.indices[np.searchsorted(sums, drawn, side="right") - 1]
        return topics

    def draw_all(self, shard, round_):
        """Draw all tokens, given the chains of the topics."""
        program, n_topics = self.program, self.program.n_topics
        starts, topics = shard.starts.astype(np.int64), shard.topics
        rows = np.zeros((len(starts) - 1, n_topics), np.int32)
        rank = np.full(program.corpus.n_words, -1, np.int32)
        rank[self.words.ids] = np.arange(len(self.words.ids))
        for k, chain in enumerate(shard.chains):
            level = chain.levels[shard.number]
            rows[:, k] = _SCALE * np.exp(chain.others[shard.number] - level)
            rows[rank[chain.words[rank[chain.words] >= 0]], k] = 0
            kernels.add_probabilities(chain.words, rank, chain.eta, level, shard.number, _SCALE, k, rows)
        lda_blocks.add_rows(starts, topics, rows)  # so that no count falls below zero
        totals = np.bincount(topics, minlength=n_topics) + np.int64(_SCALE)
        value = Block(rows, np.zeros(0, program.kind))
        self.draw(shard, Task(round_, 0, 0, 0, value), totals)  # type: ignore[arg-type]

    def words_by_topic(self, shard):
        """Words of the tokens, topic by topic, and where those of each topic begin."""
        topics, n_words = shard.topics, self.program.corpus.n_words
        kind = np.uint16 if n_words <= np.iinfo(np.uint16).max else np.int32
        words = np.repeat(self.words.ids.astype(kind), np.diff(shard.starts))
        sizes = np.bincount(topics, minlength=self.program.n_topics)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return words[np.argsort(topics, kind="stable")], starts


@dataclass(eq=False)
class SliceShard(TopicShard):
    """The shard of a slice, with the number of the slice, its `TopicProgram`, and `WordChains` of topics."""

    number: int = 0
    program: Any = None
    chains: Any = None


class SlicedGibbs(Program):
    """Sweeps over slices of time, and steps of the topics' chains.

    Parameters
    ----------
    slices : list of ShardedCorpus or None
        Of one shard each; None for a slice without documents.
    n_topics, alpha, seed
        As of `TopicProgram`.
    beta : float
    first : CSR array of shape (n_words, n_topics)
        Counts of a model of all slices together, from which topics begin.
    variance : float or None
        sigma's square; None fits it.
    max_rounds : int
        Sweeps in all.
    n_threads : int
        Of the coordinator; the result does not depend on it.
    """

    saved, unit, measure_every, keeps_copies = ("topics",), "token", MEASURE_EVERY, True

    def __init__(self, slices, n_topics, alpha, beta, seed, *, first, variance, max_rounds, n_threads=1):
        self.n_topics, self.alpha, self.beta, self.seed = n_topics, alpha, float(beta), np.uint64(seed)
        self.n_slices, self.n_words, self.n_threads = len(slices), first.shape[0], n_threads
        self.filled = [t for t, corpus in enumerate(slices) if corpus is not None]
        self.shards, self.shard_weights = [], []
        nothing = np.full(self.n_words, 1e-9)  # of a prior: it is in phi
        for t in self.filled:
            own = int(np.random.SeedSequence([int(self.seed), t]).generate_state(1, np.uint64)[0])
            where = {"sampler": SliceGibbs(first), "exact": True, "in_process": True}
            program = TopicProgram(slices[t], n_topics, alpha, nothing, own, **where)
            program.shards = []
            self.shards.append({"slice": t, "program": program, "data": slices[t].shards[0]})
            self.shard_weights.append(slices[t].weights[0])
        self.n_tokens = int(sum(self.shard_weights))
        self.fits_variance = variance is None
        self.variance = _FIRST_VARIANCE if variance is None else chains.bounded(variance)
        self.max_rounds, self.burn_in = max_rounds, max_rounds // 2
        self.topics = chains.still_chains(sparse.csc_array(first), self.beta, self.n_slices)
        self.sums: list = [_no_counts(self.n_slices)] * n_topics
        self.n_draws = 0

    def __getstate__(self):
        """What only the coordinator needs stays there."""
        return vars(self) | {"topics": None, "sums": None}

    # At a slice -----------------------------------------------------------------------------------

    def load(self, data):
        """Lay the tokens of a slice out."""
        shard = data["program"].load(data["data"])
        return SliceShard(**vars(shard), number=data["slice"], program=data["program"])

    def sync(self, state, message):
        """Take the topics."""
        state.chains = [chains.WordChains(*parts) for parts in message]
        if not state.is_ready:
            state.program.sampler.make_ready(state)
            state.is_ready = True

    def update(self, state, task):
        """Sweep; every so often return the words of topics."""
        state.program.sampler.draw_all(state, task.round)
        return self.words_by_topic(state) if self.raises_after(task.round + 1) else None

    def measure(self, state):
        """log p of a slice's words and topics, given its topics' words."""
        words, starts = self.words_by_topic(state)
        total, t = state.program.measure(state), state.number
        for k, chain in enumerate(state.chains):
            own, counts = np.unique(words[starts[k] : starts[k + 1]], return_counts=True)
            eta = chain.of_words(own.astype(np.int32))[:, t] - chain.levels[t]
            total += float(counts @ eta)
        return total

    def document_counts(self, state):
        """Topic counts of a slice's documents."""
        return state.program.document_counts(state)

    def words_by_topic(self, state):
        """See `SliceGibbs.words_by_topic`."""
        return state.program.sampler.words_by_topic(state)

    # At the coordinator ---------------------------------------------------------------------------

    def raises_after(self, swept):
        """Whether topics are raised when so many sweeps are done."""
        return swept % RAISE_EVERY == 0 or swept == self.max_rounds

    def publish(self):
        """Send all topics."""
        return [tuple(vars(chain).values()) for chain in self.topics]

    def aggregate(self, tasks, partials):
        """Raise the topics, where it is time."""
        swept = tasks[0].round + 1
        if not self.raises_after(swept):
            return Outcome(updates=self.n_tokens)
        self._raise(self._all_tokens(partials), swept)
        return Outcome(self.publish(), updates=self.n_tokens)

    def _all_tokens(self, of_shards):
        tokens = [(np.zeros(0, np.uint16), np.zeros(self.n_topics + 1, np.int64))] * self.n_slices
        for t, own in zip(self.filled, of_shards, strict=True):
            tokens[t] = own
        return tokens

    def _raise(self, tokens, swept):
        counted = chains.by_topic(tokens, self.n_words)
        fits, adds = self.fits_variance and self.n_slices > 1, swept > self.burn_in

        def one(k):
            words, counts = counted(k)
            known = (self.beta, self.n_words, self.variance)
            chain = chains.raised(self.topics[k], words, counts, *known, _ROUNDS)
            moves = (0.0, 0)
            if fits:
                rates = chains.rates_of(chain, counts.sum(axis=0), self.beta, self.n_words)
                moves = chains.expected_moves(chain, counts, rates, self.variance)
            return chain, moves, _added(self.sums[k], words, counts) if adds else self.sums[k]

        found = run_tasks([(one, (k,)) for k in range(self.n_topics)], self.n_threads)
        self.topics, self.sums = [chain for chain, *_ in found], [sums for *_, sums in found]
        self.n_draws += int(adds)
        total, n_moves = (sum(moves[i] for _, moves, _ in found) for i in range(2))
        if n_moves:
            self.variance = chains.bounded(total / n_moves)

    def objective(self, parts):
        """log p(w, z | phi) per token."""
        return float(sum(parts) / self.n_tokens)

    def collect(self, ask):
        """Gather the model; topics are raised given the mean counts of the last half of the sweeps."""
        own = ask(lambda session, messages: session.measure(messages, "document_counts"))
        words = ask(lambda session, messages: session.measure(messages, "words_by_topic"))
        joint = self.objective(ask(lambda session, messages: session.measure(messages)))
        tokens = self._all_tokens(words)
        counted = chains.by_topic(tokens, self.n_words)

        def one(k):
            words, counts = counted(k)
            left = np.ones(len(words))
            if self.n_draws:
                words, total, squares = self.sums[k]
                counts, left = total / float(self.n_draws), information(total, squares, self.n_draws)
            known = (self.beta, self.n_words, self.variance)
            chain = chains.raised(self.topics[k], words, counts, *known, _LAST_ROUNDS)
            return chain, counts.sum(axis=0), left.astype(np.float32)

        found = run_tasks([(one, (k,)) for k in range(self.n_topics)], self.n_threads)
        topics, totals, left = (list(parts) for parts in zip(*found, strict=True))
        return GatheredSlices(
            self.filled, own, self._word_counts(tokens), topics, np.array(totals), left, self.variance, joint
        )

    def _word_counts(self, tokens):
        """Topic counts of words, of all slices together."""
        words = np.concatenate([words.astype(np.int64) for words, _ in tokens])
        topics = np.concatenate(
            [np.repeat(np.arange(self.n_topics), np.diff(starts)) for _, starts in tokens]
        )
        shape = (self.n_words, self.n_topics)
        return sparse.csr_array((np.ones(len(words), np.int32), (words, topics)), shape=shape)

    def arrays(self):
        """Arrays of a checkpoint besides the slices."""
        words, counts, squares = zip(*self.sums, strict=True)
        own: dict[str, Any] = {
            "seed": self.seed,
            "variance": np.float64(self.variance),
            "n_draws": np.int64(self.n_draws),
            "sizes": [len(chain.words) for chain in self.topics],
            "words": np.concatenate([chain.words for chain in self.topics]),
            "eta": np.concatenate([chain.eta for chain in self.topics]),
            "others": [chain.others for chain in self.topics],
            "sizes_of_sums": list(map(len, words)),
            "words_of_sums": np.concatenate(words),
            "sums": np.concatenate(counts),
            "squares": np.concatenate(squares),
        }
        return {name: np.asarray(value) for name, value in own.items()}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same slices and parameters."""
        seed, variance, n_draws, others = taken(arrays, "seed", "variance", "n_draws", "others")
        fits = seed.shape == variance.shape == n_draws.shape == () and seed.dtype == np.uint64
        fits = fits and variance.dtype == np.float64 and 0 < variance < np.inf and n_draws >= 0
        if not (fits and others.shape == (self.n_topics, self.n_slices) and others.dtype == np.float32):
            raise unfit()
        sizes, words, eta = taken(arrays, "sizes", "words", "eta")
        topics = self._parted(sizes, words, eta, np.float32)
        sizes, words, sums, squares = taken(arrays, "sizes_of_sums", "words_of_sums", "sums", "squares")
        if squares.shape != words.shape or squares.dtype != np.float64 or not np.isfinite(squares).all():
            raise unfit("squares")
        parted = np.split(squares, np.cumsum(sizes)[:-1])
        sums = self._parted(sizes, words, sums, np.float64)
        self.sums = [(*own, each) for own, each in zip(sums, parted, strict=True)]
        self.topics = [
            chains.WordChains.of(words, eta, other, self.n_words)
            for (words, eta), other in zip(topics, others, strict=True)
        ]
        self.seed, self.variance, self.n_draws = np.uint64(seed), float(variance), int(n_draws)

    def _parted(self, sizes, words, values, kind):
        """Words and values of each topic, out of a checkpoint."""
        fits = sizes.shape == (self.n_topics,) and sizes.dtype.kind == "i" and (sizes >= 0).all()
        fits = fits and words.dtype == np.int32 and words.shape == (sizes.sum(),)
        fits = fits and values.shape == (len(words), self.n_slices) and values.dtype == kind
        fits = fits and 0 <= words.min(initial=0) <= words.max(initial=0) < self.n_words
        if not (fits and np.isfinite(values).all()):
            raise unfit()
        ends = np.cumsum(sizes)[:-1]
        return list(zip(np.split(words, ends), np.split(values, ends), strict=True))


def _no_counts(n_slices):
    return np.zeros(0, np.int32), np.zeros((0, n_slices)), np.zeros(0)


def _added(sums, words, counts):
    """Counts added to those of the same and other words, and the sums over slices of their squares."""
    both = np.union1d(sums[0], words)
    total, squares = np.zeros((len(both), counts.shape[1])), np.zeros(len(both))
    before, new = np.searchsorted(both, sums[0]), np.searchsorted(both, words)
    total[before], squares[before] = sums[1], sums[2]
    total[new] += counts
    squares[new] += (counts**2).sum(axis=1)
    return both.astype(np.int32), total, squares


def information(total, squares, n_draws):
    """The part of a word's information that is left where the topics of its tokens are not known.

    By Louis: what is missing is the variance of the score, that of the word's tokens in the topic given the
    topics' words, here over the draws; what there would be is their mean. A number a word, over all slices.
    """
    if n_draws < _FEWEST_DRAWS:
        return np.ones(len(total))
    mean = total / n_draws
    variance = (squares / n_draws - (mean**2).sum(axis=1)) * n_draws / (n_draws - 1)
    missing = np.maximum(variance, 0) / np.maximum(mean.sum(axis=1), 1e-9)
    return np.maximum(1 - missing, _LEAST_INFORMATION)


@dataclass(frozen=True)
class GatheredSlices:
    """A fitted model: documents' topic counts of slices that have some, words, and topics over slices."""

    filled: list
    documents: list
    words: Any
    topics: list
    totals: np.ndarray
    information: list
    variance: float
    joint: float
