"""Topics with keywords, and a switch that says which tokens are keywords: keyATM."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval

from ..._typing import Callback, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError, listed, shortened
from .._base import keep_parameters
from .fitting import FittedTopicModel
from .guidance import check_seed_words
from .inference import levels_to_user
from .model import fits_weights
from .model_inputs import ModelInputs, options_of_more
from .reading.numbers import log_words
from .reading.top_words import topic_totals
from .reading.uncertainty import betas_of_switched


class KeywordInputs(ModelInputs):
    """The keywords of topics."""

    def __init__(self, y=None, *, seed_words=None, **known):
        super().__init__(y, **known)
        self.keywords = seed_words

    def check(self, model, X):
        """See `ModelInputs`."""
        _check_switch(model.switch_prior)
        if self.keywords is None:
            raise DataError(
                "KeyATM needs seed_words, the keywords of topics; without them fit LatentDirichletAllocation"
            )

    def program(self, model, corpus, sampler, alpha, beta, seed, options):
        """See `ModelInputs`."""
        from .blocks.program import TopicProgram
        from .samplers.keywords import KeywordGibbs

        columns = model._columns(self.vocabulary)
        keywords = check_seed_words(self.keywords, len(alpha), corpus.summary.n_words, columns)
        if keywords is None:
            raise DataError("seed_words name no keyword with a weight above 0")
        self._warn_of_unseen(keywords, corpus.frequency, model._words(self.vocabulary))
        keywords = sparse.csr_array(keywords * float(model.keyword_prior))
        sampler = KeywordGibbs(keywords, _check_switch(model.switch_prior))
        options = options_of_more(model, options) | {"sampler": sampler, "seeds": sampler.seeds}
        return TopicProgram(corpus, sampler.n_columns, alpha, beta, seed, **options)

    def _warn_of_unseen(self, keywords, frequency, words):
        """Warn of keywords that no document has: they are likely misspelt, and say nothing of topics."""
        unseen = np.flatnonzero((np.diff(keywords.indptr) > 0) & (frequency == 0))
        if len(unseen):
            names = listed(unseen if words is None else [words[column] for column in unseen])
            warnings.warn(
                f"X holds no token of {len(unseen)} of the keywords, {'columns ' if words is None else ''}"
                f"{names}: check how they are written, or leave them out",
                UserWarning,
                stacklevel=levels_to_user(),
            )

    def fingerprint(self, model, program):
        """See `ModelInputs`."""
        return {"model": "keyatm", "switch": program.sampler.switch.tolist()}

    def store(self, model, gathered):
        """Set the model: the two columns of a topic become weights of its expected words."""
        off, on, weights = gathered.words, gathered.extra["keywords"], gathered.extra["weights"]
        sums = topic_totals(weights)
        g_on, g_off = _check_switch(model.switch_prior)
        n_off, n_on = (topic_totals(part).astype(np.float64) for part in (off, on))
        # Counts of other words have the factor 1, those of keywords this.
        factor = (n_on + g_on) / np.where(sums > 0, n_on + sums, 1.0)
        factor *= (n_off + model.topic_word_prior_.sum()) / (n_off + g_off)
        expected = (on + weights) @ sparse.diags_array(factor)
        model.word_topic_counts_ = sparse.csr_array(off + expected, dtype=np.float64)
        model.seed_prior_, model.keyword_counts_, model.keyword_weights_ = None, on, weights
        model.switch_ = np.where(sums > 0, (n_on + g_on) / (n_on + n_off + g_on + g_off), 0.0)


class KeyATM(FittedTopicModel):
    r"""Keyword-assisted topic model: seed words by a switch.

    Latent Dirichlet allocation in which some topics have keywords. A switch says of each token of such a
    topic whether it is drawn from the keywords or from all words::

        theta_d ~ Dirichlet(alpha),  z_di ~ theta_d,  s_di ~ Bernoulli(pi_z),  pi_k ~ Beta(switch_prior)
        w_di ~ phi_z,   phi_k  ~ Dirichlet(beta) over all words               where s_di is 0
        w_di ~ phi~_z,  phi~_k ~ Dirichlet(keyword_prior) over the keywords   where s_di is 1

    How much the keywords matter is learned for each topic, as `switch_`. `LatentDirichletAllocation.fit` with
    `seed_words` instead adds tokens to the prior of words. The two differ in the prior of pi alone: that of
    the latter is Beta(sum of the weights of the seeds, sum of beta), so that with many tokens they come near
    each other.

    Topics and switches of tokens are drawn together by collapsed Gibbs sampling, all else integrated out.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K, those with keywords among them.
    keyword_prior : float, default=0.1
        Prior of each keyword; a weight in `seed_words` multiplies it.
    switch_prior : tuple of two floats, default=(1.0, 1.0)
        Beta prior of pi.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha; None is 0.1.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.01.
    n_draws : int, default=0
        Draws of the topics and switches of all tokens that a fit keeps for `topic_word_interval`,
        `doc_topic_interval` and intervals of `topics_by_group`, evenly spaced over the last half of the
        sweeps; see `LatentDirichletAllocation`. In a topic with keywords, the probability of a word given a
        draw is a sum of products of beta variables; a beta distribution of the same mean and variance takes
        its place.
    max_iter : int, default=500
        Sweeps over all tokens, of which 40, at most half, are annealed.
    exact : bool, default=False
        One group of documents, on one thread, and no annealing: exact Gibbs sweeps.
    n_groups : int, default=None
    engine : str or distributed.Client, default="local"
    n_jobs : int, default=None
    checkpoint : str or path, default=None
    memmap_folder : str or path, default=None
        These as in `LatentDirichletAllocation`; the model is *bitwise* the same for any `n_jobs` and on a
        cluster, with the same groups.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    switch_ : ndarray of shape (n_components,)
        Expected part of a topic's tokens that its keywords gave, given the last draw; 0 without keywords.
    keyword_counts_ : CSR array of shape (n_features, n_components)
        Tokens that keywords gave.
    keyword_weights_ : CSR array of float64, shape (n_features, n_components)
        Prior of keywords: `keyword_prior` times their weights.
    draws_ : list of dict of arrays
        Packed draws; with `n_draws` only.
    word_topic_counts_ : CSR array of float64, shape (n_features, n_components)
        Weights that give, with `topic_word_prior_`, the expected words of topics: counts, but for keywords.
    components_, topic_word_, doc_topic_, doc_topic_counts_, doc_topic_prior_, topic_word_prior_
        As in `LatentDirichletAllocation`.
    log_likelihood_, history_, worker_history_, n_iter_, sampler_, n_features_in_, vocabulary_
        As there. The likelihood is that of words, topics and switches.

    Raises
    ------
    DataError
        If `X` does not hold counts, or `seed_words` name no topic or word that there is.
    CheckpointMismatch
        If `checkpoint` holds a fit of other parameters or data.

    See Also
    --------
    LatentDirichletAllocation : With `seed_words` as a prior; faster.

    References
    ----------
    Eshima, Imai, Sasaki, "Keyword-assisted topic models", American Journal of Political Science 2024.

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> X = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 20, axis=0)
    >>> words = ["cat", "dog", "sun", "sea"]
    >>> key = sd.KeyATM(2, random_state=0, max_iter=50)
    >>> key.fit(X, seed_words={0: ["sea"], 1: ["cat"]}, vocabulary=words).topics(n_words=2)
    [['sea', 'sun'], ['cat', 'dog']]
    >>> bool((key.switch_ > 0.2).all())
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FittedTopicModel._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**15, closed="both")],
        "keyword_prior": [Interval(Real, 1e-6, 1e6, closed="both")],
        "switch_prior": ["array-like"],
        "n_draws": [Interval(Integral, 0, None, closed="left")],
        "doc_topic_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
    }
    _expected_failed_checks: ClassVar[dict] = FittedTopicModel._expected_failed_checks | {
        f"check_{name}": "keywords are asked for before X is read"
        for name in ("positive_only_tag_during_fit", "complex_data", "estimators_empty_data_messages")
    }
    _label = "keyATM"

    def __init__(
        self,
        n_components: int = 10,
        *,
        keyword_prior: float = 0.1,
        switch_prior: Any = (1.0, 1.0),
        doc_topic_prior: Any = None,
        topic_word_prior: Any = None,
        n_draws: int = 0,
        max_iter: int = 500,
        exact: bool = False,
        n_groups: int | None = None,
        engine: Engine = "local",
        n_jobs: int | None = None,
        checkpoint: FileName | None = None,
        memmap_folder: FileName | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        *,
        seed_words: Any = None,
        vocabulary: Any = None,
        n_features: int | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit topics to word counts.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents, or a corpus in files or of Dask's, as in
            `LatentDirichletAllocation.fit`.
        y : None
            Ignored.
        seed_words : dict or matrix of shape (n_components, n_features)
            Keywords of topics, as in `LatentDirichletAllocation.fit`. Topics that are not named have none.
            A warning names keywords that no document has.
        vocabulary, n_features, callback
            As in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        known = {"seed_words": seed_words, "vocabulary": vocabulary, "n_features": n_features}
        self._fit_anew(X, callback=callback, **known)
        return self

    _inputs = KeywordInputs

    def _word_betas(self, draw, rows, topics):
        prior = self.topic_word_prior_, self.keyword_weights_, _check_switch(self.switch_prior)
        return betas_of_switched(draw, *prior, rows, topics)

    def _log_words(self, draw):
        shape = self.word_topic_counts_.shape
        keywords = log_words(draw | {"beta": np.zeros(1)}, shape, self.keyword_weights_, "keywords")
        return log_words(draw, shape) + keywords

    def _topic_shares(self):
        """Shares of the tokens, which the weights of `word_topic_counts_` are not where keywords are."""
        on, off = (
            topic_totals(counts).astype(np.float64)
            for counts in (self.keyword_counts_, self.word_topic_counts_)
        )
        g_on, g_off = _check_switch(self.switch_prior)
        has = self.switch_ > 0
        off[has] = ((on + g_on)[has] / self.switch_[has]) - (on + g_on)[has] - g_off
        tokens = np.maximum(on + off, 0.0)
        return tokens / tokens.sum()

    def _check_state(self):
        super()._check_state()
        shape, switch, held = self.word_topic_counts_.shape, self.switch_, self.keyword_counts_
        fits = switch.shape == shape[1:] and bool(((switch >= 0) & (switch <= 1)).all())
        fits = fits and held.shape == shape and held.data.dtype.kind == "i" and bool((held.data >= 0).all())
        if not (fits and fits_weights(self.keyword_weights_, shape)):
            raise DataError("switch_, keyword_counts_ or keyword_weights_ cannot be those of this model")


def _check_switch(prior):
    """The two parameters of the prior of pi."""
    values = np.asarray(prior, dtype=object)
    if values.shape != (2,) or not all(isinstance(v, Real) and 0 < float(v) <= 1e6 for v in values):
        raise DataError(f"switch_prior must be two numbers above 0, of a beta prior, got {shortened(prior)}")
    return tuple(float(v) for v in values)
