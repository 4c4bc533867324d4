"""The command ``stradask sweep``: how many topics? A model for each number, judged by held-out documents.

A fit that is done is a line of ``records.jsonl`` in the folder of ``--out``: the sizes and parameters that it
belongs to, K, the seed, and its figures. A fit of which there is a record is not done again.
"""

import itertools
import json
import math
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from statistics import fmean, stdev

from .._urls import write_atomic
from .._version import __version__
from ..errors import DataError, in_brief, shortened
from ..registry import find_model
from . import inputs as data
from .commands import (
    INTERRUPTED,
    OVER_TIME,
    check_described,
    described,
    make_estimator,
    run_fit,
    swept_models,
)
from .covariates import read_seed_words
from .outputs import check_output, say, show
from .reports.topics import check_test

RECORDS = "records.jsonl"
FIGURES = ("perplexity", "coherence", "diversity", "topics_per_document", "seconds")
# Figures that a model may not have, nor older records.
MEASURES = ("cao_juan", "deveaud", "arun", "griffiths")
_DRAWS = 20  # of a fit, for the last of them, where its parameters do not say how many
# What the sweep itself sets, and how to say it.
_OWN = {
    "n_components": "list the numbers after --n-components",
    "random_state": "give the first seed as --random-state, and --repeats",
    "checkpoint": "it holds a single fit; --out keeps every fit that is done",
}


@dataclass(frozen=True)
class Row:
    """Summary of the fits of one K: means, and the standard deviation of the perplexity (or None).

    Perplexity is of held-out documents by document completion, coherence the mean NPMI over topics of the
    documents learnt from; the last four are those of `LatentDirichletAllocation.number_measures`.
    """

    n_components: int
    fits: int
    perplexity: float
    perplexity_sd: float | None
    coherence: float
    diversity: float
    topics_per_document: float
    seconds: float
    cao_juan: float | None = None
    deveaud: float | None = None
    arun: float | None = None
    griffiths: float | None = None

    @classmethod
    def of(cls, records):
        """Summarise the records of one K; None if there are none."""
        if not records:
            return None
        means = {name: fmean(record[name] for record in records) for name in FIGURES}
        sd = stdev(record["perplexity"] for record in records) if len(records) > 1 else None
        measured = {name: [record[name] for record in records if name in record] for name in MEASURES}
        means |= {name: fmean(values) for name, values in measured.items() if len(values) == len(records)}
        return cls(records[0]["n_components"], len(records), perplexity_sd=sd, **means)


def sweep(args):
    """Fit a topic model for each number of topics and say which predicts held-out documents best."""
    model = _topic_model(args.model)
    numbers = _numbers(args)
    estimators = [
        make_estimator(model, args, n_components=number, **_with_draws(model, args)) for number in numbers
    ]
    check_described(model, args, estimators[0])
    picture = None if args.out is None else _prepared(args)
    train, test = _documents(model, args, estimators[0])
    identity = _identity(args, estimators[0], train, test)
    records = _Records(None if args.out is None else args.out / RECORDS, identity)
    seeds = [(args.random_state + repeat) % 2**32 for repeat in range(args.repeats)]
    plan = [(number, seed) for number in numbers for seed in seeds]
    interrupted = _fit_all(model, args, plan, (train, test), records)
    rows = [row for row in (records.row(number, seeds) for number in numbers) if row is not None]
    best, smallest = choice(rows)
    if picture is not None and not (rows and _drawn(args, picture, rows, best, smallest)):
        picture = None
    document = {
        "model": model.name,
        "parameters": identity["parameters"],
        "data": train.describe(),
        "held_out": test.describe(),
        "sweep": [asdict(row) for row in rows],
        "best": best,
        "smallest_within_one_standard_error": smallest,
        "interrupted": interrupted,
        "records": args.out and str(records.path),
        "picture": picture and str(picture),
    }
    lines = [f"data         {args.data}: {train.in_words()}", f"judged by    {test.in_words()}", ""]
    lines += _table(rows, best, smallest) if rows else ["no fit was finished"]
    if rows and args.out is not None:
        lines += ["", f"records in {records.path}" + (f", picture in {picture}" if picture else "")]
    show(args, document, "\n".join(lines))
    return INTERRUPTED if interrupted else 0


def choice(rows):
    """Choose from the rows of a sweep, which rise by K: the best, and the smallest that is as good.

    The best has the least mean perplexity, the smaller of two that are equal; None without rows. The smallest
    is at most one standard error of the best above it (Breiman, Friedman, Olshen, Stone, "Classification and
    regression trees", 1984, section 3.4.3); None if a single fit of the best cannot tell its error.
    """
    if not rows:
        return None, None
    best = min(rows, key=lambda row: row.perplexity)
    if best.perplexity_sd is None:
        return best.n_components, None
    most = best.perplexity + best.perplexity_sd / math.sqrt(best.fits)
    return best.n_components, next(row.n_components for row in rows if row.perplexity <= most)


# What is asked for ----------------------------------------------------------------------------------


def _topic_model(name):
    model = find_model(name)
    if model.data != "counts":
        raise DataError(
            f"MODEL is {shortened(name)}, which has no number of topics; there are: {swept_models()} "
            "(lasso-cv and its like choose their penalty in a fit)"
        )
    if model.estimator == OVER_TIME:
        raise DataError(
            f"MODEL is {model.name}, which is judged by later slices, not by documents held out at random; "
            f"there are: {swept_models()}"
        )
    return model


def _numbers(args):
    numbers = sorted(args.n_components)
    twice = [number for number, after in itertools.pairwise(numbers) if number == after]
    if twice:
        raise DataError(f"--n-components: {twice[0]} is listed twice; --repeats fits each number more often")
    for name, value in args.param:
        if name in _OWN:
            raise DataError(f"--param: {name} is set by the sweep; {_OWN[name]}")
        if name == "doc_topic_prior" and isinstance(value, (list, tuple)) and len(numbers) > 1:
            raise DataError(
                "--param: a vector doc_topic_prior has one number of topics; give a number, or one K"
            )
    return numbers


def _prepared(args):
    """Check the folder of ``--out`` and its files; return the path of the picture."""
    records, picture = args.out / RECORDS, args.out / f"sweep.{args.format}"
    if args.out.is_dir():
        check_output("--out", records)
        check_output("--out", picture, is_ours=lambda path: records.exists())
    elif args.out.exists():
        raise DataError(f"--out: {args.out} is a file; give a folder")
    else:
        check_output("--out", args.out)
    _read_records(records)
    return picture


def _documents(model, args, estimator):
    """Read the documents to learn from and to judge by, and check them."""
    if args.test is not None and (model.responds or args.covariates is not None):
        raise DataError("--test: its documents have no columns of a table; take --held-out")
    say(args, f"reading {in_brief(args.data, 200)}")
    train = described(model, args, _counts(args, args.data), estimator, args.data)
    width = train.X.shape[1]
    if width < 2:
        raise DataError(f"{args.data} has a single word; topics need 2 or more")
    if args.test is None:
        option = "--held-out"
        train, test = train.held_out(args.held_out, args.random_state, option)
    else:
        option = "--test"
        test = _counts(args, args.test, n_features=width, words=train.vocabulary)
        if test.X.shape[1] != width:
            sizes = f"{args.test} has {test.X.shape[1]:,} words and {args.data} {width:,}"
            raise DataError(f"--test: {sizes}; give documents with the same words")
        check_test(test, option)
    if test.X.shape[0] < 2:
        raise DataError(f"{option}: there is 1 document to judge by; take 2 or more")
    return train, test


def _counts(args, source, **options):
    """Read counts in the form that estimators take, so that errors come before any fit."""
    from ..algorithms.inputs.matrices import check_counts

    read = data.read("counts", source, args, **options)
    try:
        return replace(read, X=check_counts("sweep", read.X))
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


# Fits and their records -------------------------------------------------------------------------------


def _fit_all(model, args, plan, documents, records):
    """Do the fits of the plan that are not recorded; return whether Ctrl-C ended it before its end."""
    train, test = documents
    missing = [place for place in plan if place not in records]
    if len(missing) < len(plan):
        say(args, f"{len(plan) - len(missing)} of {len(plan)} fits are in {records.path}")
    for at, (number, seed) in enumerate(missing, 1):
        say(args, f"K = {number:,}, seed {seed}: fit {at} of {len(missing)}")
        estimator = make_estimator(
            model, args, n_components=number, random_state=seed, **_with_draws(model, args)
        )
        try:
            interrupted = run_fit(estimator, train.arguments, _keywords(args, estimator, train))
            figures = None if interrupted else _figures(estimator, train, test)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            say(args, "note: the interrupted fit is left out")
            return True
        records.add(number, seed, figures)
    return False


def _keywords(args, estimator, train):
    """What `fit` takes besides the documents and responses."""
    keywords = getattr(train, "keywords", {})
    return keywords | (read_seed_words(args.seed_words, estimator, train) if args.seed_words else {})


def _figures(estimator, train, test):
    """Return the figures of a fitted model for its record."""
    import numpy as np

    topics = (estimator.doc_topic_counts_ > 0).sum(axis=1)
    measured = {name: value for name, value in estimator.number_measures().items() if math.isfinite(value)}
    return measured | {
        "perplexity": estimator.perplexity(test.X, **getattr(test, "keywords", {})),
        "coherence": float(np.nanmean(estimator.coherence(train.X))),
        "diversity": float(estimator.topic_diversity()),
        "topics_per_document": float(topics.sum() / (topics > 0).sum()),
        "seconds": float(estimator.history_["seconds"].sum()),
        "sweeps": int(estimator.n_iter_),
    }


def _identity(args, estimator, train, test):
    """Return the facts that all fits of one sweep share: all but K and the seed."""
    from ..scheduler.stores.store import fingerprint_csr

    own = {*_OWN, "n_jobs", "verbose"}
    given = [dict(_keywords(args, estimator, train)), getattr(test, "keywords", {})]
    given.append(None if getattr(train, "y", None) is None else train.y.tolist())
    given[0].pop("vocabulary", None)
    found = estimator.get_params(deep=False).items()
    parameters = {name: value for name, value in found if name not in own}
    if any(part is not None and len(part) for part in given):
        parameters["given"] = sha256(repr(given).encode()).hexdigest()
    identity = {
        "version": __version__,
        "parameters": parameters,
        "train": [*train.X.shape, fingerprint_csr(train.X)],
        "test": [*test.X.shape, fingerprint_csr(test.X)],
    }
    if identity["train"] == identity["test"]:
        raise DataError("--test: these are the documents learnt from; give others")
    return json.loads(json.dumps(identity, default=str, allow_nan=False))  # as it is read again


class _Records:
    """The fits that are done, by K and seed; in the file at `path` if there is one.

    `identity` is what the records of this sweep have in common; others stay in the file, for theirs.
    """

    def __init__(self, path, identity):
        self.path, self.identity = path, identity
        self._found = {}
        for record in _read_records(path):
            if all(record[name] == value for name, value in identity.items()):
                self._found[record["n_components"], record["seed"]] = record

    def __contains__(self, place):
        return place in self._found

    def row(self, number, seeds):
        """Summarise the fits of one K that are done; None if there are none."""
        places = ((number, seed) for seed in seeds)
        return Row.of([self._found[place] for place in places if place in self._found])

    def add(self, number, seed, figures):
        """Keep the record of a fit, and those that another sweep may have written meanwhile."""
        record = self.identity | {"n_components": number, "seed": seed} | figures
        self._found[number, seed] = record
        if self.path is not None:
            self.path.parent.mkdir(exist_ok=True)
            lines = [json.dumps(each, allow_nan=False) for each in [*_read_records(self.path), record]]
            with write_atomic(self.path) as file:
                file.write("\n".join([*lines, ""]).encode())


def _read_records(path):
    """Read a file of records, which need not be there."""
    if path is None or not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
            sound = all(isinstance(record[name], int) for name in ("n_components", "seed"))
            sound &= all(isinstance(record[name], float) for name in FIGURES)
            sound &= record.keys() >= {"version", "parameters", "train", "test"}
        except (ValueError, TypeError, LookupError):
            sound = False
        if not sound:
            raise DataError(
                f"--out: {path}, line {number} is not a record of this command; give another folder"
            )
        records.append(record)
    return records


# What is shown ---------------------------------------------------------------------------------------


def _table(rows, best, smallest):
    """Return the rows as text, with notes on their limits."""
    lines = ["      K  fits  perplexity        sd  coherence  diversity  topics/document   seconds"]
    for row in rows:
        sd = "" if row.perplexity_sd is None else f"{row.perplexity_sd:,.2f}"
        named = {"best": best, "smallest within 1 se": smallest}
        marks = ", ".join(name for name, number in named.items() if number == row.n_components)
        lines.append(
            f"{row.n_components:>7,}  {row.fits:>4}  {row.perplexity:>10,.1f}  {sd:>8}  {row.coherence:>9.4f}"
            f"  {row.diversity:>9.3f}  {row.topics_per_document:>15.2f}  {row.seconds:>8.3g}  {marks}"
        )
    lines = [*map(str.rstrip, lines), ""]
    if any(row.cao_juan is not None for row in rows):
        lines += [*_measures(rows), ""]
    if smallest is None:
        lines.append("the best K has one fit, which tells no standard error: take --repeats 3")
    ends = {"smallest": rows[0].n_components, "largest": rows[-1].n_components}
    end = next((end for end, number in ends.items() if number == best), None)
    if end is not None:
        lines.append(f"the best is the {end} K of the list: there may be a better one beyond")
    return lines if lines[-1] else lines[:-1]


def _measures(rows):
    """Measures of topics alone, which by their papers are least or greatest at the best K."""
    lines = ["      K  Cao-Juan (low)  Arun (low)  Deveaud (high)  Griffiths (high)"]
    for row in rows:
        values = (row.cao_juan, row.arun, row.deveaud, row.griffiths)
        cells = [
            "" if value is None else f"{value:,.{digits}f}"
            for value, digits in zip(values, (4, 3, 3, 0), strict=True)
        ]
        lines.append(
            f"{row.n_components:>7,}  {cells[0]:>14}  {cells[1]:>10}  {cells[2]:>14}  {cells[3]:>16}".rstrip()
        )
    return lines


def _with_draws(model, args):
    """Parameters of the fits: with draws, of which one measure is made, where the model can keep them."""
    given = dict(args.param)
    names = model.estimator_class()._get_param_names()
    if "n_draws" not in names or "n_draws" in given:
        return {}
    max_iter = given.get("max_iter", model.estimator_class()().max_iter)
    return {"n_draws": max(0, min(_DRAWS, max_iter // 4))} if isinstance(max_iter, int) else {}


def _drawn(args, path, rows, best, smallest):
    """Write the picture, and say so; or why there is none."""
    try:
        from .sweep_picture import write
    except ModuleNotFoundError as error:
        say(
            args,
            f"note: no picture, because {error.name} is not installed; pip install 'stradask[plot]' and "
            "repeat the command, which takes its figures from the records",
        )
        return False
    write(path, rows, best, smallest)
    return True
