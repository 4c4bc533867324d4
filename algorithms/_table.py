"""The table of numbers that summaries print, in text and in notebooks."""

import numpy as np

from .._html import table as html_table
from ..errors import DataError, StradaskError, shortened


def pandas():
    """Import pandas for a ``to_pandas``, or say what to install."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise StradaskError("to_pandas needs pandas, which is not installed: pip install pandas") from error
    return pd


class Table:
    """Columns of equal length with named rows; `note` is a line below the table.

    >>> from stradask.algorithms._table import Table
    >>> table = Table(["a", "b"], {"mean": [1.0, 20.5], "draws": [3, 4]})
    >>> table
       mean  draws
    a  1.00      3
    b  20.5      4
    >>> table["mean"], table.row("b")
    (array([ 1. , 20.5]), {'mean': 20.5, 'draws': 4})
    """

    def __init__(self, rows, columns, note=""):
        self.rows = [str(row) for row in rows]
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        self.note = note
        for name, values in self.columns.items():
            if values.shape != (len(self.rows),):
                raise DataError(
                    f"the column {shortened(name)} has the shape {values.shape}, the table {len(self.rows)} "
                    "rows"
                )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, name):
        if name not in self.columns:
            raise DataError(f"there is no column {shortened(name)}; there are {', '.join(self.columns)}")
        return self.columns[name]

    def row(self, name):
        """Return a row as a dict of plain values."""
        if name not in self.rows:
            raise DataError(f"there is no row {shortened(name)}; the first are {', '.join(self.rows[:5])}")
        i = self.rows.index(name)
        return {column: values[i].item() for column, values in self.columns.items()}

    def to_pandas(self):
        """Return a pandas DataFrame with the rows' names as its index."""
        return pandas().DataFrame(self.columns, index=self.rows)

    def __repr__(self):
        left = [name for name, values in self.columns.items() if values.dtype.kind not in "fiub"]
        cells = [[name, *map(_shown, values)] for name, values in self.columns.items()]
        widths = [max(map(len, column)) for column in cells]
        names = max([len(row) for row in self.rows], default=0)
        lines = []
        for i in range(len(self.rows) + 1):
            line = (self.rows[i - 1] if i else "").ljust(names)
            for column, width in zip(cells, widths, strict=True):
                cell = column[i]
                line += "  " + (cell.ljust(width) if column[0] in left else cell.rjust(width))
            lines.append(line.rstrip())
        return "\n".join(lines + [self.note] * bool(self.note))

    def _repr_html_(self):
        """What a notebook shows."""
        texts = [k for k, values in enumerate(self.columns.values(), 1) if values.dtype.kind not in "fiub"]
        shown = [list(map(_shown, values)) for values in self.columns.values()]
        rows = zip(self.rows, *shown, strict=True)
        return html_table(["", *self.columns], rows, self.note, [0, *texts])


def _shown(value):
    """Three figures, or all before the point up to a million; integers and text as they are."""
    if isinstance(value, (float, np.floating)):
        value = float(value)
        if np.isnan(value):
            return ""
        if 999.5 <= abs(value) < 1e6:
            return f"{value:.0f}"
        return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.3g}"
    return str(value)
