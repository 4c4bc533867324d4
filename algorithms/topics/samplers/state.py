"""What the samplers of a topic model share: a corpus laid out word by word, and what is read off its topics.

Documents are dealt into G groups of equal weight. G depends on the corpus alone, and every random stream
on the seed, the sweep and the group (or the word, or the document): the result is the same for any number
of threads.
"""

import warnings
from typing import Any

import numpy as np
from scipy.special import gammaln

from ....errors import DataError, ModelFileError, shortened
from ....kernels.lda.host import uniforms
from ....scheduler.program import Program
from ....scheduler.schedules.rotation import balance
from ....scheduler.threads import run_tasks
from ...inputs.indices import narrow_csr
from .. import priors
from .annealing import annealed_prior, first_beta
from .storage import Storage

PURPOSES = _CHOICES, _ASSIGN = (
    3,
    4,
)  # of random streams; sweeps have 1 and 7 to 10, inference 2, 5, 6
FIRST_PRIOR_FIT = 20  # sweeps before priors are fitted for the first time
FIRST_TOPICS = 3  # a document starts from this many: held-out perplexity falls faster than from all K...
MOST_OF_A_WORD = 2**31 - 32  # tokens: counts have 31 bits, and a warp of a GPU steps over the end by up to 31
LONG_DOCUMENT = 200  # ...except for documents of so many tokens, if their sweeps are annealed
_LEAST_TOKENS, _FEW_GROUPS, _MOST_GROUPS = 100_000, 16, 64  # above few: only if totals are cheap to copy
_TOKENS_PER_RUN = 20  # of one word in one group, on average: its row is fetched and weighed for each
_MANY_TOPICS, _TOPICS_PER_TOKEN = 2**16, 10  # from so many on, blocks take at most so many a token of theirs


def number_of_groups(n_tokens, n_words, n_topics):
    """G for a corpus of so many tokens of so many words, and a model of so many topics."""
    if n_tokens < _LEAST_TOKENS:
        return 1
    # Each of G² blocks copies the totals of all topics.
    cheap = int(np.sqrt(_TOPICS_PER_TOKEN * n_tokens / n_topics))
    few = max(2, min(_FEW_GROUPS, cheap)) if n_topics >= _MANY_TOPICS else _FEW_GROUPS
    most = max(few, min(_MOST_GROUPS, cheap))
    return int(np.clip(n_tokens // (_TOKENS_PER_RUN * n_words), 2, most))


def pays_threads(n_tokens):
    """Whether a corpus has tokens enough for threads; a smaller one is swept before they would pay."""
    return n_tokens >= _LEAST_TOKENS


def warn_of_idle_threads(n_groups, n_tokens, n_jobs, whose="n_jobs gives", more=None):
    """Warn where there are more threads than groups, and the corpus is not small.

    Parameters
    ----------
    n_groups, n_tokens, n_jobs : int
    whose : str
        Where the threads come from.
    more : str, optional
        What makes more groups; by default the parameter `n_groups`.
    """
    if n_jobs > n_groups and pays_threads(n_tokens):
        fewer = f", or n_jobs={n_groups}" if whose.startswith("n_jobs") else ""
        more = more or f"set n_groups={n_jobs}"
        warnings.warn(
            f"{whose} {n_jobs} threads, but the corpus has {n_groups} groups of documents, so at most "
            f"{n_groups} threads work at a time: {more} to use all, which costs time a token "
            f"and gives another model{fewer}",
            UserWarning,
            stacklevel=5,
        )


def warn_of_fewer_groups(wanted, n_groups, why):
    """Warn where `n_groups` was given and the fit has fewer groups, or others."""
    if wanted not in (None, n_groups):
        warnings.warn(
            f"n_groups={wanted}, but the fit has {n_groups} groups: {why}", UserWarning, stacklevel=5
        )


def number_of_rows(frequency, n_topics):
    """Words that keep a row of counts: of at least K / 2 tokens, and 4 bytes a token in all."""
    frequent = int(np.count_nonzero(frequency >= max(n_topics // 2, 1)))
    return min(frequent, -(-int(frequency.sum()) // n_topics))


def deal_words(frequency, n_groups):
    """Deal the words that occur into groups that rotate.

    The groups are of equal weight, unless a word is heavier than that. It has a group of its own then, and if
    that were the only heavy one, whoever meets it in a step would be late. So groups as heavy as the word,
    filled up with other words, stand m apart, lighter ones between them: m is the least number that divides
    the number of groups and leaves that much to each. Any m neighbours, or a multiple, weigh as much as any
    others, and the shards of one worker meet neighbours.

    Parameters
    ----------
    frequency : int64 array of shape (n_words,)
    n_groups : int

    Returns
    -------
    words : int64 array
        From the most frequent one down.
    group : int32 array
        Of each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.topics.samplers.state import deal_words
    >>> frequency = np.array([1, 30, 10, 10, 10, 20, 19])
    >>> words, group = deal_words(frequency, 4)
    >>> np.bincount(group, weights=frequency[words])
    array([30., 20., 30., 20.])
    """
    words = np.flatnonzero(frequency)
    words = words[np.argsort(-frequency[words], kind="stable")]
    total, heaviest = frequency.sum().item(), frequency.max(initial=0).item()
    shares = None
    if heaviest * n_groups > total:
        enough = heaviest * n_groups / total
        apart = next((m for m in range(2, n_groups) if n_groups % m == 0 and m >= enough), n_groups)
        n_heavy = n_groups // apart
        light = (total - n_heavy * heaviest) / max(n_groups - n_heavy, 1)
        shares = np.where(np.arange(n_groups) % apart == 0, heaviest, light)
    return words, balance(frequency[words], n_groups, shares)


def check_frequency(frequency, held=0):
    """Refuse words of more tokens than `MOST_OF_A_WORD`, `held` of them in a model already."""
    if int(frequency.max(initial=0)) + held > MOST_OF_A_WORD:
        besides = f", on top of up to {held:,} of a word and topic in the model" if held else ""
        raise DataError(
            f"word {int(frequency.argmax())} of X has {frequency.max():,} tokens{besides}: counts of a word "
            f"go up to {MOST_OF_A_WORD:,}; leave so common a word out"
        )


class CorpusState(Program):
    """Topics of the tokens of one corpus.

    A shard is a group of documents, a round a sweep; after each step the topic totals are renewed. All of it
    lies in this process: a shard's state is its number and the totals that it was last told.

    Parameters
    ----------
    X : CSR matrix of counts
        As `check_counts` gives it.
    n_topics : int
    alpha : float64 array of shape (n_topics,)
    beta : float64 array of shape (n_words,)
    seed : int
        Key of the random streams, 64 bits.
    n_groups : int, optional
        G, if it is not to follow from the corpus.
    fits_priors : bool, default=False
        Fit alpha and a symmetric beta to the counts now and then.
    annealed : int, default=0
        The first sweeps, drawn with a larger topic-word prior (`annealing`).
    folder : path-like, optional
        Where arrays that grow with tokens and documents lie in files (`Storage`); in memory without one.

    Attributes
    ----------
    topics : unsigned array of shape (n_tokens,)
        Word by word, and inside a word by document: 2 bytes a token, 4 above 65,535 topics.
    word_start : int64 array of shape (n_words + 1,)
    order : int64 array
        Documents by group, and by length inside a group; ``lengths`` are theirs.
    group_docs : int64 array of shape (G + 1,)
    totals : int64 array of shape (n_topics,)
    """

    name = ""  # of the sampler
    topics: Any
    word_start: Any
    totals: Any
    seeds: Any = None  # what is known of words and of documents, where a sampler takes it: see `GibbsState`
    labels: Any = None
    barrier = "step"
    measure_every = 10  # sweeps between two values of the log-likelihood: about 2 % of the time
    unit = "token"

    def __init__(
        self, X, n_topics, alpha, beta, seed, *, n_groups=None, fits_priors=False, annealed=0, folder=None
    ):
        self.n_topics, self.seed, self.fits_priors = n_topics, np.uint64(seed), fits_priors
        self.storage = Storage(folder)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel()
        self.n_tokens = int(lengths.sum())
        self.first_beta = first_beta(self.n_tokens, n_topics, len(beta))
        self.annealed = annealed if self.first_beta > beta.min() else 0
        if n_groups is None:
            n_groups = number_of_groups(self.n_tokens, np.count_nonzero(np.bincount(X.indices)), n_topics)
            n_groups = min(n_groups, len(lengths))
        self.shards, self.n_blocks = range(n_groups), n_groups
        group = balance(lengths, n_groups)
        self.order = np.lexsort((lengths, group))
        self.lengths = lengths[self.order]
        self.group_docs = np.searchsorted(group[self.order], np.arange(n_groups + 1))
        self.kind = np.uint16 if n_topics <= np.iinfo(np.uint16).max else np.uint32
        self.background_totals = np.zeros(n_topics, np.int64)

    @property
    def on_gpu(self):
        """Whether a GPU draws the topics."""
        return getattr(self, "_there", None) is not None

    @property
    def ran(self):
        """What `LatentDirichletAllocation.sampler_` says."""
        return [{"name": self.name, "sweep": 1, "topics_per_document": None}]

    # At the coordinator and where a shard lies ------------------------------------------------------

    def __getstate__(self):
        raise TypeError("the state of a topic sampler lies in one process: it runs with engine='local' alone")

    def load(self, group):
        """Make what the shard of a document group has of its own."""
        return {"group": group, "totals": None}

    def publish(self):
        """Tell the topic totals."""
        return self.totals

    def sync(self, state, totals):
        """Take over the topic totals."""
        state["totals"] = totals

    def set_priors(self, alpha, beta):
        """Take new priors: float64 vectors over topics and over words."""
        self.alpha, self.beta = alpha, beta
        self._drawn_with = (-1, beta, beta, 0.0)

    def beta_of(self, round_):
        """The topic-word prior that a sweep is drawn with, in float64 and in float32, and its sum."""
        known = self._drawn_with
        if known[0] != round_:
            beta = annealed_prior(self.beta, round_, self.annealed, self.first_beta)
            # replaced as a whole: threads of one round may get here together, with the same result
            known = self._drawn_with = (round_, beta, beta.astype(np.float32), float(beta.sum()))
        return known[1:]

    def after_sweep(self, swept):
        """Fit priors now and then; `swept` sweeps are done."""
        is_time = swept % self.measure_every == 0 and swept >= max(FIRST_PRIOR_FIT, self.annealed)
        if self.fits_priors and is_time:
            alpha = priors.fit_doc_topic_prior(self.doc_topic_counts(), self.alpha, labels=self.labels)
            beta = priors.fit_topic_word_prior(self.word_topic_counts(), self.beta[0], seeds=self.seeds)
            self.set_priors(alpha, np.full(len(self.beta), beta))

    def first_topics(self, token_doc):
        """Each token takes at random one of the topics that its document starts from."""
        from ....kernels.lda.gibbs import assign_first

        return self.assigned(assign_first, token_doc)

    def assigned(self, assign_first, token_doc):
        """The first topics by a kernel, or by what does the same on the host without numba."""
        topics = self.storage.zeros(self.n_tokens, self.kind)
        assign_first(token_doc, topics, self.n_topics, *self.first_choices(), self.seed, _ASSIGN)
        return topics

    def first_choices(self):
        """Topics that each document starts from, in units of [0, 1), and whether it does so from all."""
        blocks = np.arange(len(self.lengths))
        choices = uniforms(blocks, self.seed, _CHOICES, 0, 0).reshape(-1, 4)
        return choices[:, :FIRST_TOPICS], (self.lengths >= LONG_DOCUMENT) & (self.annealed > 0)

    # Reading ------------------------------------------------------------------------------------

    def measure(self, state):
        """Compute what a group's documents and an equal part of the words give to `objective`."""
        g, n_groups = state["group"], len(self.shards)
        cuts = self.word_cuts(n_groups)
        return self._document_part(*self.group_docs[g : g + 2]), self._word_part(cuts[g], cuts[g + 1])

    def word_cuts(self, n_parts):
        """Cut the words into ranges of nearly equal numbers of tokens."""
        inner = np.searchsorted(self.word_start, np.linspace(0, self.n_tokens, n_parts + 1)[1:-1])
        return [0, *inner.tolist(), len(self.word_start) - 1]

    def objective(self, parts):
        """Compute log p(w, z) of `X` and its assignments, per token.

        With a background, it is log p(w, z | background).
        """
        total_alpha, total_beta = self._prior_sums()
        documents, words = zip(*parts, strict=True)
        total = sum(documents + words)
        total += (gammaln(total_alpha) - gammaln(self.lengths + total_alpha)).sum()
        total += (gammaln(self.background_totals + total_beta) - gammaln(self.totals + total_beta)).sum()
        return float(total / self.n_tokens)

    def _prior_sums(self):
        """Sums of alpha and beta: of each document and topic where they differ, else of all."""
        alpha, beta = self.alpha.sum(), self.beta.sum()
        if self.labels is not None:
            alpha = (self.labels @ self.alpha)[self.order]
        if self.seeds is not None:
            beta = beta + np.asarray(self.seeds.sum(axis=0)).ravel()
        return alpha, beta

    def joint_log_likelihood(self, n_jobs=1):
        """Compute `objective` now."""
        groups = [(self.measure, ({"group": g},)) for g in self.shards]
        return self.objective(run_tasks(groups, n_jobs))

    def _document_part(self, first, last):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k)."""
        raise NotImplementedError

    def _word_part(self, first, last):
        """Sum over words ``first:last`` of lnG(C_wk + beta_w) - lnG(beta_w)."""
        raise NotImplementedError

    def doc_topic_counts(self):
        """Topic counts of each document, CSR, documents as in `X`."""
        raise NotImplementedError

    def word_topic_counts(self):
        """Topic counts of each word in `X`, CSR."""
        from ....kernels.lda import counts as topic_counts

        indptr, indices, data = topic_counts.word_topic_csr(self.word_start, self.topics, self.n_topics)
        counts = narrow_csr(data, indices, indptr, self.n_topics)
        counts.sort_indices()
        return counts

    # Keeping ------------------------------------------------------------------------------------

    def arrays(self):
        """What a checkpoint must hold: everything else follows from `X` and the parameters."""
        parts = {"seed": self.seed, "topics": self.topics, "alpha": self.alpha, "beta": self.beta}
        return parts | {"annealed": np.int64(self.annealed)}

    def restore(self, arrays):
        """Go on from the arrays of a checkpoint of the same corpus and parameters.

        They come from a file, and the kernels trust them: every index is checked first.
        """
        topics, alpha, beta, seed = taken(arrays, "topics", "alpha", "beta", "seed")
        (annealed,) = taken(arrays, "annealed")
        fits = seed.shape == annealed.shape == () and (seed.dtype, annealed.dtype) == (np.uint64, np.int64)
        fits = fits and bool(annealed >= 0)
        fits = fits and self.takes_topics(topics)
        fits = fits and _are_priors(alpha, self.alpha) and _are_priors(beta, self.beta)
        if not fits:
            raise ModelFileError(
                "the checkpoint's arrays do not fit its data; remove the folder to start anew"
            )
        self.seed, self.annealed = np.uint64(seed), int(annealed)
        self.set_priors(alpha, beta)

    def takes_topics(self, topics):
        """Whether these can be the topics of the corpus's tokens."""
        fits = topics.shape == (self.n_tokens,) and topics.dtype == self.kind
        return bool(fits and topics.max(initial=0) < self.n_topics)


def _are_priors(found, own):
    """Whether an array of a checkpoint can stand in place of a prior."""
    fits = found.shape == own.shape and found.dtype == own.dtype
    return fits and bool((np.isfinite(found) & (found > 0)).all())


def taken(arrays, *names):
    """Take arrays of a checkpoint by their names."""
    absent = [name for name in names if name not in arrays]
    if absent:
        raise ModelFileError(
            f"the checkpoint lacks the array {shortened(absent[0])}; remove the folder to start anew"
        )
    return [arrays[name] for name in names]
