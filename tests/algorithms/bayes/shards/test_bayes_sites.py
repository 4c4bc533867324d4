"""Sites that cannot share rows: unequal ones, and some with rows of one class."""

import numpy as np
import pytest
from scipy import special

from stradask import BayesianLogisticRegression
from stradask.errors import DataError

OPTIONS = {"prior_scale": 1.0, "n_samples": 300, "n_chains": 2, "random_state": 0}


def sites(folder, labels=(0, 1), sizes=(700, 60, 200, 40)):
    """Four files of unequal sizes; in the second and the last the event never, or always, happened."""
    rng = np.random.default_rng(0)
    names, rows = [], []
    for number, size in enumerate(sizes):
        X = rng.standard_normal((size, 3))
        y = (rng.random(size) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2] + 0.5))).astype(int)
        if number == 1:
            y[:] = 0
        if number == 3:
            y[:] = 1
        names.append(str(folder / f"site{number}.npz"))
        np.savez(names[-1], X=X, y=np.asarray(labels)[y])
        rows.append((X, np.asarray(labels)[y]))
    return names, tuple(map(np.concatenate, zip(*rows, strict=True)))


@pytest.mark.parametrize(
    "labels", [pytest.param((0, 1), marks=pytest.mark.slow), ("never", "once")], ids=["numbers", "names"]
)
def test_sites_of_one_class_and_of_unequal_sizes(tmp_path, labels):
    names, (X, y) = sites(tmp_path, labels)
    found = BayesianLogisticRegression(n_shards="auto", n_proposals=4000, **OPTIONS).fit(names)
    whole = BayesianLogisticRegression(n_shards=1, sampler="nuts", **OPTIONS | {"n_samples": 2000}).fit(X, y)
    assert found.n_shards_ == 4
    assert found.classes_.tolist() == list(labels)
    ours, theirs = found.posterior_, whole.posterior_
    sd = theirs.draws.std(axis=0)
    assert (np.abs(ours.draws.mean(axis=0) - theirs.draws.mean(axis=0)) / sd).max() < 0.15
    np.testing.assert_allclose(ours.draws.std(axis=0), sd, rtol=0.12)
    assert "Do not use" not in str(found.posterior_.diagnostics)
    assert set(found.predict(X)) <= set(labels)


def test_sites_without_two_classes_are_refused(tmp_path):
    names, _ = sites(tmp_path)
    model = BayesianLogisticRegression(n_shards="auto", **OPTIONS)
    with pytest.raises(DataError, match="all rows of all 2 shards are of one class, 0"):
        model.fit([names[1], names[1]])
    other = np.load(names[0])
    np.savez(tmp_path / "more.npz", X=other["X"], y=other["y"] + 1)
    with pytest.raises(DataError, match=r"more.npz.* has the classes \[1, 2\], .*: all shards together must"):
        model.fit([*names, str(tmp_path / "more.npz")])


def test_a_site_of_one_class_needs_a_proper_prior(tmp_path):
    names, _ = sites(tmp_path)
    for prior in ({"prior_scale": np.inf}, {"prior": "student_t", "prior_freedom": 3.0}):
        with pytest.raises(DataError, match=r"site1.* of one class: take prior='normal' with a scale"):
            BayesianLogisticRegression(n_shards="auto", **OPTIONS | prior).fit(names)


def by_importance(X, y, scale, n=40_000):
    """Means and standard deviations of coefficients and intercept, by weighted draws about the mode."""
    Z, signs = np.column_stack([X, np.ones(len(X))]), np.where(y, 1.0, -1.0)
    d = Z.shape[1]
    variances = np.append(np.full(d - 1, scale**2), 10.0**2)
    mode = np.zeros(d)
    for _ in range(100):
        p = special.expit(Z @ mode)
        precision = (Z.T * (p * (1 - p))) @ Z + np.diag(1 / variances)
        step = np.linalg.solve(precision, Z.T @ (y - p) - mode / variances)
        mode = mode + step * min(1.0, 3 / np.abs(step).max())
    rng = np.random.default_rng(1)
    z = rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(4, n) / 4)[:, None]
    points = mode + 1.3 * z @ np.linalg.cholesky(np.linalg.inv(precision)).T
    heights = [special.log_expit(signs * (part @ Z.T)).sum(axis=1) for part in np.array_split(points, 40)]
    log_p = np.concatenate(heights) - (points**2 / variances).sum(axis=1) / 2
    weights = special.softmax(log_p + (4 + d) / 2 * np.log1p((z**2).sum(axis=1) / 4))
    assert 1 / (weights**2).sum() > n / 4
    mean = weights @ points
    return mean, np.sqrt(weights @ (points - mean) ** 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")  # of the shards' own skewness
@pytest.mark.parametrize(
    ("n", "d", "n_events", "n_shards"), [(2000, 3, 2, 4), (2000, 3, 1, 8), (500, 3, 3, 10)]
)
def test_fewer_events_than_shards(n, d, n_events, n_shards):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, d)), np.zeros(n, bool)
    y[rng.choice(n, n_events, replace=False, p=special.softmax(X[:, 0]))] = True
    mean, sd = by_importance(X, y, 1.0)
    found = BayesianLogisticRegression(prior_scale=1.0, n_shards=n_shards, random_state=0).fit(X, y)
    assert found.n_shards_ == n_shards
    draws = found.posterior_.draws
    assert (np.abs(draws.mean(axis=0) - mean) / sd).max() < 0.12
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)
