"""Topic models beyond LDA, next to their peers: ``stradask bench topics-models``.

Covariates (Dirichlet-multinomial regression), a number of topics that is found (HDP), a response (supervised
LDA), short texts (GSDMM; pairs of words and, of tomotopy, pseudo-documents), and topics that change over
slices of time. Libraries fit three quarters of the documents with the same number of topics, priors and
sweeps, one after the other on one thread; variational
ones run 20 rounds of EM. Words of the rest are judged by one code: half of each document's tokens tell its
shares, the others are predicted, with the topics and the document prior that a model gives. Over time the
rest is the slice after the last one, judged with the topics of that and one prior. Responses are predicted by
each library's own method. Topics of short texts are held against their labels. CPU seconds are of the fit
alone, medians of rounds.
"""

import gzip
import importlib.util
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import normalized_mutual_info_score

from ... import datasets
from ...algorithms.topics.evaluation import complete
from ...algorithms.topics.lda import LatentDirichletAllocation
from ...errors import DataError
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run
from .topics_models_sides import COVARIATES, MIXED, NUMBER, RESPONSE, SHORT, SIDES, TASKS, TIME, Own

_FIRST, _SECOND = "scipy", "sklearn"  # packages of docstrings, of which the response is the second
_MOST_DOCUMENTS, _SHORT_WORDS, _SLOW_SECONDS = 4000, 12, 20.0  # of a fit, above which it is run once
_LABELS = {
    "20news": lambda line: line.split()[1],
    "imdb": str.strip,
    "debian_descriptions": lambda line: line.split()[2],
}
# The cut of a corpus in the order of time, of which gensim takes a minute.
_SLICES, _OF_SLICE, _WORDS, _PART = 10, 20, 200, 0.08
_TASKS_OF = {
    "generated": TASKS,
    "docstrings": (COVARIATES, NUMBER, RESPONSE),
    "ap": (NUMBER,),
    "20news": (COVARIATES, SHORT, MIXED),
    "imdb": (RESPONSE,),
    "debian_descriptions": (SHORT, MIXED),
    "rfc_early": (TIME,),
}
_OF_TEXTS = (SHORT, MIXED)  # judged by labels
_TOPICS = {"generated": 6, "rfc_early": 5}


@dataclass(frozen=True)
class Documents:
    """Counts, and of each document a group (its label, or slice of time) and a response."""

    X: Any
    groups: np.ndarray
    y: np.ndarray

    def rows(self, chosen):
        """Some of the documents."""
        return Documents(sparse.csr_array(self.X[chosen]), self.groups[chosen], self.y[chosen])

    def words(self, chosen):
        """The same documents with some of the words."""
        X = sparse.csr_array(self.X[:, chosen])
        X.eliminate_zeros()
        return replace(self, X=X)


def generated(seed, quick):
    """Counts of documents of six topics, a group of three that shifts shares, and a number that they tell."""
    rng = np.random.default_rng(seed)
    n, n_topics, n_words = (200, 6, 120) if quick else (2000, 6, 600)
    group = rng.integers(0, 3, n)
    priors = 0.3 * np.exp(rng.normal(0, 1, (3, n_topics)))
    shares = np.array([rng.dirichlet(priors[g]) for g in group])
    topics = rng.dirichlet(np.full(n_words, 0.05), n_topics)
    X = np.array([rng.multinomial(rng.poisson(80) + 2, s @ topics) for s in shares])
    y = shares @ rng.normal(0, 2, n_topics) + 0.3 * rng.standard_normal(n)
    return Documents(sparse.csr_array(X), group.astype(str), y)


def generated_labels(seed, quick):
    """Texts of 12 words, each of one of ten topics, which is the label."""
    rng = np.random.default_rng(seed)
    n, n_words = (300, 100) if quick else (4000, 400)
    label = rng.integers(0, 10, n)
    topics = rng.dirichlet(np.full(n_words, 0.05), 10)
    common = rng.dirichlet(np.full(n_words, 0.1))
    X = np.array([rng.multinomial(_SHORT_WORDS, 0.6 * topics[k] + 0.4 * common) for k in label])
    return Documents(sparse.csr_array(X), label.astype(str), label.astype(float))


def generated_slices(seed, quick):
    """Documents of five topics whose words move, by a tenth and more in logarithms, from slice to slice."""
    rng = np.random.default_rng(seed)
    n_words = 30 if quick else _WORDS
    eta = np.log(rng.dirichlet(np.full(n_words, 0.1), 5) + 1e-4)
    X = []
    for _ in range(_SLICES + 1):
        topics = np.exp(eta)
        topics /= topics.sum(axis=1, keepdims=True)
        X += [rng.multinomial(60, rng.dirichlet(np.full(5, 0.2)) @ topics) for _ in range(_OF_SLICE)]
        eta += rng.normal(0, 0.2, eta.shape)
    slices = np.repeat(np.arange(_SLICES + 1), _OF_SLICE)
    return Documents(sparse.csr_array(np.array(X)), slices, slices.astype(float))


def docstrings(quick):
    """Docstrings of scipy and scikit-learn, the package of each, and 1 for the latter."""
    corpus = datasets.load_docstrings()
    package = np.array([name.partition(".")[0] for name in corpus.names])
    few = np.flatnonzero(np.isin(package, [_FIRST, _SECOND]))
    few = few[::8] if quick else few
    package = package[few]
    return Documents(sparse.csr_array(corpus.X[few]), package, (package == _SECOND).astype(float))


def in_file(path, name, task, seed, quick):
    """Documents of a file docword.NAME.txt.gz, with labels from docs.NAME.txt.gz in the same folder."""
    X = sparse.csr_array(datasets.read_uci_bow(path))
    rng, n = np.random.default_rng(seed), X.shape[0]
    if task == TIME:
        return _in_order(X, rng)
    labels = np.zeros(n, int)
    if name in _LABELS:
        labels_path = Path(path).with_name(f"docs.{name}.txt.gz")
        with gzip.open(labels_path, "rt", encoding="utf-8") as file:
            labels = np.array([_LABELS[name](line) for line in file])
    chosen = np.sort(rng.permutation(n)[: _MOST_DOCUMENTS // (8 if quick else 1)])
    labels, numbers = labels[chosen], np.unique(labels, return_inverse=True)[1][chosen]
    own = Documents(sparse.csr_array(X[chosen]), labels.astype(str), numbers.astype(float))
    if task in _OF_TEXTS:
        own = replace(own, X=_shortened(own.X, rng))
    often = np.flatnonzero((own.X > 0).sum(axis=0) > 2)
    return own.words(often)


def _shortened(X, rng):
    """At most so many tokens of each document, drawn without replacement."""
    rows, columns = [], []
    for row in range(X.shape[0]):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        tokens = np.repeat(X.indices[entries], X.data[entries].astype(int))
        tokens = rng.permutation(tokens)[:_SHORT_WORDS]
        rows += [row] * len(tokens)
        columns += tokens.tolist()
    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=X.shape)


def _in_order(X, rng):
    """Documents in the order of time, in slices; the most frequent words of all slices but the last."""
    X = X.copy()
    X.data = rng.binomial(X.data.astype(int), _PART)
    X = X[np.linspace(0, X.shape[0] - 1, (_SLICES + 1) * _OF_SLICE).astype(int)]
    slices = np.repeat(np.arange(_SLICES + 1), _OF_SLICE)
    own = Documents(sparse.csr_array(X), slices, slices.astype(float))
    often = np.argsort(-np.asarray(own.X[slices < _SLICES].sum(axis=0)).ravel(), kind="stable")[:_WORDS]
    own = own.words(np.sort(often))
    return own.rows(np.asarray(own.X.sum(axis=1)).ravel() > 1)


def documents_of(given, name, task, seed, quick):
    """The documents of a data set for a task."""
    if name == "generated":
        make = {SHORT: generated_labels, MIXED: generated_labels, TIME: generated_slices}.get(task, generated)
        return make(seed, quick)
    return docstrings(quick) if name == "docstrings" else in_file(given, name, task, seed, quick)


def parts(data, task, seed):
    """Rows to learn from and rows to judge by: a quarter, the last slice of time, or all of short texts."""
    long = np.flatnonzero(np.asarray(data.X.sum(axis=1)).ravel() > 1)
    if task in _OF_TEXTS:
        return long, long
    if task == TIME:
        last = data.groups[long] == data.groups.max()
        return long[~last], long[last]
    order = np.random.default_rng(seed).permutation(long)
    cut = len(order) // 4
    return np.sort(order[cut:]), np.sort(order[:cut])


def perplexity(topic_word, priors, X, seed):
    """Perplexity of documents by completion, each with its prior."""
    seen = np.flatnonzero(topic_word.sum(axis=0) > 0)
    X, phi = sparse.csr_array(X[:, seen]), np.ascontiguousarray(topic_word[:, seen].T)
    observed, held_out = datasets.split_tokens(X, random_state=seed)
    rows, own = np.unique(priors, axis=0, return_inverse=True)
    total = 0.0
    for number, alpha in enumerate(rows):
        chosen = np.flatnonzero(own.ravel() == number)
        n = int(held_out[chosen].sum())
        if n:
            total += n * complete(
                lambda words: phi[words], observed[chosen], held_out[chosen], alpha, n_jobs=1
            )
    return float(np.exp(-total / held_out.sum()))


def measure(side, task, data, settings):
    """Fit and judge a library's model: figures of a record."""
    n_topics, sweeps, seed, rounds, of_classes = settings
    learn, judge = (data.rows(rows) for rows in parts(data, task, seed))
    seen = np.flatnonzero(np.asarray(learn.X.sum(axis=0)).ravel())
    learn, judge = learn.words(seen), judge.words(seen)
    seconds: list[float] = []
    while len(seconds) < rounds and not (seconds and seconds[0] > _SLOW_SECONDS):
        model = side(task, n_topics, sweeps, seed, of_classes)
        model.prepare(learn)
        began = time.process_time()
        model.fit(learn)
        seconds.append(time.process_time() - began)
    found: dict[str, Any] = {"seconds": float(np.median(seconds)), "all_seconds": seconds}
    if task in _OF_TEXTS:
        return found | agreement(np.asarray(model.labels), judge.groups)
    phi, priors = model.topics(judge)
    found |= {"topics": len(phi), "perplexity": perplexity(phi, priors, judge.X, seed)}
    if task == RESPONSE:
        predicted, y = model.predict(judge.X), judge.y
        if of_classes:
            found["accuracy"] = float(np.mean(predicted == y))
        else:
            found["r2"] = float(1 - ((predicted - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return found


def agreement(topics, labels):
    """Normalised mutual information and purity of topics of texts by their labels."""
    labels = np.unique(labels, return_inverse=True)[1]
    topics = np.unique(topics, return_inverse=True)[1]
    table = np.zeros((topics.max() + 1, labels.max() + 1), int)
    np.add.at(table, (topics, labels), 1)
    return {
        "topics": len(table),
        "information": float(normalized_mutual_info_score(labels, topics)),
        "purity": float(table.max(axis=1).sum() / len(labels)),
    }


def _chosen(args):
    """Data sets with their paths, tasks, and sides."""
    peers = [side for side in SIDES if side is not Own]
    unknown = [name for name in args.against or () if name not in {side.name for side in peers}]
    if unknown:
        names = ", ".join(side.name for side in peers)
        raise DataError(f"--against: topics-models compares with {names}, not {unknown[0]}")
    short = {task.split()[0]: task for task in TASKS}
    wrong = [name for name, value in args.param if name not in short or value is not True]
    if wrong:
        raise DataError(
            f"--param: topics-models has {', '.join(f'{name}=True' for name in short)}, not {wrong[0]}"
        )
    tasks = [short[name] for name, _ in args.param] or list(TASKS)
    given = {}
    for path in args.dataset or ("generated", "docstrings"):
        name = Path(path).name.removeprefix("docword.").partition(".")[0]
        if name not in _TASKS_OF:
            known = ", ".join(
                name if name in ("generated", "docstrings") else f"docword.{name}.txt.gz"
                for name in _TASKS_OF
            )
            raise DataError(f"--dataset: topics-models has {known}, not {path}")
        given[name] = path
    sides = [side for side in peers if importlib.util.find_spec(side.name)]
    if args.against:
        sides = [side for side in sides if side.name in args.against]
    return given, tasks, [Own, *sides]


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench topics-models`` ask for."""
    given, tasks, sides = _chosen(args)
    common, seed = about_run("topics-models"), args.seed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of intervals of short fits, and of peers
        LatentDirichletAllocation(2, max_iter=1).fit(generated(seed, quick=True).X)
        for name, path in given.items():
            for task in _TASKS_OF[name]:
                if task in tasks:
                    data = documents_of(path, name, task, seed, args.quick)
                    _compare(sides, name, task, data, args, common, on_record, tell)


def _compare(sides, name, task, data, args, common, on_record, tell):
    """Fit and judge the models of all libraries that have the task."""
    n_topics = {NUMBER: 50, SHORT: 40, MIXED: 40, TIME: 5}.get(task, _TOPICS.get(name, 20))
    sweeps, rounds = (30, 1) if args.quick else ({SHORT: 50, MIXED: 50, TIME: 200}.get(task, 500), 3)
    about = {"name": name, "documents": data.X.shape[0], "tokens": int(data.X.sum()), "sweeps": sweeps}
    of_classes = name in ("docstrings", "imdb")
    # Compiles: kernels for documents of this length.
    measure(Own, task, data, (n_topics, 12, args.seed, 1, of_classes))
    for side in sides:
        if task in side.tasks:
            found = measure(side, task, data, (n_topics, sweeps, args.seed, rounds, of_classes))
            on_record({**common, "system": side.name, "task": task, "data": about, **found})
            figure = "information" if task in _OF_TEXTS else "perplexity"
            tell(f"{name}, {task}, {side.name}: {figure} {found[figure]:.4g}")


# Tables ---------------------------------------------------------------------------------------------------


def _columns():
    def number(name, digits):
        return lambda record: f"{record[name]:.{digits}f}" if name in record else ""

    return {
        "perplexity": number("perplexity", 1),
        "information": number("information", 3),
        "purity": number("purity", 3),
        "accuracy": number("accuracy", 3),
        "R^2": number("r2", 3),
        "topics": lambda record: str(record["topics"]),
        "fit, CPU s": lambda record: f"{record['seconds']:.3g}",
    }


def tables(records):
    """A table for each data set and size, of the last run of each model."""
    last: dict = {}
    for record in records:
        data = tuple(record["data"].items())
        last[data, record["task"], record["system"]] = record
    found = []
    for data in dict.fromkeys(data for data, *_ in last):
        rows = [(f"{task}, {system}", record) for (own, task, system), record in last.items() if own == data]
        about = dict(data)
        size = f"{about['documents']:,} documents of {about['tokens']:,} tokens"
        caption = f"{about['name']}: {size}, {about['sweeps']} sweeps"
        found.append(
            Table.of(
                rows,
                {name: get for name, get in _columns().items() if any(get(r) for _, r in rows)},
                "",
                caption,
            )
        )
    return found


def table(records):
    """Return the tables as text."""
    return "\n\n".join(one.text() for one in tables(records))


def page(records):
    """Return the page of a run of the benchmark."""
    whole = Page("stradask bench topics-models: topic models beyond LDA").text(
        "The same topics, priors and sweeps (20 rounds of EM for variational models); judged by one code. "
        "Mixed short texts: pairs of words here and in topica, pseudo-documents in tomotopy. "
        "CPU seconds of the fit on one thread, "
        f"on {where(records[0])}."
    )
    for one in tables(records):
        whole = whole.table(*one)
    return whole.add_facts(records[0], "machine")
