"""Files of this machine and of object stores alike: a path, or any URL that fsspec opens (``s3://bucket/name``)."""

import errno
import glob
import os
import posixpath
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DataError, check_path, in_brief, shortened

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(::|://)")
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_SIGNS = "*?["
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of a file that is open


def is_url(path):
    """Whether a path is a URL: it begins with ``name://``, or, chained, with ``name::``."""
    return isinstance(path, str) and "://" in path and _URL.match(path) is not None


def file_system(url, called=None):
    """Return fsspec's file system of a URL, and the path in it; errors say what the URL is `called`."""
    named = f"{called}={shortened(url, 200)}" if called else shortened(url, 200)
    if _PASSWORD.search(url):
        hidden = shortened(_PASSWORD.sub("://...@", url), 200)
        raise DataError(
            f"{hidden}: a password in a URL would be shown in messages and stored in files; set it in "
            "fsspec's configuration (~/.config/fsspec, or in the environment, such as FSSPEC_FTP_PASSWORD)"
        )
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise DataError(
            f"{named} is a URL, which needs fsspec (pip install fsspec); a path on this machine does not"
        ) from error
    import tarfile
    import zipfile

    try:
        # fsspec remembers listings of what others have written since
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise DataError(f"{named} is no URL that fsspec can use here: {in_brief(error)}") from error


def open_file(path):
    """Open a file to read bytes; OSError if it cannot be, as of a file of this machine."""
    if not is_url(path):
        return open(path, "rb")
    system, inner = file_system(path)
    with _as_oserror(path):
        return system.open(inner, "rb")


def file_size(path):
    """Bytes of a file; OSError if there is none."""
    if not is_url(path):
        return os.path.getsize(path)
    system, inner = file_system(path)
    with _as_oserror(path):
        size = system.size(inner)
    if size is None:
        what = "its server does not say how long it is; download it first, or put filecache:: before the URL"
        raise OSError(errno.EIO, what, path)
    return int(size)


def file_stamp(path):
    """Text that changes with the contents of a file: its length, and its time or its tag; OSError if none."""
    if not is_url(path):
        found = os.stat(path)
        return f"{found.st_size} {found.st_mtime_ns}"
    system, inner = file_system(path)
    with _as_oserror(path):
        info = system.info(inner)
    names = ("size", "ETag", "etag", "LastModified", "last_modified", "mtime", "created")
    return " ".join(str(info[name]) for name in names if info.get(name) is not None)


def is_file(path):
    """Whether there is such a file."""
    return _answer(path, os.path.isfile, "isfile")


def is_folder(path):
    """Whether there is such a folder."""
    return _answer(path, os.path.isdir, "isdir")


def file_name(path):
    """The last part of a path or URL."""
    return posixpath.basename(path) if is_url(path) else os.path.basename(os.fspath(path))


def sibling(path, name):
    """The path or URL of another file of the same folder."""
    return f"{path.rpartition('/')[0]}/{name}" if is_url(path) else os.path.join(os.path.dirname(path), name)


def matching_files(pattern):
    """The files that fit a pattern with ``*``, ``?`` or ``[``; None if a path is no pattern."""
    if not any(sign in pattern for sign in _SIGNS) or is_file(pattern) or is_folder(pattern):
        return None
    if not is_url(pattern):
        return glob.glob(pattern)
    if "::" in pattern:
        raise DataError(f"{shortened(pattern, 200)}: patterns in chained URLs are not read; name the files")
    system, inner = file_system(pattern)
    with _as_oserror(pattern):
        return [_full(pattern, path) for path in system.glob(inner)]


def files_below(folder):
    """All files of a folder and of its inner folders, sorted, as pairs of inner name and path or URL."""
    if not is_url(folder):
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return [(path.relative_to(folder).as_posix(), path) for path in files]
    system, inner = file_system(folder)
    root = inner.rstrip("/")
    with _as_oserror(folder):
        found = system.find(inner)
    return [(path[len(root) + 1 :], _full(folder, path)) for path in sorted(found)]


@contextmanager
def write_atomic(path, *, follow=True):
    """Open a binary file for writing that has its name only when it is whole.

    It is written under a temporary name, flushed to the disk and renamed. With `follow`, a symbolic link at
    `path` stays, and the file that it points to is replaced. After an error `path` is as it was before, and
    an OSError of this file (a full disk, for instance) says so with its name; only a killed process leaves a
    hidden file ``.NAME.*.tmp``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask._urls import write_atomic
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "note")
    ...     with write_atomic(path) as file:
    ...         size = file.write(b"whole")
    ...     path.read_bytes()
    b'whole'
    """
    if is_url(path):
        with write_url(path) as file:
            yield file
        return
    check_path(path)
    target = Path(os.fsdecode(path))
    target = Path(os.path.realpath(target)) if follow else target.parent.resolve() / target.name
    aside = target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.tmp")
    of_body = None
    try:
        with open(aside, "xb") as file:
            try:
                yield file
            except OSError as error:
                if error.filename is not None or error.errno not in _OF_WRITING:
                    of_body = error  # of another file, or of a connection
                raise
            file.flush()
            os.fsync(file.fileno())
        if follow or not target.is_symlink():
            with suppress(FileNotFoundError):
                shutil.copymode(target, aside)
        os.replace(aside, target)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and error is not of_body:
            raise _explained(error, target) from error
        raise
    _sync_folder(target.parent)


def _explained(error, target):
    """Return the same OSError, with the consequence for the file and the remedy."""
    remedy = {
        errno.ENOENT: f"the folder {target.parent} does not exist",
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
        errno.EFBIG: "raise the limit on file sizes",
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check your rights"),
        **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG), "check the name"),
    }.get(error.errno, "")
    was = "the file that was there is unchanged" if target.exists() else "no file was made"
    message = "; ".join(filter(None, [f"{error.strerror or error}, could not write", was, remedy]))
    return OSError(error.errno or errno.EIO, message, str(target))


def _sync_folder(folder):
    """Make a rename survive a power cut, where the system can (not on Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)


@contextmanager
def write_url(url):
    """Open what a URL names for writing; after an error there is what there was before."""
    system, inner = file_system(url)
    with _as_oserror(url):
        system.start_transaction()
        file = system.open(inner, "wb")
    whole = False
    try:
        yield file
        whole = True
    except OSError as error:
        if error.filename is not None:  # of another file
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or in_brief(error), url) from error
    finally:
        with _as_oserror(url):
            file.close()
            system.transaction.complete(commit=whole)


def _answer(path, of_path, method):
    if not is_url(path):
        return of_path(path)
    system, inner = file_system(path)
    with _as_oserror(path):
        return bool(getattr(system, method)(inner))


def _full(url, path):
    """The URL of a path in the file system of a URL."""
    scheme = url.partition("://")[0]
    return f"{scheme}://{path.removeprefix(f'{scheme}://')}"


@contextmanager
def _as_oserror(url):
    """Raise what libraries of object stores raise as the OSError that a file of this machine would give."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
    except PermissionError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), url) from error
    except Exception as error:
        what = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise OSError(getattr(error, "errno", None) or errno.EIO, in_brief(what), url) from error
