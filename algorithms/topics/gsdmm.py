"""Topics of short texts: a mixture with one topic for each document (GSDMM)."""

import os
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.special import gammaln
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, FileName, Matrix, RandomState, Vector
from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.program import Outcome, Program
from ...scheduler.schedules.static import StaticSchedule
from ...scheduler.stores.store import fingerprint_csr
from ..inputs.dask_arrays import is_dask
from ..inputs.indices import narrow_csr
from ..inputs.matrices import check_counts, check_prior, check_vocabulary
from ..inputs.texts import check_are_names
from .blocks.groups import check_frequency
from .blocks.restoring import unfit
from .corpus.blocks_of_documents import lazy_shares
from .corpus.shard_input import are_files, check_at_hand, is_sharded
from .evaluation import padded_columns, words_at_hand
from .inference import without_unseen
from .lda import LatentDirichletAllocation
from .model import TopicModel

_PRIOR = 0.1  # of documents and of words, as in the paper
_NOTHING = 1e-9  # of a prior, in shares of documents
_BEGIN, _SWEEP = 14, 15  # purposes of random streams
_MEASURE_EVERY = 10  # sweeps, also between checkpoints


class GSDMM(TopicModel):
    r"""Topic model of short texts: one topic a text, by collapsed Gibbs sampling.

    A Dirichlet multinomial mixture. A text of a few words says little of shares of topics; here all its
    words are of one::

        pi ~ Dirichlet(alpha),  phi_k ~ Dirichlet(beta)
        z_d ~ pi,  w_di ~ phi_(z_d)

    A sweep draws each document's topic from

    .. math:: p(z_d = k \mid \text{rest}) \propto (m_k + \alpha_k)
              \frac{\prod_w \prod_{j=0}^{n_{dw} - 1} (C_{wk} + \beta_w + j)}
                   {\prod_{i=0}^{L_d - 1} (C_k + \sum_w \beta_w + i)}

    with m_k the documents and C_wk the tokens of the topic, without this document. Every sweep is an exact
    Gibbs sweep, on one thread. Topics that no document wants become empty: with `n_components` a good deal
    larger than the number of topics there are, the rest ends without documents.

    Memory: 4 bytes for each word of `X` and topic. A sweep takes time by tokens times topics.

    Parameters
    ----------
    n_components : int, default=40
        Number of topics at most.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha; None is 0.1.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.1. Larger values make fewer and broader topics.
    max_iter : int, default=100
        Sweeps over all documents.
    checkpoint : str or path, default=None
        Folder in which the state is kept every 10 sweeps, from which a fit of the same parameters and data
        goes on, *bitwise* as if it had never stopped.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_samples,)
        The topic of each document, as last drawn.
    topic_document_counts_ : ndarray of int, shape (n_components,)
        Documents of each topic.
    components_, topic_word_, word_topic_counts_, doc_topic_counts_
        As in `LatentDirichletAllocation`; all tokens of a document are of its topic.
    doc_topic_ : ndarray of shape (n_samples, n_components)
        1 for the topic of `labels_`, else 0, to rounding; `fit_transform` gives probabilities.
    doc_topic_prior_, topic_word_prior_ : ndarrays of shapes (n_components,), (n_features,)
    log_likelihood_ : ndarray
        Trace of log p(w, z) per token, one value every 10 sweeps and one after the last.
    history_, n_iter_, n_features_in_, feature_names_in_, vocabulary_
        As in `LatentDirichletAllocation`.

    Raises
    ------
    DataError
        If `X` does not hold counts, or a prior has the wrong shape.

    See Also
    --------
    LatentDirichletAllocation : Documents of several topics.

    References
    ----------
    Yin, Wang, "A Dirichlet multinomial mixture model-based approach for short text clustering", KDD 2014;
    Nigam, McCallum, Thrun, Mitchell, "Text classification from labeled and unlabeled documents using EM",
    Machine Learning 2000 (the model).

    Examples
    --------
    >>> import stradask as sd
    >>> texts = ["cat and dog", "a dog, a cat", "sun on the sea", "sea and sun"] * 10
    >>> X, words = sd.text_counts(texts, stop_words="english")
    >>> model = sd.GSDMM(5, random_state=0).fit(X, vocabulary=words)
    >>> labels = model.labels_[:4]
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    >>> model.transform(X[:1]).shape
    (1, 5)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, 2**16, closed="both")],
        "doc_topic_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "topic_word_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, os.PathLike],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _expected_failed_checks: ClassVar[dict] = LatentDirichletAllocation._expected_failed_checks
    # What the methods of topic models look at, and this model does not offer.
    device, n_jobs, n_draws = "cpu", None, 0

    def __init__(
        self,
        n_components: int = 40,
        *,
        doc_topic_prior: Any = None,
        topic_word_prior: Any = None,
        max_iter: int = 100,
        checkpoint: FileName | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        *,
        vocabulary: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit topics to word counts of short texts.

        Ctrl-C stops after the running sweep and keeps the model so far, with a warning.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents.
        y : None
            Ignored.
        vocabulary : sequence of str or mapping of str to int, optional
            The words of the columns, kept as `vocabulary_`.
        callback : callable, optional
            ``callback(info)`` after every sweep, as in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        if is_sharded(X):
            if are_files(X):
                check_are_names(X)
            raise DataError(
                "GSDMM fits a matrix in memory: read files by stradask.datasets, or compute X of Dask"
            )
        with self._unchanged_on_error():
            counts = check_counts(self, X)
            check_frequency(np.asarray(counts.sum(axis=0, dtype=np.int64)).ravel())
            alpha = check_prior("doc_topic_prior", self.doc_topic_prior, self.n_components, _PRIOR)
            beta = check_prior("topic_word_prior", self.topic_word_prior, counts.shape[1], _PRIOR)
            words = None if vocabulary is None else check_vocabulary(vocabulary, counts.shape[1])
            program = MixtureProgram(counts, alpha, beta, seed_from(self.random_state))
            done = self._run(program, words, self._fingerprint(counts, program), callback)
            self._read(program, words, done.fetched, done.history)
        return self

    def _run(self, program, words, fingerprint, callback):
        return run(
            program,
            StaticSchedule(1),
            max_rounds=self.max_iter,
            callback=callback,
            snapshot=lambda history, topics: type(self)(**self.get_params())._read(
                program, words, topics, history
            ),
            checkpoint=self.checkpoint,
            checkpoint_every=_MEASURE_EVERY,
            fingerprint=fingerprint,
            label="GSDMM",
            verbose=self.verbose,
        )

    def _fingerprint(self, X, program):
        parts = {"model": "gsdmm", "alpha": program.alpha.tolist(), "X": fingerprint_csr(X)}
        beta = program.beta
        parts["beta"] = float(beta[0]) if np.ptp(beta) == 0 else beta.tolist()
        return parts | ({"seed": int(self.random_state)} if isinstance(self.random_state, Integral) else {})

    def fit_transform(self, X: Matrix, y: Vector | None = None, **fit_params: Any) -> Array:
        """Fit, and return the probabilities of each document's topics given the topics of all others.

        Parameters
        ----------
        X, y, **fit_params
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        self.fit(X, y, **fit_params)
        counts = check_counts(self, X, reset=False)
        return self._posterior(counts, self.labels_)[0]

    def _read(self, program, words, topics, history):
        """Take the model from the topics of the documents."""
        self.__dict__.pop("vocabulary_", None)
        if words is not None:
            self.vocabulary_ = words
        X, n_topics = program.shards[0], len(program.alpha)
        self.n_features_in_, self.n_batch_iter_ = X.shape[1], 1
        self.labels_, self.n_iter_ = topics, len(history)
        self.topic_document_counts_ = np.bincount(topics, minlength=n_topics)
        lengths = np.asarray(X.sum(axis=1, dtype=np.int64)).ravel().astype(np.int32)
        held = np.flatnonzero(lengths)
        indptr = np.concatenate([[0], np.cumsum(lengths > 0)])
        self.doc_topic_counts_ = narrow_csr(lengths[held], topics[held], indptr, n_topics)
        counts = sparse.csr_array(X.T @ (self.doc_topic_counts_ > 0).astype(np.int32))
        counts.sort_indices()
        self.word_topic_counts_ = counts
        self.doc_topic_prior_, self.topic_word_prior_ = program.alpha, program.beta
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = program.measure(program.counted(X, topics))
        return self

    # Using --------------------------------------------------------------------------------------

    def _posterior(self, X, own=None):
        """Probabilities of topics of documents, and log p(w); `own` are topics that the counts hold."""
        from ...kernels.lda.models.mixture import posterior

        documents, alpha = self.topic_document_counts_.astype(np.int64), self.doc_topic_prior_
        words, beta = self.word_topic_counts_.toarray().astype(np.int32), self.topic_word_prior_
        totals = words.sum(axis=0, dtype=np.int64)
        out, log_sum = np.empty((X.shape[0], len(alpha))), np.empty(X.shape[0])
        own = np.zeros(0, np.int64) if own is None else own
        place = (0, X.shape[0], X.indptr, X.indices, X.data, own)
        posterior(*place, documents, words, totals, alpha, beta, beta.sum(), out, log_sum)
        return out, log_sum - np.log(documents.sum() + alpha.sum())

    def transform(self, X: Matrix) -> Array:  # type: ignore[override]
        """Compute the probabilities of new documents' topics, given the topics of the fitted ones.

        In closed form, without a chain.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. Words that were not in the fit are left out, with a warning. Of a Dask array, chunked by
            rows, the result is a Dask array too, and nothing is computed yet.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1. The documents of the fit count themselves here; `fit_transform` leaves them out.
        """
        check_is_fitted(self, "word_topic_counts_")
        if is_dask(X):
            return lazy_shares(self, X)
        check_at_hand(X)
        X = check_counts(self, X, reset=False)
        return self._posterior(without_unseen(self, X))[0]

    def predict(self, X: Matrix) -> Array:
        """Return the most probable topic of each document.

        Parameters
        ----------
        X : as in `transform`

        Returns
        -------
        ndarray of int, shape (n_samples,)
        """
        return np.asarray(self.transform(X)).argmax(axis=1)

    def log_probability(self, X: Matrix) -> Array:  # type: ignore[override]
        """Compute log p(w) of documents, each by itself, given the fitted ones; exact.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts. Words that were not in the fit have the probability that `topic_word_prior` gives them.

        Returns
        -------
        ndarray of shape (n_samples,)
            Natural logarithms, of the words in an order; 0 for a document without words.
        """
        check_is_fitted(self, "word_topic_counts_")
        return self._posterior(check_counts(self, X, reset=False))[1]

    @property
    def unseen(self) -> Array:
        """Words that no document of the fit held."""
        return np.diff(self.word_topic_counts_.indptr) == 0

    def _completion(self, observed, held_out, labels):
        """Log-likelihood per held-out token, words being of the topics that observed ones tell."""
        from ...kernels.lda.inference import log_likelihood

        if labels is not None:
            raise DataError("doc_labels: a document of GSDMM has one topic; leave them out")
        words, (_, rows) = words_at_hand(observed, held_out)
        phi, theta = padded_columns(self._word_probabilities(words)), self._posterior(observed)[0]
        place = (0, held_out.shape[0], held_out.indptr, rows, held_out.data)
        return float(log_likelihood(*place, phi, theta) / held_out.sum())

    @property
    def _doc_topic_weights(self):
        """All tokens of a document are of its topic; one without tokens has them all alike."""
        return self.doc_topic_counts_, np.full(len(self.doc_topic_prior_), _NOTHING)

    def _token_topics(self, X, n_sweeps, whole):
        """All words of a document have its probabilities."""
        known = ~self.unseen[X.indices]
        of_documents = self._posterior(without_unseen(self, X))[0]
        best, rows = of_documents.argmax(axis=1), np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        topics = np.where(known, best[rows], -1)
        shares = np.where(known, of_documents[rows, best[rows]], np.nan)
        return topics, shares, np.where(known[:, None], of_documents[rows], np.nan) if whole else None

    def _check_state(self):
        super()._check_state()
        n_topics, labels = len(self.doc_topic_prior_), self.labels_
        fits = self.topic_document_counts_.shape == (n_topics,) and labels.ndim == 1
        fits = fits and labels.dtype.kind in "iu" and self.topic_document_counts_.dtype.kind in "iu"
        fits = fits and len(labels) == self.doc_topic_counts_.shape[0]
        fits = fits and 0 <= labels.min(initial=0) <= labels.max(initial=0) < n_topics
        if not (fits and (np.bincount(labels, minlength=n_topics) == self.topic_document_counts_).all()):
            raise DataError("labels_ and topic_document_counts_ cannot be those of one model")


class MixtureProgram(Program):
    """Sweeps over the documents of a matrix, in one piece.

    Parameters
    ----------
    X : CSR array of int32
    alpha, beta : ndarrays of float64
    seed : int
    """

    saved, unit, measure_every = ("topics",), "token", _MEASURE_EVERY

    def __init__(self, X, alpha, beta, seed):
        self.shards, self.alpha, self.beta, self.seed = [X], alpha, beta, np.uint64(seed)
        self.n_tokens = int(X.sum(dtype=np.int64))

    def load(self, data):
        """Begin with topics at random."""
        from ...kernels.lda import host

        uniform = host.uniforms(np.arange(data.shape[0]), self.seed, _BEGIN, 0, 0).reshape(-1, 4)[:, 0]
        topics = np.minimum((uniform * len(self.alpha)).astype(np.int64), len(self.alpha) - 1)
        return {"X": data, "topics": topics, "counts": None}

    def publish(self):
        """Request that documents are counted."""
        return "count"

    def sync(self, state, message):
        """Count the documents, whose topics may be those of a checkpoint."""
        topics = state["topics"]
        if not (0 <= topics.min(initial=0) <= topics.max(initial=0) < len(self.alpha)):
            raise unfit("topics")
        state |= self.counted(state["X"], topics)

    def counted(self, X, topics):
        """State of topics of documents."""
        from ...kernels.lda.models.mixture import count_documents

        n_topics = len(self.alpha)
        counts = (
            np.zeros(n_topics, np.int64),
            np.zeros((X.shape[1], n_topics), np.int32),
            np.zeros(n_topics, np.int64),
        )
        count_documents(X.indptr, X.indices, X.data, topics, *counts)
        return {"X": X, "topics": topics, "counts": counts}

    def update(self, state, task):
        """Sweep."""
        from ...kernels.lda.models.mixture import sweep_documents

        X, priors = state["X"], (self.alpha, self.beta, self.beta.sum())
        documents = (X.indptr, X.indices, X.data, state["topics"])
        sweep_documents(*documents, *state["counts"], *priors, self.seed, _SWEEP, task.round)

    def aggregate(self, tasks, partials):
        """Count the tokens."""
        return Outcome(updates=self.n_tokens)

    def measure(self, state):
        """log p(w, z) per token, pi and phi integrated out."""
        documents, words, totals = state["counts"]
        alpha, beta = self.alpha, self.beta
        total = (gammaln(documents + alpha) - gammaln(alpha)).sum()
        total += gammaln(alpha.sum()) - gammaln(documents.sum() + alpha.sum())
        row, topic = np.nonzero(words)
        total += (gammaln(words[row, topic] + beta[row]) - gammaln(beta[row])).sum()
        total += (gammaln(beta.sum()) - gammaln(totals + beta.sum())).sum()
        return float(total / max(self.n_tokens, 1))

    def objective(self, parts):
        """Of the only shard."""
        return parts[0]

    def document_topics(self, state):
        """Topics of the documents."""
        return state["topics"].copy()

    def collect(self, ask):
        """Gather the topics of the documents."""
        return ask(lambda session, messages: session.measure(messages, "document_topics"))[0]
