"""Real text with no network: the docstrings of the installed packages.

Every machine that can run stradask holds a few megabytes of prose about arrays, statistics,
optimisation, signals, clusters and files: the docstrings of numpy, scipy, scikit-learn, Dask and
the standard library. `load_docstrings` parses their source files (it imports none of them) and
counts words with scikit-learn's CountVectorizer. The steps, in the order of this file: find the
sources, take the docstrings out, keep their prose, drop repeats, count, and keep the counts.
"""

import ast
import contextlib
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import numbers
import os
import platform
import re
import sysconfig
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from .._typing import FileName, Names
from ..errors import DataError, shortened
from ._common import check_number
from ._downloads import data_folder
from ._files import write_aside

#: What `load_docstrings` reads by default; all of it comes with stradask.
DOCSTRING_PACKAGES = (
    "numpy",
    "scipy",
    "sklearn",
    "dask",
    "distributed",
    "numba",
    "joblib",
    "pooch",
    "tqdm",
    "python",
)

# Raised with every change of what follows, so that older caches are not taken for this one's.
_VERSION = 1
_MIN_TOKENS = 10  # of a document
_SAME = 0.8  # Jaccard similarity of two documents' words from which the later one is a repeat

# Folders with tests, or with other packages' code; and the parts of the standard library that
# some distributions leave out, which would make the corpus depend on who built Python.
_SKIPPED_FOLDERS = {"__pycache__", "test", "tests", "testing", "_tests"}
_SKIPPED_FOLDERS |= {"externals", "vendored", "_vendor", "_vendored", "site-packages", "dist-packages"}
_SKIPPED_FOLDERS |= {"distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo"}
_SKIPPED_FILES = re.compile(r"_?test_|conftest\.|turtle\.|_sysconfigdata")

# numpydoc: titles underlined with dashes; sections that are code or lists of names; doctests;
# lines "name : type" of a parameter list.
_TITLE = re.compile(r"^ *([A-Z][A-Za-z ]+)\n *[-=]{3,} *$", re.MULTILINE)
_NOT_PROSE = frozenset({"Examples", "References", "See Also"})
_DOCTEST = re.compile(r"^ *>>>.*?(?=\n *\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^ *[\w*`, ]+ : .*$", re.MULTILINE)
_ADDRESS = re.compile(r"\w+://\S+")

# A word: 3 to 20 letters that are no part of an identifier, a dotted or slashed name, a call, a
# keyword argument, a name in backticks, a role or directive of reStructuredText, or a LaTeX command.
_WORD = r"(?<![\w.:\\~@/`])[a-z]{3,20}(?!\w|\.\w|\(|=|::|/)"

# Words that say how a docstring is written, not what it is about. Leaving them out raises the mean
# NPMI of 50 topics from -0.10 to -0.08, and no topic is led by "default value number" any more.
_BOILERPLATE = """
    accepted accepts add added additional allow allowed allows applied apply appropriate arg args
    argument arguments array arrays assumed attribute attributes automatically available avoid bar
    based baz behavior behaviour bool boolean calculate calculated call called calling calls case
    cases certain change changed chosen class common compute computed computes computing considered
    contain containing contains convert converted correspond corresponding corresponds create
    created creates current currently def default defaults define defined defines depending
    deprecated desired details determine determined determines did different directly documentation
    does doesn don done dtype equal equivalent error errors example examples expected explicitly
    extra false field fields following follows foo form function functions generally gets given
    gives glossary guide higher holds ignored iii implement implementation implemented implements
    include included including indicate indicates indicating initial input inputs instance
    instances instead int internal isn kept kind known kwargs large larger let like make makes
    means method methods module modules multiple name named names necessary need needed needs new
    non none note notes null number object objects obtained occurs old operation option optional
    options original output outputs otherwise param parameter parameters particular pass passed
    passes passing perform performed performs possible present produce produces provide provided
    provides python raise raised raises read reference references represent representing represents
    require required requires respectively result resulting results return returned returning
    returns section seen self set sets setting should similar simple simply single small smaller
    special specific specified specifies specify str suitable support supported supports taken
    takes true try tuple type typeerror types typically underlying unless use used useful user uses
    using usually valid value valueerror values variable variables various version versionadded
    versionchanged want warning way ways works xxx
"""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Word counts with their words and the names of the documents; unpacks to counts and words.

    ``X, vocabulary = corpus`` is all that fitting takes; the rest is there by name.

    Attributes
    ----------
    X : csr_matrix of int32, shape (n_documents, n_words)
        How often each word stands in each document; sorted indices, no stored zeros.
    vocabulary : ndarray of str, shape (n_words,)
        The word of each column, in alphabetical order.
    names : ndarray of str, shape (n_documents,)
        Where each document comes from: the dotted path of its module, class or function. What
        stands before the first dot is the package.
    packages : dict
        Version of each package that was read; None where it states none.
    """

    X: sparse.csr_matrix
    vocabulary: np.ndarray
    names: np.ndarray
    packages: dict

    def __iter__(self):
        return iter((self.X, self.vocabulary))

    def __repr__(self):
        documents, words = self.X.shape
        versions = ", ".join(f"{name} {version or '?'}" for name, version in self.packages.items())
        return f"<Corpus: {documents} documents, {words} words, {self.X.sum()} tokens from {versions}>"


def load_docstrings(
    *,
    packages: Names | None = None,
    min_df: float = 5,
    max_df: float = 0.2,
    cache: bool = True,
    data_home: FileName | None = None,
) -> Corpus:
    """Load word counts of the docstrings of installed packages: real text with no network.

    One document is the docstring of one module, class, method or function, found by parsing the
    package's ``.py`` and ``.pyi`` files; nothing is imported. Tests are left out, and so are
    examples, references, lists of related functions, type declarations, addresses and anything
    that looks like code. Words are runs of 3 to 20 letters, in lower case, without scikit-learn's
    English stop words and some 250 words of docstring boilerplate ("default", "returned", ...).
    Of documents that share four fifths of their words (templates, copies) only the first is
    kept; documents of fewer than 10 words are dropped.

    The first call takes a few seconds and keeps its result in a file (half a megabyte); later
    calls read that. The result depends on nothing but the arguments and the versions of the
    packages, of scikit-learn and of Python.

    Parameters
    ----------
    packages : list or tuple of str, default=None
        Import names of installed packages, or ``"python"`` for the standard library. None reads
        `DOCSTRING_PACKAGES`, which come with stradask; ``"pandas"`` or ``"matplotlib"`` are worth
        adding where they are installed.
    min_df : int or float, default=5
        Leave out words in fewer documents than this; a float is a share of the documents.
    max_df : int or float, default=0.2
        Leave out words in more documents than this; a float is a share of the documents.
    cache : bool, default=True
        Whether to keep the result in a file and to use one that is there. A file that cannot be
        read or written costs a warning and the seconds, no more. A package whose version is not
        known is never cached, and one that was edited in place needs ``cache=False``.
    data_home : str or path, default=None
        Folder of the file; None is the folder named by the environment variable
        ``STRADASK_DATA``, or else the user's cache folder of stradask.

    Returns
    -------
    corpus : Corpus
        Unpacks to ``X, vocabulary``: the counts (CSR, int32) and the words. Has `names` (of the
        documents) and `packages` (their versions) besides.

    Raises
    ------
    DataError
        If a named package is not installed or has no docstrings in source files, or if no word
        is left between `min_df` and `max_df`.

    Examples
    --------
    >>> from stradask.datasets import load_docstrings
    >>> X, vocabulary = load_docstrings(packages=["joblib", "tqdm"], cache=False)
    >>> X.shape[1] == len(vocabulary)
    True
    >>> "parallel" in vocabulary
    True
    """
    for name, value in (("min_df", min_df), ("max_df", max_df)):
        whole = isinstance(value, numbers.Integral)
        check_number(name, value, *((1, math.inf) if whole else (0, 1)))
    import sklearn  # here and below where used: it imports pandas where that is installed

    roots = _roots(packages)
    versions = _versions(roots)
    path = None
    if cache and None not in versions.values():
        key = {
            "format": _VERSION,
            "packages": versions,
            "python": platform.python_version(),
            "sklearn": sklearn.__version__,
            "min_df": str(min_df),
            "max_df": str(max_df),
        }
        header = json.dumps(key)
        path = data_folder(data_home) / f"docstrings-{hashlib.sha256(header.encode()).hexdigest()[:16]}.npz"
        corpus = _read_cache(path, header, versions)
        if corpus is not None:
            return corpus
    X, vocabulary, names = _build(roots, min_df, max_df)
    if path is not None:
        _write_cache(path, header, X, vocabulary, names)
    return Corpus(X, vocabulary, names, versions)


# ---------------------------------------------------------------------------- the sources


def _roots(packages):
    """Folder (or file) of each package, in the order asked for."""
    if packages is not None and not isinstance(packages, (list, tuple)):
        raise DataError(f"packages must be a list or tuple of import names; got {shortened(packages)}")
    asked = DOCSTRING_PACKAGES if packages is None else packages
    for name in asked:
        if not isinstance(name, str):
            raise DataError(f"packages must hold import names (str); got {shortened(name)}")
    roots = {name: _root(name) for name in asked}
    for name in [name for name, root in roots.items() if root is None]:
        if packages is not None:
            raise DataError(
                f"packages: {shortened(name)} is not an installed package with source files; install it, "
                "or leave it out (top-level import names are wanted, such as 'sklearn')"
            )
        del roots[name]
    if not roots:
        raise DataError("packages: none of them is installed with its source files; name some that are")
    return roots


def _root(name):
    if name == "python":
        root = Path(sysconfig.get_path("stdlib"))
        return root if root.is_dir() else None
    if not name.isidentifier():  # "a.b" would import a
        return None
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as __main__
        return None
    if spec is None:
        return None
    place = next(iter(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None)
    if place is None:
        return None
    root = Path(place)
    return root if root.is_dir() or root.suffix == ".py" else None


def _versions(names):
    """Version of the distribution (or distributions) that each import name comes from, or None."""
    owners = {name: set(found) for name, found in importlib.metadata.packages_distributions().items()}
    versions = {
        name: "+".join(sorted(importlib.metadata.version(owner) for owner in owners.get(name, ()))) or None
        for name in names
    }
    if "python" in versions:
        versions["python"] = platform.python_version()
    return versions


def _sources(root):
    """Source files under `root` in an order that no file system changes."""
    if root.is_file():
        yield root
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for file in sorted(files):
            if file.endswith((".py", ".pyi")) and not _SKIPPED_FILES.match(file):
                yield Path(folder, file)


# ------------------------------------------------------------------------- the docstrings


def _docstrings(package, root):
    """Pairs (dotted name, docstring) of one package."""
    base = root if root.is_dir() else root.parent
    for path in _sources(root):
        source = path.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            continue
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):  # a template, or written for another Python
            continue
        parts = path.relative_to(base).with_suffix("").parts
        if root.is_file() or parts[-1] == "__init__":
            parts = parts[:-1]
        yield from _walk(tree, ".".join((package, *parts)))


def _walk(node, name):
    """Yield the docstrings of a module or class and of its definitions; functions' insides are private."""
    text = ast.get_docstring(node)
    if text:
        yield name, text
    if not isinstance(node, (ast.Module, ast.ClassDef)):
        return
    pending = list(reversed(node.body))
    while pending:
        child = pending.pop()
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _walk(child, f"{name}.{child.name}")
        elif isinstance(child, (ast.If, ast.Try)):  # definitions that depend on the platform
            branches = [child.body, *(h.body for h in getattr(child, "handlers", ())), child.orelse]
            pending.extend(reversed([statement for branch in branches for statement in branch]))


def _prose(text):
    """Return a docstring without code, lists of names and type declarations."""
    first, *rest = _TITLE.split(text)
    bodies = [body for title, body in zip(rest[::2], rest[1::2], strict=True) if title not in _NOT_PROSE]
    text = "\n".join([first, *bodies])
    for pattern in (_DOCTEST, _FIELD, _ADDRESS):
        text = pattern.sub(" ", text)
    return text


@contextlib.contextmanager
def _collector_paused():
    """Pause the garbage collector: syntax trees are many objects, and its scans double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ----------------------------------------------------------------------------- the counts


def _build(roots, min_df, max_df):
    """Counts, vocabulary and names of the documents of these packages."""
    names, texts = _documents(roots)
    try:
        counted = _count(texts, min_df, max_df)
    except ValueError as error:  # CountVectorizer: empty vocabulary, or no terms remain
        raise DataError(
            f"no word of these packages is left between min_df={min_df} and max_df={max_df} ({error}); "
            "name more packages, lower min_df or raise max_df"
        ) from error
    X, vocabulary, kept = counted
    return X, vocabulary, np.array([names[i] for i in kept])


def _documents(roots):
    names, texts = [], []
    with _collector_paused(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's escape sequences
        for package, root in roots.items():
            found = [(name, _prose(text)) for name, text in _docstrings(package, root)]
            if not found:
                raise DataError(
                    f"packages: no docstrings in the source files of {shortened(package)}; leave it out"
                )
            names += [name for name, _ in found]
            texts += [text for _, text in found]
    return names, texts


def _count(texts, min_df, max_df):
    """Counts and vocabulary of the texts that say something new, and which texts these are."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

    stop_words = sorted(ENGLISH_STOP_WORDS.union(_BOILERPLATE.split()))
    options = {"token_pattern": _WORD, "stop_words": stop_words, "dtype": np.int32}
    words = CountVectorizer(binary=True, **options).fit_transform(texts)
    kept = np.flatnonzero(~_repeats(words))
    vectorizer = CountVectorizer(min_df=min_df, max_df=max_df, **options)
    X = vectorizer.fit_transform([texts[i] for i in kept])
    long_enough = X.sum(axis=1).A1 >= _MIN_TOKENS
    X, kept = X[long_enough], kept[long_enough]
    occurs = np.bincount(X.indices, minlength=X.shape[1]) > 0
    if not occurs.any():
        raise ValueError(f"no document has {_MIN_TOKENS} words")
    X = sparse.csr_matrix(X[:, occurs])
    X.sort_indices()
    return X, vectorizer.get_feature_names_out()[occurs].astype(str), kept


def _repeats(words):
    """Mark each document whose words are those of an earlier one, to a Jaccard similarity of `_SAME`.

    Two such sets of n and m words must share one of the ``n - ceil(_SAME n) + 1`` rarest words of
    the one and of the other (prefix filtering), so only pairs that do are compared.
    """
    sizes = np.diff(words.indptr)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    rarity = np.bincount(words.indices, minlength=words.shape[1])[words.indices]
    order = np.lexsort((words.indices, rarity, rows))
    rank = np.arange(words.nnz) - words.indptr[rows]
    rare = rank < (sizes - np.ceil(_SAME * sizes) + 1)[rows]
    columns = words.indices[order][rare]
    prefix = sparse.csr_matrix((np.ones(len(columns), np.int32), (rows[rare], columns)), words.shape)
    pairs = sparse.triu(prefix @ prefix.T, k=1).tocoo()
    n, m = sizes[pairs.row], sizes[pairs.col]
    near = np.minimum(n, m) >= _SAME * np.maximum(n, m)
    first, second = pairs.row[near], pairs.col[near]
    repeated = np.zeros(len(sizes), dtype=bool)
    for start in range(0, len(first), 20_000):  # tens of megabytes at a time
        i, j = first[start : start + 20_000], second[start : start + 20_000]
        shared = words[i].multiply(words[j]).sum(axis=1).A1
        repeated[j[shared >= _SAME * (sizes[i] + sizes[j] - shared)]] = True
    return repeated


# ------------------------------------------------------------------------------ the cache


def _read_cache(path, header, versions):
    """The corpus in the file, or None where there is none or it is no good."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if file["header"].item() != header:
                raise ValueError("it was written for something else")
            parts = file["data"], file["indices"], file["indptr"]
            if not len(parts[2]) or parts[2][-1] != len(parts[1]):  # scipy would believe a negative end
                raise ValueError("its arrays do not fit together")
            X = sparse.csr_matrix(parts, shape=tuple(file["shape"]))
            vocabulary, names = file["vocabulary"], file["names"]
        X.check_format(full_check=True)
        if X.shape != (len(names), len(vocabulary)):
            raise ValueError("its arrays do not fit together")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        warnings.warn(f"{path}: this cache of docstrings is passed over ({error})", stacklevel=3)
        return None
    return Corpus(X, vocabulary, names, versions)


def _write_cache(path, header, X, vocabulary, names):
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_aside(path) as file:
            np.savez_compressed(file, header=header, vocabulary=vocabulary, names=names, **arrays)
    except (OSError, DataError) as error:
        warnings.warn(f"{path}: the docstrings could not be kept for the next call ({error})", stacklevel=3)
