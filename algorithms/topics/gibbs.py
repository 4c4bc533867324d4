"""Collapsed Gibbs sampling as a model-parallel program over one corpus.

Documents are dealt into G groups and words into G groups of equal weight; a sweep runs G steps, and
in step p document group g meets word group (g + p) mod G, so no two threads share a document row or a
word row. Only the topic totals are shared: within a step every group goes on from the totals at the
step's beginning plus its own changes. G depends on the corpus alone, and a group's random stream on
the seed, the sweep and the group: the result is the same for any number of threads.

Memory, in bytes a token: topic 2 (4 above 65,535 topics) and document 4; word rows at most 8 (a row of K
int32 is kept by words of at least K / 2 tokens); and the documents' counts (`document_rows`). With a
background every word in `X` keeps a row, twice: 8 K bytes a word.
"""

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from ...errors import DataError, ModelFileError
from ...kernels import lda_gibbs as kernels
from ...kernels import topic_counts
from ...scheduler.program import Outcome, Program
from ...scheduler.rotation import RotationSchedule, balance
from ...scheduler.threads import run_tasks
from . import priors
from .document_rows import document_rows
from .evaluation import padded_vector

_SWEEP, _CHOICES, _ASSIGN = 1, 3, 4  # purposes of random streams; 2 is a fold-in
_FIRST_PRIOR_FIT = 20  # sweeps before priors are fitted for the first time
_FIRST_TOPICS = 3  # a document starts from this many: held-out perplexity falls faster than from all K
_LEAST_TOKENS, _MOST_GROUPS = 100_000, 16
_TOKENS_PER_RUN = 20  # of one word in one group, on average: its row is fetched and weighed for each


def _number_of_groups(n_tokens, n_words):
    if n_tokens < _LEAST_TOKENS:
        return 1
    return int(np.clip(n_tokens // (_TOKENS_PER_RUN * n_words), 2, _MOST_GROUPS))


class GibbsState(Program):
    """Assignments and counts of collapsed Gibbs sampling.

    A shard is a group of documents, a block a group of words, a round a sweep; after each step the
    changes of the topic totals are added up. All of it lies in this process: a shard's state is its
    number and the totals that it was last told.

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
    fits_priors : bool, default=False
        Fit alpha and a symmetric beta to the counts now and then.
    """

    barrier = "step"
    measure_every = 10  # sweeps between two values of the log-likelihood: about 2 % of the time
    unit = "token"

    def __init__(
        self,
        X,
        n_topics,
        alpha,
        beta,
        seed,
        *,
        exact=False,
        background=None,
        n_groups=None,
        fits_priors=False,
    ):
        self.n_topics, self.seed, self.fits_priors = n_topics, np.uint64(seed), fits_priors
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        self.n_tokens = int(lengths.sum())
        if n_groups is None:
            n_groups = 1 if exact else _number_of_groups(self.n_tokens, len(np.unique(X.indices)))
            exact = n_groups == 1
        self.exact = int(exact)
        self.schedule = RotationSchedule(n_groups)
        self.shards, self.n_blocks = range(n_groups), n_groups
        self._lay_out_documents(lengths, n_groups)
        self._lay_out_words(X, n_groups)
        self._make_rows(background)
        self.set_priors(alpha, beta)
        self._assign_first()

    # Layout -------------------------------------------------------------------------------------

    def _lay_out_documents(self, lengths, n_groups):
        """Number documents by group, and by length inside a group, so that neighbours cost the same."""
        group = balance(lengths, n_groups)
        self.order = np.lexsort((lengths, group))
        self.lengths = lengths[self.order]
        self.group_docs = np.searchsorted(group[self.order], np.arange(n_groups + 1))
        self.documents = document_rows(self.lengths, self.n_topics)

    def _lay_out_words(self, X, n_groups):
        """Lay tokens out word by word, and inside a word by document."""
        n_words = X.shape[1]
        kind = np.uint16 if self.n_topics <= np.iinfo(np.uint16).max else np.uint32
        self.token_doc = np.zeros(self.n_tokens + kernels.AHEAD, np.uint32)
        self.topics = np.zeros(self.n_tokens, kind)
        # bounds[g, w]: where the tokens of document group g begin among those of word w.
        self.bounds = np.empty((n_groups + 1, n_words), np.int64)
        kernels.lay_out(X.indptr, X.indices, X.data, self.order, self.group_docs, self.bounds, self.token_doc)
        self.word_start = np.append(self.bounds[0], self.n_tokens)
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
        held = 0 if background is None else int(background.data.max(initial=0))
        if int(frequency.max(initial=0)) + held > np.iinfo(np.int32).max:
            raise DataError(
                f"word {int(frequency.argmax())} of X has {frequency.max():,} tokens, on top of up to "
                f"{held:,} of a word and topic in the model: counts of a word go up to 2,147,483,647; leave "
                "so common a word out"
            )
        if background is not None:
            self.background = background[words].toarray().astype(np.int32)
            self.background_rows = self.row_of_word
            self.background_totals = np.asarray(background.sum(axis=0, dtype=np.int64)).ravel()

    def _assign_first(self):
        """Each token takes at random one of the few topics that its document starts from."""
        choices = np.empty((len(self.lengths), 4), np.float32)
        kernels.fill_uniform(choices.reshape(-1), 0, self.seed, _CHOICES, 0, 0)
        few = choices[:, :_FIRST_TOPICS]
        kernels.assign_first(self.token_doc, self.topics, self.n_topics, few, self.seed, _ASSIGN)
        self.documents.fill(self.token_doc, self.topics)
        self._count_words()

    def _count_words(self):
        """Fill word rows and totals from the tokens' topics."""
        self.rows[:] = 0
        self.rows[: len(self.background)] = self.background
        self.totals = self.background_totals.copy()
        kernels.count_words(self.word_start, self.topics, self.row_of_word, self.rows, self.totals)

    def set_priors(self, alpha, beta):
        """Take new priors: float64 vectors over topics and over words."""
        self.alpha, self.beta = alpha, beta
        self._alpha32 = padded_vector(alpha, self.documents.width)
        self._beta32 = beta.astype(np.float32)
        self._beta_sum = np.float32(beta.sum())

    # Sampling -----------------------------------------------------------------------------------

    def __getstate__(self):
        raise TypeError("the state of a Gibbs sampler lies in one process: it runs with engine='local' alone")

    def load(self, group):
        """Make what the shard of a document group has of its own."""
        return {"group": group, "totals": None}

    def publish(self):
        """Tell the topic totals."""
        return self.totals

    def sync(self, state, totals):
        """Take over the topic totals."""
        state["totals"] = totals

    def update(self, state, task):
        """Draw the tokens of a document group and a word group; return the totals with their changes."""
        totals = state["totals"].copy()
        self._block(task.shard, task.blocks, totals, task.round)
        if task.step == self.n_blocks - 1:
            self.documents.tidy(*self.group_docs[task.shard : task.shard + 2])
        return totals

    def aggregate(self, tasks, partials):
        """Add up what the groups did to the totals."""
        self.totals = self.totals + sum(totals - self.totals for totals in partials)
        round_, step = tasks[0].round, tasks[0].step
        if step < self.n_blocks - 1:
            return Outcome(self.totals)
        swept = round_ + 1
        if self.fits_priors and swept % self.measure_every == 0 and swept >= _FIRST_PRIOR_FIT:
            self._fit_priors()
        return Outcome(self.totals, updates=self.n_tokens)

    def _fit_priors(self):
        alpha = priors.fit_doc_topic_prior(self.doc_topic_counts(), self.alpha)
        beta = priors.fit_topic_word_prior(self.word_topic_counts(), self.beta[0])
        self.set_priors(alpha, np.full(len(self.beta), beta))

    def _block(self, g, h, totals, round_):
        """Draw the tokens of document group g and word group h."""
        part = (self.bounds[g], self.bounds[g + 1])
        place = (self.group_words[h], *part, self.word_start, self.token_doc, self.topics)
        words = (self.row_of_word, self.rows, totals, self._alpha32, self._beta32, self._beta_sum)
        mode = (self.exact, self.seed, _SWEEP, round_, g * len(self.group_words) + h)
        self.documents.sweep(place, words, mode)

    # Reading ------------------------------------------------------------------------------------

    def measure(self, state):
        """Compute what a group's documents and an equal part of the words give to `objective`."""
        g, n_groups = state["group"], self.n_blocks
        inner = np.searchsorted(self.word_start, np.linspace(0, self.n_tokens, n_groups + 1)[1:-1])
        cuts = [0, *inner.tolist(), len(self.word_start) - 1]
        return self._document_part(*self.group_docs[g : g + 2]), self._word_part(cuts[g], cuts[g + 1])

    def objective(self, parts):
        """Compute log p(w, z) of `X` and its assignments, per token.

        With a background, it is log p(w, z | background).
        """
        total_alpha, total_beta = self.alpha.sum(), self.beta.sum()
        documents, words = zip(*parts, strict=True)
        total = sum(documents + words)
        total += (gammaln(total_alpha) - gammaln(self.lengths + total_alpha)).sum()
        total += (gammaln(self.background_totals + total_beta) - gammaln(self.totals + total_beta)).sum()
        return float(total / self.n_tokens)

    def joint_log_likelihood(self, n_jobs=1):
        """Compute `objective` now."""
        groups = [(self.measure, ({"group": g},)) for g in range(self.n_blocks)]
        return self.objective(run_tasks(groups, n_jobs))

    def _document_part(self, first, last):
        return self.documents.log_likelihood(first, last, self.alpha)

    def _word_part(self, first, last):
        place = (first, last, self.word_start, self.topics, self.background, self.background_rows)
        return topic_counts.words(*place, self.n_topics, self.beta)

    def doc_topic_counts(self):
        """Topic counts of each document, CSR, documents as in `X`."""
        return self.documents.csr()[np.argsort(self.order)]

    def word_topic_counts(self):
        """Topic counts of each word in `X` (the background left out), CSR."""
        indptr, indices, data = topic_counts.word_topic_csr(self.word_start, self.topics, self.n_topics)
        return sparse.csr_array((data, indices, indptr), shape=(len(self.word_start) - 1, self.n_topics))

    # Keeping ------------------------------------------------------------------------------------

    def arrays(self):
        """What a checkpoint must hold: everything else follows from `X` and the parameters."""
        own = {"seed": self.seed, "topics": self.topics, "alpha": self.alpha, "beta": self.beta}
        return own | self.documents.arrays()

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters.

        They come from a file, and the kernels trust them: every index is checked first.
        """
        topics, alpha, beta = arrays["topics"], arrays["alpha"], arrays["beta"]
        seed = arrays["seed"]
        fits = seed.shape == () and seed.dtype == np.uint64
        fits = fits and topics.shape == self.topics.shape and topics.dtype == self.topics.dtype
        fits = fits and topics.max(initial=0) < self.n_topics
        fits = fits and alpha.shape == self.alpha.shape and beta.shape == self.beta.shape
        if not fits:
            raise ModelFileError(
                "the checkpoint's arrays do not fit its data; remove the folder to start anew"
            )
        self.seed = np.uint64(seed)
        self.topics[:] = topics
        self.set_priors(alpha, beta)
        self.documents.restore(arrays, self.token_doc, self.topics)
        self._count_words()
