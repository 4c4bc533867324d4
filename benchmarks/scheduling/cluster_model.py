"""How long a round of a fit takes on P workers, from measured rates and costs of messages, and what binds it.

Each family of models has a function that counts what a round needs: seconds of work on a thread, bytes that a
worker's link takes, messages that a worker waits for one after the other, messages that it handles, and
bytes and messages of the process that calls ``fit``, the hub. `Round.on` turns the counts into seconds for
some `Machines`.

The workers of one machine may share its cores (`Machines.cores`). Then all CPU work, that of messages
included, takes turns, and so the model can be compared with sweeps of 16 processes on two cores.
"""

import math
import statistics
from dataclasses import dataclass

from ...algorithms.topics.blocks.word_blocks import between_exchanges


@dataclass(frozen=True)
class Machines:
    """Machines as measured, or supposed.

    `latency` in seconds one way, `bandwidth` in bytes a second of a worker's link and of the hub's;
    `message` are CPU seconds that one message costs, at both ends together; `hub` CPU seconds of the hub for
    one answer of a worker; `idle` the CPU share that a worker process takes when it has nothing to do;
    `memory` bytes of a worker that data may take, and `stream` bytes a second that all its threads read from
    memory. `cores` are those that all workers share, or None if each has its own.
    """

    n_workers: int
    n_threads: int = 1
    latency: float = 3e-4
    bandwidth: float = 1.25e9
    message: float = 1e-3
    hub: float = 1e-3
    idle: float = 0.01
    memory: float = 32e9
    stream: float = 1e11
    cores: int | None = None


@dataclass(frozen=True)
class Round:
    """What a round needs: of each worker, and of the hub.

    `work` are seconds of one thread in all, and `longest` those of a part of it that no two threads share.
    Each worker receives `blocks` blocks, one after the other, of `travels` bytes in all, while it works for
    the share `hides` of its time; and it waits for `waits` messages, one after the other, of `wait_bytes`
    each. `hub_bytes` pass the hub's link in `answers` answers, one of each worker by default; `asked` of its
    requests count among the messages of workers, and `alone` are seconds that it works between two rounds.
    `held` bytes lie in the memory of all workers, and `held_by_each` in that of each.
    `reads` are bytes that all read from memory, and `most_threads` is how many can work at a time.
    """

    work: float
    longest: float = 0.0
    blocks: float = 0.0
    travels: float = 0.0
    hides: float = 0.0
    waits: float = 0.0
    wait_bytes: float = 0.0
    hub_bytes: float = 0.0
    answers: float | None = None
    asked: float = 0.0
    alone: float = 0.0
    reads: float = 0.0
    most_threads: float = math.inf
    held: float = 0.0
    held_by_each: float = 0.0

    def on(self, machines):
        """Return the seconds of each kind on some machines, a dict: their sum is that of the round."""
        m = machines
        if m.cores is None:
            # Blocks of a machine of its own are handled by the threads that work; a wait is for one message.
            threads = min(m.n_workers * m.n_threads, self.most_threads)
            work = max(self.work / threads / (1 - m.idle), self.reads / (m.n_workers * m.stream))
            handled = self.waits * m.message
            received = self.blocks * m.message
        else:
            free = m.cores - m.idle * m.n_workers
            if free <= 0:
                raise ValueError(f"{m.n_workers} idle processes take all of {m.cores} cores")
            at_once = min(free, m.n_workers * m.n_threads)
            work = self.work / at_once
            handled = self.messages(m.n_workers) * m.message / at_once
            received = 0.0
        answers = m.n_workers if self.answers is None else self.answers
        way = received + self.blocks * m.latency + self.travels / m.bandwidth
        return {
            "compute": work,
            "row": max(self.longest - work, 0.0),
            "blocks": max(way - self.hides * work, 0.0),
            "messages": handled + self.waits * (m.latency + self.wait_bytes / m.bandwidth),
            "hub": self.alone + m.hub * answers + self.hub_bytes / m.bandwidth + 2 * m.latency,
        }

    def messages(self, n_workers):
        """Return how many messages all workers handle."""
        return n_workers * (self.waits + self.blocks) + self.asked

    def cpu_seconds(self, machines):
        """Return the CPU seconds of all processes: also where others share the cores, these stay the same."""
        m, answers = machines, machines.n_workers if self.answers is None else self.answers
        clock = sum(self.on(m).values())
        own = self.work + self.messages(m.n_workers) * m.message + m.idle * m.n_workers * clock
        return own + self.alone + m.hub * answers

    def fits(self, machines):
        """Whether what workers hold fits their memory."""
        return self.held / machines.n_workers + self.held_by_each <= machines.memory


def binding(parts):
    """Return which part takes longest."""
    return max(parts, key=lambda name: parts[name])


def stages(n_workers):
    """Count the messages that a worker waits for in an exchange among all; see `sessions.routes`.

    Examples
    --------
    >>> from stradask.benchmarks.scheduling.cluster_model import stages
    >>> [stages(n) for n in (1, 2, 3, 16, 1000)]
    [0, 1, 3, 4, 11]
    """
    whole = n_workers.bit_length() - 1
    return whole + 2 * (n_workers != 1 << whole)


def topics(
    n_tokens,
    n_topics,
    machines,
    *,
    per_token,
    n_groups=None,
    n_words=0,
    heaviest=0.0,
    row_bytes=0.0,
    warp=False,
):
    """Count a sweep of Gibbs sampling, or with `warp` of its passes over documents and words.

    `per_token` are seconds; `heaviest` is the share of the tokens that the most frequent word has, whose row
    one worker at a time draws from; `row_bytes` those of a word's counts as they travel, of Gibbs sampling:
    a worker receives every block once a sweep, also its first one, which comes back for the next sweep.
    Up to 64 groups its blocks come one by one, and totals are exchanged as often; with more, all blocks of a
    worker come together, once from each worker (`algorithms.topics.blocks.word_blocks.nested`). With warp
    blocks do so in two rotations a sweep, after each of which totals are exchanged, and carry tokens and the
    sizes of words; docs/distributed-topics.md has the formula of their bytes.
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
    return Round(
        work=n_tokens * per_token,
        longest=heaviest * n_tokens * per_token,
        blocks=visits * (P > 1),
        travels=travelling * (P > 1),
        hides=hides,
        waits=stages(P) * exchanges,
        wait_bytes=8 * n_topics,
        held=6 * n_tokens + rows,
    )


def rows(n_bytes, n_columns, machines, *, rate, portion=1e9, answers=None, alone=0.0):
    """Count a pass over rows: the hub sends x to each worker, and hears a gradient of each portion.

    `rate` are bytes of rows a second and thread, `portion` those of a chunk or a row group: small ones are
    answered together (`answers`, where they were counted).
    """
    answers = answers or max(n_bytes / portion, machines.n_workers * machines.n_threads)
    return Round(
        work=n_bytes / rate,
        reads=n_bytes,
        hub_bytes=8 * n_columns * (machines.n_workers + answers),
        answers=answers,
        asked=answers,
        alone=alone,
        held=n_bytes,
    )


def columns(n_rows, n_columns, n_nonzero, machines, *, per_nonzero, alone=0.0):
    """Count a round over owned columns: all have the residuals, and the hub adds their changes.

    It is one of scores that reads all columns, as the first three do; later ones pass over most of them.
    """
    residuals = 8 * n_rows
    return Round(
        work=n_nonzero * per_nonzero,
        asked=machines.n_workers,
        alone=alone,
        reads=12 * n_nonzero,
        hub_bytes=2 * machines.n_workers * residuals,
        held=12 * n_nonzero + 16 * n_columns,
        held_by_each=3 * residuals,
    )


def ratings(
    n_ratings, n_users, n_items, n_factors, machines, *, per_rating, width=4, most_blocks=128, alone=0.0
):
    """Count an epoch of stochastic gradients: each worker gets all blocks of items, two for each thread.

    So many there are where `n_blocks` says so, up to `most_blocks`.
    """
    lanes = -(-n_factors // 16) * 16
    item = n_items * (lanes * width + 16)
    threads = machines.n_workers * machines.n_threads
    groups = min(2 * threads, most_blocks)
    return Round(
        work=n_ratings * per_rating,
        blocks=groups * (machines.n_workers > 1),
        travels=item * (machines.n_workers > 1),
        hides=1 - min(threads / groups, 1),
        asked=machines.n_workers,
        alone=alone,
        held=12 * n_ratings + 4 * lanes * n_users + item,
        most_threads=groups,
    )


def network(n_parameters, n_operations, machines, *, rate):
    """Count a minibatch in data-parallel training: a ring adds gradients of 4 bytes a parameter.

    `rate` are operations a second and thread.
    """
    P = machines.n_workers
    return Round(
        work=n_operations / rate,
        waits=2 * (P - 1),
        wait_bytes=4 * n_parameters / P,
        held_by_each=16 * n_parameters,
    )


def sweep_on_threads(n_tokens, n_groups, n_threads, *, per_token, per_block, per_task=0.0, spread=0.05):
    """Seconds of a sweep on threads of one process: a step for each group, with a task for each group.

    `per_block` are seconds that a thread needs to enter a task, `per_task` those that Python needs for it,
    one task after the other. The tokens of tasks deviate by `spread` from their mean. A step waits for the
    last of its last tasks: their expected largest deviation is that of normal numbers (Blom 1958).
    """
    threads = min(n_threads, n_groups)
    kernel = n_tokens / n_groups**2 * per_token
    step = math.ceil(n_groups / threads) * (kernel + per_block)
    if threads > 1:
        largest = statistics.NormalDist().inv_cdf((threads - 0.375) / (threads + 0.25))
        step += spread * largest * kernel
    return n_groups * step + n_groups**2 * per_task
