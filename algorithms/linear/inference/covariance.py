"""Covariances of maximum-likelihood estimates: by the model, robust to its variance, and clustered."""

import numpy as np

KINDS = ("nonrobust", "HC0", "HC1", "HC2", "HC3", "cluster")
_POWERS = {"HC2": 1, "HC3": 2}  # of 1 - leverage


def covariance(passes, kind, family, found, means, information, dispersion, n_rows, frequencies):
    """The covariance of the coefficients of a `Maximum`, of columns less `means`.

    "nonrobust" is the dispersion times the inverse of the expected information. The others are sandwiches:
    the inverse of the observed information on both sides of the products of the scores, of rows or of
    clusters.
    """
    k = len(found.theta) - len(found.dependent)
    if kind == "nonrobust":
        return dispersion * found.inverse_of(information)
    if kind == "cluster":
        _, pieces = passes.run(("clusters", family.spec, found.theta, means))
        n_clusters = 1 + max(int(numbers.max(initial=0)) for numbers, _ in pieces)
        scores = np.zeros((n_clusters, len(found.theta)))
        for numbers, sums in pieces:
            scores[numbers] += sums
        n_clusters = len(np.unique(np.concatenate([numbers for numbers, _ in pieces])))
        meat = scores.T @ scores
        meat *= n_clusters / (n_clusters - 1) * (n_rows - 1) / (n_rows - k)
    else:
        inverse = found.inverse_of(information) if kind in _POWERS else None
        request = ("meat", family.spec, found.theta, means, inverse, _POWERS.get(kind, 0), frequencies)
        _, meat = passes.run(request)
        if kind == "HC1":
            meat = meat * n_rows / (n_rows - k)
    bread = found.inverse_of(found.hessian)
    return bread @ meat @ bread


def shifted(covariance, means, fit_intercept):
    """The covariance for columns as they are: the intercept loses the means times the coefficients."""
    if not fit_intercept:
        return covariance
    J = np.eye(len(covariance))
    J[-1, :-1] = -means
    return J @ covariance @ J.T
