"""Topic models whose corpus lies in shards: on a cluster of Dask workers, or in files on one machine."""

import os

import numpy as np

from ...datasets.document_files import document_files, is_compressed
from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.session import open_session, own_threads
from ...scheduler.threads import effective_n_jobs
from .._validation import check_counts, check_width
from ..linear.dask_input import is_dask
from ..linear.distributed import place
from .annealing import annealed_sweeps
from .out_of_core import (
    AT_ONCE,
    Plan,
    check_blocks_fit,
    memory_in_bytes,
    place_for_files,
    plan_for,
    shards_for,
)
from .rotating import RotatingGibbs, RotatingLight
from .rotating_warp import RotatingWarp
from .samplers import settled
from .shard_input import corpus_of, corpus_of_matrix
from .state import number_of_groups
from .storage import Storage
from .survey import are_files, is_sharded, sources_of, survey

_PROGRAMS = {"auto": RotatingGibbs, "gibbs": RotatingGibbs, "light": RotatingLight, "warp": RotatingWarp}
# What to do where a fit needs all in one process.
_HERE = "fit the documents, or a sample of them, here with engine='local'"
_INSTEAD = {
    "seed_words": _HERE,
    "doc_labels": _HERE,
    "topics": _HERE,
    "warm_start": "to draw more sweeps of the same documents give a checkpoint and a larger max_iter; new "
    "ones are added by partial_fit in this process",
}


def fit_in_shards(model, X, callback=None, n_features=None, **known):
    """Fit a `LatentDirichletAllocation` whose documents lie in shards; `known` is refused.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Its parameters are checked.
    X : matrix of counts, or what `sources_of` takes
    callback : callable, optional
    n_features : int, optional
        Columns, for files.
    **known
        What only a fit to a matrix in one process takes; None where it is not given.
    """
    for name, value in known.items():
        if value is not None:
            what = f"engine={model.engine!r}" if model.engine != "local" else "files or Dask's data"
            raise DataError(
                f"{name} works with a matrix and engine='local' only, not with {what}: {_INSTEAD[name]}"
            )
    if model.sampler not in _PROGRAMS or model.device == "cuda":
        raise DataError(
            f"sampler={model.sampler!r} with device={model.device!r} works with a matrix and engine='local' "
            f"only: take one of {', '.join(_PROGRAMS)}, and device='cpu'"
        )
    engine = place(X, model.engine)
    memory = _memory(model, X, engine)
    plan = Plan(model.memmap_folder)
    if is_sharded(X):
        corpus, digest, exact, plan = _corpus_of_shards(model, X, engine, n_features, memory)
    else:
        X = check_counts(model, X, reset=True)
        check_width(X, n_features)
        n_shards = _number_of_shards(model, X)
        corpus, digest = corpus_of_matrix(X, n_shards), X
        exact = model.exact or (model.n_groups is None and n_shards == 1)
    alpha, beta = model._priors(corpus.summary.n_words, False)
    passes = 1 if model.sampler == "warp" else None
    anneals = annealed_sweeps(model.max_iter, passes) if not model.exact else 0
    options = {"exact": exact, "annealed": anneals, "fits_priors": model.optimize_priors}
    options |= {"folder": plan.folder, "at_once": plan.at_once}
    program = _PROGRAMS[model.sampler](corpus, model.n_components, alpha, beta, model._seed(), **options)
    if memory is not None:
        check_blocks_fit(program, memory)

    def snapshot(history, found):
        return model._copy()._read(found.in_order(corpus.rows), history, None)

    done = run(
        program,
        program.schedule,
        max_rounds=model.max_iter,
        engine=engine,
        n_jobs=_n_jobs(model),
        stop=settled(program, model.tol),
        callback=callback,
        snapshot=snapshot,
        checkpoint=model.checkpoint,
        checkpoint_every=program.measure_every,
        fingerprint=None if model.checkpoint is None else model._fingerprint(digest, program, None),
        label="LDA",
        verbose=model.verbose,
    )
    model._read(done.fetched.in_order(corpus.rows), done.history, None)
    if done.activity is not None:
        model.worker_history_ = done.activity.as_dict()
    return model


def _memory(model, X, engine):
    if model.memory_limit is None:
        return None
    if engine != "local" or not are_files(X):
        raise DataError(
            f"memory_limit={model.memory_limit!r} is for names of files and engine='local': a matrix is in "
            "memory already, and workers have limits of their own"
        )
    return memory_in_bytes(model.memory_limit)


def _n_jobs(model):
    """Threads: no more than shards that memory is for."""
    return model.n_jobs if model.memory_limit is None else min(effective_n_jobs(model.n_jobs), AT_ONCE)


def _corpus_of_shards(model, X, engine, n_features, memory):
    """Cut and survey what is no matrix; also whether one shard is all, so that totals can be live."""
    n_threads = 1 if engine == "local" else _n_threads(engine)
    at_least, n_jobs, folder = 1, _n_jobs(model), None
    if memory is not None:
        n_jobs, folder = 1, place_for_files(model.memmap_folder)
        files = document_files(X)
        n_bytes, compressed = sum(map(os.path.getsize, files)), any(map(is_compressed, files))
        at_least = shards_for(n_bytes, compressed, memory)
    sources = sources_of(X, 1 if model.exact else model.n_groups, max(n_threads, at_least))
    if model.exact and len(sources) > 1:
        raise DataError(
            f"exact=True keeps one group of documents, but X comes in {len(sources)} parts: give a matrix "
            "or set exact=False"
        )
    sources = _held(sources, engine)
    found, width, digest = survey(sources, engine, n_jobs, n_features, folder)
    plan = Plan(model.memmap_folder)
    if memory is not None:
        plan = plan_for(_PROGRAMS[model.sampler], found, model.n_components, memory, model.memmap_folder)
    figures = [(part["size"], part["words"], part["tokens"]) for part in found]
    model.n_features_in_ = width
    model.__dict__.pop("feature_names_in_", None)  # those of a matrix that was fitted before
    corpus = corpus_of(sources, figures, width, storage=Storage(folder))
    return corpus, digest, len(sources) == 1, plan


def _held(sources, engine):
    """Let Dask compute its data once, for the survey and the fit; an address has nobody to hold them."""
    if engine != "dask" or own_threads() is not None or not is_dask(sources[0]):
        return sources
    import distributed

    return distributed.default_client().compute(sources)


def _number_of_shards(model, X):
    if model.exact:
        return 1
    if model.n_groups is not None:
        return min(model.n_groups, X.shape[0])
    n_words = len(np.unique(X.indices))
    groups = number_of_groups(int(X.sum(dtype=np.int64)), n_words, model.n_components)
    if groups > 1 and own_threads() is None:
        groups = max(groups, _n_threads(model.engine))
    return min(groups, X.shape[0])


def _n_threads(engine):
    session = open_session(engine)
    try:
        return session.n_threads()
    finally:
        session.close()
