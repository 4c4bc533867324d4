"""The demo of topic models: topics of the docstrings on this machine, compared with scikit-learn's LDA.

Both learn from the same training documents, on one thread, and are judged by the same function on the
same halves of the same held-out documents, as often as their training time passes certain marks. The clock
stands still while a model is judged. Ours makes a fixed number of sweeps, so that the topics are the same
on every machine with the same packages; scikit-learn gets the seconds that these took.
"""

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..cli.reports import topics as _topics
from .curves import Curve, say_compiled
from .page import Part

SWEEPS, QUICK_SWEEPS = 200, 40
SWEEPS_JUDGED = (1, 2, 5, 10, 20, 50, 100, 200)
DOC_TOPIC_PRIOR, TOPIC_WORD_PRIOR = 0.1, 0.01
# What gave scikit-learn its lowest perplexity after three seconds with K = 30: of batches of 128, 256, 512
# and 1024 documents, and of the priors (0.1, 0.01), (0.1, 0.1), (1/K, 0.1) and its default (1/K, 1/K).
SKLEARN_BATCH, SKLEARN_TOPIC_WORD_PRIOR = 512, 0.1
WORDS = 8


@dataclass(frozen=True)
class Text:
    """The documents, divided: counts to learn from, and two halves of each test document.

    `versions` are those of the packages that the text comes from; `unigram` is the perplexity of the held-out
    halves by word frequencies alone.
    """

    train: Any
    observed: Any
    held_out: Any
    versions: dict
    unigram: float

    @property
    def packages(self):
        """The package of each training document."""
        return np.array([name.partition(".")[0] for name in self.train.names])


def run(settings, say):
    """Fit, compare and describe; see `stradask.demo.page`."""
    say("Topic models: what is the documentation of your Python packages about?\n")
    text = read_text(settings.seed)
    train = text.train.describe()
    say(
        f"text      {train['documents'] + text.observed.shape[0]:,} docstrings of "
        f"{', '.join(text.versions)}\n"
        f"training  {train['documents']:,} of them: {train['tokens']:,} words, "
        f"{train['words']:,} different ones"
    )
    say_compiled(say, lambda: compile_kernels(text, settings))
    model, ours = fit_ours(text, settings)
    say(
        f"fitting   {settings.n_components} topics, {model.n_iter_} sweeps of Gibbs sampling in "
        f"{ours.seconds[-1]:.1f} s on one thread: "
        f"{model.n_iter_ * train['tokens'] / ours.seconds[-1] / 1e6:.1f} million words/s\n"
    )
    topics = model.topics(text.train.vocabulary, WORDS)
    say(str(topics))
    sklearn = fit_sklearn(text, settings, ours.seconds)
    say(comparison(text, ours, sklearn))
    document = {
        "data": train | {"test_documents": text.observed.shape[0], "packages": text.versions},
        "n_components": settings.n_components,
        "sweeps": int(model.n_iter_),
        "log_likelihood_per_token": float(model.log_likelihood_[-1]),
        "word_frequencies_perplexity": text.unigram,
        "stradask": ours.as_document(),
        "sklearn": sklearn.as_document(),
        "topics": _topics.as_documents(topics),
    }

    def add_to(page):
        from .topics_pictures import add_topics

        add_topics(page, settings, text, model, topics, ours, sklearn)

    return Part(document, add_to, summary(document))


def summary(document):
    """The row of the report's summary."""
    data, ours, theirs = document["data"], document["stradask"], document["sklearn"]
    return (
        "Topic model (LDA)",
        f"{data['documents']:,} docstrings, {data['tokens']:,} words",
        f"{document['n_components']} topics, {document['sweeps']} sweeps: {ours['seconds'][-1]:.1f} s, "
        "one thread",
        f"held-out perplexity {ours['held_out_perplexity'][-1]:,.0f}; scikit-learn's LDA after the same "
        f"seconds: {theirs['held_out_perplexity'][-1]:,.0f}",
    )


def read_text(seed):
    """Load the docstrings and hold out a tenth of them, 1000 at most."""
    from sklearn.model_selection import train_test_split

    from ..cli.inputs import Counts
    from ..datasets import load_docstrings, split_tokens

    corpus = load_docstrings()
    counts = Counts(corpus.X, "docstrings", corpus.vocabulary, corpus.names)
    n_documents = corpus.X.shape[0]
    rows = np.arange(n_documents)
    train, test = train_test_split(rows, test_size=min(1000, -(-n_documents // 10)), random_state=seed)
    train, test = counts.rows(np.sort(train)), counts.rows(np.sort(test))
    observed, held_out = split_tokens(test.X, random_state=seed)
    # Add-one smoothing: a word may be in test documents only.
    frequency = np.asarray(train.X.sum(axis=0)).ravel() + 1.0
    log_share = np.log(frequency / frequency.sum())
    unigram = float(np.exp(-(held_out @ log_share).sum() / held_out.sum()))
    return Text(train, observed, held_out, corpus.packages, unigram)


def compile_kernels(text, settings):
    """Compile the kernels of the fit, on a few documents; the longest one decides how counts are kept."""
    longest = np.argsort(-np.asarray(text.train.X.sum(axis=1)).ravel(), kind="stable")
    few = text.train.rows(np.sort(longest[:50]))
    watch = Watch(lambda topic_word: 0.0, steps=[2])
    _gibbs(few, settings).run(watch)


def fit_ours(text, settings):
    """Fit our model; return it and its curve."""
    last = QUICK_SWEEPS if settings.quick else SWEEPS
    steps = [n for n in SWEEPS_JUDGED if n < last]
    solver = _gibbs(text.train, settings)
    watch = Watch(judge(text), steps=[*steps, last])
    solver.run(watch)
    watch.check()
    return solver.model, watch.curve


def fit_sklearn(text, settings, seconds):
    """Fit scikit-learn's model for the same seconds; return its curve."""
    from threadpoolctl import threadpool_limits

    from ..benchmarks.solvers.lda.lda_sklearn import Solver

    solver = Solver(_solver_settings(settings, 1 / settings.n_components, SKLEARN_TOPIC_WORD_PRIOR))
    solver.batch_size = SKLEARN_BATCH
    solver.set_data(_solver_data(text.train.X))
    watch = Watch(judge(text), "scikit-learn", seconds=seconds)
    with threadpool_limits(1):
        solver.run(watch)
    return watch.curve


def _gibbs(counts, settings):
    from ..benchmarks.solvers.lda.lda_stradask import Solver

    solver = Solver(_solver_settings(settings, DOC_TOPIC_PRIOR, TOPIC_WORD_PRIOR))
    solver.set_data(_solver_data(counts.X))
    return solver


def _solver_settings(settings, doc_topic_prior, topic_word_prior):
    return SimpleNamespace(
        n_components=settings.n_components,
        doc_topic_prior=doc_topic_prior,
        topic_word_prior=topic_word_prior,
        optimize_priors=False,
        n_jobs=1,
        seed=settings.seed,
    )


def _solver_data(X):
    return SimpleNamespace(indptr=X.indptr, indices=X.indices, counts=X.data, n_words=X.shape[1])


def judge(text):
    """Return the function that gives the held-out perplexity of topics, the same for every system."""
    from ..algorithms.topics.evaluation import document_completion

    def perplexity(topic_word):
        score = document_completion(topic_word, text.observed, text.held_out, DOC_TOPIC_PRIOR)
        return float(np.exp(-score))

    return perplexity


class Watch:
    """The clock of a solver of `stradask.benchmarks.solvers`; judges it at marks, while it stands still.

    ``judge(topic_word)`` gives the figure to keep. Marks are increasing `steps` or `seconds`: it is judged
    after the first step that ends at or past each; the last ends the run.
    """

    max_ticks = None  # no warm-up

    def __init__(self, judge, name="stradask", *, steps=None, seconds=None):
        self.curve = Curve(name, "held_out_perplexity", [], [], [])
        self._judge = judge
        self._marks = list(steps or seconds)
        self._by_steps = steps is not None
        self._steps, self._seconds = 0, 0.0
        self._started = time.perf_counter()

    def tick(self, work, snapshot):
        """Count a step; return whether to go on."""
        self._seconds += time.perf_counter() - self._started
        self._steps += 1
        reached = self._steps if self._by_steps else self._seconds
        if reached >= self._marks[0]:
            self.curve.seconds.append(self._seconds)
            self.curve.values.append(self._judge(snapshot()["topic_word"]))
            self.curve.steps.append(self._steps)
            # A long step may have passed several marks.
            self._marks = [mark for mark in self._marks if mark > reached]
        self._started = time.perf_counter()
        return bool(self._marks)

    def check(self):
        """Raise KeyboardInterrupt if the run ended too early: the fit has kept Ctrl-C to itself."""
        if self._marks:
            raise KeyboardInterrupt


def comparison(text, ours, sklearn):
    """Return the table of both curves."""
    lines = [
        "\nHow well do the topics predict words they have not seen?",
        f"Perplexity of held-out halves of {text.observed.shape[0]:,} other docstrings: lower is better.",
        f"Word frequencies alone reach {text.unigram:,.0f}. One thread each; judging does not count.\n",
        "seconds  stradask  scikit-learn",
    ]
    lines += [
        f"{seconds:7.2f}  {perplexity:8,.0f}  {'-' if theirs is None else format(theirs, ',.0f'):>12}"
        for seconds, perplexity, theirs in zip(
            ours.seconds, ours.values, at(sklearn, ours.seconds), strict=True
        )
    ]
    return "\n".join(lines)


def at(curve, times):
    """Return a curve's values after the first step that ends at or past each time, None where it had none.

    A value stands once: at the last of the times that its step passed.
    """
    values, end = [], np.searchsorted(curve.seconds, times)
    for i, place in enumerate(end):
        shown = place < len(curve.seconds) and (i + 1 == len(end) or end[i + 1] != place)
        values.append(curve.values[place] if shown else None)
    return values
