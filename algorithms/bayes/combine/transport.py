r"""Triangular transport maps: proposals for the second round that bend as skewed posteriors do.

A standard normal vector z is mapped to :math:`x = \mu + L\, S_1(S_2(\dots S_r(z)))`. Every stage S is
triangular: coordinate k depends on the first k alone. So the determinant is a product of d factors, and the
map is inverted one coordinate after the other. `fit_transport` fits stages to gradients of the posterior.

References: Marzouk, Moselhy, Parno, Spantini, "Sampling via measure transport: an introduction", Handbook of
Uncertainty Quantification, 2016. Jones, Pewsey, "Sinh-arcsinh distributions", Biometrika 96, 2009.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .gaussian import Gaussian


@dataclass(frozen=True)
class Bend:
    r"""One triangular map of vectors z (d,):

    .. math:: y_k = a_k + B_k z + z^T A_k z / 2 + e^{c_k + C_k z} \sinh(\delta_k \sinh^{-1} z_k + \epsilon_k).

    B (d, d), C (d, d) are strictly lower triangles, ``A[k]`` (k, k) is symmetric, delta is positive. The map
    rises in z_k whatever the parameters are: it is one to one.
    """

    a: np.ndarray
    B: np.ndarray
    A: tuple[np.ndarray, ...]
    c: np.ndarray
    C: np.ndarray
    epsilon: np.ndarray
    delta: np.ndarray

    def forward(self, z):
        """Map points (n, d); returns them and the logarithms of the Jacobian's determinants (n,)."""
        scale, bent = self.c + z @ self.C.T, self._bent(z)
        y = self.a + z @ self.B.T + np.exp(scale) * np.sinh(bent)
        for k, A in enumerate(self.A):
            y[:, k] += _quadratic(A, z[:, :k])
        return y, (scale + self._log_slope(z, bent)).sum(axis=1)

    def inverse(self, y):
        """Map points (n, d) back; returns them and the log determinants of `forward` there."""
        z = np.zeros_like(y)
        for k, A in enumerate(self.A):
            before = z[:, :k]
            rest = y[:, k] - self.a[k] - before @ self.B[k, :k] - _quadratic(A, before)
            rest = rest * np.exp(-self.c[k] - before @ self.C[k, :k])
            z[:, k] = np.sinh((np.arcsinh(rest) - self.epsilon[k]) / self.delta[k])
        return z, (self.c + z @ self.C.T + self._log_slope(z, self._bent(z))).sum(axis=1)

    def pulled_back(self, z, gradient):
        """Gradient (n, d) in z of ``f(y(z)) + log |dy/dz|``, given the gradient of f in y."""
        scale, bent, root = np.exp(self.c + z @ self.C.T), self._bent(z), np.sqrt(1 + z * z)
        out = gradient * scale * self.delta * np.cosh(bent) / root
        out += self.delta * np.tanh(bent) / root - z / (1 + z * z)
        out += gradient @ self.B + (gradient * scale * np.sinh(bent)) @ self.C + self.C.sum(axis=0)
        for k, A in enumerate(self.A):
            out[:, :k] += gradient[:, [k]] * (z[:, :k] @ A)
        return out

    def _bent(self, z):
        return self.delta * np.arcsinh(z) + self.epsilon

    def _log_slope(self, z, bent):
        return np.log(self.delta) + np.log(np.cosh(bent)) - np.log1p(z * z) / 2


def _quadratic(A, z):
    return np.einsum("ni,ni->n", z @ A, z) / 2


@dataclass(frozen=True)
class Transport:
    """A normal density and the stages that bend it; the last one is applied first."""

    gaussian: Gaussian
    stages: tuple[Bend, ...] = ()

    @cached_property
    def root(self):
        """Lower triangle L of the normal density's covariance L L'."""
        return np.linalg.cholesky(self.gaussian.covariance)

    def forward(self, z):
        """Map points (n, d); returns them and the log density of what standard normal z are mapped to."""
        log_q = _normal(z)
        with np.errstate(over="ignore", invalid="ignore"):  # of a stage that bends far too much
            for stage in reversed(self.stages):
                z, volume = stage.forward(z)
                log_q = log_q - volume
        return self.gaussian.mean + z @ self.root.T, log_q - np.log(np.diag(self.root)).sum()

    def density(self, x):
        """Log density at points (n, d); -inf where they are too far out to be mapped back."""
        z = np.linalg.solve(self.root, (x - self.gaussian.mean).T).T
        log_q = np.full(len(x), -np.log(np.diag(self.root)).sum())
        with np.errstate(over="ignore", invalid="ignore"):
            for stage in self.stages:
                z, volume = stage.inverse(z)
                log_q -= volume
            return np.nan_to_num(log_q + _normal(z), nan=-np.inf, posinf=-np.inf, neginf=-np.inf)

    def residual(self, z, gradients):
        """Pull gradients of a log density at the images of z back, and add z.

        Zero if the images of standard normal z are draws from that density.
        """
        places = [z]
        for stage in reversed(self.stages):
            places.append(stage.forward(places[-1])[0])
        pulled = gradients @ self.root
        for stage, place in zip(self.stages, reversed(places[:-1]), strict=True):
            pulled = stage.pulled_back(place, pulled)
        return pulled + z


def _normal(z):
    return -(z * z).sum(axis=1) / 2 - z.shape[1] / 2 * math.log(2 * math.pi)
