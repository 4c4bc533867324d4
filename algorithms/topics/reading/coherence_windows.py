"""Coherence over texts: words that occur in the same sliding windows."""

import warnings

import numpy as np

from ....errors import DataError, shortened
from .coherence import c_npmi, c_v

WINDOWS = {"c_v": 110, "c_npmi": 10}  # tokens, as in Röder et al.


def windowed_coherence(top, vocabulary, texts, measure, window):
    """Coherence of each topic's words, `top` (topics x columns), over windows of `window` tokens."""
    from ....kernels.lda.documents.windows import count_windows

    words, place = np.unique(top, return_inverse=True)
    number = {vocabulary[w]: i for i, w in enumerate(words.tolist())}
    if len(number) < len(words):
        raise DataError("the vocabulary has a word twice: coherence over texts needs different words")
    tokens, starts = _numbers(tokens_of(texts, list(number)), number)
    place = place.ravel()
    order = np.argsort(place, kind="stable")
    word_start = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(words)))])
    together = np.zeros((len(top), top.shape[1], top.shape[1]), np.int64)
    which = order // top.shape[1], order % top.shape[1]
    n = count_windows(tokens, starts, np.int64(window), word_start, *which, together)
    if not together.any():
        raise DataError(
            "texts hold none of the topics' most probable words: are they of the model's language, and cut "
            "into words as its documents were?"
        )
    of_topic = {"c_v": c_v, "c_npmi": c_npmi}[measure]
    return np.array([of_topic(counts.astype(np.float64), n) for counts in together])


def tokens_of(texts, words):
    """Words of texts in their order: cut as `text_counts` does, or as they are where texts are lists.

    Warns if some of the model's `words` cannot be found by such cuts.
    """
    from ....datasets.texts import never_cut, words_in_order

    given = getattr(texts, "texts", texts)
    if isinstance(given, (list, tuple)) and len(given) and all(isinstance(t, (list, tuple)) for t in given):
        for row, text in enumerate(given):
            wrong = [word for word in text if not isinstance(word, str)]
            if wrong:
                raise DataError(f"texts: row {row} holds {shortened(wrong[0])}, where words are to be str")
        return given
    if never := never_cut(words):
        warnings.warn(
            f"{len(never):,} of {len(words):,} words of the model, such as {shortened(never[0])}, are no "
            "words as stradask.text_counts cuts texts, and are never found in them: give each text as a list "
            "of words, cut as for the fit",
            stacklevel=4,
        )
    return words_in_order(texts)


def _numbers(texts, number):
    """Numbers of words, -1 for others, of all texts one after the other, and where each begins."""
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
    tokens = np.fromiter((number.get(word, -1) for text in texts for word in text), np.int32, starts[-1])
    return tokens, starts
