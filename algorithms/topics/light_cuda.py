"""LightLDA's chain on a GPU: the same moves as `light.LightState`, of many more blocks at a time.

Documents and words are dealt into G groups, up to 1024, and in step p a warp moves the tokens of document
group g and word group (g + p) mod G. No two share a document or a word, whose counts are live; the topic
totals stand still within a step. Words that are more than half of a group by themselves would keep one warp
busy and the others waiting: these common words are moved before, in a 64th of the documents at a time,
from counts and topics that stand still meanwhile. With one group, which ``exact=True`` asks for, all is live,
no word is common, and a sweep leaves the posterior as it is.

The functions of `stradask.kernels.lda_light` do the same on the CPU, *bitwise*.
"""

from typing import Any

import numpy as np

from ...errors import DataError
from ...kernels import lda_light
from ...kernels.lda_light_cuda import LightOnDevice, table_sizes
from ...scheduler.program import Outcome
from ...scheduler.rotation import RotationSchedule, balance
from .gibbs import number_of_rows
from .light import _SWEEP, LightState

_MOST_GROUPS, _TOKENS_PER_BLOCK = 1024, 32
_PARTS = 64  # of the documents, in which common words are moved in turn
_SPARE = 2**28  # bytes of the device that are left to others


def number_of_groups(lengths):
    """G on a GPU: blocks of some tokens each, and no document that is more than a group by itself."""
    n_tokens = int(lengths.sum())
    longest = int(lengths.max(initial=1))
    most = min(_MOST_GROUPS, int(np.sqrt(n_tokens / _TOKENS_PER_BLOCK)), n_tokens // max(longest, 1))
    return max(most, 1)


def bytes_on_device(lengths, frequency, n_topics, n_groups):
    """Bytes that a fit takes on a GPU: see `LightOnDevice`."""
    n_tokens, n_documents, n_words = int(lengths.sum()), len(lengths), len(frequency)
    n_rows, topic = number_of_rows(frequency, n_topics), 2 if n_topics < 2**16 else 4
    no_row = np.sort(frequency)[::-1][n_rows:]
    common = int(frequency[is_common(frequency, n_groups)].sum())
    lines = int(-(-np.minimum(lengths, n_topics) // 16).sum())
    by_token = (4 + 8 + topic) * n_tokens + topic * common
    by_word = 4 * n_topics * n_rows + 8 * int(table_sizes(no_row, -np.ones_like(no_row)).sum()) + 48 * n_words
    return by_token + by_word + 64 * (lines + 4) + 24 * n_documents + 8 * n_groups**2 + 40 * n_topics + 64


def is_common(frequency, n_groups):
    """Which words are more than half of a group by themselves."""
    return (n_groups > 1) & (2 * n_groups * frequency > frequency.sum())


class LightCudaState(LightState):
    """Assignments and counts of LightLDA's chain on a GPU; one task a sweep.

    Parameters
    ----------
    X, n_topics, alpha, beta, seed, exact, n_groups, n_steps, fits_priors, annealed, folder
        See `LightState`.
    device : `stradask.kernels.device.Device`
    """

    _on_device: Any

    def __init__(self, X, n_topics, alpha, beta, seed, *, device, exact=False, n_groups=None, **options):
        self.device, self._on_device, self._host_is_old = device, None, False
        if n_groups is None and not exact:
            n_groups = number_of_groups(np.asarray(X.sum(axis=1, dtype=np.int64)).ravel())
        super().__init__(X, n_topics, alpha, beta, seed, exact=exact, n_groups=n_groups, **options)
        self.shards, self.n_blocks, self.schedule = range(1), 1, RotationSchedule(1)
        self._to_device()

    def _lay_out_words(self, X, n_groups):
        """See `GibbsState`; bounds of blocks are not kept, since a GPU has too many."""
        self._group_of_doc = np.repeat(np.arange(n_groups, dtype=np.int32), np.diff(self.group_docs))
        self.parts = self.group_docs[np.linspace(0, n_groups, min(n_groups, _PARTS) + 1).astype(np.int64)]
        self.n_groups, self.group_docs = n_groups, np.array([0, len(self.lengths)])
        super()._lay_out_words(X, 1)
        words = self.group_words[0]
        frequency = np.diff(self.word_start)[words]
        common = is_common(frequency, n_groups)
        self.common_words, words, frequency = words[common], words[~common], frequency[~common]
        group = balance(frequency, n_groups)
        self.group_words = [words[group == h] for h in range(n_groups)]

    # Between host and device ----------------------------------------------------------------------

    def _to_device(self):
        """Lay the corpus and its counts out on the device, after a look at whether they fit."""
        self._on_device = None  # what lies there now goes before more comes
        arrays = self._arrays_of_device()
        self._check_room()
        self._on_device = LightOnDevice(self.device, arrays, self.documents.shift, self.n_groups, self.parts)
        self.set_priors(self.alpha, self.beta)
        self._host_is_old = False

    def _arrays_of_device(self):
        """What `LightOnDevice` takes."""
        lists, corpus = self.documents, (self.word_start, self.token_doc)
        frequency = np.diff(self.word_start)
        common = np.isin(np.arange(len(frequency)), self.common_words)
        arrays = {
            "places": np.empty((int(frequency[~common].sum()), 2), np.uint32),
            "block_start": np.empty(self.n_groups**2 + 1, np.int64),
            "common": self.common_words,
            "common_places": np.empty((int(frequency[common].sum()), 2), np.uint32),
            "doc_start": np.empty(len(self.lengths) + 1, np.int64),
            "coming_start": np.append(0, np.cumsum(np.where(common, frequency, 0))),
            "cell_start": np.append(0, np.cumsum(table_sizes(frequency, self.row_of_word))),
            "word_start": self.word_start,
            "token_doc": self.token_doc[: self.n_tokens],
            "topics": self.topics,
            "entries": lists.entries,
            "line_start": lists.line_start,
            "n_lines": lists.n_lines,
            "lengths": self.lengths.astype(np.int32),
            "row_of_word": self.row_of_word,
            "rows": self.rows,
            "totals": self.totals,
        }
        words = np.concatenate(self.group_words)
        first_of_group = np.append(0, np.cumsum([len(group) for group in self.group_words]))
        blocks = (self._group_of_doc, self.n_groups, arrays["places"], arrays["block_start"])
        lda_light.order_blocks(words, first_of_group, *corpus, *blocks)
        lda_light.order_common(self.common_words, *corpus, arrays["common_places"], arrays["doc_start"])
        return arrays

    def _check_room(self):
        needed = bytes_on_device(self.lengths, np.diff(self.word_start), self.n_topics, self.n_groups)
        free = self.device.free_memory() - _SPARE
        if needed > free:
            raise DataError(
                f"X and its topics take {needed / 2**30:,.1f} GB on a GPU, and {self.device.name} has "
                f"{max(free, 0) / 2**30:,.1f} GB to spare: fit fewer documents, leave out rare words, or set "
                "device='cpu'"
            )

    def _to_host(self):
        """Bring the topics and what they are counted in up to date on the host."""
        if self._host_is_old:
            self.topics[:] = self._on_device.get("topics")
            self.documents.entries[:] = self._on_device.get("entries")
            self.documents.n_lines[:] = self._on_device.get("n_lines")
            self.totals = self._on_device.get("totals")
            self._host_is_old = False

    def set_priors(self, alpha, beta):
        """See `CorpusState`."""
        super().set_priors(alpha, beta)
        if self._on_device is not None:
            self._on_device.set_alpha(alpha, self._aliases, self._limits)

    # Sampling -------------------------------------------------------------------------------------

    def update(self, state, task):
        """Move every token once."""
        beta, _, beta_sum = self.beta_of(task.round)
        self._host_is_old = True
        self._on_device.set_beta(beta, beta_sum)
        self._on_device.sweep(self.n_steps, self.seed, _SWEEP, task.round)
        self.device.synchronize()

    def aggregate(self, tasks, partials):
        """Take note that a sweep is done."""
        self.after_sweep(tasks[0].round + 1)
        return Outcome(self.totals, updates=self.n_tokens)

    # Reading and keeping --------------------------------------------------------------------------

    def measure(self, state):
        """See `CorpusState`."""
        self._to_host()
        return super().measure(state)

    def doc_topic_counts(self):
        """See `CorpusState`."""
        self._to_host()
        return super().doc_topic_counts()

    def word_topic_counts(self):
        """See `CorpusState`."""
        self._to_host()
        return super().word_topic_counts()

    def arrays(self):
        """See `CorpusState`."""
        self._to_host()
        return super().arrays()

    def restore(self, arrays):
        """See `CorpusState`."""
        super().restore(arrays)
        self._to_device()

    def begin_from(self, topics):
        """See `GibbsState`."""
        super().begin_from(topics)
        self._to_device()
