"""A scikit-learn pipeline for frames with numbers, categories, missing values and texts.

Its steps are scikit-learn's own. What is added is the choice of columns when it is fitted, with one error
that names all columns that cannot be used and what to pass for them.
"""

import itertools
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ...datasets.texts import check_cut, words_of
from ...errors import DataError, listed, shortened
from .encoding import DATE, LARGEST_SHARE, LONGEST, MOST_VALUES
from .matrices import _as_data_errors
from .table_columns import TableColumns, with_table_columns

_OPTIONS = "drop", "texts", "categories"
_MOST_SAID = 6  # columns of which an error gives the reason
_LOOKED_AT = 10_000  # values by which a column is found to hold dates or texts


def table_pipeline(
    estimator: Any,
    *,
    drop: Sequence[str] = (),
    texts: Sequence[str] = (),
    categories: Sequence[str] = (),
    impute: bool = False,
    scale: bool = True,
) -> Pipeline:
    """Make a pipeline that fits an estimator to a frame of numbers, categories and texts.

    Columns of numbers, and of true and false, stay one column each. Of other columns each value becomes a
    column of zeros and ones; values that are new in `predict` are none of them, with a warning. The matrix
    is sparse where most of it is zero.

    Parameters
    ----------
    estimator : estimator
        Of stradask or of scikit-learn: the last step, "model".
    drop : sequence of str, optional
        Columns to leave out, such as ids, names and dates.
    texts : sequence of str, optional
        Columns of texts, whose words are weighted by tf-idf. Missing texts are empty.
    categories : sequence of str, optional
        Columns of numbers that are codes, such as postal codes.
    impute : bool, default=False
        Missing numbers become the column's median, a missing category is a category of its own. When False,
        a missing value is an error in `fit`. In `predict` a missing category counts as none, with a warning,
        where the fit had no missing value in its column.
    scale : bool, default=True
        Bring numbers to mean 0 and standard deviation 1, so that a penalty treats all columns alike.

    Returns
    -------
    sklearn.pipeline.Pipeline
        With the steps "table" and "model". It takes frames of pandas and polars.
        ``pipeline["table"].get_feature_names_out()`` names the columns of ``pipeline["model"].coef_``, as
        the model's own summary does where the matrix is dense and made of a frame of pandas;
        `GridSearchCV` searches parameters such as ``model__C``.

    Raises
    ------
    DataError
        In `fit`: names all columns that cannot be used, and what to pass for them.

    See Also
    --------
    text_counts : Counts of words, for topic models.

    Examples
    --------
    >>> import pandas as pd
    >>> import stradask as sd
    >>> frame = pd.DataFrame(
    ...     {
    ...         "id": ["c1", "c2", "c3", "c4"],
    ...         "age": [31, None, 52, 47],
    ...         "plan": ["a", "b", "b", "a"],
    ...         "note": ["fine", "wants a refund", "refund!", "all good"],
    ...     }
    ... )
    >>> pipeline = sd.table_pipeline(sd.LogisticRegression(), drop=["id"], texts=["note"], impute=True)
    >>> pipeline.fit(frame, ["stay", "leave", "leave", "stay"]).predict(frame).tolist()
    ['stay', 'leave', 'leave', 'stay']
    >>> pipeline["table"].get_feature_names_out()[:4].tolist()
    ['age', 'plan_a', 'plan_b', 'note: all']
    """
    named = _names("drop", drop), _names("texts", texts), _names("categories", categories)
    for (one, names), (other, more) in itertools.combinations(zip(_OPTIONS, named, strict=True), 2):
        both = sorted({*names} & {*more})
        if both:
            raise DataError(f"{shortened(both[0])} is in {one} and in {other}: name a column in one of them")
    columns = _Columns(*named, bool(impute))
    numbers = [("impute", SimpleImputer(strategy="median"))] * bool(impute)
    numbers += [("scale", StandardScaler())] * bool(scale)
    one_hot = Pipeline([("as_text", _AsText()), ("one_hot", OneHotEncoder(handle_unknown="ignore"))])
    parts: list[tuple] = [
        ("numbers", Pipeline(numbers) if numbers else "passthrough", _Chosen(columns, "number")),
        ("categories", one_hot, _Chosen(columns, "category")),
    ]
    parts += [(f"words{k}", _Words(), name) for k, name in enumerate(columns.texts)]
    table = _NamedColumns(parts, verbose_feature_names_out=_FeatureNames(columns.texts))
    return Pipeline([("table", table), ("model", estimator)])


class _NamedColumns(ColumnTransformer):
    """scikit-learn's, whose matrix knows its columns: by names where it is dense, of a frame of pandas."""

    def fit_transform(self, X, y=None, **given):
        """Fit, and return the matrix, with names if it can have them, and a record of its columns."""
        matrix = super().fit_transform(X, y, **given)
        self.table_columns_ = self._table_columns()
        return self._named(X, matrix)

    def transform(self, X, **given):
        """Return the matrix as in the fit; raise DataError of other columns."""
        with _as_data_errors():
            return self._named(X, super().transform(X, **given))

    def _table_columns(self):
        """Names and sources of the columns; those of a step that was changed have themselves as sources."""
        categories: frozenset = frozenset()
        sources = self.get_feature_names_out().astype(object)
        names = tuple(sources.tolist())
        for part, transformer, columns in self.transformers_:
            of_part = sources[self.output_indices_[part]]  # a view
            if part.startswith("words"):
                of_part[:] = columns
            if part == "categories" and len(columns):
                widths = [len(values) for values in transformer[-1].categories_]
                if sum(widths) == len(of_part):
                    of_part[:], categories = np.repeat(columns, widths), frozenset(columns)
        return TableColumns(names, tuple(sources.tolist()), categories)

    def _named(self, X, matrix):
        columns = vars(self).get("table_columns_") or self._table_columns()
        if isinstance(matrix, np.ndarray) and hasattr(X, "iloc") and len({*columns.names}) == matrix.shape[1]:
            matrix = sys.modules["pandas"].DataFrame(matrix, index=X.index, columns=[*columns.names])
        return with_table_columns(matrix, columns)


class _Words(TfidfVectorizer):
    """Words of texts, of which missing ones are empty."""

    def build_analyzer(self):
        """Cut texts as `text_counts` does; take None and NaN as no text."""
        return _words_of

    def fit_transform(self, raw_documents, y=None):
        """Learn the words; refuse clauses of scripts without spaces."""
        try:
            X = super().fit_transform(raw_documents, y)
        except ValueError as error:
            raise DataError(
                "a column of texts holds no word of two letters or digits: name it in drop, not in texts"
            ) from error
        check_cut(self.get_feature_names_out(), np.bincount(X.indices, minlength=X.shape[1]))
        return X


def _words_of(text):
    return words_of(text) if isinstance(text, str) else []


class _AsText(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Categories as text; it warns of new ones, and of missing ones in columns that had none in the fit."""

    def fit(self, X, y=None):
        """Learn names, and which columns have missing values."""
        self.feature_names_in_ = np.asarray(list(X.columns), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        texts = _as_text(X)
        self.had_missing_ = _none(texts).any(axis=0)
        self.values_ = [frozenset(column.tolist()) for column in texts.T]
        return self

    def transform(self, X):
        """Return an array of text, NaN where a value is missing."""
        texts = _as_text(X)
        n_missing = np.where(self.had_missing_, 0, _none(texts).sum(axis=0))
        new = [(name, n) for name, n in zip(self.feature_names_in_, n_missing.tolist(), strict=True) if n]
        if new:
            said = _joined(f"{shortened(name, 30)} ({n:,})" for name, n in new)
            warnings.warn(
                f"X: rows without a value in columns that had none such in fit count as no category: {said}",
                stacklevel=2,
            )
        unknown = [
            (name, [value for value in column.tolist() if value == value and value not in known])
            for name, known, column in zip(self.feature_names_in_, self.values_, texts.T, strict=True)
        ]
        if any(values for _, values in unknown):
            unseen = (
                f"{shortened(name, 30)} ({len(v):,}, such as {shortened(v[0], 30)})"
                for name, v in unknown
                if v
            )
            warnings.warn(
                f"X: rows with values that fit did not see count as no category: {_joined(unseen)}",
                stacklevel=2,
            )
        return texts


@dataclass(frozen=True)
class _FeatureNames:
    """Names of the columns of X: as they are, and of words with their column."""

    texts: tuple

    def __call__(self, part, name):
        return f"{self.texts[int(part[5:])]}: {name}" if part.startswith("words") else name


@dataclass(frozen=True)
class _Columns:
    """What the user says of columns."""

    drop: tuple
    texts: tuple
    categories: tuple
    impute: bool

    def kinds(self, X):
        """The kind of each column, "number" or "category", but for those of `drop` and `texts`."""
        if not hasattr(X, "columns"):
            raise DataError(
                f"X is {shortened(X, 40)}, not a frame: table_pipeline finds columns by their names; give a "
                "DataFrame, or fit the estimator alone"
            )
        names = list(X.columns)
        for option in _OPTIONS:
            gone = next((name for name in getattr(self, option) if name not in names), None)
            if gone is not None:
                raise DataError(f"{option}: X has no column {shortened(gone)}; it has {listed(names, gone)}")
            if option == "texts":
                self._check_texts(X)
        kinds, refused = {}, []
        for name in names:
            if name not in self.drop and name not in self.texts:
                kinds[name], why, remedy = self._kind(X[name], name)
                refused += [(name, why, remedy)] if why else []
        if refused:
            raise _error(refused)
        return kinds

    def _check_texts(self, X):
        for name in self.texts:
            odd = next((v for v in X[name] if not (isinstance(v, str) or _is_missing(v))), None)
            if odd is not None:
                raise DataError(
                    f"texts: the column {shortened(name)} holds {shortened(odd)}, which is no text"
                )

    def _kind(self, column, name):
        """The kind of a column; why it cannot be used and which argument ends that, or None twice."""
        is_number, is_date = _dtype_of(column)
        values = np.fromiter(column, dtype=object, count=len(column))  # of arrays, too, one dimension
        if not is_number and any(isinstance(value, (list, dict, set, np.ndarray)) for value in values):
            return None, "holds lists", "drop"
        missing = np.array(list(map(_is_missing, values)), bool)
        present = values[~missing]
        if not len(present):
            return None, "has no values", "drop"
        texts = [value for value in present[:_LOOKED_AT] if isinstance(value, str)]
        if is_date or (len(texts) == len(present[:_LOOKED_AT]) and all(map(DATE.fullmatch, texts))):
            return None, "holds dates", "drop"
        kind = "number" if is_number and name not in self.categories else "category"
        if kind == "category":
            if any(len(text) > LONGEST for text in texts):
                return None, "holds texts", "texts"
            different = len(set(present.tolist()))
            if different > MOST_VALUES or (len(values) >= 50 and different > LARGEST_SHARE * len(values)):
                return None, f"has {different:,} different values", "drop"
        if missing.any() and not self.impute:
            return None, f"has {int(missing.sum()):,} missing values", "impute"
        return kind, None, None


@dataclass(frozen=True)
class _Chosen:
    """The columns of one kind, as `ColumnTransformer` asks for them."""

    columns: _Columns
    kind: str

    def __call__(self, X):
        return [name for name, kind in self.columns.kinds(X).items() if kind == self.kind]


def _names(option, given):
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise DataError(f"{option} is {shortened(given)}: give a list of names of columns")
    return tuple(given)


def _dtype_of(column):
    """Whether a column is of numbers (or true and false), and whether of dates."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return dtype.is_numeric() or str(dtype) == "Boolean", dtype.is_temporal()
    types = sys.modules["pandas"].api.types
    is_date = types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype)
    return types.is_numeric_dtype(dtype), is_date or isinstance(dtype, sys.modules["pandas"].PeriodDtype)


def _is_missing(value):
    """Whether a cell is None, NaN or the missing value of pandas."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _none(texts):
    """Where NaN stands among texts."""
    return np.not_equal(texts, texts)


def _as_text(X):
    """The values of categories as text, whole numbers without a point; missing ones are NaN."""
    cells = np.asarray(X, dtype=object)
    made = np.empty(cells.shape, dtype=object)
    for at, value in np.ndenumerate(cells):
        whole = isinstance(value, float) and value.is_integer()
        made[at] = np.nan if _is_missing(value) else str(int(value) if whole else value)
    return made


def _joined(parts):
    """The first of some parts of a message, and how many more there are."""
    parts = list(parts)
    more = f" and {len(parts) - _MOST_SAID:,} more" if len(parts) > _MOST_SAID else ""
    return ", ".join(parts[:_MOST_SAID]) + more


def _error(refused):
    said = _joined(f"{shortened(name, 30)} {why}" for name, why, _ in refused)
    arguments = []
    for option in ("drop", "texts"):
        names = [name for name, _, remedy in refused if remedy == option]
        arguments += [f"{option}=[{', '.join(shortened(name, 30) for name in names[:12])}]"] if names else []
    arguments += ["impute=True"] * any(remedy == "impute" for *_, remedy in refused)
    return DataError(
        f"X: {len(refused):,} columns cannot be used as they are: {said}; for instance "
        f"table_pipeline(..., {', '.join(arguments)})"
    )
