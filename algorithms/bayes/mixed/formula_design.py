"""From a formula and a table of columns to the `MixedDesign` of a mixed model, for a fit and for new rows."""

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ...inputs.formula_files import check_learned, learned, restored
from ...inputs.formulas import evaluated, formulaic, split_formula, with_used_levels
from ...inputs.pieces import is_dask, located
from ..models.groups import check_groups, find_groups
from .design import MixedDesign, Term

_REMEDY = "take BayesianLinearRegression and its kin, which take matrices"
_MOST_COLUMNS = 2000  # the Hessian at the mode is dense


class FormulaDesign:
    """What a formula says of the rows of a fit, and of new ones.

    `levels` are the groups of each term, `factors` the labels of each of its columns, `classes` those of a
    target that is no number.
    """

    def __init__(self, formula, family):
        self.formula, self.family = formula, family
        parts = split_formula(formula)
        self.target, self.fixed, self.terms = parts.target, parts.fixed, parts.terms
        self.expressions = {"trials": parts.trials, "offset": parts.offset}
        self.spec, self.specs, self.target_spec, self.classes = None, [], None, None
        self.expression_specs = {}
        _check_trials(formula, family, parts)
        self.factors, self.levels = [], []
        self.states = []  # what a model file holds of the specs

    def learn(self, data, offset, sample_weight):
        """Return the `MixedDesign` of the rows of a fit; those of weight 0 are left out."""
        frame = _frame(data, self.formula)
        n = len(frame)
        weights = _vector("sample_weight", sample_weight, frame, np.ones(n))
        if (weights < 0).any() or not (weights > 0).any():
            raise DataError(f"sample_weight must not be negative, nor all zero: got {weights.min():g}")
        if (weights == 0).any():
            kept = np.flatnonzero(weights > 0)
            offsets = _vector("offset", offset, frame, np.zeros(n))[kept]
            with located(f"of the {len(kept)} rows of weight above 0"):
                return self.learn(frame.iloc[kept], offsets, weights[kept])
        self.expression_specs = {}
        y = self._learn_target(frame)
        matrix = self._matrix(self.fixed, frame)
        self.spec = matrix.model_spec
        _check_levels(self.spec, self.formula)
        self.specs, self.factors, self.levels = [], [], []
        for term in self.terms:
            Z = self._matrix(term.effects, frame)
            _check_joined(term, Z)
            _check_levels(Z.model_spec, self.formula)
            self.specs.append(Z.model_spec)
            self.factors.append([np.unique(part) for part in _parts(frame, term, n)])
            _check_colons(term, self.factors[-1])
            levels = np.unique(_labels(frame, term, n, self.factors[-1]))
            if len(levels) < 2:
                raise DataError(
                    f"formula={shortened(self.formula)}: {term.name} holds one group, whose effects "
                    "cannot be told from the common ones"
                )
            self.levels.append(levels)
        return self._made(frame, y, weights, offset)

    def state(self):
        """What was learned, for a model file; None where it holds values other than numbers and text."""
        target = [] if self.target_spec is None else [self.target_spec]
        states = [
            learned(spec) for spec in (self.spec, *self.specs, *self.expression_specs.values(), *target)
        ]
        return None if None in states else {"specs": states, "factors": self.factors}

    @classmethod
    def of_state(cls, formula, family, state, levels, classes):
        """Take what `state` made, of a file that may have been altered; `levels` are the groups by term."""
        made = cls(formula, family)
        if state is None:
            return made
        names = [term.name for term in made.terms]
        specs, factors = state["specs"], state["factors"]
        expected = 1 + len(names) + len(made._evaluated())
        if len(specs) - expected not in (0, 1) or len(factors) != len(names) or list(levels) != names:
            raise DataError(f"the model's groups {shortened(list(levels))} are not those of its formula")
        for one in specs:
            check_learned(one)
        for term, found in zip(made.terms, factors, strict=True):
            if len(found) != len(term.factors) or not all(np.ndim(labels) == 1 for labels in found):
                raise DataError(f"the labels of the groups {shortened(term.name)} make no sense")
        if family in ("logistic", "ordered") and classes is None:
            raise DataError("the model has no classes_")
        made.states, made.factors = specs, factors
        made.levels, made.classes = list(levels.values()), classes
        return made

    def _restore(self):
        """Make the specs of a model that was read from a file."""
        if not self.states:
            raise DataError(
                f"the model was read from a file, which does not keep what formula={shortened(self.formula)} "
                "has learned: fit again, or use posterior_"
            )
        columns = [_column(self.expressions[what]) for what in self._evaluated()]
        sides = [self.fixed, *(term.effects for term in self.terms), *columns, f"{self.target} - 1"]
        made = [
            evaluated(partial(restored, side, state, _REMEDY), self.formula, "what a file holds", _REMEDY)
            for side, state in zip(sides, self.states, strict=False)  # a target that is a column has none
        ]
        end = 1 + len(self.terms)
        names = self._evaluated()
        self.expression_specs = dict(zip(names, made[end : end + len(names)], strict=True))
        self.spec, self.specs = made[0], made[1:end]
        self.target_spec = (*made[end + len(names) :], None)[0]

    def design(self, data, offset=None, target=False, groups=True):
        """Return the `MixedDesign` of new rows; targets are NaN unless asked for, terms may be left out."""
        if self.spec is None:
            self._restore()
        frame = _frame(data, self.formula)
        n = len(frame)
        y = self._coded(self._target_of(frame)) if target else np.full(n, np.nan)
        return self._made(frame, y, np.ones(n), offset, groups)

    def _made(self, frame, y, weights, offset, groups=True):
        n = len(frame)
        trials = self._trials(frame, y)
        if trials is not None:
            y, weights = y / trials, weights * trials
        matrix = self._again(self.spec, frame)
        self._check_columns(matrix, 0)
        names, X = list(map(str, matrix.columns)), _finite(matrix, self.formula)
        kept = [j for j, name in enumerate(names) if name != "Intercept"]
        if len(kept) > _MOST_COLUMNS:
            raise DataError(
                f"formula={shortened(self.formula)} makes {len(kept):,} columns, at most {_MOST_COLUMNS:,} "
                "are fitted: make a factor of many levels a group, (1 | factor)"
            )
        terms = []
        learnt = zip(self.terms, self.specs, self.factors, self.levels, strict=True)
        for number, (term, spec, factors, levels) in enumerate(learnt if groups else (), 1):
            Z = self._again(spec, frame)
            self._check_columns(Z, number)
            numbers = find_groups(_labels(frame, term, n, factors), levels)
            new = numbers < 0
            numbers[new] = _numbers_of_new([part[new] for part in _parts(frame, term, n)])
            columns = tuple(map(str, Z.columns))
            terms.append(Term(term.name, columns, levels, _finite(Z, self.formula), numbers, term.correlated))
        return MixedDesign(
            tuple(names[j] for j in kept),
            np.ascontiguousarray(X[:, kept]),
            y,
            weights,
            _vector("offset", offset, frame, np.zeros(n)) + self._expression("offset", frame),
            tuple(terms),
            "Intercept" in names and self.family != "ordered",
            len(self.classes) if self.classes is not None and self.family == "ordered" else 0,
            trials,
        )

    def frame(self, data):
        """The table of columns that data are."""
        return _frame(data, self.formula)

    def is_category(self, name):
        """Whether a column of numbers counts: as C(name), or as trials."""
        trials = re.search(rf"\b{re.escape(name)}\b", self.expressions["trials"])
        return bool(trials or re.search(rf"\bC\(\s*{re.escape(name)}\b", self.formula))

    # Trials and offset --------------------------------------------------------------------------------

    def _evaluated(self):
        """Which of trials and offset the formula has as columns; numbers are none."""
        return [what for what, code in self.expressions.items() if code and _number(code) is None]

    def _expression(self, what, frame):
        """Values (n,) of the trials or the offset of a formula; zero without."""
        code = self.expressions[what]
        if not code:
            return 0.0
        number = _number(code)
        if number is not None:
            return np.full(len(frame), number)
        if what not in self.expression_specs:
            matrix = self._matrix(_column(code), frame)
            if matrix.shape[1] != 1:
                raise DataError(
                    f"formula={shortened(self.formula)}: {what} makes {matrix.shape[1]} columns: it must be "
                    "one of numbers"
                )
            self.expression_specs[what] = matrix.model_spec
        return _finite(self._again(self.expression_specs[what], frame), self.formula)[:, 0]

    def _trials(self, frame, y):
        """Trials of the rows, checked; None of other families."""
        if self.family != "binomial":
            return None
        trials = self._expression("trials", frame)
        wrong = (trials < 1) | (trials != np.floor(trials))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"formula={shortened(self.formula)}: row {row} has {trials[row]:g} trials: these are whole "
                "numbers from 1; leave out rows without"
            )
        if (y > trials).any():
            row = int(np.flatnonzero(y > trials)[0])
            raise DataError(
                f"the target {self.target} holds {y[row]:g} in row {row}, of {trials[row]:g} trials"
            )
        return trials

    def _matrix(self, formula, frame):
        made = evaluated(
            lambda: formulaic(_REMEDY).model_matrix(formula, frame, na_action="raise"),
            self.formula,
            "data",
            _REMEDY,
        )
        if not hasattr(made, "model_spec") or not hasattr(made, "columns"):
            raise DataError(f"formula={shortened(self.formula)} must have a single ~")
        return made

    def _again(self, spec, frame):
        return evaluated(lambda: spec.get_model_matrix(frame), self.formula, "data", _REMEDY)

    def _check_columns(self, matrix, number):
        """Refuse columns other than those of the fit, for a formula of a file."""
        if not self.states:
            return
        known = self.states[number]["columns"]
        made = list(map(str, matrix.columns))
        if made != known:
            raise DataError(
                f"formula={shortened(self.formula)} makes the columns {shortened(', '.join(made))}, "
                f"the model was fitted with {shortened(', '.join(map(str, known)))}"
            )

    # Targets ------------------------------------------------------------------------------------------

    def _target_of(self, frame):
        """Targets of new rows."""
        if self.target in frame.columns:
            return frame[self.target]
        if self.target_spec is None:
            raise DataError(f"data has no column {self.target}, the target of {shortened(self.formula)}")
        return np.asarray(self._again(self.target_spec, frame), dtype=np.float64)[:, 0]

    def _learn_target(self, frame):
        self.target_spec = None
        if self.target not in frame.columns:
            matrix = self._matrix(f"{self.target} - 1", frame)
            if matrix.shape[1] != 1:
                raise DataError(
                    f"formula={shortened(self.formula)}: the target {self.target} makes {matrix.shape[1]} "
                    "columns: it must be one"
                )
            self.target_spec = matrix.model_spec
        values = self._target_of(frame)
        if self.family in ("logistic", "ordered"):
            kind = getattr(values, "cat", values)
            ordered = getattr(kind, "ordered", False)
            labels = check_groups(values, len(frame))
            self.classes = np.unique(labels)
            if ordered:
                known = [name for name in kind.categories.tolist() if name in set(self.classes.tolist())]
                self.classes = np.array(known, dtype=self.classes.dtype)
            least = 2 if self.family == "logistic" else 3
            if len(self.classes) < least or (self.family == "logistic" and len(self.classes) > 2):
                raise DataError(
                    f"the target {self.target} has {len(self.classes)} classes: family={self.family!r} takes "
                    f"{'2' if least == 2 else '3 and more'}"
                )
        return self._coded(values)

    def _coded(self, values):
        """Targets as numbers, checked for the family."""
        if self.classes is not None:
            labels = check_groups(values, len(values))
            codes = find_groups(labels, self.classes)
            if (codes < 0).any():
                unknown = labels[codes < 0][0]
                raise DataError(f"the target {self.target} holds {shortened(unknown)}, which the fit had not")
            return codes.astype(np.float64)
        try:
            y = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the target {self.target} holds no numbers: family={self.family!r} needs these"
            ) from error
        wrong = ~np.isfinite(y)
        what = "finite numbers"
        if self.family in ("poisson", "negative_binomial", "binomial"):
            wrong, what = wrong | (y < 0) | (y != np.floor(y)), "counts, 0, 1, 2, ..."
        if self.family == "gamma":
            wrong, what = wrong | (y <= 0), "numbers above zero"
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"the target {self.target} holds {y[row]:g} in row {row}: {self.family} takes {what}"
            )
        return y


def _check_trials(formula, family, parts):
    """Trials belong to a binomial family, and that to trials."""
    if family == "binomial" and not parts.trials:
        raise DataError(
            f"formula={shortened(formula)} has no trials: family='binomial' takes k | trials(n) ~ ..., or "
            "cbind(k, n - k) ~ ...; targets of two classes are family='logistic'"
        )
    if family != "binomial" and parts.trials:
        raise DataError(f"formula={shortened(formula)} has trials: take family='binomial', not {family!r}")


def _check_joined(term, Z):
    """Refuse terms that were joined as single columns, where one is a category."""
    made = list(map(str, Z.columns))
    if term.joined and made != ["Intercept"] * term.effects.startswith("1") + list(term.joined):
        raise DataError(
            f"terms of the groups {term.name} have one column each but for a category, which has several: "
            f"write one term, ({term.effects} | {term.groups}), or ({term.effects} || {term.groups}) without "
            "correlations"
        )


def _check_levels(spec, formula):
    """Refuse categories of one level, which make no column."""
    for factor, (_, state) in spec.encoder_state.items():
        known = list(state.get("categories", ()))
        if len(known) == 1:
            raise DataError(
                f"formula={shortened(formula)}: the category {factor} has one level in data, "
                f"{shortened(known[0])}, which says nothing: leave it out"
            )


def _number(code):
    """The number that an expression is, or None."""
    try:
        return float(code.strip("() "))
    except ValueError:
        return None


def _column(code):
    """Formula of the one column of a Python expression."""
    return f"{{{code}}} - 1"


def _frame(data, formula):
    if isinstance(data, Mapping):
        import pandas as pd

        # Rows are matched by place: the indexes of Series are left out.
        columns: dict[str, Any] = {name: getattr(values, "array", values) for name, values in data.items()}
        sizes = {name: np.shape(values) for name, values in columns.items()}
        if not sizes or any(len(size) != 1 for size in sizes.values()) or len(set(sizes.values())) > 1:
            raise DataError(f"data must be columns of one length, got the shapes {shortened(sizes, 100)}")
        data = pd.DataFrame(columns)
    if not hasattr(data, "columns") or not hasattr(data, "iloc") or is_dask(data):
        raise DataError(
            f"formula={shortened(formula)} needs a pandas DataFrame (of Dask's data.compute()), or a dict of "
            f"columns; got a {type(data).__name__}"
        )
    if not len(data):
        raise DataError("data has no rows")
    return with_used_levels(data)


def _parts(frame, term, n):
    """Labels of the rows in each column of a term."""
    for name in term.factors:
        if name not in frame.columns:
            raise DataError(
                f"({term.effects} | {term.name}): data has no column {name}; there are "
                f"{shortened(', '.join(map(str, frame.columns)), 100)}"
            )
    return [check_groups(frame[name], n) for name in term.factors]


def _check_colons(term, factors):
    """Refuse labels whose combinations would read alike, such as p:q with r, and p with q:r."""
    held = [
        (name, label)
        for name, labels in zip(term.factors, factors, strict=True)
        for label in [next((text for text in map(str, labels.tolist()) if ":" in text), None)]
        if label is not None
    ]
    if len(held) > 1:
        (one, label), (other, second) = held[:2]
        raise DataError(
            f"({term.effects} | {term.name}): labels of {one} and of {other} hold a colon, such as "
            f"{shortened(label)} and {shortened(second)}, which divides the two: replace it in one of them"
        )


def _labels(frame, term, n, factors):
    """Label of each row's group; of several factors as text joined by colons, as the fit wrote it.

    A row with a label of a factor that the fit had not has "", which is no group.
    """
    parts = _parts(frame, term, n)
    if len(parts) == 1:
        return parts[0]
    codes = [find_groups(part, known) for part, known in zip(parts, factors, strict=True)]
    texts = [list(map(str, known.tolist())) for known in factors]
    return np.array(
        [
            "" if min(row) < 0 else ":".join(text[code] for text, code in zip(texts, row, strict=True))
            for row in zip(*(code.tolist() for code in codes), strict=True)
        ]
    )


def _numbers_of_new(parts):
    """Negative numbers of groups that the fit did not see, by digests of their labels."""
    columns = (
        [int(x) if isinstance(x, float) and x == x // 1 else x for x in part.tolist()] for part in parts
    )
    digests = [
        hashlib.blake2b(repr(row).encode(), digest_size=7).digest() for row in zip(*columns, strict=True)
    ]
    return [-1 - int.from_bytes(digest, "big") for digest in digests]


def _finite(matrix, formula):
    values = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise DataError(
            f"formula={shortened(formula)}: the column {matrix.columns[column]} holds {values[row, column]} "
            f"in row {row}"
        )
    return values


def _vector(what, given, frame, default):
    """Numbers of rows: the name of a column, an array, or None."""
    if given is None:
        return default
    if isinstance(given, str):
        if given not in frame.columns:
            raise DataError(f"{what}={shortened(given)} is no column of data")
        given = frame[given]
    values = np.asarray(given, dtype=np.float64)
    if values.shape != default.shape or not np.isfinite(values).all():
        raise DataError(
            f"{what} must be {len(default)} finite numbers, one a row, or the name of a column; got the "
            f"shape {values.shape}"
        )
    return values
