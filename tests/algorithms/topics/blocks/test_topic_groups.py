"""How many groups a corpus is dealt into, and what is said where threads outnumber them."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import stradask as sd
from stradask.algorithms.topics.blocks.groups import number_of_groups
from stradask.algorithms.topics.corpus import shard_input
from stradask.kernels.cuda.device import why_no_device


def test_large_corpora_have_more_groups_and_others_keep_theirs():
    def rule_of_0_1(n_tokens, n_words):  # whose recorded fits keep their bits
        return 1 if n_tokens < 100_000 else int(np.clip(n_tokens // (20 * n_words), 2, 16))

    for n_tokens, n_words in [(90_000, 500), (420_208, 6_902), (2_129_608, 19_642), (5_000_000, 16_000)]:
        assert number_of_groups(n_tokens, n_words, 100) == rule_of_0_1(n_tokens, n_words)
    assert number_of_groups(10_801_146, 15_937, 100) == 33
    assert number_of_groups(10**9, 100_000, 100) == 64
    assert number_of_groups(10**8, 100_000, 60_000) == 50
    assert number_of_groups(10**7, 1_000, 100_000) == 31  # the square root of ten tokens a topic
    assert number_of_groups(3_000_000, 4_600, 100) == 19  # blocks of 8,000 tokens
    assert number_of_groups(150_000, 300, 100) == 4


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


def test_files_have_shards_by_their_size():
    assert [shard_input.number_of_shards(n << 20) for n in (0, 3, 4, 40, 64, 271)] == [
        1,
        1,
        2,
        11,
        16,
        16,
    ]  # of 0.1
    assert [shard_input.number_of_shards(n << 20) for n in (272, 512, 1024, 10**6)] == [17, 32, 64, 64]


def test_more_groups_than_documents_are_warned_of_and_fit():
    X = np.full((3, 4), 5)
    with pytest.warns(UserWarning, match=r"n_groups=9, but the fit has 3 groups: X has 3 documents"):
        wide = sd.LatentDirichletAllocation(2, n_groups=9, max_iter=3, random_state=0).fit(X)
    narrow = sd.LatentDirichletAllocation(2, n_groups=3, max_iter=3, random_state=0).fit(X)
    assert (wide.word_topic_counts_ != narrow.word_topic_counts_).nnz == 0


def _svmlight(corpus, folder):
    for number, part in enumerate(np.array_split(corpus, 2)):
        dump_svmlight_file(
            sparse.csr_matrix(part), np.zeros(len(part)), str(folder / f"{number}.txt"), zero_based=False
        )
    return f"{folder}/*.txt"


def test_files_that_are_not_cut_are_warned_of(corpus, tmp_path):
    lda = sd.LatentDirichletAllocation(2, n_groups=3, n_jobs=4, max_iter=1, random_state=0)
    with pytest.warns(UserWarning, match="2 groups") as caught:
        lda.fit(_svmlight(corpus, tmp_path), n_features=300)
    said = " | ".join(str(warning.message) for warning in caught)
    assert "n_groups=3, but the fit has 2 groups: files in the svmlight format are not cut" in said
    assert "4 threads, but the corpus has 2 groups" in said
    assert "give the documents in more files" in said


def test_shards_of_counts_warn_of_idle_threads(corpus, tmp_path):
    sd.datasets.save_uci_bow(sparse.csr_array(corpus), tmp_path / "docword.txt")
    lda = sd.LatentDirichletAllocation(2, n_groups=2, n_jobs=3, max_iter=1, random_state=0)
    with pytest.warns(UserWarning, match=r"n_jobs gives 3 threads, but .* 2 groups.*set n_groups=3"):
        lda.fit(tmp_path / "docword.txt")


def test_idle_threads_of_device_auto_on_the_cpu(corpus):
    lda = sd.LatentDirichletAllocation(2, n_groups=2, n_jobs=3, max_iter=1, device="auto", random_state=0)
    if why_no_device() is None:
        pytest.skip("there is a GPU")
    for sampler in ("gibbs", "saber"):
        with pytest.warns(UserWarning, match=r"3 threads, but .* 2 groups"):
            lda.set_params(sampler=sampler).fit(corpus)


@pytest.mark.cluster
def test_idle_threads_of_a_cluster(corpus):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    lda = sd.LatentDirichletAllocation(2, n_groups=3, max_iter=1, engine="dask", random_state=0)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        with pytest.warns(UserWarning, match=r"the cluster has 4 threads, but .* 3 groups.*set n_groups=4"):
            lda.fit(corpus)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lda.set_params(n_jobs=1).fit(corpus)
            lda.set_params(n_jobs=None, n_groups=4).fit(corpus)


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
def test_bits_are_equal_for_any_number_of_threads_above_16_groups(sampler):
    X = np.random.default_rng(1).poisson(20.0, (200, 60))  # 4,000 tokens a word
    fits = [
        sd.LatentDirichletAllocation(
            4, sampler=sampler, n_groups=20, max_iter=4, random_state=3, n_jobs=n_jobs
        ).fit(X)
        for n_jobs in (1, 2, 5)
    ]
    for fit in fits[1:]:
        assert np.array_equal(fit.word_topic_counts_.toarray(), fits[0].word_topic_counts_.toarray())
        assert np.array_equal(fit.doc_topic_, fits[0].doc_topic_)
