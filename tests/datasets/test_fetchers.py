"""Fetching from a server on this machine: cache, checksums, broken transfers, no network."""

import bz2
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from stradask import datasets
from stradask.datasets import _downloads, fetch_libsvm, fetch_movielens, fetch_uci_bow, fetchers
from stradask.errors import DataError, StradaskError

rng = np.random.default_rng(0)
ENTRIES = "".join(
    f"{i // 50 + 1} {i % 50 + 1} {count}\n" for i, count in enumerate(rng.integers(1, 10**6, 5000))
)
DOCWORD = gzip.compress(f"100\n50\n5000\n{ENTRIES}".encode())
VOCAB = "".join(f"word{i}\n" for i in range(50)).encode()


class Server(ThreadingHTTPServer):
    """Serves files from a dictionary, and misbehaves as told."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"docword.kos.txt.gz": DOCWORD, "vocab.kos.txt": VOCAB}
        self.ranges = True
        self.headers = {"ETag": '"one"'}
        self.cuts = []  # one a request: after how many bytes the connection breaks
        self.requests = []  # (path, Range, If-Range)
        self.wrong_range = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def asked(self, name):
        return [(part, condition) for path, part, condition in self.requests if path == name]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""

    def do_GET(self):
        server = self.server
        part, condition = self.headers.get("Range"), self.headers.get("If-Range")
        server.requests.append((self.path[1:], part, condition))
        data = server.files.get(self.path[1:])
        if data is None:
            self.send_error(404)
            return
        start = 0
        if part and server.ranges and condition in server.headers.values():
            start = int(re.fullmatch(r"bytes=(\d+)-", part)[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            shown = start + 1 if server.wrong_range else start
            self.send_header("Content-Range", f"bytes {shown}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = start + server.cuts.pop(0) if server.cuts else len(data)
        self.wfile.write(data[start:end])
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fetch(server, tmp_path):
    """Fetch kos from the server into a folder of this test."""
    return lambda **arguments: fetch_uci_bow("kos", data_home=tmp_path, base_url=server.url, **arguments)


def check(fetched):
    X, words = fetched
    assert X.shape == (100, 50)
    assert X.nnz == 5000
    assert X.sum(dtype=np.int64) == sum(int(line.split()[2]) for line in ENTRIES.splitlines())
    assert words == VOCAB.decode().split()


def test_the_first_call_downloads_and_the_second_needs_no_network(server, fetch, tmp_path):
    check(fetch())
    assert [path for path, _, _ in server.requests] == ["docword.kos.txt.gz", "vocab.kos.txt"]
    assert (tmp_path / "uci" / "docword.kos.txt.gz").read_bytes() == DOCWORD
    assert json.loads((tmp_path / "checksums.json").read_text()) == {
        "uci/docword.kos.txt.gz": f"sha256:{hashlib.sha256(DOCWORD).hexdigest()}",
        "uci/vocab.kos.txt": f"sha256:{hashlib.sha256(VOCAB).hexdigest()}",
    }
    check(fetch_uci_bow("kos", data_home=tmp_path, base_url="http://127.0.0.1:9/"))
    assert len(server.requests) == 2
    left = {path.name for path in (tmp_path / "uci").iterdir()}
    assert left == {"docword.kos.txt.gz", "vocab.kos.txt"}


def test_the_folder_comes_from_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("STRADASK_DATA", str(tmp_path / "of the environment"))
    check(fetch_uci_bow("kos", base_url=server.url))
    assert (tmp_path / "of the environment" / "uci" / "vocab.kos.txt").exists()
    assert {entry.name for entry in datasets.catalogue() if entry.cached} == {"kos"}
    assert not any(entry.cached for entry in datasets.catalogue(tmp_path))


def test_a_damaged_file_in_the_cache_is_fetched_again(server, fetch, tmp_path):
    fetch()
    path = tmp_path / "uci" / "docword.kos.txt.gz"
    path.write_bytes(DOCWORD[:-1] + b"x")
    check(fetch())
    assert len(server.asked("docword.kos.txt.gz")) == 2
    assert path.read_bytes() == DOCWORD


def test_a_file_that_changed_at_its_source_is_refused(server, fetch, tmp_path):
    fetch()
    (tmp_path / "uci" / "vocab.kos.txt").unlink()
    server.files["vocab.kos.txt"] = VOCAB.replace(b"word0", b"w0rd0")
    with pytest.raises(
        datasets.DownloadError, match=r"vocab\.kos\.txt: not the file.*checksums\.json"
    ) as raised:
        fetch()
    assert hashlib.sha256(VOCAB).hexdigest() in str(raised.value)
    assert not (tmp_path / "uci" / "vocab.kos.txt").exists()
    (tmp_path / "checksums.json").unlink()  # as the message says, to trust the new one
    assert fetch()[1][0] == "w0rd0"


def test_a_page_in_place_of_the_file_is_not_trusted(server, fetch, tmp_path):
    server.files["docword.kos.txt.gz"] = b"<html>please log in</html>"
    target = tmp_path / "uci" / "docword.kos.txt.gz"
    with pytest.raises(
        DataError, match=f"not a gzip file.*delete {re.escape(str(target))} to have it downloaded"
    ):
        fetch()
    assert not (tmp_path / "checksums.json").exists()
    target.unlink()
    server.files["docword.kos.txt.gz"] = DOCWORD
    check(fetch())


def test_a_wrong_argument_does_not_put_the_blame_on_the_file(fetch):
    with pytest.raises(DataError, match="dtype=") as raised:
        fetch(dtype=complex)
    assert "delete" not in str(raised.value)


# ---- transfers ----


def test_a_transfer_that_breaks_is_resumed_in_the_same_call(server, fetch):
    server.cuts = [5000, 3000]
    check(fetch())
    assert server.asked("docword.kos.txt.gz") == [
        (None, None),
        ("bytes=5000-", '"one"'),
        ("bytes=8000-", '"one"'),
    ]


def test_a_transfer_that_stays_broken_is_resumed_by_the_next_call(server, fetch, tmp_path):
    server.cuts = [5000, 0]
    with pytest.raises(
        datasets.DownloadError, match=r"docword\.kos\.txt\.gz cannot be downloaded .*put it at"
    ):
        fetch()
    part = tmp_path / "uci" / "docword.kos.txt.gz.part"
    assert part.read_bytes() == DOCWORD[:5000]
    check(fetch())
    assert server.asked("docword.kos.txt.gz")[-1] == ("bytes=5000-", '"one"')
    assert not part.exists()


def test_a_file_that_changed_between_two_transfers_is_begun_anew(server, fetch, tmp_path):
    server.cuts = [5000, 0]
    server.files["docword.kos.txt.gz"] = bytes(len(DOCWORD) - 7)
    with pytest.raises(datasets.DownloadError):
        fetch()
    server.files["docword.kos.txt.gz"] = DOCWORD
    server.headers = {"ETag": '"two"'}
    check(fetch())
    assert (tmp_path / "uci" / "docword.kos.txt.gz").read_bytes() == DOCWORD


def test_a_server_without_ranges_sends_all_again(server, fetch):
    server.ranges = False
    server.cuts = [5000]
    check(fetch())
    assert server.asked("docword.kos.txt.gz") == [(None, None), ("bytes=5000-", '"one"')]


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({}, None),
        ({"ETag": 'W/"weak"'}, None),
        ({"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, "Mon, 01 Jan 2024 00:00:00 GMT"),
        (
            {"ETag": 'W/"weak"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
            "Mon, 01 Jan 2024 00:00:00 GMT",
        ),
    ],
    ids=["none", "weak", "date", "weak-and-date"],
)
def test_only_what_is_sure_to_be_the_same_file_is_resumed(server, fetch, headers, validator):
    server.headers = headers
    server.cuts = [5000]
    check(fetch())
    expected = (None, None) if validator is None else ("bytes=5000-", validator)
    assert server.asked("docword.kos.txt.gz") == [(None, None), expected]


def test_another_range_than_asked_for_is_not_pieced_in(server, fetch, tmp_path):
    server.cuts = [5000]
    server.wrong_range = True
    with pytest.raises(datasets.DownloadError, match="another range"):
        fetch()
    server.wrong_range = False
    check(fetch())
    assert (tmp_path / "uci" / "docword.kos.txt.gz").read_bytes() == DOCWORD


def test_a_part_that_is_already_whole_is_fetched_again(server, fetch, tmp_path):
    folder = tmp_path / "uci"
    folder.mkdir()
    (folder / "docword.kos.txt.gz.part").write_bytes(DOCWORD)
    (folder / "docword.kos.txt.gz.part.validator").write_text('"one"')
    check(fetch())
    assert server.asked("docword.kos.txt.gz") == [(f"bytes={len(DOCWORD)}-", '"one"'), (None, None)]


def test_a_gz_file_labelled_as_an_encoding_is_kept_as_it_is(server, fetch, tmp_path):
    server.headers = {"Content-Encoding": "gzip"}
    server.files["vocab.kos.txt"] = gzip.compress(VOCAB)
    check(fetch())
    assert (tmp_path / "uci" / "docword.kos.txt.gz").read_bytes() == DOCWORD


def test_progress_is_shown_when_asked_for(fetch, capsys):
    fetch(verbose=1)
    assert "docword.kos.txt.gz: 100%" in capsys.readouterr().err
    fetch()
    assert capsys.readouterr().err == ""


def test_several_at_once_download_once(server, fetch):
    with ThreadPoolExecutor(4) as pool:
        for fetched in pool.map(lambda _: fetch(), range(4)):
            check(fetched)
    assert len(server.requests) == 2


# ---- no network ----


@pytest.mark.parametrize("status", ["missing", "down"])
def test_the_error_says_from_where_and_where_to_put_the_file(server, tmp_path, status):
    base_url = server.url if status == "missing" else "http://127.0.0.1:9/"
    server.files.clear()
    target = tmp_path / "uci" / "docword.kos.txt.gz"
    with pytest.raises(datasets.DownloadError) as raised:
        fetch_uci_bow("kos", data_home=tmp_path, base_url=base_url)
    assert isinstance(raised.value, StradaskError)
    message = str(raised.value)
    assert f"{base_url}docword.kos.txt.gz" in message
    assert f"put it at {target}" in message
    assert ("404" if status == "missing" else "refused") in message
    target.write_bytes(DOCWORD)
    (tmp_path / "uci" / "vocab.kos.txt").write_bytes(VOCAB)
    check(fetch_uci_bow("kos", data_home=tmp_path, base_url=base_url))


@pytest.mark.parametrize("base_url", ["no address", "ftp://127.0.0.1/", "http://"])
def test_an_address_that_is_none(tmp_path, base_url):
    with pytest.raises(datasets.DownloadError, match="cannot be downloaded"):
        fetch_uci_bow("kos", data_home=tmp_path, base_url=base_url)


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"data_home=.* cannot be used"):
        fetch_uci_bow("kos", data_home=tmp_path / "file")


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}', "7"])
def test_a_broken_table_of_checksums(tmp_path, text):
    (tmp_path / "checksums.json").write_text(text)
    with pytest.raises(DataError, match=r"checksums\.json is broken .*delete it"):
        fetch_uci_bow("kos", data_home=tmp_path)


# ---- the other collections ----


def zipped(member, text):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "about")
        archive.writestr(member, text)
    return buffer.getvalue()


@pytest.mark.parametrize("size", ["100k", "1m", "10m", "20m", "25m"])
def test_movielens(server, tmp_path, monkeypatch, size):
    archive, member, checksum, words = fetchers._MOVIELENS[size]
    sep = {"100k": "\t", "1m": "::", "10m": "::", "20m": ",", "25m": ","}[size]
    lines = [
        ["7", "11", "3.5", "978300760"],
        ["7", "12", "1.0", "978300761"],
        ["9", "11", "5.0", "978300762"],
    ]
    header = "userId,movieId,rating,timestamp\r\n" if sep == "," else ""
    data = zipped(member, header + "".join(sep.join(line) + "\n" for line in lines))
    server.files[archive] = data
    with pytest.raises(datasets.DownloadError, match=rf"{archive}: not the file that was expected") as raised:
        fetch_movielens(size, data_home=tmp_path, base_url=server.url)
    assert checksum.removeprefix("md5:") in str(raised.value)
    assert "checksums.json" not in str(raised.value)
    assert list((tmp_path / "movielens").iterdir()) == []

    known = f"md5:{hashlib.md5(data).hexdigest()}"
    monkeypatch.setitem(fetchers._MOVIELENS, size, (archive, member, known, words))
    ratings = fetch_movielens(size, data_home=tmp_path, base_url=server.url)
    np.testing.assert_array_equal(ratings.matrix.toarray(), [[3.5, 1], [5, 0]])
    assert ratings.users.tolist() == [7, 9]
    assert ratings.items.tolist() == [11, 12]
    assert not (tmp_path / "checksums.json").exists()  # a published checksum needs no trust


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no archive", "not a zip file"),
        (zipped("other", "1,1,1"), "u.data"),
        (zipped("ml-100k/u.data", "1\t2\n"), "line 1"),
    ],
    ids=["none", "other", "cut"],  # archives hold the time of day, and names of tests must not
)
def test_movielens_archives_that_are_none(server, tmp_path, monkeypatch, data, words):
    archive, member, _, size = fetchers._MOVIELENS["100k"]
    known = f"md5:{hashlib.md5(data).hexdigest()}"
    monkeypatch.setitem(fetchers._MOVIELENS, "100k", (archive, member, known, size))
    server.files[archive] = data
    with pytest.raises(DataError, match=rf"ml-100k\.zip.*{words}"):
        fetch_movielens("100k", data_home=tmp_path, base_url=server.url)


@pytest.mark.parametrize("name", ["a9a", "rcv1.binary", "multiclass/letter.scale"])
def test_libsvm(server, tmp_path, name):
    path = fetchers._LIBSVM.get(name, (name,))[0]
    data = b"+1 1:0.5 3:2\n-1 2:1\n"
    server.files[path] = bz2.compress(data) if path.endswith(".bz2") else data
    X, y = fetch_libsvm(name, n_features=4, data_home=tmp_path, base_url=server.url)
    np.testing.assert_array_equal(X.toarray(), [[0.5, 0, 2, 0], [0, 1, 0, 0]])
    assert y.tolist() == [1, -1]
    assert (tmp_path / "libsvm" / path).is_file()


@pytest.mark.parametrize(
    "name", ["b9b", "binary/../../escaped", "/etc/passwd", "binary//a9a", "binary/", "binary/.hidden", ""]
)
def test_unknown_names(tmp_path, name):
    with pytest.raises(DataError, match="is not known; give one of a9a"):
        fetch_libsvm(name, data_home=tmp_path, base_url="http://127.0.0.1:9/")
    with pytest.raises(DataError, match="is not known; give one of kos"):
        fetch_uci_bow(name, data_home=tmp_path)
    with pytest.raises(DataError, match="is not known; give one of 100k"):
        fetch_movielens(name, data_home=tmp_path)
    with pytest.raises(DataError, match="is not known; give one of kos"):
        datasets.download(name, data_home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_catalogue_and_download(server, tmp_path):
    entries = datasets.catalogue(tmp_path)
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names) == 30
    assert {entry.kind for entry in entries} == {"counts", "labelled", "ratings"}
    assert all(entry.url.startswith("https://") and entry.size and not entry.cached for entry in entries)
    server.files |= {"binary/a9a": b"1 1:1\n", "ml-100k.zip": b""}
    assert datasets.download("kos", data_home=tmp_path, base_url=server.url) == [
        tmp_path / "uci" / "docword.kos.txt.gz",
        tmp_path / "uci" / "vocab.kos.txt",
    ]
    assert datasets.download("a9a", data_home=tmp_path, base_url=server.url) == [
        tmp_path / "libsvm/binary/a9a"
    ]
    with pytest.raises(datasets.DownloadError, match=r"ml-100k\.zip"):
        datasets.download("movielens-100k", data_home=tmp_path, base_url=server.url)
    assert {entry.name for entry in datasets.catalogue(tmp_path) if entry.cached} == {"kos", "a9a"}


def test_every_public_name_is_there_and_the_import_is_light():
    for name in datasets.__all__:
        assert getattr(datasets, name).__doc__, name
    assert datasets.__all__ == dir(datasets)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = datasets.absent
    heavy = ["numba", "pandas", "pooch", "matplotlib", "tqdm", "requests", "distributed", "cupy"]
    code = (
        "import sys; from stradask.datasets import read_uci_bow, read_ratings, catalogue\n"
        f"print(sorted(set({heavy}) & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_waiting_for_another_download_is_said(tmp_path, caplog):
    fcntl = pytest.importorskip("fcntl")
    holder = (tmp_path / ".lock").open("ab")
    fcntl.flock(holder, fcntl.LOCK_EX)
    entered = threading.Event()

    def enter():
        with _downloads._one_at_a_time(tmp_path):
            entered.set()

    waiter = threading.Thread(target=enter)
    waiter.start()
    assert not entered.wait(0.3)
    holder.close()
    assert entered.wait(60)
    waiter.join(60)
    assert "waiting for another download" in caplog.text
