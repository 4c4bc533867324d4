"""Covariates of documents on the command line: columns of the table that has the texts."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from .._numbers import is_number
from ..errors import DataError, shortened
from .inputs import Counts
from .tables import file_of, is_table


@dataclass(frozen=True)
class DescribedCounts(Counts):
    """Word counts with a dict of columns, a value a document."""

    covariates: Any = None

    @property
    def keywords(self):
        """What `fit` and `perplexity` take besides the counts."""
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
            if alone and isinstance(values[0], str):
                raise DataError(
                    f"{option}: {shortened(min(alone))} of the column {shortened(name)} is in held-out "
                    "documents only; join rare categories, or take another --random-state"
                )
        return train, test


def with_covariates(read, estimator, columns, source):
    """Read the columns from the table that DATA names; numbers where all cells are numbers."""
    from inspect import signature

    from ..datasets.text_files import names_texts, read_texts

    if "covariates" not in signature(estimator.fit).parameters:
        raise DataError(f"--covariates: {type(estimator).__name__} has none; fit dmr, or leave it out")
    data = str(source)
    if not (isinstance(read, Counts) and is_table(data) and names_texts(data)):
        raise DataError("--covariates names columns of DATA, FILE.csv:COLUMN; give such a table")
    found = {}
    for name in columns:
        cells = [cell.strip() for cell in read_texts(file_of(data), name).texts]
        if not all(cells):
            row = cells.index("") + 1
            raise DataError(f"--covariates: row {row} of the column {shortened(name)} is empty; fill it in")
        numbers = all(is_number(cell) and math.isfinite(float(cell)) for cell in cells)
        found[name] = [float(cell) for cell in cells] if numbers else cells
    own = {field.name: getattr(read, field.name) for field in fields(Counts)}
    return DescribedCounts(**own, covariates=found)
