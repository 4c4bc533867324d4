"""The commands, one function each; `stradask.cli.arguments` reads their arguments.

Results go to stdout, as text or with ``--json`` as one document; progress and notes go to stderr.
"""

import inspect
import math
import sys
import warnings

from ..algorithms.inputs.encoding import Encoding
from ..errors import DataError, InterruptedFitWarning, shortened
from ..registry import MODELS, find_model, model_of, resolve
from . import inputs as data
from . import scales
from .columns import aligned, check_columns
from .covariates import read_seed_words, with_covariates, with_responses, with_slices
from .outputs import WRITERS, Table, bars, check_output, ending, is_model_file, put_out, say, show
from .parser import DEFAULTS
from .row_files import on_cluster

USES = ("topics", "explore", "predict", "recommend")  # commands that are named like methods of models
OVER_TIME = "DynamicTopicModel"  # judged by later slices, not by documents held out at random
INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


# fit ---------------------------------------------------------------------------------------------


def fit(args):
    """Fit a model to a file and report its figures."""
    model = find_model(args.model)
    _refuse_what_goes_with_ratings(model, args)
    source = data.source_of(model, args)
    on_one_scale = scales.taken(args, model)
    estimator = make_estimator(model, args)
    if args.slices is None and "slices" in inspect.signature(estimator.fit).parameters:
        raise DataError(f"{model.name} needs --slices COLUMN, a column of a table of texts, FILE.csv:COLUMN")
    check_described(model, args, estimator)
    if args.save is not None:
        check_output("--save", args.save, inputs=source.files, is_ours=is_model_file)
    read, test = data.read_source(source, args), None
    if model.data == "ratings":
        read = read.with_features(args.user_features, args.item_features)
    read = described(model, args, read, estimator, source)
    if args.slices is not None:
        read = with_slices(read, estimator, args.slices, source)
    if args.test_size is not None:
        read, test = read.held_out(args.test_size, args.random_state, "--test-size")
    keywords = getattr(read, "keywords", None) or {}
    if args.seed_words is not None:
        keywords = keywords | read_seed_words(args.seed_words, estimator, read)
    with on_cluster(args, read):
        if on_one_scale:
            interrupted = scales.fit_standardized(estimator, read, run_fit)
        else:
            scales.say_scales(args, estimator, read)
            named = (
                getattr(read, "named_arguments", None)
                if {"groups", "reference"} & vars(estimator).keys()
                else None
            )
            interrupted = run_fit(estimator, named or read.arguments, keywords)
        if model.data == "ratings":
            read.name_rows(estimator, args.titles)
        if read.vocabulary is not None:
            _remember(estimator, read.vocabulary)
        if getattr(read, "encoding", None) is not None:
            estimator.table_encoding_ = read.encoding.as_dict()
        if args.save is not None:
            estimator.save(args.save)
        document, text = resolve(model.report)(estimator, read, test)
    header = {
        "model": model.name,
        "parameters": {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
        | ({"standardize": True} if on_one_scale else {}),
        "data": read.describe(),
        "interrupted": interrupted,
        "saved": args.save and str(args.save),
    }
    lines = [f"data         {source}: {read.in_words()}", text]
    if args.save is not None:
        lines += ["", f"saved as {args.save}"]
    show(args, header | document, "\n".join(lines))
    return INTERRUPTED if interrupted else 0


def check_described(model, args, estimator):
    """Refuse, before documents are read, topic models without the option that they need."""
    if model.responds and args.target is None:
        raise DataError(f"{model.name} needs --target COLUMN, a column of a table of texts, FILE.csv:COLUMN")
    if model.estimator == "KeyATM" and args.seed_words is None:
        raise DataError(f"{model.name} needs --seed-words FILE, lines of keywords, a line a topic")
    if args.seed_words is not None and "seed_words" not in inspect.signature(estimator.fit).parameters:
        raise DataError(f"--seed-words: {type(estimator).__name__} takes none; leave it out")


def described(model, args, read, estimator, source):
    """Add to documents the columns of their table that the options name: covariates, or responses."""
    if args.covariates is not None:
        read = with_covariates(read, estimator, args.covariates, source)
    return with_responses(read, estimator.response, args.target, source) if model.responds else read


def _refuse_what_goes_with_ratings(model, args):
    for option, value in (
        ("--titles", args.titles),
        ("--user-features", args.user_features),
        ("--item-features", args.item_features),
    ):
        if value is not None and model.data != "ratings":
            raise DataError(f"{option}: {model.name} has no users and items; leave it out")
        features = option.removeprefix("--").replace("-", "_")
        takes = ("titles", *inspect.signature(model.estimator_class().fit).parameters)
        if value is not None and features not in takes:
            raise DataError(f"{option}: {model.name} takes no features; leave it out")


def _plain(value):
    """JSON has no infinity; None would be another value of the parameter."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def make_estimator(model, args, **strongest):
    """Make the estimator; every parameter is checked before any data are read."""
    cls = model.estimator_class()
    takes = inspect.signature(cls).parameters
    known = [name for name in takes if name != "verbose"]
    # In the order of strength: our defaults, options of their own, --param, what the caller sets.
    ours = {"n_jobs": args.n_jobs, "random_state": args.random_state, "verbose": int(not args.quiet)}
    values = {name: value for name, value in ours.items() if name in takes}
    _refuse_twice(args)
    for name, value in args.param:
        if name not in known:
            raise DataError(
                f"{model.name} has no parameter {shortened(name)}; it has {', '.join(known)} (and see "
                "stradask fit --help)"
            )
        if name == "reference" and isinstance(value, str):
            value = _reference_levels(value)
        values[name] = value
    if getattr(args, "cluster", None) is not None:
        values |= _on_cluster(args, known)
    estimator = cls(**values | strongest)
    estimator._validate_params()
    return estimator


def _reference_levels(text):
    """Read CATEGORY=LEVEL, or several with commas between them."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(category and equals for category, equals, _ in pairs):
        raise DataError(f"--reference {shortened(text)} is not CATEGORY=LEVEL, such as city=Rome,plan=basic")
    return {category.strip(): level.strip() for category, _, level in pairs}


def _refuse_twice(args):
    """Refuse a parameter that is given twice, as an option and by --param say."""
    changed = {name: getattr(args, name) for name, value in DEFAULTS.items() if getattr(args, name) != value}
    given = {name: [value] for name, value in changed.items()}
    for name, value in args.param:
        given.setdefault(name, []).append(value)
        if len(given[name]) > 1:
            first, second = given[name]
            option = name.replace("_", "-")
            raise DataError(
                f"{name} is given twice, as {shortened(first)} and as {shortened(second)}: give it once "
                f"(--{option} and --param {name}= are the same)"
            )


def _on_cluster(args, known):
    """Return the parameters that send a fit to a cluster."""
    if any(name == "engine" for name, _ in args.param):
        raise DataError("--cluster and --param engine=... say the same; give one of them")
    # All cores of this machine, the default, are as many threads of a worker as it has.
    return {"engine": args.cluster} | ({"n_jobs": None} if "n_jobs" in known and args.n_jobs == -1 else {})


def run_fit(estimator, arguments, keywords=None):
    """Fit; return whether Ctrl-C ended it, in which case the estimator holds the model so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InterruptedFitWarning)
        estimator.fit(*arguments, **(keywords or {}))
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return any(issubclass(warning.category, InterruptedFitWarning) for warning in caught)


def _remember(estimator, vocabulary):
    """Store the words of the columns with the model: a fitted attribute, which `save` writes."""
    import numpy as np

    from ..algorithms.inputs.matrices import check_vocabulary

    estimator.vocabulary_ = np.array(check_vocabulary(vocabulary, estimator.n_features_in_), dtype=str)


# Using a model -----------------------------------------------------------------------------------


def load_model(path, ability):
    """Load a fitted model that has a method of that name."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    import stradask

    estimator = stradask.load(path)
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise DataError(f"{path} holds a model that is not fitted; save one after its fit") from None
    if not hasattr(estimator, ability):
        uses = " or ".join(f"stradask {use}" for use in USES if hasattr(estimator, use))
        remedy = f"; use {uses}" if uses else ""
        raise DataError(f"{path} holds a {type(estimator).__name__}, which has no {ability}{remedy}")
    return estimator


def transform(args):
    """Apply a saved model to data."""
    estimator, read = load_and_read(args, "transform")
    read = aligned(read, estimator, lambda text: say(args, text))
    say_unknown(args, read)
    shares = estimator.transform(read.X)
    names = [str(name) for name in (range(1, len(shares) + 1) if read.names is None else read.names)]
    header = [f"topic{k}" for k in range(shares.shape[1])]
    size = f"{shares.shape[0]:,} documents x {shares.shape[1]} topics"
    put_out(args, Table("document", names, header, {"doc_topic": shares}), size)


def say_unknown(args, read):
    """Say which words of texts the model does not know, and how many documents have no others."""
    from ..datasets.texts import said_of

    lengths = read.X.sum(axis=1)
    if said := said_of(getattr(read, "left_out", None) or {}, int(lengths.sum())):
        say(args, f"note: {said[0]} as unknown to the model: {', '.join(said[1:])}")
    if empty := int((lengths == 0).sum()):
        say(
            args,
            f"note: {empty:,} of {len(lengths):,} documents have no word that the model knows; their results "
            "say nothing of them",
        )


def predict(args):
    """Predict with a saved model."""
    from .reports.linear import judged

    estimator, read = load_and_read(args, "predict")
    if model_of(estimator).data == "counts":
        from .judging import predict_documents

        predict_documents(args, estimator, read)
        return
    if model_of(estimator).data == "ratings":
        _predict_ratings(args, estimator, read)
        return
    check_columns(read, estimator)
    put_predictions(args, estimator, read.X, "row")
    if read.has_targets:
        say(args, f"note: against the targets in {args.data}: {judged(estimator, read.scored(estimator))[1]}")


def put_predictions(args, estimator, X, unit, names=None):
    """Write what is predicted for each row, and probabilities of classes; without names rows have numbers."""
    import numpy as np

    predicted = np.asarray(estimator.predict(X))
    predicted = predicted.astype(str) if predicted.dtype.hasobject else predicted  # of text: no pickle
    several = [f"prediction_{k}" for k in range(predicted.shape[1])] if predicted.ndim == 2 else None
    arrays, header = {"prediction": predicted}, several or ["prediction"]
    if hasattr(estimator, "predict_proba") and hasattr(estimator, "classes_"):
        arrays["probability"] = np.asarray(estimator.predict_proba(X))
        header += [f"probability_of_{label}" for label in estimator.classes_]
    rows = [str(name) for name in (range(1, len(predicted) + 1) if names is None else names)]
    put_out(args, Table(unit, rows, header, arrays), f"{len(rows):,} predictions")


def _predict_ratings(args, estimator, read):
    from .reports.factorization import judged, predictions

    users, items, values = predictions(estimator, read)
    names = [str(user) for user in users]
    arrays = {"prediction": values, "item": items}
    put_out(args, Table("user", names, ["prediction", "item"], arrays), f"{len(names):,} predictions")
    say(args, f"note: against the ratings in {args.data}: {judged(estimator, read)[1]}")


def recommend(args):
    """Recommend items to users, find items like others, or draw a map of them."""
    from .reports.factorization import draw_map, neighbours, recommendations

    estimator = load_model(args.file, "recommend")
    estimator.set_params(n_jobs=args.n_jobs)
    if args.map is not None:
        draw_map(estimator, args.map)
        show(args, {"map": str(args.map)}, f"map of the items written to {args.map}")
    elif args.like is not None:
        document, text = neighbours(estimator, args.like, args.n)
        show(args, {"similar": document}, text)
    else:
        document, text = recommendations(estimator, args.user, args.n, args.include_seen, args.exclude)
        show(args, {"recommendations": document}, text)


def load_and_read(args, ability):
    """Load a model and read data for it; the output is checked before."""
    if args.out is not None:
        if ending(args.out) not in WRITERS:
            raise DataError(f"--out: {args.out} must end in {', '.join(WRITERS)}")
        check_output("--out", args.out, inputs=[args.file, data.file_of(args.data)])
    estimator = load_model(args.file, ability)
    if "n_jobs" in estimator.get_params():
        estimator.set_params(n_jobs=args.n_jobs)
    of_rows = model_of(estimator).data in data.ROWS and data.parts_of(args.data) is not None
    if not model_of(estimator).responds and not of_rows:
        args.data = data.with_target(args.data, args.target)
    kind, known = model_of(estimator).data, {"n_features": getattr(estimator, "n_features_in_", None)}
    if kind == "counts":
        known["words"] = getattr(estimator, "vocabulary_", None)
    elif hasattr(estimator, "table_encoding_"):
        known["encoding"] = Encoding.of_dict(estimator.table_encoding_, known["n_features"])
        if not data.is_table(args.data) and not of_rows:
            raise DataError(f"{args.data} is no table, and the model was fitted to one; give FILE.csv")
    read = data.read(kind, args.data, args, **known)
    if getattr(read, "unknown", 0):
        unseen = f"{read.unknown:,} cells hold categories that the model has not seen"
        say(args, f"note: {unseen}; they count as none of its categories")
    if getattr(read, "imputed", 0):
        say(args, f"note: {read.imputed:,} missing cells were imputed by the values of the model's table")
    return estimator, read


def topics(args):
    """Print the topics of a saved model."""
    from .reports.topics import as_documents

    estimator = load_model(args.file, "topics")
    vocabulary = None
    if args.vocab is not None:
        vocabulary = data.read_vocabulary(args.vocab, estimator.n_features_in_, args.file)
    elif not hasattr(estimator, "vocabulary_") and not hasattr(estimator, "feature_names_in_"):
        say(args, "note: the model knows no words, so these are numbers of columns; --vocab FILE names them")
    shown = estimator.topics(vocabulary, args.n_words, rank_by=args.rank_by)
    show(args, {"topics": as_documents(shown)}, str(shown))


def explore(args):
    """Write a page of HTML with the topics of a saved model."""
    from ..algorithms.topics.reading.explore import is_page
    from ..datasets.text_files import names_texts, read_texts

    groups = texts = counts = None
    check_output("--out", args.out, inputs=[args.file], is_ours=is_page)
    estimator = load_model(args.file, "explore")
    if "n_jobs" in estimator.get_params():
        estimator.set_params(n_jobs=args.n_jobs)
    vocabulary = args.vocab and data.read_vocabulary(args.vocab, estimator.n_features_in_, args.file)
    if args.data is not None and args.data != data.DOCSTRINGS and data.holds_texts(args.data):
        if args.texts is not None:
            raise DataError(
                f"--texts: {args.data} holds texts, too; give their counts as DATA, or leave it out"
            )
        args.data, args.texts = None, args.data
    elif args.texts is not None and args.data is None:
        raise DataError("--texts goes with their counts; give these as DATA, or the texts as DATA alone")
    if args.groups is not None and not (args.texts and data.is_table(args.texts)):
        raise DataError("--groups names a column of the texts, FILE.csv:COLUMN; give such a table")
    if args.texts is not None:
        texts = read_texts(args.texts, verbose=bars(args))
        if args.groups is not None and names_texts(args.texts):
            groups = read_texts(data.file_of(args.texts), args.groups).texts
            if not all(groups):
                row = groups.index("") + 1
                raise DataError(f"--groups: row {row} of the column {args.groups} is empty; fill it in")
    if args.data is not None:
        known = {"n_features": estimator.n_features_in_, "words": getattr(estimator, "vocabulary_", None)}
        args.vocab = None
        counts = aligned(data.read("counts", args.data, args, **known), estimator, lambda t: say(args, t))
    options = {} if counts is None else {"X": counts.X, "names": None if texts else counts.names}
    estimator.explore(texts, args.out, vocabulary=vocabulary, groups=groups, **options)
    show(args, {"page": str(args.out)}, f"page of the topics written to {args.out}; open it in a browser")


# Data, installation, demo ------------------------------------------------------------------------


def data_list(args):
    """List the data sets that can be had."""
    from ..datasets import CatalogueEntry, catalogue

    entries = [CatalogueEntry(data.DOCSTRINGS, "counts", "docstrings of the installed packages", "", True)]
    entries += catalogue()
    rows = [("NAME", "KIND", "HERE", "WHAT IT IS")]
    rows += [(entry.name, entry.kind, "yes" if entry.cached else "no", entry.size) for entry in entries]
    text = "\n".join(f"{name:<18} {kind:<9} {here:<5} {size}" for name, kind, here, size in rows)
    show(args, [entry._asdict() for entry in entries], text)


def data_get(args):
    """Download a data set and print where its files are."""
    from ..datasets import download

    paths = [str(path) for path in download(args.name, verbose=bars(args))]
    show(args, {"name": args.name, "paths": paths}, "\n".join(paths))


def data_info(args):
    """Describe a data file."""
    if args.memory is not None and args.n_components is None:
        raise DataError("--memory tells in how many chunks a corpus fits a GPU: give --n-components too")
    description = data.describe(args.file, verbose=bars(args))
    lines = [f"{name:<10} {_readable(value)}" for name, value in description.items()]
    if args.n_components is not None:
        description["memory"] = _memory(args)
        lines += [f"\nbytes of a fit with {args.n_components:,} topics"]
        lines += [f"{name:<18} {_readable(value)}" for name, value in _flat(description["memory"])]
    show(args, description, "\n".join(lines))


def _memory(args):
    """Return the memory that a topic model of the file's counts would need."""
    from ..algorithms.inputs.memory import memory_in_bytes
    from ..algorithms.topics.corpus.footprint import footprint
    from ..kernels.cuda.device import device_for

    memory = None if args.memory is None else memory_in_bytes(args.memory, "--memory")
    X = data.read_counts(args.file, verbose=bars(args)).X
    return footprint(X, args.n_components, memory, device_for("auto"))


def _flat(values):
    """Pairs of a name and a value, those of inner dicts under both names."""
    for name, value in values.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        yield from ((f"{name} {which}".strip(), each) for which, each in inner)


def data_shard(args):
    """Cut a file of documents into several."""
    from ..datasets.document_files import shard_uci_bow

    paths = [str(path) for path in shard_uci_bow(args.file, args.shards, args.out, verbose=bars(args))]
    show(args, {"file": args.file, "paths": paths}, "\n".join(paths))


def _readable(value):
    if isinstance(value, list):
        return " x ".join(f"{n:,}" for n in value)
    if isinstance(value, dict):
        return ", ".join(f"{n:,} {why}" for why, n in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def info(args):
    """Describe the installation and the machine."""
    from .info import as_text, cluster, information

    facts = information()
    if args.cluster is not None:
        facts["cluster"] = cluster(args.cluster)
    if args.measure:
        from ..benchmarks.ceilings import measure

        facts["ceilings"] = measure()
    show(args, facts, as_text(facts))


def demo(args):
    """Show every family on real data and write a report."""
    from ..demo.page import Settings, run

    settings = Settings(n_components=args.n_components, seed=args.seed, quick=args.quick)
    # With --json nothing but the document may be on stdout.
    to = sys.stderr if args.json else sys.stdout
    document = run(settings, args.out, lambda text: print(text, file=to, flush=True))
    if args.json:
        show(args, document, "")


def bench(args):
    """Run a benchmark."""
    from ..benchmarks.command import main

    if args.cluster is not None and args.family not in ("lda", "rotation"):
        raise DataError(f"--cluster: lda and rotation run on a cluster of yours, not {args.family}")
    if args.cluster is not None:
        args.family = "rotation"  # what workers do in a fit
    return main(args)


def model_lines():
    """Return the list of models for the help."""
    width = max(map(len, MODELS))
    return "\n".join(f"  {model.name:<{width}}  {model.summary}" for model in MODELS.values())


def swept_models():
    """Return the names of the models that have a number of topics."""
    return ", ".join(
        model.name for model in MODELS.values() if model.data == "counts" and model.estimator != OVER_TIME
    )
