"""Readers, writers, generators with known truth, fetchers, and bundled real data.

Names are loaded when first used: ``import stradask.datasets`` imports none of pooch, tqdm, pandas,
matplotlib or numba.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .at_hand import load_docstrings
    from .bag_of_words import read_uci_bow, save_uci_bow
    from .bag_of_words_chunks import iter_uci_bow
    from .describe import describe_file
    from .fetchers import (
        CatalogueEntry,
        DownloadError,
        catalogue,
        download,
        fetch_libsvm,
        fetch_movielens,
        fetch_uci_bow,
    )
    from .generated_ratings import make_ratings
    from .generators import make_lda_corpus, make_sparse_classification, make_sparse_regression
    from .images import read_idx
    from .parquet import ParquetTable
    from .ratings import Ratings, read_ratings
    from .split import rating_split, split_tokens
    from .svmlight import read_svmlight
    from .text_files import Texts, read_texts
    from .texts import TextCounts

# Where each public name lives.
_PLACES = {
    "CatalogueEntry": ".fetchers",
    "DownloadError": ".fetchers",
    "ParquetTable": ".parquet",
    "Ratings": ".ratings",
    "TextCounts": ".texts",
    "Texts": ".text_files",
    "catalogue": ".fetchers",
    "describe_file": ".describe",
    "download": ".fetchers",
    "fetch_libsvm": ".fetchers",
    "fetch_movielens": ".fetchers",
    "fetch_uci_bow": ".fetchers",
    "iter_uci_bow": ".bag_of_words_chunks",
    "load_docstrings": ".at_hand",
    "make_lda_corpus": ".generators",
    "make_ratings": ".generated_ratings",
    "make_sparse_classification": ".generators",
    "make_sparse_regression": ".generators",
    "rating_split": ".split",
    "read_idx": ".images",
    "read_ratings": ".ratings",
    "read_svmlight": ".svmlight",
    "read_texts": ".text_files",
    "read_uci_bow": ".bag_of_words",
    "save_uci_bow": ".bag_of_words",
    "split_tokens": ".split",
}

__all__ = [
    "CatalogueEntry",
    "DownloadError",
    "ParquetTable",
    "Ratings",
    "TextCounts",
    "Texts",
    "catalogue",
    "describe_file",
    "download",
    "fetch_libsvm",
    "fetch_movielens",
    "fetch_uci_bow",
    "iter_uci_bow",
    "load_docstrings",
    "make_lda_corpus",
    "make_ratings",
    "make_sparse_classification",
    "make_sparse_regression",
    "rating_split",
    "read_idx",
    "read_ratings",
    "read_svmlight",
    "read_texts",
    "read_uci_bow",
    "save_uci_bow",
    "split_tokens",
]


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module 'stradask.datasets' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
