"""Topic models beyond LDA, next to tomotopy's: ``stradask bench topics-models``.

Covariates (Dirichlet-multinomial regression), a number of topics that is found (HDP), and a response
(supervised LDA). Both libraries fit three quarters of the documents with the same number of topics, priors
and sweeps, one after the other on one thread. Words of the rest are judged by one code: half of each
document's tokens tell its shares, the others are predicted, with the topics and the document prior that a
model gives. Responses are predicted by each library's own method. CPU seconds are of the fit alone, medians
of rounds.
"""

import importlib.util
import time
import warnings

import numpy as np
from scipy import sparse

from .. import datasets
from ..algorithms.topics.dmr import DMRTopicModel
from ..algorithms.topics.evaluation import complete
from ..algorithms.topics.hdp import HDPTopicModel
from ..algorithms.topics.lda import LatentDirichletAllocation
from ..algorithms.topics.supervised import SupervisedLDA
from ..errors import DataError
from .pages.page import Page, where
from .pages.tables import Table
from .run import about_run

TASKS = ("covariates", "number of topics", "response")
_ALPHA, _BETA = 0.1, 0.01
_FIRST, _SECOND = "scipy", "sklearn"  # packages of docstrings, of which the response is the second


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
    return sparse.csr_array(X), group.astype(str), y


def docstrings(quick):
    """Docstrings of scipy and scikit-learn, the package of each, and 1 for the latter."""
    corpus = datasets.load_docstrings()
    package = np.array([name.partition(".")[0] for name in corpus.names])
    few = np.flatnonzero(np.isin(package, [_FIRST, _SECOND]))
    few = few[::8] if quick else few
    X, package = sparse.csr_array(corpus.X[few]), package[few]
    return X, package, (package == _SECOND).astype(float)


def parts(X, seed):
    """Rows to learn from and rows to judge by, a quarter; words that only the latter have are left out."""
    long = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 1)
    order = np.random.default_rng(seed).permutation(long)
    cut = len(order) // 4
    return np.sort(order[cut:]), np.sort(order[:cut])


class OwnTopics:
    """The models of this library."""

    name = "stradask"

    def __init__(self, task, n_topics, sweeps, seed, of_classes):
        self.task, self.of_classes = task, of_classes
        given = {"topic_word_prior": _BETA, "max_iter": sweeps, "random_state": seed, "n_jobs": 1}
        if task == "covariates":
            self.model = DMRTopicModel(n_topics, doc_topic_prior=_ALPHA, **given)
        elif task == "number of topics":
            self.model = HDPTopicModel(n_topics, **given)
        else:
            response = "class" if of_classes else "number"
            self.model = SupervisedLDA(n_topics, doc_topic_prior=_ALPHA, response=response, **given)

    def fit(self, X, groups, y):
        """Fit; time counts from here on."""
        if self.task == "covariates":
            self.model.fit(X, covariates={"group": groups})
        elif self.task == "response":
            self.model.fit(X, y)
        else:
            self.model.fit(X)

    def topics(self, groups):
        """Topics, and the prior of each of some documents."""
        if self.task == "covariates":
            rows = self.model._reader.design({"group": groups}, len(groups))
            return self.model.topic_word_, self.model._prior_rows(rows)
        alpha = self.model.doc_topic_prior_
        return self.model.topic_word_, np.broadcast_to(alpha, (len(groups), len(alpha)))

    def predict(self, X):
        """Predict responses."""
        return self.model.predict(X)


class TomotopyTopics:
    """The models of tomotopy."""

    name = "tomotopy"

    def __init__(self, task, n_topics, sweeps, seed, of_classes):
        import tomotopy

        self.task, self.sweeps, self.of_classes = task, sweeps, of_classes
        if task == "covariates":
            self.model = tomotopy.DMRModel(k=n_topics, alpha=_ALPHA, eta=_BETA, seed=seed)
        elif task == "number of topics":
            self.model = tomotopy.HDPModel(initial_k=2, alpha=1.0, gamma=1.0, eta=_BETA, seed=seed)
        else:
            kind = "b" if of_classes else "l"
            self.model = tomotopy.SLDAModel(k=n_topics, vars=kind, alpha=_ALPHA, eta=_BETA, seed=seed)

    def _words(self, X, row):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        return self.names[np.repeat(X.indices[entries], X.data[entries])].tolist()

    def prepare(self, X, groups, y):
        """Add the documents, which is not timed."""
        self.names, self.n_words = np.array([str(word) for word in range(X.shape[1])]), X.shape[1]
        self.centre, self.scale = 0.0, 1.0
        if not self.of_classes:
            self.centre, self.scale = float(y.mean()), float(y.std())
        for row in range(X.shape[0]):
            known = {}
            if self.task == "covariates":
                known = {"metadata": groups[row]}
            elif self.task == "response":
                known = {"y": [float((y[row] - self.centre) / self.scale)]}
            self.model.add_doc(self._words(X, row), **known)

    def fit(self, X, groups, y):
        """Fit; time counts from here on."""
        self.model.train(self.sweeps, workers=1)

    def topics(self, groups):
        """Topics, and the prior of each of some documents."""
        words = np.array([int(word) for word in self.model.used_vocabs])
        live = [
            k for k in range(self.model.k) if self.task != "number of topics" or self.model.is_live_topic(k)
        ]
        phi = np.zeros((len(live), self.n_words))
        for place, k in enumerate(live):
            phi[place, words] = self.model.get_topic_word_dist(k)
        if self.task == "covariates":
            table = {group: self.model.get_topic_prior(group) for group in dict.fromkeys(groups)}
            return phi, np.array([table[group] for group in groups], float)
        if self.task == "response":
            return phi, np.broadcast_to(np.asarray(self.model.alpha, float), (len(groups), len(live)))
        tokens = np.asarray(self.model.get_count_by_topics(), float)[live]
        alpha = float(self.model.alpha) * np.maximum(tokens, 1e-3) / tokens.sum()
        return phi, np.broadcast_to(alpha, (len(groups), len(live)))

    def predict(self, X):
        """Predict responses."""
        documents = [self.model.make_doc(self._words(X, row)) for row in range(X.shape[0])]
        self.model.infer(documents, iterations=100, workers=1)
        found = np.array([self.model.estimate(document)[0] for document in documents])
        return (found > 0.5).astype(float) if self.of_classes else found * self.scale + self.centre


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
    X, groups, y = data
    n_topics, sweeps, seed, rounds, of_classes = settings
    learn, judge = parts(X, seed)
    seen = np.flatnonzero(np.asarray(X[learn].sum(axis=0)).ravel())
    X = sparse.csr_array(X[:, seen])
    own = X[learn], groups[learn], y[learn]
    seconds = []
    for _ in range(rounds):
        model = side(task, n_topics, sweeps, seed, of_classes)
        if hasattr(model, "prepare"):
            model.prepare(*own)
        began = time.process_time()
        model.fit(*own)
        seconds.append(time.process_time() - began)
    phi, priors = model.topics(groups[judge])
    found = {"seconds": float(np.median(seconds)), "all_seconds": seconds, "topics": len(phi)}
    found["perplexity"] = perplexity(phi, priors, X[judge], seed)
    if task == "response":
        predicted, y = model.predict(X[judge]), y[judge]
        if of_classes:
            found["accuracy"] = float(np.mean(predicted == y))
        else:
            found["r2"] = float(1 - ((predicted - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return found


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench topics-models`` ask for."""
    if args.param:
        raise DataError("--param: topics-models has none")
    unknown = [name for name in args.against or () if name != "tomotopy"]
    if unknown:
        raise DataError(f"--against: topics-models compares with tomotopy, not {unknown[0]}")
    sides = [OwnTopics] + ([TomotopyTopics] if importlib.util.find_spec("tomotopy") else [])
    common, seed = about_run("topics-models"), args.seed
    sweeps, rounds = (30, 1) if args.quick else (500, 3)
    for name in args.dataset or ("generated", "docstrings"):
        if name not in ("generated", "docstrings"):
            raise DataError(f"--dataset: topics-models has generated and docstrings, not {name}")
        data = generated(seed, args.quick) if name == "generated" else docstrings(args.quick)
        about = {"name": name, "documents": data[0].shape[0], "tokens": int(data[0].sum()), "sweeps": sweeps}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of intervals of short fits
            LatentDirichletAllocation(2, max_iter=1).fit(data[0])
            for task in TASKS:
                n_topics = 50 if task == "number of topics" else 6 if name == "generated" else 20
                settings = n_topics, sweeps, seed, rounds, name == "docstrings"
                # Compiles: kernels for documents of this length.
                measure(OwnTopics, task, data, (n_topics, 12, seed, 1, name == "docstrings"))
                for side in sides:
                    found = measure(side, task, data, settings)
                    on_record({**common, "system": side.name, "task": task, "data": about, **found})
                    tell(f"{name}, {task}, {side.name}: perplexity {found['perplexity']:.1f}")


# Tables ---------------------------------------------------------------------------------------------------


def _columns():
    def number(name, digits):
        return lambda record: f"{record[name]:.{digits}f}" if name in record else ""

    return {
        "perplexity": number("perplexity", 1),
        "accuracy": number("accuracy", 3),
        "R^2": number("r2", 3),
        "topics": lambda record: str(record["topics"]),
        "fit, CPU s": lambda record: f"{record['seconds']:.3g}",
    }


def tables(records):
    """A table for each data set, of its last run."""
    last = {(record["data"]["name"], record["task"], record["system"]): record for record in records}
    found = []
    for name in dict.fromkeys(name for name, *_ in last):
        rows = [(f"{task}, {system}", record) for (own, task, system), record in last.items() if own == name]
        data = rows[0][1]["data"]
        caption = (
            f"{name}: {data['documents']:,} documents of {data['tokens']:,} tokens, a quarter to judge by, "
            f"{data['sweeps']} sweeps"
        )
        found.append(Table.of(rows, _columns(), "", caption))
    return found


def table(records):
    """Return the tables as text."""
    return "\n\n".join(one.text() for one in tables(records))


def page(records):
    """Return the page of a run of the benchmark."""
    whole = Page("stradask bench topics-models: topic models beyond LDA").text(
        "The same topics, priors and sweeps; words judged by one code. CPU seconds of the fit on one thread, "
        f"on {where(records[0])}."
    )
    for one in tables(records):
        whole = whole.table(*one)
    return whole.add_facts(records[0], "machine")
