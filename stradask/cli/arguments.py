"""The command line: arguments, help, and errors in one line.

Every error is one line on stderr and exit status 2; ``--debug`` shows where it came from. Parsing and help
import neither numpy nor any other heavy package: the commands do, in `stradask.cli.commands`.
"""

import argparse
import os
import sys
import traceback
import warnings
from ast import literal_eval
from pathlib import Path

from .._version import __version__
from ..demo.page import DEFAULT_REPORT
from ..errors import in_brief, shortened
from ..registry import MODELS
from . import commands, plans, reading
from .examples import EPILOG
from .options import add_output, add_threads, command, natural, path_or_url, positive, share
from .parser import DEFAULTS, Parser


def main(argv=None):
    """Run the command line with some arguments, or those of this process, and return its exit status.

    It is 0, 2 after an error, 130 after Ctrl-C, 141 when the reader of stdout has gone.

    Examples
    --------
    >>> from stradask.cli.arguments import main
    >>> main(["topics", "--n-words", "none"])
    2
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            status = _run(argv)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # What is still in the buffer would raise again when Python closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as stop:
        print(f"stradask: {stop if str(stop).startswith('interrupted') else 'interrupted'}", file=sys.stderr)
        return commands.INTERRUPTED
    except Exception as error:  # whatever it is, the user gets a line and not a traceback
        if "--debug" in argv:
            traceback.print_exc()
        else:
            print(f"stradask: error: {explain(error)}", file=sys.stderr)
        return 2


def _run(argv):
    parser = build_parser(with_bench="bench" in argv)
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # help, --version, and wrong arguments, already printed
        return stop.code
    if args.run is None:
        parser.print_help()
        return 0
    return args.run(args) or 0


def explain(error):
    """Return an error as one line for users, with a remedy where the error itself has none."""
    if isinstance(error, ModuleNotFoundError):
        extra = " or, for pictures, 'stradask[plot]'" if error.name == "matplotlib" else ""
        return f"{error.name} is not installed; pip install {error.name}{extra}"
    if isinstance(error, MemoryError):
        return _one_line(f"not enough memory ({error})")
    if isinstance(error, OSError) and error.strerror:
        parts = [part for part in (error.filename, error.strerror) if part is not None]
        return ": ".join(in_brief(part, 200) for part in parts)
    from ..errors import StradaskError

    text = _one_line(str(error))
    if isinstance(error, (StradaskError, ValueError)) and text:
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _one_line(text):
    return " ".join(text.split())


def _note(message, category, filename, lineno, file=None, line=None):
    """Show a warning as one line, as `warnings.showwarning`."""
    print(f"stradask: note: {_one_line(str(message))}", file=sys.stderr)


# Arguments ---------------------------------------------------------------------------------------


def build_parser(with_bench=False):
    """Return the parser; the options of ``bench`` cost an import of numpy and are only there on demand."""
    parser = Parser(
        prog="stradask",
        description="Topic models and more, from the command line.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"stradask {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=None)
    commands_of = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands_of)
    _add_fit(commands_of)
    _add_sweep(commands_of)
    _add_transform(commands_of)
    _add_predict(commands_of)
    _add_score(commands_of)
    _add_topics(commands_of)
    _add_explore(commands_of)
    reading.add_commands(commands_of)
    _add_recommend(commands_of)
    _add_explain(commands_of)
    plans.add_commands(commands_of)
    _add_data(commands_of)
    info = command(commands_of, "info", commands.info, "versions, processor, memory, GPU, folders")
    _add_cluster(info, "also say what this Dask scheduler and its workers have")
    info.add_argument(
        "--measure", action="store_true", help="also measure memory and a cluster's rounds (5 seconds)"
    )
    add_output(info, quiet=False)
    shells = command(commands_of, "completion", _completion, "print the completion of words for a shell")
    shells.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    bench = command(commands_of, "bench", commands.bench, "compare with other libraries on equal terms")
    if with_bench:
        from ..benchmarks.run import add_arguments

        add_arguments(bench)
    return parser


def _add_demo(parsers):
    parser = command(
        parsers, "demo", commands.demo, "fit real text, compare with scikit-learn, write a report"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help=f"the report (default: {DEFAULT_REPORT})"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sweeps: a look within seconds")
    parser.add_argument("--n-components", type=positive, default=30, metavar="K", help="topics (%(default)s)")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="(%(default)s)")
    add_output(parser, quiet=False)


def _add_fit(parsers):
    parser = command(parsers, "fit", commands.fit, "fit a model to data")
    parser.add_argument("model", metavar="MODEL", help=f"one of: {', '.join(MODELS)}")
    parser.add_argument(
        "data",
        nargs="+",
        metavar="DATA",
        help="a file, a table as FILE.csv:COLUMN, or docstrings; for linear models also a folder or "
        "'pattern' of Parquet, npy or svmlight files, or their URL; for lda several files of one corpus",
    )
    _add_target(parser)
    _add_vocabulary(parser)
    parser.add_argument(
        "--titles", type=path_or_url, metavar="FILE", help="titles of the items of mf, lines of id,title"
    )
    for what in ("user", "item"):
        parser.add_argument(
            f"--{what}-features",
            type=path_or_url,
            metavar="FILE.csv",
            help=f"features of the {what}s of mf, lines of id,number,...; also {what}s without ratings",
        )
    parser.add_argument(
        "--impute",
        action="store_true",
        help="of a table: missing numbers become the column's median, missing categories none of its values",
    )
    for option, what in (("drop", "to leave out"), ("categories", "of numbers that stand for categories")):
        parser.add_argument(
            f"--{option}", nargs="+", action="extend", metavar="COLUMN", help=f"of a table: columns {what}"
        )
    _add_described(parser)
    parser.add_argument(
        "--slices", metavar="COLUMN", help="of a table of texts: the column of slices of time, for dynamic"
    )
    parser.add_argument("--save", type=path_or_url, metavar="FILE", help="where the fitted model goes")
    _add_parameters(parser)
    add_threads(parser)
    _add_cluster(parser, "fit on the workers of this Dask scheduler, such as tcp://host:8786")
    parser.add_argument(
        "--random-state",
        type=natural,
        default=DEFAULTS["random_state"],
        metavar="S",
        help="seed (%(default)s)",
    )
    parser.add_argument(
        "--test-size", type=share, metavar="F", help="share of the rows to hold out and judge by"
    )
    add_output(parser)


def _add_described(parser):
    """What topic models know of documents or words besides the counts."""
    parser.add_argument(
        "--covariates",
        nargs="+",
        metavar="COLUMN",
        help="of a table of texts: columns on which topics depend",
    )
    parser.add_argument("--seed-words", metavar="FILE", help="of topics: lines of words, a line a topic")


def _add_sweep(parsers):
    parser = command(parsers, "sweep", _sweep, "choose the number of topics by held-out documents")
    parser.add_argument("model", metavar="MODEL", help=f"one of: {commands.swept_models()}")
    parser.add_argument("data", metavar="DATA", help="a file, or the word docstrings")
    parser.add_argument(
        "--n-components", type=positive, nargs="+", required=True, metavar="K", help="numbers of topics"
    )
    _add_target(parser)
    _add_vocabulary(parser)
    _add_described(parser)
    _add_parameters(parser)
    judges = parser.add_mutually_exclusive_group()
    judges.add_argument("--test", metavar="FILE", help="documents to judge by, with the words of DATA")
    judges.add_argument(
        "--held-out",
        type=share,
        default=0.1,
        metavar="F",
        help="without --test: share of DATA's documents to hold out (%(default)s)",
    )
    parser.add_argument("--repeats", type=positive, default=3, metavar="R", help="fits a K (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the records and the picture")
    parser.add_argument(
        "--format", choices=("png", "svg"), default="png", help="of the picture (%(default)s)"
    )
    add_threads(parser)
    parser.add_argument(
        "--random-state",
        type=natural,
        default=DEFAULTS["random_state"],
        metavar="S",
        help="first seed (%(default)s)",
    )
    add_output(parser)


def _sweep(args):
    from .sweep import sweep

    return sweep(args)


def _add_transform(parsers):
    parser = command(parsers, "transform", commands.transform, "apply a saved model to data")
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    parser.add_argument("data", metavar="DATA", help="a file, or the word docstrings")
    parser.set_defaults(target=None)
    _add_vocabulary(parser)
    _add_table(parser)
    add_threads(parser)
    add_output(parser)


def _add_predict(parsers):
    parser = command(parsers, "predict", commands.predict, "predict with a saved model")
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    parser.add_argument(
        "data",
        metavar="DATA",
        help="an svmlight file, a table, FILE.csv or FILE.csv:COLUMN, npy, or a folder or pattern",
    )
    _add_target(parser)
    parser.set_defaults(vocab=None)
    _add_table(parser)
    add_threads(parser)
    add_output(parser)


def _add_score(parsers):
    parser = command(parsers, "score", _score, "say how well a saved model predicts data with targets")
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    parser.add_argument("data", metavar="DATA", help="as for fit: FILE.csv:COLUMN, texts, counts or ratings")
    parser.set_defaults(out=None)
    _add_target(parser)
    _add_vocabulary(parser)
    add_threads(parser)
    add_output(parser)


def _score(args):
    from .judging import score

    return score(args)


def _explain(args):
    from .judging import explain

    return explain(args)


def _completion(args):
    from .judging import completion

    return completion(args)


def _add_topics(parsers):
    parser = command(parsers, "topics", commands.topics, "print the topics of a saved model")
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    _add_vocabulary(parser)
    parser.add_argument(
        "--n-words", type=positive, default=10, metavar="N", help="words a topic (%(default)s)"
    )
    parser.add_argument(
        "--rank-by",
        choices=("probability", "relevance", "frex"),
        default="probability",
        help="which words are the best: the probable ones (default), or those that other topics lack",
    )
    add_output(parser)


def _add_explore(parsers):
    parser = command(parsers, "explore", commands.explore, "write a page to read the topics of a saved model")
    parser.add_argument("file", metavar="FILE", help="a model that fit --save wrote")
    parser.add_argument(
        "data", nargs="?", metavar="DATA", help="documents to show: texts, or counts as for transform"
    )
    parser.add_argument(
        "--out", type=path_or_url, default=Path("topics.html"), metavar="PAGE.html", help="(%(default)s)"
    )
    parser.add_argument(
        "--texts", metavar="TEXTS", help="the documents of DATA, which are counts of a tokenisation of yours"
    )
    parser.add_argument(
        "--groups", metavar="COLUMN", help="column of the texts, a table: shares of topics in its groups"
    )
    _add_vocabulary(parser)
    add_threads(parser)
    add_output(parser)


def _add_recommend(parsers):
    parser = command(parsers, "recommend", commands.recommend, "recommend items to users of a saved model")
    parser.add_argument("file", metavar="FILE", help="a model that fit mf --save wrote")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--user", nargs="+", metavar="ID", help="users, as in the ratings")
    asked.add_argument("--like", nargs="+", metavar="ID", help="items, to find similar ones")
    asked.add_argument("--map", type=Path, metavar="FILE", help="draw a map of the items, as png or svg")
    parser.add_argument("--n", type=positive, default=10, metavar="N", help="items for each (%(default)s)")
    parser.add_argument("--include-seen", action="store_true", help="also what the user has rated")
    parser.add_argument("--exclude", nargs="+", metavar="ID", help="items that no user gets")
    add_threads(parser)
    add_output(parser)


def _add_explain(parsers):
    parser = command(parsers, "explain", _explain, "say why an item is recommended to a user")
    parser.add_argument("file", metavar="FILE", help="a model of ratings that fit --save wrote")
    parser.add_argument(
        "data", nargs="?", metavar="RATINGS", help="ratings; mf does not keep those of its fit"
    )
    parser.add_argument("--user", required=True, metavar="ID", help="a user, as in the ratings")
    parser.add_argument("--item", required=True, metavar="ID", help="an item, as in the ratings")
    parser.add_argument("--n", type=positive, default=5, metavar="N", help="ratings to show (%(default)s)")
    add_output(parser)


def _add_data(parsers):
    parser = command(parsers, "data", None, "list, download and describe data sets")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_output(command(actions, "list", commands.data_list, "data sets that can be had"), quiet=False)
    get = command(actions, "get", commands.data_get, "download a data set, once, and say where it is")
    get.add_argument("name", metavar="NAME", help="as in the list")
    add_output(get)
    info = command(actions, "info", commands.data_info, "say what a data file holds", "info of a file")
    info.add_argument("file", metavar="FILE", help="a file, or the word docstrings")
    info.add_argument(
        "--n-components", type=positive, metavar="K", help="also the memory that a fit of K topics takes"
    )
    info.add_argument(
        "--memory", metavar="BYTES", help="of a GPU, 80GB say: in how many chunks the corpus goes through it"
    )
    add_output(info)
    shard = command(actions, "shard", commands.data_shard, "cut a file of documents into several")
    shard.add_argument("file", metavar="FILE", help="in the UCI bag-of-words format, documents in order")
    shard.add_argument("--shards", type=positive, required=True, metavar="N", help="how many files")
    shard.add_argument("--out", type=Path, metavar="FOLDER", help="output folder (default: that of FILE)")
    add_output(shard)


def _add_parameters(parser):
    parser.takes_parameters = True
    parser.add_argument(
        "--param",
        type=_assignment,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the estimator, for which options are the same (--n-components 20, --alpha 0.1); "
        "values are written as in Python",
    )


def _add_target(parser):
    parser.add_argument(
        "--target", metavar="COLUMN", help="column of a table that holds the targets, by name or number"
    )


def _add_vocabulary(parser):
    parser.add_argument(
        "--vocab", type=path_or_url, metavar="FILE", help="the word of each column, one a line"
    )


def _add_table(parser):
    parser.add_argument(
        "--out",
        type=path_or_url,
        metavar="FILE",
        help="ends in .npz, .npy or .csv; without it, CSV on stdout",
    )


def _add_cluster(parser, help):
    parser.add_argument("--cluster", metavar="ADDRESS", help=help)


def _assignment(text):
    """Read NAME=VALUE; a value that is no literal of Python is a string."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier() and value):
        raise argparse.ArgumentTypeError(
            f"{shortened(text)} is not NAME=VALUE (MODEL and DATA come before --param)"
        )
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return name, value
