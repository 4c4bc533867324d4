"""Public data sets, downloaded once and kept: the collections, their names, and how they are read."""

import re
from typing import Any, NamedTuple

import numpy as np

from .._typing import DTypeLike, FileName, Matrix
from ..errors import DataError, shortened
from ._downloads import DownloadError, File, data_folder, fetch, read_and_trust
from ._files import Reader
from .bag_of_words import read_uci_bow
from .ratings import Ratings
from .ratings import _read as _read_ratings
from .svmlight import read_svmlight

__all__ = [
    "CatalogueEntry",
    "DownloadError",
    "catalogue",
    "download",
    "fetch_libsvm",
    "fetch_movielens",
    "fetch_uci_bow",
]

_UCI_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"
_LIBSVM_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
_MOVIELENS_URL = "https://files.grouplens.org/datasets/movielens/"

_UCI = {
    "kos": "3,430 documents, 6,906 words (blog entries)",
    "nips": "1,500 documents, 12,419 words (papers)",
    "enron": "39,861 documents, 28,102 words (mails)",
    "nytimes": "300,000 documents, 102,660 words (news articles)",
    "pubmed": "8,200,000 documents, 141,043 words (abstracts)",
}

_LIBSVM = {
    "a9a": ("binary/a9a", "32,561 x 123, 2 classes"),
    "a9a.t": ("binary/a9a.t", "16,281 x 123, 2 classes"),
    "cod-rna": ("binary/cod-rna", "59,535 x 8, 2 classes"),
    "covtype.binary": ("binary/covtype.libsvm.binary.bz2", "581,012 x 54, 2 classes"),
    "gisette": ("binary/gisette_scale.bz2", "6,000 x 5,000, 2 classes"),
    "kdda": ("binary/kdda.bz2", "8,407,752 x 20,216,830, 2 classes"),
    "mushrooms": ("binary/mushrooms", "8,124 x 112, 2 classes"),
    "news20.binary": ("binary/news20.binary.bz2", "19,996 x 1,355,191, 2 classes"),
    "phishing": ("binary/phishing", "11,055 x 68, 2 classes"),
    "rcv1.binary": ("binary/rcv1_train.binary.bz2", "20,242 x 47,236, 2 classes"),
    "rcv1.binary.t": ("binary/rcv1_test.binary.bz2", "677,399 x 47,236, 2 classes"),
    "real-sim": ("binary/real-sim.bz2", "72,309 x 20,958, 2 classes"),
    "url": ("binary/url_combined.bz2", "2,396,130 x 3,231,961, 2 classes"),
    "w8a": ("binary/w8a", "49,749 x 300, 2 classes"),
    "webspam": ("binary/webspam_wc_normalized_trigram.svm.xz", "350,000 x 16,609,143, 2 classes"),
    "mnist.scale": ("multiclass/mnist.scale.bz2", "60,000 x 780, 10 classes"),
    "news20": ("multiclass/news20.bz2", "15,935 x 62,061, 20 classes"),
    "E2006-tfidf": ("regression/E2006.train.bz2", "16,087 x 150,360, regression"),
    "YearPredictionMSD": ("regression/YearPredictionMSD.bz2", "463,715 x 90, regression"),
    "abalone": ("regression/abalone", "4,177 x 8, regression"),
}

# Archive, member, the MD5 that GroupLens publishes with the archive, size.
_MOVIELENS = {
    "100k": (
        "ml-100k.zip",
        "ml-100k/u.data",
        "md5:0e33842e24a9c977be4e0107933c0723",
        "100,000 ratings, 943 users, 1,682 films",
    ),
    "1m": (
        "ml-1m.zip",
        "ml-1m/ratings.dat",
        "md5:c4d9eecfca2ab87c1945afe126590906",
        "1,000,209 ratings, 6,040 users, 3,706 films",
    ),
    "10m": (
        "ml-10m.zip",
        "ml-10M100K/ratings.dat",
        "md5:ce571fd55effeba0271552578f2648bd",
        "10,000,054 ratings, 69,878 users, 10,677 films",
    ),
    "20m": (
        "ml-20m.zip",
        "ml-20m/ratings.csv",
        "md5:cd245b17a1ae2cc31bb14903e1204af3",
        "20,000,263 ratings, 138,493 users, 26,744 films",
    ),
    "25m": (
        "ml-25m.zip",
        "ml-25m/ratings.csv",
        "md5:6b51fb2759a8657d3bfcbfc42b592ada",
        "25,000,095 ratings, 162,541 users, 59,047 films",
    ),
}


class CatalogueEntry(NamedTuple):
    """One data set that can be fetched."""

    name: str
    """Its name for `download`, unique in the catalogue."""
    kind: str
    """``"counts"`` (documents x words), ``"labelled"`` (samples with labels) or ``"ratings"``."""
    size: str
    """How large it is, in words."""
    url: str
    """Where its data file comes from."""
    cached: bool
    """Whether all its files lie in the cache folder."""


# ---- public ----


def fetch_uci_bow(
    name: str,
    *,
    dtype: DTypeLike = np.int32,
    data_home: FileName | None = None,
    base_url: str | None = None,
    verbose: int = 0,
) -> tuple[Matrix, list[str]]:
    """Fetch a corpus of the UCI "Bag of Words" collection.

    The files are downloaded on the first call and kept. UCI publishes no checksums: the files are trusted
    on first use (see Notes).

    Parameters
    ----------
    name : {"kos", "nips", "enron", "nytimes", "pubmed"}
        The corpus.
    dtype : dtype, default=numpy.int32
        Type of the counts.
    data_home : str or path-like, default=None
        Cache folder. When None, the environment variable STRADASK_DATA, and if that is not set the cache
        folder of this user (``pooch.os_cache("stradask")``).
    base_url : str, default=None
        Address of a mirror, under which the files have the same names.
    verbose : int, default=0
        Show progress bars.

    Returns
    -------
    X : csr_matrix of shape (n_documents, n_words)
        Counts.
    words : list of str
        The word of each column.

    Raises
    ------
    DownloadError
        A file is neither cached nor to be had, or its checksum is wrong. The message says from where to
        fetch it by hand and where to put it.
    DataError
        The name is unknown, or a file is not what it should be.

    Notes
    -----
    A transfer that breaks off is taken up where it stopped, in the same call and in later ones. After a
    file without a published checksum was read once without error, its SHA-256 is kept in
    ``checksums.json`` in the cache folder, and later calls compare with it.

    References
    ----------
    .. [1] D. Newman, "Bag of Words", UCI Machine Learning Repository, 2008.

    Examples
    --------
    >>> from stradask.datasets import fetch_uci_bow
    >>> X, words = fetch_uci_bow("kos", verbose=1)  # doctest: +SKIP
    """
    files = _uci_files(_checked_name(name, _UCI), base_url)
    home = data_folder(data_home)
    counts, vocabulary = (fetch(file, home, verbose) for file in files)
    return read_and_trust(lambda: read_uci_bow(counts, vocabulary, dtype=dtype, verbose=verbose), files, home)


def fetch_libsvm(
    name: str,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    multilabel: bool = False,
    data_home: FileName | None = None,
    base_url: str | None = None,
    verbose: int = 0,
) -> tuple[Matrix, Any]:
    """Fetch a data set of the LIBSVM collection.

    The file is downloaded on the first call and kept. The collection publishes no checksums: the file is
    trusted on first use, as `fetch_uci_bow` explains.

    Parameters
    ----------
    name : str
        A name of `catalogue`, such as ``"a9a"`` or ``"rcv1.binary"``, or the path of any file under the
        collection, such as ``"multiclass/letter.scale"``.
    n_features, dtype, multilabel
        As in `read_svmlight`.
    data_home, base_url, verbose
        As in `fetch_uci_bow`.

    Returns
    -------
    X : csr_matrix of shape (n_samples, n_features)
        The values.
    y : ndarray of shape (n_samples,), or list of tuples of float when `multilabel`
        The labels.

    Raises
    ------
    DownloadError
        The file is neither cached nor to be had, or its checksum is wrong.
    DataError
        The name is unknown, or the file is not what it should be.

    References
    ----------
    .. [1] C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", ACM TIST 2(3), 2011.

    Examples
    --------
    >>> from stradask.datasets import fetch_libsvm
    >>> X, y = fetch_libsvm("a9a")  # doctest: +SKIP
    """
    files = [_libsvm_file(name, base_url)]
    home = data_folder(data_home)
    path = fetch(files[0], home, verbose)
    return read_and_trust(
        lambda: read_svmlight(
            path, n_features=n_features, dtype=dtype, multilabel=multilabel, verbose=verbose
        ),
        files,
        home,
    )


def fetch_movielens(
    size: str = "100k",
    *,
    dtype: DTypeLike = np.float64,
    data_home: FileName | None = None,
    base_url: str | None = None,
    verbose: int = 0,
) -> Ratings:
    """Fetch the ratings of a MovieLens data set.

    The archive is downloaded on the first call, compared with the MD5 that GroupLens publishes, and kept;
    ratings are read from it without unpacking. GroupLens asks users to cite [1]_ and not to redistribute.

    Parameters
    ----------
    size : {"100k", "1m", "10m", "20m", "25m"}, default="100k"
        Number of ratings.
    dtype : dtype, default=numpy.float64
        Floating type of the ratings.
    data_home, base_url, verbose
        As in `fetch_uci_bow`.

    Returns
    -------
    ratings : Ratings
        ``(matrix, users, items)``, as `read_ratings` returns it.

    Raises
    ------
    DownloadError
        The archive is neither cached nor to be had, or its checksum is wrong.
    DataError
        The size is unknown, or the archive is not what it should be.

    References
    ----------
    .. [1] F. M. Harper, J. A. Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015.

    Examples
    --------
    >>> from stradask.datasets import fetch_movielens
    >>> ratings = fetch_movielens("100k")  # doctest: +SKIP
    """
    file = _movielens_file(_checked_name(size, _MOVIELENS, "size"), base_url)
    home = data_folder(data_home)
    reader = Reader(fetch(file, home, verbose), member=_MOVIELENS[size][1], verbose=verbose)
    return read_and_trust(lambda: _read_ratings(reader, None, "auto", 3, "last", dtype), [file], home)


def catalogue(data_home: FileName | None = None) -> list[CatalogueEntry]:
    """List the data sets that can be fetched by name.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Cache folder, as in `fetch_uci_bow`.

    Returns
    -------
    entries : list of CatalogueEntry
        ``(name, kind, size, url, cached)`` of each.

    Examples
    --------
    >>> from stradask.datasets import catalogue
    >>> [entry.name for entry in catalogue() if entry.kind == "counts"]
    ['kos', 'nips', 'enron', 'nytimes', 'pubmed']
    """
    home = data_folder(data_home)
    rows = [(name, "counts", size, _uci_files(name)) for name, size in _UCI.items()]
    rows += [(name, "labelled", size, [_libsvm_file(name)]) for name, (_, size) in _LIBSVM.items()]
    rows += [
        (f"movielens-{name}", "ratings", row[-1], [_movielens_file(name)]) for name, row in _MOVIELENS.items()
    ]
    return [
        CatalogueEntry(name, kind, size, files[0].url, all((home / file.place).is_file() for file in files))
        for name, kind, size, files in rows
    ]


def download(
    name: str, *, data_home: FileName | None = None, base_url: str | None = None, verbose: int = 0
) -> list[Any]:
    """Download the files of a data set into the cache, without reading them.

    Parameters
    ----------
    name : str
        A name of `catalogue`.
    data_home, base_url, verbose
        As in `fetch_uci_bow`.

    Returns
    -------
    paths : list of Path
        The files in the cache folder.

    Raises
    ------
    DownloadError
        A file is neither cached nor to be had, or its checksum is wrong.
    DataError
        The name is unknown.

    Examples
    --------
    >>> from stradask.datasets import download
    >>> download("movielens-100k")  # doctest: +SKIP
    """
    movielens = {f"movielens-{size}": size for size in _MOVIELENS}
    _checked_name(name, [*_UCI, *_LIBSVM, *movielens])
    if name in _UCI:
        files = _uci_files(name, base_url)
    elif name in _LIBSVM:
        files = [_libsvm_file(name, base_url)]
    else:
        files = [_movielens_file(movielens[name], base_url)]
    home = data_folder(data_home)
    return [fetch(file, home, verbose) for file in files]


# ---- names and places ----


def _checked_name(name, known, argument="name"):
    if name not in known:
        raise DataError(f"{argument}={shortened(name)} is not known; give one of {', '.join(known)}")
    return name


def _uci_files(name, base_url=None):
    names = (f"docword.{name}.txt.gz", f"vocab.{name}.txt")
    return [File(f"uci/{file}", _join(base_url or _UCI_URL, file), None) for file in names]


def _libsvm_file(name, base_url=None):
    path = _LIBSVM[name][0] if name in _LIBSVM else name
    # a path of the collection; the pattern keeps the file within the cache folder
    if not re.fullmatch(
        r"(?:binary|multiclass|multilabel|regression)(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)+", path
    ):
        raise DataError(
            f"name={shortened(name)} is not known; give one of {', '.join(_LIBSVM)}, "
            "or a path such as 'multiclass/letter.scale'"
        )
    return File(f"libsvm/{path}", _join(base_url or _LIBSVM_URL, path), None)


def _movielens_file(size, base_url=None):
    archive, _, checksum, _ = _MOVIELENS[size]
    return File(f"movielens/{archive}", _join(base_url or _MOVIELENS_URL, archive), checksum)


def _join(base_url, path):
    return f"{base_url.rstrip('/')}/{path}"
