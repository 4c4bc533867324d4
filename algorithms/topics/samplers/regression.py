"""Gibbs sampling where a document's prior is log-linear in covariates: Dirichlet-multinomial regression.

::

    lambda_kf ~ N(mean_f, scale_f^2),   alpha_dk = exp(x_d . lambda_k),   theta_d ~ Dirichlet(alpha_d)

A sweep draws the tokens' topics given the coefficients, by the kernel of plain LDA. After every
`UPDATE_EVERY` sweeps the coefficients move given the counts, with the topic shares integrated out, by a
trajectory of Hamiltonian Monte Carlo: its metric is, topic by topic, the curvature of the likelihood and the
prior. Before `burn_in` the coefficients also climb towards the mode, and metric and step are fitted, which
stay afterwards, so that the chain is that of the posterior of topics and coefficients together.

Shards send the counts of their documents' topics, ordered by rows of the design; the coordinator moves.

References: Mimno, McCallum, UAI 2008; Neal, "MCMC using Hamiltonian dynamics", 2011.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....kernels.lda import document_priors as kernels
from ....scheduler.threads import run_tasks
from ..._streams import Purpose
from ..blocks.averages import shares_of
from ..blocks.document_rows import DenseDocuments, row_width
from ..blocks.restoring import taken, unfit
from .annealing import Priors
from .gibbs import Gibbs

UPDATE_EVERY = 10  # sweeps: a trajectory costs about as much as one
_LENGTH, _FIRST_STEP, _ACCEPTED = 4.0, 1.4, 0.8  # of a trajectory; the step is that of one number
_TRIES, _POOR = 4, 0.2  # before `burn_in`: trajectories, one after the other, while so few are accepted
_ASCENTS, _HALVINGS = 3, 10  # steps of scoring before `burn_in`
_ENOUGH = 0.1  # for each coefficient: the gain that ends them; that of a draw is a half, on average
_FEWEST, _MOST = 3, 10  # steps of a trajectory
_MOST_BEFORE = 5  # before `burn_in`: from near the mode, a quarter of a turn gives all of the spread
_FEW_COLUMNS = 16  # up to which products of columns are kept
_ROWS = 2048  # of a design at a time, where a number for each topic is made


@dataclass(frozen=True)
class CoefficientPrior:
    """Normal priors of the coefficients: `mean` and `scale` by column of the design."""

    mean: np.ndarray
    scale: np.ndarray


class RegressionPriors(Priors):
    """As `Priors`; alpha are the coefficients, n_topics x columns."""

    def of_checkpoint(self, arrays):
        """The priors that a checkpoint holds, of these shapes."""
        alpha, beta, annealed = taken(arrays, "alpha", "beta", "annealed")
        fits = annealed.shape == () and annealed.dtype == np.int64 and bool(annealed >= 0)
        fits = fits and alpha.shape == self.alpha.shape and alpha.dtype == np.float64
        if not (fits and np.array_equal(beta, self.beta) and np.isfinite(alpha).all()):
            raise unfit()
        return RegressionPriors(alpha, self.beta, int(annealed), self.first)


class PriorRows(DenseDocuments):
    """Dense counts; documents with equal covariates share a row of the table of priors."""

    def __init__(self, design, longest, n_topics, storage):
        super().__init__(len(design), longest, n_topics, storage)
        self.design, first, inverse = np.unique(design, axis=0, return_index=True, return_inverse=True)
        self._inverse, met = inverse.reshape(-1), np.argsort(first)
        # In the order in which documents meet them: a sweep goes through the table as through the documents.
        self._met = self.design[met]
        place = np.empty(len(met), np.int32)
        place[met] = np.arange(len(met))
        self.row = place[self._inverse]
        self._table = np.zeros((len(self.design), self.width), np.float32)
        self._of: Any = None

    @staticmethod
    def bytes_of_design(design, n_topics):
        """Bytes of a shard's covariates and of its table of priors."""
        n_distinct = len(np.unique(design, axis=0))
        return (
            n_distinct * (4 * row_width(n_topics) + 16 * design.shape[1]) + 8 * design.size + 12 * len(design)
        )

    def drawn_with(self, alpha):
        """The table of priors, made anew where the coefficients are new, and the row of each document."""
        if self._of is not alpha:
            by_column = np.ascontiguousarray(alpha.T)
            kernels.fill_priors(self._met, by_column, *np.empty((2, len(alpha))), self._table)
            self._of = alpha
        return self._table, self.row

    def log_likelihood(self, first, last, alpha):
        """Sum over documents ``first:last`` of lnG(C_dk + alpha_dk) - lnG(alpha_dk)."""
        return kernels.documents_of_rows(first, last, self.counts, *self.drawn_with(alpha), self.n_topics)

    def prior_sums(self, alpha):
        """Sum of alpha_dk, of each document."""
        table, row = self.drawn_with(alpha)
        return table.sum(axis=1, dtype=np.float64)[row]

    def shares(self, sums, lengths, alpha):
        """Topic shares from sums of counts; None if there are none yet."""
        table, row = self.drawn_with(alpha)
        return shares_of(sums, lengths, table[row, : self.n_topics].astype(np.float64))

    def listed(self, lengths):
        """Counts above zero by row of `design`, and lengths of documents, with how often each occurs.

        Two times three arrays: where a row begins, topics and counts, and times; and of lengths.
        """
        row, n_rows, n_topics = self._inverse, len(self.design), self.n_topics
        order = np.argsort(row, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
        n = np.count_nonzero(self.counts[:, :n_topics])
        first, topics, counts = np.empty(len(start), np.int64), np.empty(n, np.uint16), np.empty(n, np.int32)
        kernels.list_counts(self.counts, order, start, n_topics, first, topics, counts)
        by_topic = np.repeat(np.arange(n_rows) * n_topics, np.diff(first)) + topics
        first, by_topic, counts, times = _tallied(by_topic, counts, n_topics, n_rows, first)
        start, _, lengths, documents = _tallied(row[order], lengths[order], 1, n_rows, start)
        return first, (by_topic % n_topics).astype(np.uint16), counts, times, start, lengths, documents


def _tallied(place, values, n_places, n_rows, first):
    """Join equal values of equal places, `n_places` a row, where there are few different ones."""
    width = int(values.max(initial=0)) + 1
    if n_rows * n_places * width > len(values):
        return first, place, values, np.ones(len(values), np.int32)
    times = np.bincount(place * width + values, minlength=n_rows * n_places * width)
    found = np.flatnonzero(times)
    first = np.searchsorted(found, np.arange(n_rows + 1) * (n_places * width))
    return first, found // width, (found % width).astype(values.dtype), times[found].astype(np.int32)


class CovariateGibbs(Gibbs):
    """Gibbs sampling with coefficients; each shard of the corpus has the ``design`` of its documents.

    alpha of the program are the coefficients to begin with, n_topics x columns.

    Parameters
    ----------
    prior : CoefficientPrior
    burn_in : int
        Sweeps after which draws of the coefficients are kept, and metric and step stay.
    n_threads : int
        Of the coordinator; the draws do not depend on it.

    Attributes
    ----------
    draws : list of ndarray of shape (n_topics, columns)
    """

    prior_figures = "listed"
    designs: list

    def __init__(self, prior, burn_in, n_threads=1):
        self.prior, self.burn_in, self.n_threads = prior, burn_in, n_threads

    def bound(self, program, corpus):
        """See `Gibbs`."""
        bound = super().bound(program, corpus)
        bound.draws, bound.designs = [], [np.unique(shard["design"], axis=0) for shard in corpus.shards]
        return bound

    def first_priors(self, alpha, beta, annealed):
        """See `Gibbs`."""
        self.metric = np.zeros((len(alpha), *alpha.shape[1:] * 2))
        self.step = _FIRST_STEP * alpha.size**-0.25
        return RegressionPriors.of(alpha, beta, annealed, self.program.n_tokens)

    def __getstate__(self):
        """What only the coordinator needs stays there."""
        return vars(self) | {"designs": None, "draws": []}

    # At a shard -----------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, facts=None):
        """Allocate the counts of documents; `facts` is their design."""
        design = np.zeros((len(lengths), 1)) if facts is None else facts
        return PriorRows(design, self.program.longest, self.program.n_topics, storage)

    def figures_of_documents(self, shard):
        """List the counts of the documents' topics."""
        return {"listed": shard.documents.listed(shard.lengths)}

    def figures_of_words(self, shard, block, value):
        """Words say nothing of coefficients."""
        return {}

    # At the coordinator ---------------------------------------------------------------------------

    def fits_after(self, swept):
        """Whether coefficients are drawn when so many sweeps are done."""
        return swept % UPDATE_EVERY == 0

    def publish(self):
        """Return the coefficients."""
        return {"alpha": self.program.alpha, "beta": 0.0}

    def fit(self, swept):
        """Move the coefficients."""
        program = self.program
        listed = [figures.pop("listed") for figures in program.shard_figures]
        posterior = CoefficientPosterior(self.designs, listed, self.prior, self.n_threads)
        stream = np.random.default_rng([int(program.seed), Purpose.COVARIATES, swept])
        point = posterior.at(program.alpha)
        adapts = swept <= max(self.burn_in, program.annealed) or not self.metric.any()
        most = _MOST_BEFORE if adapts else _MOST
        if adapts:
            point = ascent(posterior, point)
            self.metric = posterior.curvature(point)
        for _ in range(_TRIES if adapts else 1):
            point, accepted = trajectory(posterior, point, self.metric, self.step, stream, most)
            if not adapts:
                break
            gain = 2 / np.sqrt(swept / UPDATE_EVERY)
            self.step = float(np.clip(self.step * np.exp(gain * (accepted - _ACCEPTED)), 1e-3, 1.5))
            if accepted > _POOR:
                break
        program.priors = program.priors.replaced(point.coefficients, 0.0)
        if swept > max(self.burn_in, program.annealed):
            self.draws.append(point.coefficients)

    def completed(self, gathered):
        """Add the draws, n_draws x n_topics x columns; before the first, the present coefficients."""
        return replace(gathered, extra={"draws": np.array(self.draws or [self.program.alpha])})

    def arrays(self):
        """See `Gibbs`."""
        draws = np.array(self.draws).reshape(-1, *self.program.alpha.shape)
        fitted = {"metric": self.metric, "step": np.float64(self.step)}
        return {"draws": draws, "burn_in": np.int64(self.burn_in)} | fitted

    def restore(self, arrays):
        """See `Gibbs`."""
        draws, burn_in, metric, step = taken(arrays, "draws", "burn_in", "metric", "step")
        fits = draws.ndim == 3 and draws.shape[1:] == self.program.alpha.shape and draws.dtype == np.float64
        fits = fits and metric.shape == self.metric.shape and metric.dtype == step.dtype == np.float64
        fits = fits and burn_in.shape == step.shape == () and burn_in.dtype == np.int64 and 0 < step < 2
        if not (fits and np.isfinite(draws).all() and np.isfinite(metric).all()):
            raise unfit()
        self.draws, self.burn_in = list(draws), int(burn_in)
        self.metric, self.step = metric.copy(), float(step)


def priors_of(design, coefficients):
    """Alpha of documents, rows x topics."""
    rows = design @ coefficients.T
    return np.exp(np.clip(rows, -kernels.MOST_LOG, kernels.MOST_LOG, out=rows), out=rows)


# A move of the coefficients -----------------------------------------------------------------------------


class CoefficientPoint(NamedTuple):
    """Coefficients, their log density up to a constant, its gradient, and by shard the rates of all rows."""

    coefficients: np.ndarray
    value: float
    gradient: np.ndarray
    rates: list


class CoefficientPosterior:
    """The posterior of the coefficients given the counts, by shards.

    Parameters
    ----------
    designs : list of ndarray of shape (n_rows, columns)
        Distinct rows of each shard.
    listed : list of tuple
        What `PriorRows.listed` gives of each.
    prior : CoefficientPrior
    n_threads : int
    """

    def __init__(self, designs, listed, prior, n_threads=1):
        self.designs, self.listed, self.prior, self.n_threads = designs, listed, prior, n_threads
        self.precision = prior.scale**-2.0

    def at(self, coefficients):
        """Go once through the counts."""
        parts = self._passes(coefficients)
        away = coefficients - self.prior.mean
        value = sum(part[0] for part in parts) - float((away**2 * self.precision).sum()) / 2
        gradient = np.sum([part[1] for part in parts], axis=0).T - away * self.precision
        return CoefficientPoint(coefficients, value, gradient, [part[2] for part in parts])

    def _passes(self, coefficients):
        by_column = np.ascontiguousarray(coefficients.T)

        def one(design, listed):
            gradient, rates = np.zeros(by_column.shape), np.empty(len(design))
            scratch = np.empty((3, by_column.shape[1]))
            value = kernels.regression(design, by_column, *listed, *scratch, gradient, rates)
            return value, gradient, rates

        return run_tasks(
            [(one, pair) for pair in zip(self.designs, self.listed, strict=True)], self.n_threads
        )

    def curvature(self, point):
        """Fisher's information of the topics, one by one, and the prior: topics x columns x columns."""
        coefficients = point.coefficients
        n_topics, n_columns = coefficients.shape
        out = np.zeros((n_topics, n_columns, n_columns))
        blocks = (
            (design[first : first + _ROWS], rates[first : first + _ROWS])
            for design, rates in zip(self.designs, point.rates, strict=True)
            for first in range(0, len(design), _ROWS)
        )
        for design, rates in blocks:
            weight = priors_of(design, coefficients)
            weight *= rates[:, None]
            if n_columns <= _FEW_COLUMNS:
                pairs = np.triu_indices(n_columns)
                packed = weight.T @ (design[:, pairs[0]] * design[:, pairs[1]])
                whole = np.empty_like(out)
                whole[:, pairs[0], pairs[1]] = whole[:, pairs[1], pairs[0]] = packed
                out += whole
            else:
                for k in range(n_topics):
                    out[k] += (design * weight[:, k, None]).T @ design
        out[:, np.arange(n_columns), np.arange(n_columns)] += self.precision
        return out


def ascent(posterior, now):
    """Go towards the mode by a few steps of Fisher scoring, topic by topic, halved until they rise."""
    enough = _ENOUGH * now.coefficients.size
    for _ in range(_ASCENTS):
        step = np.linalg.solve(posterior.curvature(now), now.gradient[:, :, None])[:, :, 0]
        length = 1.0
        for _ in range(_HALVINGS):
            reached = posterior.at(now.coefficients + length * step)
            if reached.value > now.value:
                break
            length /= 2
        else:
            return now
        now, gain = reached, reached.value - now.value
        if gain < enough:
            break
    return now


def trajectory(posterior, start, metric, step, random, most=_MOST):
    """Move the coefficients by one trajectory of Hamiltonian dynamics; also return its acceptance."""
    factor = np.linalg.cholesky(metric)
    inverse = np.linalg.inv(metric)
    step = step * random.uniform(0.8, 1.2)
    n_steps = int(np.clip(round(_LENGTH / step), _FEWEST, most))
    momentum = np.einsum("kfg,kg->kf", factor, random.standard_normal(start.coefficients.shape))
    energy = start.value - np.einsum("kf,kfg,kg->", momentum, inverse, momentum) / 2
    now = start
    for _ in range(n_steps):
        momentum = momentum + step / 2 * now.gradient
        now = posterior.at(now.coefficients + step * np.einsum("kfg,kg->kf", inverse, momentum))
        momentum = momentum + step / 2 * now.gradient
    reached = now.value - np.einsum("kf,kfg,kg->", momentum, inverse, momentum) / 2
    log_ratio = reached - energy
    accepted = float(np.exp(min(log_ratio, 0.0))) if np.isfinite(log_ratio) else 0.0
    return (now if random.random() < accepted else start), accepted
