"""Checks of what a program saves in snapshots and checkpoints."""

import numpy as np

from ...errors import DataError, ModelFileError, shortened


def check_saved(program, state):
    """Check that a state has the arrays that `Program.saved` names."""
    for name in program.saved:
        if not isinstance(state, dict) or not isinstance(state.get(name), np.ndarray):
            raise DataError(
                f"saved names {shortened(name)}, but the state that {type(program).__name__}.load makes has "
                "no such array"
            )


def check_twins(program):
    """Check that `Program.twins` names for each shard one that is saved."""
    if program.twins is None:
        return
    twins, n = list(program.twins), len(program.shards)
    if len(twins) != n or any(not 0 <= twin < n or twins[twin] != twin for twin in twins):
        raise DataError(
            f"twins of {type(program).__name__} must name, for each of {n} shards, one that is its own twin, "
            f"got {shortened(twins)}"
        )


def twin_of(program, shard):
    """Return the shard that is saved in the place of this one; see `Program.twins`."""
    return shard if program.twins is None else program.twins[shard]


def is_saved(program, shard):
    """Whether snapshots hold arrays of a shard."""
    return bool(program.saved) and twin_of(program, shard) == shard


def check_complete(program, names):
    """Check that a snapshot has all names that a program saves, and no others."""
    shards = [s for s in range(len(program.shards)) if is_saved(program, s)]
    wanted = {f"shard-{s}/{name}" for s in shards for name in program.saved}
    if program.travels:
        wanted |= {f"block-{b}" for b in range(program.n_blocks)}
    if odd := wanted ^ set(names):
        raise ModelFileError(f"the checkpoint is of other shards or blocks: {min(odd)}; remove the folder")


def check_same_form(name, array, there):
    """Check the shape and dtype of an array of a snapshot, which may come from a file."""
    if array.shape != there.shape or array.dtype != there.dtype:
        raise ModelFileError(
            f"the checkpoint's array {name} is {array.dtype}{array.shape}, but the program has "
            f"{there.dtype}{there.shape}; remove the folder to start anew"
        )


def laid_over(program, block, packed, there):
    """Unpack a saved block; an array must have the form of the one that it replaces."""
    if type(there) is np.ndarray:
        check_same_form(f"block-{block}", packed, program.pack(block, there))
    return program.unpack(block, packed.copy())


def identity_of(program, schedule):
    """Return what a checkpoint belongs to, in addition to the caller's fingerprint."""
    return {
        "program": type(program).__name__,
        "schedule": type(schedule).__name__,
        "n_shards": len(program.shards),
        "n_blocks": int(program.n_blocks),
    }
