"""Texts as input: their words are counted; `text_files` reads them."""

import itertools
import os
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .._typing import Names
from ..errors import DataError, shortened
from .text_files import Texts

# Python's \w lacks marks, such as the vowel signs of Hebrew, Arabic, Indic and Thai scripts: without them
# such words fall into pieces. Underscores and joiners stand inside a word, points and commas inside a number.
_SIGNS = "".join(chr(c) for c in range(0x300, 0xAC00) if unicodedata.category(chr(c))[0] == "M")
_WORD = re.compile(rf"[^\W_]+(?:(?:[_\u200c\u200d]+[^\W_]|[{_SIGNS}]|(?<=\d)[.,](?=\d))[^\W_]*)*")
_LETTER = re.compile(r"[^\W\d_]")
# Letters of scripts without spaces between words, and the mean length from which their runs are clauses. Cut
# into words it is about half as long. A run of katakana alone mostly is a word.
_HAN, _THAI = "\u3400-\u9fff\U00020000-\U0003ffff", "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_UNSPACED = {re.compile(f"[\u3040-\u309f{_HAN}]"): 3, re.compile(f"[{_THAI}]"): 9}  # Lao, Burmese, Khmer too
_ALONE = re.compile(f"[{_THAI}\u3040-\u30ff{_HAN}\uac00-\ud7a3]")  # a word may be a single one of these
_UNCUT, _FEW = 0.5, 0.01  # shares of clauses in all letters: refused from here on, and not worth a warning
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
        How many words, and of how many tokens, were left out for each reason.
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
        return "\n  ".join([*lines, *said_of(self.left_out, int(self.X.sum()))]) + ">"


def text_counts(
    texts: Iterable[str] | Iterable[Sequence[str]] | Texts,
    *,
    vocabulary: Names | None = None,
    min_df: int | float | str = "auto",
    max_df: int | float | str = "auto",
    stop_words: str | Names | None = "auto",
    lowercase: bool = True,
) -> TextCounts:
    """Count the words of texts, for topic models and sparse linear models.

    A word is a run of letters and digits, which are never cut apart ("2nd", "covid19", "new_york"). Numbers
    and single letters are left out; of Chinese, Japanese, Korean and Thai single letters are words.
    Texts are brought to the Unicode form NFKC first.

    Chinese, Japanese, Thai, Lao, Burmese and Khmer have no spaces between words: cut such texts into words
    first, by jieba, fugashi or PyThaiNLP for instance, and give lists of words, or words joined by spaces.

    Parameters
    ----------
    texts : iterable of str, iterable of lists of str, or Texts
        A list, a Series, a generator, or what `stradask.datasets.read_texts` returns. Lists are words already
        and are counted as they are. Missing values (None, NaN) count as empty texts, with a warning.
    vocabulary : sequence of str, optional
        Count these words, in this order, and no others: those of a fitted model (``lda.vocabulary_``), so
        that new texts have its columns. The limits below do not apply then, and numbers and single letters
        are counted if they are among these.
    min_df : int, float or "auto", default="auto"
        Leave out words in fewer texts than this; a float is a share of the texts. "auto" is 1 below 100
        texts, 2 below 1,000, and else the greater of 5 and one in 20,000.
    max_df : int, float or "auto", default="auto"
        Leave out words in more texts than this; a float is a share of the texts. "auto" is half of the texts,
        and all of them below 100 texts.
    stop_words : "auto", "english", sequence of str or None, default="auto"
        Words to leave out. "english" is scikit-learn's list, with the pieces of contractions ("don", "ll").
        "auto" takes it if one token in five is on it, so that texts are in English, and none otherwise. A
        sequence means these words alone.
    lowercase : bool, default=True

    Returns
    -------
    TextCounts
        Unpacks to ``X, vocabulary``; printed, it says what was left out, and which share of the tokens.

    Raises
    ------
    DataError
        If `texts` is a single text, a table, or holds anything but texts; if no word is left; if most of the
        texts is in a script without spaces, and not cut into words.

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
    documents, prepare, cut = _choose_cutting(texts, lowercase)
    names = texts.names if isinstance(texts, Texts) else np.arange(len(documents)).astype(str)
    if vocabulary is not None:
        return _of_vocabulary(documents, names, [str(word) for word in vocabulary], prepare, cut)
    lowest, highest = _limits(min_df, max_df, len(documents))
    X, words = _count(documents, cut)
    df = np.bincount(X.indices, minlength=X.shape[1])
    sums = np.asarray(X.sum(axis=0), dtype=np.int64).ravel()
    reasons = {}
    if cut is not list:
        check_cut(words, sums)
        reasons = _no_words(words)
    plain = ~np.logical_or.reduce([np.zeros(len(words), bool), *reasons.values()])
    stops, which = _stop_words(stop_words, words[plain], sums[plain], prepare, cut)
    reasons[which] = plain & np.isin(words, stops)
    plain &= ~reasons[which]
    reasons[f"in fewer than {lowest:,} texts"] = plain & (df < lowest)
    reasons[f"in more than {highest:,} texts"] = plain & (df > highest)
    left_out = _sizes(reasons, sums)
    kept = np.flatnonzero(plain & (df >= lowest) & (df <= highest))
    if not len(kept):
        raise DataError(
            f"texts: no word is left of {len(words):,} ({'; '.join(said_of(left_out, 0))}); lower min_df, "
            "raise max_df, set stop_words=None, or give lists of words, which are counted as they are"
        )
    return TextCounts(sparse.csr_matrix(X[:, kept]), words[kept], names, left_out)


def said_of(left_out, n_kept):
    """What was left out of texts, in words, the share of tokens first; a list, empty if nothing was."""
    gone = {why: sizes for why, sizes in left_out.items() if sizes[1]}
    n_tokens = sum(tokens for _, tokens in gone.values())
    share = f"left out: {100 * n_tokens / max(n_tokens + n_kept, 1):.1f} % of the tokens"
    return [share] * bool(gone) + [f"{n:,} words {why} ({t:,} tokens)" for why, (n, t) in gone.items()]


def words_in_order(texts, vocabulary):
    """Words of texts in their order, as `text_counts` makes them, stop words too: a list for each text."""
    documents, prepare, cut = _choose_cutting(texts)
    if cut is list:
        return documents
    _warn_of_never_cut(vocabulary, prepare)
    also, pieces = {*vocabulary}, [cut(text) for text in documents]
    sums = Counter(itertools.chain.from_iterable(pieces))
    words = np.array([*sums], dtype=str)
    check_cut(words, np.fromiter(sums.values(), np.int64, len(sums)), np.isin(words, [*also]))
    return [[word for word in words if word in also or _is_word(word)] for words in pieces]


def words_of(text):
    """Words of a text in lower case, of two letters or digits or more."""
    return [word for word in _WORD.findall(_lower(text)) if len(word) > 1 or _ALONE.match(word)]


def never_cut(words, prepare=None):
    """Words that no text is cut into: with blanks, hyphens or capitals."""
    prepare = prepare or _lower
    return [word for word in words if _WORD.findall(prepare(word)) != [word]]


def without_spaces(text):
    """Whether a text has letters of a script without spaces between words."""
    return any(letters.search(text) for letters in _UNSPACED)


def check_cut(words, sums, known=None):
    """Refuse clauses of scripts without spaces; warn where they are few, or `known` words are counted."""
    signs = sums * np.fromiter(map(len, words), np.int64, len(words))
    for letters, most in _UNSPACED.items():
        runs = np.fromiter((letters.search(word) is not None for word in words), bool, len(words))
        runs &= True if known is None else ~known
        n, share = int(sums[runs].sum()), signs[runs].sum() / max(signs.sum(), 1)
        if share < _FEW or signs[runs].sum() <= most * n:
            continue
        example = shortened(max(words[runs], key=len))
        message = (
            f"texts: {n:,} of {int(sums.sum()):,} words, such as {example}, are clauses of a script without "
            "spaces between words: cut the texts into words first, for instance by jieba, fugashi or "
            "PyThaiNLP, and give lists of words, or words joined by spaces"
        )
        if known is None and share >= _UNCUT:
            raise DataError(message)
        warnings.warn(message, stacklevel=4)


# Counting -----------------------------------------------------------------------------------------------


def _choose_cutting(texts, lowercase=True):
    """Texts, and how a word is prepared and a text is cut: by `list` where texts are lists of words."""
    documents = checked(texts)
    if any(isinstance(text, (list, tuple)) for text in documents):
        return documents, str, list
    prepare = _lower if lowercase else _normal
    return documents, prepare, lambda text: _WORD.findall(prepare(text))


def checked(texts):
    """Take texts as a list; missing ones become empty."""
    if isinstance(texts, Texts):
        return texts.texts
    if isinstance(texts, (str, bytes, os.PathLike)):
        raise DataError(
            f"texts is one text, {shortened(texts)}: give a list of texts, or what "
            "stradask.datasets.read_texts reads from a file"
        )
    if hasattr(texts, "columns") or isinstance(texts, dict) or sparse.issparse(texts):
        raise DataError("texts is a table: give its column of texts, for instance frame['text']")
    if not isinstance(texts, Iterable):
        raise DataError(f"texts is {shortened(texts)}: give a list of texts")
    # Parquet files and Arrow have lists of words as arrays.
    texts = [text.tolist() if isinstance(text, np.ndarray) and text.ndim == 1 else text for text in texts]
    missing, of_words = 0, any(isinstance(text, (list, tuple)) for text in texts)
    for row, text in enumerate(texts):
        if text is None or (isinstance(text, float) and text != text) or type(text).__name__ == "NAType":
            texts[row], missing = [] if of_words else "", missing + 1
        elif not isinstance(text, (list, tuple) if of_words else str):
            remedy = "decode it first" if isinstance(text, bytes) else "texts must be str"
            remedy = "others are lists of words" if of_words else remedy
            raise DataError(f"texts: row {row} holds {shortened(text)}, a {type(text).__name__}: {remedy}")
        elif of_words and (wrong := [word for word in text if not isinstance(word, str)]):
            raise DataError(f"texts: row {row} holds {shortened(wrong[0])}, where words are to be str")
    if not texts:
        raise DataError("texts is empty; give one text or more")
    if missing:
        warnings.warn(
            f"{missing:,} of {len(texts):,} texts are missing and count as empty; drop them if their "
            "rows are not needed",
            stacklevel=4,
        )
    return texts


def _normal(text):
    return unicodedata.normalize("NFKC", text).replace("\u00ad", "")  # soft hyphens


def _is_word(word):
    return _LETTER.search(word) is not None and (len(word) > 1 or _ALONE.match(word) is not None)


def _no_words(words):
    """Which are numbers, and which single letters."""
    numbers = np.array([_LETTER.search(word) is None for word in words], bool)
    return {"that are numbers": numbers, "of one letter": ~numbers & ~np.array([*map(_is_word, words)], bool)}


def _sizes(reasons, sums):
    """How many words, and tokens, were left out for each reason."""
    return {why: (int(gone.sum()), int(sums[gone].sum())) for why, gone in reasons.items()}


def _warn_of_never_cut(words, prepare):
    never = never_cut(words, prepare)
    if never:
        warnings.warn(
            f"vocabulary: {len(never):,} of {len(words):,} words, such as {shortened(never[0])}, are no "
            "words as text_counts makes them, and are never counted: give each text as a list of words, cut "
            "as for the fit",
            stacklevel=5,
        )


def _of_vocabulary(texts, names, words, prepare, cut):
    """Count some words; say how many others there are, and which can never be counted."""
    if len(set(words)) < len(words) or not words:
        raise DataError("vocabulary must hold words that are all different; give each word once")
    if cut is not list:
        _warn_of_never_cut(words, prepare)
    if not any(map(cut, texts)):
        return TextCounts(
            sparse.csr_matrix((len(texts), len(words)), dtype=np.int32), np.array(words), names, {}
        )
    X, found = _count(texts, cut)
    column = {word: j for j, word in enumerate(words)}
    at = np.array([column.get(word, -1) for word in found])
    known, sums = at >= 0, np.asarray(X.sum(axis=0), dtype=np.int64).ravel()
    entries = (np.ones(known.sum(), np.int32), (np.flatnonzero(known), at[known]))
    counts = sparse.csr_matrix(X @ sparse.csr_matrix(entries, shape=(len(found), len(words)), dtype=np.int32))
    counts.sort_indices()
    reasons = {}
    if cut is not list:
        check_cut(found, sums, known)
        reasons = _no_words(found)
        reasons["on the English stop list"] = np.isin(found, _english()) & ~reasons["of one letter"]
    unknown = ~np.logical_or.reduce([known, *reasons.values()])
    reasons = {why: gone & ~known for why, gone in reasons.items()} | {"not in the vocabulary": unknown}
    return TextCounts(counts, np.array(words), names, _sizes(reasons, sums))


def _english():
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return sorted(ENGLISH_STOP_WORDS.union(_PIECES.split()))


def _lower(text):
    return _normal(text).lower()


def _count(texts, cut):
    """Counts and words, alphabetical, by scikit-learn."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=cut, dtype=np.int32)
    try:
        X = sparse.csr_matrix(vectorizer.fit_transform(texts))
    except ValueError as error:  # its message names neither the argument nor what it saw
        raise DataError(
            f"texts: the {len(texts):,} texts hold no word, such as "
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


def _stop_words(given, words, sums, prepare, cut):
    """The words to leave out, and what they are called."""
    if given is None:
        return [], "on no list"
    if isinstance(given, str):
        if given not in ("auto", "english"):
            raise DataError(
                f'stop_words is {shortened(given)}: give "auto", "english", a list of words or None'
            )
        english = _english()
        share = sums[np.isin(words, english)].sum() / max(sums.sum(), 1)
        return (english if given == "english" or share >= _ENGLISH else []), "on the English stop list"
    stops = list(given)
    if not all(isinstance(word, str) for word in stops):
        raise DataError("stop_words must be words; give a list of str")
    if lists := {"auto", "english"}.intersection(stops):
        raise DataError(
            f'stop_words is a list that holds "{min(lists)}", the name of a list: for English and more '
            "words give [*sklearn.feature_extraction.text.ENGLISH_STOP_WORDS, ...]; write the word itself in "
            "capitals"
        )
    listed = {prepare(word) for word in stops}
    pieces = {} if cut is list else {word: cut(word) for word in stops if prepare(word) not in cut(word)}
    lost = {word: cuts for word, cuts in pieces.items() if any(len(p) > 1 and p not in listed for p in cuts)}
    if lost:
        word, cuts = next(iter(lost.items()))
        warnings.warn(
            f"stop_words: {len(lost):,} of {len(stops):,}, such as {shortened(word)}, are cut into pieces "
            f"({shortened(' '.join(cuts))}) and are never left out: list the pieces",
            stacklevel=3,
        )
    return sorted(listed), "on the list of stop words"
