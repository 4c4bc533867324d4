"""New documents under fixed topics: their topic shares, and their probability."""

import itertools
import warnings
import weakref
from numbers import Integral

import numpy as np

from ...errors import DataError
from ...scheduler.threads import effective_n_jobs, run_tasks
from .evaluation import padded_vector

_FOLD_IN, _LEFT_TO_RIGHT, _ANNEALED = 2, 5, 6  # purposes of random streams; `state` names the others
_CHUNK, _LONG = 32, 2_000  # documents a task, and tokens of one that is a task of its own
SWEEPS = 200  # of `transform`, both chains together
_BURN_IN = 0.15  # part of them

_at_hand: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class FixedTopics:
    """Topics of a fitted model as the kernels read them.

    Parameters
    ----------
    word_topic_counts : CSR array of shape (n_features, n_components)
        With what seed words add to them.
    doc_topic_prior, topic_word_prior : ndarrays of shapes (n_components,), (n_features,)

    Attributes
    ----------
    arrays : tuple
        Counts as CSR, beta, the reciprocals of ``C_k + sum(beta)``, and alpha in float32, padded with zeros
        to whole vectors.
    unseen : ndarray of bool, shape (n_features,)
        Words that no document of the fit held, and that are no seed words.
    """

    def __init__(self, word_topic_counts, doc_topic_prior, topic_word_prior):
        from ...kernels.lda_gibbs import padded

        counts = word_topic_counts
        if not (counts.has_canonical_format and counts.data.all()):
            counts = counts.copy()
            counts.sum_duplicates()
            counts.eliminate_zeros()
        self.n_components = len(doc_topic_prior)
        totals = np.asarray(counts.sum(axis=0)).ravel() + topic_word_prior.sum()
        self.arrays = (
            counts.indptr,
            counts.indices,
            counts.data,
            np.asarray(topic_word_prior, np.float64),
            1 / totals,
            padded_vector(doc_topic_prior, padded(self.n_components)),
        )
        self.unseen = np.diff(counts.indptr) == 0

    @classmethod
    def of(cls, model):
        """Return those of a fitted model, made once as long as it keeps its counts and priors."""
        seeds = getattr(model, "seed_prior_", None)
        parts = (model.word_topic_counts_, model.doc_topic_prior_, model.topic_word_prior_, seeds)
        known = _at_hand.get(model)
        if known is None or any(a is not b for a, b in zip(known[0], parts, strict=True)):
            known = _at_hand[model] = (parts, cls(model._word_topic_weights, *parts[1:3]))
        return known[1]


def topic_shares(topics, X, *, n_sweeps, random_state, n_jobs):
    """Infer the posterior mean of each document's topic shares.

    Parameters
    ----------
    topics : FixedTopics
    X : CSR array of int32, checked
    n_sweeps : int
        Sweeps over each document, at least 10, those of both chains together; the first 15 % only warm up.
    random_state, n_jobs

    Returns
    -------
    ndarray of shape (n_documents, n_components)
    """
    from ...kernels import topic_inference as kernels

    _check_count("n_sweeps", n_sweeps, least=10)
    X = _without_unseen(topics, X)
    each = -(-int(n_sweeps) // kernels.CHAINS)
    burn_in = max(1, int(_BURN_IN * each))
    theta = np.empty((X.shape[0], topics.n_components))
    plan = (_FOLD_IN, burn_in, each - burn_in, theta)
    _run(kernels.fold_in, topics, X, random_state, plan, n_jobs)
    return theta


def log_probabilities(topics, X, *, method, n_particles, n_moves, temperatures, random_state, n_jobs):
    """Estimate log p(w) of each document; see `TopicModel.log_probability`."""
    _check_count("n_particles", n_particles)
    out = np.empty(X.shape[0])
    if method == "left-to-right":
        if n_moves is not None:
            _check_count("n_moves", n_moves, least=0)
        from ...kernels.topic_likelihood import left_to_right as kernel

        plan = (_LEFT_TO_RIGHT, int(n_particles), 2**31 if n_moves is None else int(n_moves), out)
    elif method == "annealed":
        from ...kernels.topic_likelihood import annealed as kernel

        plan = (_ANNEALED, int(n_particles), _as_temperatures(temperatures), out)
    else:
        raise DataError(f"method={method!r} is unknown: take 'left-to-right' or 'annealed'")
    _run(kernel, topics, X, random_state, plan, n_jobs)
    return out


def _run(kernel, topics, X, random_state, plan, n_jobs):
    """Run a kernel over all documents; each has a stream of random numbers that its own content names."""
    from ...kernels.topic_inference import content_keys

    seed = np.uint64(random_state if isinstance(random_state, Integral) else 0)
    keys = content_keys(X.indptr, X.indices, X.data)
    fixed = (X.indptr, X.indices, X.data, *topics.arrays, keys, seed, *plan)
    tasks = [(kernel, (*chunk, *fixed)) for chunk in _chunks(X)]
    run_tasks(tasks, effective_n_jobs(n_jobs))


def _chunks(X):
    """Ranges of documents for threads; between two of them, Ctrl-C is heard."""
    lengths = np.diff(np.concatenate([[0], np.cumsum(X.data, dtype=np.int64)])[X.indptr])
    long = np.flatnonzero(lengths > _LONG)
    cuts = np.unique(np.concatenate([np.arange(0, X.shape[0], _CHUNK), long, long + 1, [X.shape[0]]]))
    return list(itertools.pairwise(cuts.tolist()))


def _without_unseen(topics, X):
    """Leave out, with one warning, words that tell nothing: all topics give them the same count, none."""
    unseen = topics.unseen[X.indices]
    if not unseen.any():
        return X
    n_tokens, n_words = X.data[unseen].sum(dtype=np.int64), len(np.unique(X.indices[unseen]))
    warnings.warn(
        f"{n_tokens} tokens of X, of {n_words} words that did not occur in fit, say nothing about topics and "
        "are ignored",
        stacklevel=5,
    )
    X = X.copy()
    X.data[unseen] = 0
    X.eliminate_zeros()
    return X


def _check_count(name, value, least=1):
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= value <= 2**24:
        raise DataError(f"{name} must be an integer from {least} to {2**24}, got {value!r}")


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
            f"got {temperatures!r}"
        )
    return rising
