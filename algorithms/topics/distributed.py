"""Topic models whose corpus lies in shards: on a cluster of Dask workers, or in files on one machine."""

import os
from dataclasses import replace
from typing import Any

import numpy as np

from ...datasets.document_files import document_files, is_compressed
from ...errors import DataError, shortened
from ...scheduler.engine import run
from ...scheduler.sessions.session import open_session
from ...scheduler.threads import effective_n_jobs, own_threads
from ..inputs.dask_arrays import engine_for, is_dask, is_frame
from ..inputs.matrices import check_counts, check_width
from ..inputs.targets import check_names
from .fitting import WARM_SWEEPS, derived
from .guidance import check_doc_labels, check_given_topics, check_seed_words
from .samplers.annealing import annealed_sweeps
from .samplers.choose import check_knows, chosen, settled
from .samplers.out_of_core import (
    AT_ONCE,
    Plan,
    check_blocks_fit,
    check_shards_fit,
    memory_in_bytes,
    place_for_files,
    plan_for,
    shards_for,
)
from .samplers.rotating import RotatingGibbs
from .samplers.rotating_auto import RotatingAuto
from .samplers.rotating_light import RotatingLight
from .samplers.rotating_warp import RotatingWarp
from .samplers.state import number_of_groups, pays_threads, warn_of_fewer_groups, warn_of_idle_threads
from .samplers.storage import Pool, Storage
from .shard_input import corpus_of, corpus_of_matrix, is_lazy, with_labels
from .survey import are_files, is_sharded, sources_of, survey

_PROGRAMS = {"gibbs": RotatingGibbs, "light": RotatingLight, "warp": RotatingWarp, "both": RotatingAuto}


def fit_in_shards(
    model, X, callback=None, n_features=None, vocabulary=None, seed_words=None, doc_labels=None, topics=None,
    previous=None, checkpoint=None,
):  # fmt: skip
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
    previous : CSR matrix of shape (n_features, n_components), optional
        Counts of the last fit, of a warm start.
    checkpoint : path-like, optional
    """
    _check_parameters(model, seed_words is not None or doc_labels is not None)
    unknown = doc_labels is None and seed_words is None
    draws_first = previous is not None or topics is not None
    input_ = _Input(model, X, n_features, previous is None, unknown, draws_first)
    corpus, options = input_.corpus, input_.options
    n_words = corpus.summary.n_words
    alpha, beta = model._priors(n_words, previous is not None and model.optimize_priors)
    seeds = check_seed_words(seed_words, model.n_components, n_words, model._columns(vocabulary))
    labels = check_doc_labels(doc_labels, corpus.summary.n_documents, alpha)
    topics = check_given_topics(topics, model.n_components, n_words)
    corpus = corpus if labels is None else with_labels(corpus, labels)
    seed = model._seed()  # once: of a RandomState the next one is another
    input_.warn_of_groups()
    at_hand = {}
    if previous is not None:
        at_hand = {"background": previous, "seeds": seeds}
    elif topics is not None:
        at_hand = {"seeds": topics * float(sum(corpus.weights))}
    if at_hand:
        first = FirstTopics(corpus, model.n_components, alpha, beta, derived(seed, 0), **options, **at_hand)
        corpus = _drawn_at_hand(input_.checked(first), corpus, input_.engine, _n_jobs(model))
    anneals = not at_hand and seeds is None and labels is None and not model.exact
    options["fits_priors"] = model.optimize_priors
    if input_.kind is RotatingAuto:
        options |= {"max_sweeps": model.max_iter, "anneals": anneals}
    else:
        passes = 1 if input_.kind is RotatingWarp else None
        options |= {"annealed": annealed_sweeps(model.max_iter, passes) if anneals else 0, "seeds": seeds}
    program = input_.kind(corpus, model.n_components, alpha, beta, seed, **options)
    input_.checked(program)
    digest = None if checkpoint is None else model._fingerprint(input_.digest, program, topics, labels)
    kept = {"checkpoint": checkpoint, "fingerprint": digest}
    return _run(model, program, corpus, input_.engine, callback, labels, **kept)


def partial_fit_in_shards(model, X, callback=None, n_features=None, doc_labels=None, before=None):
    """Add documents that lie in shards to a model, whose counts `before` stay where they are.

    The other parameters are those of `fit_in_shards`, and without `before` it is that.
    """
    if before is None:
        return fit_in_shards(model, X, callback, n_features, doc_labels=doc_labels)
    input_ = _Input(model, X, n_features, False, None)
    corpus = input_.corpus
    alpha, beta = model._priors(corpus.summary.n_words, True)
    labels = check_doc_labels(doc_labels, corpus.summary.n_documents, alpha)
    corpus = corpus if labels is None else with_labels(corpus, labels)
    input_.warn_of_groups()
    known = {"background": before, "seeds": model.__dict__.get("seed_prior_")}
    seed = derived(model._seed(), model.n_batch_iter_)
    program = RotatingGibbs(corpus, model.n_components, alpha, beta, seed, **input_.options, **known)
    return _run(model, input_.checked(program), corpus, input_.engine, callback, labels, before)


def _run(model, program, corpus, engine, callback, labels, before=None, **kept):
    """Sweep until done, then read the model off shards and blocks."""

    def snapshot(history, found):
        return model._copy()._read(found.in_order(corpus.rows, labels), history, before)

    done = run(
        program,
        program.schedule,
        max_rounds=model.max_iter,
        engine=engine,
        n_jobs=_n_jobs(model),
        stop=settled(program, model.tol),
        callback=callback,
        snapshot=snapshot,
        checkpoint_every=program.measure_every,
        label="LDA",
        verbose=model.verbose,
        **kept,
    )
    model._read(done.fetched.in_order(corpus.rows, labels), done.history, before)
    if done.activity is not None:
        model.worker_history_ = done.activity.as_dict()
    return model


class _Input:
    """Documents in shards, and what follows from them and from the parameters of a model.

    Parameters
    ----------
    model, X, n_features
        See `fit_in_shards`.
    begins : bool
        Whether a model is begun; else `X` is to have its columns.
    unknown : bool or None
        Whether nothing is known of words and documents, so that a sampler can be chosen; None for Gibbs
        sampling.
    draws_first : bool, default=False
        Whether `FirstTopics` run before.

    Attributes
    ----------
    corpus : Corpus
    kind : class
        Of the program.
    engine : str
    options : dict
        Of the program.
    digest
        What a checkpoint belongs to: a matrix, or a hash.
    """

    kind: Any

    def __init__(self, model, X, n_features, begins, unknown, draws_first=False):
        self.model, self.engine, self.unknown = model, engine_for(X, model.engine), unknown
        self.memory, plan = _memory(model, X, self.engine), Plan(model.memmap_folder)
        if is_sharded(X):
            found, exact = self._surveyed(X, n_features, begins)
            if self.memory is not None:
                kinds = [self.kind, FirstTopics] if draws_first else [self.kind]
                plan = plan_for(kinds, found, model.n_components, self.memory, model.memmap_folder)
        else:
            X = check_counts(model, X, reset=begins, need_tokens=unknown is None)
            check_width(X, n_features)
            n_shards = _number_of_shards(model, X)
            self.corpus, self.digest = corpus_of_matrix(X, n_shards), X
            exact = model.exact or (model.n_groups is None and n_shards == 1)
            self._choose()
        self.options = {"exact": exact, "folder": plan.folder, "at_once": plan.at_once}

    def _surveyed(self, X, n_features, begins):
        """Cut and survey what is no matrix; also say whether one shard is all, so that totals can be live."""
        model, memory = self.model, self.memory
        n_threads = 1 if self.engine == "local" else _n_threads(self.engine)
        at_least, n_jobs, storage = 1, _n_jobs(model), Storage()
        if memory is not None:
            n_jobs, storage = 1, Pool(place_for_files(model.memmap_folder))
            files = document_files(X)
            n_bytes, compressed = sum(map(os.path.getsize, files)), any(map(is_compressed, files))
            at_least = shards_for(n_bytes, compressed, memory)
        sources = sources_of(X, 1 if model.exact else model.n_groups, max(n_threads, at_least))
        if model.exact and len(sources) > 1:
            raise DataError(
                f"exact=True keeps one group of documents, but X comes in {len(sources)} parts: give a "
                "matrix or set exact=False"
            )
        if memory is not None:
            check_shards_fit(sources, memory)
        if not begins:
            n_features = _columns(model, n_features, sources)
        sources = _held(sources, self.engine)
        found, width, self.digest = survey(sources, self.engine, n_jobs, n_features, storage)
        figures = [(part["size"], part["words"], part["tokens"], part["longest"]) for part in found]
        seen = [{"width": part["width"], "digest": part["digest"]} for part in found]
        if not begins and width != model.n_features_in_:
            raise DataError(
                f"X has {width} columns, but the model was fitted to {model.n_features_in_}: the columns are "
                "to be the same words"
            )
        if begins:
            # Of a frame also the names; those of a matrix that was fitted before are gone.
            check_names(model, X if is_frame(X) else np.empty((1, width)), None)
        corpus = corpus_of(sources, figures, width, storage=storage)
        shards = [shard | own for shard, own in zip(corpus.shards, seen, strict=True)]
        self.corpus = replace(corpus, shards=shards)
        self._choose()
        return found, len(sources) == 1

    def _choose(self):
        """Take the sampler that the parameters, or the sizes, ask for (`samplers.chosen`)."""
        model, corpus, name = self.model, self.corpus, self.model.sampler
        if name == "auto" and self.unknown:
            sizes = (sum(corpus.weights), corpus.summary.n_words, corpus.longest)
            name = chosen(*sizes, model.n_components, model.exact, model.max_iter)
        self.kind = RotatingGibbs if self.unknown is None or name == "auto" else _PROGRAMS[name]

    def warn_of_groups(self):
        """Warn where there are other groups than `n_groups` says, and fewer than threads."""
        model, groups, n_groups = self.model, self.corpus.shards, len(self.corpus.shards)
        if model.exact:
            return
        source, n_tokens = groups[0]["source"], sum(self.corpus.weights)
        n_documents = self.corpus.summary.n_documents
        more, why = None, f"X has {n_documents} documents"
        if isinstance(source, tuple):
            why = f"files are cut near equal bytes, between documents, of which there are {n_documents}"
            if source[0].format == "svmlight":
                more = "give the documents in more files"
                why = "files in the svmlight format are not cut"
        elif is_dask(source) or is_lazy(source):
            more, why = "cut X into more parts", "each part of X is a group"
        warn_of_fewer_groups(model.n_groups, n_groups, why)
        if self.engine == "local":
            warn_of_idle_threads(n_groups, n_tokens, effective_n_jobs(_n_jobs(model)), more=more)
        elif pays_threads(n_tokens) and own_threads() is None:
            n_threads = _n_threads(self.engine, model.n_jobs)
            warn_of_idle_threads(n_groups, n_tokens, n_threads, "the cluster has", more)

    def checked(self, program):
        """Hold a program against the memory there is."""
        if self.memory is not None:
            check_blocks_fit(program, self.memory)
            program.loads_at_once = 1
        return program


def _columns(model, n_features, sources):
    """Columns that shards are to have, for a model that is fitted already; None if their files state them."""
    if n_features is not None and n_features != model.n_features_in_:
        raise DataError(
            f"n_features={n_features}, but the model was fitted to {model.n_features_in_} columns: leave it "
            "out, or fit a new estimator"
        )
    stated = all(isinstance(source, tuple) and source[0].format == "docword" for source in sources)
    return None if stated and n_features is None else model.n_features_in_


def _check_parameters(model, is_known):
    """Refuse what needs all documents in one process, or Gibbs sampling."""
    if model.sampler not in ("auto", *_PROGRAMS) or model.device == "cuda":
        raise DataError(
            f"sampler={shortened(model.sampler)} with device={shortened(model.device)} works with a matrix "
            "and engine='local' only: take one of auto, gibbs, light, warp, and device='cpu'"
        )
    if not is_known:
        return
    check_knows(model.sampler)
    if model.optimize_priors:
        raise DataError(
            "optimize_priors=True with seed_words or doc_labels works with a matrix and engine='local' only: "
            "set optimize_priors=False, or fit the documents, or a sample of them, here"
        )


def _drawn_at_hand(program, corpus, engine, n_jobs):
    """Let shards begin from topics that a `FirstTopics` draws with what it has at hand."""
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
            f"memory_limit={shortened(model.memory_limit)} is for names of files and engine='local': a "
            "matrix is in memory already, and workers have limits of their own"
        )
    return memory_in_bytes(model.memory_limit)


def _n_jobs(model):
    """Threads: no more than shards that memory is for."""
    return model.n_jobs if model.memory_limit is None else min(effective_n_jobs(model.n_jobs), AT_ONCE)


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
        return model._n_groups(X)
    n_words = np.count_nonzero(np.bincount(X.indices))
    groups = number_of_groups(int(X.sum(dtype=np.int64)), n_words, model.n_components)
    if groups > 1 and own_threads() is None:
        groups = max(groups, _n_threads(model.engine))
    return min(groups, X.shape[0])


def _n_threads(engine, n_jobs=None):
    session = open_session(engine, n_jobs)
    try:
        return session.n_threads()
    finally:
        session.close()
