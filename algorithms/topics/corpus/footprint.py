"""The memory that a fit takes, from the sizes of the corpus alone."""

import numpy as np

from ....errors import DataError, DeviceError
from ....kernels.lda import saber_chunks as lda_saber_chunks
from ..blocks.groups import number_of_groups, number_of_rows
from ..blocks.list_layout import DENSE_TOPICS, ListRoom
from ..blocks.memory import BYTES_OF_WORD, LAYOUT, CorpusSizes, bytes_of_state, bytes_of_topic
from ..blocks.word_blocks import Words
from ..samplers import light_cuda, saber

_PROCESSORS = 132  # multiprocessors of a large GPU, where there is none: they share little


def footprint(X, n_topics, memory=None, device=None):
    """Compute the bytes that a fit takes besides `X`, by sampler.

    `memory` is that of a GPU, for the number of chunks in which the corpus goes through it; by default what
    `device` has free. Returns a dict: ``X``, bytes of the matrix; ``layout``, taken for a time before the
    first sweep, on one thread; ``cpu``, of the samplers that can hold the corpus; ``cuda``, bytes on a GPU
    that holds all of it at once; and, with a memory to fit, ``cuda chunks``, in how many chunks each goes
    through it (1: all stays there, None: it has no room). Raises DeviceError if a GPU of that memory has
    no room even for the smallest chunks.
    """
    X = X.tocsr()
    lengths, frequency = (np.asarray(X.sum(axis=axis, dtype=np.int64)).ravel() for axis in (1, 0))
    n_tokens = int(lengths.sum())
    if not n_tokens:
        raise DataError("there is no token: nothing would be trained")
    found = {
        "X": X.data.nbytes + X.indices.nbytes + X.indptr.nbytes,
        "layout": LAYOUT * n_tokens // number_of_groups(n_tokens, np.count_nonzero(frequency), n_topics),
        "cpu": _on_cpu(lengths, frequency, n_topics),
        "cuda": {},
    }
    fits, holds = _saber_fits(lengths, frequency, n_topics), ListRoom.hold(int(lengths.max()), n_topics)
    processors = _PROCESSORS if device is None else device.n_processors
    name = "the GPU" if device is None else device.name
    if memory is None and device is not None:
        memory = device.free_memory()
    if memory is not None and (holds or fits):
        found |= {"cuda memory": memory, "cuda chunks": {}}
    if holds:
        plans = light_cuda.plans_of(lengths, frequency, n_topics)
        n_sections = light_cuda.number_of_sections(lengths)
        found["cuda"]["light"] = plans[0].n_bytes
        if memory is not None:
            found["cuda chunks"]["light"] = _light_chunks(memory, name, n_topics, n_sections, plans)
    if fits:
        whole = lda_saber_chunks.plans_of(processors, lengths, frequency, n_topics)[0]
        found["cuda"]["saber"] = whole.n_bytes
        if memory is not None:
            plan = lda_saber_chunks.plan_for(memory, processors, name, lengths, frequency, n_topics)
            found["cuda chunks"]["saber"] = 1 if plan.resident else len(plan.cuts) - 1
    return found


def _light_chunks(memory, name, n_topics, n_sections, plans):
    """In how many chunks "light" goes through a GPU; None if it has no room."""
    try:
        plan = light_cuda.plan_for(memory, name, n_topics, n_sections, plans)
    except DeviceError:
        return None
    return 1 if plan.resident else n_sections


def _on_cpu(lengths, frequency, n_topics):
    """Bytes of each sampler that can hold the corpus, and of laying out a shard."""
    n_tokens, n_documents, n_words = int(lengths.sum()), len(lengths), int(np.count_nonzero(frequency))
    longest, topic = int(lengths.max()), bytes_of_topic(n_topics)
    sizes = CorpusSizes(np.array([n_tokens]), np.array([n_documents]), longest, n_words)
    n_rows = number_of_rows(frequency, n_topics)
    blocks = {"gibbs": Words(frequency, 1, n_rows), "light": Words(frequency, 1, 0, True)}
    found = {}
    for name in ("gibbs", "warp", "light", *(["saber"] if _saber_fits(lengths, frequency, n_topics) else [])):
        found[name] = int(bytes_of_state(name, n_topics, sizes).shards[0]) + BYTES_OF_WORD * n_words
        if name in blocks:  # those of warp are with its shards
            found[name] += blocks[name].bytes_of_blocks(n_topics, topic)
    if not ListRoom.hold(longest, n_topics):
        del found["light"]
        if n_topics > DENSE_TOPICS:
            del found["gibbs"]
    return found


def _saber_fits(lengths, frequency, n_topics):
    try:
        saber.check_fits(lengths, frequency, n_topics, np.ones(1), np.ones(1))
    except DataError:
        return False
    return True
