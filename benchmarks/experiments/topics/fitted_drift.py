"""Drift that `DynamicTopicModel(drift=None)` fits to generated slices whose documents repeat words or not.

    python -m stradask.benchmarks.experiments.topics.fitted_drift

Each document has topics of its own, drawn from a Dirichlet prior about those of its slice: the fewer tokens
that prior is worth, the more do documents repeat their words.
"""

import argparse

import numpy as np
from scipy import sparse

import stradask as sd


def generated(drift, n_documents, concentration, seed, *, n_words=200, n_slices=20, n_topics=5, length=60):
    """Counts and slices; with a concentration of 0 documents have the topics of their slice."""
    rng = np.random.default_rng(seed)
    eta, X = np.log(rng.dirichlet(np.full(n_words, 0.1), n_topics) + 1e-4), []
    for _ in range(n_slices):
        phi = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
        for share in rng.dirichlet(np.full(n_topics, 0.1), n_documents):
            own = [rng.dirichlet(concentration * p + 1e-9) for p in phi] if concentration else phi
            X.append(rng.multinomial(length, share @ np.array(own)))
        eta = eta + rng.normal(0, drift, eta.shape)
    return sparse.csr_array(np.array(X)), np.repeat(np.arange(n_slices), n_documents)


def main(arguments=None):
    """Print a line for each drift and concentration."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drifts", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    parser.add_argument("--concentrations", type=float, nargs="+", default=[0, 200, 50])
    parser.add_argument("--documents", type=int, default=40, help="of a slice")
    parser.add_argument("--max-iter", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    for drift in args.drifts:
        for concentration in args.concentrations:
            X, slices = generated(drift, args.documents, concentration, args.seed)
            model = sd.DynamicTopicModel(5, drift=None, max_iter=args.max_iter, random_state=0)
            model.fit(X, slices=slices)
            print(f"drift {drift}, concentration {concentration:g}: {model.drift_:.3f}", flush=True)


if __name__ == "__main__":
    main()
