"""Samplers of topics step by step on this thread, and their corpora word by word, as kernels take them."""

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from stradask.algorithms.topics.blocks.document_rows import PackedLists
from stradask.algorithms.topics.blocks.groups import deal_words, number_of_groups, number_of_rows
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix, with_labels
from stradask.algorithms.topics.evaluation import padded_vector
from stradask.algorithms.topics.samplers.annealing import Priors, first_topics
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.kernels.lda import gibbs as kernels
from stradask.kernels.lda import host, light
from stradask.kernels.lda.alias import alias_tables
from stradask.scheduler.engine import run
from stradask.scheduler.program import Task
from stradask.scheduler.schedules.rotation import balance


def groups_of(X, n_topics):
    """The groups of a fit that gives no number."""
    n_words = np.count_nonzero(np.bincount(X.indices))
    return min(number_of_groups(int(X.sum()), n_words, n_topics), X.shape[0])


class Layout:
    """Tokens of a corpus word by word, and inside a word by document, documents in groups."""

    def __init__(self, X, n_groups=1):
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        group = balance(lengths, n_groups)
        self.order = np.lexsort((lengths, group))
        self.lengths, self.n_tokens = lengths[self.order], int(lengths.sum())
        self.group_docs = np.searchsorted(group[self.order], np.arange(n_groups + 1))
        self.token_doc = np.zeros(self.n_tokens + kernels.AHEAD, np.uint32)
        self.word_start = host.lay_out(X, self.order, self.token_doc)
        self.bounds = host.begins(X, self.order, self.group_docs, self.word_start)
        words, group = deal_words(np.diff(self.word_start), n_groups)
        self.group_words = [words[group == g].astype(np.int32) for g in range(n_groups)]

    @property
    def words(self):
        """Of each token."""
        return np.repeat(np.arange(len(self.word_start) - 1), np.diff(self.word_start))

    @property
    def docs(self):
        """Rows of X of the tokens."""
        return self.order[self.token_doc[: self.n_tokens]]


class Chain(Layout):
    """A program of topics, its shards and its blocks; `sampler` is one, or the name of a program."""

    def __init__(
        self, X, n_topics, alpha, beta, seed, *, sampler="gibbs", n_groups=None, exact=False, labels=None,
        **options,
    ):  # fmt: skip
        groups = 1 if exact else n_groups or groups_of(X, n_topics)
        super().__init__(X, groups)
        corpus = corpus_of_matrix(X, groups, copies=False)
        corpus = corpus if labels is None else with_labels(corpus, labels)
        exact = exact or (n_groups is None and groups == 1)
        model, options = (corpus, n_topics, alpha, beta, seed), {"exact": exact, "in_process": True} | options
        if isinstance(sampler, str):
            self.program = program_of(sampler, *model, **options)
        else:
            self.program = TopicProgram(*model, sampler=sampler, **options)
        self.n_topics, self.kind, self.sampler = n_topics, self.program.kind, self.program.sampler
        self.begin_from(None)

    def __getattr__(self, name):  # totals, alpha, beta, annealed, joint...
        if name in ("program", "states"):
            raise AttributeError(name)
        return getattr(self.program, name)

    def begin_from(self, topics):
        """Begin from topics of the tokens, or from those of the program."""
        program = self.program
        self.states = [program.load(shard) for shard in program.shards]
        self.blocks = [program.block(b) for b in range(program.n_blocks)]
        program.totals = program.background_totals.copy()
        for g, state in enumerate(self.states):
            if topics is not None:
                own = topics[self._places(g)].astype(self.kind)
                state.topics[:] = own[:, None] if state.topics.ndim == 2 else own
            for b, value in enumerate(self.blocks):
                program.sampler.fill(state, b, value)
            own = program.sampler.own_topics(state, 0, len(state.topics))
            program.totals = program.totals + np.bincount(own, minlength=self.n_topics)
        self._sync(program.publish())
        return self

    def _places(self, g):
        """Where the tokens of a shard are in this layout."""
        begin, end = self.bounds[g], self.bounds[g + 1]
        return np.concatenate([np.arange(begin[w], end[w]) for w in self.program.words.ids] or [[]]).astype(
            int
        )

    def _sync(self, message):
        for state in self.states:
            self.program.sync(state, message)

    @property
    def topics(self):
        """Of the tokens."""
        topics = np.empty(self.n_tokens, self.kind)
        for g, state in enumerate(self.states):
            topics[self._places(g)] = self.sampler.own_topics(state, 0, len(state.topics))
        return topics

    def sweep(self, round_):
        """Do a sweep."""
        for step, pairs in enumerate(self.program.schedule.plan(round_, {})):
            if self.program.schedule.place(round_, step) < 0:
                continue
            tasks = [Task(round_, step, shard, block, self.blocks[block]) for shard, block in pairs]
            partials = [self.program.update(self.states[task.shard], task) for task in tasks]
            joined = self.program.join(partials)
            if joined is not None:
                self._sync(self.program.message_of(self.states[0], joined))
                self.program.hear(joined)
        return self

    def run(self, n_sweeps, **options):
        """Run the program by the engine from its beginning; return the run."""
        self.program.totals = self.program.background_totals.copy()
        return run(self.program, self.program.schedule, max_rounds=n_sweeps, label="LDA", **options)

    def joint_log_likelihood(self):
        """As the program reports it."""
        words = [self.sampler.word_part(b, value, self.beta) for b, value in enumerate(self.blocks)]
        return self.sampler.log_likelihood([self.program.measure(state) for state in self.states], sum(words))

    def word_topic_counts(self):
        """Of the blocks."""
        counted = [part for b, v in enumerate(self.blocks) for part in self.sampler.counts_of_block(b, v)]
        return self.program.word_counts(counted)

    def doc_topic_counts(self):
        """Of the shards, documents as in X."""
        return self.program.in_order_of_X([self.program.document_counts(state) for state in self.states])

    def saved(self):
        """All arrays of a state, copied."""
        arrays = {name: np.array(array) for name, array in self.program.arrays().items()}
        for g, state in enumerate(self.states):
            arrays |= {f"shard-{g}/{name}": state[name].copy() for name in self.program.saved}
        packed = enumerate(self.blocks)
        return arrays | {f"block-{b}": self.program.pack(b, value).copy() for b, value in packed}

    def restore(self, arrays):
        """Go on from `saved` arrays."""
        self.program.restore({name: array for name, array in arrays.items() if "-" not in name})
        self.states = [self.program.load(shard) for shard in self.program.shards]
        for g, state in enumerate(self.states):
            for name in self.program.saved:
                state[name] = arrays[f"shard-{g}/{name}"].copy()
        blocks = range(self.program.n_blocks)
        self.blocks = [self.program.unpack(b, arrays[f"block-{b}"].copy()) for b in blocks]
        self._sync(self.program.publish())

    @property
    def alpha32(self):
        """alpha as kernels of dense rows take it."""
        return padded_vector(self.alpha, (self.n_topics + 31) // 32 * 32)


class Tokens(Layout):
    """Topics of tokens as kernels take them, with packed lists of documents, rows of words, and totals."""

    def __init__(self, X, n_topics, alpha, beta, seed, *, n_groups=1, annealed=0, n_steps=2):
        super().__init__(X, n_groups)
        self.n_topics, self.seed, self.n_steps = n_topics, np.uint64(seed), n_steps
        self.priors = Priors.of(alpha, beta, annealed, self.n_tokens)
        self.alpha, self.beta = alpha, beta
        kind = np.uint16 if n_topics <= 2**16 - 1 else np.uint32
        topics = np.zeros(self.n_tokens, kind)
        first_topics(self.token_doc[: self.n_tokens], topics, n_topics, self.lengths, annealed, seed)
        frequency = np.diff(self.word_start)
        with_rows = np.sort(np.argsort(-frequency, kind="stable")[: number_of_rows(frequency, n_topics)])
        self.row_of_word = np.full(len(frequency), -1, np.int32)
        self.row_of_word[with_rows] = np.arange(len(with_rows))
        self.documents = PackedLists(self.lengths, n_topics)
        size = 0 if np.ptp(alpha) == 0 else n_topics
        self.aliases, self.limits = np.empty(size, np.int64), np.empty(size, np.uint32)
        if size:
            alias_tables(alpha, self.aliases, self.limits)
        self.begin_from(topics)

    def begin_from(self, topics):
        """Count other topics."""
        self.topics = topics
        self.documents.fill(self.token_doc, topics)
        self.totals = np.bincount(topics, minlength=self.n_topics)
        rows = self.row_of_word[self.words]
        self.rows = np.zeros((self.row_of_word.max() + 1, self.n_topics), np.int32)
        np.add.at(self.rows, (rows[rows >= 0], topics[rows >= 0]), 1)

    def move(self, round_):
        """Move all tokens by LightLDA's proposals, in one group."""
        lists, (beta, beta_sum) = self.documents, self.priors.beta_of(round_)
        tokens = (*self.bounds, self.word_start, self.token_doc, self.topics)
        documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, self.lengths)
        words = (self.row_of_word, self.rows, self.totals, np.empty(0, np.int64))
        alpha = (self.alpha, self.alpha.sum(), self.aliases, self.limits)
        stream = (self.n_steps, self.seed, 7, round_, 0)
        light.sweep(self.group_words[0], *tokens, *documents, *words, *alpha, beta, beta_sum, *stream)

    def doc_topic_counts(self):
        """Documents as in X."""
        return self.documents.csr()[np.argsort(self.order)]

    def word_topic_counts(self):
        """CSR."""
        ones, shape = np.ones(self.n_tokens, np.int32), (len(self.beta), self.n_topics)
        return sparse.coo_array((ones, (self.words, self.topics)), shape=shape).tocsr()

    def joint_log_likelihood(self):
        """By its definition, per token."""
        alpha, beta = self.alpha, self.beta
        documents, words = self.documents.csr().tocoo(), self.word_topic_counts().tocoo()
        total = (gammaln(documents.data + alpha[documents.col]) - gammaln(alpha[documents.col])).sum()
        total += (gammaln(words.data + beta[words.row]) - gammaln(beta[words.row])).sum()
        total += (gammaln(alpha.sum()) - gammaln(self.lengths + alpha.sum())).sum()
        total += (gammaln(beta.sum()) - gammaln(self.totals + beta.sum())).sum()
        return total / self.n_tokens
