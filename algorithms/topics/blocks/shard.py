"""What lies with a group of documents: their tokens, the topics of these, and the counts of the documents."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(eq=False)
class TopicShard:
    """The tokens of a group of documents, word by word, and their topics.

    Attributes
    ----------
    order, lengths : int64 arrays of shape (n_documents,)
        Documents of the data by their length, and the lengths, which ascend.
    docs : uint32 array
        The document of each token, and some entries more, since kernels fetch ahead.
    starts : integer array of shape (n_words + 1,)
        Where the tokens of each word begin.
    offset : int32 array of shape (n_words,)
        Tokens of each word in the shards before.
    inputs : dict
        What the first topics are made from: the number of the shard and of its first document, what is known
        of documents (labels, design or response), and first topics where they are given.
    documents : DenseDocuments, ShortDocuments, PackedLists, LabelledRows...
        Counts of the documents' topics.
    lists : dict of arrays
        What checkpoints hold of `documents`.
    topics : array of shape (n_tokens,)
        With WarpLDA's order (n_tokens, 2): topics and proposals.
    sums : array or None
        Sums of the documents' counts over sweeps (`averages`).
    totals : int64 array of shape (n_topics,)
        Tokens of each topic in all shards, as last heard.
    priors : Priors
    is_ready : bool
        Whether topics are counted.
    stage : int
        The number of the sampler, of those of the program, that the shard is at.
    stays : bool
        Whether the counts of documents stay in memory, of a shard in files of a worker.
    merging : MergeOrders or None
        What topics of a hierarchical prior are compared, or become one.
    """

    order: np.ndarray
    lengths: np.ndarray
    docs: Any
    starts: np.ndarray
    offset: np.ndarray
    inputs: dict
    documents: Any = None
    lists: dict = field(default_factory=dict)
    topics: Any = None
    sums: Any = None
    totals: Any = None
    priors: Any = None
    is_ready: bool = False
    stage: int = 0
    stays: bool = False
    merging: Any = None

    # A session reads and replaces arrays of `Program.saved` by their names.

    def __getitem__(self, name):
        return self.lists[name] if name in self.lists else getattr(self, name)

    def __setitem__(self, name, array):
        if name in self.lists:
            self.lists[name] = array
        else:
            setattr(self, name, array)
