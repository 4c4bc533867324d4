"""Bayesian logistic regression."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy import special

from ..._typing import Array, ArrayLike, Matrix, Vector
from ...errors import DataError
from ..inputs.targets import AccuracyMixin, check_labels, check_length, label_numbers
from .estimator import BayesianRegression
from .models.groups import normal_nodes


@dataclass(eq=False, repr=False)
class BayesianLogisticRegression(AccuracyMixin, BayesianRegression):
    r"""Bayesian logistic regression for two classes.

    .. math:: p(b, c \mid X, y) \propto p(b)\, p(c) \prod_i \left(1 + e^{-y_i (x_i b + c + o_i)}\right)^{-w_i}

    for classes y of 1 and -1, coefficients b, an intercept c, `offset` o and `sample_weight` w. Predictions
    are averages over the posterior, not those at one estimate of it.

    ``sampler="auto"`` looks for the mode first. Where importance sampling about it is reliable by Pareto's
    k-hat, its draws are the posterior, resampled once by their weights; else split Hamiltonian Monte Carlo
    if it accepts enough, else NUTS. With `n_shards` above 1 the rows are dealt out at random, every shard is
    sampled alone with the prior to the power 1 / n_shards, and the draws are combined: see `combine`.

    With `groups` each group has an intercept ``u_g ~ N(0, group_sd^2)`` of its own. In the density that is
    sampled the intercepts are integrated out, group by group, to about seven digits, and drawn afterwards
    given the other parameters, exactly. So there are no funnels, and shards, which get whole groups, are
    combined over what they share. A gradient costs some 20 times as much by row; draws of the intercepts are
    8 bytes times draws times groups.

    **Standardisation.** Columns are centred and scaled inside, by the means and standard deviations of all
    rows (of all shards, with their weights); without an intercept they are scaled about zero. Draws, the
    intercept and `prior_scale` are in units of the columns as they are. Where the prior decides what a
    coefficient is, the line "prior" of ``posterior_.diagnostics`` says so, whatever the scale.

    Memory: X is copied twice, once with the intercept and once in the order of the kernel. With
    `sample_weight` or an offset the kernel goes row by row, at a third of the speed. float32 computes in
    single precision.

    Seeds and threads: draws are *bit-identical* for any `n_jobs`, engine and number of workers, and if
    workers are lost or the run is resumed.

    Parameters
    ----------
    prior : {"normal", "student_t", "laplace", "horseshoe"}, default="normal"
        Of the coefficients, about 0. The horseshoe (regularised, with slabs of `prior_scale`) is for many
        columns of which few matter, and is not for shards; with it the intercept is normal.
    prior_scale : "auto", float or array-like of shape (n_features,), default="auto"
        "auto" is ``2.5 / sd(x_j)``, which knows no units; numbers are in units of the coefficients. np.inf is
        flat; data that leave a flat direction are refused.
    intercept_scale : float, default=10
        Of the predictor at the means of the columns, and of the offset.
    prior_freedom : float, default=4
        Degrees of freedom of prior="student_t".
    group_scale : float, default=2.5
        Of the half-normal prior of the standard deviation of the groups' intercepts, where `fit` is given
        `groups`.
    fit_intercept : bool, default=True
    n_samples : int, default=1000
        Draws of each chain.
    n_chains : int, default=4
    n_warmup : int, default=1000
        Draws that tune each chain and are thrown away; at most 150 are made if chains begin about a mode.
    target_accept : float, default=0.8
        Acceptance to which NUTS and HMC adapt their step size; nearer to 1 for shorter steps and fewer
        divergences. A chain whose warm-up diverges starts again with 0.95; the horseshoe starts with it under
        "auto".
    sampler : {"auto", "laplace", "nuts", "split_hmc", "hmc", "mala", "random_walk", "slice", "smc"}
        By default "auto". "laplace" is importance sampling about the mode, "smc" annealed populations, which
        give the evidence (``posterior_.log_evidence``).
    n_shards : int or "auto", default=1
        "auto" leaves at least 100 rows a column to each shard, and of each class as many rows as columns;
        it is 1 below a million entries of X, where shards do not pay.
    combine : str, default="auto"
        How draws of shards are combined; "auto" raises an error if no combination passes its tests.
    n_proposals : int, default=4000
        At least so many points, and never fewer than draws, are weighted by the densities of all shards when
        these are combined.
    engine : str or distributed.Client, default="local"
        Where chains run: "local" on threads of this process, "dask" on the current Dask client, or on that of
        a client or of a scheduler's address.
    checkpoint : path-like, optional
        A folder, visible to all workers, for files of 100 draws each. The same fit resumes from them; with
        more `n_samples` it extends the run. Needs an integer `random_state`. Importance sampling writes none.
    n_jobs : int, optional
        Threads, over chains or shards. None is 1, -1 all cores.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    posterior_ : Posterior
        Draws by name (``coef``, ``intercept``; with groups ``group_sd`` and ``group``), `summary`,
        `diagnostics`. Columns of a DataFrame name the coefficients.
    coef_ : ndarray of shape (1, n_features)
        Posterior means.
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
    groups_, group_intercepts_ : ndarray of shape (n_groups,)
        With groups only: their labels, sorted, and the posterior means of their intercepts.
    sampler_ : str
        The sampler that ran.
    n_shards_ : int
        1 where the shards of a linear regression were merged exactly.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, other numbers of classes than two, a flat prior that the data do not complement, and the
        like.
    CombinationRefused
        With several shards, if no combination passes its diagnostics; lists them.

    Warns
    -----
    PosteriorWarning
        If the diagnostics of the posterior say not to use its draws.

    See Also
    --------
    SparseLogisticRegression : One sparse estimate, for far more columns.

    References
    ----------
    Neiswanger, Wang, Xing, "Asymptotically exact, embarrassingly parallel MCMC", UAI 2014. Hoffman, Gelman,
    "The No-U-Turn Sampler", JMLR 2014. Gelman, Jakulin, Pittau, Su, "A weakly informative default prior
    distribution for logistic and other regression models", Annals of Applied Statistics 2008.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = sd.BayesianLogisticRegression(random_state=0).fit(scale(X[:, :3]), y)
    >>> model.posterior_["coef"].shape, model.predict_proba(scale(X[:, :3])[:2]).round(1)
    ((4000, 3), array([[0.9, 0.1],
           [1. , 0. ]]))
    """

    prior: str = "normal"
    prior_scale: ArrayLike = "auto"
    _: KW_ONLY
    group_scale: float = 2.5

    def __sklearn_tags__(self):
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    _all_classes = None  # those of all shards, where X and y are one of them; () while they are not known

    @property
    def _family(self):
        return "bernoulli"

    def _targets(self, y, n_samples):
        if self._all_classes is None:
            classes, numbers = check_labels(y, n_samples, type(self).__name__)
        else:
            classes, numbers = label_numbers(y, n_samples, type(self).__name__)
            if len(self._all_classes):
                numbers = np.searchsorted(self._all_classes, classes)[numbers]
                classes = self._all_classes
        if len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported: y has {len(classes)} classes, "
                f"{type(self).__name__} takes two; fit one model a class, or SparseLogisticRegression"
            )
        self.classes_ = classes
        return np.where(numbers == 1, 1.0, -1.0)

    def _shaped(self, values):
        return np.atleast_2d(values) if np.ndim(values) else np.atleast_1d(values)

    def predict_proba(
        self, X: Matrix, *, offset: Vector | None = None, groups: Vector | None = None
    ) -> Array:
        """Compute the probabilities of the classes, averaged over the posterior.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Of a model that was fitted with groups. The intercept of a group that the fit did not see is
            averaged over the distribution of groups, and so is that of all rows where `groups` is None.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        (positive,) = self._average(X, offset, groups, lambda f, posterior: [special.expit(f)], 1)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Matrix, *, offset: Vector | None = None, groups: Vector | None = None) -> Array:
        """Predict the more probable label of each row.

        Parameters
        ----------
        X, offset, groups
            As in `predict_proba`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        positive = self.predict_proba(X, offset=offset, groups=groups)[:, 1]
        return self.classes_[(positive > 0.5).astype(np.intp)]

    def predict_log_proba(
        self, X: Matrix, *, offset: Vector | None = None, groups: Vector | None = None
    ) -> Array:
        """Compute the logarithms of `predict_proba`.

        Parameters
        ----------
        X, offset, groups
            As in `predict_proba`.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        both = self._average(X, offset, groups, lambda f, posterior: [special.expit(-f), special.expit(f)], 2)
        with np.errstate(divide="ignore"):
            return np.log(both.T)

    def _targets_of_fit(self, y, n_samples):
        y = np.asarray(y)
        unknown = ~np.isin(y, self.classes_)
        if y.ndim != 1 or unknown.any():
            raise DataError(
                f"y must be a vector of labels among {self.classes_.tolist()}, got {y[unknown][:1]}"
            )
        check_length("y", y, n_samples)
        return np.where(y == self.classes_[1], 1.0, -1.0)

    def _log_density(self, f, y, new):
        """See the base class; over the intercepts of new groups it is a sum."""
        found = special.log_expit(y * f)
        if new.any():
            sd, signs = self.posterior_["group_sd"], y[new]
            total = np.full(f[new].shape, -np.inf)
            for node, weight in zip(*normal_nodes(sd), strict=True):
                part = special.log_expit(signs * (f[new] + node * sd))
                total = np.logaddexp(total, np.log(weight) + part)
            found[new] = total
        return found
