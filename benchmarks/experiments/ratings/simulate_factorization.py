"""How fast matrix factorization by rotation would be on many workers, and when the wire binds.

A model of steps (`rotation_model`) fed with measured rates: in a sub-epoch a worker works on its groups
of users, one after another, while the block of items that it is done with travels to the next worker. Of an
item a block has d factors, d rounded up to 16, in four bytes each (two with ``wire="float16"``), and four
numbers more. Blocks go from worker to worker without the coordinator, which is asked once an epoch: a step
has no overhead of its own. That all workers end a step together is
pessimistic: each waits for its blocks alone.

    python -m stradask.benchmarks.experiments.ratings.simulate_factorization --ratings 1e9 --items 1e6 \
        --threads 16

Every worker receives each item once an epoch, whatever their number P is, while its work falls with P: the
wire binds above ``P = ratings B / (threads rate items (width d + 16))``, B bytes a second.
"""

import argparse

import numpy as np

from ...scheduling.rotation_model import Machines, simulate
from ..topics.simulate_rotation import dealt

LANES, OWN = 16, 4
WIDTHS = (4, 2)  # bytes of a factor on the wire


def item_bytes(n_factors, width):
    """Return the bytes of an item in a block that travels."""
    return -(-n_factors // LANES) * LANES * width + OWN * 4


def binding(n_ratings, n_items, n_factors, machines, width):
    """Return the number of workers above which a block takes longer to travel than the work that hides it."""
    received = n_items * item_bytes(n_factors, width) / machines.bandwidth
    return n_ratings / (machines.n_threads * machines.rate) / received


def epochs(n_ratings, n_items, n_factors, machines, workers, groups_per_thread=2):
    """Simulate an epoch on several numbers of workers.

    The rate of `machines` is in ratings a second and thread; its ``n_workers`` is not read. Of
    `groups_per_thread` groups of users one is worked on while the block of the other travels. Returns dicts:
    workers, and for both widths seconds, speed-up over one worker, and bytes sent.
    """
    alone = n_ratings / (machines.rate * machines.n_threads)
    rows = []
    for n_workers in workers:
        own = Machines(n_workers, *list(vars(machines).values())[1:])
        n_groups = groups_per_thread * n_workers * own.n_threads
        work = dealt(n_ratings, n_groups)
        row = {"workers": n_workers}
        for width in WIDTHS:
            blocks = np.full(n_groups, n_items * item_bytes(n_factors, width) / n_groups)
            sweep = simulate(work, blocks, 0, own)
            row |= {
                f"seconds_{width}": sweep.seconds,
                f"speedup_{width}": alone / sweep.seconds,
                f"bytes_{width}": sweep.n_bytes,
            }
        rows.append(row)
    return rows


def main(arguments=None):
    """Print a table of numbers of workers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ratings", type=float, default=1e9, help="(%(default)g)")
    parser.add_argument("--items", type=float, default=1e6, help="(%(default)g)")
    parser.add_argument("--factors", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rate", type=float, nargs="+", default=[28e6, 15e6], help="for each; a thread")
    parser.add_argument("--threads", type=int, default=16, help="of a worker (%(default)s)")
    parser.add_argument("--latency", type=float, default=3e-4, help="seconds (%(default)g)")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes a second (%(default)g)")
    parser.add_argument("--overhead", type=float, default=0.0, help="seconds a step (%(default)g)")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    found = parser.parse_args(arguments)
    if len(found.rate) != len(found.factors):
        parser.error("--rate: give as many as --factors")
    for n_factors, rate in zip(found.factors, found.rate, strict=True):
        machines = Machines(1, found.threads, rate, found.latency, found.bandwidth, found.overhead)
        bounds = [binding(found.ratings, found.items, n_factors, machines, width) for width in WIDTHS]
        print(
            f"{n_factors} factors: the wire binds above {bounds[0]:.1f} workers, at 2 bytes {bounds[1]:.1f}"
        )
        print("workers   s an epoch  speed-up    GB   at 2 bytes: s  speed-up    GB")
        for row in epochs(found.ratings, found.items, n_factors, machines, found.workers):
            print(
                f"{row['workers']:7d} {row['seconds_4']:12.3g} {row['speedup_4']:9.1f} "
                f"{row['bytes_4'] / 1e9:5.1f} {row['seconds_2']:15.3g} {row['speedup_2']:9.1f} "
                f"{row['bytes_2'] / 1e9:5.1f}"
            )


if __name__ == "__main__":
    main()
