"""Topics of several models matched with one another: which topics come back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from ....errors import DataError, shortened
from .comparison import check_names
from .top_words import topic_totals

NEAR = 0.5  # Hellinger distance of topics that are called the same


@dataclass(frozen=True, eq=False)
class TopicAlignment:
    """Topics of models matched with those of the first.

    Attributes
    ----------
    matches : ndarray of int, shape (n_models, n_components)
        ``matches[m, k]`` is the topic of model m that matches topic k of the first model; -1 if none is left,
        or if topic k has no tokens. Topics without tokens match nothing.
    distances : ndarray of shape (n_models, n_components)
        Hellinger distances of the matched topics, from 0 to 1; NaN without a match.
    nearest : ndarray of shape (n_models, n_components)
        Distance of each topic of the first model from the nearest topic of model m, matched or not.
    found : ndarray of shape (n_components,)
        Part of the other models whose match is nearer than 0.5. NaN, as `nearest`, of a topic without tokens.
    """

    matches: np.ndarray
    distances: np.ndarray
    nearest: np.ndarray

    @property
    def found(self):
        """See above."""
        return np.where(self.matches[0] < 0, np.nan, (self.distances[1:] < NEAR).mean(axis=0))

    def __str__(self):
        order = np.argsort(np.nan_to_num(self.distances[1:], nan=1.0).mean(axis=0), kind="stable")
        lines = ["topic  found in  distance, mean and largest"]
        for k in order:
            own = self.distances[1:, k]
            own = own[~np.isnan(own)]
            ends = f"{own.mean():.3f}  {own.max():.3f}" if len(own) else "no match"
            part = "" if np.isnan(self.found[k]) else f"{100 * self.found[k]:.0f} %"
            lines.append(f"{k:>5}  {part:>8}  {ends if part else 'no tokens'}")
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, names: Any = None, ax: Any = None) -> Any:
        """Draw the distances of each topic's matches, the topics that come back on top.

        Parameters
        ----------
        names : sequence of str of length n_components, optional
            Of the topics of the first model.
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.

        Returns
        -------
        matplotlib axes
        """
        from .plots import plot_alignment

        return plot_alignment(self.distances[1:], check_names(names, self.distances.shape[1]), NEAR, ax)


def align(models: Any) -> TopicAlignment:
    """Match topics of models that were fitted from other seeds, or to other corpora.

    Topics are matched one to one with those of the first model, so that the sum of the Hellinger distances
    ``sqrt(1 - sum_w sqrt(p_w q_w))`` of their word probabilities is least (an assignment problem). Models
    with different vocabularies are compared on the words that all have, on which probabilities then sum to 1.

    Parameters
    ----------
    models : sequence of fitted topic models
        Two or more.

    Returns
    -------
    TopicAlignment
        `matches`, `distances`, `nearest` and `found`; prints as a table; `plot` draws it.

    Raises
    ------
    DataError
        If there are fewer than two models, one is not fitted, or their columns differ and their words are not
        known or none is common to all.

    See Also
    --------
    LatentDirichletAllocation.stability : Fits the models, too.

    References
    ----------
    Greene, O'Callaghan, Cunningham, "How many topics? Stability analysis for topic models", ECML PKDD 2014;
    Kuhn, "The Hungarian method for the assignment problem", 1955.

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
    >>> models = [sd.LatentDirichletAllocation(2, max_iter=30, random_state=s).fit(X) for s in range(3)]
    >>> sd.align(models).found
    array([1., 1.])
    """
    models = list(models)
    if len(models) < 2:
        raise DataError(f"models has {len(models)}: give two fitted topic models or more")
    for number, model in enumerate(models):
        if not hasattr(model, "word_topic_counts_"):
            raise DataError(f"models[{number}] is a {type(model).__name__} without topics: fit it first")
    common = list(zip(models, _common(models), strict=True))
    roots = [_roots(*each) for each in common]
    used = [topic_totals(model.word_topic_counts_[columns]) > 0 for model, columns in common]
    matches, distances, nearest = [], [], []
    for other, theirs_used in zip(roots, used, strict=True):
        apart = _distances(roots[0], other)
        apart[~used[0]] = apart[:, ~theirs_used] = 1  # all that have only their prior are alike
        own, theirs = linear_sum_assignment(apart)
        paired = used[0][own] & theirs_used[theirs]
        own, theirs = own[paired], theirs[paired]
        match, distance = np.full(len(apart), -1), np.full(len(apart), np.nan)
        match[own], distance[own] = theirs, apart[own, theirs]
        matches.append(match)
        distances.append(distance)
        nearest.append(np.where(used[0], apart.min(axis=1), np.nan))
    return TopicAlignment(np.array(matches), np.array(distances), np.array(nearest))


def _common(models):
    """Columns of each model that stand for the same words."""
    words: list[Any] = [
        getattr(model, "vocabulary_", getattr(model, "feature_names_in_", None)) for model in models
    ]
    widths = [model.word_topic_counts_.shape[0] for model in models]
    known = [own for own in words if own is not None]
    if len(set(widths)) == 1 and all(list(own) == list(known[0]) for own in known):
        return [np.arange(width) for width in widths]
    unknown = next((number for number, own in enumerate(words) if own is None), None)
    if unknown is not None:
        raise DataError(
            f"models[{unknown}] does not know its words, and the models have {sorted(set(widths))} columns: "
            "fit with vocabulary=, or to the same columns"
        )
    places = [{str(word): column for column, word in enumerate(own)} for own in words]
    shared = sorted(set.intersection(*map(set, places)))
    if not shared:
        raise DataError(
            f"the models have no word in common (models[0] has {shortened(str(words[0][0]))}): fit them to "
            "texts of one language and spelling"
        )
    return [np.array([place[word] for word in shared]) for place in places]


def _roots(model, columns):
    """Square roots of word probabilities: what is above that of the prior (CSC), and that of the prior."""
    weights = sparse.csr_array(model._word_topic_weights)[columns].astype(np.float64)
    weights.eliminate_zeros()
    beta = model.topic_word_prior_[columns]
    totals = topic_totals(weights) + beta.sum()
    at = np.repeat(beta, np.diff(weights.indptr))
    roots = weights.copy()
    roots.data = np.sqrt(weights.data + at) - np.sqrt(at)
    return sparse.csc_array(roots), np.sqrt(beta), 1 / np.sqrt(totals)


def _distances(first, second):
    """Hellinger distances of all topics of two models."""
    (a, base_a, scale_a), (b, base_b, scale_b) = first, second
    products = (a.T @ b).toarray()
    products += (a.T @ base_b)[:, None] + (b.T @ base_a) + base_a @ base_b
    products *= scale_a[:, None] * scale_b
    return np.sqrt(np.clip(1 - products, 0, 1))
