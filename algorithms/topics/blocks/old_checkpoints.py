"""Checkpoints of version 0.1 whose fit ran on threads: its topics in one array, word by word.

They are written anew as shards and blocks, in place, and the fit goes on from there. With Gibbs sampling and
LightLDA it ends with the same bits; WarpLDA's order is another one since, and begins with new proposals.
"""

import numpy as np

from ....kernels.lda.host import LANES
from ....scheduler.stores.shared_store import open_checkpoint
from .restoring import taken, unfit

# By the program that runs now: the program, schedule and number of blocks (None: that of shards) of then.
_BEFORE = {
    "RotatingGibbs": ("GibbsState", "RotationSchedule", None),
    "RotatingLight": ("LightState", "RotationSchedule", None),
    "RotatingWarp": ("WarpState", "PassesSchedule", 2),
    "RotatingAuto": ("AutoState", "SwitchSchedule", None),
}


def go_on_from_one_process(path, program, fingerprint, longest):
    """Turn the newest state of an old checkpoint of the same fit into one of `program`; else do nothing.

    `longest` is the number of tokens of the longest document.
    """
    store, now = open_checkpoint(path), type(program).__name__
    manifest = store._manifest()
    if manifest is None or manifest["fingerprint"].get("program") != _BEFORE.get(now, ("",))[0]:
        return
    name, schedule, n_blocks = _BEFORE[now]
    n_shards = len(program.shards)
    before = {"program": name, "schedule": schedule, "n_shards": n_shards, "n_blocks": n_blocks or n_shards}
    round_, arrays, header = store.load(fingerprint | before)
    coordinator = {name.removeprefix("program/"): array for name, array in arrays.items()}
    state = _as_shards(program, coordinator, longest)
    state |= {name: array for name, array in arrays.items() if name.startswith("schedule/")}
    here = {"program": now, "schedule": type(program.schedule).__name__, "n_shards": n_shards}
    replacing = type("_Replacing", (type(store),), {"_compare": lambda self, there, here: None})
    replacing(path).save(round_, state, header, fingerprint | here | {"n_blocks": int(program.n_blocks)})


def _as_shards(program, arrays, longest):
    """The arrays of coordinator, shards and blocks, named as an engine does."""
    (topics,) = taken(arrays, "topics")
    handover, part = getattr(program, "handover", None), program
    if handover is not None:
        handover.restore(arrays)
        part = program.current
    fits = topics.shape == (part.n_tokens,) and topics.dtype == part.kind
    if not (fits and topics.max(initial=0) < part.n_topics):
        raise unfit()
    totals = np.bincount(topics, minlength=part.n_topics)
    kept = {name: arrays[name] for name in arrays if name in program.arrays()} | {"totals": totals}
    made = {f"program/{name}": array for name, array in kept.items()}
    blocks = [program.block(b) for b in range(program.n_blocks)]
    line = 0
    for number, data in enumerate(program.shards):
        state = program.load(data)
        drawn = _own_topics(part, state, topics)
        state["topics"][:] = drawn[:, None] if state["topics"].ndim == 2 else drawn
        for b, value in enumerate(blocks):
            part._fill(state, b, value)
        if "entries" in part.saved:
            lists = (max(longest.bit_length(), 1), *taken(arrays, "entries", "n_lines"))
            line = _put_lists(state, data["first_document"], line, *lists)
        made |= {f"shard-{number}/{name}": state[name] for name in program.saved}
    return made | {f"block-{b}": program.pack(b, value) for b, value in enumerate(blocks)}


def _own_topics(part, state, topics):
    """A shard's part of the topics of all tokens, word by word and shard by shard."""
    from ....kernels.lda import blocks as lda_blocks

    begin = part.words.first_token + state["offset"]
    own = np.empty(int(state["starts"][-1]), topics.dtype)
    lda_blocks.take_own(begin, begin + np.diff(state["starts"]), topics, own)
    return own


def _put_lists(state, first, line, shift, entries, n_lines):
    """Fill a shard's lists of documents from those of all; return the line behind them.

    All lists had counts of `shift` bits, as the longest document needs; those of a shard have as many as its
    longest one needs.
    """
    documents, n = state["documents"], len(state["lengths"])
    size = int(documents.line_start[-1]) * LANES
    mine, lines = entries[line * LANES :][:size], n_lines[first : first + n]
    if (
        mine.shape != (size,)
        or lines.shape != (n,)
        or (entries.dtype, n_lines.dtype) != (np.uint32, np.int32)
    ):
        raise unfit("lists", "its topics")
    counts = mine & np.uint32((1 << shift) - 1)
    state["entries"][:size] = (mine >> np.uint32(shift)) << np.uint32(documents.shift) | counts
    state["n_lines"][:] = lines
    return line + size // LANES
