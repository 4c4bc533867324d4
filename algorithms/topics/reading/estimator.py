"""Reading a fitted topic model: its words, how good and how different topics are, and where they occur."""

from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Matrix, Names
from ....errors import DataError, shortened
from ...inputs.matrices import check_counts, check_vocabulary
from . import comparison, numbers
from .distances import METRICS, topic_distances
from .of_texts import TopicsOfTexts
from .top_words import Topics, check_choice, check_whole, first, top_words, topic_totals
from .uncertainty import TopicIntervals

_MOST_DRAWN = 100  # topics of a picture, where the caller does not choose


class ReadableTopics(TopicIntervals, TopicsOfTexts):
    """What the attributes of a fitted topic model tell its reader; the base of `TopicModel`."""

    def topics(
        self,
        vocabulary: Names | None = None,
        n_words: int = 10,
        *,
        rank_by: str = "probability",
        relevance_weight: float = 0.6,
        frex_weight: float = 0.5,
    ) -> Topics:
        """List the words that stand for each topic.

        With phi_kw the probability of word w in topic k, words are ranked by::

            probability   phi_kw
            relevance     lambda log phi_kw + (1 - lambda) log(phi_kw / p_w)
            frex          1 / (omega / E_k(phi_kw / sum_j phi_jw) + (1 - omega) / F_k(phi_kw))

        Relevance and FREX prefer words that other topics lack. p_w is the word's probability in the corpus;
        E_k and F_k are the empirical distribution functions of exclusivity and frequency in topic k.

        Parameters
        ----------
        vocabulary : sequence of str of length n_features, optional
            By default `vocabulary_`, if it was set (`stradask fit --vocab` does), else the feature names seen
            in `fit`, else the indices.
        n_words : int, default=10
            A smaller vocabulary is listed whole.
        rank_by : {"probability", "relevance", "frex"}, default="probability"
        relevance_weight : float, default=0.6
            lambda, from 0 (lift) to 1 (probability).
        frex_weight : float, default=0.5
            omega, from 0 (frequency) to 1 (exclusivity).

        Returns
        -------
        Topics
            A list of lists of words that prints as a table; its `shares`, `probabilities`, `weights` (what
            the words are ranked by) and `indices` are arrays. A topic without tokens has no words: an empty
            list, NaN, and -1 in `indices`.

        Raises
        ------
        DataError
            If the vocabulary does not fit, or another argument is out of its range.

        References
        ----------
        Sievert, Shirley, "LDAvis: a method for visualizing and interpreting topics", ACL workshop 2014
        (relevance); Bischof, Airoldi, "Summarizing topical content with word frequency and exclusivity",
        ICML 2012 (FREX).

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[9, 5, 3, 0, 0], [9, 0, 0, 5, 3]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> vocabulary = ["the", "cat", "dog", "sun", "sea"]
        >>> sorted(sorted(words) for words in lda.topics(vocabulary, n_words=2))
        [['cat', 'the'], ['sun', 'the']]
        >>> lift = lda.topics(vocabulary, n_words=2, rank_by="relevance", relevance_weight=0.0)
        >>> sorted(sorted(words) for words in lift)
        [['cat', 'dog'], ['sea', 'sun']]
        """
        check_is_fitted(self, "word_topic_counts_")
        vocabulary = self._vocabulary(vocabulary)
        used = self._with_tokens()
        ranked = top_words(
            self._word_topic_weights[:, used],
            self.topic_word_prior_,
            n_words,
            rank_by,
            relevance_weight=relevance_weight,
            frex_weight=frex_weight,
        )
        words, weights, probabilities = map(self._of_all_topics, ranked)
        named = [[vocabulary[w] for w in row if w >= 0] for row in words.tolist()]
        return Topics(named, self._topic_shares(), probabilities, weights, words, rank_by)

    def number_measures(self) -> dict[str, float]:
        """Compute measures by which a number of topics is chosen, each over models of several numbers.

        With p_k the word probabilities of topic k::

            cao_juan   mean over pairs of topics of cos(p_j, p_k)                        lower is better
            deveaud    mean over pairs of (KL(p_j, p_k) + KL(p_k, p_j)) / 2              higher is better
            arun       KL(a, b) + KL(b, a), a the singular values of topics x words,     lower is better
                       b the tokens of topics by `doc_topic_`, sorted, with sums of 1
            griffiths  log of the harmonic mean of p(w | z) over the draws of the fit    higher is better

        The first three know the fitted topics alone. The last is known for its high variance. `perplexity` of
        documents that were held out measures more directly what a model knows.

        Returns
        -------
        dict of float
            ``"arun"`` only where the fit has the topics of its documents, ``"griffiths"`` only with
            `n_draws`. Topics without tokens are left out. NaN of a single topic, where there are no pairs;
            ``"arun"`` is infinite where topics are linearly dependent.

        References
        ----------
        Cao, Xia, Li, Zhang, Tang, Neurocomputing 2009; Deveaud, SanJuan, Bellot, Document numérique 2014;
        Arun, Suresh, Veni Madhavan, Narasimha Murthy, PAKDD 2010; Griffiths, Steyvers, PNAS 2004.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> found = lda.number_measures()
        >>> round(found["cao_juan"], 2), round(found["deveaud"], 1)
        (0.0, 9.2)
        """
        check_is_fitted(self, "word_topic_counts_")
        n_words = self.word_topic_counts_.shape[0]
        used = self._with_tokens()
        products, logarithms = numbers.overlaps(
            lambda words: self._word_probabilities(words)[:, used], n_words
        )
        found = {"cao_juan": numbers.cao_juan(products), "deveaud": numbers.deveaud(logarithms)}
        if self.doc_topic_counts_ is not None:
            lengths = np.asarray(self.doc_topic_counts_.sum(axis=1)).ravel()
            found["arun"] = numbers.arun(products, self.doc_topic_[:, used], lengths)
        if draws := getattr(self, "draws_", None):
            found["griffiths"] = numbers.griffiths([self._log_words(draw) for draw in draws])
        return found

    def _log_words(self, draw):
        return numbers.log_words(draw, self.word_topic_counts_.shape, getattr(self, "seed_prior_", None))

    def topic_diversity(self, n_words: int = 25) -> float:
        """Compute the part of distinct words among the most probable words of all topics.

        Parameters
        ----------
        n_words : int, default=25
            Of each topic; fewer in a smaller vocabulary.

        Returns
        -------
        float
            1 if no two topics share a word, 1 / n if all n list the same ones. Topics without tokens are
            left out.

        Raises
        ------
        DataError
            If `n_words` is not a whole number of at least 1.

        References
        ----------
        Dieng, Ruiz, Blei, "Topic modeling in embedding spaces", TACL 2020.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> lda.topic_diversity(n_words=2), lda.topic_diversity(n_words=4)
        (1.0, 0.5)
        """
        check_is_fitted(self, "word_topic_counts_")
        top = self._top_words(n_words)[self._with_tokens()]
        return len(np.unique(top)) / top.size

    def topic_distances(self, metric: str = "jensen-shannon", topics: Any = None) -> Array:
        """Compute the distances between topics as distributions over words.

        With p and q the word probabilities of two topics and m = (p + q) / 2::

            jensen-shannon   sqrt((KL(p, m) + KL(q, m)) / 2), from 0 to sqrt(log 2)
            hellinger        sqrt(1 - sum_w sqrt(p_w q_w)), from 0 to 1
            cosine           1 - p.q / (|p| |q|), from 0 to 1

        The first two obey the triangle inequality. No matrix of topics x words is made: time is of the order
        of the non-zeros of `word_topic_counts_` times the number of topics, the logarithms of
        ``"jensen-shannon"`` making it the slowest.

        Parameters
        ----------
        metric : {"jensen-shannon", "hellinger", "cosine"}, default="jensen-shannon"
        topics : int or sequence of int, optional
            Only these; by default all. The result takes 8 bytes for each pair.

        Returns
        -------
        ndarray of shape (n_topics, n_topics)
            Symmetric with zeros on the diagonal, as ``scipy.spatial.distance.squareform`` takes it. A topic
            without tokens has no distance from others: NaN.

        Raises
        ------
        DataError
            If the metric is unknown or there is no such topic.

        References
        ----------
        Endres, Schindelin, "A new metric for probability distributions", IEEE Transactions on Information
        Theory 2003.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> lda.topic_distances("hellinger").round(2)
        array([[0.  , 0.99],
               [0.99, 0.  ]])
        """
        check_is_fitted(self, "word_topic_counts_")
        check_choice("metric", metric, METRICS)
        chosen = self._topics(topics)
        distances = topic_distances(self._word_topic_weights[:, chosen], self.topic_word_prior_, metric)
        unused = np.isin(chosen, self._with_tokens(), invert=True)
        distances[unused] = distances[:, unused] = np.nan
        np.fill_diagonal(distances, 0)
        return distances

    def representative_documents(
        self, topic: int | None = None, n_documents: int = 5, X: Matrix | None = None, *, min_tokens: int = 20
    ) -> comparison.RepresentativeDocuments:
        """Find the documents with the largest share of each topic.

        Parameters
        ----------
        topic : int, optional
            By default all topics.
        n_documents : int, default=5
            Of each topic; fewer where fewer are long enough.
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features), optional
            Counts of documents whose shares `transform` finds. By default those of the fit, whose shares
            are `doc_topic_`.
        min_tokens : int, default=20
            Shorter documents are left out: their shares say little.

        Returns
        -------
        RepresentativeDocuments
            A pair of `indices` and `shares`, each of shape (n_components, n_documents), or of shape
            (n_documents,) if `topic` is given; the largest share first, ties by index. A topic without tokens
            has none: -1, and NaN as share.

        Raises
        ------
        DataError
            If there is no such topic or no document is long enough.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> indices, shares = lda.representative_documents(n_documents=2, min_tokens=10)
        >>> sorted(indices.tolist()), shares.round(2).tolist()
        ([[0, 1], [20, 21]], [[0.99, 0.99], [0.99, 0.99]])
        """
        check_is_fitted(self, "word_topic_counts_")
        n_documents = check_whole("n_documents", n_documents)
        min_tokens = check_whole("min_tokens", min_tokens, least=0)
        if topic is not None and not isinstance(topic, Integral):
            raise DataError(f"topic={shortened(topic)} must be the number of a topic, or None for all")
        chosen = self._topics(topic)
        counts = self._fitted_documents() if X is None else check_counts(self, X, reset=False)
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        rows = np.flatnonzero(lengths >= min_tokens)
        if not len(rows):
            raise DataError(
                f"no document has min_tokens={min_tokens} tokens (the longest has {lengths.max(initial=0)}): "
                "take a smaller min_tokens"
            )
        n_documents = min(n_documents, len(rows))
        if X is None:
            found = self._most_of(chosen, rows, n_documents)
        else:
            found = comparison.documents_by_shares(np.asarray(self.transform(X))[rows], chosen, n_documents)
        unused = np.isin(chosen, self._with_tokens(), invert=True)[:, None]
        indices, shares = np.where(unused, -1, rows[found[0]]), np.where(unused, np.nan, found[1])
        one = slice(None) if topic is None else 0
        return comparison.RepresentativeDocuments(indices[one], shares[one])

    def to_ldavis(self, X: Matrix, vocabulary: Names | None = None) -> dict[str, Any]:
        """Return what ``pyLDAvis.prepare`` takes: ``pyLDAvis.prepare(**lda.to_ldavis(X))``.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            The documents of the last `fit` or `partial_fit`.
        vocabulary : sequence of str of length n_features, optional
            As in `topics`.

        Returns
        -------
        dict
            ``topic_term_dists`` and ``doc_topic_dists`` (dense, n_components x n_features and n_samples x
            n_components, rows summing to 1; of a document without words the prior's mean), ``doc_lengths``,
            ``vocab`` and ``term_frequency``.

        Raises
        ------
        DataError
            If `X` are other documents than those of the fit.

        Examples
        --------
        >>> import numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> list(lda.to_ldavis(X, ["cat", "dog", "sun", "sea"]))
        ['topic_term_dists', 'doc_topic_dists', 'doc_lengths', 'vocab', 'term_frequency']
        """
        check_is_fitted(self, "word_topic_counts_")
        vocabulary = self._vocabulary(vocabulary)
        X = check_counts(self, X, reset=False)
        lengths = np.asarray(X.sum(axis=1)).ravel()
        fitted = np.rint(self._fitted_documents().sum(axis=1)).ravel()  # of pairs of words, these are shares
        if len(lengths) != len(fitted):
            raise DataError(
                f"X has {len(lengths)} documents, but the model was fitted to {len(fitted)}: pass those"
            )
        other = np.flatnonzero(lengths != fitted)
        if len(other):
            raise DataError(
                f"X has {lengths[other[0]]} tokens in row {other[0]}, where the fitted document has "
                f"{fitted[other[0]]}: pass the documents of the fit in their order"
            )
        return {
            "topic_term_dists": self.topic_word_,
            "doc_topic_dists": self.doc_topic_,
            "doc_lengths": lengths,
            "vocab": vocabulary,
            "term_frequency": np.asarray(X.sum(axis=0)).ravel(),
        }

    def plot_topics(
        self,
        kind: str = "map",
        *,
        metric: str = "jensen-shannon",
        vocabulary: Names | None = None,
        n_words: int = 3,
        topics: Any = None,
        ax: Any = None,
    ) -> Any:
        """Draw how topics lie to each other.

        ``"map"`` places topics in the plane by classical multidimensional scaling of `topic_distances`, as
        circles whose areas are the topics' shares of the tokens; ``"dendrogram"`` joins them in a tree by
        average linkage.

        Parameters
        ----------
        kind : {"map", "dendrogram"}, default="map"
        metric : {"jensen-shannon", "hellinger", "cosine"}, default="jensen-shannon"
        vocabulary : sequence of str of length n_features, optional
            As in `topics`.
        n_words : int, default=3
            Most probable words next to the number of each topic in the tree; the map has numbers only.
        topics : sequence of int, optional
            By default all that have tokens, or the 100 with most where there are more.
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.

        Returns
        -------
        matplotlib axes

        Raises
        ------
        DataError
            If an argument is out of its range, or a tree of a single topic is asked for.
        StradaskError
            If matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib.figure, numpy as np, stradask as sd
        >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
        >>> lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X)
        >>> ax = lda.plot_topics("dendrogram", n_words=1, ax=matplotlib.figure.Figure().subplots())
        >>> len(ax.get_yticklabels())
        2
        """
        check_is_fitted(self, "word_topic_counts_")
        check_choice("kind", kind, ("map", "dendrogram"))
        shares = self._topic_shares()
        if topics is None:
            topics = np.sort(first(shares, min(_MOST_DRAWN, len(self._with_tokens()))))
        topics = self._topics(topics)
        if not shares[topics].all():
            raise DataError(f"topic {topics[shares[topics] == 0][0]} has no tokens: leave it out of topics")
        if kind == "dendrogram" and len(topics) < 2:
            raise DataError("a dendrogram joins topics: there must be two or more")
        names = [str(k) for k in topics]
        if kind == "dendrogram":
            words = self.topics(vocabulary, n_words)
            names = [f"{k}  {' '.join(words[k])}" for k in topics]
        distances = self.topic_distances(metric, topics)
        from .plots import plot_map, plot_tree

        if kind == "dendrogram":
            return plot_tree(distances, names, ax)
        return plot_map(distances, shares[topics], names, ax)

    # Parts --------------------------------------------------------------------------------------

    @property
    def _word_topic_weights(self):
        """What is added to `topic_word_prior_`: counts, and the weights of seed words."""
        seeds = getattr(self, "seed_prior_", None)
        return self.word_topic_counts_ if seeds is None else sparse.csr_array(self.word_topic_counts_ + seeds)

    def _fitted_documents(self):
        """Topic counts of the fitted documents, unless they were left in shards."""
        if self.doc_topic_counts_ is None:
            raise DataError(
                "the fit left the topics of its documents where they lay, in files or with Dask: fit a "
                "matrix, or work with transform(X)"
            )
        return self.doc_topic_counts_

    def _most_of(self, topics, rows, n_documents):
        """Places among the fitted documents `rows` of those that speak most for topics, and their shares."""
        weights, prior = self._doc_topic_weights
        return comparison.documents_by_counts(weights[rows], prior, topics, n_documents)

    @property
    def _doc_topic_weights(self):
        """Counts of the fitted documents, and the prior; with labels their sum, and zeros."""
        labels = getattr(self, "doc_labels_", None)
        if labels is None:
            return self.doc_topic_counts_, self.doc_topic_prior_
        own = labels.multiply(self.doc_topic_prior_)
        return sparse.csr_array(self.doc_topic_counts_ + own), np.zeros(len(self.doc_topic_prior_))

    def _vocabulary(self, vocabulary):
        if vocabulary is None:
            names = getattr(self, "feature_names_in_", [str(w) for w in range(self.n_features_in_)])
            vocabulary = getattr(self, "vocabulary_", names)
        return check_vocabulary(vocabulary, self.n_features_in_)

    def _topic_shares(self):
        tokens = topic_totals(self.word_topic_counts_)
        return tokens / tokens.sum()

    def _with_tokens(self):
        """Numbers of the topics that have tokens; of the others there is only the prior to read."""
        return np.flatnonzero(topic_totals(self.word_topic_counts_))

    def _of_all_topics(self, values):
        """Rows of all topics from those with tokens; the others have -1, or NaN."""
        nothing = -1 if values.dtype.kind == "i" else np.nan
        out = np.full((self.word_topic_counts_.shape[1], *values.shape[1:]), nothing, values.dtype)
        out[self._with_tokens()] = values
        return out

    def _top_words(self, n_words):
        return top_words(self._word_topic_weights, self.topic_word_prior_, n_words)[0]

    def _topics(self, topics):
        """Numbers of topics, checked; all of them by default."""
        n_components = self.word_topic_counts_.shape[1]
        return np.arange(n_components) if topics is None else comparison.check_topics(topics, n_components)
