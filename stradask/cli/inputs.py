"""DATA of the command line: its forms, their readers, and the data as read."""

from dataclasses import dataclass, replace
from typing import Any

from .._urls import file_size, is_file
from ..errors import DataError, in_brief
from .formats import kind_of, read_frame, read_npz_matrix
from .outputs import bars, say
from .ratings import Rated, has_named_columns, read_ratings_of
from .row_files import ROWS, ReadLater, of_files, parts_of
from .tables import NotNumbers, file_of, is_table, read_encoded, read_table

DOCSTRINGS = "docstrings"
_DENSE_LIMIT = 1.0  # GiB up to which a sparse matrix is made dense for models that need it


@dataclass(frozen=True)
class Counts:
    """Word counts (sparse, documents x words), with words of columns and names of documents, or None.

    Of texts, `left_out` says how many words and tokens each limit of `text_counts` left out.
    """

    X: Any
    source: str
    vocabulary: Any = None
    names: Any = None
    left_out: Any = None

    def describe(self):
        """Sizes, fit for JSON."""
        documents, words = self.X.shape
        tokens = float(self.X.sum(dtype="float64"))
        return {
            "source": self.source,
            "documents": documents,
            "words": words,
            "nonzeros": int(self.X.nnz),
            "tokens": int(tokens) if tokens.is_integer() else tokens,
        } | {
            f"{what}_left_out": {why: sizes[at] for why, sizes in self.left_out.items()}
            for at, what in enumerate(("words", "tokens"))
            if self.left_out is not None
        }

    def in_words(self):
        """Sizes, in words."""
        from ..datasets.texts import said_of

        sizes = self.describe()
        said = f"{sizes['documents']:,} documents, {sizes['tokens']:,} tokens, {sizes['words']:,} words"
        gone = said_of(self.left_out or {}, sizes["tokens"])
        return said + (f" ({gone[0]}: {', '.join(gone[1:])})" if gone else "")

    def rows(self, rows):
        """Return the documents of the given numbers."""
        return replace(self, X=self.X[rows], names=None if self.names is None else self.names[rows])

    def held_out(self, share, seed, option):
        """Divide the documents; return those to learn from and those to judge by."""
        from .reports.topics import check_test

        train, test = _divided(self, share, seed, option)
        check_test(test, option)
        return train, test

    @property
    def arguments(self):
        """What `fit` is given."""
        return (self.X,)


@dataclass(frozen=True)
class Labelled:
    """Rows of numbers (dense or sparse) with a target each, or None where the targets are not known.

    `classes` are the different labels, if the targets are labels; `vocabulary` names the columns. `encoding`
    says how the columns of a table became those of X, where they are not the same; `unknown` and `imputed`
    count cells with a category that it does not know, and cells without a value.
    """

    X: Any
    y: Any
    source: str
    classes: Any = None
    vocabulary: Any = None
    encoding: Any = None
    unknown: int = 0
    imputed: int = 0

    names = None  # rows have numbers only

    @property
    def nonzeros(self):
        """How many entries are not zero (of a sparse matrix, stored)."""
        import numpy as np

        return int(np.count_nonzero(self.X) if isinstance(self.X, np.ndarray) else self.X.nnz)

    def describe(self):
        """Sizes, fit for JSON."""
        rows, columns = self.X.shape
        sizes = {"source": self.source, "rows": rows, "columns": columns, "nonzeros": self.nonzeros}
        return sizes if self.classes is None else sizes | {"classes": self.classes.tolist()}

    def in_words(self):
        """Sizes, in words."""
        rows, columns = self.X.shape
        classes = "" if self.classes is None else f", {len(self.classes)} classes"
        said = f"{rows:,} rows, {columns:,} columns, {self.nonzeros:,} entries other than zero{classes}"
        named = [f"{c.name} ({len(c.values)})" for c in getattr(self.encoding, "columns", ()) if c.values]
        said += f"; categories: {in_brief(', '.join(named), 200)}" if named else ""
        return said + (f"; {self.imputed:,} missing cells imputed" if self.imputed else "")

    @property
    def has_targets(self):
        """Whether the targets are known."""
        return self.y is not None

    def scored(self, estimator):
        """What a score is made of: these rows."""
        return self

    def rows(self, rows):
        """Return the rows of the given numbers."""
        return replace(self, X=self.X[rows], y=self.y[rows])

    def held_out(self, share, seed, option):
        """Divide the rows, labels in equal shares; return those to learn from and those to judge by."""
        return _divided(self, share, seed, option, stratify=None if self.classes is None else self.y)

    @property
    def arguments(self):
        """What `fit` is given."""
        return self.X, self.y

    @property
    def named_arguments(self):
        """The same, with a record of the table's columns, by which `groups` may name them."""
        from ..algorithms.inputs.table_columns import TableColumns, with_table_columns

        columns = None
        if self.encoding is not None:
            columns = TableColumns.of_encoding(self.encoding)
        elif self.vocabulary is not None:
            columns = TableColumns.of_names([str(name) for name in self.vocabulary])
        return with_table_columns(self.X, columns), self.y


@dataclass(frozen=True)
class Files(ReadLater):
    """Files of documents that the fit itself, or the workers of a cluster, read; and the words, if known."""

    files: list
    vocabulary: Any = None

    @property
    def source(self):
        """DATA: the names of the files."""
        return self.files

    @property
    def arguments(self):
        """What `fit` takes."""
        return (self.files,)

    def held_out(self, share, seed, option):
        """Refuse: nothing of the files is here."""
        raise DataError(
            f"{option} holds out documents of one file that is read here: leave it out and "
            "score the saved model"
        )


def _divided(data, share, seed, option, stratify=None):
    import numpy as np
    from sklearn.model_selection import train_test_split

    try:
        train, test = train_test_split(
            np.arange(data.X.shape[0]), test_size=share, random_state=seed, stratify=stratify
        )
    except ValueError as error:
        raise DataError(f"{option} {share} cannot divide {data.source}: {error}") from error
    return data.rows(np.sort(train)), data.rows(np.sort(test))


def read_counts(source, vocab=None, *, n_features=None, words=None, verbose=0):
    """Read `Counts`: texts, docstrings, or a file of UCI bag of words, svmlight or `scipy.sparse.save_npz`.

    `vocab` is a file with the word of each column. `n_features` and `words` are those of the model which will
    read the counts: an svmlight file does not state its own, and of texts these words are counted.
    """
    if source == DOCSTRINGS:
        if vocab is not None:
            raise DataError("--vocab: docstrings come with their own vocabulary; leave it out")
        from ..datasets import load_docstrings

        corpus = load_docstrings()
        return Counts(corpus.X, source, corpus.vocabulary, corpus.names)
    if holds_texts(source):
        if vocab is not None:
            raise DataError(f"--vocab: {source} holds texts, whose words are counted; leave it out")
        from ..datasets.text_files import names_texts, read_texts
        from ..datasets.texts import text_counts, without_spaces

        found = read_texts(source, verbose=verbose)
        lines = words is None and not names_texts(source) and not any(map(without_spaces, found.texts))
        if lines and max(map(len, map(str.split, found.texts))) == 1:
            raise DataError(
                f"{source} has one word on each line, as a vocabulary has: give it as --vocab "
                "of a file of counts"
            )
        counted = text_counts(found, vocabulary=words)
        return Counts(counted.X, source, counted.vocabulary, counted.names, counted.left_out)
    kind = kind_of(source)
    if kind == "uci-bow":
        from ..datasets import read_uci_bow

        if vocab is None:
            return Counts(read_uci_bow(source, verbose=verbose), source)
        X, vocabulary = read_uci_bow(source, vocab, verbose=verbose)
        return Counts(X, source, vocabulary)
    if kind == "npz":
        X = read_npz_matrix(source)
    elif kind == "svmlight":
        from ..datasets import read_svmlight

        X = read_svmlight(source, n_features=n_features, verbose=verbose)[0]
    else:
        raise DataError(
            f"{source} holds {kind}; texts or word counts are needed: UCI bag of words, svmlight, or npz"
        )
    return Counts(X, source, _words(vocab, X, source))


def read_targets(source, vocab=None, *, n_features=None, encoding=None, verbose=0, labels=False, **learned):
    """Read `Labelled` rows from an svmlight file or a table, ``FILE:COLUMN``.

    A table of `n_features` columns has no targets; with ``labels`` targets may be text. A table with
    categories or missing cells is read by the `encoding` of a model, or, without a model, by one that is
    learned; `learned` are options for that (see `tables.read_encoded`).
    """
    if is_table(source):
        try:
            if encoding is not None or any(learned.values()):
                raise NotNumbers
            X, y, names = read_table(source, labels=labels, n_features=n_features, verbose=verbose)
        except NotNumbers:
            if n_features is not None and encoding is None:
                raise
            options = {"encoding": encoding, "labels": labels, "verbose": verbose} | learned
            X, y, encoding, counts = read_encoded(source, **options)
            if vocab is not None:
                raise DataError(f"--vocab: {file_of(source)} has a header with names; leave it out") from None
            return Labelled(X, y, source, None, encoding.names, encoding, *counts.tolist())
        if vocab is not None and names is not None:
            raise DataError(
                f"--vocab: {file_of(source)} has a header with the names of columns; leave it out"
            )
        return Labelled(X, y, source, None, names if vocab is None else _words(vocab, X, source))
    kind = "the name docstrings" if source == DOCSTRINGS else kind_of(source)
    if kind != "svmlight":
        raise DataError(
            f"{source} holds {kind}; rows with a target each are needed: an svmlight file "
            "(sklearn.datasets.dump_svmlight_file writes one), or a table, FILE.csv:COLUMN"
        )
    from ..datasets import read_svmlight

    X, y = read_svmlight(source, n_features=n_features, verbose=verbose)
    return Labelled(X, y, source, None, _words(vocab, X, source))


def _words(vocab, X, source):
    """Read the names of the columns of X, if there is a file of them."""
    return None if vocab is None else read_vocabulary(vocab, X.shape[1], source)


def with_target(source, column):
    """Join DATA and the column of ``--target``, if it was given."""
    if column is None:
        return source
    if not is_table(source):
        raise DataError(f"--target: {source} is not the name of a table, FILE.csv or FILE.tsv; leave it out")
    if file_of(source) != source:
        raise DataError(f"--target: {source} names a column already; leave one of the two out")
    return f"{source}:{column}"


def read_classes(source, vocab=None, **options):
    """Read rows of numbers with labels; see `read_targets`."""
    import numpy as np

    data = read_targets(source, vocab, labels=True, **options)
    if data.y is None:
        return data
    if data.y.dtype.kind == "U":
        return replace(data, classes=np.unique(data.y))
    whole = data.y.astype(np.int64)
    labels = whole if (whole == data.y).all() else data.y
    return replace(data, y=labels, classes=np.unique(labels))


def read_several(source, vocab=None, *, drop=(), encoding=None, form="COLUMN,COLUMN", **options):
    """Read rows with several targets each, from a table, ``FILE:COLUMN,COLUMN``; see `read_targets`."""
    import numpy as np

    if not is_table(source):
        raise DataError(f"{source} is no table; this model takes several targets: FILE.csv:{form}")
    path = file_of(source)
    columns = [name.strip() for name in source[len(path) + 1 :].split(",")]
    if encoding is not None and columns == [""]:
        return read_targets(source, vocab, encoding=encoding, **options)
    if len(columns) < 2 or not all(columns):
        raise DataError(f"{source}: this model takes several targets, as {path}:{form}")
    parts = [
        read_targets(
            f"{path}:{name}",
            vocab,
            drop=[*(drop or ()), *(other for other in columns if other != name)],
            encoding=encoding,
            **options,
        )
        for name in columns
    ]
    return replace(parts[0], y=np.column_stack([part.y for part in parts]), source=source)


def read_survival(source, vocab=None, **options):
    """Read rows with times and events, from a table, ``FILE:TIME,EVENT``; events are 1, censored rows 0."""
    data = read_several(source, vocab, form="TIME,EVENT", **options)
    if data.y is not None and data.y.shape[1] != 2:
        raise DataError(
            f"{source} names {data.y.shape[1]} columns; give two, as {file_of(source)}:TIME,EVENT"
        )
    return data


def _dense(read):
    """Read rows for models that need every entry; a svmlight file comes as a sparse matrix."""

    def read_dense(source, vocab=None, **options):
        data = read(source, vocab, **options)
        if not hasattr(data.X, "toarray"):
            return data
        rows, columns = data.X.shape
        size = 8 * rows * columns / 2**30
        if size > _DENSE_LIMIT and data.nonzeros < rows * columns / 20:
            raise DataError(
                f"{source}: this model needs all entries of X, {size:,.1f} GiB, of which most are zero; take "
                "sparse-logistic, logistic or lasso, or fewer columns"
            )
        return replace(data, X=data.X.toarray())

    return read_dense


def read_ratings(source, vocab=None, *, n_features=None, verbose=0):
    """Read `Rated`: lines of user, item, rating (see `stradask.datasets.read_ratings`), or a matrix (npz)."""
    import numpy as np

    if vocab is not None:
        raise DataError("--vocab: ratings have no words; titles of items come with --titles")
    if source == DOCSTRINGS:
        raise DataError("docstrings are no ratings; give a file of lines user,item,rating")
    if not has_named_columns(source) and kind_of(source) == "npz":
        R = read_npz_matrix(source).tocsr()
        return Rated(R, np.arange(R.shape[0]), np.arange(R.shape[1]), source)
    found = read_ratings_of(source, verbose)
    return Rated(found.matrix, found.users, found.items, source)


LEARNED = ("impute", "drop", "categories")  # options of tables with categories or missing cells
# What `Model.data` may say, and who reads it.
READERS = {
    "counts": read_counts,
    "targets": read_targets,
    "classes": read_classes,
    "several targets": read_several,
    "survival": read_survival,
    "dense targets": _dense(read_targets),
    "dense classes": _dense(read_classes),
    "ratings": read_ratings,
    "frame": read_frame,
}


def read(kind, source, args, **options):
    """Read DATA of a kind that `READERS` has, as the arguments say; or find the files that are read later."""
    found = of_files(source, args, fitting="n_features" not in options) if kind in ROWS else None
    if found is not None:
        return found
    learned = {name: value for name in LEARNED if (value := getattr(args, name, None))}
    return READERS[kind](source, args.vocab, verbose=bars(args), **options, **learned)


@dataclass(frozen=True)
class Source:
    """DATA of a fit: of which kind, and as the user names it; a list of files is read by the fit itself."""

    kind: str
    data: str | list

    def __str__(self):
        return self.data if isinstance(self.data, str) else " ".join(self.data)

    @property
    def files(self):
        """The files that it names."""
        return [file_of(self.data)] if isinstance(self.data, str) else self.data


def source_of(model, args):
    """Return the source that the DATA of a fit names; DataError where it does not go with the model."""
    several = len(args.data) > 1
    of_counts = model.data == "counts"
    apart = of_counts and (several or (args.cluster is not None and args.test_size is None))
    if apart:
        if args.target is not None and not model.responds:
            raise DataError(f"--target: {model.name} predicts nothing; leave it out")
        apart = not (args.data == [DOCSTRINGS] or any(name.endswith(".npz") for name in args.data))
        of_texts = [name for name in args.data if apart and is_file(file_of(name)) and holds_texts(name)]
        if several and of_texts:
            raise DataError(f"DATA: {of_texts[0]} holds texts; give it alone, or a folder of texts")
        apart = apart and not of_texts
    if several and not apart:
        raise DataError(
            f"DATA: {len(args.data)} files are a corpus only for lda, in the bag-of-words or in the "
            "svmlight format; give one"
        )
    if apart:
        return Source(model.data, args.data)
    if model.data in ROWS and parts_of(args.data[0], args.cluster is not None) is not None:
        return Source(model.data, args.data[0])
    if args.target is not None and model.data in ("counts", "ratings") and not model.responds:
        raise DataError(f"--target: the data of {model.name} have no target column; leave it out")
    for option in LEARNED:
        if getattr(args, option) and (model.data in ("counts", "ratings") or not is_table(args.data[0])):
            raise DataError(f"--{option}: for tables, FILE.csv:COLUMN, of linear models; leave it out")
    return Source(model.data, args.data[0] if model.responds else with_target(args.data[0], args.target))


def read_source(source, args):
    """Read the DATA of a fit, or find the files that the fit itself reads."""
    if isinstance(source.data, str):
        say(args, f"reading {in_brief(source, 200)}")
        return read(source.kind, source.data, args)
    say(args, f"{len(source.data)} files, read where the model is fitted")
    return read_files(source.data, args.vocab)


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


def holds_texts(source):
    """Whether DATA are texts: a table or a folder by name, a file by its first lines."""
    from ..datasets.text_files import names_texts

    return names_texts(source) or kind_of(source, texts=True) == "text"


def read_vocabulary(path, n_words, source):
    """Read a file of one word a line, `n_words` of them; `source` is named in errors."""
    from ..datasets.bag_of_words import read_vocabulary

    return read_vocabulary(path, n_words, source)


def describe(source, *, verbose=0):
    """Describe a data file; a dict for JSON."""
    if source == DOCSTRINGS or holds_texts(source):
        return read_counts(source, verbose=verbose).describe()
    if kind_of(source) != "npz":
        from ..datasets import describe_file

        return describe_file(source, verbose=verbose)
    X = read_npz_matrix(source)
    size = {"shape": list(X.shape), "dtype": X.dtype.name, "nnz": int(X.nnz), "sum": float(X.sum())}
    return {"path": source, "format": f"npz ({X.format})", "bytes": file_size(source), **size}
