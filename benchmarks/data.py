"""Data sets of the benchmarks by name; the named ones need no network."""

from pathlib import Path

from scipy.sparse import csr_array

from .. import datasets
from ..errors import DataError


def load_counts(name, seed):
    """Return a corpus as CSR counts, documents x words, without empty documents.

    `name` is "docstrings" (texts of the installed scientific packages), "synthetic" (about a million tokens
    drawn from a known model by `seed`), or the path of a docword file.
    """
    if name == "docstrings":
        counts, _ = datasets.load_docstrings()
    elif name == "synthetic":
        counts, *_ = datasets.make_lda_corpus(10_000, n_components=50, random_state=seed)
    elif Path(name).exists():
        counts = datasets.read_uci_bow(name)
    else:
        raise DataError(f"--dataset: {name!r} is neither docstrings nor synthetic nor a file that exists")
    counts = csr_array(counts)
    return counts[counts.sum(axis=1) > 0]
