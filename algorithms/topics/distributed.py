"""Topic models whose corpus lies in shards: on a cluster of Dask workers, or in files on one machine."""

import os
from dataclasses import replace

import numpy as np

from ...datasets.document_files import document_files, is_compressed
from ...errors import DataError
from ...scheduler.engine import run
from ...scheduler.session import open_session
from ...scheduler.threads import effective_n_jobs, own_threads
from .._validation import check_counts, check_width
from ..linear.dask_input import is_dask
from ..linear.distributed import place
from .annealing import annealed_sweeps
from .fitting import WARM_SWEEPS, derived
from .guidance import check_doc_labels, check_given_topics, check_seed_words
from .out_of_core import (
    AT_ONCE,
    Plan,
    check_blocks_fit,
    check_shards_fit,
    memory_in_bytes,
    place_for_files,
    plan_for,
    shards_for,
)
from .rotating import RotatingGibbs
from .rotating_light import RotatingLight
from .rotating_warp import RotatingWarp
from .samplers import check_knows, settled
from .shard_input import corpus_of, corpus_of_matrix, with_labels
from .state import number_of_groups
from .storage import Pool, Storage
from .survey import are_files, is_sharded, sources_of, survey

_PROGRAMS = {"auto": RotatingGibbs, "gibbs": RotatingGibbs, "light": RotatingLight, "warp": RotatingWarp}


def fit_in_shards(
    model, X, callback=None, n_features=None, vocabulary=None, seed_words=None, doc_labels=None, topics=None
):
    """Fit a `LatentDirichletAllocation` whose documents lie in shards.

    Parameters
    ----------
    model : LatentDirichletAllocation
        Its parameters are checked.
    X : matrix of counts, or what `sources_of` takes
    callback : callable, optional
    n_features : int, optional
        Columns, for files.
    vocabulary, seed_words, doc_labels, topics
        See `LatentDirichletAllocation.fit`.
    """
    _check_parameters(model, seed_words, doc_labels)
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
    n_words = corpus.summary.n_words
    alpha, beta = model._priors(n_words, False)
    seeds = check_seed_words(seed_words, model.n_components, n_words, model._columns(vocabulary))
    labels = check_doc_labels(doc_labels, corpus.summary.n_documents, alpha)
    topics = check_given_topics(topics, model.n_components, n_words)
    corpus = corpus if labels is None else with_labels(corpus, labels)
    options = {"exact": exact, "folder": plan.folder, "at_once": plan.at_once}
    seed = model._seed()  # once: of a RandomState the next one is another
    if topics is not None:
        at_hand = (corpus, model.n_components, alpha, beta, derived(seed, 0))
        corpus = _drawn_at_hand(at_hand, topics, options, engine, _n_jobs(model))
    anneals = all(known is None for known in (seeds, labels, topics)) and not model.exact
    passes = 1 if model.sampler == "warp" else None
    options |= {"annealed": annealed_sweeps(model.max_iter, passes) if anneals else 0}
    options |= {"fits_priors": model.optimize_priors, "seeds": seeds}
    program = _PROGRAMS[model.sampler](corpus, model.n_components, alpha, beta, seed, **options)
    if memory is not None:
        check_blocks_fit(program, memory)
        program.loads_at_once = 1

    def snapshot(history, found):
        return model._copy()._read(found.in_order(corpus.rows, labels), history, None)

    digest = None if model.checkpoint is None else model._fingerprint(digest, program, topics, labels)
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
        fingerprint=digest,
        label="LDA",
        verbose=model.verbose,
    )
    model._read(done.fetched.in_order(corpus.rows, labels), done.history, None)
    if done.activity is not None:
        model.worker_history_ = done.activity.as_dict()
    return model


def _check_parameters(model, seed_words, doc_labels):
    """Refuse what needs all documents in one process, or Gibbs sampling."""
    if model.sampler not in _PROGRAMS or model.device == "cuda":
        raise DataError(
            f"sampler={model.sampler!r} with device={model.device!r} works with a matrix and engine='local' "
            f"only: take one of {', '.join(_PROGRAMS)}, and device='cpu'"
        )
    if seed_words is None and doc_labels is None:
        return
    check_knows(model.sampler)
    if model.optimize_priors:
        raise DataError(
            "optimize_priors=True with seed_words or doc_labels works with a matrix and engine='local' only: "
            "set optimize_priors=False, or fit the documents, or a sample of them, here"
        )


def _drawn_at_hand(at_hand, topics, options, engine, n_jobs):
    """Let shards begin from topics drawn with the given ones at hand; `at_hand` begins a `RotatingGibbs`."""
    corpus = at_hand[0]
    program = FirstTopics(*at_hand, seeds=topics * float(sum(corpus.weights)), **options)
    done = run(program, program.schedule, max_rounds=WARM_SWEEPS, engine=engine, n_jobs=n_jobs, label="LDA")
    if done.reason == "interrupted":
        raise KeyboardInterrupt  # before there is anything new: the last model stays
    shards = [shard | {"topics": own} for shard, own in zip(corpus.shards, done.fetched, strict=True)]
    return replace(corpus, shards=shards)


class FirstTopics(RotatingGibbs):
    """Draws topics that another program begins from."""

    def collect(self, ask):
        """Fetch the topics of the shards' tokens: 2 bytes each, 4 above 65,535 topics."""
        arrays = ask(lambda session, messages: session.snapshot(messages))
        return [arrays[f"shard-{number}/topics"] for number in range(len(self.shards))]


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
    at_least, n_jobs, storage = 1, _n_jobs(model), Storage()
    if memory is not None:
        n_jobs, storage = 1, Pool(place_for_files(model.memmap_folder))
        files = document_files(X)
        n_bytes, compressed = sum(map(os.path.getsize, files)), any(map(is_compressed, files))
        at_least = shards_for(n_bytes, compressed, memory)
    sources = sources_of(X, 1 if model.exact else model.n_groups, max(n_threads, at_least))
    if model.exact and len(sources) > 1:
        raise DataError(
            f"exact=True keeps one group of documents, but X comes in {len(sources)} parts: give a matrix "
            "or set exact=False"
        )
    if memory is not None:
        check_shards_fit(sources, memory)
    sources = _held(sources, engine)
    found, width, digest = survey(sources, engine, n_jobs, n_features, storage)
    plan = Plan(model.memmap_folder)
    if memory is not None:
        plan = plan_for(_PROGRAMS[model.sampler], found, model.n_components, memory, model.memmap_folder)
    figures = [(part["size"], part["words"], part["tokens"]) for part in found]
    seen = [{"width": part["width"], "digest": part["digest"]} for part in found]
    model.n_features_in_ = width
    model.__dict__.pop("feature_names_in_", None)  # those of a matrix that was fitted before
    corpus = corpus_of(sources, figures, width, storage=storage)
    shards = [shard | own for shard, own in zip(corpus.shards, seen, strict=True)]
    return replace(corpus, shards=shards), digest, len(sources) == 1, plan


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
