"""Npz files with a JSON header, and checkpoints."""

import hashlib
import json
import math
import os
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np

from ..._urls import is_url, open_file, write_atomic
from ..._version import __version__
from ...errors import CheckpointMismatch, DataError, ModelFileError, check_path, shortened

_HEADER = "header"
_KINDS = "biufUSMm"  # numbers, text and times
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def check_writer(version, remedy, file=""):
    """Raise a ModelFileError for a file of version 0.1, which version 0.2 reads."""
    if isinstance(version, str) and version.startswith("0.1."):
        raise ModelFileError(f"{file}is of stradask 0.1, which is no longer read: {remedy}")


def write_npz(path, arrays, header, *, follow=True):
    """Write arrays and a JSON header into one npz file, atomically; equal content gives equal bytes.

    Arrays have any name but ``"header"``, with ``/`` between its parts, and hold no objects; the header is
    stored as the array ``header`` of UTF-8 bytes. DataError for what cannot be written; see `write_atomic`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from stradask.scheduler.stores.store import read_npz, write_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(f"{folder}/a.npz", {"x": np.arange(3)}, {"unit": "m"})
    ...     read_npz(f"{folder}/a.npz")
    ({'x': array([0, 1, 2])}, {'unit': 'm'})
    """
    write = npz_writer(arrays, header)
    with write_atomic(path, follow=follow) as file:
        write(file)


def npz_writer(arrays, header):
    """Return the function that writes the content of a `write_npz` into an open file."""
    members = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in members.items():
        if array.dtype.hasobject:
            raise DataError(
                f"the array {shortened(name)} holds Python objects; only numbers and strings are written"
            )
        if name == _HEADER or not re.fullmatch(r"\w[\w.\-]*(/\w[\w.\-]*)*", name):
            raise DataError(f"an array cannot have the name {shortened(name)} in a file")
    try:
        text = json.dumps(header)
    except (TypeError, ValueError) as error:
        raise DataError(f"the header cannot be written as JSON: {error}") from error
    members[_HEADER] = np.frombuffer(text.encode(), dtype=np.uint8)

    def writer(file):
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in members.items():
                info = zipfile.ZipInfo(f"{name}.npy")  # with the fixed date of 1980, and not compressed
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return writer


def read_npz(path):
    """Read the arrays and the header that `write_npz` wrote; no pickle is ever read.

    Every byte is checked against its checksum before it is parsed. Memory: the size of the file, whatever it
    states of itself, since nothing in it may be compressed or be there twice. ModelFileError if the file is
    truncated, damaged or not one of stradask's; OSError if it cannot be opened.
    """
    if not is_url(path):
        check_path(path)
    with open_file(path) as file:
        return opened_npz(file, path)


def opened_npz(file, path):
    """Read an open file as `read_npz` does; errors call it `path`."""
    if not file.read(1):
        raise ModelFileError(f"{path} is empty: not a file of stradask, or one cut off at the start")
    try:
        with zipfile.ZipFile(file) as archive:
            _check_members(archive.infolist(), file.seek(0, os.SEEK_END))
            damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if _HEADER not in members:
                raise ModelFileError(f"{path} has no header: it is not a file that stradask wrote")
            header = json.loads(_read_member(archive, members.pop(_HEADER)).tobytes())
            arrays = {name: _read_member(archive, info) for name, info in members.items()}
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:  # damage can surface as almost anything
        said = f"{path} is truncated, damaged or not a file of stradask: {error}"
        raise ModelFileError(f"{said}; give the file that the method save, or fit --save, wrote") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} has a header that stradask did not write")
    return arrays, header


def _check_members(members, n_bytes):
    """Check that reading all members takes no more memory than the file has bytes."""
    if any(info.compress_type != zipfile.ZIP_STORED for info in members):
        raise zipfile.BadZipFile("its arrays are compressed, as those of stradask never are")
    if sum(info.file_size for info in members) > n_bytes or len({i.filename for i in members}) < len(members):
        raise zipfile.BadZipFile("its arrays overlap")


def _read_member(archive, info):
    with archive.open(info) as member:
        read_header = _NPY_HEADERS[np.lib.format.read_magic(member)]
        shape, _, dtype = read_header(member)
        stated = member.tell() + math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and (
            dtype.kind not in _KINDS or not dtype.itemsize or stated != info.file_size
        ):
            raise ValueError(f"{info.filename} is not the array of {shape} {dtype} that it states")
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def fingerprint_csr(X):
    """Hash a CSR matrix to 32 hexadecimal digits: shape, types, indices and values.

    It is read in place, a second or two a GB.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from stradask.scheduler.stores.store import fingerprint_csr
    >>> fingerprint_csr(sp.eye_array(3, format="csr")) == fingerprint_csr(sp.eye_array(4, format="csr"))
    False
    """
    digest = hashlib.blake2b(repr(tuple(int(n) for n in X.shape)).encode(), digest_size=16)
    for array in (X.indptr, X.indices, X.data):
        digest.update(f"{array.dtype.str}{len(array)};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Checkpoint:
    """A folder with the newest two states of a fit, each an npz file.

    ``manifest.json``, written last, names the files that count: a process that is killed at any moment leaves
    the last finished state. One fit at a time writes into a folder; files of other names are left alone.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from stradask.scheduler.stores.store import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(f"{folder}/fit")
    ...     print(checkpoint.load({"alpha": 1.0}))
    ...     checkpoint.save(5, {"w": np.ones(2)}, {"note": "x"}, {"alpha": 1.0})
    ...     checkpoint.load({"alpha": 1.0})
    None
    (5, {'w': array([1., 1.])}, {'note': 'x'})
    """

    _FORMAT = "stradask checkpoint"
    _VERSION = 2
    _KEPT = 2
    _OURS = re.compile(r"round-\d{9}\.npz|\.(round-\d{9}\.npz|manifest\.json)\.[0-9a-f]{12}\.tmp")

    def __init__(self, path):
        if not isinstance(path, (str, os.PathLike)):
            raise DataError(f"checkpoint must be the name of a folder, not a {type(path).__name__}")
        if "://" in str(path):
            raise DataError(f"checkpoint={shortened(str(path), 200)} is a URL; give a folder on this machine")
        check_path(path)
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"checkpoint must be a folder, but {self.path} is a file")
        self._lost: set[int] = set()  # rounds whose files were found damaged

    def save(self, round, arrays, header, fingerprint):
        """Add the state after `round` rounds, and drop all but the newest two.

        `header` and `fingerprint` (parameters and hashes of data) are dicts that JSON can hold.
        CheckpointMismatch if the folder holds the states of another fit; after an OSError the states before
        are still there.
        """
        fingerprint = json.loads(json.dumps(fingerprint))
        self.path.mkdir(parents=True, exist_ok=True)
        manifest = self._manifest()
        rounds = []
        if manifest is not None:
            self._compare(manifest["fingerprint"], fingerprint)
            rounds = [r for r in manifest["rounds"] if r < round and r not in self._lost]
        rounds = [*rounds, round][-self._KEPT :]
        whole = {"round": round, "fingerprint": fingerprint, "header": header}
        write_npz(self._file(round), arrays, whole, follow=False)  # a link could lead out of the folder
        manifest = {
            "format": self._FORMAT,
            "format_version": self._VERSION,
            "stradask": __version__,
            "fingerprint": fingerprint,
            "rounds": rounds,
        }
        text = json.dumps(manifest, indent=1)
        with write_atomic(self.path / "manifest.json", follow=False) as file:
            file.write(text.encode())
        self._tidy(rounds)

    def load(self, fingerprint):
        """Read the newest whole state as (round, arrays, header); None if there is none.

        Warns if the newest state is damaged and the one before it is taken. CheckpointMismatch says what
        differs from `fingerprint`; ModelFileError if no state, or the manifest, can be read.
        """
        manifest = self._manifest()
        if manifest is None:
            return None
        fingerprint = json.loads(json.dumps(fingerprint))
        self._compare(manifest["fingerprint"], fingerprint)
        trouble = []
        for round in reversed(manifest["rounds"]):
            try:
                arrays, header = self._state(round, fingerprint)
            except (OSError, ModelFileError) as error:
                trouble.append(str(error))
                self._lost.add(round)
                continue
            if trouble:
                warnings.warn(
                    f"the checkpoint goes back to round {round}, the newer one being lost: {trouble[0]}",
                    stacklevel=2,
                )
            return round, arrays, header
        raise ModelFileError(
            f"no state in the checkpoint {self.path} can be read; remove the folder to start anew "
            f"({'; '.join(trouble)})"
        )

    def _file(self, round):
        return self.path / f"round-{round:09d}.npz"

    def _state(self, round, fingerprint):
        arrays, header = read_npz(self._file(round))
        if header.get("round") != round or header.get("fingerprint") != fingerprint or "header" not in header:
            raise ModelFileError(f"{self._file(round)} belongs to another fit")
        return arrays, header["header"]

    def _manifest_bytes(self):
        return (self.path / "manifest.json").read_bytes()

    def _manifest(self):
        """Return the manifest, None if there is none; ModelFileError if it is damaged."""
        path = f"{self.path}/manifest.json"
        try:
            manifest = json.loads(self._manifest_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ModelFileError(f"{path} is damaged ({error}); remove the folder to start anew") from error
        if not isinstance(manifest, dict) or manifest.get("format") != self._FORMAT:
            raise ModelFileError(f"{path} was not written by stradask; use another folder as checkpoint")
        version = manifest.get("format_version")
        if isinstance(version, int) and version > self._VERSION:
            raise ModelFileError(
                f"{path} has the format version {version} of stradask {manifest.get('stradask')}, but "
                f"stradask {__version__} reads up to {self._VERSION}: upgrade stradask"
            )
        check_writer(manifest.get("stradask"), "finish the fit with version 0.2", f"{path} ")
        if isinstance(version, int) and version < self._VERSION:
            raise ModelFileError(
                f"{path} has the older format version {version}, of stradask {manifest.get('stradask')}: "
                "finish the fit with that version, or remove the folder to start anew"
            )
        rounds = manifest.get("rounds")
        if not (
            version == self._VERSION
            and isinstance(manifest.get("fingerprint"), dict)
            and isinstance(rounds, list)
            and rounds
            and all(type(r) is int and r >= 0 for r in rounds)
        ):
            raise ModelFileError(f"{path} is damaged; remove the folder to start anew")
        return manifest

    def _compare(self, there, here):
        if there == here:
            return
        absent = object()
        different = [
            name
            for name in sorted(there.keys() | here.keys())
            if there.get(name, absent) != here.get(name, absent)
        ]
        first, most = different[0], 45  # of the characters of each value
        was, is_now = (shortened(made.get(first, "nothing"), most) for made in (there, here))
        others = f"; also different: {', '.join(different[1:6])}" if len(different) > 1 else ""
        raise CheckpointMismatch(
            f"{first}: {was} in the checkpoint, {is_now} here{others}. The checkpoint {self.path} belongs to "
            "another fit; use the same parameters and data, or another folder, or remove it",
            {name: there.get(name) for name in different},
        )

    def _tidy(self, rounds):
        """Remove states that no longer count, and leftovers of killed processes."""
        kept = {self._file(r).name for r in rounds}
        for file in self.path.iterdir():
            if self._OURS.fullmatch(file.name) and file.name not in kept:
                file.unlink()
