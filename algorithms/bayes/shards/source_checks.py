"""Checks of shards of a user's density, on the workers that read them: is the likelihood a sum over rows?"""

import warnings
from functools import partial

import numpy as np

from ....errors import DataError, PosteriorWarning
from ...inputs.pieces import checksum
from ..models.row_sums import NotASum, check_sum, depends
from .rows import count_rows, some_rows, taken_rows
from .sources import look_at, with_columns


def check_shards(sources, inspect, **places):
    """Read every shard once on its worker; return the sources with checksums, and warn of doubts."""
    sources = with_columns(sources, **places)
    results = look_at([partial(inspect, source) for source in sources], sources, **places)
    doubts = [words for _, words in results if words]
    if doubts:
        warnings.warn(
            f"{doubts[0]}. Shards that you cut yourself are right where all rows that belong together lie in "
            "one of them, and wrong otherwise, as with means over rows",
            PosteriorWarning,
            stacklevel=5,
        )
    return [source.known(checksum=total) for source, (total, _) in zip(sources, results, strict=True)]


def only_checksum(source, shard):
    """Return the checksum of a shard alone."""
    return checksum(source.read()), ""


def inspect_shard(alone, start, source, shard):
    """Return the checksum of a shard, and doubts whether its likelihood is a sum over its rows.

    A shard may hold whole groups of rows, whose likelihood is no sum over single rows. But without any rows
    nothing may be left that depends on the parameters.
    """
    total, rows = checksum(source.read()), source.take()
    alone, n, start = alone(), count_rows(rows), np.asarray(start, float)
    halves = [partial(_rows, rows, np.arange(first, n, 2)) for first in (0, 1)]
    try:
        check_sum(alone, rows, halves, start, "")
    except NotASum as error:
        none = partial(_rows, rows, np.arange(0))
        if depends(alone, none(), start):
            raise DataError(
                f"{source}: log_likelihood depends on the parameters where there are no rows at all, so that "
                "each shard counts this part: put it into log_prior"
            ) from error
        return total, f"{source}: {error}".rstrip("; ")
    except DataError:  # no density at the start: the model says so, with the shard
        return total, ""
    return total, ""


def _rows(data, rows):
    return taken_rows(some_rows(data, rows))
