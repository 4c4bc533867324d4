"""One page of HTML with a model's topics, their words and documents, which needs no server and no network."""

import copy
import json
import re
from importlib import resources
from typing import Any

import numpy as np

from ...._urls import write_atomic
from ....errors import DataError, shortened
from ..._intervals import interval_of_draws, least_draws
from ...inputs.matrices import check_counts
from ..blocks.draws import unpack
from . import comparison
from .plots import classical_scaling
from .top_words import check_whole

_SHOWN = 30  # words of a topic at a time; for any weight of relevance they are among those of these weights
_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of relevance, the steps of the slider
_DOCUMENTS, _LONG, _SHORT = 20, 400, 160  # documents of a topic; letters of these, and of other documents
_WORDS = (40, 16)  # of counts in place of texts: of documents of a topic, and of others
_MARKS = 60  # words of a document that are marked, at most
_BOOTSTRAPS, _MANY = 200, 1000  # from so many documents on, the normal distribution
_MOST_GROUPS = 200  # that a curve of shares can show
_FEWEST_TIMES = 3  # that a curve is drawn through
_DATE = re.compile(r"(\d{4}-\d{2}(?:-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d*)?)?)?)?)(Z|[+-]\d{2}:?\d{2})?")
_LEVEL = 0.9  # of intervals from draws
_NAME = 200  # letters of a document's name
_LEAST_PERCENT = 1  # of a word's tokens that a topic holds, to be shown on the map
_NEAR = 3  # topics like a topic
_LOST = 0.01  # of the tokens of a fit, in words that texts are not cut into
_ALIKE = 0.5  # correlation of lengths of texts with those of the fit, above which they are the same texts
_LOOKED_AT = 1000  # documents, for their words in their texts
_TIMES_OTHERS = 2  # as many words in their texts as in those of other rows: counts are of these texts
_REMEDY = "Pass X, their counts as in the fit, too (stradask explore MODEL COUNTS --texts TEXTS)"


def write_page(model, path, texts, X, vocabulary, names, groups, n_documents):
    """Write the page; see `TopicModel.explore`."""
    from ....datasets.texts import Texts, checked

    n_documents = check_whole("n_documents", n_documents, least=0)
    known = vocabulary is not None or hasattr(model, "vocabulary_") or hasattr(model, "feature_names_in_")
    vocabulary = np.asarray(model._vocabulary(vocabulary), dtype=str)
    if texts is not None:
        if not known:
            raise DataError(
                "texts needs the model's words: fit(X, vocabulary=words), or pass vocabulary=words"
            )
        names = texts.names if names is None and isinstance(texts, Texts) else names
        texts = checked(texts)
        shown = [text if isinstance(text, str) else " ".join(text) for text in texts]
        X, texts = _counts_of(model, texts, shown, X, vocabulary), shown
    elif X is not None:
        X = check_counts(model, X, reset=False)
    if X is not None:
        reader = copy.copy(model)
        vars(reader).pop("feature_names_in_", None)  # those of X are checked, and counts of texts have none
        shares, lengths = np.asarray(reader.transform(X)), np.asarray(X.sum(axis=1)).ravel()
    elif names is not None or groups is not None:
        lengths = np.asarray(model._fitted_documents().sum(axis=1)).ravel()
        shares = model.doc_topic_
    else:
        shares, lengths = np.zeros((0, len(model.doc_topic_prior_))), np.zeros(0)
    n = len(shares)
    for name, value in (("names", names), ("groups", groups)):
        if value is not None and not hasattr(value, "__len__"):
            raise DataError(f"{name} is {shortened(value)}: give a list of one entry for each document")
        if value is not None and len(value) != n:
            raise DataError(f"{name} has {len(value):,} entries for {n:,} documents: give one for each")
    names = np.arange(n).astype(str) if names is None else np.asarray(names, dtype=str)
    page = _Page(model, vocabulary).content(shares, lengths, X, texts, names, n_documents)
    page["title"] = f"{model.word_topic_counts_.shape[1]} topics"
    page["facts"] = _facts(model, n, len(page["documents"]))
    page["groups"] = (
        None if groups is None else _by_group(shares, lengths, groups, _drawn(model, X, lengths, groups))
    )
    # "<" cannot end the script, whatever the texts hold.
    data = json.dumps(page, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = data.replace("<", "\\u003c")
    form = resources.files(__package__).joinpath("explore.html").read_text(encoding="utf-8")
    page = form.replace("/*DATA*/", data).encode("utf-8", "replace")
    with write_atomic(path) as file:
        file.write(page)


def _counts_of(model, texts, shown, X, vocabulary):
    """Counts of texts, `X` if they are given; refuse what the model's words do not show."""
    from ....datasets.texts import never_cut, text_counts

    if X is not None:
        X = check_counts(model, X, reset=False)
        if X.shape[0] != len(texts):
            raise DataError(
                f"X has {X.shape[0]:,} rows for {len(texts):,} texts: give one for each, in order"
            )
        _check_words_are_in(shown, X, vocabulary)
        return X
    if not isinstance(texts[0], (list, tuple)):
        tokens = np.asarray(model.word_topic_counts_.sum(axis=1)).ravel()
        lost = np.isin(vocabulary, never_cut(vocabulary.tolist()))
        if tokens[lost].sum() > _LOST * tokens.sum():
            raise DataError(
                f"texts: {lost.sum():,} of {len(lost):,} words of the model, such as "
                f"{shortened(str(vocabulary[lost][0]))}, are never cut from texts by stradask.text_counts. "
                f"{_REMEDY}"
            )
    counted = text_counts(texts, vocabulary=vocabulary)
    n, unknown = int(counted.X.sum()), counted.left_out.get("not in the vocabulary", (0, 0))[1]
    before, are_like = model.doc_topic_counts_, False
    if before is not None and before.shape[0] == len(texts):
        before, now = (np.rint(np.asarray(counts.sum(axis=1)).ravel()) for counts in (before, counted.X))
        if (before == now).all():  # also where the fit's own stop words or limits left most words out
            return counted.X
        a, b = before - before.mean(), now - now.mean()
        # Other texts that are as many have lengths of their own.
        are_like = a @ b > _ALIKE * np.sqrt((a @ a) * (b @ b))
    if unknown > n:
        raise DataError(
            f"texts: the model does not know {unknown:,} of {unknown + n:,} words, stop words and numbers "
            f"aside: are they of the language and the kind that it was fitted to? {_REMEDY}"
        )
    if are_like:
        raise DataError(
            f"texts: they seem to be those of the fit, which had {int(before.sum()):,} tokens, where "
            f"stradask.text_counts counts {n:,} of the model's words. {_REMEDY}"
        )
    return counted.X


def _check_words_are_in(texts, X, vocabulary):
    """Refuse counts of words of which texts do not hold the most, nor far more than texts of other rows.

    Lemmas of some languages mostly are not in their texts as they are.
    """
    rows = np.flatnonzero(np.diff(X.indptr))
    rows = rows[:: 1 + len(rows) // _LOOKED_AT].tolist()

    def is_in(word, text):
        return word.lower().replace("_", " ") in text or word.lower() in text

    n_words, absent, n_in_others = 0, [], 0
    for k, row in enumerate(rows):
        text, other = texts[row].lower(), texts[rows[k - 1]].lower()
        words = vocabulary[X.indices[X.indptr[row] : X.indptr[row + 1]]].tolist()
        n_words += len(words)
        absent += [(row, word) for word in words if not is_in(word, text)]
        n_in_others += sum(is_in(word, other) for word in words)
    if 2 * len(absent) > n_words and n_words - len(absent) <= _TIMES_OTHERS * n_in_others:
        row, word = absent[0]
        raise DataError(
            f"texts: {len(absent):,} of {n_words:,} words that X counts are not in their texts, such as "
            f"{shortened(word)} in row {row}: give texts and rows of X in the same order, and texts with "
            "these words"
        )


def is_page(path):
    """Tell whether a file is a page of `write_page`."""
    with open(path, "rb") as file:
        return b'content="stradask explore"' in file.read(1000)


def _facts(model, n_documents, n_shown):
    tokens, (n_words, _) = int(model.word_topic_counts_.sum()), model.word_topic_counts_.shape
    documents = f", {n_shown:,} of {n_documents:,} documents on this page" if n_documents else ""
    return f"fitted to {tokens:,} tokens of {n_words:,} words{documents}"


class _Page:
    """Collects the words that the page shows; their numbers stand for them elsewhere."""

    def __init__(self, model, vocabulary):
        self.model, self.vocabulary = model, vocabulary
        self.shares = model._topic_shares()
        self.numbers: dict[int, int] = {}

    def number(self, words):
        return [self.numbers.setdefault(int(word), len(self.numbers)) for word in words]

    def content(self, shares, lengths, X, texts, names, n_documents):
        topics = self.topics()
        documents = self.documents(topics, shares, lengths, X, texts, names, n_documents)
        words = np.fromiter(self.numbers, np.int64, len(self.numbers))
        parts = np.array_split(words, 1 + len(words) // 4096)
        p, where = [], []
        for part in parts:
            joint = self.model._word_probabilities(part) * self.shares
            p.append(joint.sum(axis=1))
            where += _shares_of_words(joint / p[-1][:, None])
        names = self.vocabulary[words].tolist()
        found = {"words": names, "p": _short(np.concatenate(p)), "where": where}
        return found | {"topics": topics, "documents": documents}

    def topics(self):
        """Shares, places on the map, and the words that any weight of relevance puts first."""
        model, n_words = self.model, min(_SHOWN, len(self.vocabulary))
        ranked = [
            model.topics(self.vocabulary, n_words, rank_by="relevance", relevance_weight=weight).indices
            for weight in _WEIGHTS
        ]
        distances, used = model.topic_distances(), model._with_tokens()
        places = np.zeros((len(self.shares), 2))
        if len(used) > 1:
            places[used] = classical_scaling(distances[np.ix_(used, used)])
        topics = []
        for k, share in enumerate(self.shares):
            words = np.unique(np.concatenate([indices[k] for indices in ranked]))
            words = words[words >= 0]
            p = model._word_probabilities(words)[:, k]
            topic = {"share": float(share), "x": float(places[k, 0]), "y": float(places[k, 1])}
            near = used[np.argsort(distances[k, used], kind="stable")] if k in used else used[:0]
            topic["near"] = near[near != k][:_NEAR].tolist()
            topics.append(
                topic
                | {"words": self.number(words), "p": _short(p), "documents": [], "shares": [], "marks": []}
            )
        return topics

    def documents(self, topics, shares, lengths, X, texts, names, n_documents):
        """The best documents of each topic, and others by chance; fills in those of the topics."""
        for topic in topics:
            topic |= {"documents": [], "shares": [], "marks": []}
        with_words = np.flatnonzero(lengths > 0)
        if not len(with_words) or not n_documents:
            return []
        n_best = min(_DOCUMENTS, len(with_words), n_documents)
        numbers = np.arange(len(topics))
        best, their_shares = comparison.documents_by_shares(shares[with_words], numbers, n_best)
        best = with_words[best]
        seen = dict.fromkeys(best.T.ravel().tolist()[: max(n_documents, 1)])  # the first of each topic first
        others = np.setdiff1d(with_words, list(seen))
        chosen = np.random.default_rng(0).permutation(others)[: n_documents - len(seen)]
        place = {document: i for i, document in enumerate([*seen, *np.sort(chosen).tolist()])}
        marks: dict[int, list] = {}
        for k, topic in enumerate(topics):
            kept = [i for i, document in enumerate(best[k].tolist()) if document in place and topic["share"]]
            topic["documents"] = [place[int(best[k, i])] for i in kept]
            topic["shares"] = _short(their_shares[k, kept])
            rows = best[k, kept]
            found = [[] for _ in kept] if X is None else self.words_for(k, X[rows], shares[rows])
            topic["marks"] = [self.number(words) for words in found]
            for i, words in zip(kept, found, strict=True):
                marks.setdefault(int(best[k, i]), words)
        tops = np.argsort(-shares, axis=1, kind="stable")[:, :3]
        return [
            {
                "name": str(names[d])[:_NAME],
                "text": self.text(d, X, texts, marks.get(d)),
                "topics": tops[d].tolist(),
                "shares": _short(shares[d, tops[d]]),
            }
            for d in place
        ]

    def words_for(self, topic, counts, shares):
        """Words of each document that the topic explains best: argmax_j theta_dj phi_jw is the topic."""
        words, at = np.unique(counts.indices, return_inverse=True)
        phi = self.model._word_probabilities(words)
        found = []
        for i, theta in enumerate(shares):
            own = slice(counts.indptr[i], counts.indptr[i + 1])
            mine = (phi[at[own]] * theta).argmax(axis=1) == topic
            order = np.argsort(-counts.data[own][mine], kind="stable")[:_MARKS]
            found.append(counts.indices[own][mine][order])
        return found

    def text(self, document, X, texts, marked):
        """The part of a text with the most marked words; without texts the document's words."""
        if texts is None:
            if X is None:
                return ""
            own = slice(X.indptr[document], X.indptr[document + 1])
            words, counts = X.indices[own], X.data[own]
            order = np.argsort(-counts, kind="stable")[: _WORDS[marked is None]]
            pairs = zip(words[order], counts[order], strict=True)
            return ", ".join(f"{self.vocabulary[word]} {count}" for word, count in pairs)
        text = " ".join(texts[document].split())
        size = _SHORT if marked is None else _LONG
        if len(text) <= size:
            return text
        at = np.array(
            [
                0,
                *(
                    []
                    if marked is None or not len(marked)
                    else _starts(text, self.vocabulary[marked].tolist())
                ),
            ]
        )
        within = np.searchsorted(at, at + size - 20) - np.arange(len(at))
        within[0] -= not (len(at) > 1 and at[1] == 0)  # the beginning is a place, and no word
        start = int(at[within.argmax()])  # the first of the best
        start = max(0, min(start - 20, len(text) - size))
        return "…" * (start > 0) + text[start : start + size] + "…" * (start + size < len(text))


def _starts(text, words):
    """Where words begin in a text; of scripts without spaces anywhere."""
    from ....datasets.texts import without_spaces

    edge = "" if any(map(without_spaces, words)) else r"(?<!\w)"
    wanted = "|".join(re.escape(word).replace("_", "[_ ]") for word in words)
    return [found.start() for found in re.finditer(f"{edge}(?:{wanted})", text, re.IGNORECASE)]


def _shares_of_words(shares):
    """Of each word the topics that hold 1 % of its tokens or more, each followed by its percentage."""
    percent = np.rint(100 * shares).astype(int)
    found = []
    for own in percent:
        topics = np.flatnonzero(own >= _LEAST_PERCENT)
        found.append(np.column_stack([topics, own[topics]]).ravel().tolist())
    return found


def _drawn(model, X, lengths, groups):
    """Shares of groups with posterior intervals, if the documents are those of a fit with draws enough.

    X are those of the fit where lengths and totals of words agree. Documents that are all of one length could
    be in another order.
    """
    counts, draws = model.doc_topic_counts_, getattr(model, "draws_", None) or []
    if len(draws) < least_draws(_LEVEL) or counts is None or counts.shape[0] != len(lengths):
        return None
    if X is not None:
        kinds, shape = ("words", "keywords"), model.word_topic_counts_.shape
        drawn = [unpack(draws[0], kind, shape) for kind in kinds if f"{kind}_sizes" in draws[0]]
        words = sum(np.asarray(part.sum(axis=1)).ravel() for part in drawn)
        alike = np.array_equal(np.asarray(X.sum(axis=0)).ravel(), words)
        alike = alike and np.array_equal(np.asarray(counts.sum(axis=1)).ravel(), lengths)
        if not alike or (len(lengths) > 1 and np.ptp(lengths) == 0):
            return None
    return model.topics_by_group(_labels(groups), level=_LEVEL)


def _labels(groups):
    """Groups as they are; of a list an array of objects, since NumPy would make texts of missing labels."""
    return np.fromiter(groups, object, len(groups)) if isinstance(groups, (list, tuple)) else groups


def _by_group(shares, lengths, groups, drawn=None):
    """Mean shares of groups, documents weighted by their tokens, and 90 % intervals.

    `drawn` has posterior intervals, of the documents of a fit with draws. Without it they are over documents,
    by the bootstrap, and from 1,000 documents on by the normal distribution with the linearised standard
    error of a ratio. A group without tokens has no share, one document no interval over documents.
    """
    labels, codes = comparison.group_codes(_labels(groups), len(shares))
    if len(labels) > _MOST_GROUPS:
        raise DataError(
            f"groups has {len(labels):,} different labels, such as {shortened(str(labels[0]))}: give at most "
            f"{_MOST_GROUPS}, for instance years in place of days"
        )
    rng = np.random.default_rng(0)
    names = [str(label) for label in labels]
    order, places = _in_time(names)
    made: dict[str, Any] = {"names": [names[group] for group in order], "share": [], "low": [], "high": []}
    made["at"] = places
    made["kind"] = "over documents" if drawn is None else "of the posterior"
    if drawn is not None:
        for name, values in (("share", drawn.shares), ("low", drawn.low), ("high", drawn.high)):
            made[name] = [_short(values[group]) if drawn.tokens[group] > 0 else None for group in order]
        return made
    for group in order:
        chosen = (codes == group) & (lengths > 0)
        own, weights = shares[chosen], lengths[chosen]
        if not len(own):
            for name in ("share", "low", "high"):
                made[name].append(None)
            continue
        share = weights @ own / weights.sum()
        made["share"].append(_short(share))
        if len(own) == 1:
            low = high = None
        elif len(own) < _MANY:
            drawn = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=_BOOTSTRAPS) * weights
            sums = drawn.sum(axis=1, keepdims=True)
            low, high = map(_short, interval_of_draws((drawn @ own) / sums, _LEVEL))
        else:
            error = np.sqrt(((weights[:, None] * (own - share)) ** 2).sum(axis=0)) / weights.sum()
            low, high = (
                _short(np.maximum(share - 1.645 * error, 0)),
                _short(np.minimum(share + 1.645 * error, 1)),
            )
        made["low"].append(low)
        made["high"].append(high)
    return made


def _in_time(names):
    """The order of groups, and their places in it to scale where all names are numbers, dates or months."""
    order = list(range(len(names)))
    if len(names) < _FEWEST_TIMES:
        return order, None
    try:
        places = np.array([float(name) for name in names])
    except ValueError:
        found = [_DATE.fullmatch(name) for name in names]
        if not all(found) or len({match[2] for match in found if match}) > 1:  # one zone of time
            return order, None
        try:
            times = np.array([np.datetime64(match[1][:26]) for match in found if match], "datetime64[us]")
        except ValueError:  # the thirteenth month
            return order, None
        places = (times - times.min()).astype(np.int64) / 1e6
    if not np.isfinite(places).all() or len(np.unique(places)) < len(places):
        return order, None
    rising = np.argsort(places, kind="stable")
    places = places[rising] - places[rising[0]]  # so that seconds apart differ in nine digits
    return rising.tolist(), [float(f"{place:.9g}") for place in places]


def _short(values):
    """Numbers with four digits, which keep the page small."""
    return [float(f"{value:.4g}") for value in np.asarray(values, float).tolist()]
