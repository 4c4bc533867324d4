"""Inference on the blocks of Dask arrays: lazy, and where the blocks are."""

import numpy as np

from ....errors import DataError
from ...inputs.dask_arrays import check_new_blocks, without_names
from ...inputs.matrices import check_counts


def lazy_shares(model, X, doc_labels=None, **options):
    """Apply `TopicModel.transform` to the blocks of a Dask array; the result is one of float64.

    `options` are those of `transform`. The model goes to each worker once, without the fitted documents, and
    is used on the CPU.
    """
    X = _rows(model, X, doc_labels)
    chunks = (X.chunks[0], (len(model.doc_topic_prior_),))
    known = {"model": _light(model), "options": options}
    return X.map_blocks(_shares, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)), **known)


def lazy_shares_by_rows(model, X, rows_of, **options):
    """Apply a model's `_shares_by_rows` to blocks, each with its rows of the matrix ``rows_of(n_documents)``.

    Where sizes of blocks are not known, they are computed.
    """
    import dask
    import dask.array as da

    X = _rows(model, X, None)
    if np.isnan(X.chunks[0]).any():
        X = X.compute_chunk_sizes()
    ends, known = np.cumsum([0, *X.chunks[0]]), _light(model)
    rows, width = rows_of(int(ends[-1])), len(model.doc_topic_prior_)
    parts = []
    for number, block in enumerate(X.to_delayed().ravel()):
        own = rows[ends[number] : ends[number + 1]]
        part = dask.delayed(_shares_by_rows)(block, known, own, options)
        parts.append(da.from_delayed(part, (len(own), width), dtype=np.float64, meta=np.empty((0, 0))))
    return da.concatenate(parts)


def score_of_blocks(model, X, doc_labels):
    """Score the blocks of a Dask array by document completion: log-likelihood in all, and held-out tokens."""
    import dask

    X, known = _rows(model, X, doc_labels), _light(model)
    parts = [dask.delayed(_completed)(known, block) for block in X.to_delayed().ravel()]
    totals, n_tokens = zip(*dask.compute(*parts), strict=True)
    return sum(totals), sum(n_tokens)


def _rows(model, X, doc_labels):
    if doc_labels is not None:
        raise DataError("doc_labels works with a matrix, not with Dask's data: take the blocks one by one")
    return check_new_blocks(X, model)


def _light(model):
    """The model as a task of its own, for all blocks."""
    import dask

    known = without_names(model)
    known.doc_topic_counts_, known.doc_labels_, known.n_jobs, known.device = None, None, 1, "cpu"
    for name in ("design_", "labels_", "draws_"):  # of the fitted documents
        known.__dict__.pop(name, None)
    return dask.delayed(known, pure=False)


def _shares(block, model, options):
    if not block.shape[0]:
        return np.empty((0, len(model.doc_topic_prior_)))
    return model.transform(block, **options)


def _shares_by_rows(block, model, rows, options):
    if not block.shape[0]:
        return np.empty((0, len(model.doc_topic_prior_)))
    return model._shares_by_rows(check_counts(model, block, reset=False), rows, **options)


def _completed(model, block):
    if not block.shape[0]:
        return 0.0, 0
    return model._completed(check_counts(model, block, reset=False))
