"""From a `MixedDesign` to a `Model`, whose density is in ``kernels.bayes.densities.mixed``."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels.bayes.densities import mixed as kernel
from ....kernels.bayes.densities import mixed_normal
from ....scheduler.threads import single_threaded_blas
from .. import parameters as kinds
from ..chains.chain import stream
from ..models.groups import text_of
from ..models.layout import NamedLayout
from ..models.model import INTERCEPTS, Model, aligned
from ..posterior.tables import names_of
from .design import Term
from .priors import OWN, stretched
from .start import first_look, pooled

_CODES = {
    "normal": kernel.NORMAL,
    "student_t": kernel.STUDENT_T,
    "logistic": kernel.BERNOULLI,
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
        chosen[f"b{j}"] = stretched(priors[f"coef[{name}]"], spread, name)
    if design.intercept:
        parameters["intercept"], chosen["intercept"] = (
            kinds.real(),
            stretched(priors["intercept"], 1.0, "intercept"),
        )
    for t, term in enumerate(design.terms):
        k = len(term.columns)
        parameters[f"sd{t}"], chosen[f"sd{t}"] = kinds.positive(k), priors[f"sd_{term.name}"]
        if term.has_correlations:
            parameters[f"cor{t}"], chosen[f"cor{t}"] = kinds.cholesky(k), priors[f"cor_{term.name}"]
    supports = {"cut": kinds.ordered(max(design.n_levels - 1, 2))}
    if design.n_levels == 2:
        raise DataError("the target has two levels: take family='logistic'")
    for name in OWN.get(family, ()):
        parameters[name], chosen[name] = supports.get(name, kinds.positive()), priors[name]
    return NamedLayout(parameters, chosen)


class MixedLayout:
    """Names, places and values of a mixed model, without its data."""

    def __init__(self, family, design, scaling, priors, effects):
        self.family, self.scaling, self.intercept = family, scaling, design.intercept
        self.columns, self.n_levels = design.names, design.n_levels
        self.terms = tuple(
            Term(t.name, t.columns, t.levels, t.Z[:0], t.groups[:0], t.correlated) for t in design.terms
        )
        self.layout = layout_of(family, design, scaling, priors)
        self.has_effects = effects

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
        if self.has_effects:
            for term in self.terms:
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
        for name in OWN.get(self.family, ()):
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
        coefs = theta[:, :d] / self.scaling.spreads
        shift = coefs @ self.scaling.centres
        parts = [coefs]
        for name, one in self.layout.parameters.items():
            first = self.places[name]
            part = theta[:, first : first + one.n_values]
            if name == "intercept":
                part = part - shift[:, None]
            elif name == "cut":
                part = part + shift[:, None]
            elif name.startswith("cor"):
                k = one.size
                L = part.reshape(-1, k, k)
                R = L @ L.transpose(0, 2, 1)
                part = np.stack([R[:, i, j] for i in range(k) for j in range(i)], axis=1)
            if first >= d:
                parts.append(part)
        return np.concatenate(parts, axis=1)

    @property
    def watched(self):
        """Columns of the values that mix several free numbers.

        Correlations of three effects and more; where effects are parameters coefficients, too.
        """
        columns: list[int] = []
        names: list[str] = []
        first = 0
        for name, shape in self.shared.items():
            size = len(shape) if isinstance(shape, list) else int(np.prod(shape))
            if name.startswith("cor_") and size > 1 and isinstance(shape, list):
                columns += range(first, first + size)
                names += [f"{name}[{label}]" for label in shape]
            elif name in ("coef", "intercept") and self.has_effects:
                columns += range(first, first + size)
                names += names_of(name, shape if name == "intercept" else (size,), shape or None)
            first += size
        return np.array(columns, dtype=np.int64), names

    def by_column(self, effects):
        """Effects (K, sum of G k), group by group, as columns of `variables`: column by column."""
        parts, first = [], 0
        for term in self.terms:
            G, k = len(term.levels), len(term.columns)
            block = effects[:, first : first + G * k].reshape(-1, G, k)
            parts.append(block.transpose(0, 2, 1).reshape(len(effects), G * k))
            first += G * k
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(effects), 0))


@dataclass(frozen=True, eq=False)
class MixedModel(Model):
    """A model whose effects are parameters, or integrated out."""

    mixed: Any = None

    @property
    def regular(self):
        """Without effects among the parameters."""
        return not self.mixed.has_effects

    @property
    def reach(self):
        """Chains begin near a fit without groups."""
        return 1.0

    @property
    def watched(self):
        """See `Model.watched`."""
        return self.mixed.watched

    def values(self, Q):
        """Parameters on the user's scale, and the effects where they are parameters."""
        Q = self._points(Q)
        if not self.mixed.has_effects:
            return self.mixed.values(Q)
        theta = self.mixed.layout.values(np.ascontiguousarray(Q[:, : self.mixed.n_free]))
        effects = kernel.all_effects(Q, theta, self.data, self.meta)
        return np.concatenate([self.mixed.on_scale(theta), self.mixed.by_column(effects)], axis=1)

    def draw_effects(self, Q, *, seed):
        """Draw the effects of the groups of this model, exactly, given points Q (K, d) of the others."""
        theta = self.mixed.layout.values(self._points(Q))
        groups = vars(self)["data"][self.meta[kernel.GROUPS_AT] :]
        name = stream(seed, int(groups[0]), INTERCEPTS, 0)
        (term,) = self.mixed.terms
        own = np.arange(self.meta[self.meta[kernel.TERMS_AT] + kernel.N_GROUPS])
        made = mixed_normal.draw_effects(theta, name, self.data, self.meta)
        G, k = len(own), len(term.columns)
        numbers = groups[:G].astype(np.int64)
        columns = (np.arange(k)[:, None] * len(term.levels) + numbers).ravel()
        return made.reshape(-1, G, k).transpose(0, 2, 1).reshape(len(made), G * k), columns


def mixed_model(family, design, scaling, priors, power=1.0):
    """Make the model of a design, or of one shard of it; `priors` are those of `chosen_priors`.

    Of normal noise with one factor at most the effects are integrated out; else they are parameters. Where
    all effects are integrated out, or there are none, the density is one of several shards' as well, each
    with its prior to the `power`.

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
    integrated = is_integrated(family, design.terms)
    mixed = MixedLayout(family, design, scaling, priors, effects=bool(design.terms) and not integrated)
    X = (design.X - scaling.centres) / scaling.spreads
    if design.intercept:
        X = np.column_stack([X, np.ones(len(X))])
    coefs, own = pooled(family, X, design)
    spreads = [first_look(family, X @ coefs + design.offsets, design, term, own) for term in design.terms]
    start = _start(mixed, coefs, own, [spread for spread, _ in spreads])
    table, reals = mixed.layout.tables
    head = np.zeros(kernel.HEAD, np.int64)
    data = [np.array([power]), reals]
    head[1], head[kernel.N_FREE], head[kernel.N_COEFS] = mixed.layout.n_values, mixed.n_free, X.shape[1]
    head[kernel.FAMILY], head[kernel.N_ROWS] = _CODES[family], len(X)
    own_names = OWN.get(family, ())
    if own_names:
        head[kernel.OWN] = mixed.places[own_names[0]]
        head[kernel.N_OWN] = mixed.layout.n_values - head[kernel.OWN]
    head[kernel.X_AT] = 1 + len(reals)
    make = _integrated if integrated else _by_rows
    terms, body, integers = make(mixed, head, X, design, [centred for _, centred in spreads])
    head[0] = kernel.HEAD  # place of the layout's tables
    head[kernel.TERMS_AT] = kernel.HEAD + len(table)
    if integers:
        sizes = np.cumsum([0, *map(len, integers)])[:-1]
        terms[:, kernel.ROWS_AT] = head[kernel.TERMS_AT] + terms.size + sizes
    meta = np.concatenate([head, table, terms.ravel(), *integers])
    joined = np.concatenate([*data, *body])
    numbers = aligned(joined.nbytes)
    numbers[:] = joined
    density = mixed_normal.mixed_normal if integrated else kernel.mixed
    concave = False
    return MixedModel(density, numbers, meta, mixed.names, start, concave, mixed)


def build_shard(family, rows, scaling, priors, power):
    """Make the model of some `Rows`, where it is worked on."""
    with single_threaded_blas():
        return mixed_model(family, rows.take(), scaling, priors, power)


def shard_effects(seed, model, points):
    """Draw the effects of a shard's groups; and the places of their columns."""
    return model.draw_effects(points, seed=seed)


def is_integrated(family, terms):
    """Whether all effects are integrated out in closed form."""
    return family == "normal" and len(terms) <= 1


def _terms(mixed, n_rows):
    """Rows of the kernel's table of terms, without places in meta."""
    table, q_at = np.zeros((max(len(mixed.terms), 1), kernel.TERM), np.int64), mixed.n_free
    table[:, kernel.WIDTH], table[:, kernel.L_AT] = 1, -1  # of no groups, where there is no term
    for t, term in enumerate(mixed.terms):
        k, G = len(term.columns), len(term.levels)
        L_at = mixed.places[f"cor{t}"] if term.has_correlations else -1
        table[t, : kernel.Z_AT] = k, G, mixed.places[f"sd{t}"], L_at
        table[t, kernel.Q_AT] = q_at
        q_at += G * k
    return table


def _by_rows(mixed, head, X, design, centred):
    """Terms, floats, and for each term the groups of rows."""
    n = len(X)
    head[kernel.Y_AT] = head[kernel.X_AT] + X.size
    head[kernel.N_TERMS] = len(design.terms)
    body, at = [X.ravel(), design.y, design.weights, design.offsets], head[kernel.Y_AT] + 3 * n
    table, integers = _terms(mixed, n), []
    for t, term in enumerate(design.terms):
        A = np.linalg.lstsq(X, term.Z, rcond=None)[0]
        table[t, kernel.Z_AT], table[t, kernel.A_AT] = at, at + term.Z.size
        table[t, kernel.CENTRED] = centred[t]
        body += [term.Z.ravel(), A.ravel()]
        at += term.Z.size + A.size
        integers.append(term.groups)
    return table, body, integers


def _integrated(mixed, head, X, design, centred):
    """Terms and floats: an orthogonal basis of each group's columns, and the least squares of the rest."""
    root = np.sqrt(design.weights)[:, None]
    X, y = X * root, (design.y - design.offsets) * root[:, 0]
    table, d = _terms(mixed, len(X)), X.shape[1]
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


def _start(mixed, coefs, own, spreads):
    start: dict[str, Any] = {f"b{j}": value for j, value in enumerate(coefs[: len(mixed.columns)])}
    if mixed.intercept:
        start["intercept"] = coefs[-1]
    start |= {f"sd{t}": spread for t, spread in enumerate(spreads)} | own
    n_effects = sum(len(t.levels) * len(t.columns) for t in mixed.terms) if mixed.has_effects else 0
    return np.concatenate([mixed.layout.start(start), np.zeros(n_effects)])
