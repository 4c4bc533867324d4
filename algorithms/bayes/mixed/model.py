"""From a `MixedDesign` to a `Model`, whose density is in ``kernels.bayes.densities.mixed``."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels.bayes.densities import mixed as kernel
from ....kernels.bayes.densities import mixed_local, mixed_normal
from ....scheduler.threads import single_threaded_blas
from .. import parameters as kinds
from ..chains.chain import stream
from ..combine.combination import CombinationRefused
from ..models.groups import text_of
from ..models.layout import NamedLayout
from ..models.model import INTERCEPTS, Model, aligned
from ..models.prior_draws import distribution_of, lkj_density
from ..posterior.tables import column_names
from .design import Term
from .families import log_constant
from .priors import AUXILIARY, located, stretched
from .start import first_looks, pooled

_CODES = {
    "normal": kernel.NORMAL,
    "student_t": kernel.STUDENT_T,
    "logistic": kernel.BERNOULLI,
    "binomial": kernel.BERNOULLI,
    "poisson": kernel.POISSON,
    "negative_binomial": kernel.NEGATIVE_BINOMIAL,
    "gamma": kernel.GAMMA,
    "ordered": kernel.ORDERED,
}


def layout_of(family, design, scaling, priors):
    """Parameters that all groups share, standardised, in the order that kernels know, with their priors."""
    parameters, chosen = {}, {}
    for j, (name, spread) in enumerate(zip(design.names, scaling.spreads, strict=True)):
        parameters[f"b{j}"] = kinds.real()
        chosen[f"b{j}"] = stretched(located(priors[f"coef[{name}]"], name), spread / scaling.size)
    if design.intercept:
        parameters["intercept"] = kinds.real()
        chosen["intercept"] = stretched(located(priors["intercept"], "intercept"), 1 / scaling.size)
    for t, term in enumerate(design.terms):
        k = len(term.columns)
        parameters[f"sd{t}"] = kinds.positive(k)
        chosen[f"sd{t}"] = stretched(priors[f"sd_{term.name}"], 1 / scaling.size)
        if term.has_correlations:
            parameters[f"cor{t}"], chosen[f"cor{t}"] = kinds.cholesky(k), priors[f"cor_{term.name}"]
    supports = {"cut": kinds.ordered(max(design.n_levels - 1, 2))}
    if design.n_levels == 2:
        raise DataError("the target has two levels: take family='logistic'")
    for name in AUXILIARY.get(family, ()):
        parameters[name] = supports.get(name, kinds.positive())
        chosen[name] = stretched(priors[name], 1 / scaling.size) if name == "sigma" else priors[name]
    return NamedLayout(parameters, chosen)


class MixedLayout:
    """Names, places and values of a mixed model, without its data.

    The effects of the first `n_sampled` terms are parameters, by default none; others are integrated out.
    """

    def __init__(self, family, design, scaling, priors, n_sampled=0):
        self.family, self.scaling, self.intercept = family, scaling, design.intercept
        self.columns, self.n_levels = design.names, design.n_levels
        self.terms = tuple(
            Term(t.name, t.columns, t.levels, t.Z[:0], t.groups[:0], t.correlated) for t in design.terms
        )
        self.priors, self.layout = priors, layout_of(family, design, scaling, priors)
        self.sampled = self.terms[:n_sampled]

    @property
    def n_free(self):
        """Free numbers of the parameters that groups share."""
        return self.layout.n_free

    @cached_property
    def places(self):
        """Where each parameter of the layout begins in its values."""
        firsts = np.cumsum([0, *(one.n_values for one in self.layout.parameters.values())])
        return dict(zip(self.layout.parameters, firsts.tolist(), strict=False))

    @cached_property
    def names(self):
        """Names of the unconstrained numbers."""
        found = []
        for name, one in self.layout.parameters.items():
            kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz_")
            if kind == "b":
                found.append(f"coef[{self.columns[int(number)]}]")
            elif kind == "sd":
                term = self.terms[int(number)]
                found += [f"log sd_{term.name}[{column}]" for column in term.columns]
            elif kind == "cor":
                shown = f"cor_{self.terms[int(number)].name}"
                found += [free.replace(name, shown) for free in one.free_names(name)]
            else:
                found += one.free_names(name)
        for term in self.sampled:
            numbers = ["mean", *(f"contrast {g}" for g in range(1, len(term.levels)))]
            found += [f"{term.name}[{number},{column}]" for number in numbers for column in term.columns]
        return tuple(found)

    @cached_property
    def shared(self):
        """Names and shapes of the values that all groups share."""
        found: dict[str, Any] = {"coef": list(self.columns)} if self.columns else {}
        if self.intercept:
            found["intercept"] = ()
        for term in self.terms:
            found[f"sd_{term.name}"] = list(term.columns)
            if term.has_correlations:
                found[f"cor_{term.name}"] = [f"{a}~{b}" for _, a, _, b in term.pairs]
        for name in AUXILIARY.get(self.family, ()):
            found[name] = (self.n_levels - 1,) if name == "cut" else ()
        return found

    @cached_property
    def variables(self):
        """Names and shapes of all values: those that groups share, then effects, column by column."""
        effects = {
            f"{term.name}:{column}": text_of(term.levels) for term in self.terms for column in term.columns
        }
        return self.shared | effects

    def values(self, Q):
        """Values that all groups share, on the user's scale, at points Q (K, n_free and more)."""
        return self.on_scale(self.layout.values(np.ascontiguousarray(Q[:, : self.n_free])))

    def on_scale(self, theta):
        """Values of the layout (K, n_values) on the user's scale."""
        d = len(self.columns)
        coefs = theta[:, :d] * (self.scaling.size / self.scaling.spreads)
        shift = coefs @ self.scaling.centres
        parts = [coefs]
        for name, one in self.layout.parameters.items():
            first = self.places[name]
            values = theta[:, first : first + one.n_values]
            if name in ("intercept", "sigma") or name.startswith("sd"):
                values = values * self.scaling.size
            if name == "intercept":
                values = values - shift[:, None]
            elif name == "cut":
                values = values + shift[:, None]
            elif name.startswith("cor"):
                k = one.size
                L = values.reshape(-1, k, k)
                R = L @ L.transpose(0, 2, 1)
                values = np.stack([R[:, i, j] for i in range(k) for j in range(i)], axis=1)
            if first >= d:
                parts.append(values)
        return np.concatenate(parts, axis=1)

    def by_name(self, values):
        """Values that groups share, columns (K, size) of each name."""
        sizes = [len(column_names({name: shape})) for name, shape in self.shared.items()]
        ends = np.cumsum(sizes)
        return dict(zip(self.shared, np.split(values[:, : ends[-1]], ends[:-1], axis=1), strict=True))

    def with_log_prior(self, draws):
        """Values (K, n) that groups share, predictors at the means of columns, and the log of their prior."""
        parts, log_prior = [], np.zeros(len(draws))
        shift = (draws[:, : len(self.columns)] @ self.scaling.centres)[:, None]
        for name, values in self.by_name(draws).items():
            values = values + {"intercept": shift, "cut": -shift}.get(name, 0.0)
            parts.append(values)
            if name == "coef":
                for column, coefs in zip(self.columns, values.T, strict=True):
                    log_prior += distribution_of(self.priors[f"coef[{column}]"]).logpdf(coefs)
            elif name.startswith("cor_"):
                log_prior += lkj_density(self.priors[name], values)
            else:
                log_prior += distribution_of(self.priors[name]).logpdf(values).sum(axis=1)
        return np.concatenate(parts, axis=1), log_prior

    @property
    def watched(self):
        """Columns of the values that mix several free numbers.

        Correlations of three effects and more; where effects are parameters coefficients, too.
        """
        columns: list[int] = []
        first = 0
        for name, shape in self.shared.items():
            size = len(shape) if isinstance(shape, list) else int(np.prod(shape))
            correlations = name.startswith("cor_") and size > 1 and isinstance(shape, list)
            if correlations or (name in ("coef", "intercept") and self.sampled):
                columns += range(first, first + size)
            first += size
        return np.array(columns, dtype=np.int64)

    def by_column(self, effects):
        """Effects (K, sum of G k), group by group, as columns of `variables`: column by column."""
        parts, first = [], 0
        for term in self.sampled:
            G, k = len(term.levels), len(term.columns)
            block = effects[:, first : first + G * k].reshape(-1, G, k)
            parts.append(block.transpose(0, 2, 1).reshape(len(effects), G * k))
            first += G * k
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(effects), 0))


@dataclass(frozen=True, eq=False)
class MixedModel(Model):
    """A model whose effects are parameters, or integrated out; `joint` is the one with all as parameters."""

    mixed: Any = None
    joint: Any = None
    reach = 1.0  # chains begin near a fit without groups

    @property
    def regular(self):
        """Without effects among the parameters."""
        return not self.mixed.sampled

    @property
    def is_costly(self):
        """With integrals by quadrature."""
        return self.density is mixed_local.mixed_local and self.mixed.family != "normal"

    @property
    def watched(self):
        """See `Model.watched`."""
        return self.mixed.watched

    def values(self, Q):
        """Parameters on the user's scale, and the effects where they are parameters."""
        Q = self._points(Q)
        if not self.mixed.sampled:
            return self.mixed.values(Q)
        theta = self.mixed.layout.values(np.ascontiguousarray(Q[:, : self.mixed.n_free]))
        effects = self.mixed.scaling.size * kernel.all_effects(Q, theta, self.data, self.meta)
        return np.concatenate([self.mixed.on_scale(theta), self.mixed.by_column(effects)], axis=1)

    @property
    def chained(self):
        """With all effects: quadrature at every step would cost a hundred times the density by rows."""
        return self if self.joint is None else self.joint

    def reduced(self, draws):
        """See `Model.reduced`: coefficients without the mean effect of the integrated term."""
        joint, term = self.joint, self.mixed.terms[-1]
        k, G, t = len(term.columns), len(joint.mixed.terms[-1].levels), len(self.mixed.sampled)
        theta = joint.mixed.layout.values(np.ascontiguousarray(draws[:, : joint.mixed.n_free]))
        place = self.meta[kernel.TERMS_AT] + t * kernel.TERM
        d, A_at = self.meta[kernel.N_COEFS], self.meta[place + kernel.A_AT]
        A = vars(self)["data"][A_at : A_at + d * k].reshape(d, k)
        first = self.mixed.places[f"sd{t}"]
        means = draws[:, self.n_params : self.n_params + k]
        if term.has_correlations:
            at = self.mixed.places[f"cor{t}"]
            means = np.einsum("dij,dj->di", theta[:, at : at + k * k].reshape(-1, k, k), means)
        Q = draws[:, : self.n_params].copy()
        Q[:, :d] -= (theta[:, first : first + k] * means) @ A.T / np.sqrt(G)
        logps, gradients = self.logp_grads(Q)
        if not np.isfinite(logps).all():
            raise CombinationRefused(
                f"the integral over the effects of a group of ({term.name}) does not converge at a draw of a "
                "shard: take n_shards=1, or a family with lighter tails"
            )
        return Q, logps, gradients

    def without_data(self):
        """See `Model.without_data`; values of effects need the projections of their columns."""
        meta, parts, at = self.meta.copy(), [np.zeros(0)], 0
        for t in range(len(self.mixed.sampled)):
            place = meta[kernel.TERMS_AT] + t * kernel.TERM
            size = meta[kernel.N_COEFS] * meta[place + kernel.WIDTH]
            first = meta[place + kernel.A_AT]
            parts.append(vars(self)["data"][first : first + size])
            meta[place + kernel.A_AT], at = at, at + size
        return replace(self, data=np.concatenate(parts), meta=meta, joint=None)

    def draw_local(self, Q, *, seed, n_jobs=1):
        """Draw the integrated effects of the groups of this model, given points Q (K, d) of the others.

        Returns them (K, G k), and the numbers of their columns among those of all groups.
        """
        Q, term = self._points(Q), self.mixed.terms[-1]
        numbers = vars(self)["data"][self.meta[kernel.GROUPS_AT] :]
        name = stream(seed, int(numbers[0]), INTERCEPTS, 0)
        if self.density is mixed_local.mixed_local:
            made = mixed_local.draw_effects(Q, name, self.data, self.meta)
        else:
            theta = self.mixed.layout.values(Q)
            made = mixed_normal.draw_effects(theta, name, self.data, self.meta)
        k = len(term.columns)
        G = made.shape[1] // k
        numbers = numbers[:G].astype(np.int64)
        columns = (np.arange(k)[:, None] * len(term.levels) + numbers).ravel()
        effects = self.mixed.scaling.size * made.reshape(-1, G, k)
        return effects.transpose(0, 2, 1).reshape(len(made), G * k), columns


@dataclass(frozen=True, eq=False)
class FirstLook:
    """What all shards of a model must have in common: where chains begin, and coordinates of the effects.

    A fit without groups (`coefs`, `aux`), the size of the effects of each term, the bits of its centred
    columns, and the least squares of its columns on those of the formula.
    """

    coefs: np.ndarray
    aux: dict
    spreads: list
    centred: list
    projections: list


def inspect_design(family, design, scaling):
    """The `FirstLook` at a design."""
    X = _columns(design, scaling)
    coefs, aux = pooled(family, X, design)
    f = X @ coefs + design.offsets
    looks = first_looks(family, f, design, aux)
    spreads, centred = [spread for spread, _ in looks], [bits for _, bits in looks]
    projections = [np.linalg.lstsq(X, term.Z, rcond=None)[0] for term in design.terms]
    return FirstLook(coefs, aux, spreads, centred, projections)


def _columns(design, scaling):
    """Standardised columns, and one of ones for the intercept."""
    X = (design.X - scaling.centres) / scaling.spreads
    return np.column_stack([X, np.ones(len(X))]) if design.intercept else X


def mixed_model(family, design, scaling, priors, power=1.0, common=None):
    """Make the model of a design, or of one shard of it; `priors` are those of `chosen_priors`.

    Of normal noise with one factor at most the effects are integrated out in closed form; else they are
    parameters. With the `FirstLook` at all rows in `common` those of the last term are integrated out by
    quadrature. Where the last or no effects are integrated out, the density is one of several shards' as
    well, each with its prior, that of crossed effects too, to the `power`.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.mixed.model import mixed_model
    >>> from stradask.algorithms.bayes.mixed.design import MixedDesign
    >>> from stradask.algorithms.bayes.models.scaling import Scaling
    >>> from stradask.algorithms.bayes.mixed.priors import chosen_priors
    >>> x, y = np.arange(4.0), np.array([0.0, 1.0, 1.0, 3.0])
    >>> design = MixedDesign(("x",), x[:, None], y, np.ones(4), np.zeros(4))
    >>> scaling = Scaling(design.centres, design.spreads)
    >>> model = mixed_model("normal", design, scaling, chosen_priors(None, "normal", design))
    >>> model.names
    ('coef[x]', 'intercept', 'log sigma')
    """
    integrated = common is None and is_integrated(family, design.terms)
    n_sampled = 0 if integrated else len(design.terms) - (common is not None)
    mixed = MixedLayout(family, design, scaling, priors, n_sampled)
    common = inspect_design(family, design, scaling) if common is None else common
    X = _columns(design, scaling)
    start = _start(mixed, common)
    table, reals = mixed.layout.tables
    head = np.zeros(kernel.HEAD, np.int64)
    data = [np.array([power]), reals]
    head[1], head[kernel.N_FREE], head[kernel.N_COEFS] = mixed.layout.n_values, mixed.n_free, X.shape[1]
    head[kernel.FAMILY], head[kernel.N_ROWS] = _CODES[family], len(X)
    aux_names = AUXILIARY.get(family, ())
    if aux_names:
        head[kernel.OWN] = mixed.places[aux_names[0]]
        head[kernel.N_OWN] = mixed.layout.n_values - head[kernel.OWN]
    head[kernel.X_AT] = 1 + len(reals)
    if n_sampled < len(design.terms) and not integrated:
        order = np.argsort(design.terms[-1].groups, kind="stable")
        design, X = design[order], X[order]
    terms, body, integers = (_integrated if integrated else _by_rows)(mixed, head, X, design, common)
    head[0] = kernel.HEAD  # place of the layout's tables
    head[kernel.TERMS_AT] = kernel.HEAD + len(table)
    if integers:
        sizes = np.cumsum([0, *map(len, integers)])[:-1]
        terms[:, kernel.ROWS_AT] = head[kernel.TERMS_AT] + terms.size + sizes
    meta = np.concatenate([head, table, terms.ravel(), *integers])
    joined = np.concatenate([*data, *body])
    numbers = aligned(joined.nbytes)
    numbers[:] = joined
    constant = log_constant(family, design) - design.weights.sum() * np.log(scaling.size)
    density = kernel.mixed if n_sampled == len(mixed.terms) else mixed_local.mixed_local
    if integrated:
        density = mixed_normal.mixed_normal
    model = MixedModel(density, numbers, meta, mixed.names, start, mixed=mixed, log_constant=constant)
    return replace(model, joint=_joint(model, design, common, priors)) if model.is_costly else model


def _joint(model, design, common, priors):
    """The model of the same data with the integrated effects of its groups among the parameters."""
    term, meta = design.terms[-1], model.meta.copy()
    numbers, groups = np.unique(term.groups, return_inverse=True)
    of_shard = replace(term, levels=term.levels[numbers])
    design = replace(design, terms=(*design.terms[:-1], of_shard))
    mixed = MixedLayout(model.mixed.family, design, model.mixed.scaling, priors, len(design.terms))
    place = meta[kernel.TERMS_AT] + meta[kernel.N_TERMS] * kernel.TERM
    meta[place + kernel.ROWS_AT] = len(meta)
    meta[kernel.N_TERMS] += 1
    meta = np.concatenate([meta, groups])
    start = _start(mixed, common)
    return MixedModel(kernel.mixed, vars(model)["data"], meta, mixed.names, start, mixed=mixed)


def build_shard(family, rows, scaling, priors, power, common=None):
    """Make the model of a `Part` of the rows, where it is worked on."""
    with single_threaded_blas():
        return mixed_model(family, rows.take(), scaling, priors, power, common)


def is_integrated(family, terms):
    """Whether all effects are integrated out in closed form."""
    return family == "normal" and len(terms) <= 1


def _terms(mixed):
    """Rows of the kernel's table of terms, without places in meta; those with effects in q first."""
    table, q_at = np.zeros((max(len(mixed.terms), 1), kernel.TERM), np.int64), mixed.n_free
    table[:, kernel.WIDTH], table[:, kernel.L_AT] = 1, -1  # of no groups, where there is no term
    for t, term in enumerate(mixed.terms):
        k, G = len(term.columns), len(term.levels)
        L_at = mixed.places[f"cor{t}"] if term.has_correlations else -1
        table[t, kernel.SHARED] = t < len(mixed.sampled)
        table[t, : kernel.Z_AT] = k, G, mixed.places[f"sd{t}"], L_at
        table[t, kernel.Q_AT] = q_at
        q_at += G * k
    return table


def _by_rows(mixed, head, X, design, common):
    """Terms, floats, and for each term the groups of rows; of an integrated one where its groups begin."""
    n = len(X)
    head[kernel.Y_AT] = head[kernel.X_AT] + X.size
    head[kernel.N_TERMS] = len(mixed.sampled)
    body, at = [X.ravel(), design.y, design.weights, design.offsets], head[kernel.Y_AT] + 3 * n
    table, integers = _terms(mixed), []
    for t, term in enumerate(design.terms):
        A = common.projections[t]
        table[t, kernel.Z_AT], table[t, kernel.A_AT] = at, at + term.Z.size
        table[t, kernel.CENTRED] = common.centred[t]
        body += [term.Z.ravel(), A.ravel()]
        at += term.Z.size + A.size
        if t < len(mixed.sampled):
            integers.append(term.groups)
            continue
        numbers, firsts = np.unique(term.groups, return_index=True)
        table[t, kernel.N_GROUPS] = len(numbers)
        head[kernel.GROUPS_AT] = at
        body.append(numbers.astype(np.float64))
        integers.append(np.append(firsts, n))
    return table, body, integers


def _integrated(mixed, head, X, design, common):
    """Terms and floats: an orthogonal basis of each group's columns, and the least squares of the rest."""
    root = np.sqrt(design.weights)[:, None]
    X, y = X * root, (design.y - design.offsets) * root[:, 0]
    table, d = _terms(mixed), X.shape[1]
    parts, weight, numbers = [], design.weights.sum(), np.zeros(1)
    if design.terms:
        (term,) = design.terms
        order = np.argsort(term.groups, kind="stable")
        numbers, sizes = np.unique(term.groups, return_counts=True)
        X, y, Z = X[order], y[order], (term.Z * root)[order]
        k, ends = Z.shape[1], np.cumsum(sizes)
        R, QX, Qy = np.zeros((len(sizes), k, k)), np.zeros((len(sizes), k, d)), np.zeros((len(sizes), k))
        rest_X, rest_y = X.copy(), y.copy()
        for g, (first, end) in enumerate(zip(ends - sizes, ends, strict=True)):
            Q, r = np.linalg.qr(Z[first:end])
            m = len(r)
            R[g, :m], QX[g, :m], Qy[g, :m] = r, Q.T @ X[first:end], Q.T @ y[first:end]
            rest_X[first:end] -= Q @ QX[g, :m]
            rest_y[first:end] -= Q @ Qy[g, :m]
        X, y = rest_X, rest_y
        parts, weight = [R.ravel(), QX.ravel(), Qy.ravel()], weight - k * len(sizes)
        table[0, kernel.N_GROUPS] = len(sizes)
    center = np.linalg.lstsq(X, y, rcond=None)[0]
    triangle = np.zeros((d, d))
    factor = np.linalg.qr(X, mode="r")
    triangle[: len(factor)] = factor
    squares = float(((y - X @ center) ** 2).sum())
    body = [center, triangle.ravel(), np.array([squares, weight]), *parts, numbers.astype(np.float64)]
    head[kernel.GROUPS_AT] = head[kernel.X_AT] + sum(map(len, body[:-1]))
    return table, body, []


def _start(mixed, common):
    start: dict[str, Any] = {f"b{j}": value for j, value in enumerate(common.coefs[: len(mixed.columns)])}
    if mixed.intercept:
        start["intercept"] = common.coefs[-1]
    start |= {f"sd{t}": spread for t, spread in enumerate(common.spreads)} | common.aux
    n_effects = sum(len(t.levels) * len(t.columns) for t in mixed.sampled)
    return np.concatenate([mixed.layout.start(start), np.zeros(n_effects)])
