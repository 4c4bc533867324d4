"""The state of a collapsed Gibbs sampler over one corpus, and its sweeps.

Documents are dealt into G groups and words into G groups of equal weight; a sweep runs G steps, and
in step p document group g meets word group (g + p) mod G, so no two threads share a document row or a
word row. Only the topic totals are shared: within a step every group goes on from the totals at the
step's beginning plus its own changes. G depends on the corpus alone, and a group's random stream on
the seed, the sweep and the group: the result is the same for any number of threads.

Memory, in bytes a token: topic 2 (4 above 65,535 topics) and document 4; word rows at most 8 (a row of K
int32 is kept by words of at least K / 2 tokens); document rows either 2 K a document (dense) or at
most 4 a token and at least 64 a document (lists).
"""

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ...errors import DataError, ModelFileError
from ...kernels import lda_gibbs as kernels
from ...kernels import topic_counts
from ...scheduler.rotation import RotationSchedule, balance
from ...scheduler.threads import run_tasks
from .evaluation import padded_vector

_SWEEP, _CHOICES, _ASSIGN = 1, 3, 4  # purposes of random streams; 2 is a fold-in
_FIRST_TOPICS = 3  # a document starts from this many: held-out perplexity falls faster than from all K
_DENSE_TOPICS = 256  # up to here a dense document row is drawn from faster than a list
_LEAST_TOKENS, _MOST_GROUPS = 100_000, 16
_TOKENS_PER_RUN = 20  # of one word in one group, on average: its row is fetched and weighed for each


def _number_of_groups(n_tokens, n_words):
    if n_tokens < _LEAST_TOKENS:
        return 1
    return int(np.clip(n_tokens // (_TOKENS_PER_RUN * n_words), 2, _MOST_GROUPS))


class GibbsState:
    """Assignments and counts of collapsed Gibbs sampling.

    Parameters
    ----------
    X : CSR matrix of counts
        As `check_counts` gives it.
    n_topics : int
    alpha : float64 array of shape (n_topics,)
    beta : float64 array of shape (n_words,)
    seed : int
        Key of the random streams, 64 bits.
    exact : bool
        One group, topic totals live: every sweep is an exact Gibbs sweep. A corpus so small that it is one
        group anyway is swept in this way too.
    background : CSR matrix of shape (n_words, n_topics), optional
        Word-topic counts of tokens that are not in `X` and stay where they are.
    n_groups : int, optional
        G, if it is not to follow from the corpus.
    """

    def __init__(self, X, n_topics, alpha, beta, seed, *, exact=False, background=None, n_groups=None):
        self.n_topics, self.seed = n_topics, np.uint64(seed)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        self.n_tokens = int(lengths.sum())
        if n_groups is None:
            n_groups = 1 if exact else _number_of_groups(self.n_tokens, len(np.unique(X.indices)))
            exact = n_groups == 1
        self.exact = int(exact)
        self.schedule = RotationSchedule(n_groups)
        self._lay_out_documents(X, lengths, n_groups)
        self._lay_out_words(X, n_groups)
        self._make_rows(background)
        self.set_priors(alpha, beta)
        self._assign_first()

    # Layout -------------------------------------------------------------------------------------

    def _lay_out_documents(self, X, lengths, n_groups):
        """Number documents by group, and by length inside a group, so that neighbours cost the same."""
        group = balance(lengths, n_groups)
        self.order = np.lexsort((lengths, group))
        self.lengths = lengths[self.order]
        self.group_docs = np.searchsorted(group[self.order], np.arange(n_groups + 1))
        longest = int(lengths.max(initial=0))
        self.dense = self.n_topics <= _DENSE_TOPICS
        self.doc_counts = self.entries = None
        if self.dense:
            kind = np.uint16 if longest <= np.iinfo(np.uint16).max else np.int32
            width = (self.n_topics + 31) // 32 * 32  # whole cache lines
            self.doc_counts = np.zeros((len(lengths), width), kind)
        else:
            self._lay_out_lists(longest)

    def _lay_out_lists(self, longest):
        self.shift = max(longest.bit_length(), 1)
        if self.n_topics > 2 ** (32 - self.shift):
            raise DataError(
                f"X has a document of {longest:,} tokens, which with n_components={self.n_topics} does not fit "
                f"the 32 bits of a document's topic and count; split documents of more than "
                f"{2 ** (32 - (self.n_topics - 1).bit_length()) - 1:,} tokens, or take at most "
                f"{2 ** (32 - self.shift):,} topics"
            )
        lines = (np.minimum(self.lengths, self.n_topics) + kernels.LANES - 1) // kernels.LANES
        self.line_start = np.concatenate([[0], np.cumsum(lines)])
        self.n_lines = np.ones(len(lines), np.int32)
        # The last lines belong to no document: prefetches may run past the end.
        self.entries = np.zeros((self.line_start[-1] + 4) * kernels.LANES, np.uint32)

    def _lay_out_words(self, X, n_groups):
        """Lay tokens out word by word, and inside a word by document."""
        by_word = X[self.order].tocsc()
        by_word.sort_indices()
        n_words = X.shape[1]
        kind = np.uint16 if self.n_topics <= np.iinfo(np.uint16).max else np.uint32
        self.token_doc = np.zeros(self.n_tokens + kernels.AHEAD, np.uint32)
        self.token_doc[: self.n_tokens] = np.repeat(by_word.indices, by_word.data)
        self.topics = np.zeros(self.n_tokens, kind)
        ends = np.concatenate([[0], np.cumsum(by_word.data, dtype=np.int64)])
        self.word_start = ends[by_word.indptr]
        # bounds[g, w]: where the tokens of document group g begin among those of word w.
        word = np.repeat(np.arange(n_words), np.diff(by_word.indptr))
        group = np.searchsorted(self.group_docs, by_word.indices, side="right") - 1
        tokens = np.bincount(group * n_words + word, weights=by_word.data, minlength=n_groups * n_words)
        self.bounds = np.vstack([self.word_start[:-1], tokens.reshape(n_groups, n_words)]).astype(np.int64)
        np.cumsum(self.bounds, axis=0, out=self.bounds)
        frequency = np.diff(self.word_start)
        words = np.flatnonzero(frequency).astype(np.int32)
        words = words[np.argsort(-frequency[words], kind="stable")]
        group = balance(frequency[words], n_groups)
        self.group_words = [words[group == g] for g in range(n_groups)]

    def _make_rows(self, background):
        """Rows of counts for frequent words; for every word if there is a background."""
        frequency = np.diff(self.word_start)
        keeps = frequency > 0 if background is not None else frequency >= max(self.n_topics // 2, 1)
        words = np.flatnonzero(keeps)
        self.row_of_word = np.full(len(frequency), -1, np.int32)
        self.row_of_word[words] = np.arange(len(words))
        self.background = np.zeros((0, self.n_topics), np.int32)
        self.background_totals = np.zeros(self.n_topics, np.int64)
        self.background_rows = np.full(len(frequency), -1, np.int32)
        self.rows = np.zeros((len(words), self.n_topics), np.int32)
        if background is not None:
            self.background = background[words].toarray().astype(np.int32)
            self.background_rows = self.row_of_word
            self.background_totals = np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()

    def _assign_first(self):
        """Each token takes at random one of the few topics that its document starts from."""
        choices = np.empty((len(self.lengths), 4), np.float32)
        kernels.fill_uniform(choices.reshape(-1), 0, self.seed, _CHOICES, 0, 0)
        kernels.assign_first(
            self.token_doc, self.topics, self.n_topics, choices[:, :_FIRST_TOPICS], self.seed, _ASSIGN
        )
        if self.dense:
            kernels.count_documents(self.token_doc, self.topics, self.doc_counts)
        else:
            kernels.list_documents(
                self.token_doc, self.topics, self.entries, self.line_start, self.n_lines, self.shift
            )
        self._count_words()

    def _count_words(self):
        """Fill word rows and totals from the tokens' topics."""
        counts = self.word_topic_counts()
        self.rows[:] = 0
        self.rows[: len(self.background)] = self.background
        self.rows += counts[np.flatnonzero(self.row_of_word >= 0)].toarray()
        self.totals = self.background_totals + np.bincount(self.topics, minlength=self.n_topics)

    def set_priors(self, alpha, beta):
        """Take new priors: float64 vectors over topics and over words."""
        self.alpha, self.beta = alpha, beta
        width = self.doc_counts.shape[1] if self.dense else kernels.padded(self.n_topics)
        self._alpha32 = padded_vector(alpha, width)
        self._beta32 = beta.astype(np.float32)
        self._beta_sum = np.float32(beta.sum())

    # Sampling -----------------------------------------------------------------------------------

    def sweep(self, round_, n_jobs=1):
        """Draw every token once."""
        for step in self.schedule.round(round_):
            local = [self.totals.copy() for _ in step]
            run_tasks(
                [(self._block, (g, h, totals, round_)) for (g, h), totals in zip(step, local, strict=True)],
                n_jobs,
            )
            self.totals = self.totals + sum(totals - self.totals for totals in local)
        if not self.dense:
            bounds = zip(self.group_docs[:-1], self.group_docs[1:], strict=True)
            run_tasks([(self._compact, pair) for pair in bounds], n_jobs)

    def _block(self, g, h, totals, round_):
        place = (self.group_words[h], self.bounds[g], self.bounds[g + 1], self.word_start, self.token_doc, self.topics)
        words = (self.row_of_word, self.rows, totals, self._alpha32, self._beta32, self._beta_sum)
        mode = (self.exact, self.seed, _SWEEP, round_, g * len(self.group_words) + h)
        if self.dense:
            kernels.sweep_dense(*place, self.doc_counts, *words, *mode)
        else:
            kernels.sweep_sparse(*place, self.entries, self.line_start, self.n_lines, self.shift, *words, *mode)

    def _compact(self, first, last):
        kernels.compact_lists(first, last, self.entries, self.line_start, self.n_lines, self.shift)

    # Reading ------------------------------------------------------------------------------------

    def joint_log_likelihood(self, n_jobs=1):
        """Compute log p(w, z) of `X` and its assignments, per token.

        With a background, it is log p(w, z | background).
        """
        total_alpha, total_beta = self.alpha.sum(), self.beta.sum()
        tasks = [(self._document_part, pair) for pair in zip(self.group_docs[:-1], self.group_docs[1:], strict=True)]
        cuts = np.searchsorted(self.word_start, np.linspace(0, self.n_tokens, len(tasks) + 1)[1:-1])
        cuts = [0, *cuts.tolist(), len(self.word_start) - 1]
        tasks += [(self._word_part, pair) for pair in zip(cuts[:-1], cuts[1:], strict=True)]
        total = sum(run_tasks(tasks, n_jobs))
        total += (gammaln(total_alpha) - gammaln(self.lengths + total_alpha)).sum()
        total += (gammaln(self.background_totals + total_beta) - gammaln(self.totals + total_beta)).sum()
        return float(total / self.n_tokens)

    def _document_part(self, first, last):
        if self.dense:
            return topic_counts.documents_dense(first, last, self.doc_counts, self.alpha)
        return topic_counts.documents_sparse(
            first, last, self.entries, self.line_start, self.n_lines, self.shift, self.alpha
        )

    def _word_part(self, first, last):
        place = (first, last, self.word_start, self.topics, self.background, self.background_rows)
        return topic_counts.words(*place, self.n_topics, self.beta)

    def doc_topic_counts(self):
        """Topic counts of each document, CSR, documents as in `X`."""
        return self._counts_in_order()[np.argsort(self.order)]

    def _counts_in_order(self):
        """The same, documents as they are numbered here."""
        if self.dense:
            indptr, indices, data = topic_counts.doc_topic_csr_dense(self.doc_counts, self.n_topics)
        else:
            indptr, indices, data = topic_counts.doc_topic_csr_sparse(
                self.entries, self.line_start, self.n_lines, self.shift
            )
        counts = sparse.csr_array((data, indices, indptr), shape=(len(self.lengths), self.n_topics))
        counts.sort_indices()
        return counts

    def word_topic_counts(self):
        """Topic counts of each word in `X` (the background left out), CSR."""
        indptr, indices, data = topic_counts.word_topic_csr(self.word_start, self.topics, self.n_topics)
        return sparse.csr_array((data, indices, indptr), shape=(len(self.word_start) - 1, self.n_topics))

    # Keeping ------------------------------------------------------------------------------------

    def arrays(self):
        """What a checkpoint must hold: everything else follows from `X` and the parameters."""
        kept = {"topics": self.topics, "alpha": self.alpha, "beta": self.beta}
        if not self.dense:  # the order inside a list decides which entry a uniform picks
            kept |= {"entries": self.entries, "n_lines": self.n_lines}
        return kept

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters.

        They come from a file, and the kernels trust them: every index is checked first.
        """
        topics = arrays["topics"]
        if topics.shape != self.topics.shape or topics.max(initial=0) >= self.n_topics:
            raise ModelFileError("the checkpoint's topics do not fit its data; remove the folder to start anew")
        self.topics[:] = topics
        self.set_priors(arrays["alpha"], arrays["beta"])
        if self.dense:
            kernels.count_documents(self.token_doc, self.topics, self.doc_counts)
        else:
            self._restore_lists(arrays["entries"], arrays["n_lines"])
        self._count_words()

    def _restore_lists(self, entries, n_lines):
        fits = entries.shape == self.entries.shape and n_lines.shape == self.n_lines.shape
        fits = fits and (n_lines >= 1).all() and (n_lines <= np.maximum(np.diff(self.line_start), 1)).all()
        fits = fits and (entries >> self.shift).max(initial=0) < self.n_topics
        if fits:
            self.entries[:], self.n_lines[:] = entries, n_lines
            tokens = sparse.coo_array(
                (np.ones(self.n_tokens, np.int32), (self.token_doc[: self.n_tokens], self.topics)),
                shape=(len(self.lengths), self.n_topics),
            )
            fits = (tokens.tocsr() != self._counts_in_order()).nnz == 0
        if not fits:
            raise ModelFileError("the checkpoint's lists do not fit its topics; remove the folder to start anew")
