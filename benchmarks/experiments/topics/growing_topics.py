"""Perplexity of a topic model that grows in parts of a corpus, above that of one fit.

    python -m stradask.benchmarks.experiments.topics.growing_topics docword.kos.txt.gz --topics 50

A tenth of the documents, drawn by each seed, is held out.
"""

import argparse
import time
import warnings

import numpy as np
from scipy import sparse

import stradask as sd


def split(X, seed):
    """Nine tenths of the documents in a random order, and the rest."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    cut = X.shape[0] // 10
    return X[order[cut:]], X[order[:cut]]


def in_parts(known, new, args, seed):
    """Perplexity of the held-out documents after each pass in parts, and CPU seconds of all passes."""
    model = sd.LatentDirichletAllocation(args.topics, max_iter=args.part_sweeps, random_state=seed)
    found, seconds = [], 0.0
    for _ in range(args.passes):
        begun = time.process_time()
        for first in range(0, known.shape[0], args.size):
            model.partial_fit(known[first : first + args.size], forget="auto")
        seconds += time.process_time() - begun
        found.append(model.perplexity(new))
    return found, seconds


def at_once(known, new, args, seed):
    """Perplexity of the held-out documents after one fit, and its CPU seconds."""
    begun = time.process_time()
    model = sd.LatentDirichletAllocation(args.topics, max_iter=args.sweeps, random_state=seed).fit(known)
    seconds = time.process_time() - begun
    return model.perplexity(new), seconds


def main(arguments=None):
    """Print a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("docword")
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--size", type=int, default=400, help="documents of a part")
    parser.add_argument("--part-sweeps", type=int, default=50)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--sweeps", type=int, default=100, help="of the one fit")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=UserWarning)  # words that the known documents lack
    X = sparse.csr_array(sd.datasets.read_uci_bow(args.docword))
    for seed in range(args.seeds):
        known, new = split(X, seed)
        grown, seconds = in_parts(known, new, args, seed)
        whole, of_one = at_once(known, new, args, seed)
        passes = ", ".join(f"{value:.0f}" for value in grown)
        print(
            f"seed {seed}, {-(-known.shape[0] // args.size)} parts: {passes} after each pass "
            f"({seconds:.1f} CPU s); one fit {whole:.0f} ({of_one:.1f} CPU s); "
            f"{100 * (grown[-1] / whole - 1):+.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
