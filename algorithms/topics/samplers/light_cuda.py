"""LightLDA's chain on a GPU: the same moves as `Light`, of many more blocks at a time.

Documents are dealt into S sections of G groups, up to 1024, and words into G groups. In step p of a section a
warp moves the tokens of document group g and word group (g + p) mod G. No two share a document or a word,
whose counts are live; the topic totals stand still within a step. Words that are more than half of a group by
themselves would keep one warp busy and the others waiting: these common words are moved before, in a 64th of
a section's documents at a time, from counts and topics that stand still meanwhile. With one group, which
``exact=True`` asks for, all is live, no word is common, and a sweep leaves the posterior as it is.

A section has enough tokens to keep a GPU busy (`TOKENS_PER_SECTION`), so that a corpus larger than the GPU's
memory goes through it section by section; how many there are follows from the corpus alone.

The functions of `stradask.kernels.lda.light` do the same on the CPU, *bitwise*. numba is not imported.
"""

from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.lda import host as lda_host
from ....kernels.lda import light_chunks as lda_light_chunks
from ....kernels.lda.light_cuda import LightSampler
from ....scheduler.program import Outcome
from ....scheduler.schedules.rotation import RotationSchedule, balance
from ..._streams import Purpose
from ..blocks.groups import check_frequency, number_of_rows
from ..blocks.list_layout import ListRoom, lists_do_not_fit
from ..blocks.state import CorpusState

TOKENS_PER_SECTION = 2**25  # see above
_MOST_GROUPS, _TOKENS_PER_BLOCK = 1024, 32  # groups at most, and tokens of a block on average at least
_SPARE = 2**28  # bytes of the device that are left to others


def number_of_groups(lengths):
    """G on a GPU: blocks of some tokens each, and no document that is more than a group by itself."""
    n_tokens = int(lengths.sum()) // number_of_sections(lengths)
    longest = int(lengths.max(initial=1))
    most = min(_MOST_GROUPS, int(np.sqrt(n_tokens / _TOKENS_PER_BLOCK)), n_tokens // max(longest, 1))
    return max(most, 1)


def number_of_sections(lengths):
    """S: as many as have the tokens that keep a GPU busy."""
    return max(int(lengths.sum()) // TOKENS_PER_SECTION, 1)


def plans_of(lengths, frequency, n_topics, n_groups=None, n_sections=None):
    """A `LightPlan` where all sections stay on the GPU, and one where they take turns."""
    n_groups, n_sections = n_groups or number_of_groups(lengths), n_sections or number_of_sections(lengths)
    n_rows = number_of_rows(frequency, n_topics)
    return lda_light_chunks.plans_of(lengths, frequency, n_topics, n_groups, n_sections, n_rows)


def plan_for(memory, name, n_topics, n_sections, plans):
    """Choose a plan for a GPU of this name, of which so much memory is free."""
    return lda_light_chunks.plan_for(memory - _SPARE, name, n_topics, n_sections, plans)


class LightCudaState(CorpusState):
    """Assignments and counts of LightLDA's chain on a GPU; one task a sweep.

    `n_groups` are those of words, and of the documents of a section; `n_sections` is S, if it is not to
    follow from the corpus.
    """

    name, on_gpu = "light", True
    _there: Any  # the sampler on the device
    _read: Any  # topics as they were last read from there

    def __init__(
        self, X, n_topics, alpha, beta, seed, *, device, exact=False, n_groups=None, n_sections=None,
        n_steps=2, **options,
    ):  # fmt: skip
        self.device, self.n_steps = device, n_steps
        lengths, frequency = (np.asarray(X.sum(axis=axis, dtype=np.int64)).ravel() for axis in (1, 0))
        check_frequency(frequency)
        self.n_groups = 1 if exact else n_groups or number_of_groups(lengths)
        self.n_sections = 1 if exact else n_sections or number_of_sections(lengths)
        super().__init__(X, n_topics, alpha, beta, seed, n_groups=self.n_groups * self.n_sections, **options)
        self.list_layout = ListRoom(self.lengths, n_topics)
        plans = plans_of(self.lengths, frequency, n_topics, self.n_groups, self.n_sections)
        plan = plan_for(device.free_memory(), device.name, n_topics, self.n_sections, plans)
        self.token_doc = self.storage.zeros(self.n_tokens, np.uint32)
        self.word_start = lda_host.lay_out(X, self.order, self.token_doc)
        layout = self._lay_out(X, frequency)
        self.shards, self.n_blocks, self.schedule = range(1), 1, RotationSchedule(1)
        self._there = None
        self._read = self.first_topics(self.token_doc)
        self.totals = np.bincount(self._read, minlength=n_topics)
        self._there = LightSampler(device, layout, plan.resident, self.token_doc, self._read)
        self.set_priors(self.priors)

    def _lay_out(self, X, frequency):
        """Deal the words into groups, apart from common ones; choose which have rows of counts."""
        groups, cuts = self.group_docs, self.group_docs[:: self.n_groups]
        words = np.flatnonzero(frequency).astype(np.int32)
        words = words[np.argsort(-frequency[words], kind="stable")]
        common = lda_light_chunks.is_common(frequency, self.n_groups)[words]
        self.common_words, words = words[common], words[~common]
        group = balance(frequency[words], self.n_groups)
        self.group_words = [words[group == h] for h in range(self.n_groups)]
        with_rows = np.argsort(-frequency, kind="stable")[: number_of_rows(frequency, self.n_topics)]
        self.row_of_word = np.full(len(frequency), -1, np.int32)
        self.row_of_word[np.sort(with_rows)] = np.arange(len(with_rows))
        begin = lda_host.begins(X, self.order, cuts, self.word_start)
        self.group_docs = np.array([0, len(self.lengths)])  # the one task's
        place = (self.group_words, self.common_words, begin, self.row_of_word)
        lists = (self.list_layout.shift, self.list_layout.line_start)
        return lda_light_chunks.LightLayout(
            self.lengths, self.n_topics, self.n_groups, groups, *place, *lists
        )

    @property
    def topics(self):
        """See `CorpusState`; read from the device when they are first asked for after a sweep."""
        if self._read is None:
            self._read = self._there.topics()
        return self._read

    def begin_from(self, topics):
        """See `CorpusState`."""
        self._take(topics)

    def _take(self, topics, *lists):
        self._read, self.totals = topics, np.bincount(topics, minlength=self.n_topics)
        self._there.begin_from(topics, *lists)

    def set_priors(self, new):
        """See `CorpusState`."""
        super().set_priors(new)
        alpha = self.alpha
        if self._there is not None:
            size = 0 if np.ptp(alpha) == 0 else len(alpha)
            aliases, limits = np.empty(size, np.int64), np.empty(size, np.uint32)
            if size:
                lda_host.alias_tables(alpha, aliases, limits)
            self._there.set_alpha(alpha, aliases, limits)

    # Sampling -------------------------------------------------------------------------------------

    def update(self, state, task):
        """Move every token once; return the topic totals."""
        beta, beta_sum = self.priors.beta_of(task.round)
        self._there.set_beta(beta, beta_sum)
        self._read = None
        return self._there.sweep(self.n_steps, self.seed, Purpose.LIGHT_SWEEP.value, task.round)

    def aggregate(self, tasks, partials):
        """Take over the totals."""
        (self.totals,) = partials
        self.after_sweep(tasks[0].round + 1)
        return Outcome(self.totals, updates=self.n_tokens)

    # Reading and keeping --------------------------------------------------------------------------

    def measure(self, state):
        """See `CorpusState`."""
        documents, words = self._there.joint(self.alpha, self.beta)
        return documents.sum(), words.sum()

    def doc_topic_counts(self):
        """See `CorpusState`."""
        return self._as_csr(*self._there.document_counts())[np.argsort(self.order)]

    def _as_csr(self, topics, counts, sizes):
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        found = sparse.csr_array((counts, topics, indptr), shape=(len(sizes), self.n_topics))
        found.sort_indices()
        return found

    def word_topic_counts(self):
        """See `CorpusState`."""
        word, topic, counts = self._there.word_counts()
        shape = (len(self.row_of_word), self.n_topics)
        found = sparse.coo_array((counts.astype(np.int32), (word, topic)), shape=shape).tocsr()
        found.sort_indices()
        return found

    def arrays(self):
        """See `CorpusState`; the order inside a list decides which entry a draw picks."""
        entries, n_lines = self._there.lists()
        return super().arrays() | {"entries": entries, "n_lines": n_lines}

    def restore(self, arrays):
        """See `CorpusState`."""
        super().restore(arrays)
        lists = self.list_layout.of_checkpoint(arrays, int(self.list_layout.line_start[-1]) * lda_host.LANES)
        topics = arrays["topics"].copy()
        self._take(topics)
        expected = self._there.document_counts()
        self._take(topics, *lists)
        if (self._as_csr(*expected) != self._as_csr(*self._there.document_counts())).nnz:
            raise lists_do_not_fit()
