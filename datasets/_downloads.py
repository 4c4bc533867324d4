"""The cache of downloaded files, and the transfers that fill it.

`pooch` keeps the cache and compares checksums; the downloader given to it here goes on with a transfer
that broke off. Where the publisher gives no checksum, the file is trusted on first use: once it has been
read without error its SHA-256 is written to ``checksums.json`` in the cache folder, and every later call
compares with that.
"""

import json
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, StradaskError, check_path, shortened
from ._files import progress_bar, write_aside

_TRIES = 5  # of a transfer that gets no further
_TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte


class DownloadError(StradaskError):
    """A file that could not be downloaded; the message says where to put it by hand."""


class File(NamedTuple):
    """A file to fetch: its place in the cache, where it comes from, its checksum if one is published."""

    place: str
    url: str
    checksum: str | None


def data_folder(data_home):
    """The folder of fetched data: `data_home`, else STRADASK_DATA, else the user's cache folder."""
    if data_home is None:
        data_home = os.environ.get("STRADASK_DATA")
    if not data_home:
        import pooch

        data_home = pooch.os_cache("stradask")
    check_path(data_home)
    return Path(data_home).expanduser().resolve()


# ---- the cache ----


def fetch(file, home, verbose):
    """Return the path of a file in the cache, downloaded if it is not there or is not as it was."""
    import pooch

    target = home / file.place
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"data_home={shortened(str(home), 200)} cannot be used ({error.strerror}); give another folder"
        ) from None
    with _one_at_a_time(home), _quiet(pooch.get_logger()):
        known = file.checksum or _trusted(home).get(file.place)
        try:
            pooch.retrieve(
                file.url,
                known,
                fname=target.name,
                path=target.parent,
                downloader=_Downloader(target, verbose),
            )
        except ValueError as error:  # from pooch, of a checksum
            remedy = f"Put the right one at {target}"
            if file.checksum is None:
                remedy += f", or, to trust this one, take {file.place!r} out of {home / 'checksums.json'}"
            raise DownloadError(f"{file.url}: not the file that was expected ({error}). {remedy}") from None
    return target


def read_and_trust(read, files, home):
    """Read files, and if that succeeds keep the checksums of those for which none is known."""
    import pooch

    with _one_at_a_time(home):
        trusted = _trusted(home)
    new = [file.place for file in files if file.checksum is None and file.place not in trusted]
    try:
        result = read()
    except DataError as error:
        for path in (str(home / place) for place in new):
            if path in str(error):  # not the file is at fault where it is not named
                raise DataError(f"{error} (delete {path} to have it downloaded anew)") from None
        raise
    if new:
        with _one_at_a_time(home):
            trusted = _trusted(home) | {place: f"sha256:{pooch.file_hash(home / place)}" for place in new}
            with write_aside(home / "checksums.json") as handle:
                handle.write(json.dumps(trusted, indent=1, sort_keys=True).encode())
    return result


def _trusted(home):
    """Return the checksums of files that were trusted on first use, by their place in the cache."""
    path = home / "checksums.json"
    if not path.exists():
        return {}
    try:
        trusted = json.loads(path.read_text())
        if not isinstance(trusted, dict) or not all(isinstance(text, str) for text in trusted.values()):
            raise ValueError("not a table of texts")
    except ValueError as error:
        raise DataError(f"{path} is broken ({error}); delete it, and files will be trusted anew") from None
    return trusted


@contextmanager
def _one_at_a_time(home):
    """Let one process at a time change this cache folder, where the system has file locks."""
    try:
        import fcntl
    except ImportError:  # Windows: two downloads of one file at once are not told apart there
        yield
        return
    try:
        handle = (home / ".lock").open("ab")
    except PermissionError:  # a shared cache that only others may change: reading it needs no lock
        yield
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.getLogger("stradask").warning("waiting for another download into %s", home)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


@contextmanager
def _quiet(logger):
    """Silence pooch's messages; this module has its own."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---- the transfer ----


class _Downloader:
    """Downloads for pooch, by way of a ``.part`` file next to the target that outlives a broken transfer.

    The validator that the server gave (a strong ETag or Last-Modified) is kept with the part, so that a
    file that has changed meanwhile is begun anew and never pieced together from two versions.
    """

    def __init__(self, target, verbose):
        self._target = target
        self._part = target.with_name(target.name + ".part")
        self._validator = target.with_name(target.name + ".part.validator")
        self._verbose = verbose

    def __call__(self, url, output_file, pooch):
        import requests
        import urllib3

        broken = (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError, _CutOff)
        for attempt in range(1, _TRIES + 1):
            before = self._have()
            try:
                self._transfer(url)
            except broken as error:
                if attempt == _TRIES or self._have() <= before:  # no nearer to the end than before
                    raise self._error(url, error) from None
            except requests.RequestException as error:
                raise self._error(url, error) from None
            else:
                break
        self._part.replace(output_file)
        self._validator.unlink(missing_ok=True)

    def _have(self):
        return self._part.stat().st_size if self._part.exists() else 0

    def _error(self, url, reason):
        return DownloadError(
            f"{url} cannot be downloaded ({reason}). Fetch it by other means and put it at {self._target}"
        )

    def _transfer(self, url):
        import requests

        have = self._have() if self._validator.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # a .gz file as it is, not unpacked on the way
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": self._validator.read_text()}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416 and have:  # nothing is left to send, or the file is shorter now
                self._validator.unlink()
                return self._transfer(url)
            response.raise_for_status()
            if response.status_code != 206:
                have = 0  # the whole file comes: another version, or a server that knows no ranges
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                self._validator.unlink()
                raise _CutOff("the server sent another range than it was asked for")
            if not have:  # a kill from here on must not leave old bytes under a new validator
                self._part.unlink(missing_ok=True)
            self._keep_validator(response.headers)
            length = response.headers.get("Content-Length")
            total = None if length is None else have + int(length)
            self._write(response.raw.stream(1 << 18, decode_content=False), have, total)

    def _keep_validator(self, headers):
        validator = headers.get("ETag", "")
        if not validator.startswith('"'):  # a weak one vouches for the meaning, not for the bytes
            validator = headers.get("Last-Modified", "")
        if validator:
            self._validator.write_text(validator)
        else:
            self._validator.unlink(missing_ok=True)

    def _write(self, chunks, have, total):
        with (
            self._part.open("ab" if have else "wb") as handle,
            progress_bar(total, self._target.name, self._verbose) as bar,
        ):
            bar.update(have)
            for chunk in chunks:
                handle.write(chunk)
                bar.update(len(chunk))
        if total is not None and self._have() != total:
            raise _CutOff(f"the transfer ended after {self._have()} of {total} bytes")


class _CutOff(Exception):
    """A transfer that ended before its end without another error."""
