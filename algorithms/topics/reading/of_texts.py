"""Reading a topic model against texts: coherence over windows, and topics of single tokens."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Matrix, Names
from ....errors import DataError, shortened
from ..._base import Estimator
from ...inputs.matrices import check_counts
from .coherence import MEASURES, coherence
from .coherence_windows import WINDOWS, windowed_coherence
from .tokens import TokenTopics, in_order_of_texts
from .top_words import check_choice, check_whole


class TopicsOfTexts(Estimator):
    """Coherence, and topics of tokens; a base of `TopicModel`."""

    def coherence(
        self,
        X: Matrix | None = None,
        measure: str = "npmi",
        n_words: int = 10,
        *,
        texts: Any = None,
        window: int | None = None,
        vocabulary: Names | None = None,
    ) -> Array:
        """Compute each topic's coherence against counts, or against windows that slide over texts.

        With D(i) and D(i, j) the documents of `X` that hold a word and both words of a pair, and
        p = D / n_samples, over the `n_words` most probable words of the topic::

            npmi    mean over pairs of log(p(i, j) / (p(i) p(j))) / -log p(i, j), from -1 to 1
            umass   mean over pairs of log((D(i, j) + 1) / D(j)), j the more probable word
            c_v     mean over words i of cos(v_i, sum_j v_j), v_i the NPMI of i with every word, i included
            c_npmi  as npmi, but 1e-12 is added to p(i, j), as in its paper

        Of counts, which keep no order of words, the window is the document. With `texts`, D are windows of
        110 words in ``"c_v"`` and of 10 in ``"c_npmi"``, one at each place; a text that is shorter is one
        window. These are the numbers that literature quotes. gensim's are the same but for texts in which a
        word occurs twice within a window: there it takes the word out of windows with its first occurrence.

        In ``"npmi"`` a pair that never meets has -1, a pair in every document 1; within ``"c_v"`` 1e-12 is
        added to p(i, j), and a word in no document counts as 0. In ``"umass"`` a pair whose j is in
        no document is left out, and a topic of only such pairs is NaN. gensim's u_mass has the same pairs and
        mean, but adds 1e-12 to p(i, j) where this adds 1 to D(i, j), as Mimno et al. (2011) do, and counts a
        pair whose j is in no document as 0.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Reference counts.
        measure : {"npmi", "umass", "c_v", "c_npmi"}, default="npmi"
            With `texts` ``"c_v"`` or ``"c_npmi"``.
        n_words : int, default=10
            At least 2.
        texts : sequence of str, Texts, or sequence of lists of str, optional
            In place of `X`. Texts are cut into words as by `stradask.text_counts`, stop words and rare ones
            kept; lists are words already. A warning names top words that are in no text, and words that are
            never cut so, as those with hyphens.
        window : int, optional
            Words of a window, with `texts`; by default as above.
        vocabulary : sequence of str of length n_features, optional
            As in `topics`; with `texts` the words of the columns must be known.

        Returns
        -------
        ndarray of shape (n_components,)
            Higher is better; the mean over topics is what papers quote. NaN of a topic without tokens, whose
            most probable words are any: ``numpy.nanmean``.

        Raises
        ------
        DataError
            If `X` does not hold counts of the words of the fit, or an argument is out of its range; if both
            `X` and `texts` are given, or most top words are in no text.

        References
        ----------
        Mimno et al., "Optimizing semantic coherence in topic models", EMNLP 2011 (UMass); Bouma,
        "Normalized (pointwise) mutual information in collocation extraction", GSCL 2009; Lau, Newman,
        Baldwin, EACL 2014 (NPMI); Röder, Both, Hinneburg, "Exploring the space of topic coherence
        measures", WSDM 2015 (C_v).

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> lda.coherence(X, "c_v", n_words=2)
        array([1., 1.])
        """
        check_is_fitted(self, "word_topic_counts_")
        check_choice("measure", measure, MEASURES)
        n_words = check_whole("n_words", n_words)
        if min(n_words, self.n_features_in_) < 2:
            raise DataError(
                f"n_words={n_words} of {self.n_features_in_}: coherence is about pairs, take at least 2 words"
            )
        if (X is None) == (texts is None):
            raise DataError("coherence is computed from X or from texts: give one of them")
        if texts is None:
            if window is not None:
                raise DataError(f"window={shortened(window)} needs texts: counts have no order of words")
            X = check_counts(self, X, reset=False, need_tokens=True)
            return self._of_all_topics(coherence(self._top_words(n_words)[self._with_tokens()], X, measure))
        if measure not in WINDOWS:
            check_choice("with texts, measure", measure, tuple(WINDOWS))
        window = WINDOWS[measure] if window is None else check_whole("window", window)
        top, names = self._top_words(n_words)[self._with_tokens()], self._names_of_words(vocabulary)
        return self._of_all_topics(windowed_coherence(top, names, texts, measure, window))

    def topics_of_tokens(
        self,
        X: Any,
        *,
        vocabulary: Names | None = None,
        n_sweeps: int = 200,
        all_probabilities: bool = False,
    ) -> TokenTopics:
        r"""Infer the topic of each token of documents, the topics' words fixed.

        A token's probabilities of topics, given all words of its document,

        .. math:: p(z_{di} = k \mid w_d) = E\left[\frac{(C_{dk}^{-i} + \alpha_k) \phi_{kw}}
                  {\sum_j (C_{dj}^{-i} + \alpha_j) \phi_{jw}}\right],

        are averaged over a Gibbs chain of the document. So "bank" may be of one topic in one text and of
        another in the next. Tokens of the same word of a document have the same probabilities.

        Parameters
        ----------
        X : matrix of counts, a text, a sequence of texts, or of lists of words
            Of texts, words are cut as by `stradask.text_counts` and keep their order; words that the model
            does not know are listed with the topic -1.
        vocabulary : sequence of str of length n_features, optional
            As in `topics`. For texts the words of the columns must be known.
        n_sweeps : int, default=200
            At least 10; the first 15 % only warm up.
        all_probabilities : bool, default=False
            Keep those of all topics: 8 bytes for each entry and topic.

        Returns
        -------
        TokenTopics
            `documents`, `columns`, `words`, `topics`, `probabilities`, an entry a document and distinct word,
            of texts an entry a word in order; `of` lists a document. A notebook shows words in the colours of
            their topics. The same for any `n_jobs` and whatever other documents there are.

        Raises
        ------
        DataError
            If `X` is neither counts nor texts, or the words of the model are not known.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> words = ["river", "bank", "money", "loan"]
        >>> X = np.repeat([[5, 2, 0, 0], [0, 2, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X, vocabulary=words)
        >>> found = lda.topics_of_tokens(["the bank of the river", "money in the bank"])
        >>> first, second = ({word: topic for word, topic, _ in found.of(d)} for d in (0, 1))
        >>> first["bank"] == first["river"], second["bank"] == second["money"], first["the"]
        (True, True, -1)
        >>> first["bank"] == second["bank"]
        False
        """
        from ....datasets.texts import text_counts, words_in_order

        check_is_fitted(self, "word_topic_counts_")
        self._validate_params()
        texts, X = None, list(X) if isinstance(X, Iterator) else X
        if isinstance(X, str) or _are_texts(X):
            names = self._names_of_words(vocabulary)
            texts = words_in_order([X] if isinstance(X, str) else X, names)
            X = text_counts(texts, vocabulary=names).X
        else:
            names = self._vocabulary(vocabulary)
        X = check_counts(self, X, reset=False)
        topics, shares, whole = self._token_topics(X, n_sweeps, all_probabilities)
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        columns = X.indices.astype(np.int64)
        words = [] if texts is not None else [names[w] for w in columns.tolist()]
        found = TokenTopics(rows, columns, words, topics, shares, whole)
        return found if texts is None else in_order_of_texts(texts, names, found)

    def _names_of_words(self, vocabulary):
        """Words of the columns, which must be known."""
        if vocabulary is None and not ("vocabulary_" in vars(self) or hasattr(self, "feature_names_in_")):
            raise DataError(
                "texts need the model's words: fit(X, vocabulary=words), or pass vocabulary=words here"
            )
        return [str(word) for word in self._vocabulary(vocabulary)]

    def _token_topics(self, X, n_sweeps, whole):
        from ..inference import FixedTopics, token_topics

        options = {"random_state": self.random_state, "n_jobs": self.n_jobs, "whole": whole}
        return token_topics(FixedTopics.of(self), X, n_sweeps=n_sweeps, **options)


def _are_texts(X):
    """Whether these are texts, or lists of words, and not rows of numbers."""
    given = getattr(X, "texts", X)
    if sparse.issparse(given) or getattr(given, "ndim", 1) != 1 or not hasattr(given, "__iter__"):
        return False
    first = next(iter(given), None)
    if isinstance(first, (list, tuple)):
        return all(isinstance(word, str) for row in given for word in row[:1])
    return isinstance(first, str) or first is None
