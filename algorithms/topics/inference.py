"""New documents under fixed topics: their topic shares, and their probability."""

import copy
import itertools
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from ...kernels.lda.inference_cuda import FixedTopicsOnDevice
from ...scheduler.threads import effective_n_jobs, run_tasks
from .._streams import Purpose
from ..inputs.indices import narrow_csr
from .evaluation import EM_STEPS, padded_vector

_CHAINS = 2  # of `kernels.topic_inference`
_CHUNK, _LONG = 32, 2_000  # documents a task, and tokens of one that is a task of its own
_AT_ONCE = 1e7  # tokens squared times topics: milliseconds
SPARSE_TOPICS = 2**14  # from so many on, nothing takes memory for each word and topic
_SWEEPS, _MOST_SWEEPS = 200, 2000  # of `transform`, both chains together: by default, and with a tolerance
_BURN_IN = 0.15  # part of them, where all are made
_SHORT_BURN_IN = 2  # of each chain that ends when its error is small enough
_TOLERANCE = 0.03  # total variation

_LIBRARIES = (__name__.partition(".")[0], "sklearn")

_at_hand: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class FixedTopics:
    """Topics of a fitted model as the kernels read them; `word_topic_counts` include what seed words add.

    Attributes
    ----------
    parts : tuple
        Counts as CSR, beta, the reciprocals of ``C_k + sum(beta)``, and alpha.
    arrays : tuple
        The same for kernels of the CPU: alpha in float32, padded with zeros to whole vectors.
    unseen : ndarray of bool, shape (n_features,)
        Words that no document of the fit held, and that are no seed words.
    """

    def __init__(self, word_topic_counts, doc_topic_prior, topic_word_prior):
        counts = word_topic_counts
        if not (counts.has_canonical_format and counts.data.all()):
            counts = counts.copy()
            counts.sum_duplicates()
            counts.eliminate_zeros()
        # Of one of two types, for which kernels are compiled: counts, or with fractions of seed words.
        data = counts.data if counts.dtype == np.int32 else counts.data.astype(np.float64, copy=False)
        counts = narrow_csr(data, counts.indices, counts.indptr, counts.shape[1])
        self.n_components = len(doc_topic_prior)
        totals = np.asarray(counts.sum(axis=0)).ravel() + topic_word_prior.sum()
        beta = np.asarray(topic_word_prior, np.float64)
        self.parts = (counts.indptr, counts.indices, counts.data, beta, 1 / totals, doc_topic_prior)
        self.unseen = np.diff(counts.indptr) == 0

    @property
    def arrays(self):
        """See above."""
        from ...kernels.lda.gibbs import padded

        *parts, alpha = self.parts
        return (*parts, padded_vector(alpha, padded(self.n_components)))

    def of_document(self, words, own, weights):
        """Return the topics for a document of some words and of its own topics only.

        `words` and `own` are columns of `X` and topics, counted from 0 in the result; `weights` factors of
        alpha, by topic of `own`.
        """
        indptr, indices, data, beta, inverse, alpha = self.parts
        shape = (len(indptr) - 1, self.n_components)
        counts = sparse.csr_array((data, indices, indptr), shape=shape)[words][:, own]
        counts.sort_indices()
        part = copy.copy(self)
        part.n_components = len(own)
        priors = (beta[words], inverse[own], weights * alpha[own])
        part.parts = (counts.indptr, counts.indices, counts.data, *priors)
        part.unseen = np.zeros(len(words), bool)
        return part

    def with_prior(self, alpha):
        """Return the same topics with another prior of documents."""
        other = copy.copy(self)
        other.parts = (*self.parts[:-1], alpha)
        return other

    @classmethod
    def of(cls, model):
        """Return those of a fitted model, made once as long as it keeps its counts and priors."""
        seeds = getattr(model, "seed_prior_", None)
        parts = (model.word_topic_counts_, model.doc_topic_prior_, model.topic_word_prior_, seeds)
        known = _at_hand.get(model)
        if known is None or any(a is not b for a, b in zip(known[0], parts, strict=True)):
            known = _at_hand[model] = (parts, cls(model._word_topic_weights, *parts[1:3]))
        return known[1]


def sweeps_and_tolerance(n_sweeps, tol):
    """What `transform` does by default, and where only one of its two parameters is given."""
    if n_sweeps is None:
        return (_SWEEPS, _TOLERANCE) if tol is None else (_MOST_SWEEPS, tol)
    return n_sweeps, tol


def topic_shares(topics, X, *, n_sweeps, random_state, n_jobs, tol=None, device=None):
    """Infer the posterior mean of each document's topic shares, n_documents x n_components.

    `n_sweeps`, at least 10, are those of both chains together; the first 15 % only warm up. With `tol` a
    document is done when the estimated total variation of its error is no more. `device` is a GPU that draws
    the same topics; with `SPARSE_TOPICS` or more the CPU does it all the same, and makes all sweeps.
    """
    _check_count("n_sweeps", n_sweeps, least=10)
    tol = _checked_tolerance(tol)
    X = without_unseen(topics, X)
    each = -(-int(n_sweeps) // _CHAINS)
    sparse_topics = topics.n_components >= SPARSE_TOPICS
    burn_in = max(1, int(_BURN_IN * each)) if sparse_topics or not tol else _SHORT_BURN_IN
    plan = (Purpose.FOLD_IN.value, burn_in, each - burn_in, *(() if sparse_topics else (tol,)))
    if device is not None and not sparse_topics:
        there = FixedTopicsOnDevice(device, *topics.parts)
        return there.fold_in(X.indptr, X.indices, X.data, _seed(random_state), *plan)
    from ...kernels.lda import inference as topic_inference
    from ...kernels.lda.documents import sparse as topic_sparse

    theta = np.empty((X.shape[0], topics.n_components))
    kernels = topic_sparse if sparse_topics else topic_inference
    _run(kernels.fold_in, topics, X, random_state, (*plan, theta), n_jobs)
    return theta


def log_probabilities(topics, X, *, method, n_particles, n_moves, temperatures, random_state, n_jobs):
    """Estimate log p(w) of each document; see `TopicModel.log_probability`."""
    _check_count("n_particles", n_particles)
    out = np.empty(X.shape[0])
    if method == "left-to-right":
        if n_moves is not None:
            _check_count("n_moves", n_moves, least=0)
        from ...kernels.lda.documents.likelihood import left_to_right as kernel

        n_moves = 2**31 if n_moves is None else int(n_moves)
        plan = (Purpose.LEFT_TO_RIGHT.value, int(n_particles), n_moves, out)
    elif method == "annealed":
        from ...kernels.lda.documents.likelihood import annealed as kernel

        plan = (Purpose.ANNEALED_SAMPLING.value, int(n_particles), _as_temperatures(temperatures), out)
    else:
        raise DataError(f"method={shortened(method)} is unknown: take 'left-to-right' or 'annealed'")
    _run(kernel, topics, X, random_state, plan, n_jobs)
    return out


def token_topics(topics, X, *, n_sweeps, random_state, n_jobs, whole):
    """Infer the topics of each entry of X by a chain of `n_sweeps` sweeps; the first 15 % only warm up.

    Returns the most probable topic of each entry, its probability, and those of all topics if `whole` says
    so; entries of words that were not in the fit have -1 and NaN.
    """
    from ...kernels.lda.documents.tokens import token_topics as kernel

    _check_count("n_sweeps", n_sweeps, least=10)
    known = ~topics.unseen[X.indices]
    seen = without_unseen(topics, X)
    burn_in = int(_BURN_IN * n_sweeps)
    best, share = np.empty(seen.nnz, np.int64), np.empty(seen.nnz)
    every = np.empty((seen.nnz if whole else 0, topics.n_components))
    _run(
        kernel,
        topics,
        seen,
        random_state,
        (Purpose.TOKENS.value, burn_in, int(n_sweeps) - burn_in, best, share, every),
        n_jobs,
    )
    if known.all():
        return best, share, every if whole else None
    filled = (
        np.full(X.nnz, -1),
        np.full(X.nnz, np.nan),
        np.full((X.nnz, every.shape[1]) if whole else 0, np.nan),
    )
    for out, found in zip(filled, (best, share, every), strict=True):
        if len(out):
            out[known] = found
    return filled[0], filled[1], filled[2] if whole else None


def labelled_shares(topics, X, labels, *, n_sweeps, random_state, n_jobs, tol=None):
    """Infer `topic_shares` of documents that have the topics of their labels only.

    `labels` is a CSR array as `guidance.check_doc_labels` gives it; the others are those of `topic_shares`.
    """
    _check_count("n_sweeps", n_sweeps, least=10)
    X = without_unseen(topics, X)
    theta = np.zeros((X.shape[0], topics.n_components))
    options = {"n_sweeps": n_sweeps, "random_state": random_state, "tol": tol, "n_jobs": 1}

    def infer(d):
        part, own, rows = _document(topics, d, labels, X)
        theta[d, own] = topic_shares(part, *rows, **options)

    run_tasks([(infer, (d,)) for d in range(X.shape[0])], effective_n_jobs(n_jobs))
    return theta


def labelled_completion(topics, observed, held_out, labels, *, n_jobs):
    """Do what `completion` does for documents that have the topics of their labels only."""

    def score(d):
        part, _, rows = _document(topics, d, labels, observed, held_out)
        return completion(part, *rows, n_jobs=1) * rows[1].sum() if rows[1].nnz else 0.0

    tasks = [(score, (d,)) for d in range(observed.shape[0])]
    return float(sum(run_tasks(tasks, effective_n_jobs(n_jobs))) / held_out.sum())


def _document(topics, d, labels, *matrices):
    """Topics of document d, their numbers, and its row of each matrix with only the words that it has."""
    start, end = labels.indptr[d : d + 2]
    own = labels.indices[start:end]
    words = np.unique(np.concatenate([m.indices[m.indptr[d] : m.indptr[d + 1]] for m in matrices]))
    rows = []
    for m in matrices:
        here = slice(m.indptr[d], m.indptr[d + 1])
        columns = np.searchsorted(words, m.indices[here])
        parts = (m.data[here], columns, np.array([0, len(columns)]))
        rows.append(sparse.csr_array(parts, shape=(1, len(words))))
    return topics.of_document(words, own, labels.data[start:end]), own, rows


def completion(topics, observed, held_out, *, n_jobs, device=None):
    """Do what `evaluation.document_completion` does with the topics of a model that has many, or on a GPU.

    Returns
    -------
    float
        Log-likelihood per held-out token.
    """
    if device is not None:
        known, asked = ((X.indptr, X.indices, X.data) for X in (observed, held_out))
        likelihood = FixedTopicsOnDevice(device, *topics.parts).completion(known, asked, EM_STEPS)
        return float(likelihood.sum() / held_out.sum())
    from ...kernels.lda.documents.sparse import completion as kernel

    *parts, alpha = topics.arrays
    counts = [part for X in (observed, held_out) for part in (X.indptr, X.indices, X.data)]
    fixed = (*counts, *parts, alpha[: topics.n_components], EM_STEPS)
    tasks = [(kernel, (d, d + 1, *fixed)) for d in range(observed.shape[0])]
    return float(sum(run_tasks(tasks, effective_n_jobs(n_jobs))) / held_out.sum())


def _run(kernel, topics, X, random_state, plan, n_jobs):
    """Run a kernel over all documents; each has a stream of random numbers that its own content names.

    The calling thread only waits, because Ctrl-C is not heard inside a kernel: a long document takes minutes.
    What takes a moment it does itself, since to start a thread would take longer.
    """
    from ...kernels.lda.inference import content_keys

    seed = np.uint64(_seed(random_state))
    keys = content_keys(X.indptr, X.indices, X.data)
    fixed = (X.indptr, X.indices, X.data, *topics.arrays, keys, seed, *plan)
    stop = np.zeros(1, np.uint8)

    def part(first, last):
        if not stop[0]:
            kernel(first, last, *fixed, stop)

    tasks = [(part, chunk) for chunk in _chunks(X)]
    if float(X.data.sum()) ** 2 * topics.n_components <= _AT_ONCE:
        run_tasks(tasks, 1)
        return
    with ThreadPoolExecutor(1, "stradask-aside") as aside:
        running = aside.submit(run_tasks, tasks, effective_n_jobs(n_jobs))
        try:
            while not running.done():
                wait([running], timeout=0.5)  # without an end, Windows would not hear Ctrl-C here either
        finally:
            stop[0] = 1
    running.result()


def _seed(random_state):
    """Seed of the streams, which without an int is the same every time."""
    return int(random_state) if isinstance(random_state, Integral) else 0


def _chunks(X):
    """Ranges of documents for threads."""
    lengths = np.diff(np.concatenate([[0], np.cumsum(X.data, dtype=np.int64)])[X.indptr])
    long = np.flatnonzero(lengths > _LONG)
    cuts = np.unique(np.concatenate([np.arange(0, X.shape[0], _CHUNK), long, long + 1, [X.shape[0]]]))
    return list(itertools.pairwise(cuts.tolist()))


def without_unseen(topics, X):
    """Leave out, with one warning at the line of the user, words without a count in any topic."""
    unseen = topics.unseen[X.indices]
    if not unseen.any():
        return X
    n_tokens, n_words = X.data[unseen].sum(dtype=np.int64), len(np.unique(X.indices[unseen]))
    warnings.warn(
        f"{n_tokens} tokens of X, of {n_words} words that did not occur in fit, say nothing about topics and "
        "are ignored",
        stacklevel=levels_to_user(),
    )
    X = X.copy()
    X.data[unseen] = 0
    X.eliminate_zeros()
    return X


def levels_to_user():
    """The `stacklevel` of the nearest caller outside this package and scikit-learn, which wraps methods."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level


def _check_count(name, value, least=1):
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= value <= 2**24:
        raise DataError(f"{name} must be an integer from {least} to {2**24}, got {shortened(value)}")


def _checked_tolerance(tol):
    """Return a tolerance as the kernels take it: 0 where there is none."""
    if tol is None:
        return 0.0
    if not isinstance(tol, Real) or isinstance(tol, bool) or not 0 < float(tol) < 1:
        raise DataError(f"tol must be a number between 0 and 1, or None for all sweeps, got {shortened(tol)}")
    return float(tol)


def _as_temperatures(temperatures):
    """Return rising temperatures that end with 1; a number of them is taken in equal steps."""
    if isinstance(temperatures, Integral) and not isinstance(temperatures, bool):
        _check_count("temperatures", temperatures)
        n_steps = int(temperatures)
        return np.arange(1, n_steps + 1) / n_steps
    try:
        rising = np.array(temperatures, np.float64)
    except (TypeError, ValueError):
        rising = np.empty(0)
    if rising.ndim != 1 or not len(rising) or not (np.diff(rising, prepend=0) > 0).all() or rising[-1] != 1:
        raise DataError(
            "temperatures must be a number of equal steps, or rising numbers above 0 of which the last is 1, "
            f"got {shortened(temperatures)}"
        )
    return rising
