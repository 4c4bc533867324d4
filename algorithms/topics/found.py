"""A number of topics that is found: fits with a hierarchical prior of the topics' shares.

`HDPTopicModel` always has this prior, and `LatentDirichletAllocation` with ``n_components="auto"``.
"""

import warnings

import numpy as np
from scipy import sparse

from ...errors import DataError, shortened
from .inference import levels_to_user

MOST_TOPICS = 100  # of n_components="auto"
_NEARLY_ALL = 0.9  # of the topics that there may be: the limit is reached
_MEAN = 1.0  # of the priors of alpha and gamma, where they begin


def check_auto(model, inputs):
    """Refuse what does not go with a number that is found."""
    fixed = "give n_components a number"
    if model._sampler not in ("auto", "gibbs"):
        raise DataError(
            f"n_components='auto' needs Gibbs sampling, not sampler={shortened(model.sampler)}: set "
            f"sampler='gibbs' or leave it 'auto', or {fixed}"
        )
    if model.doc_topic_prior is not None:
        raise DataError(
            f"n_components='auto' draws the document-topic prior, but doc_topic_prior="
            f"{shortened(model.doc_topic_prior)}: leave it None, take HDPTopicModel(alpha=...), or {fixed}"
        )
    off = {"optimize_priors": False, "warm_start": False, "n_draws": 0, "tol": None, "memory_limit": None}
    for name, value in off.items():
        own = getattr(model, name)
        if own is not None and own != value:
            raise DataError(
                f"n_components='auto' does not go with {name}={shortened(own)}: leave it out, or {fixed}"
            )
    for name in ("seed_words", "doc_labels", "topics"):
        if getattr(inputs, name) is not None:
            raise DataError(f"n_components='auto' with {name}=..., which names topics by number: {fixed}")


def program_that_finds(corpus, n_topics, beta, seed, options, *, alpha=None, gamma=None, exact=False):
    """The program of a fit that finds how many of `n_topics` topics are used."""
    from .blocks.program import TopicProgram
    from .samplers.hierarchical import Concentrations, HierarchicalGibbs

    concentrations = Concentrations(_MEAN if gamma is None else float(gamma), alpha is None, gamma is None)
    shares = np.full(n_topics, (_MEAN if alpha is None else float(alpha)) / n_topics)
    left_out = ("fits_priors", "annealed", "seeds")
    options = {name: value for name, value in options.items() if name not in left_out}
    sampler = HierarchicalGibbs(concentrations, merges=not exact)
    return TopicProgram(corpus, n_topics, shares, beta, seed, sampler=sampler, **options)


def used_topics(gathered):
    """Return the numbers of topics that have tokens."""
    return np.flatnonzero(np.asarray(gathered.words.sum(axis=0)).ravel())


def leave_out_unused(model, gathered):
    """Take topics without tokens out of a model."""
    used = used_topics(gathered)
    model.n_topics_, model.gamma_ = len(used), gathered.extra["gamma"]
    numbers = gathered.extra["numbers"]
    if len(numbers):
        ends = numbers[:, :1] + 1.645 * np.sqrt(numbers[:, 1:]) * [-1, 1]  # of 90 %
        low, high = np.rint([ends[:, 0].min(), ends[:, 1].max()])
        model.n_topics_interval_ = np.array([min(low, len(used)), max(high, len(used))], int)
    model.doc_topic_prior_ = model.doc_topic_prior_[used]
    model.word_topic_counts_ = sparse.csr_array(model.word_topic_counts_[:, used])
    if model.doc_topic_counts_ is not None:
        model.doc_topic_counts_ = sparse.csr_array(model.doc_topic_counts_[:, used])


def shares_of_used(gathered, shares):
    """Shares of documents over all topics, as shares over those that have tokens."""
    if shares is None:
        return None
    shares = shares[:, used_topics(gathered)]
    return shares / shares.sum(axis=1, keepdims=True)


def fingerprint_of_prior(program):
    """What a checkpoint of such a fit belongs to besides what one of plain LDA does."""
    sampler = program.sampler
    concentrations = sampler.concentrations
    return {
        "model": "hdp",
        "gamma": concentrations.gamma,
        "draws": [concentrations.draws_alpha, concentrations.draws_gamma],
        "total": sampler.concentration,
        "merges": sampler.merging.wanted,
    }


def warn_of_number(model, program, more):
    """Warn where the number was not found: the fit was too short, or the limit is nearly reached."""
    from .samplers.merging import FIRST_JUDGED

    n_topics, ended = program.n_topics, model.n_iter_ == model.max_iter
    message = None
    if program.sampler.merging.wanted and ended and model.n_iter_ < FIRST_JUDGED:
        message = (
            f"the fit ended after {model.n_iter_} sweeps, before leftovers were told from topics (sweep "
            f"{FIRST_JUDGED}): n_topics_={model.n_topics_} may be too many; raise max_iter"
        )
    elif ended and n_topics > 1 and model.n_topics_ > _NEARLY_ALL * n_topics:
        message = (
            f"n_topics_={model.n_topics_} is no number that was found: the limit of {n_topics} topics is "
            f"reached, and the data may have use for more; {more}"
        )
    if message is not None:
        warnings.warn(message, UserWarning, stacklevel=levels_to_user())
