"""Collapsed Gibbs sampling as a model-parallel program over one corpus.

A sweep runs G steps, and in step p document group g meets word group (g + p) mod G, so no two threads
share a document row or a word row. Only the topic totals are shared: within a step every group goes on
from the totals at the step's beginning plus its own changes.

Memory, in bytes a token: topic 2 (4 above 65,535 topics) and document 4; word rows at most 4 (a row of K
int32 is kept by words of at least K / 2 tokens, the most frequent first); and the documents' counts
(`document_rows`). With a background every word in `X` keeps a row, twice: 8 K bytes a word.
"""

import numpy as np

from ....kernels.lda import counts as topic_counts
from ....kernels.lda import gibbs as kernels
from ....kernels.lda import seeds as lda_seeds
from ....scheduler.program import Outcome
from ....scheduler.schedules.rotation import RotationSchedule
from ..evaluation import padded_vector
from .document_rows import document_rows
from .state import CorpusState, check_frequency, deal_words, number_of_rows

_SWEEP, _SEEDED = 1, 10  # purposes of random streams


class GibbsState(CorpusState):
    """Assignments and counts of collapsed Gibbs sampling.

    A block is a group of words; after each step the changes of the topic totals are added up.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, n_groups, fits_priors, annealed, folder
        See `CorpusState`.
    exact : bool
        One group, topic totals live: every sweep is an exact Gibbs sweep. A corpus so small that it is one
        group anyway is swept in this way too.
    background : CSR matrix of shape (n_words, n_topics), optional
        Word-topic counts of tokens that are not in `X` and stay where they are.
    seeds : CSR array of float64, shape (n_words, n_topics), optional
        Added to beta. Tokens of these words begin in their topics.
    labels : CSR array of float64, shape (n_documents, n_topics), optional
        Factors of alpha; where there is none, no token of the document has the topic.
    """

    name = "gibbs"

    def __init__(
        self, X, n_topics, alpha, beta, seed, *, exact=False, background=None, n_groups=None, seeds=None,
        labels=None, **options,
    ):  # fmt: skip
        super().__init__(X, n_topics, alpha, beta, seed, n_groups=1 if exact else n_groups, **options)
        self.exact = int(exact or (n_groups is None and len(self.shards) == 1))
        self.schedule = RotationSchedule(self.n_blocks)
        self.seeds, self.labels = seeds, labels
        own = None if labels is None else labels[self.order]
        self.documents = document_rows(self.lengths, n_topics, own, storage=self.storage)
        self._seeds32 = None if seeds is None else _for_kernels(seeds)
        self._lay_out_words(X, self.n_blocks)
        self._make_rows(background)
        self.set_priors(alpha, beta)
        self.topics = self.first_topics(self.token_doc)
        self._count()

    # Layout -------------------------------------------------------------------------------------

    def first_topics(self, token_doc):
        """See `CorpusState`: labels leave only theirs, seed words begin in their topics."""
        topics = super().first_topics(token_doc)
        if self.labels is not None:
            self.documents.admit(token_doc, topics)
        elif self.seeds is not None:
            lda_seeds.assign_seeded(self.word_start, topics, self._seeds32, self.seed, _SEEDED, 0)
        return topics

    def _lay_out_words(self, X, n_groups):
        """Lay tokens out word by word, and inside a word by document."""
        n_words = X.shape[1]
        self.token_doc = self.storage.zeros(self.n_tokens + kernels.AHEAD, np.uint32)
        # bounds[g, w]: where the tokens of document group g begin among those of word w.
        self.bounds = np.empty((n_groups + 1, n_words), np.int64)
        kernels.lay_out(X.indptr, X.indices, X.data, self.order, self.group_docs, self.bounds, self.token_doc)
        self.word_start = np.append(self.bounds[0], self.n_tokens)
        frequency = np.diff(self.word_start)
        words, group = deal_words(frequency, n_groups)
        self.group_words = [words[group == g].astype(np.int32) for g in range(n_groups)]

    def _make_rows(self, background):
        """Rows of counts for frequent words, of 4 bytes a token in all; for every word with a background."""
        frequency = np.diff(self.word_start)
        if background is not None:
            words = np.flatnonzero(frequency)
        else:
            words = np.argsort(-frequency, kind="stable")[: number_of_rows(frequency, self.n_topics)]
            words = np.sort(words)
        self.row_of_word = np.full(len(frequency), -1, np.int32)
        self.row_of_word[words] = np.arange(len(words))
        self.background = np.zeros((0, self.n_topics), np.int32)
        self.background_rows = np.full(len(frequency), -1, np.int32)
        self.rows = np.zeros((len(words), self.n_topics), np.int32)
        held = 0 if background is None else int(background.data.max(initial=0))
        check_frequency(frequency, held)
        if background is not None:
            self.background = background[words].toarray().astype(np.int32)
            self.background_rows = self.row_of_word
            self.background_totals = np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()

    def _count(self):
        """Fill the rows of documents and words, and the totals, from the tokens' topics."""
        self.documents.fill(self.token_doc, self.topics)
        self._count_words()

    def _count_words(self):
        """Fill word rows and totals from the tokens' topics."""
        self.rows[:] = 0
        self.rows[: len(self.background)] = self.background
        self.totals = self.background_totals.copy()
        kernels.count_words(self.word_start, self.topics, self.row_of_word, self.rows, self.totals)

    def set_priors(self, alpha, beta):
        """See `CorpusState`."""
        super().set_priors(alpha, beta)
        self._alpha32 = padded_vector(alpha, self.documents.width)

    # Sampling -----------------------------------------------------------------------------------

    def update(self, state, task):
        """Draw the tokens of a document group and a word group; return the totals with their changes."""
        totals = state["totals"].copy()
        self._block(task.shard, task.blocks, totals, task.round)
        if task.step == self.n_blocks - 1:
            self.documents.tidy(*self.group_docs[task.shard : task.shard + 2])
        return totals

    def aggregate(self, tasks, partials):
        """Add up what the groups did to the totals."""
        totals, before = partials[0], self.totals
        for others in partials[1:]:  # in place: with a million topics, memory for sums takes the longest
            totals += others
            totals -= before
        self.totals = totals
        round_, step = tasks[0].round, tasks[0].step
        if step < self.n_blocks - 1:
            return Outcome(self.totals)
        self.after_sweep(round_ + 1)
        return Outcome(self.totals, updates=self.n_tokens)

    def _block(self, g, h, totals, round_):
        """Draw the tokens of document group g and word group h."""
        part = (self.bounds[g], self.bounds[g + 1])
        place = (self.group_words[h], *part, self.word_start, self.token_doc, self.topics, self.topics)
        _, beta, beta_sum = self.beta_of(round_)
        words = (self.row_of_word, self.rows, totals, self._alpha32, beta, np.float32(beta_sum))
        mode = (self.exact, self.seed, _SWEEP, round_, g * len(self.group_words) + h, self._seeds32)
        self.documents.sweep(place, words, mode)

    # Reading and keeping --------------------------------------------------------------------------

    def _document_part(self, first, last):
        return self.documents.log_likelihood(first, last, self.alpha)

    def _word_part(self, first, last):
        place = (first, last, self.word_start, self.topics, self.background, self.background_rows)
        total = topic_counts.words(*place, self.n_topics, self.beta)
        if self.seeds is not None:
            seeds = (self.seeds.indptr, self.seeds.indices, self.seeds.data)
            total += lda_seeds.seeded_words(*place, self.n_topics, self.beta, seeds)
        return total

    def doc_topic_counts(self):
        """See `CorpusState`."""
        return self.documents.csr()[np.argsort(self.order)]

    def arrays(self):
        """See `CorpusState`."""
        return super().arrays() | self.documents.arrays()

    def restore(self, arrays):
        """See `CorpusState`."""
        super().restore(arrays)
        self.topics[:] = arrays["topics"]
        self.documents.restore(arrays, self.token_doc, self.topics)
        self._count_words()

    def topics_for(self, other):
        """Topics of the tokens as another state of the corpus, of other groups perhaps, lays them out."""
        if np.array_equal(self.order, other.order):
            return self.topics
        words = np.repeat(np.arange(len(self.beta)), np.diff(self.word_start))
        docs = (state.order[state.token_doc[: self.n_tokens]] for state in (self, other))
        own, theirs = (np.lexsort((doc, words)) for doc in docs)
        topics = np.empty_like(self.topics)
        topics[theirs] = self.topics[own]
        return topics

    def begin_from(self, topics):
        """Go on from topics of the tokens, as another state of the same corpus and groups laid them out."""
        self.topics[:] = topics
        self._count()


def _for_kernels(seeds):
    """Seed words as `kernels.lda_seeds` takes them."""
    sums = np.asarray(seeds.sum(axis=0)).ravel()
    narrow = (seeds.data.astype(np.float32), sums.astype(np.float32))
    return (seeds.indptr.astype(np.int64), seeds.indices.astype(np.int32), *narrow)
