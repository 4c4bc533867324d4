"""Files that are whole or not there, under killed processes, full disks and damage."""

import errno
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from stradask._urls import write_atomic
from stradask.datasets._files import write_aside
from stradask.errors import CheckpointMismatch, DataError, ModelFileError
from stradask.scheduler.stores.store import Checkpoint, fingerprint_csr, read_npz, write_npz


def in_another_process(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def write(path, content):
    with write_atomic(path) as file:
        file.write(content)


# --- Atomic files ---------------------------------------------------------------------------------


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "a"
    for content in (b"one", b"twelve"):
        write(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyError("x"), KeyboardInterrupt()]
)
def test_a_writer_that_fails_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail():
        with write_atomic(path) as file:
            file.write(b"new, but half of i")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]
    if isinstance(error, OSError):
        assert caught.value.errno == errno.ENOSPC
        assert str(path) in str(caught.value)
        assert "unchanged" in str(caught.value)
        assert "make room" in str(caught.value)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "/source"), ConnectionResetError(104, "reset")]
)
@pytest.mark.parametrize("write", [write_atomic, write_aside])
def test_an_error_of_something_else_stays_as_it_is(tmp_path, error, write):
    with pytest.raises(type(error)) as caught, write(tmp_path / "a"):
        raise error
    assert caught.value is error
    assert names(tmp_path) == []


def test_the_message_does_not_speak_of_an_old_file_where_there_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file was made; the folder .*nowhere does not exist"):
        write(tmp_path / "nowhere" / "a", b"x")


def test_a_process_killed_in_mid_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    code = """
import os, sys
from stradask._urls import write_atomic
with write_atomic(sys.argv[1]) as file:
    file.write(b"x" * 100_000)
    file.flush()
    os._exit(9)
"""
    assert in_another_process(code, path).returncode == 9
    assert path.read_bytes() == b"old"
    assert len(names(tmp_path)) == 2  # and a hidden rest


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    calls = []

    def record(name, real):
        monkeypatch.setattr(os, name, lambda *args: calls.append(name) or real(*args))

    record("fsync", os.fsync)
    record("replace", os.replace)
    write(tmp_path / "a", b"x")
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the folder


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_a_limit_on_file_sizes_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.npz"
    write_npz(path, {"x": np.arange(3)}, {})
    code = """
import resource, sys, numpy as np
from stradask.scheduler.stores.store import write_npz
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_npz(sys.argv[1], {"x": np.zeros(100_000)}, {})
except OSError as error:
    print(error)
"""
    done = in_another_process(code, path)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert "the file that was there is unchanged" in done.stdout
    assert read_npz(path)[0]["x"].tolist() == [0, 1, 2]
    assert names(tmp_path) == ["a.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_permissions_follow_the_umask_or_the_file_that_was_there(tmp_path):
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch()
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (new, old):
            write(path, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    old.chmod(0o604)
    write(old, b"y")
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


def test_a_symbolic_link_keeps_pointing(tmp_path):
    (tmp_path / "models").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(Path("models", "m1"))
    write(link, b"x")
    assert link.is_symlink()
    assert (tmp_path / "models" / "m1").read_bytes() == b"x"


def test_a_name_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    write(path, b"x")
    assert path.read_bytes() == b"x"


# --- npz ------------------------------------------------------------------------------------------

ARRAYS = {
    "floats": np.array([[0.1, np.nan], [-0.0, np.inf]]),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "strided": np.arange(20)[::3],
    "empty": np.empty((0, 4), dtype=np.uint8),
    "scalar": np.array(7.5),
    "flags": np.array([True, False]),
    "words": np.array(["ä", "bc"]),
    "file": np.arange(2),
}


def test_arrays_and_header_come_back(tmp_path):
    path = tmp_path / "a.npz"
    header = {"text": "grüße", "list": [1, None, 2.5, True], "none": {}}
    write_npz(path, ARRAYS, header)
    arrays, again = read_npz(path)
    assert again == header
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_numpy_reads_the_file_too(tmp_path):
    write_npz(tmp_path / "a.npz", {"x": np.arange(3)}, {"k": 1})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert file["x"].tolist() == [0, 1, 2]
        assert json.loads(file["header"].tobytes()) == {"k": 1}


def test_equal_content_gives_equal_bytes(tmp_path):
    for name in "ab":
        write_npz(tmp_path / name, ARRAYS, {"k": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("arrays", "header", "message"),
    [
        ({"x": np.array([{}])}, {}, "'x' holds Python objects"),
        ({"x": np.zeros(1, dtype=[("a", "O")])}, {}, "'x' holds Python objects"),
        ({"header": np.zeros(1)}, {}, "cannot have the name 'header'"),
        ({"../x": np.zeros(1)}, {}, "cannot have the name"),
        ({}, {"f": print}, "cannot be written as JSON"),
        ({}, {"n": np.int64(1)}, "cannot be written as JSON"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_file_is_made(tmp_path, arrays, header, message):
    with pytest.raises(DataError, match=message):
        write_npz(tmp_path / "a.npz", arrays, header)
    assert names(tmp_path) == []


def test_a_shape_that_shrank_is_caught_by_the_checksum(tmp_path):
    path = tmp_path / "a.npz"
    write_npz(path, {"x": np.ones((4, 3))}, {})
    content = path.read_bytes()
    assert content.count(b"'shape': (4, 3)") == 1
    path.write_bytes(content.replace(b"'shape': (4, 3)", b"'shape': (3, 3)"))
    with pytest.raises(ModelFileError, match=r"the checksum of x\.npy is wrong"):
        read_npz(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "a.npz")


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    for content in (b"", b"hello", b"PK\x03\x04" + b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"a\.npz (is empty|is truncated, damaged or not a file of)"):
            read_npz(path)
    np.savez(path, x=np.arange(3))
    with pytest.raises(ModelFileError, match="no header"):
        read_npz(path)
    for raw in (b"[1, 2]", b"3"):
        np.savez(path, header=np.frombuffer(raw, np.uint8))
        with pytest.raises(ModelFileError, match="has a header that stradask did not write"):
            read_npz(path)
    for raw in (b'{"a": ', b"\xff\xfe", b"[" * 100_000):
        np.savez(path, header=np.frombuffer(raw, np.uint8))
        with pytest.raises(ModelFileError, match="damaged"):
            read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"{}")
    with pytest.raises(ModelFileError, match="damaged"):
        read_npz(path)


# --- fingerprints ---------------------------------------------------------------------------------


def test_a_fingerprint_depends_on_everything_and_only_on_that():
    X = sparse.random_array((30, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    other_value, other_place, other_row = X.copy(), X.copy(), X.copy()
    other_value.data[3] += 1e-12
    other_place.indices[0] = 19 - other_place.indices[0]
    other_row.indptr[1] += 1
    wider = sparse.csr_array((X.data, X.indices, X.indptr), shape=(30, 21))
    narrow = X.astype(np.float32)
    same_bytes = sparse.csr_array((X.data.view(np.int64), X.indices, X.indptr), shape=X.shape)
    variants = [X, other_value, other_place, other_row, wider, narrow, same_bytes]
    assert len({fingerprint_csr(v) for v in variants}) == len(variants)
    assert fingerprint_csr(X) == fingerprint_csr(X.copy()) == fingerprint_csr(sparse.csr_matrix(X))
    assert fingerprint_csr(sparse.csr_array((0, 3))) != fingerprint_csr(sparse.csr_array((3, 0)))


def test_a_read_only_matrix_has_a_fingerprint():
    X = sparse.eye_array(4, format="csr")
    expected = fingerprint_csr(X)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert fingerprint_csr(X) == expected


# --- checkpoints ----------------------------------------------------------------------------------

MINE = {"alpha": 0.5, "n_components": 10, "X": "abc"}


def saved(folder, *rounds):
    checkpoint = Checkpoint(folder)
    for r in rounds:
        checkpoint.save(r, {"w": np.full(1000, r)}, {"seconds": r / 2}, MINE)
    return checkpoint


def test_the_newest_state_comes_back_and_two_are_kept(tmp_path):
    assert Checkpoint(tmp_path / "c").load(MINE) is None
    saved(tmp_path / "c", 5, 10, 15)
    round, arrays, header = Checkpoint(tmp_path / "c").load(MINE)
    assert (round, header) == (15, {"seconds": 7.5})
    np.testing.assert_array_equal(arrays["w"], np.full(1000, 15))
    assert names(tmp_path / "c") == ["manifest.json", "round-000000010.npz", "round-000000015.npz"]


def test_another_fingerprint_is_an_error_that_says_what_differs(tmp_path):
    checkpoint = saved(tmp_path, 5)
    other = {"alpha": 0.25, "n_components": 10, "seed": 3, "X": "abc"}
    message = r"alpha: 0\.5 in the checkpoint, 0\.25 here; also different: seed\."
    with pytest.raises(CheckpointMismatch, match=message):
        checkpoint.load(other)
    with pytest.raises(CheckpointMismatch, match=message):
        checkpoint.save(6, {}, {}, other)
    assert checkpoint.load(MINE)[0] == 5


def test_tuples_in_a_fingerprint_survive_json(tmp_path):
    Checkpoint(tmp_path).save(1, {}, {}, {"shape": (2, 3)})
    assert Checkpoint(tmp_path).load({"shape": (2, 3)})[0] == 1


def test_a_damaged_newest_state_falls_back_to_the_one_before(tmp_path):
    saved(tmp_path, 5, 10)
    newest = tmp_path / "round-000000010.npz"
    newest.write_bytes(newest.read_bytes()[:-100])
    checkpoint = Checkpoint(tmp_path)
    with pytest.warns(UserWarning, match=r"goes back to round 5, .*round-000000010\.npz is truncated"):
        assert checkpoint.load(MINE)[0] == 5
    # The fit goes on; the damaged state must not push the good one out.
    checkpoint.save(12, {}, {}, MINE)
    assert names(tmp_path) == ["manifest.json", "round-000000005.npz", "round-000000012.npz"]


def test_a_missing_newest_state_falls_back_too(tmp_path):
    saved(tmp_path, 5, 10)
    (tmp_path / "round-000000010.npz").unlink()
    with pytest.warns(UserWarning, match="goes back to round 5"):
        assert Checkpoint(tmp_path).load(MINE)[0] == 5


def test_a_state_of_another_round_or_fit_is_not_taken(tmp_path):
    saved(tmp_path / "a", 5, 10)
    Checkpoint(tmp_path / "b").save(10, {}, {}, {"other": 1})
    newest = tmp_path / "a" / "round-000000010.npz"
    for wrong in (tmp_path / "a" / "round-000000005.npz", tmp_path / "b" / "round-000000010.npz"):
        newest.write_bytes(wrong.read_bytes())
        with pytest.warns(UserWarning, match="belongs to another fit"):
            assert Checkpoint(tmp_path / "a").load(MINE)[0] == 5


def test_nothing_left_to_fall_back_to_is_an_error(tmp_path):
    saved(tmp_path, 5, 10)
    for state in tmp_path.glob("*.npz"):
        state.write_bytes(b"")
    with pytest.raises(
        ModelFileError, match=r"no state .* remove the folder to start anew .*000010\.npz is empty"
    ):
        Checkpoint(tmp_path).load(MINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged"),
        ('{"format": "stradask checkp', "is damaged"),
        ("[]", "was not written by stradask"),
        ('{"format": "other"}', "was not written by stradask"),
        (
            '{"format": "stradask checkpoint", "format_version": 3, "stradask": "9.0"}',
            "9.0.*upgrade stradask",
        ),
        ('{"format": "stradask checkpoint", "format_version": 2}', "is damaged"),
        (
            '{"format": "stradask checkpoint", "format_version": 2, "fingerprint": {}, "rounds": ["../x"]}',
            "is damaged",
        ),
    ],
)
def test_a_damaged_or_foreign_manifest_is_an_error(tmp_path, text, message):
    saved(tmp_path, 5)
    (tmp_path / "manifest.json").write_text(text)
    for use in (lambda c: c.load(MINE), lambda c: c.save(6, {}, {}, MINE)):
        with pytest.raises(ModelFileError, match=message):
            use(Checkpoint(tmp_path))


def test_going_back_to_an_earlier_round_drops_the_later_ones(tmp_path):
    saved(tmp_path, 5, 10, 7)
    assert Checkpoint(tmp_path).load(MINE)[0] == 7
    assert names(tmp_path) == ["manifest.json", "round-000000005.npz", "round-000000007.npz"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "c").touch()
    with pytest.raises(DataError, match="checkpoint must be a folder"):
        Checkpoint(tmp_path / "c")


def test_foreign_files_in_the_folder_stay(tmp_path):
    foreign = ["notes.txt", "round-1.npz", "round-000000001.npz.bak", ".round-000000001.npz.tmp"]
    for name in foreign:
        (tmp_path / name).touch()
    saved(tmp_path, 5, 10, 15)
    assert set(foreign) < set(names(tmp_path))


KILLED = """
import os, sys, numpy as np
from stradask.scheduler.stores import store

n_calls = 0
def dies(target, *args, real=os.replace):
    global n_calls
    n_calls += 1
    if n_calls == int(sys.argv[2]):
        os._exit(9)
    real(target, *args)
store.os.replace = dies
for r in (5, 10, 15):
    store.Checkpoint(sys.argv[1]).save(r, {"w": np.full(1000, r)}, {}, {"alpha": 0.5})
"""


@pytest.mark.parametrize(
    ("at", "expected"), [(1, None), (2, None), (3, 5), (4, 5), (5, 10), (6, 10), (7, 15)]
)
def test_a_process_killed_before_any_renaming_leaves_the_last_finished_state(tmp_path, at, expected):
    done = in_another_process(KILLED, tmp_path, at)
    assert done.returncode == (0 if at == 7 else 9), done.stderr
    fingerprint = {"alpha": 0.5}
    state = Checkpoint(tmp_path).load(fingerprint)
    assert (state and state[0]) == expected
    if state:
        np.testing.assert_array_equal(state[1]["w"], np.full(1000, expected))
    # The next save clears what the killed process left.
    Checkpoint(tmp_path).save(20, {}, {}, fingerprint)
    kept = [f"round-{r:09d}.npz" for r in (expected, 20) if r]
    assert names(tmp_path) == ["manifest.json", *kept]


def test_a_full_disk_leaves_the_states_before(tmp_path, monkeypatch):
    checkpoint = saved(tmp_path, 5, 10)

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", full)
        with pytest.raises(
            OSError, match="No space left on device, could not write; no file was made; make room"
        ):
            saved(tmp_path, 15)
    assert checkpoint.load(MINE)[0] == 10
    assert names(tmp_path) == ["manifest.json", "round-000000005.npz", "round-000000010.npz"]


def test_a_checkpoint_of_an_older_format_is_refused_by_name(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(1, {"x": np.zeros(1)}, {}, {})
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 2', '"format_version": 1'))
    with pytest.raises(ModelFileError, match="older format version 1"):
        checkpoint.load({})
