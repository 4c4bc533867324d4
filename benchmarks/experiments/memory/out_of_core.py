"""A topic model of a corpus larger than its memory: how much memory it took, and how much slower it was.

    python -m stradask.benchmarks.experiments.memory.out_of_core --documents 60000 --times 5

Draws a corpus into a file, or takes one (``--file``, plain), and fits it with a `memory_limit` of a part of
it, and without one, by turns, each in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

_SAMPLES = 0.02  # seconds between two looks at the memory


class Peak:
    """The most memory that this process held, in addition to what it held before, in bytes.

    Pages of mapped files count while they are in it, although the system may drop them at any time.
    """

    def __enter__(self):
        self._stop = threading.Event()
        self.before = self.most = _held_bytes()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(_SAMPLES):
            self.most = max(self.most, _held_bytes())

    @property
    def bytes(self):
        """Bytes above those at the beginning."""
        return self.most - self.before


def _held_bytes():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def measure(path, folder, n_topics, max_iter, memory_limit=None):
    """Fit the corpus of a file; return tokens a second of the sweeps but the first, and the peak in bytes."""
    import numpy as np

    import stradask as sd
    from stradask.datasets import make_lda_corpus, save_uci_bow

    options = {"max_iter": max_iter, "sampler": "gibbs", "random_state": 0, "n_jobs": 1}
    small = os.path.join(folder, "small.txt")  # compiles, and brings in what does not grow with the corpus
    save_uci_bow(make_lda_corpus(200, n_features=100, n_components=3, random_state=0)[0], small)
    brief = options | {"max_iter": 2, "memory_limit": "1GB", "n_groups": 4}
    sd.LatentDirichletAllocation(n_topics, **brief).fit(small)
    limits = {} if memory_limit is None else {"memory_limit": memory_limit, "memmap_folder": folder}
    with Peak() as peak:
        model = sd.LatentDirichletAllocation(n_topics, **options, **limits).fit(path)
    seconds, tokens = model.history_["seconds"][1:], model.history_["updates"][1:]
    speed = float(np.median(tokens / seconds))
    return {"tokens_per_second": speed, "peak_bytes": peak.bytes, "n_tokens": int(tokens[0])}


def bench(n_documents, times, n_topics, max_iter, folder, repeats=1, path=None):
    """Fit a corpus (None: a drawn one) with and without a limit, by turns; return the figures of both."""
    from stradask.algorithms.topics.blocks.memory import shards_for
    from stradask.datasets import make_lda_corpus, save_uci_bow

    if path is None:
        path = os.path.join(folder, "docword.txt")
        X = make_lda_corpus(n_documents, n_features=5000, n_components=20, random_state=0)[0]
        save_uci_bow(X, path)
        del X
    n_bytes = os.path.getsize(path)
    limit = int(n_bytes / times)
    found: dict[str, Any] = {"file_bytes": n_bytes, "memory_limit": limit, "limited": [], "in_memory": []}
    n_shards = shards_for(n_bytes, False, limit)
    for _ in range(repeats):
        for name, options in (("limited", {"memory_limit": limit}), ("in_memory", {})):
            arguments = {"path": path, "folder": folder, "n_topics": n_topics, "max_iter": max_iter} | options
            command = [sys.executable, "-m", __spec__.name, "--measure", json.dumps(arguments)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[name].append(json.loads(done.stdout))
    return found | {"shards": n_shards}


def main(arguments=None):
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=60_000, help="(%(default)s)")
    parser.add_argument("--file", help="plain, in the UCI bag-of-words format, instead of a drawn one")
    parser.add_argument(
        "--times", type=float, default=5, help="bytes of the file over the limit (%(default)s)"
    )
    parser.add_argument("--topics", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--max-iter", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    found = parser.parse_args(arguments)
    if found.measure is not None:
        print(json.dumps(measure(**found.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        sizes = (found.documents, found.times, found.topics, found.max_iter)
        result = bench(*sizes, folder, found.repeats, found.file)
    print(f"file {result['file_bytes'] / 1e6:.4g} MB, limit {result['memory_limit'] / 1e6:.4g} MB, "
          f"{result['shards']} shards, {time.perf_counter() - began:.3g} s in all")  # fmt: skip
    for name in ("limited", "in_memory"):
        for run in result[name]:
            print(
                f"{name:>9}: {run['tokens_per_second'] / 1e6:.3g} M tokens/s, "
                f"{run['n_tokens']:,} tokens, peak {run['peak_bytes'] / 1e6:.4g} MB above the start"
            )


if __name__ == "__main__":
    main()
