"""The report of a fitted factorization: figures, predictions, recommendations, a map."""

from ..._urls import write_atomic
from ...errors import DataError, in_brief
from ..ratings import as_known, typed_ids


def report(estimator, data, test):
    """Return figures of a fitted factorization, see `stradask.registry.Model`."""
    seconds = float(estimator.history_["seconds"].sum())
    document: dict = {
        "solver": estimator.solver_,
        "iterations": estimator.n_iter_,
        "objective": float(estimator.history_["objective"][-1]),
        "seconds": seconds,
    }
    lines = [f"solver       {estimator.solver_}, {estimator.n_iter_} iterations in {seconds:.2f} s"]
    for name, part in (("training", data), ("test", test)):
        # Of implicit feedback, what was learnt from is not recommended.
        if part is not None and not (estimator.implicit and name == "training"):
            document[name], text = judged(estimator, part)
            lines.append(f"{name:<12} {text}")
    return document, "\n".join(lines)


def report_choices(estimator, data, test):
    """Return figures of a fitted model of items, see `stradask.registry.Model`."""
    document: dict = {"users": len(estimator.user_ids_), "items": len(estimator.item_ids_)}
    lines = []
    weights = getattr(estimator, "item_weights_", None)
    if weights is not None:
        document["weights"] = int((weights != 0).sum())
        lines.append(f"weights      {document['weights']:,} between items")
    if test is not None:
        document["test"], text = judged(estimator, test)
        lines.append(f"test         {text}")
    return document, "\n".join(lines)


def judged(estimator, data):
    """Return how well a model predicts, or ranks, ratings: scores by name, and as text."""
    import numpy as np

    rows, columns, values = _places(estimator, data)
    if not estimator.implicit:
        misses = estimator._sides.predict(rows, columns) - values
        rmse = float(np.sqrt(np.mean(misses**2)))
        new = int(((rows < 0) | (columns < 0)).sum())
        whose = f", of which {new:,} are of users or items that the model does not know" if new else ""
        return {"rmse": rmse, "unknown": new}, f"RMSE {rmse:.4f} over {len(values):,} ratings{whose}"
    from scipy import sparse

    from ...algorithms.factorization.ranking import evaluate_ranking

    known = (rows >= 0) & (columns >= 0)
    shape = (len(estimator.user_ids_), len(estimator.item_ids_))
    held_out = sparse.csr_array((values[known], (rows[known], columns[known])), shape=shape)
    scores = evaluate_ranking(estimator, held_out)
    return scores, f"NDCG@10 {scores['ndcg']:.4f}, recall@10 {scores['recall']:.4f}"


def predictions(estimator, data):
    """Return the ids of pairs and their predictions."""
    users, items, _ = data.pairs()
    rows, columns, _ = _places(estimator, data)
    return users, items, estimator._predicted(rows, columns, clip=False)


def _places(estimator, data):
    """Return row, column and value of each rating; -1 stands for an id that the model does not know."""
    users, items, values = data.pairs()
    rows = estimator._numbers(as_known(users, estimator.user_ids_), "user")
    return rows, estimator._numbers(as_known(items, estimator.item_ids_), "item"), values


def recommendations(estimator, users, n, include_seen, exclude=None):
    """Recommend to users, whose ids are text as typed; return a list of users with their items, and text."""
    ids = typed_ids(users, estimator.user_ids_, "--user")
    left_out = None if exclude is None else typed_ids(exclude, estimator.item_ids_, "--exclude")
    found = estimator.recommend(ids, n, filter_seen=not include_seen, exclude=left_out)
    return _listed(estimator, "user", ids, found, "for user", "nothing that the user has not rated")


def neighbours(estimator, items, n):
    """Find items like others, whose ids are text as typed; return them as `recommendations` does."""
    if not hasattr(estimator, "similar_items"):
        raise DataError(f"--like: a {type(estimator).__name__} compares no items")
    ids = typed_ids(items, estimator.item_ids_, "--like")
    return _listed(estimator, "item", ids, estimator.similar_items(ids, n), "like item", "no other item")


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
        numbered = [
            f"{place:4d}  {entry['score']:8.4f}  {entry['item']}  {entry.get('title', '')}".rstrip()
            for place, entry in enumerate(listed, 1)
        ]
        lines += numbered or [f"      {nothing}"]
    return document, "\n".join(lines)


def draw_map(estimator, path):
    """Draw a map of the items into a file whose name ends in png or svg."""
    if path.suffix not in (".png", ".svg"):
        raise DataError(f"--map {in_brief(path)}: the name must end in .png or .svg")
    if not hasattr(estimator, "plot_items"):
        raise DataError(f"--map draws factors of items, and a {type(estimator).__name__} has none")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DataError("--map needs matplotlib: pip install 'stradask[plot]'") from error

    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    estimator.plot_items(ax=figure.add_subplot())
    with write_atomic(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=120)
