"""Corpora that lie in files or with Dask: the model of a matrix, bad shards named, memory of the client."""

import gzip
import logging

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import stradask as sd
from stradask.algorithms.topics.corpus import documents
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError

CUTS = [(0, 80), (80, 81), (81, 200)]


@pytest.fixture(scope="module")
def X():
    return sparse.csr_matrix(make_lda_corpus(200, n_features=120, n_components=5, random_state=0)[0])


@pytest.fixture(scope="module")
def client():
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client


def lda(**options):
    options = {"sampler": "gibbs", "max_iter": 12, "random_state": 3} | options
    return sd.LatentDirichletAllocation(options.pop("n_components", 6), **options)


def same(a, b):
    assert a.n_features_in_ == b.n_features_in_
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0


def delayed(X, cuts=CUTS):
    return [dask.delayed(sparse.csr_matrix)(X[a:b]) for a, b in cuts]


def test_shards_are_the_groups_of_a_local_fit(client, X):
    """The same documents in the same groups: bit for bit the model of the sampler of one process."""
    rows = corpus_of_matrix(X, 4).rows
    parts = [dask.delayed(X)[own] for own in rows]
    local = lda(n_groups=4).fit(X)
    same(lda(engine="dask").fit(parts), local)
    with dask.config.set(scheduler="threads"):
        same(lda(engine=client.scheduler.address).fit(parts), local)


def test_every_form_of_the_same_shards(client, X, tmp_path):
    parts = delayed(X)
    expected = lda(engine="dask").fit(parts)
    assert expected.word_topic_counts_.sum() == X.sum()
    meta = sparse.csr_matrix((0, 0), dtype=X.dtype)
    blocks = [
        da.from_delayed(p, (b - a, 120), X.dtype, meta=meta) for p, (a, b) in zip(parts, CUTS, strict=True)
    ]
    array = da.concatenate(blocks)
    bag = db.from_delayed([dask.delayed(lambda part: [part[:1], part[1:]])(part) for part in parts])
    for form in (array, bag, client.compute(parts)):
        same(lda(engine="dask").fit(form), expected)
        same(lda().fit(form), expected)  # data of Dask's go to its client
    for number, (a, b) in enumerate(CUTS):
        save_uci_bow(X[a:b], tmp_path / f"docword.{number}.txt.gz")
        dump_svmlight_file(X[a:b], np.zeros(b - a), str(tmp_path / f"{number}.svm"), zero_based=False)
    groups = {"n_groups": 9}
    files = lda(**groups).fit(f"{tmp_path}/docword.*")
    for engine in ("dask", client.scheduler.address):
        same(lda(engine=engine, **groups).fit(f"{tmp_path}/docword.*"), files)
    same(lda(engine="dask").fit(sorted(tmp_path.glob("*.svm")), n_features=120), _of_files(X, tmp_path))


def _of_files(X, folder):
    """Three shards, as the svmlight files have them."""
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.svm"))]
    assert sizes[1] < min(sizes[0], sizes[2])
    from stradask.datasets.document_files import cut_files, document_files, read_pieces

    shards = cut_files(document_files(f"{folder}/*.svm"), 2)
    return lda(engine="dask").fit([dask.delayed(read_pieces(shard, 120)[0]) for shard in shards])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_files_on_one_machine(X, tmp_path, n_jobs):
    save_uci_bow(X, tmp_path / "docword.txt")
    model = lda(n_groups=5, n_jobs=n_jobs, max_iter=40).fit(tmp_path / "docword.txt")
    assert model.doc_topic_counts_ is None
    with pytest.raises(AttributeError, match="take transform"):
        _ = model.doc_topic_
    for read in (
        model.representative_documents,
        lambda: model.topics_by_group([0] * 200),
        lambda: model.to_ldavis(X),
    ):
        with pytest.raises(DataError, match=r"work with transform\(X\)"):
            read()
    assert len(model.representative_documents(X=X, n_documents=1).indices) == 6
    assert model.perplexity(X) == pytest.approx(lda(n_groups=5, max_iter=40).fit(X).perplexity(X), rel=0.05)
    model.save(tmp_path / "model")
    same(sd.load(tmp_path / "model"), model)


def test_a_checkpoint_belongs_to_the_contents_of_files(X, tmp_path):
    path, state = tmp_path / "docword.txt", tmp_path / "state"
    save_uci_bow(X, path)
    whole = lda(n_groups=3, max_iter=20).fit(path)
    lda(n_groups=3, max_iter=20, checkpoint=state).fit(path, callback=lambda info: info.round == 7)
    same(lda(n_groups=3, max_iter=20, checkpoint=state).fit(path), whole)
    save_uci_bow(X[::-1], path)
    with pytest.raises(CheckpointMismatch):
        lda(n_groups=3, max_iter=20, checkpoint=state).fit(path)


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_bad_files(client, X, tmp_path, engine):
    for number, (a, b) in enumerate(CUTS):
        save_uci_bow(X[a:b], tmp_path / f"docword.{number}.txt.gz")
    model = lda(engine=engine, n_groups=3)
    with pytest.raises(DataError, match="no file fits"):
        model.fit(f"{tmp_path}/words.*")
    with pytest.raises(DataError, match=r"n_features=100: .*docword\.\d\.txt\.gz states 120 words"):
        model.fit(f"{tmp_path}/docword.*", n_features=100)
    wider = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(200, 130))
    save_uci_bow(wider[81:200], tmp_path / "docword.2.txt.gz")
    with pytest.raises(DataError, match=r"in shard 1 of X: .*docword\.1\.txt\.gz states 120 words, .* 130"):
        model.fit(f"{tmp_path}/docword.*")
    with pytest.raises(DataError, match=r"shard 0 of X \(docword.0.txt.gz\) has 120 columns.* says 130"):
        lda(engine=engine, n_groups=40).fit(f"{tmp_path}/docword.*")
    assert not hasattr(model, "n_features_in_")
    rng = np.random.default_rng(0)
    noise = sparse.csr_matrix(rng.integers(1, 900, (3000, 120)))
    last = tmp_path / "docword.2.txt.gz"
    save_uci_bow(noise, last)
    last.write_bytes(last.read_bytes()[:-3000])
    with pytest.raises(
        DataError, match=r"in shard \d of X: .*docword\.2\.txt\.gz, after line [1-9]\d*: the gzip"
    ):
        model.fit(f"{tmp_path}/docword.*")
    with gzip.open(last, "wt") as file:
        file.write("1\n120\n1\n1 121 1\n")
    with pytest.raises(DataError, match=r"docword\.2\.txt\.gz, line 4: word '121' is beyond the 120"):
        model.fit(f"{tmp_path}/docword.*")
    assert not hasattr(model, "word_topic_counts_")


def test_bad_blocks(client, X):
    parts = delayed(X)
    with pytest.raises(DataError, match=r"shard 1 of X \(a block of Dask's\) has 119 columns.*120"):
        lda(engine="dask").fit([parts[0], dask.delayed(X[:, :119])])
    with pytest.raises(DataError, match=r"in shard 2 of X: .*fractional value 0\.5"):
        lda(engine="dask").fit([*parts[:2], dask.delayed(X[81:] * 0.5)])
    with pytest.raises(DataError, match="no count above zero"):
        lda(engine="dask").fit([dask.delayed(X[:5] * 0)])
    with pytest.raises(DataError, match="documents are to stay whole"):
        lda(engine="dask").fit(da.ones((10, 10), chunks=(5, 5)))
    with pytest.raises(DataError, match="two dimensions"):
        lda(engine="dask").fit(da.ones(10))
    with pytest.raises(DataError, match=r"exact=True keeps one group of documents, but X comes in 3 parts"):
        lda(exact=True).fit(parts)
    with pytest.raises(DataError, match="doc_labels"):
        lda().fit(parts, doc_labels=np.ones((3, 6)))  # a row for each document, not for each block
    with pytest.raises(DataError, match=r"n_features=7, but X has 120 columns"):
        lda().fit(X, n_features=7)


def test_a_file_that_workers_do_not_see(client, X, tmp_path, monkeypatch):
    """It is there where it is cut, and gone where it is read: before the survey, or after it."""
    path = tmp_path / "docword.txt"
    surveyed = documents.survey

    def gone_before(*args):
        path.unlink()
        return surveyed(*args)

    def gone_after(*args):
        found = surveyed(*args)
        path.unlink()
        return found

    for gone, where in ((gone_before, r"in shard \d of X: "), (gone_after, "")):
        save_uci_bow(X, path)
        monkeypatch.setattr(documents, "survey", gone)
        with pytest.raises(
            DataError, match=rf"{where}.*docword.txt: cannot be opened .*No such file"
        ) as seen:
            lda(engine="dask", n_groups=3).fit(path)
        assert "on worker " in "".join(seen.value.__notes__)


def test_words_that_are_not_counted_yet(client):
    tokens = [["cat", "dog", "cat"], ["sun"]] * 4
    for parts, held in (
        (db.from_sequence(tokens, npartitions=2), "X holds texts"),
        (db.from_sequence([" ".join(words) for words in tokens], npartitions=2), "X holds texts"),
        ([dask.delayed(tokens)], "X holds texts"),
        (
            db.from_sequence(tokens, npartitions=2).filter(lambda words: False),
            "a partition of X holds nothing",
        ),
    ):
        with pytest.raises(DataError, match=rf"in shard \d of X: {held}, .*text_counts"):
            lda(engine="dask").fit(parts)
    counted = db.from_sequence([" ".join(words) for words in tokens], npartitions=2)
    words = ["cat", "dog", "sun"]
    remedy = counted.map_partitions(lambda texts: sd.text_counts(texts, vocabulary=words).X)
    model = lda(engine="dask").fit(remedy)
    assert model.word_topic_counts_.sum(axis=1).tolist() == [8, 4, 4]


def test_what_stands_for_a_matrix(client, X, tmp_path):
    """One delayed value is one shard; lists of matrices, folders and what cannot be inferred are named."""
    same(lda(engine="dask").fit(dask.delayed(X)), lda(engine="dask").fit([dask.delayed(X)]))
    with pytest.raises(DataError, match=r"type csr_matrix: stack matrices with scipy.sparse.vstack"):
        lda().fit([X, X])
    with pytest.raises(DataError, match=r"type csr_matrix: .*names of files come in a list of their own"):
        lda().fit(["docword.txt", X])
    with pytest.raises(DataError, match="is a folder; name the files in it"):
        lda().fit(str(tmp_path))
    model = lda().fit(X)
    for infer in (model.transform, model.score, model.perplexity, lda(engine="dask").fit_transform):
        with pytest.raises(DataError, match=r"docword.txt: cannot be opened"):
            infer("docword.txt")
        with pytest.raises(DataError, match=r"list of delayed values or futures: .*from_delayed"):
            infer(delayed(X))


# Inference -------------------------------------------------------------------------------------------


def test_shares_of_blocks_are_lazy_and_those_of_the_matrix(client, X):
    model = lda().fit(X)
    meta = sparse.csr_matrix((0, 0), dtype=X.dtype)
    lazy = [
        da.from_delayed(part, (b - a, 120), X.dtype, meta=meta)
        for part, (a, b) in zip(delayed(X), CUTS, strict=True)
    ]
    for blocks in (da.concatenate(lazy), da.from_array(X.toarray(), chunks=(70, 50))):
        shares = model.transform(blocks)
        assert isinstance(shares, da.Array)
        assert shares.shape == (200, 6)
        np.testing.assert_array_equal(shares.compute(), model.transform(X))
        assert model.score(blocks) == pytest.approx(model.score(X), rel=0.02)
    (one,) = (da.from_array(X.toarray(), chunks=(200, 120)),)
    assert model.score(one) == model.score(X)
    assert model.perplexity(one) == np.exp(-model.score(X))


def test_bad_blocks_to_infer(client, X):
    model = lda().fit(X)
    with pytest.raises(DataError, match="119 columns, but the model was fitted to 120"):
        model.transform(da.ones((5, 119)))
    with pytest.raises(DataError, match="doc_labels works with a matrix"):
        model.score(da.ones((5, 120)), doc_labels=np.ones((5, 6)))
    with pytest.raises(DataError, match="nothing to hold out"):
        model.score(da.zeros((5, 120), dtype=int))
