"""Checkpoints in a place that all workers see: every worker writes its own shards.

The place is a URL that fsspec knows (``file:///mnt/all/fit``, ``s3://bucket/fit``). A state is a folder with
a file for each shard and block and one of the coordinator; the manifest, written last, names the folder and
the size of each file, so that a partial state never counts.
"""

import contextlib
import io
import json
import logging
import posixpath
import re
import secrets
from dataclasses import dataclass

from ... import _urls
from ..._version import __version__
from ...errors import DataError, ModelFileError, in_brief, shortened
from .copies import names_of
from .store import Checkpoint, npz_writer, opened_npz

_OWN = "coordinator.npz"
_FOLDER = re.compile(r"round-\d{9}-[0-9a-f]{8}")
_ASIDE = re.compile(r"\.manifest\.json\.[0-9a-f]{12}\.tmp")
_PART = re.compile(r"(coordinator|shard-\d+|block-\d+)\.npz")
_log = logging.getLogger("stradask")


def open_checkpoint(path):
    """Return the `Checkpoint` of a folder, or the `SharedCheckpoint` of a URL."""
    return SharedCheckpoint(path) if _urls.is_url(path) else Checkpoint(path)


def file_system(url):
    """Return fsspec's file system of the URL of a checkpoint, and the path in it."""
    return _urls.file_system(url, "checkpoint")


def write_part(url, folder, name, arrays):
    """Write a file of a state; return its size. It does not count before the manifest names it."""
    system, path = file_system(url)
    system.makedirs(posixpath.join(path, folder), exist_ok=True)
    with system.open(posixpath.join(path, folder, name), "wb") as file:
        npz_writer(arrays, {"part": name})(file)
        return file.tell()


@dataclass(frozen=True)
class StoredPart:
    """A reference to the file of one shard or block, which its reader opens itself."""

    url: str
    folder: str
    name: str

    def items(self):
        """Read pairs of name and array."""
        system, path = file_system(self.url)
        file = posixpath.join(path, self.folder, self.name)
        arrays, header = opened_npz(
            io.BytesIO(system.cat_file(file)), f"{self.url}/{self.folder}/{self.name}"
        )
        if header != {"part": self.name}:
            raise ModelFileError(f"{self.url}/{self.folder}/{self.name} belongs elsewhere; remove the folder")
        return arrays.items()

    def value(self):
        """Read the array of a block."""
        return dict(self.items())["value"]


@dataclass(frozen=True)
class StoredState:
    """A reference to all shards and blocks of a state; `sizes` has the bytes of each file."""

    url: str
    folder: str
    sizes: dict

    def part(self, name):
        """Return the `StoredPart` of ``"shard-3"`` or ``"block-7"``; None if there is none."""
        file = f"{name}.npz"
        return StoredPart(self.url, self.folder, file) if file in self.sizes else None

    def names(self, saved):
        """Return the names that `arrays` gives, where `saved` names the arrays of each shard."""
        return names_of([file.removesuffix(".npz") for file in self.sizes], saved)

    def arrays(self):
        """Read everything, under the names of `Session.snapshot`."""
        found = {}
        for file in self.sizes:
            name, part = file.removesuffix(".npz"), StoredPart(self.url, self.folder, file)
            if name.startswith("block-"):
                found[name] = part.value()
            elif name.startswith("shard-"):
                found.update({f"{name}/{key}": array for key, array in part.items()})
        return found


class SharedCheckpoint(Checkpoint):
    """A `Checkpoint` at a URL, with a file for each shard and block.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from stradask.scheduler.stores.shared_store import SharedCheckpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = SharedCheckpoint(f"file://{folder}/fit")
    ...     state = checkpoint.store(5, {"shard-0/w": np.ones(2), "block-0": np.zeros(1)})
    ...     checkpoint.finish(5, state, {"program/seed": np.array(3)}, {}, {"alpha": 1.0})
    ...     round, own, header = checkpoint.load({"alpha": 1.0})
    ...     round, own, checkpoint.state(5).arrays()["shard-0/w"]
    (5, {'program/seed': array(3)}, array([1., 1.]))
    """

    _FORMAT = "stradask shared checkpoint"
    _OURS = re.compile(rf"{_FOLDER.pattern}|{_ASIDE.pattern}|probe(-[0-9a-f]{{16}}-\d+)?")
    _VERSION = 1

    def __init__(self, url):
        self.url = url.rstrip("/")
        self.system, self.path = file_system(self.url)
        self._lost: set[int] = set()
        self._held = ""  # a folder that counts without a manifest, while the fit runs

    # Before the start ---------------------------------------------------------------------------------

    def leave_word(self):
        """Write a file with a random word for the workers to find; return the word."""
        word = secrets.token_hex(8)
        try:
            self.system.makedirs(self.path, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a link would lead out of the folder
                self.system.rm_file(self._at("probe"))
            self.system.pipe_file(self._at("probe"), word.encode())
        except OSError as error:
            raise DataError(
                f"checkpoint={shortened(self.url, 200)} cannot be written here ({in_brief(error)}): give a "
                "place that this process and all workers may write to"
            ) from error
        return word

    def check_answers(self, answers):
        """Check the files that workers wrote (see `answer_word`), and remove them."""
        missing = []
        for worker, (word, wrong) in answers.items():
            if not wrong:
                try:
                    there = self.system.cat_file(self._at(f"probe-{word}"))
                except OSError as error:
                    wrong = f"what it wrote is not seen here: {in_brief(error)}"
                else:
                    wrong = "" if there.decode() == worker else "what it wrote arrived as something else"
                    self.system.rm_file(self._at(f"probe-{word}"))
            if wrong:
                missing.append(f"{worker} ({wrong})")
        self.system.rm_file(self._at("probe"))
        if missing:
            raise DataError(
                f"checkpoint={shortened(self.url, 200)} must be the same place for this process and all "
                "workers, but is "
                f"not for {'; '.join(missing)}: share it, or give a folder's path without '://', and states "
                "are gathered and written here"
            )

    # States -------------------------------------------------------------------------------------------

    def folder_for(self, round):
        """Name the folder of a new state; an unfinished one before it counts no more."""
        self._held = f"round-{round:09d}-{secrets.token_hex(4)}"
        return self._held

    def store(self, round, arrays):
        """Write the shards and blocks of this process."""
        folder = self.folder_for(round)
        parts: dict[str, dict] = {}
        for name, array in arrays.items():
            part, _, key = name.partition("/")
            parts.setdefault(f"{part}.npz", {})[key or "value"] = array
        sizes = {name: write_part(self.url, folder, name, part) for name, part in parts.items()}
        return StoredState(self.url, folder, sizes)

    def check_seen(self, state):
        """Check that all files of workers are here: one that joined may see another place."""
        try:
            here = self.system.ls(self._at(state.folder), detail=True)
        except FileNotFoundError:
            here = []
        sizes = {posixpath.basename(entry["name"]): entry["size"] for entry in here}
        if missing := sorted(name for name, size in state.sizes.items() if sizes.get(name) != size):
            raise DataError(
                f"checkpoint={shortened(self.url, 200)}: workers wrote {missing[0]} and {len(missing) - 1} "
                "other files "
                "that are not seen here. Share the place with all workers, also with those that join later; "
                "the state before this one is kept, and the same fit goes on from it"
            )

    def finish(self, round, state, own, header, fingerprint):
        """Make a state, whose shards and blocks are written, the newest; drop old ones."""
        fingerprint = json.loads(json.dumps(fingerprint))
        manifest = self._manifest() or {"rounds": [], "states": {}, "fingerprint": fingerprint}
        self._compare(manifest["fingerprint"], fingerprint)
        whole = {"round": round, "fingerprint": fingerprint, "header": header}
        buffer = io.BytesIO()
        npz_writer(own, whole)(buffer)
        self.system.pipe_file(self._at(state.folder, _OWN), buffer.getvalue())
        rounds = [r for r in manifest["rounds"] if r < round and r not in self._lost]
        states = {str(r): manifest["states"][str(r)] for r in rounds}
        states[str(round)] = {"folder": state.folder, "sizes": state.sizes | {_OWN: buffer.tell()}}
        rounds = [*rounds, round][-self._KEPT :]
        manifest = {
            "format": self._FORMAT,
            "format_version": self._VERSION,
            "stradask": __version__,
            "fingerprint": fingerprint,
            "rounds": rounds,
            "states": {str(r): states[str(r)] for r in rounds},
        }
        self._replace("manifest.json", json.dumps(manifest, indent=1).encode())
        self.tidy({state["folder"] for state in manifest["states"].values()})

    def state(self, round):
        """Return the `StoredState` of a round that `load` has found whole."""
        known = self._manifest()["states"][str(round)]
        sizes = {name: size for name, size in known["sizes"].items() if name != _OWN}
        return StoredState(self.url, known["folder"], sizes)

    def save(self, round, arrays, header, fingerprint):
        """Write a state of this process; see `Checkpoint`."""
        shards = {name: a for name, a in arrays.items() if name.startswith(("shard-", "block-"))}
        own = {name: a for name, a in arrays.items() if name not in shards}
        self.finish(round, self.store(round, shards), own, header, fingerprint)

    def tidy(self, kept=None):
        """Remove states that no longer count, and leftovers of killed processes."""
        if kept is None:
            manifest = self._manifest()
            kept = {state["folder"] for state in manifest["states"].values()} if manifest else set()
        for entry in self.system.ls(self.path, detail=False):
            name = posixpath.basename(entry.rstrip("/"))
            if self._OURS.fullmatch(name) and name not in kept | {self._held}:
                try:
                    self.system.rm(entry, recursive=True)
                except OSError:  # a worker that was given up may be writing there; another time it goes
                    _log.info("%s could not be removed yet", entry, exc_info=True)

    # What `Checkpoint.load` asks for --------------------------------------------------------------------

    def _manifest(self):
        manifest = super()._manifest()
        if manifest is not None and not _names_states(manifest):
            raise ModelFileError(f"{self.url}/manifest.json is damaged; remove the folder to start anew")
        return manifest

    def _at(self, *names):
        return posixpath.join(self.path, *names)

    def _replace(self, name, content):
        """Write a file under another name and rename it."""
        aside = self._at(f".{name}.{secrets.token_hex(6)}.tmp")
        self.system.pipe_file(aside, content)
        self._rename(aside, self._at(name))

    def _rename(self, aside, there):
        try:
            self.system.mv(aside, there)
        except OSError:  # of a file system that renames to no name that is taken
            if not (self.system.exists(aside) and self.system.exists(there)):
                raise
            self.system.rm_file(there)
            self.system.mv(aside, there)

    def _manifest_bytes(self):
        """Read the manifest; if it was cut off while it was replaced, the new one, written before."""
        there, content = self._at("manifest.json"), None
        with contextlib.suppress(FileNotFoundError):
            content = self.system.cat_file(there)
        if content is not None and _is_json(content):
            return content
        for aside in sorted(self.system.ls(self.path, detail=False)):
            if _ASIDE.fullmatch(posixpath.basename(aside)) and _is_json(self.system.cat_file(aside)):
                self._rename(aside, there)
                return self.system.cat_file(there)
        if content is None:
            raise FileNotFoundError(there)
        return content

    def _state(self, round, fingerprint):
        known = self._manifest()["states"][str(round)]
        folder, sizes = known["folder"], known["sizes"]
        for name, size in sizes.items():
            found = self.system.info(self._at(folder, name))["size"]  # FileNotFoundError is an OSError
            if found != size:
                raise ModelFileError(f"{self.url}/{folder}/{name} has {found:,} bytes instead of {size:,}")
        content = io.BytesIO(self.system.cat_file(self._at(folder, _OWN)))
        arrays, header = opened_npz(content, f"{self.url}/{folder}/{_OWN}")
        if header.get("round") != round or header.get("fingerprint") != fingerprint or "header" not in header:
            raise ModelFileError(f"{self.url}/{folder} belongs to another fit")
        return arrays, header["header"]


def _is_json(content):
    """Whether bytes are a whole JSON document."""
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _names_states(manifest):
    """Whether a manifest names the folder and the file sizes of each round."""
    states = manifest.get("states")
    return (
        isinstance(states, dict)
        and states.keys() == set(map(str, manifest["rounds"]))
        and all(
            isinstance(state, dict)
            and _FOLDER.fullmatch(str(state.get("folder")))
            and isinstance(state.get("sizes"), dict)
            and all(_PART.fullmatch(name) and type(size) is int for name, size in state["sizes"].items())
            for state in states.values()
        )
    )


def answer_word(url, word, worker, number):
    """On a worker: read the word of `leave_word`, and write a file in answer.

    Returns the name of the answer and what is wrong, or "".
    """
    system, path = file_system(url)
    try:
        there = system.cat_file(posixpath.join(path, "probe"))
        if there.decode() != word:
            return word, "it sees another place under this name"
        system.pipe_file(posixpath.join(path, f"probe-{word}-{number}"), worker.encode())
    except OSError as error:
        return word, f"{type(error).__name__}: {in_brief(error)}"
    return f"{word}-{number}", ""
