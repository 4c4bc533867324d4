"""What is read of a topic model whose parts lie in shards and blocks."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Fetched:
    """What is read of a fit before its shards are let go: for `LatentDirichletAllocation._read`."""

    program: Any
    documents: sparse.csr_array | None
    words: sparse.csr_array
    joint: float
    labels: sparse.csr_array | None = None

    @classmethod
    def of(cls, program, ask):
        """Ask shards and blocks."""
        arrays = ask(lambda session, messages: session.snapshot(messages, blocks_only=True))
        words, counted = 0.0, []
        for b in range(program.n_blocks):  # one after the other: unpacked they may not all find room
            value = program.unpack(b, arrays.pop(f"block-{b}"))
            words += program.word_part(b, value, program.priors.beta)
            counted += program.counts_of_block(b, value)
            del value
        parts = ask(lambda session, messages: session.measure(messages))
        counts = program.word_counts(counted)
        documents = None
        if program.fetches_documents:
            own = ask(lambda session, messages: session.measure(messages, "document_counts"))
            documents = sparse.csr_array(sparse.vstack(own, format="csr"))
        return cls(program, documents, counts, program.joint(parts, words))

    def in_order(self, rows, labels=None):
        """Put documents into the order of X; `rows` says which ones each shard has, None in order."""
        documents = self.documents
        if rows is not None and documents is not None:
            documents = documents[np.argsort(np.concatenate(rows))]
        return replace(self, documents=documents, labels=labels)

    @property
    def ran(self):
        """What `LatentDirichletAllocation.sampler_` says."""
        return self.program.ran

    @property
    def seeds(self):
        """What seed words add to beta."""
        return self.program.seeds

    @property
    def alpha(self):
        """The document-topic prior."""
        return self.program.alpha

    @property
    def beta(self):
        """The topic-word prior."""
        return self.program.beta

    def doc_topic_counts(self):
        """Topic counts of documents, CSR; None if they lie in shards."""
        return self.documents

    def word_topic_counts(self):
        """Topic counts of words, CSR."""
        return self.words

    def joint_log_likelihood(self, n_jobs=1):
        """Joint log-likelihood per token."""
        return self.joint
