"""How many groups a corpus is dealt into, and what is said where threads outnumber them."""

import warnings

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.topics.state import number_of_groups


def test_large_corpora_have_more_groups_and_others_keep_theirs():
    def rule_of_0_1(n_tokens, n_words):  # whose recorded fits keep their bits
        return 1 if n_tokens < 100_000 else int(np.clip(n_tokens // (20 * n_words), 2, 16))

    for n_tokens, n_words in [(90_000, 500), (420_208, 6_902), (2_129_608, 19_642), (5_000_000, 16_000)]:
        assert number_of_groups(n_tokens, n_words, 100) == rule_of_0_1(n_tokens, n_words)
    assert number_of_groups(10_801_146, 15_937, 100) == 33
    assert number_of_groups(10**9, 100_000, 100) == 64
    assert number_of_groups(10**8, 100_000, 60_000) == 50
    assert number_of_groups(10**7, 10_000, 65_535) == 39  # the square root of ten tokens a topic


@pytest.fixture(scope="module")
def corpus():
    return np.random.default_rng(0).poisson(1.0, (500, 300))  # 150,000 tokens: 25 groups


def test_idle_threads_are_warned_of_and_change_nothing(corpus):
    fits = []
    for n_jobs in (1, 5):
        lda = sd.LatentDirichletAllocation(3, n_groups=3, max_iter=2, random_state=0, n_jobs=n_jobs)
        if n_jobs == 1:
            fits.append(lda.fit(corpus))
        else:
            with pytest.warns(UserWarning, match=r"5 threads, but .* 3 groups.*set n_groups=5"):
                fits.append(lda.fit(corpus))
    assert (fits[0].word_topic_counts_ != fits[1].word_topic_counts_).nnz == 0


def test_no_warning_where_all_threads_work_or_the_corpus_is_small(corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sd.LatentDirichletAllocation(3, max_iter=1, n_jobs=4).fit(corpus)
        sd.LatentDirichletAllocation(3, max_iter=1, n_jobs=4).fit(corpus[:50])
        sd.LatentDirichletAllocation(3, max_iter=1, n_jobs=4, exact=True).fit(corpus)
