"""The commands that say how good a model is, and why it recommends an item."""

from ..errors import DataError, shortened
from ..registry import model_of
from . import inputs as data
from .columns import aligned, check_columns
from .commands import load_and_read, load_model, put_predictions, say_unknown
from .outputs import say, show
from .ratings import as_known, typed_ids


def score(args):
    """Say how well a saved model predicts data that have the targets."""
    estimator, read = load_and_read(args, "score")
    kind = model_of(estimator).data
    if kind == "counts":
        found, text = _of_documents(args, estimator, read)
    else:
        from .reports import factorization, linear

        judged = read
        if kind != "ratings":
            if not read.has_targets:
                raise DataError(
                    f"{args.data}: say which column is the target, as {args.data}:COLUMN; of npy files, as "
                    "--target FILE.npy"
                )
            check_columns(read, estimator)
            judged = read.scored(estimator)
        found, text = (factorization if kind == "ratings" else linear).judged(estimator, judged)
    show(args, {"model": model_of(estimator).name, "data": read.describe(), "scores": found}, text)


def _of_documents(args, estimator, read):
    from .reports.topics import check_test

    read = aligned(read, estimator, lambda text: say(args, text))
    say_unknown(args, read)
    check_test(read, "DATA")
    perplexity = float(estimator.perplexity(read.X))
    found, text = (
        {"perplexity": perplexity},
        f"perplexity {perplexity:,.1f} of held-out halves of the documents",
    )
    if args.target is None:
        return found, text
    own, line = _of_responses(args, estimator, read)
    return found | own, f"{text}\n{line}"


def _of_responses(args, estimator, read):
    """Score of the predicted responses, against the column that --target names."""
    from .covariates import with_responses
    from .reports.topics import score_of_responses

    if not model_of(estimator).responds:
        raise DataError(f"--target: {model_of(estimator).name} predicts nothing; leave it out")
    answered = with_responses(read, estimator.response, args.target, args.data)
    return score_of_responses(estimator, answered)


def predict_documents(args, estimator, read):
    """Predict the responses, or the topics, of documents."""
    read = aligned(read, estimator, lambda text: say(args, text))
    say_unknown(args, read)
    put_predictions(args, estimator, read.X, "document", read.names)
    if args.target is not None:
        say(args, f"note: {_of_responses(args, estimator, read)[1]}")


def explain(args):
    """Say which ratings of a user speak for an item, by how much."""
    import numpy as np

    estimator = load_model(args.file, "explain")
    item = np.array(typed_ids([args.item], estimator.item_ids_, "--item"))
    if item[0] not in estimator.item_ids_:
        raise DataError(f"--item: {shortened(args.item)} is no item of the model")
    if args.data is None and not hasattr(estimator, "interactions_"):
        raise DataError("give the ratings, too: stradask explain MODEL RATINGS --user ID --item ID")
    if args.data is None:
        user = typed_ids([args.user], estimator.user_ids_, "--user")
    else:
        user = _ratings_of(args, estimator)
    found = estimator.explain(user, item, args.n)
    titles = getattr(estimator, "item_titles_", None)
    listed, lines = [], [f"why {args.item} for user {args.user}:"]
    for rated, added in zip(np.ravel(found.items), np.ravel(found.scores), strict=True):
        if np.isneginf(added):
            break
        entry = {"item": rated.item(), "adds": float(added)}
        if titles is not None:
            entry["title"] = str(titles[np.searchsorted(estimator.item_ids_, rated)])
        listed.append(entry)
        lines.append(f"  {added:+8.4f}  {entry['item']}  {entry.get('title', '')}".rstrip())
    text = "\n".join(lines if listed else [*lines, "      no rating of the user"])
    show(args, {"user": args.user, "item": args.item, "because_of": listed}, text)


def _ratings_of(args, estimator):
    """The ratings of a user, a row with the columns of the model."""
    import numpy as np
    from scipy import sparse

    args.vocab = None
    read = data.read("ratings", args.data, args)
    user = np.array(typed_ids([args.user], read.users, "--user"))
    at = np.flatnonzero(read.users == user[0])
    if not len(at):
        raise DataError(f"--user: {shortened(args.user)} has no rating in {args.data}")
    row = read.R[at].tocoo()
    items = as_known(read.items, estimator.item_ids_)
    columns = estimator._numbers(items, "item")[row.coords[1]]
    known = columns >= 0
    entries = row.data[known], (np.zeros(known.sum(), np.int64), columns[known])
    return sparse.csr_array(entries, shape=(1, len(estimator.item_ids_)))


def completion(args):
    """Print what a shell completes the words of the command line by."""
    import shtab

    from .arguments import build_parser

    print(shtab.complete(build_parser(with_bench=True), args.shell))
