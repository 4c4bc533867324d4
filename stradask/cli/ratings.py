"""Ratings as the command line reads them: ids, titles of items, features of users and items."""

import csv
import re
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, in_brief, listed, shortened
from .rows import rows_of
from .tables import is_table, read_table

_NEARLY = 0.95  # of the share that was asked for, below which a note says what was held out


@dataclass(frozen=True)
class Rated:
    """Ratings (CSR, users x items) with the ids of their rows and columns: ascending, whole numbers or text.

    `keywords` are further arguments of `fit`: features of users and items, in the order of the ids.
    """

    R: Any
    users: Any
    items: Any
    source: str
    keywords: dict = field(default_factory=dict)

    vocabulary = None  # words of columns are a matter of other models

    def describe(self):
        """Sizes, fit for JSON."""
        users, items = self.R.shape
        return {"source": self.source, "users": users, "items": items, "ratings": int(self.R.nnz)}

    def in_words(self):
        """Sizes, in words."""
        users, items = self.R.shape
        return f"{self.R.nnz:,} ratings of {items:,} items by {users:,} users"

    def held_out(self, share, seed, option):
        """Divide each user's ratings; return those to learn from and those to judge by."""
        from ..datasets.split import share_split

        try:
            parts = share_split(self.R, share, seed)
        except ValueError as error:
            raise DataError(f"{option} {share} cannot divide {self.source}: {error}") from error
        held = parts[1].nnz / self.R.nnz
        if held < _NEARLY * share:
            warnings.warn(
                f"{option} {share:g} holds out {held:.1%} of the ratings, as each user keeps one at least",
                stacklevel=2,
            )
        return tuple(replace(self, R=part) for part in parts)

    @property
    def arguments(self):
        """What `fit` is given."""
        return (self.R,)

    def with_features(self, user_path, item_path):
        """Read features; who has features and no ratings joins the users or items."""
        from scipy import sparse

        from ..algorithms.factorization.entries import find_ids

        if user_path is None and item_path is None:
            return self
        ids: list = [self.users, self.items]
        keywords = {}
        for side, (what, path) in enumerate((("user", user_path), ("item", item_path))):
            if path is not None:
                given, table = _read_features(path, what, ids[side])
                ids[side] = given
                keywords[f"{what}_features"] = table
        cells = self.R.tocoo()
        rows, columns = find_ids(self.users, ids[0])[cells.row], find_ids(self.items, ids[1])[cells.col]
        R = sparse.csr_array((cells.data, (rows, columns)), shape=(len(ids[0]), len(ids[1])))
        return replace(self, R=R, users=ids[0], items=ids[1], keywords=keywords)

    def name_rows(self, estimator, titles=None):
        """Give a fitted model the ids, and titles of its items."""
        estimator.user_ids_, estimator.item_ids_ = self.users, self.items
        if titles is not None:
            estimator.item_titles_ = read_titles(titles, self.items)

    def pairs(self):
        """Return the ids of users and items, and the ratings, one entry a rating."""
        cells = self.R.tocoo()
        return self.users[cells.row], self.items[cells.col], cells.data


def has_named_columns(source):
    """Whether a file of ratings is JSON lines or Parquet, by its name."""
    return re.search(r"\.(parquet|jsonl(\.(gz|xz|bz2))?)$", str(source), re.IGNORECASE) is not None


def read_ratings_of(source, verbose=0):
    """Read ratings as `stradask.datasets.read_ratings` does; also of JSON lines and Parquet.

    There the columns are user (user_id, userId) and rating, and the item is the first of the others.
    """
    from ..datasets import read_ratings

    if not has_named_columns(source):
        return read_ratings(source, verbose=verbose)
    rows = (cells for _, cells in rows_of(source, verbose))
    header: list[str] = next(rows, [])
    plain = [name.lower().removesuffix("id").strip("_ ") for name in header]
    if len(header) < 3 or not {"user", "rating"} <= set(plain):
        raise DataError(
            f"{source}: ratings have a column user, one of items and a column rating, and this has "
            f"{listed(header)}; name them so (or, for topics of texts, fit lda {source}:COLUMN)"
        )
    user, rating = plain.index("user"), plain.index("rating")
    at = [user, next(k for k in range(len(plain)) if k not in (user, rating)), rating]
    with tempfile.TemporaryDirectory(prefix="stradask-") as folder:
        path = Path(folder, "ratings.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([cells[k] for k in at] for cells in rows)
        try:
            return read_ratings(path, sep=",", header=False, verbose=verbose)
        except DataError as error:
            raise DataError(str(error).replace(str(path), str(source))) from None


def read_titles(path, items):
    """Read titles of items, an array of str: lines ``id,title,...`` of CSV, or of MovieLens with ``::``.

    An item without a title has its id.
    """
    import numpy as np

    text = path.read_bytes()
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        lines = text.decode("latin-1").splitlines()  # as MovieLens has them
    rows = [line.split("::") for line in lines] if lines and "::" in lines[0] else list(csv.reader(lines))
    title_of = {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
    titles = [title_of.get(str(item), str(item)) for item in items]
    if not any(str(item) in title_of for item in items):
        raise DataError(f"--titles: no item of the ratings is in {path}; its lines must be id,title")
    return np.array(titles)


def _read_features(path, what, known):
    """Read lines of an id and numbers; return all ids, ascending, and their features."""
    import numpy as np

    option = f"--{what}-features"
    if not is_table(path):
        raise DataError(
            f"{option} {in_brief(path)}: the name must end in .csv or .tsv, with lines of id,number,..."
        )
    table, names, _ = read_table(f"{path}:0", labels="text")
    given = np.array(typed_ids(names, known, option))
    ids, first, counts = np.unique(given, return_index=True, return_counts=True)
    if (counts > 1).any():
        raise DataError(
            f"{option}: {path} has two lines of the {what} {shortened(ids[counts > 1][0].item())}; keep one"
        )
    missing = np.setdiff1d(known, ids)
    if len(missing):
        raise DataError(
            f"{option}: {path} has no line of the {what} {shortened(missing[0].item())}, which has ratings; "
            "add it"
        )
    return ids, table[first]


def typed_ids(typed, known, option):
    """Return typed ids in the type of the known ones."""
    if known.dtype.kind == "U":
        return typed
    for name in typed:
        if not re.fullmatch("[+-]?[0-9]+", name.strip()) or not -(2**63) <= int(name) < 2**63:
            raise DataError(
                f"{option}: the ids of the ratings are whole numbers of 64 bits, not {shortened(str(name))}"
            )
    return [int(name) for name in typed]


def as_known(read, known):
    """Return ids of a file in the type of a model's: text too, where only the model's file had other ids."""
    return read.astype(str) if known.dtype.kind == "U" and read.dtype.kind == "i" else read
