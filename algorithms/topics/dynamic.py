"""Topics that change over time: a Gaussian chain of words' logarithms from slice to slice."""

import os
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval

from ..._typing import Array, Callback, Engine, FileName, Matrix, RandomState, Vector
from ...errors import InterruptedFitWarning
from ...scheduler.engine import run
from ...scheduler.parameters import seed_from
from ...scheduler.schedules.static import StaticSchedule
from ...scheduler.stores.store import fingerprint_csr
from ...scheduler.threads import effective_n_jobs
from .._base import keep_parameters
from ..inputs.dask_arrays import is_frame
from ..inputs.matrices import check_counts, check_prior, check_vocabulary, check_width
from ..inputs.targets import check_names
from .beginnings import derived
from .corpus.shard_input import check_order_of_files, corpus_of_matrix, gathered_counts, is_sharded
from .fitting import _DOC_TOPIC_PRIOR, _TOPIC_WORD_PRIOR
from .lda import LatentDirichletAllocation
from .over_slices import PARTS, TopicsOverSlices
from .reading.over_time import check_documents, slice_codes, slices_of

_FIRST_SWEEPS = 100  # of the model of all slices together
_LARGE = 0.3  # of a fitted drift


class DynamicTopicModel(TopicsOverSlices):
    r"""Topic model of documents in slices of time, whose topics change from one slice to the next.

    Latent Dirichlet allocation in each slice t = 1, 2, ..., T, and a Gaussian chain between their topics::

        phi_tk = softmax(eta_tk),   eta_tkw ~ Normal(eta_(t-1)kw, sigma^2)
        theta_d ~ Dirichlet(alpha),  z_di ~ theta_d,  w_di ~ phi_(t(d), z_di)

    and besides, each phi_tk has the prior density ``prod_w phi_tkw^(beta / T)`` in the logarithms. As sigma
    becomes small this is latent Dirichlet allocation of all slices together, with the prior beta; a large one
    leaves each slice its own topics. `drift` gives sigma, or None to fit it. A topic without tokens in a
    slice is carried over it by the chain, as in slices without documents.

    Fitted by EM with a sampled expectation: tokens' topics are drawn given phi, which is then raised to its
    mode given the tokens' topics, by Newton's method on the chain of each word (a cost of O(T)). Given phi,
    slices know nothing of each other: each is swept as by `LatentDirichletAllocation`, on as many threads or
    workers as there are. phi is the mode given the counts of topics averaged over the last half of the
    sweeps. The fit begins from a model of all slices together, of at most 100 sweeps, so that topics have the
    same numbers everywhere.

    Memory while fitting: besides the tokens, as for "gibbs", 12 bytes for each slice and each pair of a topic
    and a word that it has somewhere, and 4 K bytes for each distinct word of the slices that are swept at a
    time.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    drift : float, default=0.1
        sigma: how much the logarithm of a word's probability moves from one slice to the next, 0.001 to 1.
        None fits it by the expected squares of the moves. That is right for documents drawn from the model.
        Where documents repeat their own words it is too large, most of all in slices of few documents: a
        warning says so from 0.3 on.
    doc_topic_prior : float or array of shape (n_components,), default=None
        alpha; None is 0.1.
    topic_word_prior : float, default=None
        beta; None is 0.01.
    max_iter : int, default=200
        Sweeps over all tokens, after those of the model to begin with.
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the workers of the current Dask client; a client; or
        the address of a Dask scheduler. Slices stay where they are; topics are raised by this process, and
        travel every five sweeps. The model is that of ``"local"``, *bitwise*.
    n_jobs : int, default=None
        Threads. None is 1, -1 all cores; on Dask threads of each worker, None as many as it has. The model is
        the same *bitwise*.
    checkpoint : str or path, default=None
        Folder in which the state is kept every 10 sweeps, from which a fit of the same parameters and data
        goes on, *bitwise* as if it had never stopped.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    slices_ : ndarray of shape (n_slices,)
        Labels of the slices, in their order; periods as text. Of dates in a unit: the Monday of a week,
        2004-01, 2004Q1, 2004.
    slice_unit_ : {"week", "month", "quarter", "year"} or None
        The unit of time that a slice is, where it was chosen; None where slices are the labels as given.
    doc_slices_ : ndarray of int, shape (n_samples,)
        The place of each document's slice.
    chains_ : list of dict of arrays
        For each topic the ``words`` that it has somewhere, their logarithms ``eta`` (words x slices),
        ``others``, those of each other word, and ``information``, the part of what counts of each word say
        that is left where the topics of its tokens are not known. `at` gives probabilities.
    slice_totals_ : ndarray of shape (n_components, n_slices)
        Tokens of the topics in the slices, averaged over the last half of the sweeps.
    word_topic_counts_ : CSR array of shape (n_features, n_components)
        Tokens of all slices together, as last drawn; `topics`, `topic_word_` and whatever does not name a
        slice tell of all slices together.
    doc_topic_counts_, doc_topic_, components_, topic_word_, doc_topic_prior_, topic_word_prior_
        As in `LatentDirichletAllocation`.
    drift_ : float
        sigma, as given or as fitted.
    log_likelihood_ : ndarray
        Trace of log p(w, z | phi) per token, one value every 10 sweeps and one after the last.
    history_, n_iter_, n_features_in_, feature_names_in_, vocabulary_
        As in `LatentDirichletAllocation`.

    Raises
    ------
    DataError
        If `X` does not hold counts, or `slices` do not fit.
    CheckpointMismatch
        If `checkpoint` holds a fit of other parameters or data.

    See Also
    --------
    LatentDirichletAllocation : Topics that stay; `topics_by_group` gives their shares over time.
    DMRTopicModel : Shares that depend on covariates, such as the year.

    References
    ----------
    Blei, Lafferty, "Dynamic topic models", ICML 2006 (the model, fitted by variational Bayes). Delyon,
    Lavielle, Moulines, "Convergence of a stochastic approximation version of the EM algorithm", Annals of
    Statistics 1999.

    Examples
    --------
    >>> import numpy as np, stradask as sd
    >>> early, late = [9, 5, 1, 0, 0], [1, 5, 9, 0, 0]  # a topic changes its words,
    >>> other = [0, 0, 0, 5, 5]  # another one stays
    >>> X = np.array([early, other] * 20 + [late, other] * 20)
    >>> years = np.repeat([1990, 2000], 40)
    >>> model = sd.DynamicTopicModel(2, random_state=0, max_iter=50)
    >>> model = model.fit(X, slices=years, vocabulary=["telex", "line", "mail", "sea", "sun"])
    >>> topic = int(model.at(1990).topic_word_[:, 1].argmax())
    >>> model.over_time(topic, n_words=2).top_words
    [['telex', 'line'], ['mail', 'line']]
    >>> model.at(2000).transform(X[-1:]).shape
    (1, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        **TopicsOverSlices._parameter_constraints,
        "n_components": [Interval(Integral, 1, 2**16 - 1, closed="both")],
        "drift": [None, Interval(Real, 0.001, 1, closed="both")],
        "doc_topic_prior": [None, Interval(Real, 0, None, closed="neither"), "array-like"],
        "topic_word_prior": [None, Interval(Real, 0, None, closed="neither")],
    }
    _expected_failed_checks: ClassVar[dict] = TopicsOverSlices._expected_failed_checks | {
        f"check_{name}": "slices are asked for before X is read"
        for name in ("positive_only_tag_during_fit", "complex_data", "estimators_empty_data_messages")
    }
    # What the methods of topic models look at, and this model does not offer.
    device, n_draws = "cpu", 0

    def __init__(
        self,
        n_components: int = 10,
        *,
        drift: float | None = 0.1,
        doc_topic_prior: Any = None,
        topic_word_prior: float | None = None,
        max_iter: int = 200,
        engine: Engine = "local",
        n_jobs: int | None = None,
        checkpoint: FileName | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        *,
        slices: Any = None,
        vocabulary: Any = None,
        n_features: int | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit topics, and how they change.

        Ctrl-C stops after the running sweep and keeps the model so far, with a warning; before the model to
        begin with is done, nothing is changed.

        Parameters
        ----------
        X : sparse matrix, array or DataFrame of shape (n_samples, n_features)
            Counts of words in documents, in any order. Or files or a collection of Dask's, as in
            `LatentDirichletAllocation.fit`: they are read part by part, and their counts are then held in
            this process, 8 bytes for each pair of a document and a word.
        y : None
            Ignored.
        slices : array-like of shape (n_samples,)
            The slice of each document: numbers, dates, text, or periods or categories of pandas. Slices are
            in the order of their labels, of text by the numbers or dates in it ("1/2004", "Jan 2004",
            "2004Q1", "2004-01-31"), of ordered categories in that of the categories. Each distinct label is
            a slice. Where dates are too many for that, slices are the weeks, months, quarters or years in
            which they lie: the shortest unit of which a slice has 20 documents (median) and there are at
            most 100, else years; a warning says which, and so does `slice_unit_`. Pass
            ``dates.dt.to_period("M")`` to choose. Units and periods between the first and the last, and
            categories, are slices with documents or without. None takes the index of a DataFrame `X`, if it
            is one of times or periods. Documents of files are in the order of the files' names. Slices of
            fewer than 5 documents (median) are refused.
        vocabulary : sequence of str or mapping of str to int, optional
            The words of the columns, kept as `vocabulary_`.
        n_features : int, optional
            Columns of a corpus in files; what they state, by default.
        callback : callable, optional
            ``callback(info)`` after every sweep of the slices, as in `LatentDirichletAllocation.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        check_order_of_files(X, "slices")
        with self._draft() as draft:
            counts, labels, codes, unit = draft._documents(X, slices, n_features)
            words = None if vocabulary is None else check_vocabulary(vocabulary, counts.shape[1])
            program = draft._program(counts, codes, len(labels))
            known = {"labels": labels, "codes": codes, "unit": unit, "alpha": program.alpha}
            known |= {"beta": np.full(counts.shape[1], program.beta), "words": words}
            done = draft._run(program, draft._fingerprint(counts, codes, program), known, callback)
            draft._read(done.fetched, done.history, **known)
        if self.drift is None and self.drift_ >= _LARGE:
            warnings.warn(
                f"drift=None was fitted to {self.drift_:.2f} a slice: slices are more unlike than changing "
                "topics would be; take longer slices, or a drift such as 0.1",
                stacklevel=2,
            )
        return self

    def _documents(self, X, slices, n_features):
        """Return counts of the documents, the slice of each one, and the labels and unit of slices."""
        slices = slices_of(X, slices)
        counts = check_counts(self, gathered_counts(X, n_features) if is_sharded(X) else X)
        check_width(counts, n_features)
        if is_frame(X):
            check_names(self, X, None)
        labels, codes, unit = slice_codes(slices, counts.shape[0], chooses=True)
        check_documents(codes, unit)
        return counts, labels, codes, unit

    def _folder(self, part):
        return None if self.checkpoint is None else f"{os.fspath(self.checkpoint)}/{part}"

    def _program(self, X, codes, n_slices):
        from .samplers.slices import SlicedGibbs

        alpha = check_prior("doc_topic_prior", self.doc_topic_prior, self.n_components, _DOC_TOPIC_PRIOR)
        beta = _TOPIC_WORD_PRIOR if self.topic_word_prior is None else float(self.topic_word_prior)
        seed = seed_from(self.random_state)
        first = LatentDirichletAllocation(
            self.n_components,
            doc_topic_prior=alpha,
            topic_word_prior=beta,
            max_iter=min(_FIRST_SWEEPS, self.max_iter),
            engine=self.engine,
            n_jobs=self.n_jobs,
            checkpoint=self._folder("first"),
            random_state=derived(seed, 0) % 2**32,
            verbose=self.verbose,
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", InterruptedFitWarning)
                first.fit(X)
        except InterruptedFitWarning as error:  # before there is anything new
            raise KeyboardInterrupt from error
        of_slices = [np.flatnonzero(codes == t) for t in range(n_slices)]
        held = [X[rows] for rows in of_slices]
        copies = self.engine != "local"
        corpora = [corpus_of_matrix(own, 1, copies=copies) if own.nnz else None for own in held]
        n_threads = effective_n_jobs(self.n_jobs) if self.engine == "local" else 1
        return SlicedGibbs(
            corpora, self.n_components, alpha, beta, seed, first=first.word_topic_counts_,
            variance=None if self.drift is None else float(self.drift) ** 2, max_rounds=self.max_iter,
            n_threads=n_threads,
        )  # fmt: skip

    def _run(self, program, fingerprint, known, callback):
        return run(
            program,
            StaticSchedule(1),
            max_rounds=self.max_iter,
            engine=self.engine,
            n_jobs=self.n_jobs,
            callback=callback,
            snapshot=lambda history, found: type(self)(**self.get_params())._read(found, history, **known),
            checkpoint=self._folder("slices"),
            checkpoint_every=program.measure_every,
            fingerprint=fingerprint,
            label="dynamic topics",
            verbose=self.verbose,
        )

    def _fingerprint(self, X, codes, program):
        from hashlib import sha256

        parts = {"model": "dynamic", "alpha": program.alpha.tolist(), "X": fingerprint_csr(X)}
        parts |= {"beta": program.beta, "slices": [program.n_slices, sha256(codes.tobytes()).hexdigest()]}
        parts |= {"drift": None if self.drift is None else float(self.drift), "max_iter": int(self.max_iter)}
        return parts | ({"seed": int(self.random_state)} if isinstance(self.random_state, Integral) else {})

    def _read(self, found, history, *, labels, codes, unit, alpha, beta, words):
        """Take the model from what a program gathered."""
        self.__dict__.pop("vocabulary_", None)
        if words is not None:
            self.vocabulary_ = words
        n_words, n_topics = len(beta), len(alpha)
        self.n_features_in_, self.n_batch_iter_, self.n_iter_ = n_words, 1, len(history)
        self.slices_, self.doc_slices_, self.slice_unit_ = labels, codes, unit
        self.doc_topic_prior_, self.topic_word_prior_ = alpha, beta
        self.chains_ = [
            {name: getattr(chain, name) for name in PARTS} | {"information": left}
            for chain, left in zip(found.topics, found.information, strict=True)
        ]
        self.word_topic_counts_, self.slice_totals_ = found.words, found.totals
        self.drift_ = float(np.sqrt(found.variance))
        rows = [np.flatnonzero(codes == t) for t in found.filled]
        empty = np.setdiff1d(np.arange(len(codes)), np.concatenate(rows))
        parts = [*found.documents, sparse.csr_array((len(empty), n_topics), dtype=np.int32)]
        order = np.argsort(np.concatenate([*rows, empty]))
        stacked = sparse.csr_array(sparse.vstack(parts, format="csr"))[order]
        self.doc_topic_counts_ = sparse.csr_array(stacked)
        self.history_ = history.as_dict()
        if np.isnan(self.history_["objective"][-1]):
            self.history_["objective"][-1] = found.joint
        return self

    def fit_transform(self, X: Matrix, y: Vector | None = None, **fit_params: Any) -> Array:
        """Fit, and return the topic shares of the fitted documents, each by the topics of its slice.

        Parameters
        ----------
        X, y, **fit_params
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows sum to 1.
        """
        self.fit(X, y, **fit_params)
        if is_sharded(X):
            X = gathered_counts(X, self.n_features_in_)
        return self._by_slice(X, self.doc_slices_, lambda model, rows: model.transform(rows))
