"""Corpora larger than memory on one machine: shards in memory-mapped files, a few at work at a time."""

import tempfile
from dataclasses import dataclass

from ....datasets.document_files import is_compressed
from ....errors import DataError

AT_ONCE = 4  # shards at work, so that at most as many threads are used; one at a time is read
# In units of the bytes of a plain file of entries: the memory to read it, and what becomes of it, tokens with
# their topics and documents with their counts.
_READING, _STATE = 3, 2
_WORD = 44  # bytes: what is known of a word
_COMPRESSED = 4  # about how much longer a compressed file is than it looks


@dataclass(frozen=True)
class FilePlan:
    """The folder of a fit's shards, and how many work at a time (None: all)."""

    folder: object = None
    at_once: int | None = None


def shards_for(n_bytes, is_compressed, memory_limit):
    """Into how many shards files must be cut so that half of the memory is enough for those at work.

    That is for the one that is read, and later for `AT_ONCE` at work. `n_bytes` are those of the files.
    """
    needed = int(n_bytes * max(_READING, AT_ONCE * _STATE) * (_COMPRESSED if is_compressed else 1))
    return -(-needed * 2 // memory_limit)


def check_shards_fit(shards, memory_limit):
    """Refuse shards one of which cannot be read in half of the memory.

    Parameters
    ----------
    shards : list of tuple of Piece
    memory_limit : int
    """
    for shard in shards:
        needed = bytes_to_read(shard)
        if 2 * needed > memory_limit:
            raise DataError(
                f"memory_limit={memory_limit:,} bytes, but to read a shard of {shard[0].path} takes about "
                f"{needed:,.0f}, and half of the limit is for that: give {2 * needed:,.0f} or more, or "
                "smaller shards (n_groups; files in the svmlight format are not cut, so give several)"
            )


def bytes_to_read(shard):
    """Bytes of memory that reading a shard takes, a tuple of `Piece`."""
    return _READING * sum(
        piece.own_bytes * (_COMPRESSED if is_compressed(piece.path) else 1) for piece in shard
    )


def plan_for(samplers, surveyed, n_topics, memory_limit, folder):
    """Say where shards are, from the figures of a `survey`, for programs that run one after the other.

    `samplers` are the names of the programs (`chosen`); `folder` is where files may be made, if it is not the
    system's place for temporary ones.
    """
    from .sizes import bytes_of_state  # which imports numba

    longest = max(part["longest"] for part in surveyed)
    corpus = longest, sum(part["size"] for part in surveyed)
    sizes = [
        max(
            int(bytes_of_state(name, n_topics, part["n_tokens"], part["size"], *corpus, part["width"]))
            for name in samplers
        )
        for part in surveyed
    ]
    if sum(sizes) <= memory_limit // 2:
        return FilePlan(folder)
    if 2 * max(sizes) > memory_limit:
        raise DataError(
            f"memory_limit={memory_limit:,} bytes, but the tokens of a shard take {max(sizes):,}, and half "
            f"of the limit is for them: give {2 * max(sizes):,} or more, or n_groups above {len(surveyed)}"
        )
    at_once = min(AT_ONCE, memory_limit // 2 // max(sizes))  # fewer where tokens outnumber entries
    return FilePlan(place_for_files(folder), at_once)


def place_for_files(folder):
    """Take the folder that is given, or the system's place for temporary files."""
    return tempfile.gettempdir() if folder is None else folder


def check_blocks_fit(program, memory_limit):
    """Refuse a model whose blocks alone take more than half of the memory."""
    needed = program.bytes_of_blocks + _WORD * program.corpus.n_words
    if needed > memory_limit // 2:
        raise DataError(
            f"memory_limit={memory_limit:,} bytes, but the words and their counts take {needed:,}, and "
            f"half of the limit is for them: give {2 * needed:,} or more, or fewer topics"
        )
