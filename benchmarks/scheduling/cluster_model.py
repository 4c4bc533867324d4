"""What a round of a fit needs on P workers, for families of models besides topics.

The functions count what `RoundNeeds.on` of `stradask.scheduler.planning.rounds` turns into seconds; that of
topics is `stradask.algorithms.topics.planning.sweep_of`.
"""

import math
import statistics

from ...scheduler.planning.rounds import RoundNeeds


def rows(n_bytes, n_columns, machines, *, rate, portion=1e9, answers=None, alone=0.0):
    """Count a pass over rows: the hub sends x to each worker, and hears a gradient of each portion.

    `rate` are bytes of rows a second and thread, `portion` those of a chunk or a row group: small ones are
    answered together (`answers`, where they were counted).
    """
    answers = answers or max(n_bytes / portion, machines.n_workers * machines.n_threads)
    return RoundNeeds(
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
    return RoundNeeds(
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
    return RoundNeeds(
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
    return RoundNeeds(
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
