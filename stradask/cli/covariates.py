"""What is known of documents on the command line, covariates or slices: columns of the table of the texts."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from .._numbers import is_number
from ..errors import DataError, shortened
from .inputs import Counts
from .tables import file_of, is_table


@dataclass(frozen=True)
class DescribedCounts(Counts):
    """Word counts with a dict of columns, a value a document; `sliced` says that one holds slices of time."""

    covariates: Any = None
    sliced: bool = False

    @property
    def keywords(self):
        """What `fit` and `perplexity` take besides the counts."""
        if self.sliced:
            return {"slices": next(iter(self.covariates.values()))}
        return {"covariates": self.covariates}

    def rows(self, rows):
        """Return the documents of the given numbers."""
        chosen = {name: [values[row] for row in rows] for name, values in self.covariates.items()}
        return replace(super().rows(rows), covariates=chosen)

    def held_out(self, share, seed, option):
        """Divide the documents; refuse, before the fit, held-out ones with a category of their own."""
        train, test = super().held_out(share, seed, option)
        for name, values in self.covariates.items():
            alone = set(test.covariates[name]) - set(train.covariates[name])
            if alone and (self.sliced or isinstance(values[0], str)):
                raise DataError(
                    f"{option}: {shortened(str(min(alone)))} of the column {shortened(name)} is in held-out "
                    "documents only; join rare ones, or take another --random-state"
                )
        return train, test


def with_covariates(read, estimator, columns, source):
    """Read the columns from the table that DATA names; numbers where all cells are numbers."""
    return _described(read, estimator, columns, source, "covariates", "dmr")


def with_slices(read, estimator, column, source):
    """Read the column of slices from the table that DATA names; whole numbers where all cells are."""
    described = _described(read, estimator, [column], source, "slices", "dynamic")
    values = described.covariates[column]
    if all(isinstance(value, float) and value.is_integer() for value in values):
        values = [int(value) for value in values]
    return replace(described, covariates={column: values}, sliced=True)


def _described(read, estimator, columns, source, what, model):
    from inspect import signature

    from ..datasets.text_files import names_texts, read_texts

    if what not in signature(estimator.fit).parameters:
        raise DataError(f"--{what}: {type(estimator).__name__} has none; fit {model}, or leave it out")
    data = str(source)
    if not (isinstance(read, Counts) and is_table(data) and names_texts(data)):
        raise DataError(f"--{what} names columns of DATA, FILE.csv:COLUMN; give such a table")
    found = {}
    for name in columns:
        cells = [cell.strip() for cell in read_texts(file_of(data), name).texts]
        if not all(cells):
            row = cells.index("") + 1
            raise DataError(f"--{what}: row {row} of the column {shortened(name)} is empty; fill it in")
        numbers = all(is_number(cell) and math.isfinite(float(cell)) for cell in cells)
        found[name] = [float(cell) for cell in cells] if numbers else cells
    own = {field.name: getattr(read, field.name) for field in fields(Counts)}
    return DescribedCounts(**own, covariates=found)
