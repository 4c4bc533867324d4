"""Samplers that are objects: what is refused, what counts as a name, and what a checkpoint knows."""

import numpy as np
import pytest
from scipy import sparse

from stradask import LatentDirichletAllocation
from stradask.algorithms.topics.blocks.document_rows import DenseDocuments
from stradask.algorithms.topics.blocks.memory import CorpusSizes, bytes_of_state
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.growing import YoungPriors
from stradask.algorithms.topics.samplers.choose import counted_as
from stradask.algorithms.topics.samplers.gibbs import Gibbs
from stradask.algorithms.topics.samplers.light import Light
from stradask.algorithms.topics.samplers.warp import TokensOfDocuments, Warp
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError

X, *_ = make_lda_corpus(60, n_features=80, n_components=3, random_state=0)


def lda(sampler, **options):
    return LatentDirichletAllocation(
        3, sampler=sampler, **{"random_state": 0, "n_groups": 3, "max_iter": 4} | options
    )


def same(one, other):
    return (one.word_topic_counts_ != other.word_topic_counts_).nnz == 0


class Plain(Gibbs):
    """Just as its base."""


class Named(Gibbs):
    name = "auto"


class Writes(Gibbs):
    n = 0

    def sweep(self, shard, task, tokens, words):
        self.n += 1
        super().sweep(shard, task, tokens, words)


class Counts(Gibbs):
    def __init__(self):
        self.sweeps = []

    def end_sweep(self, shard, task):
        self.sweeps.append(task.round)
        super().end_sweep(shard, task)


class Fits(Gibbs):
    def fit(self, swept):
        self.swept = swept


class Smoother(Gibbs):
    def __init__(self, times=50, scratch=None):
        self.times, self.scratch = times, scratch

    def beta_of_words(self, beta, block):
        return super().beta_of_words(beta, block) * self.times


class Wide(Gibbs):
    def document_kind(self, lengths, storage, facts=None):
        return DenseDocuments(len(lengths), self.program.longest, self.program.n_topics, storage)


class Beyond(Gibbs):
    def sweep(self, shard, task, tokens, words):
        tokens[5][:1] = np.uint16(65_535)


class BeyondInBlock(Light):
    def sweep(self, shard, task, tokens, words):
        tokens[5][-1:] = 3


class BeyondAtFirst(Warp):
    def lay_out(self, shard, storage):
        pairs = super().lay_out(shard, storage)
        pairs[0, 1] = 3
        return pairs


class Rows:
    """No class of documents' counts."""


class LikeWarp(Warp):
    """Just as its base."""


class Duck:
    def bound(self, program, corpus):
        return self

    def draw(self, shard, task, totals):
        return {}


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        (Plain, {}, r"is a class: give an object"),
        (Duck(), {}, "no sampler of topics"),
        (Named(), {}, "that of another"),
        (Fits(), {}, "no arrays and restore"),
        (Writes(), {}, r"a sweep writes self\.n"),
        (Counts(), {}, r"a sweep writes self\.sweeps"),
        (Beyond(), {}, r"Beyond draws in block \d of the words topic 65,535, but topics are 0 to 2"),
        (BeyondInBlock(), {"n_jobs": 2}, r"BeyondInBlock \w+ in\w* block \d of the words topic 3, but"),
        (BeyondAtFirst(), {}, "BeyondAtFirst lays out topic 3, but topics are 0 to 2"),
        (Plain(), {"exact": True}, r"sampler=Plain\(\), which is not"),
        (Warp(2), {"exact": True}, r"sampler=Warp\(repeats=2\), which is not"),
    ],
)
def test_what_cannot_hold_is_refused(sampler, options, message):
    with pytest.raises(DataError, match=message):
        lda(sampler, **options).fit(X)


@pytest.mark.parametrize(("sampler", "name"), [(Gibbs(), "gibbs"), (Light(), "light"), (Warp(), "warp")])
def test_an_object_of_a_built_in_class_is_its_name(sampler, name):
    assert same(lda(sampler, max_iter=12).fit(X), lda(name, max_iter=12).fit(X))


def test_what_a_class_changes_is_drawn_with():
    """Compiled steps would draw with beta as it is; parameters are not written into."""
    plain, sampler = lda(Plain()).fit(X), Smoother(scratch=[])
    assert same(plain, lda("gibbs").fit(X))
    assert plain.sampler_[0]["name"] == "plain"
    assert not same(plain, lda(sampler).fit(X))
    assert same(lda(sampler).fit(X), lda(sampler, n_jobs=2).fit(X))
    with pytest.raises(DataError, match=r"set_params\(sampler='gibbs'\) first"):
        plain.save("model.npz")


@pytest.mark.parametrize(
    ("sampler", "counted"), [(Wide(), ("gibbs", DenseDocuments)), (LikeWarp(), ("warp", TokensOfDocuments))]
)
def test_memory_is_counted_by_what_a_sampler_holds(sampler, counted):
    assert counted_as(sampler, corpus_of_matrix(sparse.csr_array(X), 2), 3) == counted


def test_memory_of_documents_needs_their_bytes():
    sizes = CorpusSizes(np.array([9]), np.array([3]), 5, 8)
    with pytest.raises(DataError, match="Rows has no bytes_of"):
        bytes_of_state("gibbs", 3, sizes, Rows)


def test_a_checkpoint_knows_the_sampler(tmp_path):
    fit = lda(Smoother(2), checkpoint=tmp_path).fit(X)
    assert same(fit, lda(Smoother(2), checkpoint=tmp_path).fit(X))
    for sampler in (Smoother(3), Plain(), "gibbs"):
        with pytest.raises(CheckpointMismatch):
            lda(sampler, checkpoint=tmp_path).fit(X)


def test_priors_of_a_young_model_come_back_from_a_snapshot():
    young = YoungPriors.of_model(np.full(3, 0.1), np.full(80, 0.01), 10, 5)
    again = young.of_checkpoint(young.arrays())
    assert np.array_equal(again.beta_of(0)[0], young.beta_of(0)[0])
    assert (again.beta_of(0)[0] > again.beta).all()
