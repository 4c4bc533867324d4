"""How fast a rotation would be on other machines: tables of `rotation_model`.

    python -m stradask.benchmarks.experiments.topics.simulate_rotation --tokens 738e6 --rate 5e6 \
        --block-bytes 60e6

The shares of the tokens that meet in a step are drawn around their mean, as documents are dealt.
"""

import argparse

import numpy as np

from ....algorithms.topics.samplers.groups import deal_words
from ...scheduling.rotation_model import Machines, simulate

_ZIPF = "tell instead what 100,000 words of frequencies 1 / (rank + Q) cost, which are not cut"


def dealt(n_tokens, n_shards, spread=0.05, seed=0):
    """Draw how many tokens meet in each pair of shard and block, around the mean."""
    noise = np.random.default_rng(seed).gamma(1 / spread**2, spread**2, (n_shards, n_shards))
    return n_tokens * noise / noise.sum()


def losses_to_heavy_words(frequency, workers, shards_per_thread=1):
    """Simulate blocks of whole words of some frequencies, with nothing else that takes time.

    Returns triples: workers; the part by which a sweep is longer than one of as many equal shares; and the
    least part by which it must be, because one word's tokens are met one after the other.
    """
    frequency = np.asarray(frequency)
    share = frequency / frequency.sum()
    found = []
    for n_workers in workers:
        n_shards = max(16, shards_per_thread * n_workers)
        words, group = deal_words(frequency, n_shards)
        blocks = np.bincount(group, weights=share[words], minlength=n_shards)
        tokens = np.tile(blocks / n_shards, (n_shards, 1))
        machines = Machines(n_workers, rate=1.0, latency=0.0, bandwidth=np.inf, overhead=0.0)
        sweep = simulate(tokens, np.zeros(n_shards), 0.0, machines)
        ideal = max(-(-n_shards // n_workers) / n_shards, 1 / n_workers)  # 16 shards on 3 workers: 6 on one
        found.append((n_workers, sweep.seconds / ideal - 1, max(share.max() * n_workers - 1, 0.0)))
    return found


def table(n_tokens, total_block_bytes, n_topics, machines, workers, shards_per_thread=2):
    """Simulate several numbers of workers; return dicts of seconds, tokens and bytes a sweep, and efficiency.

    Efficiency is the part of the threads' time spent on tokens.
    """
    rows = []
    for n_workers in workers:
        own = Machines(n_workers, *list(vars(machines).values())[1:])
        n_shards = max(16, shards_per_thread * n_workers * own.n_threads)
        blocks = np.full(n_shards, total_block_bytes / n_shards)
        sweep = simulate(dealt(n_tokens, n_shards), blocks, 8 * n_topics, own)
        efficiency = sweep.sampling / (sweep.sampling + sweep.waiting)
        rows.append(
            {
                "workers": n_workers,
                "seconds": sweep.seconds,
                "tokens_per_second": n_tokens / sweep.seconds,
                "efficiency": efficiency,
                "bytes": sweep.n_bytes,
            }
        )
    return rows


def _heavy_words(offset, workers):
    """The table of `losses_to_heavy_words` for words by Zipf's law."""
    frequency = 1 / (np.arange(1, 100_001) + offset)
    lines = [
        f"the most frequent word has {frequency[0] / frequency.sum():.1%} of the tokens",
        "workers   lost   must be   lost with two shards each",
    ]
    one, two = (losses_to_heavy_words(frequency, workers, n) for n in (1, 2))
    for (n_workers, lost, least), (_, more, _) in zip(one, two, strict=True):
        lines.append(f"{n_workers:7d} {lost:6.0%} {least:9.0%} {more:10.0%}")
    return "\n".join(lines)


def main(arguments=None):
    """Print a table of numbers of workers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=float, default=738e6, help="of the corpus (PubMed: %(default)g)")
    parser.add_argument("--topics", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--block-bytes", type=float, default=60e6, help="of all blocks (%(default)g)")
    parser.add_argument("--rate", type=float, default=5e6, help="tokens a second and thread (%(default)g)")
    parser.add_argument("--threads", type=int, default=1, help="of a worker (%(default)s)")
    parser.add_argument("--latency", type=float, default=3e-4, help="seconds (%(default)g)")
    parser.add_argument("--bandwidth", type=float, default=1e9, help="bytes a second (%(default)g)")
    parser.add_argument("--overhead", type=float, default=1.5e-3, help="seconds a step (%(default)g)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--zipf", type=float, metavar="Q", help=_ZIPF)
    found = parser.parse_args(arguments)
    if found.zipf is not None:
        print(_heavy_words(found.zipf, found.workers))
        return
    machines = Machines(1, found.threads, found.rate, found.latency, found.bandwidth, found.overhead)
    print("workers   seconds   M tokens/s   at work   MB a sweep")
    for row in table(found.tokens, found.block_bytes, found.topics, machines, found.workers):
        print(
            f"{row['workers']:7d} {row['seconds']:9.3g} {row['tokens_per_second'] / 1e6:12.4g} "
            f"{row['efficiency']:9.0%} {row['bytes'] / 1e6:12.4g}"
        )


if __name__ == "__main__":
    main()
