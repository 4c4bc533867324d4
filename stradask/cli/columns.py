"""Columns of data held against those of a fitted model."""

import itertools
from dataclasses import replace

from ..errors import DataError, shortened


def aligned(counts, model, say):
    """Bring counts to the columns of a fitted model.

    Where both vocabularies are known and differ, columns are matched by their words, and words that the
    model does not know are left out.
    """
    ours = getattr(model, "vocabulary_", None)
    if ours is None or counts.vocabulary is None or list(ours) == list(counts.vocabulary):
        return counts
    import numpy as np
    from scipy import sparse

    column_of = {word: column for column, word in enumerate(ours)}
    if len(column_of) < len(ours):
        raise DataError(
            f"{counts.source}: its words differ from the model's, and the model's are not all different, so "
            "columns cannot be matched by their words; give the vocabulary that the model was fitted with"
        )
    columns = np.array([column_of.get(word, -1) for word in counts.vocabulary], dtype=np.int64)
    known = np.flatnonzero(columns >= 0)
    if not len(known):
        raise DataError(f"{counts.source}: the model knows none of its {len(columns):,} words")
    entries = (np.ones(len(known), dtype=counts.X.dtype), (known, columns[known]))
    moved = counts.X @ sparse.csr_array(entries, shape=(len(columns), len(ours)))
    say(
        f"note: columns are matched by their words; {len(columns) - len(known):,} of {len(columns):,} words, "
        f"with {counts.X.sum() - moved.sum():,.0f} of {counts.X.sum():,.0f} tokens, are unknown to the model"
    )
    return replace(counts, X=moved, vocabulary=list(ours))


def check_columns(read, model):
    """Refuse rows whose columns have other names than those that a model was fitted with."""
    ours = getattr(model, "vocabulary_", None)
    if ours is None or read.vocabulary is None or list(ours) == list(read.vocabulary):
        return
    pairs = itertools.zip_longest(ours, read.vocabulary)
    at, (own, other) = next((k, pair) for k, pair in enumerate(pairs) if pair[0] != pair[1])
    raise DataError(
        f"{read.source}: column {at} of the model is {shortened(own and str(own))}, that of the file "
        f"{shortened(other)}; give the file the model's columns, in their order"
    )
