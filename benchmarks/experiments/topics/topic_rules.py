"""Whether "auto" takes the sampler that is sooner at a held-out perplexity: Gibbs sampling or warp.

    python -m stradask.benchmarks.experiments.topics.topic_rules docword.kos.txt.gz docword.ap.txt:8 --write

Each corpus, cut to `--tokens`, is fitted by each sampler with each number of topics. ``:8`` makes texts of 8
words of the documents, two of each. The target is the held-out perplexity that the worse of the two reaches,
and half a per cent; a row has the CPU seconds of both to it, over two seeds.
Corpora in the order of their names are dealt in turn to two halves: the rule is read off the first half and
its rows of the second one show whether it holds. With ``--write`` the rows become the record in
``benchmarks/results/topic-rules``.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from .... import datasets
from ....algorithms.topics import rules
from ....algorithms.topics.samplers.choose import chosen
from ...objectives.lda import EM_STEPS, Objective
from ...pages.tables import Table
from ...run import describe_machine

RECORD = Path(__file__).resolve().parents[2] / "results" / "topic-rules" / "records.jsonl"
TOPICS, HALVES = (50, 300, 1500), ("learned", "shown")
WAYS, SEEDS = ("gibbs", "warp"), 2
_PASSES = {"gibbs": 1, "warp": rules.WARP_PASSES}  # sweeps of a sampler for one of Gibbs sampling
_TEST_TOKENS, _STATES, _ABOVE = 15_000, 10, 1.005
_TEXTS = 2  # of a document


class Judge:
    """Held-out perplexity of a corpus, and its training documents, cut to so many tokens."""

    def __init__(self, path, n_tokens):
        parameters = {"n_components": 1, "doc_topic_prior": 1.0, "topic_word_prior": 1.0}
        objective = Objective(str(path), seed=0, parameters=parameters | {"optimize_priors": False})
        ends = np.cumsum(objective.train.sum(axis=1))
        self.train = objective.train[: int(np.searchsorted(ends, n_tokens, side="right"))]
        known = np.flatnonzero(self.train.sum(axis=0))
        self.train, self.name = self.train[:, known], Path(path).name
        self.longest = int(self.train.sum(axis=1).max())
        enough = 1 + int(np.searchsorted(np.cumsum(objective.observed.sum(axis=1)), _TEST_TOKENS))
        parts = (objective.observed, objective.held_out)
        self.observed, self.held_out = (part[:enough][:, known] for part in parts)

    def perplexity(self, model):
        """Perplexity of document completion."""
        from ....algorithms.topics.evaluation import document_completion

        topics, alpha = model.topic_word_.astype(np.float32), float(model.doc_topic_prior_[0])
        score = document_completion(topics, self.observed, self.held_out, alpha, n_steps=EM_STEPS)
        return float(np.exp(-score))


def trace(judge, n_topics, way, sweeps, seed):
    """CPU seconds of sweeps, and perplexities, at some states of a fit."""
    from ....algorithms.topics.lda import LatentDirichletAllocation

    sweeps *= _PASSES[way]
    at = {round(sweep) for sweep in np.geomspace(sweeps / 20, sweeps, _STATES)}
    seconds: list[float] = []
    perplexities: list[float] = []
    spent = began = 0.0

    def watch(info):
        nonlocal spent, began
        spent += time.process_time() - began
        if info.round in at:
            seconds.append(spent)
            perplexities.append(judge.perplexity(info.snapshot()))
        began = time.process_time()

    settings = {"doc_topic_prior": min(0.1, 10 / n_topics), "random_state": seed, "sampler": way}
    LatentDirichletAllocation(n_topics, max_iter=1, **settings).fit(judge.train)  # compiles
    lda = LatentDirichletAllocation(n_topics, max_iter=sweeps, **settings)
    began = time.process_time()
    lda.fit(judge.train, callback=watch)
    return np.array(seconds), np.array(perplexities)


def seconds_to(target, seconds, perplexities):
    """CPU seconds to a perplexity, between two states by the logarithms of both."""
    there = int(np.argmax(perplexities <= target))
    if there == 0:
        return float(seconds[0])
    before, after = np.log(perplexities[there - 1 : there + 1])
    part = (before - np.log(target)) / (before - after)
    return float(seconds[there - 1] * (seconds[there] / seconds[there - 1]) ** part)


def compare(judge, n_topics, sweeps):
    """CPU seconds of all samplers to one perplexity."""
    traces = {way: [trace(judge, n_topics, way, sweeps, seed) for seed in range(SEEDS)] for way in WAYS}
    # Means of seconds, and geometric means of perplexities.
    found = {}
    for way, seeds in traces.items():
        seconds, perplexities = np.array(seeds).transpose(1, 0, 2)
        found[way] = seconds.mean(axis=0), np.exp(np.log(perplexities).mean(axis=0))
    target = _ABOVE * max(perplexities.min() for _, perplexities in found.values())
    row = {"corpus": judge.name, "tokens": int(judge.train.sum()), "documents": judge.train.shape[0]}
    row |= {"words": judge.train.shape[1], "longest": judge.longest}
    row |= {"topics": n_topics, "sweeps": sweeps, "target": target}
    for way, (seconds, perplexities) in found.items():
        own = {"seconds": seconds_to(target, seconds, perplexities), "seconds_at_end": float(seconds[-1])}
        row[way] = own | {"perplexity_at_end": float(perplexities[-1])}
        row[way] |= {"trace": [seconds.round(3).tolist(), perplexities.round(1).tolist()]}
    return row


def over_the_fastest(row):
    """What "auto" takes, and its seconds over those of the fastest sampler."""
    name = chosen(row["tokens"], row["words"], row["longest"], row["topics"], False)
    taken = "warp" if name == "both" else name  # for 150 sweeps
    return taken, row[taken]["seconds"] / min(row[way]["seconds"] for way in WAYS)


def named(row):
    """A corpus and the size of its documents."""
    return (
        f"{row['corpus'].split('.')[1]}, {row['documents']:,} x {row['tokens'] / row['documents']:.0f} words"
    )


def table(records):
    """Return the rows as a table of Markdown."""

    def cell(way, figure, digits):
        return lambda row: f"{row[way][figure]:.{digits}f}"

    columns = {
        "half": lambda row: row["half"],
        "topics": lambda row: str(row["topics"]),
        **{f"{way}, s": cell(way, "seconds", 2) for way in WAYS},
        **{f"ends: {way}": cell(way, "perplexity_at_end", 0) for way in WAYS},
        "auto, over the fastest": lambda row: "{}, {:.2f}".format(*over_the_fastest(row)),
    }
    rows = [
        (f"{row['corpus'].split('.')[1]}, {row['tokens'] / row['documents']:.0f} words", row)
        for row in records
    ]
    return Table.of(rows, columns, "corpus").markdown()


def measured(paths, topics, n_tokens, sweeps):
    """A row for each corpus and number of topics."""
    for number, path in enumerate(sorted(paths, key=lambda path: Path(path).name)):
        judge = Judge(path, n_tokens)
        for n_topics in topics:
            own = {"half": HALVES[number % 2], "machine": describe_machine()}
            yield compare(judge, n_topics, sweeps) | own


def short_texts(name, folder):
    """Write texts of so many words, drawn from the documents of ``path:words``; other names are returned."""
    path, _, words = name.rpartition(":")
    if not path:
        return name
    X, n_words, random = datasets.read_uci_bow(path), int(words), np.random.default_rng(0)
    texts = []
    for d in range(X.shape[0]):
        tokens = np.repeat(X.indices[X.indptr[d] : X.indptr[d + 1]], X.data[X.indptr[d] : X.indptr[d + 1]])
        if len(tokens) >= _TEXTS * n_words:
            texts += list(random.permutation(tokens)[: _TEXTS * n_words].reshape(_TEXTS, n_words))
    rows = np.repeat(np.arange(len(texts)), n_words)
    counts = sparse.coo_array(
        (np.ones(len(rows), int), (rows, np.concatenate(texts))), (len(texts), X.shape[1])
    )
    found = Path(folder) / f"{Path(path).name.split('.txt')[0]} in {n_words} words.txt"
    datasets.save_uci_bow(counts.tocsr(), found)
    return str(found)


def main(arguments=None):
    """Print a line a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpora", nargs="+", help="docword files, with :8 in texts of 8 words")
    parser.add_argument("--topics", nargs="+", type=int, default=list(TOPICS))
    parser.add_argument("--tokens", type=float, default=4e5, help="of a corpus at most (%(default)g)")
    parser.add_argument("--sweeps", type=int, default=120)
    parser.add_argument("--write", action="store_true", help=f"write the record {RECORD.name}")
    options = parser.parse_args(arguments)
    if options.sweeps < 2:
        parser.error(f"--sweeps must be at least 2; got {options.sweeps}")
    rows = []
    print("half     corpus                      topics   CPU seconds and last perplexity: " + ", ".join(WAYS))
    with tempfile.TemporaryDirectory() as folder:
        paths = [short_texts(name, folder) for name in options.corpora]
        for row in measured(paths, options.topics, options.tokens, options.sweeps):
            rows.append(row)
            ways = [row[way] for way in WAYS]
            seen = "".join(f"{way['seconds']:9.2f} {way['perplexity_at_end']:7.1f}" for way in ways)
            print(
                f"{row['half']:9}{row['corpus'][:26]:26}{row['topics']:8d}{seen}  "
                "{}: {:.2f} of the fastest".format(*over_the_fastest(row)),
                flush=True,
            )
    if options.write:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
