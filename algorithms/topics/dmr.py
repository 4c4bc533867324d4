"""Topics whose shares depend on covariates of documents: Dirichlet-multinomial regression."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, Engine, FileName, Matrix, RandomState, Vector
from ...datasets.split import split_tokens
from ...errors import DataError
from ...scheduler.threads import effective_n_jobs
from .._base import keep_parameters
from .._intervals import check_draws, least_draws
from ..inputs.dask_arrays import is_dask
from ..inputs.matrices import check_counts
from .corpus.blocks_of_documents import lazy_shares, lazy_shares_by_rows
from .corpus.shard_input import check_at_hand, check_order_of_files, given_documents, with_rows
from .covariates import Covariates, check_order, check_regression, length_of, standards
from .evaluation import complete
from .fitting import FittedTopicModel
from .inference import FixedTopics, sweeps_and_tolerance, topic_shares, without_unseen
from .model_inputs import ModelInputs, digest_of, options_of_more
from .reading.comparison import documents_by_shares
from .reading.effects import ExpectedShares, TopicEffects, effects_of, expected_shares

_ENOUGH_DRAWS = 40
_ROWS = 2048  # documents at a time, where a number for each topic is made


class CovariateInputs(ModelInputs):
    """Covariates of the documents, and their standardised design."""

    design: np.ndarray

    def __init__(self, y=None, *, covariates=None, **known):
        super().__init__(y, **known)
        self.covariates = covariates

    def check(self, model, X):
        """See `ModelInputs`."""
        check_order(X, self.covariates)
        if self.covariates is not None:
            check_order_of_files(X, "covariates")

    def read(self, model, X, corpus, alpha):
        """See `ModelInputs`; each shard gets its rows of the design."""
        corpus, n_documents = super().read(model, X, corpus, alpha), corpus.summary.n_documents
        self.columns = Covariates.of(self.covariates, model.formula, n_documents)
        self.design = self.columns.design(self.covariates, n_documents)
        self.means, self.scales = standards(self.design, self.columns.names)
        return with_rows(corpus, "design", (self.design - self.means) / self.scales)

    def program(self, model, corpus, sampler, alpha, beta, seed, options):
        """See `ModelInputs`."""
        from .blocks.program import TopicProgram
        from .samplers.regression import CoefficientPrior, CovariateGibbs

        start = np.zeros((len(alpha), self.design.shape[1]))
        start[:, 0] = np.log(alpha)
        scale = np.full(self.design.shape[1], float(model.prior_scale))
        scale[0] = model.intercept_scale
        prior = CoefficientPrior(start[0].copy(), scale)
        n_threads = effective_n_jobs(model.n_jobs) if options["in_process"] else 1
        options = options_of_more(model, options)
        options["sampler"] = CovariateGibbs(prior, model.max_iter // 2, n_threads)
        return TopicProgram(corpus, len(alpha), start, beta, seed, **options)

    def fingerprint(self, model, program):
        """See `ModelInputs`."""
        prior = program.sampler.prior
        parts = {"model": "dmr", "design": digest_of(self.design)}
        return parts | {"prior": [prior.mean.tolist(), prior.scale.tolist()]}

    def store(self, model, gathered):
        """See `ModelInputs`."""
        draws, design = gathered.extra["draws"] / self.scales, self.design
        draws[:, :, 0] -= draws[:, :, 1:] @ self.means[1:]
        model.coef_draws_, model.coef_ = draws, draws.mean(axis=0)
        model.covariates_, model.coef_names_ = self.columns.as_dict(), self.columns.names
        model.design_, model._spec = design, self.columns.spec
        blocks = (design[first : first + _ROWS] for first in range(0, len(design), _ROWS))
        model.doc_topic_prior_ = sum(model._prior_rows(block).sum(axis=0) for block in blocks) / len(design)


class DMRTopicModel(FittedTopicModel):
    r"""Topic model with covariates: Dirichlet-multinomial regression by exact sampling.

    Latent Dirichlet allocation in which what is known of a document says which topics to expect in it::

        lambda_kf ~ Normal(mean_f, scale_f^2)
        alpha_dk = exp(sum_f x_df lambda_kf),   theta_d ~ Dirichlet(alpha_d)
        z_di ~ theta_d,  w_di ~ phi_(z_di),     phi_k ~ Dirichlet(beta)

    with x_d the covariates of document d, an intercept first. The share of a topic that is expected at
    covariates x is ``alpha_k(x) / sum_j alpha_j(x)``.

    Topics are drawn as in `LatentDirichletAllocation` with ``sampler="gibbs"``. After every ten sweeps the
    coefficients of all topics move given the counts, by Hamiltonian Monte Carlo with the shares of documents
    integrated out. Those after the first half of the sweeps are kept: draws of topics and coefficients, so
    that `effects` know how uncertain the topics of the words are.

    Numbers are standardised for the prior, columns of zeros and ones are not; coefficients are in units of
    the covariates. A fit takes 1.05 to 1.3 times the time of as many sweeps of LDA (one of 100 sweeps 1.34).

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    formula : str, default=None
        Of the package formulaic, the right side alone: ``"bs(year, df=4) + C(source)"``. None takes the
        columns of the covariates as they are: numbers, and a column of zeros and ones for each level of a
        category but the first.
    doc_topic_prior : float, default=0.1
        alpha where all other coefficients are 0: its logarithm is the prior's mean of the intercept.
    prior_scale : float, default=1.0
        Standard deviation of the prior of coefficients, of columns of standard deviation 1; at most 1,000.
    intercept_scale : float, default=2.0
        That of the intercepts.
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.01.
    max_iter : int, default=1000
        Sweeps over all tokens. The second half of them gives draws, one every ten sweeps.
    exact : bool, default=False
        Keep topic totals live, on one thread: exact Gibbs sweeps, of which none is annealed. Else 40 are, at
        most half of `max_iter`.
    n_groups : int, default=None
    engine : str or distributed.Client, default="local"
    n_jobs : int, default=None
    checkpoint : str or path, default=None
    memmap_folder : str or path, default=None
        These as in `LatentDirichletAllocation`. The model is *bitwise* the same for any `n_jobs` and
        on a cluster, with the same groups and number of BLAS threads of the calling process.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_components, n_columns)
        Posterior means of the coefficients, the intercept first.
    coef_draws_ : ndarray of shape (n_draws, n_components, n_columns)
        Draws of them, in the order of the chain.
    coef_names_ : list of str
        Names of the columns.
    covariates_ : dict
        How covariates become columns.
    design_ : ndarray of shape (n_samples, n_columns)
        Columns of the fitted documents.
    doc_topic_prior_ : ndarray of shape (n_components,)
        Mean of alpha over the fitted documents: the prior of new documents whose covariates are not known.
    components_, topic_word_, doc_topic_, word_topic_counts_, doc_topic_counts_, topic_word_prior_
        As in `LatentDirichletAllocation`.
    seed_prior_, log_likelihood_, history_, worker_history_, n_iter_, sampler_, n_features_in_
        As there. The likelihood is that of words and topics given the coefficients.

    Raises
    ------
    DataError
        If `X` does not hold counts, or covariates do not fit to it, are missing or constant.
    CheckpointMismatch
        If `checkpoint` holds a fit of other parameters or data.

    See Also
    --------
    LatentDirichletAllocation : Without covariates; `topics_by_group` compares groups afterwards.

    References
    ----------
    Mimno, McCallum, "Topic models conditioned on arbitrary features with Dirichlet-multinomial regression",
    UAI 2008 (the model). Neal, "MCMC using Hamiltonian dynamics", Handbook of MCMC, 2011.
    Roberts, Stewart, Airoldi, "A model of text for experimentation in the social sciences", JASA 2016
    (effects on topic prevalence).

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> late = np.repeat([0, 1], 100)
    >>> shares = np.where(late[:, None], [0.2, 0.8], [0.8, 0.2])
    >>> X = np.vstack([rng.multinomial(30, np.repeat(s, 3) / 3) for s in shares])
    >>> dmr = sd.DMRTopicModel(2, max_iter=800, random_state=0).fit(X, covariates={"late": late})
    >>> dmr.coef_names_, dmr.coef_.shape
    (['intercept', 'late'], (2, 2))
    >>> effects = dmr.effects()
    >>> bool((effects.low[0] > 0).any() and (effects.high[0] < 0).any())
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FittedTopicModel._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**16 - 1, closed="both")],
        "formula": [None, str],
        "doc_topic_prior": [Interval(Real, 0, None, closed="neither")],
        "prior_scale": [Interval(Real, 1e-30, 1e3, closed="both")],
        "intercept_scale": [Interval(Real, 1e-30, 1e3, closed="both")],
    }
    _harmless_text: ClassVar[frozenset[str]] = FittedTopicModel._harmless_text | {"formula"}

    def __init__(
        self,
        n_components: int = 10,
        *,
        formula: str | None = None,
        doc_topic_prior: float = 0.1,
        prior_scale: float = 1.0,
        intercept_scale: float = 2.0,
        topic_word_prior: Any = None,
        max_iter: int = 1000,
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
        covariates: Any = None,
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
        y : None
            Ignored.
        covariates : DataFrame, dict of columns, vector or matrix, a row a document of `X`
            In the order of `X`; of files, in that of their names. Numbers enter as they are; texts, objects
            and categories as levels, the first in order being the reference. With none, there is an intercept
            for each topic.
        seed_words, vocabulary, n_features, callback
            As in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        known = {"covariates": covariates, "seed_words": seed_words, "vocabulary": vocabulary}
        self._fit_anew(X, callback=callback, n_features=n_features, **known)
        return self

    _of_documents = ("covariates",)
    _inputs = CovariateInputs

    # Using --------------------------------------------------------------------------------------

    def _prior_rows(self, design):
        """Alpha of documents by the posterior means of the coefficients, documents x topics."""
        from .samplers.regression import priors_of

        return priors_of(design, self.coef_)

    @property
    def _reader(self):
        known = Covariates.of_dict(self.covariates_)
        return Covariates(known.columns, known.formula, self.__dict__.get("_spec"), known.state)

    @property
    def doc_topic_(self) -> Array:
        """Topic shares of the fitted documents."""
        if self._fitted("doc_topic_counts_") is None:
            return super().doc_topic_  # which says so
        shares, counts = self._prior_rows(self.design_), self.doc_topic_counts_
        shares[np.repeat(np.arange(len(shares)), np.diff(counts.indptr)), counts.indices] += counts.data
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def _most_of(self, topics, rows, n_documents):
        return documents_by_shares(self.doc_topic_[rows], topics, n_documents)

    def _by_prior(self, covariates, n_documents):
        """Groups of documents with equal priors: their rows, and the prior; None takes that of them all."""
        if covariates is None:
            return [(np.arange(n_documents), self.doc_topic_prior_)]
        return self._by_design(self._reader.design(covariates, n_documents))

    def _by_design(self, design):
        design, row = np.unique(design, axis=0, return_inverse=True)
        alpha, order = self._prior_rows(design), np.argsort(row.ravel(), kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(row.ravel(), minlength=len(design)))[:-1])
        return list(zip(parts, alpha, strict=True))

    def transform(  # type: ignore[override]
        self,
        X: Matrix,
        *,
        covariates: Any = None,
        n_sweeps: int | None = None,
        tol: float | None = None,
    ) -> Array:
        """Infer topic shares of documents: the posterior mean of theta with topics and coefficients fixed.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts; of names of files and of a Dask array the result is a Dask array, and of blocks of unknown
            sizes, as those of files, these are computed.
        covariates : as in `fit`, optional
            Without, documents have the prior `doc_topic_prior_`.
        n_sweeps, tol
            As in `LatentDirichletAllocation.transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        check_is_fitted(self, "word_topic_counts_")
        self._validate_params()
        check_order(X, covariates)
        n_sweeps, tol = sweeps_and_tolerance(n_sweeps, tol)
        if covariates is not None:
            check_order_of_files(X, "covariates")
        X = given_documents(self, X)
        if is_dask(X) and covariates is None:
            return lazy_shares(self, X, n_sweeps=n_sweeps, tol=tol)
        if is_dask(X):
            own = {"n_sweeps": n_sweeps, "tol": tol}
            return lazy_shares_by_rows(self, X, lambda n: self._reader.design(covariates, n), **own)
        check_at_hand(X)
        X = check_counts(self, X, reset=False)
        return self._shares_of(X, self._by_prior(covariates, X.shape[0]), n_sweeps, tol)

    def _shares_of(self, X, by_prior, n_sweeps, tol):
        topics = FixedTopics.of(self)
        X = without_unseen(topics, X)  # one warning for all documents
        options = {"n_sweeps": n_sweeps, "tol": tol, "random_state": self.random_state, "n_jobs": self.n_jobs}
        theta = np.empty((X.shape[0], len(self.doc_topic_prior_)))
        for rows, alpha in by_prior:
            theta[rows] = topic_shares(topics.with_prior(alpha), X[rows], **options)
        return theta

    def _shares_by_rows(self, X, design, n_sweeps, tol):
        """Shares of documents whose rows of the design are given."""
        return self._shares_of(X, self._by_design(design), n_sweeps, tol)

    def score(  # type: ignore[override]
        self, X: Matrix, y: Vector | None = None, *, covariates: Any = None
    ) -> float:
        """Compute the held-out log-likelihood per token, by document completion.

        Parameters
        ----------
        X, y
            As in `LatentDirichletAllocation.score`.
        covariates : as in `fit`, optional
            Of these documents.

        Returns
        -------
        float
        """
        check_is_fitted(self, "word_topic_counts_")
        check_at_hand(X)
        check_order(X, covariates)
        X = check_counts(self, X, reset=False)
        observed, held_out = split_tokens(X, random_state=0)
        n_tokens = int(held_out.sum())
        if n_tokens == 0:
            raise DataError("X has no document of two tokens or more: there is nothing to hold out")
        total = 0.0
        for rows, alpha in self._by_prior(covariates, X.shape[0]):
            own = int(held_out[rows].sum())
            if own:
                parts = (self._word_probabilities, observed[rows], held_out[rows], alpha)
                total += own * complete(*parts, n_jobs=self.n_jobs)
        return total / n_tokens

    def perplexity(self, X: Matrix, *, covariates: Any = None) -> float:  # type: ignore[override]
        """Compute ``exp(-score(X))``; lower is better."""
        return float(np.exp(-self.score(X, covariates=covariates)))

    def effects(self, level: float = 0.9) -> TopicEffects:
        """Average marginal effects of the covariates on the expected shares of topics.

        With s_k(x) the expected share at x, the mean over the fitted documents of::

            numbers      d s_k / d x_f  =  s_k (lambda_kf - sum_j s_j lambda_jf)
            categories   s_k(level) - s_k(reference),  the other covariates as they are

        Intervals hold a further draw with the probability `level`: the uncertainty of coefficients and of
        the topics of words. A level of 0.9 needs 19 draws, ``max_iter=380``. A formula's columns count as
        numbers; those of zeros and ones of one term, such as ``C(source)``, as the levels of a category.
        Where one covariate is in several terms or columns, as in interactions and splines, the effect of a
        single column means little: take `expected_shares`.

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability of each interval.

        Returns
        -------
        TopicEffects
            `mean`, `low` and `high`, columns x topics; prints as a table; `plot` draws it.

        Raises
        ------
        DataError
            If the model was fitted without covariates, or `level` needs more draws than the fit kept.
        """
        check_is_fitted(self, "coef_draws_")
        if len(self.coef_names_) == 1:
            raise DataError("the model was fitted without covariates, so there are no effects")
        self._check_draws(level)
        return effects_of(self.coef_draws_, self.design_, self.coef_names_, self._reader.columns, level)

    def expected_shares(self, covariates: Any, *, minus: Any = None, level: float = 0.9) -> ExpectedShares:
        """Expected shares of topics at given covariates, or their differences, with intervals.

        Parameters
        ----------
        covariates : as in `fit`
            Rows at which shares are expected, for instance a grid of years.
        minus : as `covariates`, optional
            As many rows, whose expected shares are subtracted: contrasts.
        level : float, default=0.9

        Returns
        -------
        ExpectedShares
            `mean`, `low` and `high`, rows x topics, and `plot`.
        """
        check_is_fitted(self, "coef_draws_")
        self._check_draws(level)
        rows = self._reader.design(covariates, length_of(covariates))
        others = None if minus is None else self._reader.design(minus, length_of(minus))
        return expected_shares(self.coef_draws_, rows, others, level)

    def _check_draws(self, level):
        n_draws = len(self.coef_draws_)
        check_draws(n_draws, level, f"fit with max_iter={20 * least_draws(level)} or more")
        if n_draws < _ENOUGH_DRAWS:
            warnings.warn(
                f"intervals rest on {n_draws} draws of the coefficients, and their ends are uncertain: fit "
                f"with max_iter={20 * _ENOUGH_DRAWS} or more",
                stacklevel=3,
            )

    def _check_state(self):
        check_regression(self)
        super()._check_state()
