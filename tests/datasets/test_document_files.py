"""Files of documents in pieces: every document once, whatever the cut; damage named by file and line."""

import gzip
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from stradask.datasets import save_uci_bow
from stradask.datasets.document_files import check_entries, cut_files, document_files, read_pieces
from stradask.errors import DataError


def counts(n_documents, n_words=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.3, (n_documents, n_words))
    X[rng.random(n_documents) < 0.2] = 0  # documents that no line tells of
    return sparse.csr_matrix(X)


def read_all(paths, n_shards):
    shards = cut_files(document_files(paths), n_shards)
    found = [read_pieces(shard) for shard in shards]
    check_entries(itertools.chain(*shards), itertools.chain(*(n for _, n in found)))
    return shards, np.vstack([X.toarray() for X, _ in found])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_document_once_and_in_order(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("corpus")
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=4))
    parts = [counts(size, seed=i) for i, size in enumerate(sizes)]
    for i, part in enumerate(parts):
        ending = data.draw(st.sampled_from(["", ".gz"]))
        save_uci_bow(part, folder / f"docword.{i}.txt{ending}")
    n_shards = data.draw(st.integers(1, 90))
    shards, found = read_all(f"{folder}/docword.*", n_shards)
    np.testing.assert_array_equal(found, np.vstack([part.toarray() for part in parts]))
    assert 1 <= len(shards) <= n_shards


def test_a_plain_file_is_cut_into_equal_ranges_of_bytes(tmp_path):
    save_uci_bow(counts(2000), tmp_path / "docword.txt")
    shards, _ = read_all(tmp_path / "docword.txt", 8)
    sizes = [sum(piece.n_bytes for piece in shard) for shard in shards]
    assert len(shards) == 8
    assert max(sizes) < 1.1 * min(sizes)


def test_a_compressed_file_is_cut_by_documents(tmp_path):
    save_uci_bow(counts(50), tmp_path / "docword.txt.gz")
    shards, found = read_all(tmp_path / "docword.txt.gz", 3)
    assert [(p.first, p.last, p.start) for (p,) in shards] == [(0, 16, -1), (16, 33, -1), (33, 50, -1)]
    np.testing.assert_array_equal(found, counts(50).toarray())


def test_svmlight_files_are_shards(tmp_path):
    for name, text in {"a.svm": "1 1:2 3:1\n0 2:1\n", "b.svm": "1 5:4\n"}.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / "b.svm", tmp_path / "a.svm"]
    shards, _ = cut_files(document_files(files), 2), None
    parts = [read_pieces(shard, 6)[0].toarray() for shard in shards]
    np.testing.assert_array_equal(parts[0], [[2, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(parts[1], [[0, 0, 0, 0, 4, 0]])
    both = read_pieces(cut_files(document_files(files), 1)[0])[0]
    assert both.shape == (3, 5)


# Bad input -------------------------------------------------------------------------------------------


def test_names(tmp_path):
    with pytest.raises(DataError, match="no file fits this pattern"):
        document_files(f"{tmp_path}/docword.*")
    with pytest.raises(DataError, match="twice"):
        document_files([__file__, __file__])
    with pytest.raises(DataError, match="empty list"):
        document_files([])
    with pytest.raises(DataError, match=r"missing\.txt: cannot be opened"):
        document_files([tmp_path / "missing.txt"])


def test_a_bad_line_is_named_by_its_place_in_the_file(tmp_path):
    path = tmp_path / "docword.txt"
    save_uci_bow(counts(200), path)
    lines = path.read_text().split("\n")
    lines[900] = lines[900].replace(" ", " x", 1)
    path.write_text("\n".join(lines))
    shards = cut_files([str(path)], 5)
    caught = []
    for shard in shards:
        try:
            read_pieces(shard)
        except DataError as error:
            caught.append(str(error))
    assert len(caught) == 1
    assert f"{path}, line 901: the word must be a whole number" in caught[0]


def test_a_plain_file_cut_off_is_found_when_its_ranges_are_together(tmp_path):
    path = tmp_path / "docword.txt"
    save_uci_bow(counts(200), path)
    lines = path.read_text().split("\n")
    path.write_text("\n".join(lines[:-40]) + "\n")
    with pytest.raises(DataError, match=rf"has {len(lines) - 43} entries and line 3 states"):
        read_all(path, 4)


def test_documents_out_of_order(tmp_path):
    path = tmp_path / "docword.txt"
    save_uci_bow(counts(200), path)
    head, body = path.read_text().split("\n")[:3], path.read_text().split("\n")[3:-1]
    path.write_text("\n".join([*head, *body[500:], *body[:500]]) + "\n")
    with pytest.raises(DataError, match="sort the file by document, or compress it"):
        read_all(path, 4)
    with gzip.open(f"{path}.gz", "wt") as file:
        file.write(path.read_text())
    _, found = read_all(f"{path}.gz", 4)
    np.testing.assert_array_equal(found, counts(200).toarray())


def test_a_broken_gzip_names_file_and_line(tmp_path):
    path = tmp_path / "docword.txt.gz"
    save_uci_bow(counts(4000, 300), path)
    path.write_bytes(path.read_bytes()[:-2000])
    shards = cut_files([str(path)], 2)
    with pytest.raises(DataError, match=r"docword\.txt\.gz, after line [1-9]\d+: the gzip data are broken"):
        read_pieces(shards[0])


def test_widths(tmp_path):
    save_uci_bow(counts(20, 30), tmp_path / "docword.1.txt")
    save_uci_bow(counts(20, 31), tmp_path / "docword.2.txt")
    (shard,) = cut_files(document_files(f"{tmp_path}/docword.*"), 1)
    with pytest.raises(DataError, match=r"docword\.1\.txt states 30 words, another file 31"):
        read_pieces(shard)
    assert read_pieces(shard, 40)[0].shape == (40, 40)
    with pytest.raises(DataError, match=r"n_features=30: .*2\.txt states 31 words"):
        read_pieces(shard, 30)


def test_a_file_that_changed_since_it_was_cut(tmp_path):
    path = tmp_path / "docword.txt.gz"
    save_uci_bow(counts(20), path)
    (shard,) = cut_files([str(path)], 1)
    save_uci_bow(counts(21), path)
    with pytest.raises(DataError, match="the file has changed"):
        read_pieces(shard)
