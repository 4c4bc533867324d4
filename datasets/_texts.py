"""Detect text in a file where data are expected."""

from ..errors import DataError, shortened

_LOOKED_AT, _SHOWN = 1000, 100  # bytes of the beginning: to tell text by, and in the message


def is_text(start):
    """Whether the beginning of a file (bytes) is text: no control signs, and letters for the greater part.

    Lines that begin with ``#`` do not count: they are comments of the svmlight format.
    """
    seen = [sign for sign in _body(start).decode(errors="replace").rstrip("\ufffd") if not sign.isspace()]
    readable = all(sign.isprintable() and sign != "\ufffd" for sign in seen)
    return readable and 2 * sum(map(str.isalpha, seen)) > len(seen)


def check_no_text(path, start, expected):
    """Refuse a file whose beginning is text; `expected` names the formats it could be in."""
    if is_text(start):
        begin = shortened(_body(start).lstrip()[:_SHOWN].decode(errors="ignore"))
        raise DataError(
            f"{path}: not {expected}, but text, which starts with {begin}: count its words with "
            "stradask.text_counts(stradask.datasets.read_texts(path))"
        )


def _body(start):
    lines = start[:_LOOKED_AT].splitlines(keepends=True)
    return b"".join(line for line in lines if not line.lstrip().startswith(b"#"))
