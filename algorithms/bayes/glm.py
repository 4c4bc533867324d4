"""Generalised linear mixed models by formula: `BayesianGLM`."""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ..._typing import Array, Callback, RandomState
from ...errors import DataError, shortened
from .combine.combination import CombinationRefused
from .mixed import families
from .mixed.draws import MixedLikelihoods, Predictors, prior_values
from .mixed.formula_design import FormulaDesign
from .mixed.identified import check_identified
from .mixed.model import MixedLayout, build_shard, inspect_design, is_integrated
from .mixed.priors import chosen_priors, location
from .mixed.reading import ReadableMixedModel, seed_of
from .models.prior_density import PriorDensity
from .models.scaling import Scaling
from .posterior.diagnostics import add_prior_line
from .posterior.draws import Posterior
from .settings import CONSTRAINTS, SamplingSettings
from .shards.chains import Densities, draw_local, draw_posterior
from .shards.mixed_rows import mixed_rows, not_in_shards, with_local_last
from .shards.rows import Part


@dataclass(eq=False, repr=False)
class BayesianGLM(ReadableMixedModel):
    r"""Bayesian generalised linear models and mixed models, by formula.

    ``"y ~ x + (x | group)"`` is a regression of y on x, in which the intercept and the slope of x vary from
    group to group:

    .. math:: f_i = c + x_i b + \sum_t z_{ti} u_{t, g_t(i)} + o_i, \qquad
        u_{tg} \sim N(0, D_t R_t D_t)

    for the effects u of each term t and group g, with standard deviations D and correlations R. The target
    has the mean f (normal, Student's t), expit(f) (logistic; binomial, of one trial) or exp(f) (Poisson,
    negative binomial, gamma); an ordered one is a logistic variable about f, cut at thresholds.

    **Formulas** are those of the package formulaic: ``x1 * x2``, ``C(kind)``, ``bs(age, df=4)``,
    ``np.log(y)``. ``(1 | g)`` are intercepts of groups, ``(x | g)`` intercepts and slopes with their
    correlations, ``(x || g)`` without, ``(0 + x | g)`` slopes alone. ``(1 | a) + (1 | b)`` are crossed
    effects, ``a:b`` the combinations of two columns, ``(1 | a/b)`` is ``(1 | a) + (1 | a:b)``, and
    ``(1 | g) + (0 + x | g)`` is ``(x || g)``. ``offset(e)`` adds e to the predictor. Counts of a binomial
    family are ``k | trials(n)`` or ``cbind(k, n - k)``.

    **Where effects are sampled.** With normal noise those of the term with most groups are integrated out in
    closed form, and drawn afterwards, exactly, given the other parameters; with one term an evaluation costs
    nothing by row. Those of other terms, and of other families, are parameters, sampled by NUTS.

    **Shards** (``n_shards=``, ``engine="dask"``) have any rows of a model without groups, and whole groups of
    the term with the most levels else. The effects of these groups never leave their shard. The densities
    that are combined are integrated over them: in closed form with normal noise, else by quadrature with an
    error of about 1e-6 a group, and chains sample them. Effects of crossed terms are parameters that all
    shards share. The combination is exact as the numbers of draws and proposals grow. Where shards do not
    serve (more than three effects a group by quadrature, 60 and more shared effects, a combination that its
    checks refuse) the fit is in one piece, with a warning that says why.
    Effects among the parameters are centred by columns where rows say more of most groups' effects than the
    other groups do, else not, and their mean over groups is a parameter of its own.

    **Standardisation.** Columns are centred and scaled inside; draws and priors are on the scale of the data.
    The prior of the intercept, and of cuts, is that of the predictor at the means of the columns. Columns of
    effects are not centred, since that would be another model: centre a column far from zero, such as a year,
    before its slopes vary between groups. Where the prior decides what a coefficient or a standard deviation
    is, the line "prior" of ``posterior_.diagnostics`` says so.

    Parameters
    ----------
    formula : str
        Needed: the target, ~, and columns and effects of groups.
    family : str, default="normal"
        "normal", "student_t", "logistic", "binomial", "poisson", "negative_binomial", "gamma" or "ordered".
    priors : dict of str to PriorDensity, optional
        Densities of ``stradask.priors`` by name: a column of the formula's matrix or ``"coef"`` for all,
        ``"intercept"``, ``"sd_group"`` or ``"sd"``, ``"cor_group"`` or ``"cor"``, ``"sigma"``, ``"freedom"``,
        ``"overdispersion"``, ``"shape"``, ``"cut"``. Others have the defaults, with s the standard deviation
        of y (normal, Student's t) or 1: coefficients normal(0, 2.5 s / sd of the column), the intercept
        student_t(3, mean of y by the link less m, 2.5 s), standard deviations of effects half_normal(2.5 s /
        root mean square of the column), lkj(1), sigma exponential(1 / s), freedom gamma(2, 0.1),
        overdispersion half_cauchy(1), shape lognormal(1, 2), cuts student_t(3, m, 2.5), with m the mean of
        the offset.
    n_samples, n_chains, n_warmup, sampler, target_accept, n_shards, combine, n_proposals, engine, checkpoint
        See `BayesianLogisticRegression`. Where effects are parameters "auto" is NUTS.
    n_jobs, random_state, verbose
        See `BayesianLogisticRegression`.

    Attributes
    ----------
    posterior_ : Posterior
        Draws by name: ``coef``, ``intercept``, ``sd_group``, ``cor_group`` (below the diagonal), the family's
        own, and the effects ``group:Intercept``, ``group:x``, one for each group.
    priors_ : dict of str to str
        Those in use, on the scale of the data.
    column_names_ : list of str
        Of the coefficients.
    coef_ : ndarray of shape (n_columns,)
        Posterior means.
    intercept_ : float
    effects_ : dict of str to ndarray of shape (n_groups, n_columns)
        Posterior means by term.
    groups_ : dict of str to ndarray of shape (n_groups,)
        Labels by term, sorted.
    classes_ : ndarray
        Of a logistic or ordered family: levels of the target, in order (that of an ordered pandas column, or
        sorted).
    sampler_, n_shards_
        See `BayesianLogisticRegression`.

    Notes
    -----
    Memory: draws are 8 bytes times draws times (parameters + effects), twice that where effects are
    parameters. Model files do not hold priors. A formula is code: after `load` `predict` takes only
    arithmetic and common functions, log, sqrt, C, bs, cr, poly, scale and the like.

    References
    ----------
    Pinheiro, Bates, "Mixed-Effects Models in S and S-PLUS", 2000. Gelman, Hill, "Data Analysis Using
    Regression and Multilevel/Hierarchical Models", 2007. Papaspiliopoulos, Roberts, Skold, "A general
    framework for the parametrization of hierarchical models", Statistical Science 2007.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> town = np.repeat(np.arange(20), 25)
    >>> x = rng.standard_normal(500)
    >>> y = 1 + (2 + rng.normal(0, 0.5, 20))[town] * x + rng.normal(0, 1, 500)
    >>> model = sd.BayesianGLM("y ~ x + (x | town)", random_state=0)
    >>> model.fit({"x": x, "y": y, "town": town}).coef_.round(1)  # doctest: +SKIP
    array([2.])
    """

    _state_attributes = (*ReadableMixedModel._state_attributes, "_formula_state")
    _harmless_text: ClassVar[frozenset[str]] = frozenset({"formula"})
    _parameter_constraints: ClassVar[dict] = {
        "formula": [str],
        "family": [StrOptions(set(families.FAMILIES))],
        "priors": [dict, None],
        **CONSTRAINTS,
    }

    formula: str | None = None
    family: str = "normal"
    _: KW_ONLY
    priors: Mapping[str, PriorDensity] | None = None

    @classmethod
    @functools.cache
    def _place_parameters(cls):
        """Priors are not in a model file either."""
        return (*super()._place_parameters(), "priors")

    # Fitting
    # --------------------------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        y: None = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Draw from the posterior.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
            With the columns that the formula names.
        y : None
            The target is on the left of the formula.
        sample_weight, offset : array-like of shape (n_rows,), or name of a column, optional
            A row of weight 2 counts as two rows. The offset is added to the linear predictor, such as the
            logarithm of an exposure.
        callback : callable, optional
            ``callback(info)`` after the warm-up and every hundred draws of all chains, or after every shard;
            True ends the run.

        Returns
        -------
        self

        Raises
        ------
        DataError
            Names the formula, column or parameter that is wrong, or the shards that there cannot be. With
            normal noise groups of one row each are refused, too.

        Warns
        -----
        UserWarning
            Of linearly dependent columns, of two terms with the same groups, and of groups of one row each
            where only the priors tell their effects from the family's own spread.
        """
        self._validate_params()
        if y is not None:
            raise DataError("y must be None: the target is a column of data, on the left of the formula")
        formula = FormulaDesign(self.formula, self.family)
        closed = is_integrated(self.family, formula.terms)
        alone = self.n_shards in (1, "auto")
        joint = not closed and alone and self.family != "normal"
        settings = self._settings(formula, closed, joint, callback)
        with self._draft() as draft:
            design = formula.learn(data, offset, sample_weight)
            check_identified(draft.family, design)
            if alone and formula.terms and not joint and not closed:
                design = with_local_last(design)
            if not formula.terms or closed or alone:
                posterior, samplers, layout = draft._drawn(design, settings, closed, joint)
            else:
                posterior, samplers, layout = draft._in_shards(formula, design, settings)
            draft._store(posterior, samplers, layout, formula)
        return self

    def _in_shards(self, formula, design, settings):
        """Draw in shards of whole groups, or in one piece where these do not serve."""
        design = with_local_last(design)
        why = not_in_shards(design, self.family)
        if not why:
            try:
                return self._drawn(design, settings, False, False)
            except CombinationRefused as error:
                if self.combine != "auto":
                    raise
                why = str(error)
        warnings.warn(
            f"n_shards={self.n_shards} is not used: {why}. The fit is in one piece, with the effects of all "
            "groups among the parameters: each evaluation takes all rows",
            UserWarning,
            stacklevel=3,
        )
        alone = self._settings(formula, False, True, settings.callback)
        return self._drawn(design, alone, False, True)

    def _drawn(self, design, settings, closed, joint):
        densities, layout = self._densities(design, settings, closed, joint)
        posterior, samplers = draw_posterior(densities, settings)
        values, log_prior = layout.with_log_prior(posterior.draws)
        add_prior_line(posterior, values, posterior.names, log_prior)
        return posterior, samplers, layout

    def _settings(self, formula, closed, joint, callback):
        """Check the settings; effects are parameters unless `closed`, and all in one piece if `joint`."""
        given = {name: getattr(self, name) for name in CONSTRAINTS}
        if formula.terms and not closed:
            given["sampler"] = self._sampler_of_effects()
        if joint or (formula.terms and self.n_shards == "auto"):
            given["n_shards"] = 1 if formula.terms else self.n_shards
        return SamplingSettings(**given, callback=callback).checked()

    def _densities(self, design, settings, closed, joint):
        """Build the densities of the shards, and the layout of their variables."""
        priors = chosen_priors(self.priors, self.family, design)
        self.priors_ = {name: str(prior) for name, prior in priors.items()}
        _, size = location(self.family, design)
        scaling = Scaling(design.centres, design.spreads, size=size)
        scaled = replace(design, y=design.y / size, offsets=design.offsets / size)
        parts = mixed_rows(self.family, design, settings)
        self.n_shards_ = len(parts)
        common, n_sampled = None, 0
        if design.terms and not closed:
            common = None if joint else inspect_design(self.family, scaled, scaling)
            n_sampled = len(design.terms) - (not joint)
            if not joint and len(parts) == 1:  # integrals are over rows side by side
                parts = [np.argsort(design.terms[-1].groups, kind="stable")]
        builds = [
            partial(build_shard, self.family, Part(scaled, rows), scaling, priors, 1 / len(parts), common)
            for rows in parts
        ]
        layout = MixedLayout(self.family, design, scaling, priors, n_sampled)
        likelihoods = MixedLikelihoods(self.family, design)
        local = partial(draw_local, settings.seed, 1) if n_sampled < len(design.terms) else None
        densities = Densities(
            builds, lambda _: layout.variables, lambda _: list(layout.names), local, dealt=True,
            log_likelihood=likelihoods,
        )  # fmt: skip
        return densities, layout

    def _sampler_of_effects(self):
        """The sampler where effects are parameters."""
        if self.sampler in ("laplace", "split_hmc"):
            raise DataError(
                f"sampler={self.sampler!r} needs a mode, which a density of effects and their spread has "
                "not: take 'auto' or 'nuts'"
            )
        return "nuts" if self.sampler == "auto" else self.sampler

    def _store(self, posterior, samplers, layout, formula):
        self._keep(posterior, samplers)
        mean = posterior.mean()
        self.column_names_ = list(layout.columns)
        self.coef_: Any = np.atleast_1d(mean.get("coef", np.zeros(0)))
        self.intercept_: Any = float(mean.get("intercept", 0.0))
        levels = {term.name: term.levels for term in layout.terms}
        self.groups_ = {term.name: levels[term.name] for term in formula.terms}
        self.effects_ = {
            term.name: np.stack([mean[f"{term.name}:{column}"] for column in term.columns], axis=1)
            for term in sorted(layout.terms, key=lambda term: list(self.groups_).index(term.name))
        }
        self.__dict__.pop("classes_", None)
        if formula.classes is not None:
            self.classes_ = formula.classes
        self._formula, self._formula_state = formula, formula.state()

    # Priors
    # ----------------------------------------------------------------------------------------------------

    def sample_prior(
        self, data: Any, n_samples: int = 1000, *, random_state: RandomState | None = None
    ) -> Posterior:
        """Draw from the priors, independently and exactly; no fit is needed.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
            The rows of the fit: the default priors follow their scale.
        n_samples : int, default=1000
        random_state : int, RandomState or None

        Returns
        -------
        Posterior
            Draws of the prior, by the names that `posterior_` has.
        """
        self._validate_params()
        design = FormulaDesign(self.formula, self.family).learn(data, None, None)
        return self._prior(design, n_samples, random_state)

    def prior_predictive(
        self,
        data: Any,
        n_samples: int = 1000,
        *,
        offset: Any = None,
        random_state: RandomState | None = None,
    ) -> Array:
        """Draw new observations of the rows under the priors: are they numbers that one would believe?

        Parameters
        ----------
        data, n_samples, random_state
            As in `sample_prior`.
        offset : array-like of shape (n_rows,), or name of a column, optional

        Returns
        -------
        ndarray of shape (n_samples, n_rows)
        """
        self._validate_params()
        design = FormulaDesign(self.formula, self.family).learn(data, offset, None)
        values = self._prior(design, n_samples, random_state).sample(random_state=random_state)
        return Predictors(self.family, design).observations(values, seed_of(random_state))

    def _prior(self, design, n_samples, random_state):
        if isinstance(n_samples, bool) or not isinstance(n_samples, (int, np.integer)) or n_samples < 1:
            raise DataError(f"n_samples must be a whole number above zero, got {shortened(n_samples)}")
        priors = chosen_priors(self.priors, self.family, design)
        scaling = Scaling(design.centres, design.spreads)
        layout = MixedLayout(self.family, design, scaling, priors, len(design.terms))
        draws = prior_values(layout, int(n_samples), np.random.default_rng(seed_of(random_state)))
        return Posterior(draws, layout.variables, method="draws of the prior")
