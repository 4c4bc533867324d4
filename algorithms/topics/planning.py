"""What a fit of topics takes on machines: memory, disk and network of each, seconds a sweep, whether it fits.

Bytes are those of `bytes_of_state` and of the workers' own check, `bytes_of_worker` and
`bytes_of_worker_in_files`. Seconds are those of the model of docs/how-many-workers.md, see
`scheduler.planning.rounds`.
"""

import bisect
import copy
import math
import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from ...datasets.generators import make_lda_corpus
from ...errors import DataError, shortened
from ...scheduler.parameters import check_count
from ...scheduler.planning.rounds import Machines, RoundNeeds, stages
from ..inputs.memory import memory_in_bytes, rate_in_bytes
from .blocks.groups import MOST_OF_A_WORD, check_frequency, number_of_groups, number_of_rows
from .blocks.list_layout import DENSE_TOPICS, ListRoom
from .blocks.memory import (
    AT_ONCE,
    BYTES_OF_WORD,
    KERNELS,
    CorpusSizes,
    bytes_of_state,
    bytes_of_topic,
    bytes_of_worker,
    bytes_of_worker_in_files,
)
from .blocks.packing import unpack_numbers, unpack_words
from .blocks.word_blocks import Words, between_exchanges
from .corpus.shard_input import sources_of, survey

# CPU seconds of a thread for a token by the number of topics: `stradask bench lda-large` (18 million tokens,
# 100,000 words), and `measure_rate` for Gibbs sampling.
RATES = {
    "gibbs": {1_000: 154e-9},
    "light": {1_000: 170e-9, 100_000: 155e-9, 1_000_000: 379e-9},
    "warp": {1_000: 13e-9, 100_000: 24e-9, 1_000_000: 88e-9},
}
MESSAGE, HUB, PER_BYTE = 8.4e-4, 7.4e-4, 1e-9  # CPU seconds, see docs/billions-of-tokens.md
FACTORS = {"memory": 1.5, "disk": 3.0}  # by which seconds may be off, by where tokens lie
PAUSES, ENDS = 0.8, 0.95  # shares of its memory at which Dask pauses a worker, and ends it
_TOKENS_OF_DOCUMENT, _LONGEST = 200, 10  # by default; the longest in means
_MORE_GROUPS = (1, 2, 4, 8, 16)  # times those of a fit
_MOST_MACHINES = 1000  # that are advised
_OF_BYTES, _NUMBERS = ("machines", "memory", "disk", "network"), ("number", "threads", "machines")
_PLACES = {"memory": "in memory", "disk": "on the machines' disks"}
_REMEDIES = {
    "compute": "more machines or threads make sweeps shorter",
    "network": "a faster network makes sweeps shorter, more machines do not: each receives all blocks",
    "disk": "faster disks make sweeps shorter, and memory that holds the tokens",
    "row": "leave out stop words: a sweep waits for the most frequent word",
    "messages": "fewer groups or machines make sweeps shorter",
    "hub": "fewer machines make sweeps shorter: they wait for the process that calls fit",
}


@dataclass(frozen=True)
class LDAPlan:
    """What a fit takes, see `plan_lda`. Bytes are those of a machine.

    Attributes
    ----------
    fits : bool
    verdict, remedy, bottleneck : str
    storage : {"memory", "disk"}
        Where tokens and blocks of words lie; of a plan that does not fit, with the smallest memory.
    model, corpus, machines : dict
        What is planned. ``n_groups`` of the model is the parameter to fit with.
    memory : dict
        ``needed``, ``smallest`` with which the fit runs, and of the ``client`` what the sparse counts of the
        model take in the end, at most. ``machines`` are enough of this memory (None: no number is).
    disk : dict
        ``kept`` there, and read and written in ``a sweep``.
    network : dict
        Received in ``a sweep``, and for ``a snapshot``.
    seconds : dict
        Of a sweep: how long each resource is busy, and ``sweep``, the time that it takes.
    hours : dict
        Of the fit: ``least``, ``likely`` and ``most``.
    measured, assumed : list of str
    """

    fits: bool
    storage: str
    verdict: str
    remedy: str
    bottleneck: str
    model: dict
    corpus: dict
    machines: dict
    memory: dict
    disk: dict
    network: dict
    seconds: dict
    hours: dict
    measured: list
    assumed: list

    def as_dict(self):
        """Return the plan, fit for JSON."""
        return asdict(self)

    def __str__(self):
        rows = [(name, getattr(self, name)) for name in ("verdict", "remedy", "bottleneck")]
        for name in ("model", "corpus", "machines", "memory", "disk", "network", "seconds", "hours"):
            values = getattr(self, name).items()
            rows.append((name, ", ".join(f"{key} {_text(value, name, key)}" for key, value in values)))
        for name in ("measured", "assumed"):
            rows += [("" if n else name, text) for n, text in enumerate(getattr(self, name))]
        return "\n".join(f"{name:<11} {text}" for name, text in rows)


def _text(value, name, key):
    if name in _OF_BYTES and key not in _NUMBERS:
        return f"{value / 1e9:,.4g} GB" + "/s" * (name == "machines" and key != "memory")
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_lda(
    n_components: int,
    *,
    n_tokens: float | None = None,
    n_words: float | None = None,
    n_documents: float | None = None,
    longest: int | None = None,
    files: str | list[str] | None = None,
    n_machines: int = 1,
    memory: int | str = "64GB",
    disk: float | str = "500MB/s",
    network: float | str = "10Gbit/s",
    n_threads: int = 16,
    cores: int | None = None,
    sampler: str = "warp",
    max_iter: int = 200,
    n_groups: int | None = None,
    rate: float | str | None = None,
) -> LDAPlan:
    """Plan a fit of `LatentDirichletAllocation`: memory, disk and network of each machine, and hours.

    Nothing is fitted. One machine is a process with `memory_limit`, several are Dask workers.

    Parameters
    ----------
    n_components : int
        Topics.
    n_tokens, n_words, n_documents : float, optional
        Of the corpus. Without `n_documents` a document has 200 tokens.
    longest : int, optional
        Tokens of the longest document; by default ten times the mean.
    files : str or list of str, optional
        Files or patterns, as `fit` takes them. They are read once, and tell all numbers of the corpus.
    n_machines, n_threads : int, default=1 and 16
        Machines, and threads of each.
    memory : int or str, default="64GB"
        Of a machine.
    disk, network : float or str, default="500MB/s" and "10Gbit/s"
        Rates of a machine: bytes a second, or text with a unit.
    cores : int, optional
        Cores that the machines share, if they are processes of one.
    sampler : {"gibbs", "light", "warp"}, default="warp"
    max_iter : int, default=200
        Sweeps.
    n_groups : int, optional
        By default what a fit takes, or the multiple of it for which machines have room.
    rate : float or "measure", optional
        CPU seconds of a thread for a token, by default those of another machine; "measure" fits a corpus.

    Returns
    -------
    LDAPlan

    Examples
    --------
    >>> import stradask as sd
    >>> plan = sd.plan_lda(1000, n_tokens=1e9, n_words=1e5, n_machines=4)
    >>> plan.fits, plan.storage, plan.bottleneck
    (True, 'memory', 'network')
    """
    if sampler not in RATES:
        raise DataError(f"sampler={shortened(sampler)}: a plan knows {', '.join(map(repr, RATES))}")
    n_components, n_machines = (
        check_count("n_components", n_components),
        check_count("n_machines", n_machines),
    )
    n_threads, max_iter = check_count("n_threads", n_threads), check_count("max_iter", max_iter)
    n_groups = None if n_groups is None else check_count("n_groups", n_groups)
    cores = None if cores is None else check_count("cores", cores)
    limit, disk_rate = memory_in_bytes(memory, "memory"), rate_in_bytes(disk, "disk")
    bandwidth = rate_in_bytes(network, "network")
    corpus, assumed = _corpus_of(files, n_tokens, n_words, n_documents, longest)
    fit = _Fit(sampler, n_components, corpus, n_machines, n_threads, n_groups)
    layout, smallest = fit.layout(limit)
    fits = smallest <= limit
    if rate == "measure":
        per_token, whose = measure_rate(sampler, n_components), "measured on this machine, 1.5 million tokens"
    elif rate is None:
        per_token, whose = _rate_of(sampler, n_components), "AMD EPYC, 18 million tokens; or measure yours"
    elif isinstance(rate, (int, float)) and 0 < rate < math.inf:
        per_token, whose = float(rate), "as given"
    else:
        raise DataError(f"rate={shortened(rate)}: give seconds above zero, or 'measure'")
    machines = Machines(
        n_machines, n_threads, bandwidth=bandwidth, message=MESSAGE, hub=HUB, disk=disk_rate, cores=cores
    )
    sweep = fit.sweep(machines, layout, per_token)
    parts = sweep.on(machines)
    busy = {name: parts[name] for name in ("compute", "row", "messages", "hub")}
    busy |= {"network": sweep.travels / bandwidth, "disk": sweep.disk / disk_rate}
    bottleneck, factor = max(busy, key=busy.__getitem__), FACTORS[layout.storage]
    seconds = sum(parts.values())
    hours = (max_iter + 1) * seconds / 3600  # the first sweep fills blocks, too
    number = n_machines if fits else fit.smallest_number(limit)
    verdict, remedy = f"fits, with tokens {_PLACES[layout.storage]}", _REMEDIES[bottleneck]
    if not fits:
        least = f"{math.ceil(smallest / 1e6):,} MB"
        verdict = f"does not fit: a machine needs {least} and has {limit / 1e6:,.0f}"
        remedy = f"give {least}" + (f", or take {number:,} machines" if number else "")
    return LDAPlan(
        fits=fits,
        storage=layout.storage,
        verdict=verdict,
        remedy=remedy,
        bottleneck=bottleneck,
        model={"topics": n_components, "sampler": sampler, "n_groups": layout.n_groups, "sweeps": max_iter},
        corpus=corpus.numbers(),
        machines={"number": n_machines, "threads": n_threads, "memory": limit, "disk": disk_rate}
        | {"network": bandwidth},
        memory={"needed": layout.needed, "smallest": smallest, "machines": number, "client": fit.of_client()},
        disk={"kept": layout.kept, "a sweep": int(sweep.disk)},
        network={"a sweep": int(sweep.travels + sweep.waits * sweep.wait_bytes)}
        | {"a snapshot": int(layout.copied) * (n_machines > 1)},
        seconds={"sweep": seconds} | dict(sorted(busy.items(), key=lambda one: -one[1])),
        hours={"least": hours / factor, "likely": hours, "most": hours * factor},
        measured=[
            f"{1e9 * per_token:.3g} ns of a thread for a token ({whose})",
            f"{1e3 * MESSAGE:.2g} ms of CPU time a message, {1e3 * HUB:.2g} ms an answer of a machine",
        ],
        assumed=[
            *assumed,
            "disk and network reach your rates in both directions; the time to read files is left out",
            f"the process that calls fit has room for the model, {fit.of_client() / 1e9:,.3g} GB at most",
            f"{1e9 * PER_BYTE:.2g} ns of a thread for a byte that arrives",
            f"hours may be off by a factor of {factor:g}",
        ],
    )


def measure_rate(sampler, n_components, n_documents=10_000, sweeps=6):
    """Measure the CPU seconds that a thread of this machine takes for a token, the median of some sweeps.

    Parameters
    ----------
    sampler : {"gibbs", "light", "warp"}
    n_components : int
        Topics.
    n_documents : int, default=10_000
        Of some 150 tokens, which are drawn.
    sweeps : int, default=6

    Returns
    -------
    float
    """
    from .lda import LatentDirichletAllocation

    X = make_lda_corpus(n_documents, 20_000, 50, mean_length=150, random_state=0)[0]
    lda = LatentDirichletAllocation(n_components, sampler=sampler, max_iter=sweeps, n_jobs=1, random_state=0)
    clock: list[float] = []
    lda.fit(X, callback=lambda info: clock.append(time.process_time()))
    return statistics.median(np.diff(clock[1:]).tolist()) / int(X.sum())


def _rate_of(sampler, n_topics):
    """Read a rate off the measured ones, on a line between logarithms."""
    topics, seconds = np.log(list(RATES[sampler].items())).T
    return float(np.exp(np.interp(np.log(n_topics), topics, seconds)))


class _Corpus(NamedTuple):
    n_tokens: int
    n_documents: int
    longest: int
    frequency: np.ndarray

    def numbers(self):
        """The numbers of the corpus, by name."""
        counts = {"tokens": self.n_tokens, "words": len(self.frequency), "documents": self.n_documents}
        return counts | {"longest": self.longest}


def _corpus_of(files, n_tokens, n_words, n_documents, longest):
    """Count files, or make up a corpus of some numbers; return it, and what is assumed."""
    numbers = {"n_tokens": n_tokens, "n_words": n_words, "n_documents": n_documents, "longest": longest}
    stated = {name: _whole(name, value) for name, value in numbers.items() if value is not None}
    if files is not None:
        if stated:
            raise DataError(f"files tell the numbers of the corpus: leave out {', '.join(stated)}")
        found, width, _ = survey(sources_of(files), "local")
        frequency = np.zeros(width, np.int64)
        for shard in found:
            frequency[unpack_words(shard["words"])] += unpack_numbers(shard["tokens"])
        check_frequency(frequency)
        sizes = sum(shard["size"] for shard in found), max(shard["longest"] for shard in found)
        return _Corpus(int(frequency.sum()), *sizes, frequency), []
    missing = [name for name in ("n_tokens", "n_words") if name not in stated]
    if missing:
        raise DataError(f"{missing[0]} is missing: give tokens and words of the corpus, or its files")
    tokens, words = stated["n_tokens"], stated["n_words"]
    if words > tokens:
        raise DataError(f"n_words={words:,} are more than n_tokens={tokens:,}: count words that occur")
    documents = stated.get("n_documents", max(tokens // _TOKENS_OF_DOCUMENT, 1))
    if documents > tokens:
        raise DataError(f"n_documents={documents:,} are more than n_tokens={tokens:,}: leave out empty ones")
    most = stated.get("longest", min(-(-_LONGEST * tokens // documents), tokens))
    least = -(-tokens // documents)
    if not least <= most <= tokens:
        raise DataError(
            f"longest={most:,} cannot be of {tokens:,} tokens in {documents:,} documents: give {least:,} "
            f"(the mean) to {tokens:,}"
        )
    weights = 1 / (np.arange(words) + 10.0)
    frequency = np.maximum(np.round(tokens * weights / weights.sum()), 1).astype(np.int64)
    frequency[0] = max(frequency[0] + tokens - frequency.sum(), 1)
    left_out = [f"{name}={value:,}" for name, value in (("n_documents", documents), ("longest", most))]
    assumed = [text for text in left_out if text.partition("=")[0] not in stated]
    assumed.append("words of frequencies 1 / (rank + 10), stop words left out")
    return _Corpus(tokens, documents, most, np.minimum(frequency, MOST_OF_A_WORD)), assumed


def _whole(name, value):
    """Check a number of the corpus, such as 2e11."""
    fits = isinstance(value, (int, float, np.integer)) and not isinstance(value, bool) and 1 <= value < 2**63
    if not fits or value != math.floor(value):
        raise DataError(f"{name}={shortened(value)}: give a whole number of 1 or more, such as 2e11")
    return math.floor(value)


class _Arrangement(NamedTuple):
    """Where machines have tokens and blocks, for a number of groups: bytes of a machine.

    `needed` is memory, `copied` of a snapshot; `kept` lies on disk, where a sweep reads and writes `moved`.
    """

    storage: str
    n_groups: int
    needed: int
    copied: float = 0.0
    kept: int = 0
    moved: float = 0.0


class _Fit:
    """A fit on machines: its bytes, and what a sweep needs."""

    def __init__(self, sampler, n_topics, corpus, n_machines, n_threads, n_groups):
        self.sampler, self.n_topics, self.corpus = sampler, n_topics, corpus
        self.n_machines, self.n_threads, self.n_groups = n_machines, n_threads, n_groups
        if sampler != "warp" and n_topics > DENSE_TOPICS and not ListRoom.hold(corpus.longest, n_topics):
            raise DataError(
                f"sampler={sampler!r} has no room for a document of {corpus.longest:,} tokens with "
                f"n_components={n_topics:,}: take 'warp', or split documents and give longest"
            )
        self.topic, self.frequency = bytes_of_topic(n_topics), corpus.frequency[corpus.frequency > 0]
        n_rows = number_of_rows(self.frequency, n_topics) if sampler == "gibbs" else 0
        words = Words(self.frequency, 1, n_rows, all_tokens=sampler != "gibbs")
        self.blocks = words.bytes_of_blocks(n_topics, self.topic)
        self.packed = words.bytes_packed(n_topics, self.topic)

    def layout(self, limit):
        """Choose a layout for machines of this memory; return it and the least memory with which one fits.

        In memory, if that fits, or on disk; with as few groups as have room.
        """
        few = number_of_groups(self.corpus.n_tokens, len(self.frequency), self.n_topics)
        few = few if self.n_machines == 1 else max(few, self.n_machines * self.n_threads)
        numbers = [few * times for times in _MORE_GROUPS] if self.n_groups is None else [self.n_groups]
        numbers = [min(n, self.corpus.n_documents) for n in numbers]  # as a fit: no group is empty
        kinds = (self._in_memory, self._on_disk) if self.n_machines > 1 else (self._alone, self._files)
        layouts = [[kind(n) for n in numbers] for kind in kinds]
        smallest = min(layout.needed for kind in layouts for layout in kind)
        enough = [layout for kind in layouts for layout in kind if layout.needed <= max(limit, smallest)]
        return enough[0], smallest

    def smallest_number(self, limit):
        """How many machines of this memory are enough, more than there are; None if none are."""

        def fits(n_machines):
            more = copy.copy(self)
            more.n_machines = n_machines
            return more.layout(limit)[1] <= limit

        enough = 2 * self.n_machines
        while not fits(enough):
            if enough >= _MOST_MACHINES:
                return None
            enough *= 2
        numbers = range(enough // 2 + 1, enough + 1)
        return numbers[bisect.bisect_left(numbers, True, key=fits)]

    def _state(self, n_groups):
        tokens, documents = (np.full(n_groups, n / n_groups) for n in self.corpus[:2])
        sizes = CorpusSizes(tokens, documents, self.corpus.longest, len(self.frequency))
        return bytes_of_state(self.sampler, self.n_topics, sizes)

    def _alone(self, n_groups):
        """One process: half of its memory is for shards, half for blocks and words (`plan_for`)."""
        blocks = 0 if self.sampler == "warp" else self.blocks  # it needs none
        words = BYTES_OF_WORD * len(self.frequency)
        needed = math.ceil(2 * max(float(np.sum(self._state(n_groups).shards)), blocks + words))
        return _Arrangement("memory", n_groups, needed)

    def _files(self, n_groups):
        """The same, with the shards at work in memory, of which documents of tokens stay as read."""
        state, words = self._state(n_groups), BYTES_OF_WORD * len(self.frequency)
        needed = math.ceil(2 * max(float(np.max(state.shards)), self.blocks + words))
        kept, read_only = float(np.sum(state.shards)), 4 * self.corpus.n_tokens
        return _Arrangement("disk", n_groups, needed, 0.0, int(kept), 2 * kept - read_only)

    def _in_memory(self, n_groups):
        """Workers, with what their own check counts."""
        state, sizes = self._state(n_groups), {"n_workers": self.n_machines}
        sizes["n_threads"] = self.n_machines * self.n_threads
        needed = sum(bytes_of_worker(state, self.blocks, self.packed, self.n_threads, **sizes))
        return _Arrangement("memory", n_groups, self._limit(needed, ENDS), self._copied(state))

    def _on_disk(self, n_groups):
        """Workers that have a shard and a block a thread in memory, and counts of documents or of words."""
        state, n, P, t = self._state(n_groups), self.corpus.n_tokens, self.n_machines, self.topic
        warp, block = self.sampler == "warp", (self.blocks + 5 * t * n) / n_groups
        numbers = {"n_documents": self.corpus.n_documents, "n_words": len(self.frequency), "collects": warp}
        numbers["of_documents"] = 0.0 if warp else float(np.sum(state.counts))
        needed = self._limit(
            sum(bytes_of_worker_in_files(state, block, self.packed, self.n_threads, 1 / P, **numbers)), PAUSES
        )
        kept = (n_groups * float(np.max(state.shards)) + self.blocks) / P + 4 * self._copied(state)
        # Of blocks what arrives is written and read, of "warp" also what they collect; its passes read and
        # write topics and proposals.
        arriving = (2.5 * n * (1 - 1 / P) + 3 * n / P) * t if warp else self.blocks
        moved = (4 + (8 if warp else 2) * t) * n / P + 2 * arriving
        return _Arrangement("disk", n_groups, needed, self._copied(state), int(kept), moved)

    def _limit(self, n_bytes, share):
        """The memory of a worker, of which these bytes, programs, words and topic totals take a share."""
        besides = KERNELS + BYTES_OF_WORD * len(self.frequency) + (8 + 20 * self.n_threads) * self.n_topics
        return math.ceil((besides + n_bytes) / share)

    def _copied(self, state):
        return (float(np.sum(state.saved)) + self.packed) / self.n_machines

    def sweep(self, machines, layout, per_token):
        """Count what a sweep needs of machines."""
        n_words, n_tokens = len(self.frequency), self.corpus.n_tokens
        rates = {"per_token": per_token, "per_byte": PER_BYTE, "disk": layout.moved}
        words = {"n_words": n_words, "heaviest": int(self.frequency.max()) / n_tokens}
        words |= {"row_bytes": self.packed / n_words, "warp": self.sampler == "warp"}
        sweep = sweep_of(n_tokens, self.n_topics, machines, n_groups=layout.n_groups, **rates, **words)
        at_once = self.n_machines == 1 and layout.storage == "disk"
        return replace(sweep, most_threads=AT_ONCE if at_once else layout.n_groups)

    def of_client(self):
        """Bytes of the sparse counts of words and topics, if each token of a word has a topic of its own."""
        n_counts = int(np.minimum(self.frequency, self.n_topics).sum())
        return n_counts * (8 if n_counts <= np.iinfo(np.int32).max else 12)


def sweep_of(
    n_tokens,
    n_topics,
    machines,
    *,
    per_token,
    n_groups=None,
    n_words=0,
    heaviest=0.0,
    row_bytes=0.0,
    per_byte=0.0,
    disk=0.0,
    warp=False,
):
    """Count what a sweep of Gibbs sampling needs, or with `warp` of its passes over documents and words.

    `per_token` are seconds, `per_byte` those of a thread for a byte of a block that arrives, `disk` bytes
    that a worker reads and writes; `heaviest` is the share of the tokens that the most frequent word has,
    whose row one worker at a time draws from; `row_bytes` those of a word's counts as they travel, of Gibbs
    sampling: a worker receives every block once a sweep, also its first one, which comes back for the next.
    Up to 64 groups its blocks come one by one, and totals are exchanged as often; with more, all blocks of a
    worker come together, once from each worker (`word_blocks.nested`). With warp blocks do so in two
    rotations a sweep, after each of which totals are exchanged, and carry tokens and the sizes of words;
    docs/distributed-topics.md has the formula of their bytes.
    """
    P, threads = machines.n_workers, machines.n_threads
    groups = n_groups or max(16, P * threads)
    rows = n_words * row_bytes
    if warp:
        travelling = 2.5 * n_tokens * max(int(n_topics - 1).bit_length(), 1) / 8 + n_words * groups
        travelling *= 1 - 1 / P  # the rest is a worker's own
        visits, exchanges, hides = 2 * P, 2, 0.0
    elif groups > 64:
        travelling, visits, exchanges, hides = rows, P, groups // between_exchanges(groups), 0.0
    else:
        travelling, visits, exchanges, hides = rows, groups, groups, 1 - min(P * threads / groups, 1)
    return RoundNeeds(
        work=n_tokens * per_token + P * travelling * (P > 1) * per_byte,
        longest=heaviest * n_tokens * per_token,
        blocks=visits * (P > 1),
        travels=travelling * (P > 1),
        hides=hides,
        waits=stages(P) * exchanges,
        wait_bytes=8 * n_topics,
        disk=disk,
        held=6 * n_tokens + rows,
    )
