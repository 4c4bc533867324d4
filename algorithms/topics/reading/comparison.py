"""Topics against documents: which documents show a topic best, and how topics spread over groups of them."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ....errors import DataError, in_brief, shortened
from ...inputs.matrices import check_text
from .times import in_order
from .top_words import best_of_columns, first, largest


class RepresentativeDocuments(NamedTuple):
    """Documents with the largest shares of topics.

    Attributes
    ----------
    indices : ndarray of int, shape (n_components, n_documents), or (n_documents,) of one topic
        Rows, the largest share first.
    shares : ndarray of that shape
    """

    indices: np.ndarray
    shares: np.ndarray


def documents_by_counts(doc_topic, alpha, topics, n_documents):
    """Best documents of topics by ``(C_dk + alpha_k) / (L_d + sum alpha)``."""
    lengths = np.asarray(doc_topic.sum(axis=1)).ravel() + alpha.sum()
    # Without a count of the topic, the shortest document has the largest share.
    leaders = first(-lengths, n_documents)
    score = partial(_shares, alpha[topics], lengths)
    return best_of_columns(sparse.csc_array(doc_topic)[:, topics], leaders, n_documents, score)[:2]


def _shares(alpha, lengths, topics, documents, counts, known):
    return (counts + alpha[topics, None]) / lengths[documents]


def documents_by_shares(shares, topics, n_documents):
    """Best documents of topics by given shares, documents x topics."""
    return largest(np.ascontiguousarray(shares[:, topics].T), n_documents)


@dataclass(frozen=True, eq=False)
class TopicPrevalence:
    """How much of the text of each group is of each topic.

    Attributes
    ----------
    groups : ndarray of shape (n_groups,)
        The labels in order, those of text by the numbers or dates that it holds; of categories in theirs.
    shares : ndarray of shape (n_groups, n_components)
        Part of the group's tokens that the topic holds. Rows sum to 1; NaN in a group without tokens.
    tokens : ndarray of int, shape (n_groups,)
    low, high : ndarrays of the shape of `shares`, or None
        Ends of posterior intervals, where they were asked for.
    """

    groups: np.ndarray
    shares: np.ndarray
    tokens: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def plot(self, ax=None, topics=None, names=None):
        """Draw the shares of topics over the groups: lines over numbers and times, else points.

        Intervals are bands around lines and bars at points.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.
        topics : int or sequence of int, optional
            By default the six with most tokens.
        names : sequence of str of length n_components, optional
            Of all topics, for the legend.

        Returns
        -------
        matplotlib axes

        Raises
        ------
        StradaskError
            If matplotlib is not installed.
        """
        from .plots import plot_prevalence

        n_topics = self.shares.shape[1]
        if topics is None:
            topics = first(self.tokens @ np.nan_to_num(self.shares), min(6, n_topics))
        else:
            topics = check_topics(topics, n_topics)
        return plot_prevalence(self, topics, check_names(names, n_topics), ax)


def prevalence(doc_topic, groups):
    """Add up the topic counts of documents by their labels; see `TopicModel.topics_by_group`."""
    labels, codes = group_codes(groups, doc_topic.shape[0])
    places = (np.ones(len(codes), np.int64), (codes, np.arange(len(codes))))
    belongs = sparse.csr_array(places, shape=(len(labels), len(codes)))
    counts = (belongs @ doc_topic).toarray().astype(np.float64)
    tokens = counts.sum(axis=1)
    shares = np.full(counts.shape, np.nan)
    np.divide(counts, tokens[:, None], out=shares, where=tokens[:, None] > 0)
    return TopicPrevalence(labels, shares, tokens.astype(np.int64))


def group_codes(groups, n_documents, name="groups", *, unused=False):
    """Return the labels that occur, in order, and for each document the place of its own.

    With `unused` categories that no document has are labels as well.
    """
    categorical = _categorical(groups)
    if categorical is not None:
        codes, labels = np.asarray(categorical.codes), np.asarray(categorical.categories)
        _check_labels(name, codes < 0, codes.shape, n_documents)
        if not unused:
            used, codes = np.unique(codes, return_inverse=True)
            labels = labels[used]
    else:
        if np.ma.is_masked(groups):
            raise DataError(f"{name} has masked labels: leave their documents out, or name a group for them")
        check_text(name, groups)
        try:
            labels = np.asarray(groups)
        except ValueError as error:  # nested to different depths
            raise DataError(f"{name} must be a vector of one label a document: {in_brief(error)}") from error
        _check_labels(name, _missing(labels), labels.shape, n_documents)
        try:
            labels, codes = np.unique(labels, return_inverse=True)
        except TypeError as error:
            raise DataError(
                f"{name} cannot be put in order ({error}): make all labels of one kind, for instance str"
            ) from error
    if has_order(groups):
        return labels, codes
    order = in_order(labels)
    return labels[order], np.argsort(order)[codes]


def _categorical(groups):
    categorical = getattr(groups, "cat", groups)  # of a pandas Series; a Categorical has them itself
    return categorical if hasattr(categorical, "categories") and hasattr(categorical, "codes") else None


def has_order(groups):
    """Whether labels are categories in an order that someone chose, rather than that of text."""
    categorical = _categorical(groups)
    if categorical is None:
        return False
    names = [str(name) for name in categorical.categories]
    return bool(categorical.ordered) or names != sorted(names)


def _check_labels(name, missing, shape, n_documents):
    if shape != (n_documents,):
        raise DataError(
            f"{name} has the shape {shape}; pass one label for each of the {n_documents} fitted documents"
        )
    if missing.any():
        raise DataError(
            f"{name} has no label for document {np.flatnonzero(missing)[0]}: give it one, such as 'unknown'"
        )


def _missing(labels):
    """Where labels are None, NaN, NaT or NA: what is not equal to itself, or does not know."""
    if labels.dtype.kind != "O":
        return labels != labels  # as NaN and NaT are
    same = [label == label for label in labels.ravel()]
    known = [isinstance(answer, (bool, np.bool_)) and bool(answer) for answer in same]
    absent = [label is None for label in labels.ravel()]
    return np.array(absent, bool) | ~np.array(known, bool)


def check_topics(topics, n_components):
    """Check numbers of topics; return them as a vector."""
    try:
        found = np.atleast_1d(np.asarray(topics))
    except ValueError as error:  # nested to different depths
        raise DataError(f"topics must be numbers of topics: {in_brief(error)}") from error
    if found.ndim != 1 or len(found) == 0 or found.dtype.kind not in "iu":
        raise DataError(f"topics={shortened(topics)} must be a whole number or a sequence of them")
    wrong = np.flatnonzero((found < 0) | (found >= n_components))
    if len(wrong):
        raise DataError(f"there is no topic {found[wrong[0]]}: topics go from 0 to {n_components - 1}")
    if len(np.unique(found)) < len(found):
        raise DataError(f"topics={shortened(topics)} names a topic twice")
    return found.astype(np.int64)


def check_names(names, n_components):
    """Check names of topics; by default their numbers."""
    if names is None:
        return [str(k) for k in range(n_components)]
    if isinstance(names, (str, bytes)) or not hasattr(names, "__len__") or len(names) != n_components:
        raise DataError(f"names must be a sequence of {n_components} str, one for each topic")
    return [str(name) for name in names]
