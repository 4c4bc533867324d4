"""What the solvers of stradask's topic model share."""

import numpy as np


def matrix_of(data):
    """Build the CSR matrix."""
    from scipy.sparse import csr_matrix

    shape = (len(data.indptr) - 1, int(data.n_words))
    return csr_matrix((data.counts.astype(np.int32), data.indices, data.indptr), shape=shape)


def fit(settings, counts, watch, sampler, device):
    """Fit until the watch has had enough, a sweep a step; to warm up, one sweep."""
    import stradask

    once = watch.max_ticks is not None
    model = stradask.LatentDirichletAllocation(
        settings.n_components,
        sampler=sampler,
        device=device,
        doc_topic_prior=settings.doc_topic_prior,
        topic_word_prior=settings.topic_word_prior,
        optimize_priors=settings.optimize_priors,
        max_iter=10**9,
        n_jobs=settings.n_jobs,
        random_state=settings.seed,
    )
    return model.fit(
        counts,
        callback=lambda info: not watch.tick(info.updates, lambda: _snapshot(info.snapshot())) or once,
    )


def _snapshot(model):
    """Topics and counts."""
    return {
        "topic_word": model.topic_word_.astype(np.float32),
        "doc_topic_prior": np.broadcast_to(model.doc_topic_prior_, len(model.topic_word_)),
        "doc_topic": _triples(model.doc_topic_counts_),
        "word_topic": _triples(model.word_topic_counts_),
    }


def _triples(counts):
    counts = counts.tocoo()
    return np.column_stack([counts.row, counts.col, counts.data])
