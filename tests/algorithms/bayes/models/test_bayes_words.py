"""What messages and diagnostics of posteriors say: names of parameters, why shards disagree, what is kept."""

import numpy as np
import pandas as pd
import pytest

import stradask as sd
from stradask.algorithms.bayes import estimator
from stradask.errors import DataError, PosteriorWarning

FEW = {"n_samples": 50, "n_chains": 2, "n_warmup": 50, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 2))


def two(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum() - 0.5 * q[1] ** 2


# A start by names ------------------------------------------------------------------------------------------


def test_a_start_by_names_is_the_start_in_their_order():
    x = X[:, 0]
    plain = sd.sample(two, None, x, [0.1, 2.0], names=["a", "b"], **FEW)
    for names, start in ((None, {"a": 0.1, "b": 2.0}), (["a", "b"], {"b": 2.0, "a": 0.1})):
        found = sd.sample(two, None, x, start, names=names, **FEW)
        assert list(found.mean()) == ["a", "b"]
        np.testing.assert_array_equal(found.draws, plain.draws)


@pytest.mark.parametrize(
    ("start", "names", "message"),
    [
        ({"a": 0.0}, ["a", "b"], r"start lacks 'b', but names are 'a', 'b': give one number for each"),
        ({"a": 0.0, "b": 1.0, "c": 2.0}, ["a", "b"], r"start has 'c', but names are 'a', 'b'"),
        ({"a": 0.0, "B": 1.0}, ["a", "b"], r"start lacks 'b' and has 'B', but"),
        ({"a": [0.0, 1.0]}, None, r"start\['a'\] must be one number, got the shape \(2,\)"),
        ({"a": "x"}, None, "start must be a vector of numbers"),
        ({0: 1.0}, None, "names must be 1 different strings"),
        ({}, None, "start must be a vector of finite numbers"),
    ],
)
def test_a_start_by_other_names_is_refused(start, names, message):
    with pytest.raises(DataError, match=message):
        sd.sample(two, None, X[:, 0], start, names=names, **FEW)


# Names ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* (ESS|divergences) ::")  # of few draws, and a horseshoe after 50 steps
@pytest.mark.parametrize(("n_shards", "prior"), [(1, "normal"), (2, "normal"), (1, "horseshoe")])
def test_diagnostics_name_columns(n_shards, prior):
    frame = pd.DataFrame(X, columns=["age", "height"])
    y = RNG.poisson(np.exp(0.3 * X[:, 0]))
    model = sd.BayesianPoissonRegression(
        sampler="nuts", prior=prior, n_shards=n_shards, **FEW | {"n_samples": 300}
    )
    diagnostics = model.fit(frame, y).posterior_.diagnostics
    words = [
        diagnostics.row(line)["in words"].rpartition(", ")[2] for line in ("R-hat", "bulk ESS", "tail ESS")
    ]
    names = {"coef[age]", "coef[height]", "intercept"}
    shrunk = {"log local_scale[age]", "log local_scale[height]", "log global_scale"}
    assert set(words) <= names | (shrunk if prior == "horseshoe" else set())


def test_a_shard_that_did_not_converge_is_told_by_its_parameter():
    from stradask.algorithms.bayes.combine.combiners import CombinationRefused, combine

    draws = RNG.standard_normal((2, 2, 100, 2))
    draws[1, 0, :, 1] += 9
    with pytest.raises(CombinationRefused, match=r"R-hat is \d+\.\d+ for height in shard 1"):
        combine(draws, names=["age", "height"])
    with pytest.raises(CombinationRefused, match=r"for parameter 1 in shard 1"):
        combine(draws)


# Why shards disagree --------------------------------------------------------------------------------------


def test_shards_that_the_fit_dealt_are_not_asked_how_they_were_dealt(tmp_path):
    n = 4000
    Z = np.random.default_rng(1).standard_normal((n, 2))
    rng = np.random.default_rng(2)
    y = rng.poisson(
        np.exp(0.5 * Z[:, 0] + 1) * rng.gamma(0.3, 1 / 0.3, n)
    )  # counts that vary more than Poisson's
    model = sd.BayesianPoissonRegression(n_shards=8, **FEW | {"n_samples": 300})
    line = model.fit(Z, y).posterior_.diagnostics.row("Cochran's Q")
    assert line["verdict"] == "care"
    assert "the model may not fit (overdispersion" in line["in words"]
    files = []
    for i in range(8):
        files.append(str(tmp_path / f"{i}.npz"))
        np.savez(files[-1], X=Z[i::8], y=y[i::8])
    line = model.fit(files).posterior_.diagnostics.row("Cochran's Q")
    assert line["in words"] == "shards disagree: were the rows dealt at random?"


# What takes long --------------------------------------------------------------------------------------------


class _Sampled(Exception):
    """Sampling has begun."""


@pytest.fixture
def stopped(monkeypatch):
    def begin(*args, **options):
        raise _Sampled

    monkeypatch.setattr(estimator, "draw_posterior", begin)


@pytest.mark.parametrize(("n_shards", "freedom"), [(3, "0.67"), (2, "1.5")])
def test_separated_shards_under_heavy_tails_are_told_before_they_are_sampled(stopped, n_shards, freedom):
    model = sd.BayesianLogisticRegression(prior="student_t", prior_freedom=4, n_shards=n_shards, **FEW)
    separated = X[:, 0] > 0
    words = rf"shards 0, 1.* do not identify .* Student's t with {freedom} degrees of freedom, .* no variance"
    with pytest.warns(PosteriorWarning, match=words), pytest.raises(_Sampled):
        model.fit(X, separated)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options", [{"prior": "normal"}, {"prior_freedom": 30}, {"n_shards": 1}, {"noise": 1.0}]
)
def test_shards_that_are_identified_or_have_lighter_tails_are_not(stopped, options):
    options = dict(options)
    noise = options.pop("noise", 0.0)
    model = sd.BayesianLogisticRegression(
        **{"prior": "student_t", "prior_freedom": 4, "n_shards": 3} | FEW | options
    )
    with pytest.raises(_Sampled):
        model.fit(X, X[:, 0] + noise * np.random.default_rng(0).standard_normal(len(X)) > 0)


# What Ctrl-C leaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_shards", "files"), [(1, True), (2, True), (2, False)])
def test_ctrl_c_says_what_is_kept(tmp_path, n_shards, files):
    """Pressed in a density after two files were written, or after a while."""
    options = FEW | {"n_samples": 300, "n_chains": 1, "n_shards": n_shards, "sampler": "nuts", "n_jobs": 1}
    options |= {"checkpoint": tmp_path / "run.ckpt" if files else None}
    n_before = 2  # of the warm-up and of 100 draws

    def pressed(q, x):
        if len(list((tmp_path / "run.ckpt").glob("*.npz"))) == n_before or (not files and len(calls) > 2000):
            raise KeyboardInterrupt
        calls.append(1)
        return -0.5 * ((x - q[0]) ** 2).sum(), np.array([(x - q[0]).sum()])

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt) as told:
        sd.sample(pressed, None, X[:40, 0], [0.0], **options)
    words = str(told.value)
    if files:
        total = 4 * n_shards
        assert words.startswith(f"interrupted after 2 of {total} chunks of draws; those are kept in ")
        assert "run.ckpt" in words
        assert words.endswith("the same call goes on from there")
    else:
        assert words.endswith("chunks of draws; nothing is kept, which a checkpoint would")
