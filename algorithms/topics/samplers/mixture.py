"""Sweeps over units of a few tokens that have one topic each: documents (GSDMM), or pairs of words (biterms).

Shards are groups of documents. With one of them every sweep is an exact Gibbs sweep. With several, each draws
its units given its own live counts and those of the others after the last sweep, and the changes are summed:
the result does not depend on where and in which order shards are worked on.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ....errors import DataError, shortened
from ....kernels.lda import host
from ....kernels.lda.models.mixture import count_documents, fill_pairs, sweep_documents
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.static import StaticSchedule
from ..._streams import Purpose
from ...inputs.indices import index_dtype, narrow_csr
from ..blocks.groups import MOST_OF_A_WORD
from ..blocks.restoring import taken, unfit
from ..blocks.word_blocks import add_changes, changes_of
from ..corpus.shard_input import read_again

_MOST_PAIRS = 2**31  # of a shard: some 32 GB
_COUNTS = ("units", "words", "totals")  # of topics: units, tokens of each word, tokens


@dataclass(frozen=True)
class Units:
    """Units of shards or new documents: CSR parts of units x words, and how many each document has."""

    indptr: np.ndarray
    words: np.ndarray
    counts: np.ndarray
    of_documents: np.ndarray


def documents_as_units(X):
    """Each document is a unit."""
    return Units(X.indptr, X.indices, X.data, np.ones(X.shape[0], np.int64))


def numbers_of_pairs(X):
    """How many pairs of tokens each document has, of float64, which does not overflow."""
    lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    return lengths * (lengths - 1) / 2


def check_pairs(X):
    """Refuse documents with too many pairs of tokens.

    A token is in L - 1 pairs of its document of L tokens, and counts of words have 31 bits.
    """
    n_pairs = numbers_of_pairs(X).sum()
    check_number_of_pairs(n_pairs, int(X.sum(axis=1, dtype=np.int64).max(initial=0)))
    if 2 * n_pairs > MOST_OF_A_WORD:
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        _check_tokens(X.T @ (lengths - 1.0))


def check_number_of_pairs(n_pairs, longest):
    """Refuse so many pairs of a shard or matrix, whose longest document has so many tokens."""
    if n_pairs > _MOST_PAIRS:
        raise DataError(
            f"X has {n_pairs:.3g} pairs of words, and the longest document {shortened(longest)} words: "
            "BitermTopicModel is for short texts; fit LatentDirichletAllocation, or cut the documents"
        )


def _check_tokens(tokens):
    if tokens.max(initial=0) > MOST_OF_A_WORD:
        raise DataError(
            f"word {tokens.argmax()} of X is in pairs {tokens.max():.3g} times, and BitermTopicModel counts "
            f"up to {MOST_OF_A_WORD:,}: leave so common a word out, or cut long documents"
        )


def pairs_of_words(X, whole=False):
    """Each pair of tokens of a document is a unit; with `whole`, a document of fewer than two is one itself.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from stradask.algorithms.topics.samplers.mixture import pairs_of_words
    >>> units = pairs_of_words(csr_array(np.array([[2, 0, 1], [0, 1, 0]])))
    >>> units.indptr, units.words, units.counts, units.of_documents
    (array([0, 1, 3, 5], dtype=int32), array([0, 0, 2, 0, 2], dtype=int32), array([2, 1, 1, 1, 1], dtype=uint8), array([3, 0]))
    """  # noqa: E501 -- what Python prints
    check_pairs(X)
    lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
    own = lengths * (lengths - 1) // 2
    counts = X.data.astype(np.int64)
    n_entries = int(2 * own.sum() - (counts * (counts - 1) // 2).sum())
    if whole:
        n_entries += int((lengths == 1).sum())
        own = np.maximum(own, 1)
    kind = index_dtype(n_entries, X.shape[1])
    units = Units(
        np.empty(own.sum() + 1, kind), np.empty(n_entries, np.int32), np.empty(n_entries, np.uint8), own
    )
    fill_pairs(X.indptr, X.indices, X.data, whole, units.indptr, units.words, units.counts)
    return units


@dataclass(frozen=True)
class Mixture:
    """A fitted mixture: counts, and of each shard the topics of its units or what follows from them."""

    units: np.ndarray
    words: sparse.csr_array
    totals: np.ndarray
    documents: list | None
    objective: float


class MixtureProgram(Program):
    """Sweeps over the documents of a corpus; each has one topic.

    Parameters
    ----------
    corpus : ShardedCorpus
    alpha, beta : ndarrays of float64
        Priors of topics and of words.
    seed : int
    reads : bool
        Whether the topics of documents are collected.
    """

    saved, unit, measure_every, joins = ("topics",), "text", 10, True
    schedule = StaticSchedule(1)
    has_long_units = True

    def __init__(self, corpus, alpha, beta, seed, reads=True):
        self.shards, self.alpha, self.beta, self.seed = corpus.shards, alpha, beta, np.uint64(seed)
        self.n_words, self.rows, self.reads = corpus.summary.n_words, corpus.rows, reads
        self.alone = len(corpus.shards) == 1
        self.counts = None if self.alone else self._no_counts()
        self._drawn = 0

    def __getstate__(self):
        """Arrays of all documents stay with the coordinator, and counts are in messages."""
        return vars(self) | {"rows": None, "counts": None}

    def _no_counts(self):
        n_topics = len(self.alpha)
        words = np.zeros(self.n_words * n_topics, np.int32)
        return {"units": np.zeros(n_topics, np.int64), "words": words, "totals": np.zeros(n_topics, np.int64)}

    # Where a shard lies -------------------------------------------------------------------------------

    def units_of(self, X):
        """The units of documents."""
        return documents_as_units(X)

    def load(self, data):
        """Begin with topics at random."""
        units = self.units_of(read_again(data, self.n_words))
        n_units, n_topics = len(units.indptr) - 1, len(self.alpha)
        uniform = host.uniforms(
            np.arange(n_units), self.seed, Purpose.FIRST_CLUSTERS.value, 0, data["number"]
        )[0]
        topics = np.minimum((uniform * n_topics).astype(np.int64), n_topics - 1).astype(np.uint16)
        return {"units": units, "topics": topics, "number": data["number"], "counts": None}

    def publish(self):
        """Send the counts of all shards."""
        return {"counts": self.counts}

    def sync(self, state, message):
        """Take the counts; a shard alone counts by itself. Its topics may be those of a checkpoint."""
        counts = message.get("counts")
        if self.alone and "counts" in message:
            state["counts"] = self._counted(state)
        elif counts is not None:
            state["counts"] = counts

    def _counted(self, state):
        topics, units = state["topics"], state["units"]
        if topics.max(initial=0) >= len(self.alpha):
            raise unfit("topics")
        counts = self._no_counts()
        place = (units.indptr, units.words, units.counts, topics)
        count_documents(*place, *self._arrays_of(counts))
        return counts

    def _arrays_of(self, counts):
        return counts["units"], counts["words"].reshape(self.n_words, -1), counts["totals"]

    def update(self, state, task):
        """Sweep. The first one of several shards only counts the topics drawn at random."""
        units, topics = state["units"], state["topics"]
        before, counts = state["counts"], state["counts"]
        if not self.alone:
            counts = {name: array.copy() for name, array in before.items()} if task.round else None
        if counts is None:
            counts = self._counted(state)
        else:
            priors = (self.alpha, self.beta, self.beta.sum())
            stream = (self.seed, Purpose.CLUSTER_SWEEP.value, task.round, state["number"])
            place = (units.indptr, units.words, units.counts, topics)
            logs = np.empty(len(self.alpha)) if self.has_long_units else None
            sweep_documents(*place, *self._arrays_of(counts), *priors, *stream, logs)
        drawn = {"drawn": len(topics)}
        return drawn if self.alone else drawn | {n: changes_of(before[n], counts[n]) for n in _COUNTS}

    def join(self, partials):
        """Add up what shards drew and changed: partial results, dicts that are emptied, or joined ones."""
        found = [dict(partial) if type(partial) is dict else partial[0] for partial in partials]
        for partial in partials:
            if type(partial) is dict:
                partial.clear()
        joined = {"drawn": sum(part["drawn"] for part in found)}
        if not self.alone:
            sums = self._no_counts()
            for part in found:
                for name in _COUNTS:
                    add_changes(sums[name], part[name])
            joined |= {name: changes_of(0, array) for name, array in sums.items()}
        return (joined,)

    def _changed(self, counts, joined):
        return {name: add_changes(counts[name].copy(), joined[0][name]) for name in _COUNTS}

    def message_of(self, state, joined):
        """Make the counts, which all shards of a worker share."""
        return {} if self.alone else {"counts": self._changed(state["counts"], joined)}

    def measure(self, state):
        """log p(w, z) per token of a shard that is alone."""
        return self._joint(state["counts"]) if self.alone else None

    def _joint(self, counts):
        """log p(w, z) per token, pi and phi integrated out."""
        units, words, totals = self._arrays_of(counts)
        alpha, beta = self.alpha, self.beta
        total = (gammaln(units + alpha) - gammaln(alpha)).sum()
        total += gammaln(alpha.sum()) - gammaln(units.sum() + alpha.sum())
        row, topic = np.nonzero(words)
        total += (gammaln(words[row, topic] + beta[row]) - gammaln(beta[row])).sum()
        total += (gammaln(beta.sum()) - gammaln(totals + beta.sum())).sum()
        return float(total / max(totals.sum(), 1))

    def topics_of(self, state):
        """Topics of the documents; -1 without tokens."""
        return np.where(np.diff(state["units"].indptr) > 0, state["topics"].astype(np.int32), -1)

    def held(self, state):
        """Counts of a shard that is alone."""
        return state["counts"]

    # At the coordinator -------------------------------------------------------------------------------

    def hear(self, joined):
        """Take the changes of a round."""
        self._drawn = joined[0]["drawn"]
        if not self.alone:
            self.counts = self._changed(self.counts, joined)

    def aggregate(self, tasks, partials):
        """Count the units drawn."""
        return Outcome(updates=self._drawn)

    def objective(self, parts):
        """Of the only shard, or of the counts of all."""
        return parts[0] if self.alone else self._joint(self.counts)

    def collect(self, ask):
        """Gather the model."""
        counts, documents = self.counts, None
        if self.alone:
            counts = ask(lambda session, messages: session.measure(messages, "held"))[0]
        if self.reads:
            documents = ask(lambda session, messages: session.measure(messages, "topics_of"))
        units, words, totals = self._arrays_of(counts)
        held = sparse.csr_array(words)
        return Mixture(units.copy(), held, totals.copy(), documents, self._joint(counts))

    def arrays(self):
        """Counts of several shards."""
        return {"seed": np.asarray(self.seed)} | (self.counts or {})

    def restore(self, arrays):
        """Go on from a checkpoint of the same corpus and parameters."""
        (seed,) = taken(arrays, "seed")
        if seed.shape != () or seed.dtype != np.uint64:
            raise unfit()
        self.seed = np.uint64(seed)
        if self.alone:
            return
        found, own = dict(zip(_COUNTS, taken(arrays, *_COUNTS), strict=True)), self._no_counts()
        alike = all(found[n].shape == a.shape and found[n].dtype == a.dtype for n, a in own.items())
        if not (alike and all((array >= 0).all() for array in found.values())):
            raise unfit()
        self.counts = {name: array.copy() for name, array in found.items()}


class BitermProgram(MixtureProgram):
    """Sweeps over the pairs of words of documents; each pair has one topic."""

    unit, has_long_units = "biterm", False

    def units_of(self, X):
        """The pairs of words."""
        return pairs_of_words(X)

    def hear(self, joined):
        """Take the changes of a round. A count above 31 bits has wrapped: a topic has other tokens then."""
        super().hear(joined)
        if self.counts is not None and self.counts["totals"].max() > MOST_OF_A_WORD:
            _, words, totals = self._arrays_of(self.counts)
            if (words.sum(axis=0, dtype=np.int64) != totals).any():
                raise DataError(
                    f"a word of X is in more than {MOST_OF_A_WORD:,} pairs of a topic, up to which "
                    "BitermTopicModel counts: leave so common a word out, or cut long documents"
                )

    def topics_of(self, state):
        """How many pairs of each topic documents have, CSR."""
        of_documents, topics = state["units"].of_documents, state["topics"]
        rows = np.repeat(np.arange(len(of_documents)), of_documents)
        shape = (len(of_documents), len(self.alpha))
        found = sparse.coo_array((np.ones(len(topics), np.int32), (rows, topics)), shape=shape).tocsr()
        return narrow_csr(found.data, found.indices, found.indptr, shape[1])
