r"""Gibbs sampling of topics that also explain a response of each document: supervised LDA.

::

    y_d ~ N(m_d, sigma^2), Poisson(exp(m_d)) or Categorical(softmax(m_d)),   m_d = b + eta^T C_d / L_d

A sweep draws the tokens' topics given words, responses and coefficients: `Gibbs` proposes by the
conditional of plain LDA, and the response accepts (`kernels.lda.responses`). After every `UPDATE_EVERY`
sweeps the coefficients become the mode of their posterior given the counts, that of a generalised linear
model of the response with the shares of topics as columns, by Newton's method. So the fit is a stochastic EM
algorithm: it climbs, up to the noise of one draw of topics, in ``log p(w, y | eta, b, sigma) + log p(eta,
sigma)`` with the topics summed out. The modes after `burn_in` are averaged.

Shards send the counts of their documents' topics; the coordinator fits.

References: McAuliffe, Blei, "Supervised topic models", NIPS 2007; Celeux, Diebolt, "The SEM algorithm",
Computational Statistics Quarterly 1985.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln, log_softmax, softmax

from ....kernels.lda.gibbs import sweep_sparse
from ....kernels.lda.models import responses as kernels
from ..._streams import Purpose
from ...optimize.methods.newton import minimize_newton_cg
from ..blocks.document_rows import (
    DenseDocuments,
    PackedLists,
    ShortDocuments,
    UnlabelledDocuments,
    document_rows,
    sparse_scratch,
)
from ..blocks.packing import pack_counts, unpack_counts
from ..blocks.restoring import taken, unfit
from .gibbs import Gibbs

UPDATE_EVERY = 10  # sweeps
_FREEDOM, _LEAST_VARIANCE = 1.0, 0.01  # of the prior of sigma^2, scaled inverse chi-square
_TOLERANCE = 5e-5  # of the Newton decrement, relative to the objective; one draw of topics moves it by more
_INTERCEPT_PRECISION = 1e-4  # of the prior of b, without which a sum over the classes is not determined
_WIDEST = 300.0  # difference of predictors whose exponentials are finite, with room
_ROUNDS = 5  # of coefficients and variance in turn


@dataclass(frozen=True)
class Response:
    """What the response is like.

    `family` is one of `kernels`, `n_predictors` 1 or the number of classes, `precision` that of the normal
    prior of each coefficient eta.
    """

    family: int
    n_predictors: int
    precision: float


@dataclass(frozen=True)
class Coefficients:
    """eta (topics x predictors), b (predictors) and the variance of a normal response."""

    eta: np.ndarray
    intercepts: np.ndarray
    variance: float = 1.0

    @classmethod
    def at_start(cls, n_topics, response):
        """Nothing is known."""
        return cls(np.zeros((n_topics, response.n_predictors)), np.zeros(response.n_predictors))

    def packed(self):
        """One matrix for checkpoints and messages: eta, b, and the variance in all places of a row."""
        return np.vstack([self.eta, self.intercepts, np.full(len(self.intercepts), self.variance)])

    @classmethod
    def of_packed(cls, packed):
        """Undo `packed`."""
        return cls(np.ascontiguousarray(packed[:-2]), packed[-2].copy(), float(packed[-1, 0]))


class Responses(UnlabelledDocuments):
    """Documents with responses; of each, `held` has three numbers and the predictors (`kernels`)."""

    takes_steps = False
    stored: Any

    def know(self, targets, lengths, response):
        """Take the responses; `targets` has one column, of classes their numbers."""
        self.response, n = response, len(targets)
        self.held = np.zeros((n, kernels.FIRST + response.n_predictors))
        self.held[:, kernels.TARGET] = targets[:, 0]
        self.held[:, kernels.INVERSE_LENGTH] = 1 / np.maximum(lengths, 1)
        self.coefficients = Coefficients.at_start(self.n_topics, response)
        self.round, self.state = -1, np.uint64(0)
        return self

    def begin_sweep(self, round_):
        """Make the predictors anew, so that rounding does not add up."""
        self.round = round_
        self.look()

    def look(self):
        """Compute predictors and log-likelihoods from coefficients and counts."""
        scratch = np.zeros(self.n_topics), np.zeros(self.width + 32, np.uint8)
        kernels.begin(self.stored, self.width, self.coefficients.intercepts, self.drawn_with(None), *scratch)

    def drawn_with(self, alpha):
        """The prior as the kernels take it, with the responses; None where it does not matter."""
        vector = super().drawn_with(np.zeros(0) if alpha is None else alpha)
        kind = (self.response.family, self.coefficients.variance, self._are_exponentials)
        return (vector, self.coefficients.eta, self.held, self.state, *kind)

    @property
    def _are_exponentials(self):
        """Whether exponentials of the predictors are kept: of classes, where they are finite."""
        eta, b = self.coefficients.eta, self.coefficients.intercepts
        widest = 2 * float(np.abs(eta).max(initial=0)) + float(np.ptp(b))
        return int(self.response.family == kernels.CLASSES and widest < _WIDEST)

    def log_likelihood_of_responses(self):
        """Sum over documents of log p(y | counts, coefficients)."""
        self.look()
        family, variance = self.response.family, self.coefficients.variance
        targets = self.held[:, kernels.TARGET]
        total = kernels.log_likelihoods(self.held, family, variance, self._are_exponentials)
        if family == kernels.NORMAL:
            total -= len(targets) * np.log(2 * np.pi * variance) / 2
        if family == kernels.POISSON:
            total -= float(gammaln(targets + 1).sum())
        return float(total)


class DenseResponses(Responses, DenseDocuments):
    """Rows of counts."""


class ShortResponses(Responses, ShortDocuments):
    """Topics of the tokens of short documents."""


class ListedResponses(Responses, PackedLists):
    """Lists of topics."""

    def sweep(self, place, words, mode):
        """Draw the tokens of a block; `drawn_with` is among `words`."""
        row, rows, totals, responses, *priors = words
        work = sparse_scratch(self.n_topics, mode[-1])
        own = (row, rows, totals, responses[0], *priors)
        sweep_sparse(*place, *self.stored, *own, *mode, work, responses)


class ResponseGibbs(Gibbs):
    """Gibbs sampling with responses; each shard of the corpus has the ``response`` of its documents.

    Parameters
    ----------
    response : Response
    targets : ndarray of shape (n_documents,)
        Of the documents in the order of the shards, for the coordinator.
    burn_in : int
        Sweeps after which coefficients are averaged.
    """

    prior_figures = "documents"
    coefficients: Coefficients
    averaged: Any
    n_averaged: int

    def __init__(self, response, targets, burn_in):
        self.response, self.targets, self.burn_in = response, targets, burn_in

    def bound(self, program, corpus):
        """See `Gibbs`."""
        bound = super().bound(program, corpus)
        bound.coefficients = Coefficients.at_start(program.n_topics, self.response)
        bound.averaged, bound.n_averaged = np.zeros_like(bound.coefficients.packed()), 0
        return bound

    def __getstate__(self):
        """What only the coordinator needs stays there."""
        return vars(self) | {"targets": None}

    # At a shard -----------------------------------------------------------------------------------

    def document_kind(self, lengths, storage, facts=None):
        """Allocate the counts of documents; `facts` are their responses."""
        targets, program = np.zeros((len(lengths), 1)) if facts is None else facts, self.program
        kinds, n_documents = (DenseResponses, ShortResponses, ListedResponses), program.corpus.n_documents
        sizes = (lengths, program.longest, program.n_topics)
        documents = document_rows(*sizes, storage=storage, n_documents=n_documents, kinds=kinds)
        return documents.know(targets, lengths, self.response)

    def receive(self, shard, message):
        """Take coefficients."""
        if "coefficients" in message:
            shard.documents.coefficients = Coefficients.of_packed(message["coefficients"])

    def sweep(self, shard, task, tokens, words):
        """Draw tokens, each proposed as without responses."""
        documents, program = shard.documents, self.program
        if documents.round != task.round:
            documents.begin_sweep(task.round)
        number = task.shard * program.n_blocks + task.blocks
        stream = np.random.SeedSequence([int(program.seed), Purpose.RESPONSES, task.round, number])
        documents.state = stream.generate_state(1, np.uint64)[0]
        super().sweep(shard, task, tokens, words)

    def measure(self, shard):
        """Compute the part of a shard's documents, and of their responses, for the log-likelihood."""
        return super().measure(shard) + shard.documents.log_likelihood_of_responses()

    def figures_of_documents(self, shard):
        """The counts of the documents' topics."""
        return {"documents": pack_counts(self.program.document_counts(shard))}

    def figures_of_words(self, shard, block, value):
        """Words say nothing of coefficients."""
        return {}

    # At the coordinator ---------------------------------------------------------------------------

    def fits_after(self, swept):
        """Whether coefficients are fitted when so many sweeps are done."""
        return swept % UPDATE_EVERY == 0

    def publish(self):
        """Return the coefficients."""
        return {"coefficients": self.coefficients.packed()}

    def fit(self, swept):
        """Fit the coefficients."""
        program = self.program
        packed = [figures.pop("documents") for figures in program.shard_figures]
        parts = [unpack_counts(counts, program.n_topics) for counts in packed]
        counts = sparse.csr_array(sparse.vstack(parts, format="csr"))
        self.coefficients = fitted(counts, self.targets, self.response, self.coefficients)
        if swept > max(self.burn_in, program.annealed):
            self.averaged, self.n_averaged = self.averaged + self.coefficients.packed(), self.n_averaged + 1

    def completed(self, gathered):
        """Add the mean of the coefficients after `burn_in`; before the first, those of now."""
        mean = self.coefficients
        if self.n_averaged:
            mean = Coefficients.of_packed(self.averaged / self.n_averaged)
        return replace(gathered, extra={"coefficients": mean})

    def arrays(self):
        """See `Gibbs`."""
        coefficients = {"coefficients": self.coefficients.packed(), "averaged": self.averaged}
        return coefficients | {"n_averaged": np.int64(self.n_averaged), "burn_in": np.int64(self.burn_in)}

    def restore(self, arrays):
        """See `Gibbs`."""
        now, averaged = taken(arrays, "coefficients", "averaged")
        n, burn_in = taken(arrays, "n_averaged", "burn_in")
        fits = all(a.shape == self.averaged.shape and a.dtype == np.float64 for a in (now, averaged))
        fits = fits and all(np.isfinite(a).all() and (a[-1] >= 0).all() for a in (now, averaged))
        fits = fits and all(a.shape == () and a.dtype == np.int64 and a >= 0 for a in (n, burn_in))
        if not (fits and (now[-1] > 0).all()):
            raise unfit("coefficients")
        self.coefficients, self.averaged = Coefficients.of_packed(now), averaged.copy()
        self.n_averaged, self.burn_in = int(n), int(burn_in)


# A fit of the coefficients ------------------------------------------------------------------------------


def fitted(counts, targets, response, start):
    """The mode of the coefficients given the documents' counts of topics (CSR), and of the variance.

    Of a normal response coefficients and variance are fitted in turn.
    """
    lengths = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1)
    shares = sparse.csr_array(
        (counts.data / np.repeat(lengths, np.diff(counts.indptr)), counts.indices, counts.indptr),
        shape=counts.shape,
    )
    now = start
    for _ in range(_ROUNDS if response.family == kernels.NORMAL else 1):
        objective = CoefficientObjective(shares, targets, response, now.variance)
        found = minimize_newton_cg(
            objective, np.vstack([now.eta, now.intercepts]).ravel(), tol_decrease=_TOLERANCE
        )
        matrix = found.x.reshape(-1, response.n_predictors)
        now = Coefficients(matrix[:-1], matrix[-1], now.variance)
        if response.family == kernels.NORMAL:
            away = targets - shares @ now.eta[:, 0] - now.intercepts[0]
            variance = float(away @ away) + _FREEDOM * _LEAST_VARIANCE
            now = replace(now, variance=variance / (len(targets) + _FREEDOM + 2))
    return now


class CoefficientObjective:
    """Negative log posterior of coefficients given the shares of topics, for `minimize_newton_cg`."""

    ridge = constant = 0.0

    def __init__(self, shares, targets, response, variance):
        self.shares, self.across, self.response = shares, sparse.csr_array(shares.T), response
        self.targets, self.variance, self.n_rows = targets, variance, len(targets)
        self.precision = np.full((shares.shape[1] + 1, 1), response.precision)
        self.precision[-1] = _INTERCEPT_PRECISION
        self._means_of: Any = (None, None)

    def _predicted(self, w):
        matrix = w.reshape(-1, self.response.n_predictors)
        return matrix, self.shares @ matrix[:-1] + matrix[-1]

    def _means(self, w):
        """Means of counts, or probabilities of classes; kept, since many products are asked for at one w."""
        at, means = self._means_of
        if at is None or not np.array_equal(at, w):
            _, m = self._predicted(w)
            means = np.exp(m) if self.response.family == kernels.POISSON else softmax(m, axis=1)
            self._means_of = w.copy(), means
        return means

    def _back(self, rows):
        return np.vstack([self.across @ rows, rows.sum(axis=0)])

    def value_and_gradient(self, w, *, curvature=False):
        """Compute the objective and its gradient."""
        matrix, m = self._predicted(w)
        family = self.response.family
        with np.errstate(over="ignore", invalid="ignore"):
            if family == kernels.NORMAL:
                away = m[:, 0] - self.targets
                value, slope = away @ away / (2 * self.variance), away[:, None] / self.variance
            elif family == kernels.POISSON:
                mean = np.exp(m[:, 0])
                value, slope = (mean - self.targets * m[:, 0]).sum(), (mean - self.targets)[:, None]
            else:
                logs = log_softmax(m, axis=1)
                slope, own = np.exp(logs), (np.arange(len(m)), self.targets.astype(np.int64))
                value = -logs[own].sum()
                slope[own] -= 1
            value += (self.precision * matrix**2).sum() / 2
            return float(value), (self._back(slope) + self.precision * matrix).ravel()

    def hessian_product(self, w, v):
        """Compute the Hessian times a vector."""
        direction, along = self._predicted(v)
        family = self.response.family
        if family == kernels.NORMAL:
            bent = along / self.variance
        elif family == kernels.POISSON:
            bent = self._means(w) * along
        else:
            p = self._means(w)
            bent = p * (along - (p * along).sum(axis=1, keepdims=True))
        return (self._back(bent) + self.precision * direction).ravel()

    def hessian_diagonal(self, w):
        """Compute the diagonal of the Hessian."""
        family = self.response.family
        if family == kernels.NORMAL:
            curvature = np.full((self.n_rows, 1), 1 / self.variance)
        elif family == kernels.POISSON:
            curvature = self._means(w)
        else:
            p = self._means(w)
            curvature = p * (1 - p)
        diagonal = np.vstack([self.across.power(2) @ curvature, curvature.sum(axis=0)])
        return (diagonal + self.precision).ravel()
