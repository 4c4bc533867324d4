"""Detect text in a file where data are expected."""

from ..errors import DataError, shortened

_LOOKED_AT, _SHOWN = 1000, 100  # bytes of the beginning: to tell text by, and in the message


def check_no_text(path, start, expected):
    """Refuse a file whose beginning (`start`, bytes) is text; `expected` names the formats it could be in.

    Text is UTF-8 without control signs, and letters for the greater part. Lines that begin with ``#`` do not
    count: they are comments of the svmlight format.
    """
    lines = start[:_LOOKED_AT].splitlines(keepends=True)
    body = b"".join(line for line in lines if not line.lstrip().startswith(b"#"))
    seen = [sign for sign in body.decode(errors="replace").rstrip("\ufffd") if not sign.isspace()]
    readable = all(sign.isprintable() and sign != "\ufffd" for sign in seen)
    if readable and 2 * sum(map(str.isalpha, seen)) > len(seen):
        begin = shortened(body.lstrip()[:_SHOWN].decode(errors="ignore"))
        raise DataError(
            f"{path}: not {expected}, but text, which starts with {begin}: count the words of the texts with "
            "sklearn.feature_extraction.text.CountVectorizer and write the counts with "
            "stradask.datasets.save_uci_bow"
        )
