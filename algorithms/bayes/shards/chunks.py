"""Chunks of shards' chains: what one is, its file, and the function that does it or reads it.

A chunk is the same function call on any thread or worker, and finds or writes the same file.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize
from dask.sizeof import sizeof

from ....errors import DataError, ModelFileError, shortened
from ....scheduler.stores.store import read_npz, write_npz
from ....scheduler.threads import single_threaded_blas

_FORMAT = "stradask chunk"


class Key(NamedTuple):
    """The numbers of a chunk, and of its random stream."""

    seed: int
    shard: int
    chain: int
    chunk: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """The result of a chunk."""

    state: dict[str, np.ndarray]  # all that the next chunk has to know
    arrays: dict[str, np.ndarray]  # draws and what belongs to them, one a row
    digest: str  # of all that went into it; "" without a checkpoint
    found: bool  # whether it was read from a file


@sizeof.register(Chunk)
def _size(chunk):
    return sum(array.nbytes for array in (*chunk.state.values(), *chunk.arrays.values()))


class ChunkWork(NamedTuple):
    """What all chunks of a run share."""

    step: Callable
    seed: int
    identity: str
    folder: str | None
    fits: Callable | None


class _Loaded(NamedTuple):
    data: Any
    digest: str


class _BoundRows(_Loaded):
    """Data that stay in this process."""

    def __reduce_ex__(self, protocol):
        raise DataError("the data of this shard are for their own worker alone, and do not leave it")


def load_shard(load, shard, with_digest, is_kept=False):
    """Load a shard's data, with their digest if chunks are to be found by it; `is_kept`: on this worker."""
    kind = _BoundRows if is_kept else _Loaded
    try:
        data = load(shard)
    except Exception as error:
        error.add_note(f"in shard {shard}")
        raise
    if not with_digest:
        return kind(data, "")
    try:
        return kind(data, str(tokenize(data, ensure_deterministic=True)))
    except RuntimeError as error:
        raise DataError(
            f"the data of shard {shard} cannot be told from others, which a checkpoint needs: {error}; let "
            "load return arrays, plain values, and tuples, lists and dicts of them"
        ) from error


def run_chunk(loaded, before, work, shard, chain, number):
    """Do a chunk, or read it from its file."""
    key = Key(work.seed, shard, chain, number)
    digest, path = "", None
    if work.folder is not None:
        parts = (work.identity, tuple(key), loaded.digest, before.digest if before else "")
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
        Path(work.folder).mkdir(parents=True, exist_ok=True)
        path = Path(work.folder, f"shard-{shard}-chain-{chain}-chunk-{number}-{digest}.npz")
        found = _read(path, digest)
        if found and (work.fits is None or work.fits(loaded.data, found.state, found.arrays, key)):
            return found
    try:
        with single_threaded_blas():
            state, arrays = work.step(loaded.data, before.state if before else None, key)
        state, arrays = _as_arrays("state", state), _as_arrays("arrays", arrays)
    except Exception as error:
        error.add_note(f"in shard {shard}, chain {chain}, chunk {number}")
        raise
    if path is not None:
        content = {f"state/{name}": array for name, array in state.items()}
        content.update((f"arrays/{name}", array) for name, array in arrays.items())
        write_npz(path, content, {"format": _FORMAT, "digest": digest}, follow=False)
    return Chunk(state, arrays, digest, found=False)


def _as_arrays(what, values):
    if not isinstance(values, dict):
        raise DataError(f"step must return its {what} as a dict of arrays, got a {type(values).__name__}")
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise DataError(
                f"step returned {what} with {shortened(name)}, which is no array of numbers or text"
            )
    return arrays


def _read(path, digest):
    """Read a chunk's file; None if there is none, or if it is damaged, for then it is made anew."""
    try:
        content, header = read_npz(path)
    except (FileNotFoundError, ModelFileError):
        return None
    if header != {"format": _FORMAT, "digest": digest}:
        return None
    parts: dict[str, dict] = {"state": {}, "arrays": {}}
    for name, array in content.items():
        part, _, rest = name.partition("/")
        if part not in parts:
            return None
        parts[part][rest] = array
    return Chunk(parts["state"], parts["arrays"], digest, found=True)


def value_of(loaded, function, points):
    """Compute a function of a shard's data at points."""
    with single_threaded_blas():
        return function(loaded.data, points)
