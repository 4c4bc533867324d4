"""A fitted topic model, read from shards and blocks."""

from dataclasses import dataclass
from typing import Any

from scipy import sparse


@dataclass(frozen=True)
class Gathered:
    """A fitted model, taken from shards and blocks before they are let go."""

    ran: list
    alpha: Any
    beta: Any
    seeds: Any
    labels: Any
    documents: sparse.csr_array | None
    words: sparse.csr_array
    joint: float

    @classmethod
    def of(cls, program, ask):
        """Ask shards and blocks."""
        parts = ask(lambda session, messages: session.measure(messages))
        word_part, counted = 0.0, []
        for block, value in _blocks(program, ask):
            word_part += program.word_part(block, value, program.beta)
            counted += program.counts_of_block(block, value)
        counts, documents = program.word_counts(counted), None
        if program.rows is not None:
            own = ask(lambda session, messages: session.measure(messages, "document_counts"))
            documents = program.in_order_of_X(own)
        model = (program.ran, program.alpha, program.beta, program.seeds, program.labels)
        return cls(*model, documents, counts, program.joint(parts, word_part))

    def doc_topic_counts(self):
        """Topic counts of documents, CSR; None where they stay in shards."""
        return self.documents

    def word_topic_counts(self):
        """Topic counts of words, CSR."""
        return self.words

    def joint_log_likelihood(self, n_jobs=1):
        """Joint log-likelihood per token."""
        return self.joint


def _blocks(program, ask):
    """All blocks: those of this process without a copy, others one after the other as there is room."""
    here = ask(lambda session, messages: None if session.remote else session.blocks)
    if here is not None:
        yield from enumerate(here)
        return
    arrays = ask(lambda session, messages: session.snapshot(messages, blocks_only=True))
    for block in range(program.n_blocks):
        yield block, program.unpack(block, arrays.pop(f"block-{block}"))
