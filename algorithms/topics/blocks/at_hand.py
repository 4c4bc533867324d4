"""Sweeps that draw first topics from the counts of a last fit, or from given topics."""

from dataclasses import replace

import numpy as np

from ....scheduler.engine import run
from ..corpus.shard_input import read_again
from .program import TopicProgram

SWEEPS = 5  # of Gibbs sampling with fixed topics


class FirstTopics(TopicProgram):
    """Draws topics that another program begins from."""

    def collect(self, ask, documents=True):
        """Gather the topics of the shards' tokens: 2 bytes each, 4 above 65,535 topics."""
        arrays = ask(lambda session, messages: session.snapshot(messages))
        return [arrays[f"shard-{number}/topics"] for number in range(len(self.shards))]


def with_first_topics(program, corpus, engine, n_jobs):
    """Run a `FirstTopics`, and give each shard of a corpus the topics that it drew."""
    done = run(program, program.schedule, max_rounds=SWEEPS, engine=engine, n_jobs=n_jobs, label="LDA")
    if done.reason == "interrupted":
        raise KeyboardInterrupt  # before there is anything new: the last model stays
    shards = [shard | {"topics": own} for shard, own in zip(corpus.shards, done.fetched, strict=True)]
    return replace(corpus, shards=shards)


def tokens_of(program, corpus):
    """Word, row of X and topic of each token of a corpus in shards of one matrix, of `with_first_topics`."""
    rank = np.full(corpus.summary.n_words, -1)
    rank[program.words.ids] = np.arange(len(program.words.ids))
    words, documents = [], []
    for shard, rows in zip(corpus.shards, corpus.rows, strict=True):
        X = read_again(shard, corpus.summary.n_words)
        entries = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        place = np.argsort(np.argsort(np.asarray(X.sum(axis=1, dtype=np.int64)).ravel(), kind="stable"))
        order = np.lexsort((place[entries], rank[X.indices]))
        order = np.repeat(order, X.data[order])  # one a token, as the shard has them
        words.append(X.indices[order])
        documents.append(rows[entries[order]])
    topics = [shard["topics"] for shard in corpus.shards]
    return np.concatenate(words), np.concatenate(documents), np.concatenate(topics)
