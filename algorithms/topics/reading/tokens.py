"""Topics of single tokens: of the words of counted documents, or of texts in their order."""

import html
from dataclasses import dataclass

import numpy as np

_COLOURS = "#4477aa #ee6677 #228833 #ccbb44 #66ccee #aa3377 #bbbbbb".split()  # noqa: SIM905
_MOST_SHOWN = 20  # documents in a notebook


@dataclass(frozen=True, eq=False)
class TokenTopics:
    """The most probable topic of each token, and its posterior probability.

    Of counts there is an entry for each document and distinct word; of texts one for each word, in order.

    Attributes
    ----------
    documents : ndarray of int, shape (n_entries,)
        Rows of X, or numbers of texts; ascending.
    columns : ndarray of int, shape (n_entries,)
        Columns of the words; -1 for a word that the model does not know.
    words : list of str
        Of each entry.
    topics : ndarray of int, shape (n_entries,)
        -1 where the word was not in the fit.
    probabilities : ndarray of shape (n_entries,)
        Of that topic; NaN where the word was not in the fit.
    all_probabilities : ndarray of shape (n_entries, n_components), or None
        Of all topics, if they were asked for.
    """

    documents: np.ndarray
    columns: np.ndarray
    words: list
    topics: np.ndarray
    probabilities: np.ndarray
    all_probabilities: np.ndarray | None = None

    def __len__(self):
        return len(self.words)

    def of(self, document):
        """Return word, topic and probability of each entry of a document."""
        here = slice(*np.searchsorted(self.documents, [document, document + 1]))
        found = self.topics[here].tolist(), self.probabilities[here].tolist()
        return list(zip(self.words[here], *found, strict=True))

    def __repr__(self):
        n = len(np.unique(self.documents))
        return (
            f"<TokenTopics: {len(self.words):,} entries of {n:,} documents; .of(0) lists those of the first>"
        )

    def _repr_html_(self):
        """Show a notebook the words in the colours of their topics, paler where a topic is less probable."""
        lines = []
        for document in np.unique(self.documents)[:_MOST_SHOWN].tolist():
            spans = [_marked(*entry) for entry in self.of(document)]
            lines.append(f"<p><b>{document}</b> {' '.join(spans)}</p>")
        return "".join(lines)


def _marked(word, topic, probability):
    if topic < 0:
        return html.escape(word)
    share = round(100 * min(max(probability, 0.0), 1.0))
    style = (
        f"border-bottom:3px solid color-mix(in srgb, {_COLOURS[topic % len(_COLOURS)]} {share}%, transparent)"
    )
    return f'<span style="{style}" title="topic {topic}, {probability:.2f}">{html.escape(word)}</span>'


def in_order_of_texts(texts, vocabulary, found):
    """Give each word of texts the entry of its document and column in `found`, of the counts of these."""
    number = {word: column for column, word in enumerate(vocabulary)}
    words = [word for text in texts for word in text]
    columns = np.fromiter((number.get(word, -1) for word in words), np.int64, len(words))
    documents = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    width = len(vocabulary) + 1
    keys = found.documents * width + found.columns
    order = np.argsort(keys, kind="stable")
    wanted = documents * width + columns
    at = np.searchsorted(keys[order], wanted)
    known = columns >= 0
    place = order[at[known]]
    topics, probabilities = np.full(len(words), -1), np.full(len(words), np.nan)
    topics[known], probabilities[known] = found.topics[place], found.probabilities[place]
    whole = found.all_probabilities
    if whole is not None:
        whole, there = np.full((len(words), whole.shape[1]), np.nan), whole
        whole[known] = there[place]
    return TokenTopics(documents, columns, words, topics, probabilities, whole)
