"""Do our chains reach the likelihood that tomotopy's reach, at the same sweeps?

    python -m stradask.benchmarks.experiments.topics.lda_judge --dataset docword.kos.txt.gz --n-components 50

Both run the same number of sweeps with the same fixed priors, five seeds each; the joint
log-likelihood of both is recomputed from their assignments by one formula
(`objectives.lda.joint_log_likelihood`). Needs tomotopy.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np

from ...data import load_counts
from ...objectives.lda import joint_log_likelihood
from ...run import describe_machine

ALPHA, BETA = 0.1, 0.01


def ours(X, n_components, sweeps, seed, exact):
    """Return the joint log-likelihood per token of one of our chains."""
    import stradask

    lda = stradask.LatentDirichletAllocation(
        n_components,
        doc_topic_prior=ALPHA,
        topic_word_prior=BETA,
        max_iter=sweeps,
        exact=exact,
        random_state=seed,
    ).fit(X)
    return joint_log_likelihood(lda.doc_topic_counts_, lda.word_topic_counts_, ALPHA, BETA) / X.sum()


def tomotopys(X, n_components, sweeps, seed):
    """Return the joint log-likelihood per token of one of tomotopy's chains."""
    import tomotopy

    model = tomotopy.LDAModel(k=n_components, alpha=ALPHA, eta=BETA, seed=seed + 1)
    model.optim_interval = 0
    for d in range(X.shape[0]):
        row = slice(X.indptr[d], X.indptr[d + 1])
        model.add_doc([str(w) for w in np.repeat(X.indices[row], X.data[row])])
    model.train(sweeps, workers=1)
    words = np.array([int(word) for word in model.used_vocabs])
    doc_topic = np.zeros((X.shape[0], n_components), np.int64)
    word_topic = np.zeros((X.shape[1], n_components), np.int64)
    for d, document in enumerate(model.docs):
        topics = np.array(document.topics)
        np.add.at(doc_topic[d], topics, 1)
        np.add.at(word_topic, (words[np.array(document.words)], topics), 1)
    return joint_log_likelihood(doc_topic, word_topic, ALPHA, BETA) / X.sum()


def main(arguments=None):
    """Run both on five seeds and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", default="docstrings")
    parser.add_argument("--n-components", type=int, default=50)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args(arguments)
    import tomotopy

    X = load_counts(args.dataset, 0)
    fixed = (X, args.n_components, args.sweeps)
    chains: dict[str, list] = {"grouped": [], "exact": [], "tomotopy": []}
    for seed in range(args.seeds):
        chains["grouped"].append(ours(*fixed, seed, exact=False))
        chains["exact"].append(ours(*fixed, seed, exact=True))
        chains["tomotopy"].append(tomotopys(*fixed, seed))
    medians = {name: statistics.median(values) for name, values in chains.items()}
    print(
        json.dumps(
            {
                **vars(args),
                "dataset": Path(args.dataset).name,
                "n_tokens": int(X.sum()),
                "joint_per_token": chains,
                "medians": medians,
                "grouped_over_tomotopy": medians["grouped"] / medians["tomotopy"] - 1,
                "tomotopy_version": tomotopy.__version__,
                "machine": describe_machine(),
            }
        )
    )


if __name__ == "__main__":
    main()
