"""Options and types of arguments that many commands have."""

import argparse
from pathlib import Path

from .._urls import is_url
from ..errors import shortened
from .examples import EXAMPLES
from .parser import DEFAULTS


def command(parsers, name, run, help, examples=None):
    """Add a command with its examples."""
    parser = parsers.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog="examples:" + EXAMPLES[examples or name],
    )
    # Without a default here, which would undo a --debug before the command.
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser.set_defaults(run=run)
    return parser


def add_output(parser, quiet=True):
    """Add the options of what is printed."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    if quiet:
        parser.add_argument("--quiet", action="store_true", help="no progress and no notes")


def add_threads(parser):
    """Add the number of threads."""
    parser.add_argument(
        "--n-jobs",
        type=threads,
        default=DEFAULTS["n_jobs"],
        metavar="N",
        help="threads; -1, the default, is all cores. The result is the same for any number",
    )


def _number(text, kind, wanted, accepted):
    try:
        value = None if "_" in text else kind(text)  # Python would take 1_0 for ten
    except ValueError:
        value = None
    if value is None or not accepted(value):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not {wanted}")
    return value


def path_or_url(text):
    """Read a path, or a URL."""
    return text if is_url(text) else Path(text)


def positive(text):
    """Read a whole number of 1 or more."""
    return _number(text, int, "a whole number of 1 or more", lambda value: value >= 1)


def number(text):
    """Read a whole number of 1 or more that may have an exponent."""
    said = "a whole number of 1 or more, such as 2e11"
    return int(_number(text, float, said, lambda value: 1 <= value < 2**63 and value == int(value)))


def natural(text):
    """Read a whole number that may be a seed."""
    return _number(text, int, "a whole number from 0 to 4294967295", lambda value: 0 <= value < 2**32)


def threads(text):
    """Read a number of threads."""
    return _number(text, int, "a number of threads: 1 or more, or -1 for all cores", lambda value: value != 0)


def share(text):
    """Read a share between 0 and 1."""
    return _number(text, float, "a share between 0 and 1", lambda value: 0 < value < 1)
