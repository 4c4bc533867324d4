"""Topics that explain a response of each document, a number, a class or a count: supervised LDA."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError, shortened
from ...kernels.lda.models import responses as kernels
from .._base import keep_parameters
from ..inputs.dask_arrays import check_new_blocks, is_dask
from ..inputs.matrices import check_counts
from ..inputs.targets import check_labels, check_not_negative, check_targets, check_weights, label_numbers
from .corpus.shard_input import are_files, check_at_hand, check_order_of_files, given_documents, with_rows
from .fitting import FittedTopicModel
from .model import TopicModel
from .model_inputs import ModelInputs, digest_of, options_of_more

_FAMILIES = {"number": kernels.NORMAL, "count": kernels.POISSON, "class": kernels.CLASSES}
_MOST_COUNT = 2.0**53  # whole numbers above are not exact


def _has_classes(model):
    if model.response != "class":
        raise AttributeError(f"predict_proba is for response='class', and this model has {model.response!r}")
    return True


class ResponseInputs(ModelInputs):
    """Responses of the documents: targets as the fit takes them, classes or None, centre and scale."""

    def check(self, model, X):
        """See `ModelInputs`."""
        if self.y is None:
            raise DataError(
                f"{type(model).__name__} requires y to be passed, but the target y is None: pass a response "
                "for each document, or fit LatentDirichletAllocation without"
            )
        check_order_of_files(X, "y")

    def read(self, model, X, corpus, alpha):
        """See `ModelInputs`; each shard gets the responses of its documents."""
        corpus = super().read(model, X, corpus, alpha)
        read = _read_targets(self.y, model.response, corpus.summary.n_documents, type(model).__name__)
        targets, self.classes, self.centre, self.scale = read
        self.targets = targets if corpus.rows is None else targets[np.concatenate(corpus.rows)]
        return with_rows(corpus, "response", targets[:, None])

    def program(self, model, corpus, sampler, alpha, beta, seed, options):
        """See `ModelInputs`."""
        from .blocks.program import TopicProgram
        from .samplers.supervised import Response, ResponseGibbs

        n_predictors = 1 if self.classes is None else len(self.classes)
        response = Response(_FAMILIES[model.response], n_predictors, float(model.prior_scale) ** -2.0)
        options = options_of_more(model, options)
        options["sampler"] = ResponseGibbs(response, self.targets, model.max_iter // 2)
        return TopicProgram(corpus, len(alpha), alpha, beta, seed, **options)

    def fingerprint(self, model, program):
        """See `ModelInputs`."""
        parts = {"model": "slda", "response": model.response, "prior_scale": float(model.prior_scale)}
        parts |= {"classes": None if self.classes is None else list(map(str, self.classes.tolist()))}
        return parts | {"y": digest_of(self.targets)}

    def store(self, model, gathered):
        """See `ModelInputs`."""
        fitted = gathered.extra["coefficients"]
        if self.classes is None:
            vars(model).pop("classes_", None)
            model.coef_ = fitted.eta[:, 0] * self.scale
            model.intercept_ = float(fitted.intercepts[0] * self.scale + self.centre)
        else:
            model.classes_ = self.classes
            model.coef_, model.intercept_ = np.ascontiguousarray(fitted.eta.T), fitted.intercepts.copy()
        model.sigma_ = float(np.sqrt(fitted.variance) * self.scale)


def _read_targets(y, response, n_documents, name):
    """Responses as the fit takes them, float64; the classes or None; and their centre and scale."""
    if response == "class":
        classes, numbers = check_labels(y, n_documents, name)
        return numbers.astype(np.float64), classes, 0.0, 1.0
    y = _vector(y, n_documents, f"{name}(response={response!r})")
    if response == "count":
        _check_whole(y, name)
        if not y.any():
            raise DataError("y is 0 in all documents, which says nothing of their topics")
        return y, None, 0.0, 1.0
    if (y == y[0]).all():
        raise DataError(
            f"y is {y[0]:g} in all documents (n_samples={len(y)}), which says nothing of their topics"
        )
    scale = float(y.std())
    if not scale > 0:
        raise DataError(f"y goes from {y.min():g} to {y.max():g}, whose variance underflows: scale y")
    return (y - y.mean()) / scale, None, float(y.mean()), scale


class SupervisedLDA(FittedTopicModel):
    r"""Topics that explain a response of each document: supervised latent Dirichlet allocation.

    Latent Dirichlet allocation in which a generalised linear model of the topics' shares among a document's
    tokens gives its response::

        theta_d ~ Dirichlet(alpha),  z_di ~ theta_d,  w_di ~ phi_(z_di),  phi_k ~ Dirichlet(beta)
        m_d = b + sum_k eta_k C_dk / L_d,   eta_k ~ Normal(0, prior_scale^2)
        y_d ~ Normal(m_d, sigma^2),  Poisson(exp(m_d))  or  Categorical(softmax(m_d))

    Topics are drawn as in `LatentDirichletAllocation` with ``sampler="gibbs"``, each draw accepted or refused
    by the response (an exact Metropolis-Hastings step), so that topics bend to what tells responses apart.
    Every ten sweeps the coefficients become the mode given the topics. This is a stochastic EM algorithm: it
    climbs in ``log p(w, y | eta, b, sigma) + log p(eta, sigma)``, up to the noise of one draw of topics.
    Coefficients are averaged over the second half of the sweeps.

    A document has one response and many tokens, so that topics stay near those of LDA where documents are
    long. A prediction takes the expected shares of a document's topics given its words.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    response : {"number", "class", "count"}, default="number"
        - "number": normal, by the identity. Responses are standardised for the fit; coefficients are in
          their own units. sigma^2 has a weak prior about 0.01 of their variance, with the weight of one
          document.
        - "class": two or more classes, of any type, by softmax. Each class has a coefficient a topic.
        - "count": Poisson, by the logarithm.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha; None is 0.1.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.01.
    prior_scale : float, default=10.0
        Standard deviation of the prior of coefficients; of standardised responses for numbers.
    n_draws : int, default=0
        Draws of the topics of all tokens that a fit keeps for `topic_word_interval`, `doc_topic_interval` and
        intervals of `topics_by_group`, evenly spaced over the last half of the sweeps; see
        `LatentDirichletAllocation`. Coefficients are modes, so that intervals do not know their uncertainty.
    max_iter : int, default=500
        Sweeps over all tokens.
    exact : bool, default=False
        Keep topic totals live, on one thread: exact sweeps, of which none is annealed. Else 40 are, at most
        half of `max_iter`.
    n_groups : int, default=None
    engine : str or distributed.Client, default="local"
    n_jobs : int, default=None
    checkpoint : str or path, default=None
    memmap_folder : str or path, default=None
        These as in `LatentDirichletAllocation`. The model is *bitwise* the same for any `n_jobs` and on a
        cluster, with the same groups and number of BLAS threads of the calling process.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_components,), or (n_classes, n_components)
        Coefficients eta, means over the second half of the sweeps.
    intercept_ : float, or ndarray of shape (n_classes,)
    sigma_ : float
        Standard deviation of numbers about their prediction; 1.0 for others.
    classes_ : ndarray of shape (n_classes,)
        Of ``response="class"`` alone.
    draws_ : list of dict of arrays
        Packed draws; with `n_draws` only.
    components_, topic_word_, doc_topic_, word_topic_counts_, doc_topic_counts_, doc_topic_prior_,
    topic_word_prior_, log_likelihood_, history_, worker_history_, n_iter_, sampler_, n_features_in_
        As in `LatentDirichletAllocation`. The likelihood is that of words, topics and responses given the
        coefficients. Counts and shares of the fitted documents know their responses.

    Raises
    ------
    DataError
        If `X` does not hold counts, or `y` has other values than `response` says, or another length.
    CheckpointMismatch
        If `checkpoint` holds a fit of other parameters or data.

    See Also
    --------
    DMRTopicModel : Where what is known of a document says which topics to expect.

    Notes
    -----
    Memory: as of `LatentDirichletAllocation`, and 24 bytes for a document and 8 for each of its predictors,
    one or the number of classes; the coordinator gathers the counts of documents every ten sweeps.

    References
    ----------
    McAuliffe, Blei, "Supervised topic models", NIPS 2007. Celeux, Diebolt, "The SEM algorithm",
    Computational Statistics Quarterly 1985 (stochastic EM).

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> shares = rng.dirichlet([0.3, 0.3], 200)
    >>> X = np.vstack([rng.multinomial(40, np.repeat(s, 3) / 3) for s in shares])
    >>> stars = 1 + 4 * shares[:, 0] + 0.2 * rng.standard_normal(200)
    >>> slda = sd.SupervisedLDA(2, max_iter=200, random_state=0).fit(X[:150], stars[:150])
    >>> slda.predict(X[150:]).shape
    (50,)
    >>> bool(slda.score(X[150:], stars[150:]) > 0.8)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FittedTopicModel._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**16 - 1, closed="both")],
        "response": [StrOptions(set(_FAMILIES))],
        "doc_topic_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "prior_scale": [Interval(Real, 1e-6, 1e6, closed="both")],
        "n_draws": [Interval(Integral, 0, None, closed="left")],
    }
    _label = "sLDA"

    def __init__(
        self,
        n_components: int = 10,
        *,
        response: str = "number",
        doc_topic_prior: Any = None,
        topic_word_prior: Any = None,
        prior_scale: float = 10.0,
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

    # Fitting ------------------------------------------------------------------------------------

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
        """Fit topics and coefficients.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents, or a corpus in files or of Dask's, as in
            `LatentDirichletAllocation.fit`.
        y : array-like of shape (n_samples,)
            Responses, in the order of `X`; of files, in that of their names.
        seed_words, vocabulary, n_features, callback
            As in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        known = {"seed_words": seed_words, "vocabulary": vocabulary, "n_features": n_features}
        self._fit_anew(X, y, callback=callback, **known)
        return self

    def fit_transform(self, X: Matrix, y: Vector | None = None, **fit_params: Any) -> Array:
        """Fit, and return topic shares averaged over the sweeps of the fit.

        As `LatentDirichletAllocation.fit_transform`. These shares know the responses: to predict from them is
        to predict what was known. Take those of `transform` for that.

        Parameters
        ----------
        X, y, **fit_params
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return super().fit_transform(X, y, **fit_params)

    _inputs = ResponseInputs

    # Using --------------------------------------------------------------------------------------

    def _predictors(self, X):
        """The linear predictors of documents by the expected shares of topics among their tokens."""
        check_is_fitted(self, "coef_")
        if is_dask(X) or are_files(X):
            X = given_documents(self, X) if are_files(X) else check_new_blocks(X, self)
            blocks = X.to_delayed().ravel()
            return np.concatenate([self._predictors(block.compute()) for block in blocks])
        check_at_hand(X)
        given, X = X, check_counts(self, X, reset=False)
        # `transform` gives (C + alpha) / (L + sum(alpha)), of the tokens of words that the fit has seen.
        known = np.asarray(self.word_topic_counts_.sum(axis=1)).ravel() > 0
        alpha, lengths = self.doc_topic_prior_, X @ known.astype(np.float64)
        counts = np.asarray(self.transform(given)) * (lengths + alpha.sum())[:, None] - alpha
        shares = np.maximum(counts, 0) / np.maximum(lengths, 1)[:, None]
        return shares @ self.coef_.T + self.intercept_

    def predict(self, X: Matrix) -> Array:
        """Predict the responses of documents from their words.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts, or names of files as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Expected numbers or counts (at the expected shares of topics), or the likeliest classes. A
            document without words that the fit has seen has the prediction of the intercept.
        """
        predictors = self._predictors(X)
        if self.response == "class":
            return self.classes_[predictors.argmax(axis=1)]
        return np.exp(predictors) if self.response == "count" else predictors

    @available_if(_has_classes)
    def predict_proba(self, X: Matrix) -> Array:
        """Predict the probabilities of classes, in the order of `classes_`.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1.
        """
        return softmax(self._predictors(X), axis=1)

    @property
    def _score_name(self):
        return "D2" if self.response == "count" else "R2"

    def score(  # type: ignore[override]
        self, X: Matrix, y: Vector | None = None, sample_weight: Vector | None = None
    ) -> float:
        """Score predictions: R^2 of numbers, accuracy of classes, or the deviance explained of counts.

        How well the words of documents are predicted is `perplexity`.

        Parameters
        ----------
        X : as in `predict`
        y : array-like of shape (n_samples,)
            Responses.
        sample_weight : array-like of shape (n_samples,), optional
            How much each document counts; not negative.

        Returns
        -------
        float
            At most 1.
        """
        if y is None:
            raise DataError(
                "score needs y, the responses of X; how well words are predicted says perplexity(X)"
            )
        check_order_of_files(X, "y")
        predicted, name = self.predict(X), type(self).__name__
        weights = check_weights(sample_weight, len(predicted))
        if self.response == "class":
            classes, numbers = label_numbers(y, len(predicted), name)
            kinds = [isinstance(labels.tolist()[0], str) for labels in (classes, self.classes_)]
            if kinds[0] != kinds[1]:
                raise DataError(
                    f"y holds {shortened(classes.tolist()[0])}, and the fit had labels such as "
                    f"{shortened(self.classes_.tolist()[0])}: give labels of one kind"
                )
            return float(accuracy_score(classes[numbers], predicted, sample_weight=weights))
        y = _vector(y, len(predicted), f"{name}(response={self.response!r})")
        if self.response == "count":
            _check_whole(y, name)
            predicted = np.maximum(predicted, np.finfo(float).tiny)
            return float(d2_tweedie_score(y, predicted, sample_weight=weights, power=1))
        return float(r2_score(y, predicted, sample_weight=weights))

    def perplexity(self, X: Matrix) -> float:  # type: ignore[override]
        """Perplexity of held-out words, by document completion; lower is better."""
        return float(np.exp(-TopicModel.score(self, X)))

    def _check_state(self):
        self._check_coefficients()
        super()._check_state()

    def _check_coefficients(self):
        """Hold the coefficients of a file against the topics."""
        n_topics = self.word_topic_counts_.shape[1]
        coef, intercept = self.coef_, np.asarray(self.intercept_)
        own = (n_topics,) if self.response != "class" else (len(self.classes_), n_topics)
        fits = coef.shape == own and intercept.shape == own[:-1] and coef.dtype == np.float64
        fits = fits and intercept.dtype == np.float64
        if not (fits and np.isfinite(coef).all() and np.isfinite(intercept).all() and self.sigma_ > 0):
            raise DataError("coef_, intercept_ or sigma_ cannot be those of the topics of a model")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _vector(y, n_samples, name):
    y = check_targets(y, n_samples, name, classes="set response='class'")
    if y.ndim != 1 and y.shape[1:] != (1,):
        raise DataError(f"y has {y.shape[1]} columns, and {name} takes one response: fit a model for each")
    return y.reshape(-1)


def _check_whole(y, name):
    check_not_negative(y, name)
    wrong = np.flatnonzero((y != np.floor(y)) | (y > _MOST_COUNT))
    if len(wrong):
        raise DataError(
            f"y holds {y[wrong[0]]:g} in row {wrong[0]}, and response='count' takes whole numbers: set "
            "response='number'"
        )
