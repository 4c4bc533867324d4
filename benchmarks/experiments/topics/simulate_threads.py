"""How topic sweeps scale to more threads than this machine has: blocks, a barrier a step, and Python's lock.

    python -m stradask.benchmarks.experiments.topics.simulate_threads --tokens 6e6 --words 4600

A step has a task for each group, and ends with its last task. A task has a kernel, which takes some time to
enter a block (`--enter`) and `--ns` a token, and a part in Python under the GIL (`--python`): of Gibbs
sampling that is what the engine does after a sweep. The defaults are measured on one thread, with 100 topics
(`docs/topics.md`). Memory bandwidth is not in it.
"""

import argparse
import heapq

import numpy as np

from ....algorithms.topics.samplers.groups import number_of_groups
from .simulate_rotation import dealt


def seconds_of_step(kernels, python, n_threads):
    """Simulate tasks that start in their order, each by the first free thread.

    Parameters
    ----------
    kernels : sequence of float
        Seconds of each task's kernel.
    python : float
        Seconds of each task with the GIL, before its kernel.
    n_threads : int
    """
    free, lock, end = [0.0] * n_threads, 0.0, 0.0
    for kernel in kernels:
        lock = max(heapq.heappop(free), lock) + python
        heapq.heappush(free, lock + kernel)
        end = max(end, lock + kernel)
    return end


def seconds_of_sweep(tokens, per_token, python, n_threads, enter=0.0):
    """Sum the steps of a rotation; `tokens` are those that meet, shards x blocks."""
    n = len(tokens)
    shards = np.arange(n)
    steps = (tokens[shards, (shards + step) % n] * per_token + enter for step in range(n))
    return sum(seconds_of_step(step.tolist(), python, n_threads) for step in steps)


def table(n_tokens, groups, threads, per_token, python, enter=0.0):
    """Rows: groups, milliseconds of a sweep on one thread, and how many times faster with more."""
    rows = []
    for n_groups in groups:
        tokens = dealt(n_tokens, n_groups)
        times = [seconds_of_sweep(tokens, per_token, python, n, enter) for n in (1, *threads)]
        rows.append((n_groups, 1e3 * times[0], *(times[0] / time for time in times[1:])))
    return rows


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=float, default=6e6, help="(%(default)g)")
    parser.add_argument("--words", type=int, default=4600, help="that occur (%(default)s)")
    parser.add_argument("--topics", type=int, default=100, help="(%(default)s)")
    parser.add_argument("--groups", type=int, nargs="+", help="(what a fit takes, and 16, 32, 64)")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--ns", type=float, default=24.0, help="nanoseconds of a token (%(default)g)")
    parser.add_argument("--enter", type=float, default=17.0, help="microseconds of a block (%(default)g)")
    parser.add_argument("--python", type=float, default=1.0, help="microseconds of a task (%(default)g)")
    found = parser.parse_args(arguments)
    own = number_of_groups(int(found.tokens), found.words, found.topics)
    groups = found.groups or sorted({own, 16, 32, 64})
    print(f"{found.tokens:,.0f} tokens of {found.words:,} words: a fit takes {own} groups")
    print("groups  ms on one thread " + "".join(f"{f'x {n}':>7}" for n in found.threads))
    costs = (1e-9 * found.ns, 1e-6 * found.python, 1e-6 * found.enter)
    for row in table(found.tokens, groups, found.threads, *costs):
        print(f"{row[0]:6d}{row[1]:18.1f} " + "".join(f"{speed_up:7.1f}" for speed_up in row[2:]))


if __name__ == "__main__":
    main()
