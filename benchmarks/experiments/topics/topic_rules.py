"""Whether `algorithms.topics.rules` takes the faster way: Gibbs sampling at once, warp first, or warp alone.

    python -m stradask.benchmarks.experiments.topics.topic_rules docword.kos.txt.gz docword.ap.txt.gz --write

Each corpus, cut to `--tokens`, is fitted in each way with each number of topics. The target is the held-out
perplexity at which the worst of them ends, and half a per cent; a row has the CPU seconds of all to it.
Corpora in the order of their names are dealt in turn to two halves: the rule is read off the first half and
its rows of the second one show whether it holds. With ``--write`` the rows become the record in
``benchmarks/results/topic-rules``.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from ....algorithms.topics import rules
from ....algorithms.topics.samplers import choose, handover
from ...objectives.lda import EM_STEPS, Objective
from ...pages.tables import Table
from ...run import describe_machine

RECORD = Path(__file__).resolve().parents[2] / "results" / "topic-rules" / "records.jsonl"
TOPICS, HALVES = (100, 512, 1000), ("learned", "shown")
WAYS = ("gibbs", "warp first", "warp")
_WARP_FIRST = 43  # sweeps of warp before Gibbs sampling, in the second way
_TEST_DOCUMENTS, _STATES, _ABOVE = 150, 8, 1.005


class Judge:
    """Held-out perplexity of a corpus, and its training documents, cut to so many tokens."""

    def __init__(self, path, n_tokens):
        parameters = {"n_components": 1, "doc_topic_prior": 1.0, "topic_word_prior": 1.0}
        objective = Objective(str(path), seed=0, parameters=parameters | {"optimize_priors": False})
        ends = np.cumsum(objective.train.sum(axis=1))
        self.train = objective.train[: int(np.searchsorted(ends, n_tokens, side="right"))]
        known = np.flatnonzero(self.train.sum(axis=0))
        self.train, self.name = self.train[:, known], Path(path).name
        parts = (objective.observed, objective.held_out)
        self.observed, self.held_out = (part[:_TEST_DOCUMENTS][:, known] for part in parts)

    def perplexity(self, model):
        """Perplexity of document completion."""
        from ....algorithms.topics.evaluation import document_completion

        topics, alpha = model.topic_word_.astype(np.float32), float(model.doc_topic_prior_[0])
        score = document_completion(topics, self.observed, self.held_out, alpha, n_steps=EM_STEPS)
        return float(np.exp(-score))


def trace(judge, n_topics, way, sweeps):
    """CPU seconds of sweeps, and perplexities, at some states of a fit; and what ran."""
    from ....algorithms.topics.lda import LatentDirichletAllocation

    sweeps *= rules.WARP_PASSES if way == "warp" else 1  # a pair of passes is a sweep there
    at = {round(sweep) for sweep in np.geomspace(sweeps / 12, sweeps, _STATES)}
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

    settings = {"doc_topic_prior": min(0.1, 10 / n_topics), "random_state": 0}
    settings["sampler"] = "auto" if way == "warp first" else way
    kept = choose.GIBBS_TOPICS, handover.WARP_SWEEPS
    choose.GIBBS_TOPICS, handover.WARP_SWEEPS = 0, _WARP_FIRST
    try:
        LatentDirichletAllocation(n_topics, max_iter=1, **settings).fit(judge.train)  # compiles
        lda = LatentDirichletAllocation(n_topics, max_iter=sweeps, **settings)
        began = time.process_time()
        lda.fit(judge.train, callback=watch)
    finally:
        choose.GIBBS_TOPICS, handover.WARP_SWEEPS = kept
    return np.array(seconds), np.array(perplexities), lda.sampler_


def seconds_to(target, seconds, perplexities):
    """CPU seconds to a perplexity, between two states by the logarithms of both."""
    there = int(np.argmax(perplexities <= target))
    if there == 0:
        return float(seconds[0])
    before, after = np.log(perplexities[there - 1 : there + 1])
    part = (before - np.log(target)) / (before - after)
    return float(seconds[there - 1] * (seconds[there] / seconds[there - 1]) ** part)


def compare(judge, n_topics, sweeps):
    """CPU seconds of all ways to one perplexity."""
    found = {way: trace(judge, n_topics, way, sweeps) for way in WAYS}
    target = _ABOVE * max(perplexities[-1] for _, perplexities, _ in found.values())
    row = {"corpus": judge.name, "tokens": int(judge.train.sum()), "documents": judge.train.shape[0]}
    row |= {"topics": n_topics, "sweeps": sweeps, "target": target}
    for way, (seconds, perplexities, ran) in found.items():
        own = {"seconds": seconds_to(target, seconds, perplexities), "seconds_at_end": float(seconds[-1])}
        row[way] = own | {"perplexity_at_end": float(perplexities[-1]), "ran": ran}
    return row


def over_the_fastest(row):
    """What "auto" takes of the ways of a row, and its seconds over those of the fastest way."""
    taken = "gibbs" if row["topics"] <= rules.GIBBS_TOPICS else "warp"  # for 150 sweeps
    return taken, row[taken]["seconds"] / min(row[way]["seconds"] for way in WAYS)


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
    rows = [(f"{row['corpus'].split('.')[1]}, {row['tokens']:,} tokens", row) for row in records]
    return Table.of(rows, columns, "corpus").markdown()


def measured(paths, topics, n_tokens, sweeps):
    """A row for each corpus and number of topics."""
    for number, path in enumerate(sorted(paths, key=lambda path: Path(path).name)):
        judge = Judge(path, n_tokens)
        for n_topics in topics:
            own = {"half": HALVES[number % 2], "machine": describe_machine()}
            yield compare(judge, n_topics, sweeps) | own


def main(arguments=None):
    """Print a line a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpora", nargs="+", help="docword files")
    parser.add_argument("--topics", nargs="+", type=int, default=list(TOPICS))
    parser.add_argument("--tokens", type=float, default=4e5, help="of a corpus at most (%(default)g)")
    parser.add_argument("--sweeps", type=int, default=120)
    parser.add_argument("--write", action="store_true", help=f"write the record {RECORD.name}")
    options = parser.parse_args(arguments)
    if options.sweeps < 2:
        parser.error(f"--sweeps must be at least 2; got {options.sweeps}")
    rows = []
    print("half     corpus                      topics   CPU seconds and last perplexity: " + ", ".join(WAYS))
    for row in measured(options.corpora, options.topics, options.tokens, options.sweeps):
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
