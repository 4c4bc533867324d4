"""Covariates of documents as columns of numbers: a frame with categories, a formula, or a matrix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import DataError, in_brief, shortened
from ..inputs.formula_files import check_learned, learned, restored
from ..inputs.formulas import evaluated, formulaic, with_used_levels
from ..inputs.pieces import computed

INTERCEPT = "intercept"
_MOST_LEVELS, _LARGEST_SHARE, _FEW_ROWS = 1000, 0.5, 50  # of a category, as on the command line
_LEAST_SPREAD = 1e-12  # standard deviation of a column over its mean: below are rounding errors
_REMEDY = "pass covariates alone, whose columns then enter as they are"  # without formulaic
_MOST_COLUMNS = 500  # a move of coefficients has a matrix of this size for each topic


@dataclass(frozen=True)
class Covariates:
    """How covariates become columns; learned where a model is fitted.

    Attributes
    ----------
    columns : list of dict
        Of each its ``name`` and its ``levels``: a list, of which the first is the reference and has no
        column, or None for numbers. Those of a formula have the ``term`` that they belong to.
    formula : str or None
        For formulaic; the columns are then those of its matrix. What it has learned (knots, levels) is in
        `spec`.
    state : dict or None
        The same as numbers and text (`formula_files`), of a model that was read from a file.
    """

    columns: list = field(default_factory=list)
    formula: str | None = None
    spec: Any = None
    state: Any = None

    @classmethod
    def of(cls, covariates, formula, n_documents):
        """Learn how covariates are read."""
        covariates = computed(covariates)
        if formula is not None:
            return cls._of_formula(covariates, formula, n_documents)
        columns = []
        for name, values in _columns_of(covariates, n_documents).items():
            numbers, levels = _read(name, values)
            if numbers is not None and np.ptp(numbers) == 0:
                raise DataError(
                    f"covariates: column {shortened(name)} is {numbers[0]:g} in all documents, which says "
                    "nothing: leave it out"
                )
            if levels is not None:
                _check_levels(name, levels, n_documents)
            columns.append({"name": name, "levels": levels})
        return cls(columns).checked()

    @classmethod
    def _of_formula(cls, covariates, formula, n_documents):
        frame = _frame(covariates, formula, n_documents)
        matrix = _evaluated(
            lambda: formulaic(_REMEDY).model_matrix(formula, frame, na_action="raise"), formula
        )
        if not hasattr(matrix, "model_spec") or not hasattr(matrix, "columns"):
            raise DataError(
                f"formula={shortened(formula)} has a left side: give the right side alone, such as "
                "'year + C(source)'"
            )
        _check_rows(len(matrix), n_documents)
        names = list(map(str, matrix.columns))
        terms = {at: str(term) for term, places in matrix.model_spec.term_indices.items() for at in places}
        columns = [
            {"name": name, "levels": None, "term": terms[at]}
            for at, name in enumerate(names)
            if name != "Intercept"
        ]
        return cls(columns, formula, matrix.model_spec).checked()

    def checked(self):
        """Refuse more columns than coefficients can be drawn for."""
        if len(self.names) > _MOST_COLUMNS:
            raise DataError(
                f"covariates make {len(self.names):,} columns, at most {_MOST_COLUMNS:,} are fitted: join "
                "rare categories"
            )
        return self

    @property
    def names(self):
        """Names of the columns of the design, the intercept first."""
        found = [INTERCEPT]
        for column in self.columns:
            levels = column["levels"]
            found += (
                [column["name"]] if levels is None else [f"{column['name']}={level}" for level in levels[1:]]
            )
        return found

    def design(self, covariates, n_documents):
        """Read covariates of documents: float64, n_documents x columns."""
        covariates = computed(covariates)
        if self.formula is not None:
            return self._by_formula(covariates, n_documents)
        given = _columns_of(covariates, n_documents)
        absent = [column["name"] for column in self.columns if column["name"] not in given]
        if absent:
            raise DataError(
                f"covariates lack the column {shortened(absent[0])}, which the model was fitted with (there "
                f"are: {in_brief(', '.join(map(str, given)) or 'none', 100)})"
            )
        parts = [np.ones((n_documents, 1))]
        for column in self.columns:
            parts.append(_encoded(column, given[column["name"]]))
        return np.hstack(parts)

    def _by_formula(self, covariates, n_documents):
        if isinstance(covariates, np.ndarray) and covariates.ndim == 2:
            numbers = _finite("a column of the formula's matrix", covariates)
            width = len(self.columns)
            if numbers.shape != (n_documents, width):
                raise DataError(
                    f"covariates have the shape {numbers.shape}; of formula={shortened(self.formula)} a "
                    f"matrix has {n_documents} rows and {width} columns, without the intercept"
                )
            return np.hstack([np.ones((n_documents, 1)), numbers])
        frame = _frame(covariates, self.formula, n_documents)
        spec = self._restored() if self.spec is None else self.spec
        matrix = _evaluated(lambda: spec.get_model_matrix(frame), self.formula)
        _check_rows(len(matrix), n_documents)
        found = [(place, str(name)) for place, name in enumerate(matrix.columns) if name != "Intercept"]
        if [name for _, name in found] != self.names[1:]:
            raise DataError(
                f"formula={shortened(self.formula)} makes other columns than those of the fit, "
                f"{in_brief(', '.join(self.names[1:]), 150)}: fit again"
            )
        kept = [place for place, _ in found]
        numbers = _finite("a column of the formula's matrix", np.asarray(matrix, np.float64)[:, kept])
        return np.hstack([np.ones((n_documents, 1)), numbers])

    def _restored(self):
        """The spec of a model that was read from a file."""
        if self.state is None:
            raise DataError(
                f"the model was read from a file, which does not keep what formula={shortened(self.formula)} "
                "has learned: pass covariates as a matrix of its columns, "
                f"{in_brief(', '.join(self.names[1:]), 150)}"
            )
        return _evaluated(lambda: restored(self.formula, self.state, _REMEDY), self.formula)

    def as_dict(self):
        """For the model's file."""
        columns = [dict(column) for column in self.columns]
        return {"columns": columns, "formula": self.formula} | (
            {} if self.spec is None else {"learned": learned(self.spec)}
        )

    @classmethod
    def of_dict(cls, kept):
        """Take what `as_dict` made, of a file that may have been altered."""
        for column in kept["columns"]:
            levels = column["levels"]
            texts = levels is None or (len(levels) > 1 and all(isinstance(level, str) for level in levels))
            term = column.get("term", "")
            if not (isinstance(column["name"], str) and isinstance(term, str) and texts):
                raise DataError(f"covariates_ cannot have the column {shortened(column)}")
        if kept["formula"] is not None and not isinstance(kept["formula"], str):
            raise DataError(f"covariates_ cannot have the formula {shortened(kept['formula'])}")
        state = kept.get("learned")
        if state is not None:
            check_learned(state)
        return cls(list(kept["columns"]), kept["formula"], state=state)


def _evaluated(evaluate, formula):
    return evaluated(evaluate, formula, "covariates", _REMEDY)


def _frame(covariates, formula, n_documents):
    if covariates is None or not (hasattr(covariates, "columns") or isinstance(covariates, Mapping)):
        raise DataError(
            f"formula={shortened(formula)} needs covariates with names, a DataFrame or a dict of columns; "
            f"got {type(covariates).__name__}"
        )
    if not isinstance(covariates, Mapping):
        return with_used_levels(covariates)
    import pandas as pd

    # Rows are matched by place: the indexes of Series are left out.
    found = _columns_of(covariates, n_documents)
    columns = {name: getattr(values, "array", values) for name, values in found.items()}
    return with_used_levels(pd.DataFrame(columns))


def check_order(X, covariates):
    """Refuse covariates that have the index of `X` in another order: rows are matched by place."""
    own: Any = getattr(X, "index", None)
    for values in covariates.values() if isinstance(covariates, Mapping) else [covariates]:
        index: Any = getattr(values, "index", None)
        if not (hasattr(own, "equals") and hasattr(index, "equals")) or own.equals(index):
            continue
        if len(own) == len(index) and set(own) == set(index):
            raise DataError(
                "covariates have the index of X in another order, and rows are matched by their place: pass "
                "covariates.loc[X.index], or both after reset_index(drop=True)"
            )


def _columns_of(covariates, n_documents):
    """Columns by name of any form of covariates, each a vector of n_documents."""
    if covariates is None:
        return {}
    if hasattr(covariates, "columns"):
        names = list(getattr(covariates, "column_names", covariates.columns))  # those of Arrow's tables
        if len(set(map(str, names))) < len(names):
            raise DataError("covariates have two columns of one name: rename one of them")
        found = {str(name): covariates[name] for name in names}
    elif isinstance(covariates, Mapping):
        found = {str(name): values for name, values in covariates.items()}
    else:
        name = getattr(covariates, "name", None)
        try:
            categories = hasattr(covariates, "cat") or hasattr(covariates, "codes")
            values = covariates if categories else np.asarray(covariates)
        except ValueError as error:
            raise DataError(f"covariates must be a table: {in_brief(str(error), 100)}") from error
        if np.ndim(values) == 1:
            found = {"x0" if name is None else str(name): values}
        elif np.ndim(values) == 2:
            found = {f"x{number}": values[:, number] for number in range(values.shape[1])}
        else:
            raise DataError(
                f"covariates have {np.ndim(values)} dimensions: pass a DataFrame, a dict of columns, or a "
                "matrix, a row a document"
            )
    for name, values in found.items():
        if np.ndim(values) != 1:
            raise DataError(f"covariates: column {shortened(name)} has {np.ndim(values)} dimensions, not one")
        _check_rows(len(values), n_documents, name)
    return found


def _check_rows(n_rows, n_documents, name=None):
    if n_rows != n_documents:
        where = "" if name is None else f" in the column {shortened(name)}"
        raise DataError(f"covariates have {n_rows} rows{where}, but X has {n_documents} documents")


def _read(name, values):
    """Numbers of a column, and None; or None, and its levels."""
    kind = getattr(values, "cat", values)
    if hasattr(kind, "categories") and hasattr(kind, "codes"):
        codes = np.asarray(kind.codes)
        _check_missing(name, codes < 0)
        used = np.unique(codes)
        return None, [str(kind.categories[code]) for code in used]
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return _finite(f"column {shortened(name)}", array), None
    if array.dtype.kind in "mM":
        raise DataError(
            f"covariates: column {shortened(name)} holds dates: pass a number, such as the year, or a "
            "category"
        )
    texts = _texts(name, array)
    return None, sorted(set(texts))


def _texts(name, values):
    array = np.asarray(values)
    missing = np.array([_is_missing(value) for value in array.tolist()], bool)
    _check_missing(name, missing)
    return [str(value) for value in array.tolist()]


def _is_missing(value):
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _check_missing(name, missing):
    rows = np.flatnonzero(missing)
    if len(rows):
        raise DataError(
            f"covariates: column {shortened(name)} has {len(rows):,} missing values, the first in row "
            f"{rows[0]}: fill them in, or name a category for them"
        )


def _finite(what, array):
    try:
        numbers = np.asarray(array, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"covariates: {what} holds no numbers: {in_brief(str(error), 100)}") from error
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        raise DataError(
            f"covariates: {what} holds {numbers[tuple(wrong[0])]} in row {wrong[0][0]}: fill missing values "
            "in, or leave these documents out"
        )
    return numbers


def _check_levels(name, levels, n_documents):
    if len(levels) < 2:
        raise DataError(
            f"covariates: column {shortened(name)} is {shortened(levels[0])} in all documents, which says "
            "nothing: leave it out"
        )
    if len(levels) > _MOST_LEVELS or (
        n_documents >= _FEW_ROWS and len(levels) > _LARGEST_SHARE * n_documents
    ):
        raise DataError(
            f"covariates: column {shortened(name)} has {len(levels):,} different values in {n_documents:,} "
            f"documents, such as {shortened(levels[0])}: leave names and ids out, join rare categories, or "
            "pass numbers"
        )


def _encoded(column, values):
    """The columns of the design that a column of covariates becomes."""
    name, levels = column["name"], column["levels"]
    if levels is None:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise DataError(
                f"covariates: column {shortened(name)} was numbers where the model was fitted, and holds "
                f"{array.dtype} now"
            )
        return _finite(f"column {shortened(name)}", array)[:, None]
    texts = _texts(name, values)
    number = {level: place for place, level in enumerate(levels)}
    unknown = [(row, text) for row, text in enumerate(texts) if text not in number]
    if unknown:
        row, text = unknown[0]
        raise DataError(
            f"covariates: column {shortened(name)} holds {shortened(text)} in row {row}, which no document "
            f"of the fit had (it had {in_brief(', '.join(levels), 100)})"
        )
    codes = np.array([number[text] for text in texts], int)
    return (codes[:, None] == np.arange(1, len(levels))).astype(np.float64)


def standards(design, names):
    """Mean and standard deviation of columns; 0 and 1 of the intercept and of columns of zeros and ones."""
    means, scales = np.zeros(design.shape[1]), np.ones(design.shape[1])
    for f in range(1, design.shape[1]):
        column = design[:, f]
        if not ((column == 0) | (column == 1)).all() and np.ptp(column) > 0:
            with np.errstate(over="ignore", under="ignore"):
                means[f], scales[f] = column.mean(), column.std()
            if not (np.isfinite(means[f]) and _LEAST_SPREAD * abs(means[f]) < scales[f] < np.inf):
                raise DataError(
                    f"covariates: column {shortened(names[f])} goes from {column.min():g} to {column.max():g}"
                    ", which double precision cannot standardise: take other units, or leave it out"
                )
    return means, scales


def length_of(covariates):
    """Rows of covariates of any form."""
    if hasattr(covariates, "columns") or not hasattr(covariates, "values") or not callable(covariates.values):
        try:
            return len(covariates)
        except TypeError as error:
            raise DataError(f"covariates must be a table, got {type(covariates).__name__}") from error
    lengths = {len(np.atleast_1d(values)) for values in covariates.values()}
    if len(lengths) != 1:
        raise DataError(f"covariates have columns of {sorted(lengths)} rows: one length for all")
    return lengths.pop()


def check_regression(model):
    """Hold the coefficients and the design of a model's file against each other."""
    known = Covariates.of_dict(model.covariates_)
    n_topics, n_columns = model.word_topic_counts_.shape[1], len(known.names)
    coef, draws, design, counts = model.coef_, model.coef_draws_, model.design_, model.doc_topic_counts_
    fits = list(model.coef_names_) == known.names and coef.shape == (n_topics, n_columns) == draws.shape[1:]
    fits = fits and len(draws) > 0 and design.ndim == 2 and design.shape[1] == n_columns
    fits = fits and (counts is None or counts.shape[0] == len(design))
    if not (fits and all(a.dtype == np.float64 and np.isfinite(a).all() for a in (coef, draws, design))):
        raise DataError("coef_, coef_draws_ or design_ cannot be those of the covariates of a model")
