"""Texts as input: their words are counted; `text_files` reads them."""

import os
import re
import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .._typing import Names
from ..errors import DataError, shortened
from .text_files import Texts

# Two letters or more. Python's \w has no vowel signs of Hebrew, Arabic, Indic and Thai scripts, so these
# are added: without them such words fall into pieces.
_SIGNS = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e"
)
_WORD = re.compile(rf"(?:[^\W\d_]|[{_SIGNS}]){{2,}}")
# What contractions leave behind, which scikit-learn's English list lacks.
_PIECES = (
    "ain aren couldn didn doesn don hadn hasn haven isn ll mustn needn shan shouldn ve wasn weren won wouldn"
)
_ENGLISH = 0.2  # share of tokens in the English list from which texts count as English (others: below 0.1)


@dataclass(frozen=True, eq=False)
class TextCounts:
    """Word counts of texts; unpacks to ``X, vocabulary``.

    Attributes
    ----------
    X : csr_matrix of int32, shape (n_texts, n_words)
    vocabulary : ndarray of str, shape (n_words,)
        The word of each column, in alphabetical order, or the one given.
    names : ndarray of str, shape (n_texts,)
        Where each text is from, or its number.
    left_out : dict
        How many words, and of how many tokens, each limit left out.
    """

    X: sparse.csr_matrix
    vocabulary: np.ndarray
    names: np.ndarray
    left_out: dict

    def __iter__(self):
        return iter((self.X, self.vocabulary))

    def __repr__(self):
        n_texts, n_words = self.X.shape
        lines = [f"<TextCounts: {n_texts:,} texts, {n_words:,} words, {int(self.X.sum()):,} tokens"]
        lines += [
            f"  left out: {n:,} words {why} ({t:,} tokens)" for why, (n, t) in self.left_out.items() if n
        ]
        return "\n".join(lines) + ">"


def text_counts(
    texts: Iterable[str] | Texts,
    *,
    vocabulary: Names | None = None,
    min_df: int | float | str = "auto",
    max_df: int | float | str = "auto",
    stop_words: str | Names | None = "auto",
    lowercase: bool = True,
) -> TextCounts:
    """Count the words of texts, for topic models and sparse linear models.

    A word is a run of two letters or more, in any script that puts space between words. Digits, punctuation
    and single letters are left out. Texts are brought to the Unicode form NFKC first.

    Parameters
    ----------
    texts : iterable of str, or Texts
        A list, a Series, a generator, or what `stradask.datasets.read_texts` returns. Missing values (None,
        NaN) count as empty texts, with a warning.
    vocabulary : sequence of str, optional
        Count these words, in this order, and no others: those of a fitted model (``lda.vocabulary_``), so
        that new texts have its columns. The limits below do not apply then.
    min_df : int, float or "auto", default="auto"
        Leave out words in fewer texts than this; a float is a share of the texts. "auto" is 1 below 100
        texts, 2 below 1,000, and else the greater of 5 and one in 20,000.
    max_df : int, float or "auto", default="auto"
        Leave out words in more texts than this; a float is a share of the texts. "auto" is half of the texts,
        and all of them below 100 texts.
    stop_words : "auto", "english", sequence of str or None, default="auto"
        Words to leave out. "english" is scikit-learn's list, with the pieces of contractions ("don", "ll").
        "auto" takes it if one token in five is on it, so that texts are in English, and none otherwise.
    lowercase : bool, default=True

    Returns
    -------
    TextCounts
        Unpacks to ``X, vocabulary``; printed, it says what was left out.

    Raises
    ------
    DataError
        If `texts` is a single text, a table, or holds anything but texts; if no word is left.

    See Also
    --------
    stradask.datasets.read_texts : Texts from tables, folders and files of lines.

    Examples
    --------
    >>> import stradask as sd
    >>> reviews = ["Clean room, friendly staff", "The staff was rude", "A clean and quiet room"]
    >>> counts = sd.text_counts(reviews)
    >>> counts.vocabulary.tolist()
    ['clean', 'friendly', 'quiet', 'room', 'rude', 'staff']
    >>> lda = sd.LatentDirichletAllocation(2, random_state=0).fit(counts.X, vocabulary=counts.vocabulary)
    >>> new, _ = sd.text_counts(["a quiet room"], vocabulary=lda.vocabulary_)
    >>> lda.transform(new).shape
    (1, 2)
    """
    given = texts.texts if isinstance(texts, Texts) else _checked(texts)
    names = texts.names if isinstance(texts, Texts) else np.arange(len(given)).astype(str)
    prepare = _lower if lowercase else _normal
    if vocabulary is not None:
        return _of_vocabulary(given, names, [str(word) for word in vocabulary], prepare)
    lowest, highest = _limits(min_df, max_df, len(given))
    X, words = _count(given, prepare)
    df = np.bincount(X.indices, minlength=X.shape[1])
    sums = np.asarray(X.sum(axis=0), dtype=np.int64).ravel()
    stops, which = _stop_words(stop_words, words, sums, prepare)
    listed = np.isin(words, stops) if stops else np.zeros(len(words), bool)
    reasons = {
        which: listed,
        f"in fewer than {lowest:,} texts": ~listed & (df < lowest),
        f"in more than {highest:,} texts": ~listed & (df > highest),
    }
    kept = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))
    left_out = {why: (int(gone.sum()), int(sums[gone].sum())) for why, gone in reasons.items()}
    if not len(kept):
        said = ", ".join(f"{n:,} {why}" for why, (n, _) in left_out.items() if n)
        raise DataError(
            f"texts: no word is left of {len(words):,} ({said}); lower min_df, raise max_df, or set "
            "stop_words=None"
        )
    return TextCounts(sparse.csr_matrix(X[:, kept]), words[kept], names, left_out)


def words_in_order(texts):
    """Words of texts in their order, as `text_counts` makes them, stop words too: a list for each text."""
    given = texts.texts if isinstance(texts, Texts) else _checked(texts)
    return [_WORD.findall(_lower(text)) for text in given]


def never_cut(words, prepare=None):
    """Words that no text is cut into: with digits, capitals, blanks, or of one letter."""
    prepare = _lower if prepare is None else prepare
    return [word for word in words if _WORD.findall(prepare(word)) != [word]]


# Counting -----------------------------------------------------------------------------------------------


def _checked(texts):
    """Take texts as a list; missing ones become empty."""
    if isinstance(texts, (str, bytes, os.PathLike)):
        raise DataError(
            f"texts is one text, {shortened(texts)}: give a list of texts, or what "
            "stradask.datasets.read_texts reads from a file"
        )
    if hasattr(texts, "columns") or isinstance(texts, dict) or sparse.issparse(texts):
        raise DataError("texts is a table: give its column of texts, for instance frame['text']")
    if not isinstance(texts, Iterable):
        raise DataError(f"texts is {shortened(texts)}: give a list of texts")
    texts = list(texts)
    missing = 0
    for row, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if text is None or (isinstance(text, float) and text != text) or type(text).__name__ == "NAType":
            texts[row], missing = "", missing + 1
        else:
            remedy = "decode it first" if isinstance(text, bytes) else "texts must be str"
            raise DataError(f"texts: row {row} holds {shortened(text)}, a {type(text).__name__}: {remedy}")
    if not texts:
        raise DataError("texts is empty; give one text or more")
    if missing:
        warnings.warn(
            f"{missing:,} of {len(texts):,} texts are missing and count as empty; drop them if their "
            "rows are not needed",
            stacklevel=3,
        )
    return texts


def _normal(text):
    return unicodedata.normalize("NFKC", text)


def _of_vocabulary(texts, names, words, prepare):
    """Count some words; say how many others there are, and which can never be counted."""
    if len(set(words)) < len(words) or not words:
        raise DataError("vocabulary must hold words that are all different; give each word once")
    never = never_cut(words, prepare)
    if never:
        warnings.warn(
            f"vocabulary: {len(never):,} of {len(words):,} words, such as {shortened(never[0])}, are no "
            "words as text_counts makes them, and are never counted: count the texts as for the model",
            stacklevel=4,
        )
    if not any(map(_WORD.search, texts)):
        return TextCounts(
            sparse.csr_matrix((len(texts), len(words)), dtype=np.int32), np.array(words), names, {}
        )
    X, found = _count(texts, prepare)
    column = {word: j for j, word in enumerate(words)}
    at = np.array([column.get(word, -1) for word in found])
    known = np.flatnonzero(at >= 0)
    entries = (np.ones(len(known), np.int32), (known, at[known]))
    counts = sparse.csr_matrix(X @ sparse.csr_matrix(entries, shape=(len(found), len(words)), dtype=np.int32))
    counts.sort_indices()
    unknown = (len(found) - len(known), int(X.sum(dtype=np.int64) - counts.sum(dtype=np.int64)))
    return TextCounts(counts, np.array(words), names, {"not in the vocabulary": unknown})


def _lower(text):
    return _normal(text).lower()


def _count(texts, prepare):
    """Counts and words, alphabetical, by scikit-learn."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(
        preprocessor=prepare,
        tokenizer=_WORD.findall,
        token_pattern=None,
        dtype=np.int32,
    )
    try:
        X = sparse.csr_matrix(vectorizer.fit_transform(texts))
    except ValueError as error:  # its message names neither the argument nor what it saw
        raise DataError(
            f"texts: the {len(texts):,} texts hold no word of two letters or more, such as "
            f"{shortened(next(filter(None, texts), ''))}; give texts in a script that has words"
        ) from error
    X.sort_indices()
    return X, vectorizer.get_feature_names_out().astype(str)


def _limits(min_df, max_df, n):
    """Numbers of texts: at least, and at most."""

    def number(name, value):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if whole and value >= 1:
            return int(value)
        if isinstance(value, (float, np.floating)) and 0 <= value <= 1:
            return value * n
        remedy = "give a number of texts from 1 on, or a share from 0.0 to 1.0"
        raise DataError(f"{name} is {shortened(value)}: {remedy}")

    automatic = 1 if n < 100 else 2 if n < 1000 else max(5, n // 20_000)
    lowest = automatic if min_df == "auto" else max(1, int(np.ceil(number("min_df", min_df))))
    most = (0.5 if n >= 100 else 1.0) if max_df == "auto" else max_df
    highest = int(np.floor(number("max_df", most)))
    if highest < lowest:
        raise DataError(
            f"max_df={max_df} allows words in at most {highest:,} of {n:,} texts, and min_df={min_df} needs "
            f"{lowest:,}: raise max_df or lower min_df"
        )
    return lowest, highest


def _stop_words(given, words, sums, prepare):
    """The words to leave out, and what they are called."""
    if given is None:
        return [], "on no list"
    if isinstance(given, str):
        if given not in ("auto", "english"):
            raise DataError(
                f'stop_words is {shortened(given)}: give "auto", "english", a list of words or None'
            )
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        english = sorted(ENGLISH_STOP_WORDS.union(_PIECES.split()))
        share = sums[np.isin(words, english)].sum() / max(sums.sum(), 1)
        return (english if given == "english" or share >= _ENGLISH else []), "on the English stop list"
    stops = list(given)
    if not all(isinstance(word, str) for word in stops):
        raise DataError("stop_words must be words; give a list of str")
    return [prepare(word) for word in stops], "on the list of stop words"
