"""Checkpoints that workers write themselves, in a place that all of them see."""

import json
import os

import numpy as np
import pytest

from stradask.errors import CheckpointMismatch, DataError, ModelFileError
from stradask.scheduler import RotationSchedule, run
from stradask.scheduler.stores.shared_store import (
    SharedCheckpoint,
    StoredState,
    answer_word,
    open_checkpoint,
    write_part,
)
from stradask.scheduler.stores.store import Checkpoint
from stradask.scheduler.workers import open_session

pytest.importorskip("fsspec")
MARK = {"of": "this"}


def fill(checkpoint, round_, value):
    arrays = {"shard-0/w": np.full(3, value), "block-0": np.full(2, -value), "program/sum": np.array(value)}
    checkpoint.save(round_, arrays, {"n": round_}, MARK)


def files(tmp_path):
    return sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())


def test_the_newest_two_states_are_kept_and_the_newest_is_read(tmp_path):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}/fit")
    assert checkpoint.load(MARK) is None
    for round_ in (5, 10, 15):
        fill(checkpoint, round_, float(round_))
    round_, own, header = checkpoint.load(MARK)
    assert (round_, own["program/sum"], header) == (15, 15.0, {"n": 15})
    state = checkpoint.state(15)
    np.testing.assert_array_equal(state.arrays()["shard-0/w"], [15, 15, 15])
    np.testing.assert_array_equal(state.part("block-0").value(), [-15, -15])
    assert state.part("shard-7") is None
    assert len(files(tmp_path)) == 2 * 3 + 1
    with pytest.raises(CheckpointMismatch):
        checkpoint.load({"of": "that"})


@pytest.fixture
def in_memory(tmp_path):
    """A place without renames: fsspec copies there, and removes."""
    import fsspec

    url = f"memory://{tmp_path.name}/fit"
    yield url
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


def test_a_place_that_knows_no_rename(in_memory):
    checkpoint = SharedCheckpoint(in_memory)
    for round_ in (5, 10, 15):
        fill(checkpoint, round_, float(round_))
    assert SharedCheckpoint(in_memory).load(MARK)[0] == 15
    names = sorted(name.rsplit("/", 1)[1] for name in checkpoint.system.ls(checkpoint.path, detail=False))
    assert names[0] == "manifest.json"
    assert len(names) == 3


@pytest.mark.parametrize("when", ["removed", "half", "never"])
def test_a_manifest_that_was_cut_off_while_it_was_replaced(in_memory, monkeypatch, when):
    """A rename that refuses a taken name, or that is a copy, and a process that ends in the middle of it."""
    checkpoint = SharedCheckpoint(in_memory)
    fill(checkpoint, 5, 5.0)
    move = type(checkpoint.system).mv

    def mv(system, aside, there, **options):
        if when == "half":
            system.pipe_file(there, system.cat_file(aside)[:40])
            raise KeyboardInterrupt
        if system.exists(there):
            raise FileExistsError(there)
        if when == "removed":
            raise KeyboardInterrupt
        move(system, aside, there, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(checkpoint.system), "mv", mv)
        if when == "never":
            fill(checkpoint, 10, 10.0)
        else:
            with pytest.raises(KeyboardInterrupt):
                fill(checkpoint, 10, 10.0)
    found = SharedCheckpoint(in_memory).load(MARK)
    assert (found[0], found[1]["program/sum"]) == (10, 10.0)


def test_half_a_manifest_aside_is_none(in_memory):
    checkpoint = SharedCheckpoint(in_memory)
    assert checkpoint.load(MARK) is None
    aside = f"{checkpoint.path}/.manifest.json.{'0' * 12}.tmp"
    checkpoint.system.pipe_file(aside, b'{"format": ')
    assert checkpoint.load(MARK) is None
    fill(checkpoint, 5, 5.0)
    assert checkpoint.load(MARK)[0] == 5
    assert not checkpoint.system.exists(aside)


@pytest.mark.parametrize("harm", ["missing", "short", "own"])
def test_half_a_state_is_never_taken_for_a_whole_one(tmp_path, harm):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    fill(checkpoint, 5, 5.0)
    fill(checkpoint, 10, 10.0)
    (folder,) = [p for p in tmp_path.iterdir() if p.name.startswith("round-000000010-")]
    part = folder / ("coordinator.npz" if harm == "own" else "shard-0.npz")
    if harm == "missing":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="goes back to round 5"):
        round_, *_ = checkpoint.load(MARK)
    assert round_ == 5
    np.testing.assert_array_equal(checkpoint.state(5).arrays()["shard-0/w"], [5, 5, 5])
    for file in tmp_path.rglob("shard-0.npz"):
        file.unlink()
    with pytest.raises(ModelFileError, match="no state in the checkpoint"):
        checkpoint.load(MARK)


def test_a_state_that_was_not_finished_does_not_count_and_is_removed(tmp_path):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    fill(checkpoint, 5, 5.0)
    checkpoint.store(10, {"shard-0/w": np.ones(3), "block-0": np.ones(2)})  # and here the process dies
    again = SharedCheckpoint(f"file://{tmp_path}")
    assert again.load(MARK)[0] == 5
    fill(again, 10, 10.0)
    assert sum(name.startswith("round-000000010-") for name in os.listdir(tmp_path)) == 1


def test_damage_is_seen_where_it_is_read(tmp_path):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    fill(checkpoint, 5, 5.0)
    (part,) = tmp_path.rglob("shard-0.npz")
    content = bytearray(part.read_bytes())
    content[content.index(np.float64(5).tobytes())] ^= 1
    part.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"shard-0\.npz is truncated, damaged"):
        checkpoint.state(5).arrays()
    other = tmp_path.rglob("block-0.npz").__next__()
    part.write_bytes(other.read_bytes())
    with pytest.raises(ModelFileError, match="belongs elsewhere"):
        checkpoint.state(5).part("shard-0").items()


def test_the_word_that_proves_a_place(tmp_path):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}/fit")
    word = checkpoint.leave_word()
    good = answer_word(checkpoint.url, word, "tcp://a", 0)
    blind = answer_word(f"file://{tmp_path}/other", word, "tcp://b", 1)
    assert blind[1].startswith("FileNotFoundError")
    with pytest.raises(DataError, match=r"must be the same place .* not for tcp://b \(FileNotFound"):
        checkpoint.check_answers({"tcp://a": good, "tcp://b": blind})
    assert files(tmp_path) == []
    word = checkpoint.leave_word()
    assert "another place" in answer_word(checkpoint.url, "0" * 16, "tcp://a", 0)[1]
    with pytest.raises(DataError, match="what it wrote is not seen here"):
        checkpoint.check_answers({"tcp://a": (f"{word}-0", "")})


def test_files_of_others_are_left_alone(tmp_path):
    others = ["round-table.csv", "round-1/notes", "probes/a", "probe-of-water", ".manifest.json.mine"]
    for name in others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    checkpoint.leave_word()
    checkpoint.store(3, {"shard-0/w": np.ones(3)})  # neither it nor the word is needed any more
    fill(checkpoint, 5, 5.0)
    assert set(files(tmp_path)) >= set(others)
    assert len(files(tmp_path)) == len(others) + 4


def test_what_cannot_be_removed_yet_ends_no_fit(tmp_path, monkeypatch):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    checkpoint.store(3, {"shard-0/w": np.ones(3)})

    def busy(*args, **kwargs):
        raise OSError("a worker that was given up still writes there")

    with monkeypatch.context() as patch:
        patch.setattr(type(checkpoint.system), "rm", busy)
        fill(checkpoint, 5, 5.0)
    assert len(list(tmp_path.iterdir())) == 3
    checkpoint.tidy()
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint.load(MARK)[0] == 5


@pytest.mark.parametrize(
    "harm",
    [
        lambda m: m.pop("states"),
        lambda m: m.update(states=[]),
        lambda m: m["states"].pop("5"),
        lambda m: m["states"].update({"5": []}),
        lambda m: m["states"]["5"].pop("folder"),
        lambda m: m["states"]["5"].update(folder="../elsewhere"),
        lambda m: m["states"]["5"].update(sizes=["shard-0.npz"]),
        lambda m: m["states"]["5"]["sizes"].update({"../shard-0.npz": 3}),
        lambda m: m["states"]["5"]["sizes"].update({"shard-0.npz": "3"}),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path, harm):
    checkpoint = SharedCheckpoint(f"file://{tmp_path}")
    fill(checkpoint, 5, 5.0)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    harm(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFileError, match="is damaged; remove the folder"):
        checkpoint.load(MARK)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"checkpoint='file://.*' cannot be written here .*: give a place"):
        SharedCheckpoint(f"file://{tmp_path}/file/fit").leave_word()


def test_which_checkpoint_a_parameter_names(tmp_path):
    assert type(open_checkpoint(tmp_path)) is Checkpoint
    assert type(open_checkpoint(f"file://{tmp_path}")) is SharedCheckpoint
    with pytest.raises(DataError, match="checkpoint='nosuch://x/y' is no URL that fsspec can use"):
        open_checkpoint("nosuch://x/y")


# Fits -------------------------------------------------------------------------------------------------------


def interrupted(program, engine, url, rounds, after=None):
    callback = None if after is None else lambda info: info.round == after
    options = {"checkpoint": url, "checkpoint_every": 3, "fingerprint": MARK, "callback": callback}
    return run(program, RotationSchedule(4, 8), max_rounds=rounds, engine=engine, **options)


@pytest.fixture(scope="module")
def reference(make_rotation):
    program = make_rotation()
    run(program, RotationSchedule(4, 8), max_rounds=10)
    return program.sum


def test_a_fit_goes_on_wherever_it_was_written(engine, make_rotation, reference, tmp_path):
    url = f"file://{tmp_path}/fit"
    interrupted(make_rotation(), engine, url, 10, after=7)
    written = json.loads((tmp_path / "fit" / "manifest.json").read_text())
    assert written["rounds"] == [6, 7]
    assert len(written["states"]["7"]["sizes"]) == 4 + 8 + 1
    program = make_rotation()
    done = interrupted(program, engine, url, 10)
    assert program.sum == reference
    assert done.n_rounds == 10
    again = make_rotation()
    interrupted(again, "local", url, 10)  # on threads, from what a cluster wrote
    assert again.sum == reference


def test_nothing_of_the_shards_comes_to_the_client(
    one_process, make_rotation, reference, tmp_path, monkeypatch
):
    """What a lost worker would cost lies in the shared place, too."""
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", 0.0)
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 0.0)
    session = open_session(one_process.scheduler_address)
    session.snapshot = None  # not to be called
    losses = []

    def lose(info):
        if info.round == 5:
            session.is_complete = False  # as after a loss
            losses.append(files(tmp_path))

    program = make_rotation()
    options = {"checkpoint": f"file://{tmp_path}", "checkpoint_every": 100, "callback": lose}
    done = run(program, RotationSchedule(4, 8), max_rounds=10, engine=session, **options)
    assert program.sum == reference
    assert done.n_recoveries == 1
    assert len(losses[0]) == 12  # one state, which no manifest names yet
    assert len({name.split("/")[0] for name in losses[0]}) == 1


def test_a_place_that_workers_do_not_see_is_refused(one_process, make_rotation, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "stradask.scheduler.sessions.worker.answer_word", lambda url, word, *_: (word, "PermissionError: no")
    )
    with pytest.raises(DataError, match="share it, or give a folder's path without"):
        interrupted(make_rotation(), one_process.scheduler_address, f"file://{tmp_path}", 3)
    assert files(tmp_path) == []


@pytest.mark.parametrize("lost", ["shard-2.npz", "block-5.npz"])
def test_a_part_that_a_state_does_not_name_does_not_begin_anew(one_process, make_rotation, tmp_path, lost):
    url = f"file://{tmp_path}"
    interrupted(make_rotation(), one_process.scheduler_address, url, 3)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["states"]["3"]["sizes"][lost]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for engine in ("local", one_process.scheduler_address):
        with pytest.raises(ModelFileError, match=f"other shards or blocks: {lost[:7]}"):
            interrupted(make_rotation(), engine, url, 6)


def test_a_worker_that_writes_elsewhere_makes_no_state(one_process, make_rotation, tmp_path, monkeypatch):
    """It may have joined after all places were held against one another."""
    url, elsewhere = f"file://{tmp_path}/here", f"file://{tmp_path}/there"
    interrupted(make_rotation(), one_process.scheduler_address, url, 3)
    before = files(tmp_path)

    def astray(url, folder, name, arrays):
        return write_part(elsewhere if name == "shard-2.npz" else url, folder, name, arrays)

    monkeypatch.setattr("stradask.scheduler.sessions.worker_state.write_part", astray)
    with pytest.raises(DataError, match=r"shard-2\.npz and 0 other files that are not seen here"):
        interrupted(make_rotation(), one_process.scheduler_address, url, 6)
    assert set(files(tmp_path)) > set(before)
    monkeypatch.undo()
    program, straight = make_rotation(), make_rotation()
    assert interrupted(program, one_process.scheduler_address, url, 6).n_rounds == 6
    run(straight, RotationSchedule(4, 8), max_rounds=6)
    assert program.sum == straight.sum


def test_states_are_references(tmp_path):
    state = StoredState("file:///x", "round-1", {"shard-0.npz": 3})
    assert state.part("shard-0").folder == "round-1"
