"""What is known of documents on the command line, in columns of the table of texts."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from .._numbers import is_number
from ..errors import DataError, not_utf8, shortened
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
        import numpy as np

        from ..algorithms.topics.reading.times import days_of

        train, test = super().held_out(share, seed, option)
        for name, values in self.covariates.items():
            alone = set(test.covariates[name]) - set(train.covariates[name])
            binned = self.sliced and days_of(np.array(values))[0] is not None  # into slices, by the fit
            if alone and not binned and (self.sliced or isinstance(values[0], str)):
                raise DataError(
                    f"{option}: {shortened(str(min(alone)))} of the column {shortened(name)} is in held-out "
                    "documents only; join rare ones, or take another --random-state"
                )
        return train, test


@dataclass(frozen=True)
class AnsweredCounts(Counts):
    """Word counts with a response for each document."""

    y: Any = None

    @property
    def arguments(self):
        """What `fit` is given."""
        return self.X, self.y

    def rows(self, rows):
        """Return the documents of the given numbers."""
        return replace(super().rows(rows), y=self.y[rows])


def with_responses(read, kind, column, source):
    """Read the column of responses from the table that DATA names: labels, or numbers."""
    import numpy as np

    (cells,) = _columns(read, [column], source, "--target").values()
    if kind == "class":
        y = np.array(cells, str)
    else:
        wrong = [row for row, cell in enumerate(cells) if not _is_finite(cell)]
        if wrong:
            raise DataError(
                f"--target: row {wrong[0] + 1} of the column {shortened(column)} holds "
                f"{shortened(cells[wrong[0]])}, no number; add --response class for labels"
            )
        y = np.array(cells, float)
    return AnsweredCounts(**_own(read), y=y)


def read_seed_words(path, estimator, read):
    """Read lines of words, a line a topic; an empty line leaves its topic without."""
    from inspect import signature

    if "seed_words" not in signature(estimator.fit).parameters:
        raise DataError(f"--seed-words: {type(estimator).__name__} takes none; leave it out")
    if read.vocabulary is None:
        raise DataError("--seed-words: the words of the columns are not known; give --vocab FILE")
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.split() for line in file.read().splitlines()]
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    seeds = {topic: words for topic, words in enumerate(lines) if words}
    n_topics, known = estimator.n_components, {*map(str, read.vocabulary)}
    for topic, words in seeds.items():
        if isinstance(n_topics, int) and topic >= n_topics:
            raise DataError(
                f"--seed-words: line {topic + 1} of {path} is of a topic more than --n-components {n_topics}"
            )
        unknown = [word for word in words if word not in known]
        if unknown:
            raise DataError(
                f"--seed-words: no document has {shortened(unknown[0])} of line {topic + 1} of {path}"
                " (words of texts are in lower case, with spaces between); leave it out"
            )
    if not seeds:
        raise DataError(f"--seed-words: {path} holds no word; write the words of a topic on a line")
    return {"seed_words": seeds, "vocabulary": read.vocabulary}


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

    if what not in signature(estimator.fit).parameters:
        raise DataError(f"--{what}: {type(estimator).__name__} has none; fit {model}, or leave it out")
    found = {}
    for name, cells in _columns(read, columns, source, f"--{what}").items():
        found[name] = [float(cell) for cell in cells] if all(map(_is_finite, cells)) else cells
    return DescribedCounts(**_own(read), covariates=found)


def _columns(read, columns, source, option):
    """Cells of columns of the table that DATA names, none of them empty."""
    from ..datasets.text_files import names_texts, read_texts

    data = str(source)
    if not (isinstance(read, Counts) and is_table(data) and names_texts(data)):
        raise DataError(f"{option} names a column of DATA, FILE.csv:COLUMN; give such a table")
    found = {}
    for name in columns:
        cells = [cell.strip() for cell in read_texts(file_of(data), name).texts]
        if not all(cells):
            row = cells.index("") + 1
            raise DataError(f"{option}: row {row} of the column {shortened(name)} is empty; fill it in")
        found[name] = cells
    return found


def _own(read):
    return {field.name: getattr(read, field.name) for field in fields(Counts)}


def _is_finite(cell):
    return is_number(cell) and math.isfinite(float(cell))
