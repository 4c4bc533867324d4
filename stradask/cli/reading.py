"""Commands that read documents with a saved topic model: topics of tokens, and coherence."""

from ..errors import DataError
from . import inputs as data
from .columns import aligned
from .commands import load_model, say_unknown
from .options import add_output, add_threads, command, path_or_url, positive
from .outputs import Table, bars, check_output, ending, put_out, say, show

MEASURES = ("c_v", "c_npmi", "npmi", "umass")


def tokens(args):
    """Print the topic of each token of documents."""
    import numpy as np

    if args.out is not None:
        if ending(args.out) not in (".npz", ".csv"):
            raise DataError(f"--out: {args.out} must end in .npz, .csv")
        check_output("--out", args.out, inputs=[args.file, data.file_of(args.data)])
    estimator = load_model(args.file, "topics_of_tokens")
    texts, counts = _documents(args, estimator)
    names = None if counts is None else counts.names
    found = estimator.topics_of_tokens(list(texts.texts) if counts is None else counts.X)
    if names is None:
        names = getattr(texts, "names", None)
    rows = [str(d + 1 if names is None else names[d]) for d in found.documents.tolist()]
    arrays = {
        "word": np.array(found.words, dtype=str),
        "topic": found.topics,
        "probability": found.probabilities,
    }
    if args.json and args.out is None:  # JSON has no NaN
        arrays["probability"] = np.where(found.topics < 0, 0.0, found.probabilities)
    put_out(args, Table("document", rows, list(arrays), arrays), f"{len(rows):,} tokens")


def coherence(args):
    """Print how coherent the topics of a model are in documents."""
    estimator = load_model(args.file, "coherence")
    texts, counts = _documents(args, estimator)
    if counts is not None and args.window is not None:
        raise DataError("--window: counts have no order of words; give texts, or leave it out")
    if texts is not None and args.measure not in ("c_v", "c_npmi"):
        counts, texts = _counted(args, estimator), None
    if texts is not None:
        found = estimator.coherence(
            measure=args.measure, n_words=args.n_words, texts=texts, window=args.window
        )
    else:
        found = estimator.coherence(counts.X, args.measure, args.n_words)
    words = estimator.topics(n_words=min(args.n_words, estimator.n_features_in_))
    known = [None if value != value else float(value) for value in found]
    there = [value for value in known if value is not None]
    mean = sum(there) / len(there) if there else None
    entries = [
        {"topic": k, "coherence": value, "words": own}
        for k, (value, own) in enumerate(zip(known, words, strict=True))
    ]
    lines = [f"{'topic':>5} {args.measure:>9}  words"]
    for entry in sorted(
        entries, key=lambda e: -2.0 if e["coherence"] is None else e["coherence"], reverse=True
    ):
        value = "none" if entry["coherence"] is None else f"{entry['coherence']:.4f}"
        lines.append(f"{entry['topic']:>5} {value:>9}  {' '.join(entry['words'])}")
    lines.append(f" mean {'none' if mean is None else format(mean, '.4f'):>9}")
    show(args, {"measure": args.measure, "mean": mean, "topics": entries}, "\n".join(lines))


def _documents(args, estimator):
    """Texts of DATA in the order of their words and None, or None and counts."""
    from ..datasets.text_files import read_texts

    if "n_jobs" in estimator.get_params():
        estimator.set_params(n_jobs=args.n_jobs)
    if args.data != data.DOCSTRINGS and data.holds_texts(args.data):
        return read_texts(args.data, verbose=bars(args)), None
    return None, _counted(args, estimator)


def _counted(args, estimator):
    args.vocab = None
    known = {"n_features": estimator.n_features_in_, "words": getattr(estimator, "vocabulary_", None)}
    read = aligned(data.read("counts", args.data, args, **known), estimator, lambda text: say(args, text))
    say_unknown(args, read)
    return read


def add_commands(commands_of):
    """Add both commands to the parser."""
    parser = command(commands_of, "tokens", tokens, "print the topic of each token of documents")
    _add_documents(parser)
    parser.add_argument(
        "--out", type=path_or_url, metavar="FILE", help="ends in .npz or .csv; without it, CSV on stdout"
    )
    add_threads(parser)
    add_output(parser)
    parser = command(commands_of, "coherence", coherence, "say how coherent the topics of a model are")
    _add_documents(parser)
    parser.add_argument(
        "--measure",
        choices=MEASURES,
        default="c_v",
        help="c_v and c_npmi of texts go by windows (%(default)s)",
    )
    parser.add_argument("--window", type=positive, metavar="N", help="words of a window (c_v 110, c_npmi 10)")
    parser.add_argument(
        "--n-words", type=positive, default=10, metavar="N", help="words a topic (%(default)s)"
    )
    add_threads(parser)
    add_output(parser)


def _add_documents(parser):
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    parser.add_argument("data", metavar="DATA", help="documents: texts, or counts as for transform")
