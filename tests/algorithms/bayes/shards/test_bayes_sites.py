"""Sites that cannot share rows: unequal ones, and some with rows of one class."""

import numpy as np
import pytest

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
