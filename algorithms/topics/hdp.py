"""A topic model that finds the number of its topics: a hierarchical Dirichlet prior, truncated."""

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from ..._typing import Callback, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError
from .._base import keep_parameters
from ..inputs.matrices import check_prior
from .fitting import _TOPIC_WORD_PRIOR, FittedTopicModel


class HDPTopicModel(FittedTopicModel):
    r"""Topic model that finds how many topics there are: a truncated hierarchical Dirichlet process.

    Latent Dirichlet allocation whose prior over topics is itself drawn, sparsely::

        pi ~ Dirichlet(gamma / T, ..., gamma / T),   T = n_components, at most so many topics
        theta_d ~ Dirichlet(alpha pi),   z_di ~ theta_d,   w_di ~ phi_(z_di),   phi_k ~ Dirichlet(beta)

    Topics that no document wants lose their share of pi and end without tokens; they are left out of the
    fitted model. Sweeps of Gibbs sampling are those of `LatentDirichletAllocation`. The first 80 are annealed
    as there, with T topics and equal shares. After each later sweep alpha, pi and gamma are drawn given the
    counts, at a cost that hardly grows with the documents. Every ten sweeps topics join others where this
    makes the whole more likely (up to 1,024 topics): up to sweep 150 pairs that are parts of one, then
    leftovers, which single tokens keep alive in a few documents.

    So `n_topics_` counts topics that the data are less likely without. It depends on the seed and on the
    priors; `n_topics_interval_` says how sure the judgement is, given the topics of this chain. Large corpora
    of news have use for more topics than they are given: where more than nine in ten of `n_components` are
    left, a warning says that the limit is reached. For a number that predicts best, hold documents out
    (`stradask sweep`).

    Parameters
    ----------
    n_components : int, default=100
        Topics at most, T. Where nearly all are used, take more.
    alpha : float, default=None
        Concentration of documents about pi. None draws it, with the prior Gamma(1, 1).
    gamma : float, default=None
        Concentration of pi. None draws it, with the prior Gamma(1, 1).
    topic_word_prior : float or array of shape (n_features,), default=None
        beta; None is 0.01.
    max_iter : int, default=300
        Sweeps over all tokens. A fit of fewer than 160 warns: leftovers still count as topics.
    exact : bool, default=False
        Keep topic totals live, on one thread: the chain is then exactly that of the posterior of topics,
        alpha, pi and gamma. All tokens begin in one topic, from which others part, no sweep is annealed, and
        no topics are joined; topics that are parts of one take some hundred sweeps more to become one, and
        `n_topics_` counts all that have tokens.
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
    n_topics_ : int
        Topics that are left, in which the attributes below are counted.
    n_topics_interval_ : ndarray of shape (2,)
        Ends of an interval of 90 % about the number of topics, over all judgements of the fit: each topic
        counts with its probability against the whole without it. It does not know other chains, which may
        find other topics. Only where topics were judged, not with ``exact=True`` or below 160 sweeps.
    doc_topic_prior_ : ndarray of shape (n_topics,)
        alpha pi, as last drawn: of these topics.
    gamma_ : float
        As given, or as last drawn.
    components_, topic_word_, doc_topic_, word_topic_counts_, doc_topic_counts_, topic_word_prior_
        As in `LatentDirichletAllocation`, with ``n_topics_`` topics.
    log_likelihood_, history_, worker_history_, n_iter_, sampler_, n_features_in_, vocabulary_
        As there. The likelihood is that of words and topics given alpha pi.

    Raises
    ------
    DataError
        If `X` does not hold counts.
    CheckpointMismatch
        If `checkpoint` holds a fit of other parameters or data.

    See Also
    --------
    LatentDirichletAllocation : With a number of topics that is given.

    References
    ----------
    Teh, Jordan, Beal, Blei, "Hierarchical Dirichlet processes", JASA 2006. The truncation: Ishwaran,
    Zarepour, "Exact and approximate sum representations for the Dirichlet process", Canadian Journal of
    Statistics 2002.

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> topics = np.kron(np.eye(3), np.full(5, 0.2))
    >>> X = np.array([rng.multinomial(30, rng.dirichlet([0.5] * 3) @ topics) for _ in range(100)])
    >>> hdp = sd.HDPTopicModel(20, random_state=0).fit(X)
    >>> hdp.n_topics_
    3
    >>> bool(hdp.n_topics_interval_[0] <= 3 <= hdp.n_topics_interval_[1])
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FittedTopicModel._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**16 - 1, closed="both")],
        "alpha": [None, Interval(Real, 0, None, closed="neither")],
        "gamma": [None, Interval(Real, 0, None, closed="neither")],
    }
    _label, _finds_number = "HDP", True
    _more_topics = "take more n_components, or a smaller alpha or gamma"

    def __init__(
        self,
        n_components: int = 100,
        *,
        alpha: float | None = None,
        gamma: float | None = None,
        topic_word_prior: Any = None,
        max_iter: int = 300,
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
        vocabulary: Any = None,
        n_features: int | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit topics, and find how many there are.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents, or a corpus in files or of Dask's, as in
            `LatentDirichletAllocation.fit`.
        y : None
            Ignored.
        vocabulary, n_features, callback
            As in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        self._fit_anew(X, vocabulary=vocabulary, n_features=n_features, callback=callback)
        return self

    def _priors(self, n_features, as_fitted):
        beta = check_prior("topic_word_prior", self.topic_word_prior, n_features, _TOPIC_WORD_PRIOR)
        return np.ones(self.n_components), beta  # `_concentrations` says what alpha is

    def _concentrations(self):
        return {"alpha": self.alpha, "gamma": self.gamma}

    def _check_state(self):
        super()._check_state()
        if not self.gamma_ > 0:
            raise DataError("gamma_ cannot be that of this model")
