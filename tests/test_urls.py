"""Files that URLs name are read and written as those of this machine; fsspec's memory stands for a store."""

import csv
import gzip
import pathlib

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import stradask as sd
from stradask import _urls
from stradask.datasets import (
    describe_file,
    make_lda_corpus,
    read_ratings,
    read_svmlight,
    read_texts,
    read_uci_bow,
    save_uci_bow,
)
from stradask.datasets.document_files import cut_files, document_files, read_pieces
from stradask.errors import DataError

DOCUMENTS = b"4\n3\n6\n1 1 2\n1 3 1\n2 2 5\n3 1 1\n4 1 1\n4 2 7\n"


@pytest.fixture
def store():
    """Return a function that puts a file into a bucket in memory and returns its URL."""
    system = fsspec.filesystem("memory")
    system.store.clear()

    def put(name, data):
        system.pipe_file(f"/bucket/{name}", data)
        return f"memory://bucket/{name}"

    yield put
    system.store.clear()


@pytest.mark.parametrize(
    "path",
    ["s3://bucket/x.csv", "memory://x", "https://host/x", "simplecache::s3://bucket/x", "file:///tmp/x"],
)
def test_a_url_is_known_by_its_beginning(path):
    assert _urls.is_url(path)


@pytest.mark.parametrize(
    "path",
    ["x.csv", "C:\\x", "C://x", "/tmp/a://b", "see http://host/x", "a::b", pathlib.Path("s3://b/x"), "", 3],
)
def test_a_path_is_no_url(path):
    assert not _urls.is_url(path)


@pytest.mark.parametrize("squeeze", [None, gzip.compress])
def test_every_reader_reads_what_a_url_names(store, squeeze):
    as_stored, ending = (squeeze, ".gz") if squeeze else (bytes, "")
    counts = store(f"docword.toy.txt{ending}", as_stored(DOCUMENTS))
    assert read_uci_bow(counts).toarray().tolist() == [[2, 0, 1], [0, 5, 0], [1, 0, 0], [1, 7, 0]]
    X, y = read_svmlight(store(f"toy.svm{ending}", as_stored(b"+1 1:0.5 3:2\n-1 2:1\n")))
    assert (X.toarray().tolist(), y.tolist()) == ([[0.5, 0, 2], [0, 1, 0]], [1, -1])
    ratings = read_ratings(store(f"r.csv{ending}", as_stored(b"ann,mug,4\nbob,pen,2\n")))
    assert ratings.matrix.toarray().tolist() == [[4, 0], [0, 2]]
    assert read_texts(store(f"t.csv{ending}", as_stored(b"stars,text\n5,Fine\n")), "text").texts == ["Fine"]
    assert read_texts(store(f"t.jsonl{ending}", as_stored(b'{"text": "Fine"}\n'))).texts == ["Fine"]
    assert describe_file(counts)["bytes"] == len(as_stored(DOCUMENTS))


def test_parquet(store):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"n": [1, 2], "text": ["Fine", None]}), sink)
    assert read_texts(store("t.parquet", sink.getvalue().to_pybytes()) + ":text").texts == ["Fine", ""]


def test_a_folder_of_texts(store):
    store("texts/b.txt", b"second")
    store("texts/inner/a.txt", b"third")
    store("texts/.hidden.txt", b"not this")
    store("texts/a.txt", b"first")
    found = read_texts("memory://bucket/texts")
    assert found.texts == ["first", "second", "third"]
    assert found.names.tolist() == ["a.txt", "b.txt", "inner/a.txt"]


def test_ranges_of_a_file_are_read_alone(store):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (300, 40))
    save_uci_bow(X, "memory://bucket/docword.x.txt")
    paths = document_files("memory://bucket/docword.*")
    assert paths == ["memory:///bucket/docword.x.txt"]
    shards = cut_files(paths, 4)
    assert len(shards) == 4
    assert all(piece.start > 0 for shard in shards for piece in shard)
    np.testing.assert_array_equal(np.vstack([read_pieces(shard)[0].toarray() for shard in shards]), X)


def test_lda_of_a_url_is_that_of_the_file(tmp_path):
    X, *_ = make_lda_corpus(60, 40, 3, random_state=0)
    save_uci_bow(X, tmp_path / "docword.a.txt")
    fits = [
        sd.LatentDirichletAllocation(3, max_iter=5, random_state=0, n_groups=2).fit(name)
        for name in (str(tmp_path / "docword.a.txt"), f"file://{tmp_path}/docword.a.txt")
    ]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)


def test_lda_under_a_memory_limit(store):
    X, *_ = make_lda_corpus(60, 40, 3, random_state=0)
    save_uci_bow(X, "memory://bucket/docword.a.txt")
    model = sd.LatentDirichletAllocation(3, max_iter=2, random_state=0, memory_limit="64MB")
    assert model.fit("memory://bucket/docword.*").components_.sum() > 0


def test_models_are_saved_and_loaded(store):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = sd.Lasso(alpha=0.1).fit(X, X[:, 0])
    model.save("memory://bucket/lasso.npz")
    np.testing.assert_array_equal(sd.load("memory://bucket/lasso.npz").coef_, model.coef_)


def test_words_go_to_the_same_folder(store):
    save_uci_bow(np.eye(2, dtype=int), "memory://bucket/docword.x.txt.gz", ["ant", "bee"])
    _, words = read_uci_bow("memory://bucket/docword.x.txt.gz", "memory://bucket/vocab.x.txt")
    assert words == ["ant", "bee"]


def _fail_at_half(url):
    with _urls.write_url(url) as file:
        file.write(b"half")
        raise ZeroDivisionError


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_a_file_that_was_not_written_to_its_end_is_not_there(store, scheme, tmp_path):
    url = f"memory://bucket/x{tmp_path}" if scheme == "memory" else f"file://{tmp_path}/x"
    with pytest.raises(ZeroDivisionError):
        _fail_at_half(url)
    assert not _urls.is_file(url)
    with _urls.write_url(url) as file:
        file.write(b"old")
    with pytest.raises(ZeroDivisionError):
        _fail_at_half(url)
    with _urls.open_file(url) as file:
        assert file.read() == b"old"


def test_what_is_not_there_is_named(store):
    with pytest.raises(DataError, match=r"memory://bucket/none.svm: cannot be opened .No such file.*check"):
        read_svmlight("memory://bucket/none.svm")
    with pytest.raises(DataError, match=r"memory://bucket/none.txt: cannot be opened"):
        sd.LatentDirichletAllocation(2).fit("memory://bucket/none.txt")
    with pytest.raises(DataError, match=r"no file fits this pattern"):
        sd.LatentDirichletAllocation(2).fit("memory://bucket/none*")
    with pytest.raises(FileNotFoundError, match=r"memory://bucket/none.npz"):
        sd.load("memory://bucket/none.npz")


def test_a_protocol_that_is_not_known_is_named():
    with pytest.raises(DataError, match=r"nosuch://x.svm.* no URL that fsspec can use"):
        read_svmlight("nosuch://x.svm")


def test_a_password_is_not_taken_and_not_shown():
    with pytest.raises(DataError, match=r"a password in a URL") as raised:
        read_svmlight("ftp://ann:secret@host/x.svm")
    assert "secret" not in str(raised.value)


def test_errors_of_libraries_are_those_of_a_file(store, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the store is closed on Sundays")

    url = f"file://{pathlib.Path(__file__)}"
    monkeypatch.setattr(LocalFileSystem, "size", fail)
    with pytest.raises(DataError, match=r"cannot be opened .*the store is closed on Sundays"):
        read_svmlight(url)


def test_patterns_in_chained_urls_are_refused():
    with pytest.raises(DataError, match=r"name the files"):
        document_files("simplecache::memory://bucket/*.txt")


def test_the_command_line(tmp_path, capsys):
    from stradask.cli.arguments import main

    with open(tmp_path / "t.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "y"])
        rows.writerows([[i, i * i % 7, i > 10] for i in range(20)])
    url = f"file://{tmp_path}"
    assert main(["fit", "logistic", f"{url}/t.csv:y", "--save", f"{url}/m.npz"]) == 0
    assert main(["predict", f"{url}/m.npz", f"{url}/t.csv:y", "--out", f"{url}/p.csv"]) == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 21
    assert main(["fit", "logistic", f"{url}/t.csv:y", "--save", f"{url}/t.csv"]) == 2
    assert "was not written by this command" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_file_that_is_no_archive_is_named(tmp_path, kind):
    path = tmp_path / "docword.txt"
    path.write_text("1\n1\n1\n1 1 1\n")
    with pytest.raises(DataError, match="is no URL that fsspec can use here"):
        sd.datasets.read_uci_bow(f"{kind}://inside.txt::{path}")
