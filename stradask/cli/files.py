"""Corpora that the command line does not read: names of files, for a fit that reads them in shards."""

import os
from dataclasses import dataclass
from typing import Any

from ..errors import DataError


@dataclass(frozen=True)
class Files:
    """Files of documents that the fit itself, or the workers of a cluster, read; and the words, if known."""

    paths: list
    vocabulary: Any = None

    @property
    def arguments(self):
        """What `fit` takes."""
        return (self.paths,)

    def describe(self):
        """Sizes, fit for JSON."""
        return {
            "source": self.paths,
            "files": len(self.paths),
            "bytes": sum(map(os.path.getsize, self.paths)),
        }

    def in_words(self):
        """Sizes, in words."""
        sizes = self.describe()
        return f"{sizes['files']:,} files of {sizes['bytes']:,} bytes"

    def held_out(self, share, seed, option):
        """Refuse: nothing of the files is here."""
        raise DataError(
            f"{option} holds out documents of one file that is read here: leave it out and "
            "score the saved model"
        )


def read_files(paths, vocabulary=None):
    """Find the files; nothing of them is read but the first lines and the vocabulary."""
    from ..datasets.bag_of_words import read_vocabulary
    from ..datasets.document_files import cut_files, document_files

    files = document_files(paths)
    words = None
    if vocabulary is not None:
        stated = max((p.stated[1] for (p, *_) in cut_files(files, len(files)) if p.stated), default=None)
        if stated is None:
            raise DataError(
                "--vocab is for files in the bag-of-words format, which state how many words there are"
            )
        words = read_vocabulary(vocabulary, stated, files[0])
    return Files(files, words)
