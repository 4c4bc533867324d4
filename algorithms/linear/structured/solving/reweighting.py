"""Second fits by the coefficients of a first one: relaxed, adaptive and reweighted penalties."""

from typing import Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .....errors import DataError
from ...._base import Estimator
from ....inputs.targets import check_penalty_factor
from .blocks import check_groups


class Reweighting(Estimator):
    """Methods of a fitted model that return the estimator of a second fit."""

    def relaxed(self) -> Self:
        """Make an estimator that refits the chosen columns without penalty, and excludes the others.

        ``model.relaxed().fit(X, y)`` is the relaxed lasso with nothing left of the penalty: large
        coefficients are no longer shrunk. Of groups whole ones are chosen.

        Returns
        -------
        estimator
            Not fitted; the same parameters, but `penalty_factor` is 0 for columns or groups that have
            coefficients, and infinite for the others.

        References
        ----------
        Meinshausen, "Relaxed lasso", Computational Statistics & Data Analysis 2007.
        """
        sizes, _ = self._sizes_of_blocks()
        return self._with_factors(np.where(sizes > 0, 0.0, np.inf))

    def reweighted(self, gamma: float = 1.0, epsilon: float = 0.0) -> Self:
        r"""Make an estimator whose penalty is weak where this model's coefficients are large.

        ``model.reweighted().fit(X, y)`` is the adaptive lasso (with groups, the adaptive group lasso), and
        ``SparseGLMCV(model.reweighted()).fit(X, y)`` chooses its strength. Repeated with ``epsilon > 0`` it
        is reweighted l1.

        Parameters
        ----------
        gamma : float, default=1.0
            The factor of a column or group is multiplied by ``1 / (|b| + epsilon)^gamma``, b its
            coefficients.
        epsilon : float, default=0.0
            Above 0 columns without coefficients may come back; with 0 they are excluded.

        Returns
        -------
        estimator
            Not fitted; the same parameters but `penalty_factor`.

        References
        ----------
        Zou, "The adaptive lasso and its oracle properties", JASA 2006. Candès, Wakin, Boyd, "Enhancing
        sparsity by reweighted l1 minimization", Journal of Fourier Analysis and Applications 2008.
        """
        if not (0 < gamma < np.inf and 0 <= epsilon < np.inf):
            raise DataError(f"gamma={gamma} must be above 0 and epsilon={epsilon} 0 or above, both finite")
        sizes, factors = self._sizes_of_blocks()
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = factors * (sizes + epsilon) ** -gamma
        weights[factors == 0] = 0.0
        return self._with_factors(weights)

    def _sizes_of_blocks(self):
        """Norms of the coefficients of each column or group, and its factor in this fit."""
        check_is_fitted(self)
        if "penalty_factor" not in self.get_params(deep=False):
            raise DataError(f"{type(self).__name__} has no penalty_factor to change")
        terms = self._terms()
        blocks = check_groups(terms.groups, self.n_features_in_, overlap=terms.overlap)
        copies = vars(self).get("group_coef_")
        B = blocks.spread(np.atleast_2d(self.coef_).T) if copies is None else copies[:, None]
        sizes = np.sqrt(np.add.reduceat((B**2).sum(axis=1), blocks.starts[:-1]))
        return sizes, factors_of(terms, blocks)

    def _with_factors(self, factors):
        return clone(self).set_params(penalty_factor=factors)


def factors_of(terms, blocks):
    """The penalty factor of each block: those given, or of groups the root of their size, else 1."""
    n_blocks = len(blocks.sizes)
    if terms.factors is not None:
        given = check_penalty_factor(terms.factors, n_blocks)
        return np.ones(n_blocks) if given is None else given
    return np.sqrt(blocks.sizes) if terms.groups is not None else np.ones(n_blocks)
