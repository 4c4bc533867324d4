"""Matrix factorization on the command line: ratings and titles, what is told of a model, recommendations."""

import csv
import re
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import DataError, in_brief, shortened


@dataclass(frozen=True)
class Rated:
    """Ratings with the ids of their rows and columns.

    Attributes
    ----------
    R : CSR matrix of shape (n_users, n_items)
    users, items : ndarray
        Ids, ascending; whole numbers or text.
    source : str
        What the user typed.
    keywords : dict
        What `fit` is given beside the ratings: features of users and items, in the order of the ids.
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

    def told(self):
        """Sizes, in words."""
        users, items = self.R.shape
        return f"{self.R.nnz:,} ratings of {items:,} items by {users:,} users"

    def held_out(self, share, seed, option):
        """Divide each user's ratings; return those to learn from and those to judge by."""
        from ...datasets.split import rating_split

        try:
            parts = rating_split(self.R, test_size=share, random_state=seed)
        except ValueError as error:
            raise DataError(f"{option} {share} cannot divide {self.source}: {error}") from error
        return tuple(replace(self, R=part) for part in parts)

    @property
    def arguments(self):
        """What `fit` is given."""
        return (self.R,)

    def with_features(self, user_path, item_path):
        """Read features; who has features and no ratings joins the users or items."""
        from scipy import sparse

        from ...algorithms.factorization.entries import find_ids

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


def read_titles(path, items):
    """Read titles of items: lines of id and title, further columns passed over; an item without has its id.

    Parameters
    ----------
    path : path-like
        CSV with or without a header, or lines of MovieLens with ``::``.
    items : ndarray
        Ids.

    Returns
    -------
    ndarray of str
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

    from ..tables import is_table, read_table

    option = f"--{what}-features"
    if not is_table(path):
        raise DataError(
            f"{option} {in_brief(path)}: the name must end in .csv or .tsv, with lines of id,number,..."
        )
    table, names, _ = read_table(f"{path}:0", labels="text")
    given = np.array(_typed_ids(names, known, option))
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


def report(estimator, data, test):
    """Return figures of a fitted model, for JSON and as text.

    Parameters
    ----------
    estimator : MatrixFactorization
        Fitted to `data`.
    data : Rated
    test : Rated or None
        Ratings that were held out.

    Returns
    -------
    document : dict
    text : str
    """
    seconds = float(estimator.history_["seconds"].sum())
    document: dict = {
        "solver": estimator.solver_,
        "iterations": estimator.n_iter_,
        "objective": float(estimator.history_["objective"][-1]),
        "seconds": seconds,
    }
    lines = [f"solver       {estimator.solver_}, {estimator.n_iter_} iterations in {seconds:.2f} s"]
    for name, part in (("training", data), ("test", test)):
        if part is not None and not (
            estimator.implicit and name == "training"
        ):  # which it does not recommend
            document[name], text = judged(estimator, part)
            lines.append(f"{name:<12} {text}")
    return document, "\n".join(lines)


def judged(estimator, data):
    """Return how well a model predicts, or ranks, ratings: scores by name, and as text."""
    import numpy as np

    from ...algorithms.factorization.entries import find_ids

    users, items, values = data.pairs()
    if not estimator.implicit:
        rows, columns = find_ids(users, estimator.user_ids_), find_ids(items, estimator.item_ids_)
        misses = estimator._predicted(rows, columns) - values
        rmse = float(np.sqrt(np.mean(misses**2)))
        return {"rmse": rmse}, f"RMSE {rmse:.4f} over {len(values):,} ratings"
    from scipy import sparse

    from ...algorithms.factorization.ranking import evaluate_ranking

    rows, columns = find_ids(users, estimator.user_ids_), find_ids(items, estimator.item_ids_)
    known = (rows >= 0) & (columns >= 0)
    shape = (len(estimator.user_ids_), len(estimator.item_ids_))
    held_out = sparse.csr_array((values[known], (rows[known], columns[known])), shape=shape)
    scores = evaluate_ranking(estimator, held_out)
    return scores, f"NDCG@10 {scores['ndcg']:.4f}, recall@10 {scores['recall']:.4f}"


def predictions(estimator, data):
    """Return the ids of pairs and what a model predicts for them."""
    from ...algorithms.factorization.entries import find_ids

    users, items, _ = data.pairs()
    rows, columns = find_ids(users, estimator.user_ids_), find_ids(items, estimator.item_ids_)
    return users, items, estimator._predicted(rows, columns)


def recommendations(estimator, users, n, include_seen):
    """Recommend to users, whose ids are text as typed.

    Returns
    -------
    document : list of dict
        For each user ``user`` and ``items``, each with ``item``, ``score``, and ``title`` if it is known.
    text : str
    """
    ids = _typed_ids(users, estimator.user_ids_, "--user")
    found = estimator.recommend(ids, n, filter_seen=not include_seen)
    return _listed(estimator, "user", ids, found, "for user", "nothing that the user has not rated")


def neighbours(estimator, items, n):
    """Find items like others, whose ids are text as typed; return them as `recommendations` does."""
    ids = _typed_ids(items, estimator.item_ids_, "--like")
    return _listed(estimator, "item", ids, estimator.similar_items(ids, n), "like item", "no other item")


def _typed_ids(typed, known, option):
    """Make ids of what was typed, of the kind of the known ones."""
    if known.dtype.kind == "U":
        return typed
    for name in typed:
        if not re.fullmatch("[+-]?[0-9]+", name.strip()) or not -(2**63) <= int(name) < 2**63:
            raise DataError(
                f"{option}: the ids of the ratings are whole numbers of 64 bits, not {shortened(str(name))}"
            )
    return [int(name) for name in typed]


def _listed(estimator, name, ids, found, heading, nothing):
    """Return lists of items, one for each id, fit for JSON and as text."""
    import numpy as np

    titles = getattr(estimator, "item_titles_", None)
    document, lines = [], []
    for asked, items, scores in zip(ids, *found, strict=True):
        listed = []
        for item, score in zip(items, scores, strict=True):
            if np.isneginf(score):
                break
            entry = {"item": item.item(), "score": float(score)}
            if titles is not None:
                entry["title"] = str(titles[np.searchsorted(estimator.item_ids_, item)])
            listed.append(entry)
        document.append({name: asked, "items": listed})
        lines += [f"{heading} {asked}:"]
        told = [
            f"{place:4d}  {entry['score']:8.4f}  {entry['item']}  {entry.get('title', '')}".rstrip()
            for place, entry in enumerate(listed, 1)
        ]
        lines += told or [f"      {nothing}"]
    return document, "\n".join(lines)


def draw_map(estimator, path):
    """Draw a map of the items into a file whose name ends in png or svg."""
    if path.suffix not in (".png", ".svg"):
        raise DataError(f"--map {in_brief(path)}: the name must end in .png or .svg")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DataError("--map needs matplotlib: pip install 'stradask[plot]'") from error
    from ...scheduler.stores.store import write_atomic

    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    estimator.plot_items(ax=figure.add_subplot())
    write_atomic(path, lambda file: figure.savefig(file, format=path.suffix[1:], dpi=120))
