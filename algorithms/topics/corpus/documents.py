"""The documents of a fit as shards, wherever they are: a matrix, files, or Dask's data."""

from dataclasses import replace

import numpy as np

from ...._urls import file_size
from ....datasets.document_files import document_files, is_compressed
from ....errors import DataError, shortened
from ....scheduler.threads import effective_n_jobs, own_threads
from ....scheduler.workers import current_client, is_client, open_workers
from ...inputs.dask_arrays import engine_for, is_dask, is_frame
from ...inputs.matrices import check_counts, check_width
from ...inputs.memory import memory_in_bytes
from ...inputs.pieces import is_lazy
from ...inputs.targets import check_names
from ..blocks.groups import number_of_groups, pays_threads, warn_of_fewer_groups, warn_of_idle_threads
from ..blocks.memory import (
    AT_ONCE,
    CorpusSizes,
    FilePlan,
    check_blocks_fit,
    check_reading,
    check_shards_fit,
    check_worker_memory,
    memory_of_workers,
    place_for_files,
    plan_for,
    shards_for,
)
from ..blocks.storage import Pool, Storage
from ..samplers.choose import check_knows, chosen, counted_as, fits_shards
from ..samplers.of_users import name_or_object
from .shard_input import (
    ShardedCorpus,
    are_files,
    corpus_of,
    corpus_of_matrix,
    in_shards,
    is_sharded,
    number_of_shards,
    sources_of,
    survey,
)


class Documents:
    """The shards of a fit, and what follows from them and from the parameters of a model.

    `begins` says whether a model is begun, else `X` must have its columns; `adds` whether documents are added
    to a model; `known` whether seed words or labels are given. `X` is None where the documents are no matrix
    of this process; `digest` (a matrix or a hash) is what a checkpoint belongs to.
    """

    corpus: ShardedCorpus

    def __init__(self, model, X, n_features, n_topics, *, begins, adds=False, known=False):
        sharded = model.memory_limit is not None or in_shards(X, model.engine)
        if sharded and not adds:
            _check_sharded(model, known)
        self.model, self.engine, self.X = model, engine_for(X, model.engine), None
        self._n_topics = n_topics
        self.memory = _memory(model, X, self.engine)
        self._of_workers = None if model.memory_limit is None else memory_in_bytes(model.memory_limit)
        # No more threads than shards that memory is for.
        self.n_jobs = model.n_jobs if self.memory is None else min(effective_n_jobs(model.n_jobs), AT_ONCE)
        if is_sharded(X):
            self._survey(X, n_features, begins)
            self._one_group = len(self.corpus.shards) == 1
        else:
            self.X = self.digest = check_counts(model, X, reset=begins, need_tokens=True if adds else None)
            check_width(self.X, n_features)
            n_shards = _number_of_shards(model, self.X, self.engine, n_topics)
            self.corpus = corpus_of_matrix(self.X, n_shards, copies=self.engine != "local")
            self._one_group = model.n_groups is None and n_shards == 1

    def sampler(self, known):
        """The sampler that is given, or the name of what parameters and sizes ask for; `known` as above."""
        model, corpus = self.model, self.corpus
        if known:
            check_knows(name_or_object(model.sampler))
            return "gibbs"
        if (sampler := name_or_object(model.sampler)) != "auto":
            return sampler
        sizes = (sum(corpus.weights), corpus.summary.n_words, corpus.longest)
        return chosen(*sizes, self._n_topics, model.exact)

    def options(self, *samplers):
        """Options of programs that run one after the other."""
        model, plan = self.model, FilePlan(self.model.memmap_folder)
        if self.memory is not None:
            corpus = self.corpus
            n_words = int(np.count_nonzero(corpus.frequency))
            about = corpus.weights, corpus.summary.n_documents, corpus.longest, n_words
            sizes = CorpusSizes.from_shards(corpus.shards, *about)
            counted = [counted_as(sampler, corpus, self._n_topics) for sampler in samplers]
            plan = plan_for(counted, sizes, self._n_topics, self.memory, model.memmap_folder)
        own = {"exact": model.exact or self._one_group, "in_process": self.engine == "local"}
        return own | {"folder": plan.folder, "at_once": plan.at_once}

    def _survey(self, X, n_features, begins):
        """Cut and survey what is no matrix."""
        model, memory = self.model, self.memory
        n_threads = 1 if self.engine == "local" else open_workers(self.engine).n_threads()
        at_least, n_jobs, storage = 1, self.n_jobs, Storage()
        if memory is not None:
            n_jobs, storage = 1, Pool(place_for_files(model.memmap_folder))
        if are_files(X) and self.engine != "local" and own_threads() is None:
            memory = self._of_workers or memory_of_workers(self.engine, _enough_for(document_files(X)))
        if memory is not None:
            files = document_files(X)
            at_least = shards_for(sum(map(file_size, files)), any(map(is_compressed, files)), memory)
        sources = sources_of(X, 1 if model.exact else model.n_groups, max(n_threads, at_least))
        if model.exact and len(sources) > 1:
            raise DataError(
                f"exact=True keeps one group of documents, but X comes in {len(sources)} parts: give a "
                "matrix or set exact=False"
            )
        if self.memory is not None:
            check_shards_fit(sources, memory)
        elif self.engine != "local":
            check_reading(sources, self.engine)
        if not begins:
            n_features = _columns(model, n_features, sources)
        sources = _held(sources, self.engine)
        found, width, self.digest = survey(sources, self.engine, n_jobs, n_features, storage)
        names = ("size", "words", "tokens", "longest", "n_pairs")
        figures = [tuple(part[name] for name in names) for part in found]
        seen = [{"width": part["width"], "digest": part["digest"]} for part in found]
        if not begins and width != model.n_features_in_:
            raise DataError(
                f"X has {width} columns, but the model was fitted to {model.n_features_in_}: the columns are "
                "to be the same words"
            )
        if begins:
            # Of a frame also the names; those of a matrix that was fitted before are gone.
            check_names(model, X if is_frame(X) else np.empty((1, width)), "no_validation")
        corpus = corpus_of(sources, figures, width, storage=storage)
        shards = [shard | own for shard, own in zip(corpus.shards, seen, strict=True)]
        self.corpus = replace(corpus, shards=shards)

    def warn_of_groups(self, on_gpu):
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
        elif is_lazy(source):
            more, why = "cut X into more parts", "each part of X is a group"
        warn_of_fewer_groups(model.n_groups, n_groups, why)
        if on_gpu:
            return
        if self.engine == "local":
            warn_of_idle_threads(n_groups, n_tokens, effective_n_jobs(self.n_jobs), more=more)
        elif pays_threads(n_tokens) and own_threads() is None:
            n_threads = open_workers(self.engine, model.n_jobs).n_threads()
            warn_of_idle_threads(n_groups, n_tokens, n_threads, "the cluster has", more)

    def checked(self, program):
        """Hold a program against the memory there is."""
        if self.memory is not None:
            check_blocks_fit(program, self.memory)
            program.loads_at_once = 1
        if self.engine != "local":
            check_worker_memory(program, self.engine, self._of_workers)
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


def _check_sharded(model, known):
    """Refuse what needs a matrix of this process, or Gibbs sampling."""
    if not fits_shards(name_or_object(model.sampler), "cpu") or model.device == "cuda":
        raise DataError(
            f"sampler={shortened(model.sampler)} with device={shortened(model.device)} works with a matrix "
            "and engine='local' only: take one of auto, gibbs, light, warp, and device='cpu'"
        )
    if not known:
        return
    check_knows(name_or_object(model.sampler))
    if model.optimize_priors:
        raise DataError(
            "optimize_priors=True with seed_words or doc_labels works with a matrix and engine='local' only: "
            "set optimize_priors=False, or fit the documents, or a sample of them, here"
        )


def _memory(model, X, engine):
    if model.memory_limit is None or (engine != "local" and own_threads() is None):
        return None
    if engine != "local" or not are_files(X):
        raise DataError(
            f"memory_limit={shortened(model.memory_limit)} is for names of files, or for workers "
            "(engine='dask'): a matrix is in memory already, and inside a task there are no workers"
        )
    return memory_in_bytes(model.memory_limit)


def _enough_for(files):
    """Bytes of a worker with which files are cut into as many shards as by default."""
    n_bytes = sum(map(file_size, files))
    return shards_for(n_bytes, any(map(is_compressed, files)), number_of_shards(n_bytes))


def _held(sources, engine):
    """Let Dask compute its data once, for the survey and the fit; with an address no client holds them."""
    holds = engine == "dask" or is_client(engine)
    if not holds or own_threads() is not None or not is_dask(sources[0]):
        return sources
    return current_client(engine).compute(sources)


def groups_asked_for(model, X):
    """`n_groups`, no more than there are documents: an empty group would be a shard of nothing."""
    return None if model.n_groups is None else min(model.n_groups, X.shape[0])


def _number_of_shards(model, X, engine, n_topics):
    if model.exact:
        return 1
    if model.n_groups is not None:
        return groups_asked_for(model, X)
    n_words = np.count_nonzero(np.bincount(X.indices))
    groups = number_of_groups(int(X.sum(dtype=np.int64)), n_words, n_topics)
    if groups > 1 and engine != "local" and own_threads() is None:
        groups = max(groups, open_workers(engine).n_threads())
    return min(groups, X.shape[0])
