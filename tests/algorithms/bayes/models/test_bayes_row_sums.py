"""Densities that are cut into shards: refused where they are no sum over rows, and only there."""

import warnings

import numba
import numpy as np
import pytest
from scipy import special

import stradask as sd
from stradask.algorithms.bayes.models.row_sums import check_sum
from stradask.errors import DataError, PosteriorWarning

N, M = 600, 4
X = np.random.default_rng(0).normal(3, 1, N)
FEW = {"n_samples": 200, "n_warmup": 200, "n_chains": 2, "n_shards": M, "random_state": 0}


def draw(log_likelihood, data=X, start=(0.0,), log_prior=None, **options):
    return sd.sample(log_likelihood, log_prior, data, list(start), **FEW | options)


def normal(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum()


def with_a_prior(q, x):
    return normal(q, x) - 0.5 * ((q[0] - 2) / 0.05) ** 2


def with_a_wide_prior(q, x):
    return normal(q, x) - 0.5 * (q[0] / 10) ** 2


def mean_over_rows(q, x):
    return normal(q, x) / len(x) * 1000


def autoregressive(q, x):
    return -0.5 * ((x[1:] - 3 - np.tanh(q[0]) * (x[:-1] - 3)) ** 2).sum() - 0.5 * q[0] ** 2 * len(x) / N


@numba.njit
def compiled_prior(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum() - 0.5 * ((q[0] - 2) / 0.05) ** 2


@numba.njit
def compiled_mean(q, x, g):
    g[0] += (x - q[0]).sum() / len(x)
    return -0.5 * ((x - q[0]) ** 2).sum() / len(x)


@pytest.mark.parametrize(
    "density",
    [with_a_prior, with_a_wide_prior, mean_over_rows, autoregressive, compiled_prior, compiled_mean],
)
def test_what_is_no_sum_over_rows_is_refused(density):
    with pytest.raises(DataError, match=r"no sum over rows: .* differs .*log_prior.*means.*n_shards=1"):
        draw(density)
    if density is with_a_prior:  # in one piece there is nothing to be counted twice
        assert sd.sample(density, None, X, [0.0], random_state=0, n_samples=200).diagnostics is not None


def constants_of_n(q, x):
    return normal(q, x) + 7.0 - 0.5 * len(x) ** 2


def bounded(q, x):
    """Uniform on (0, e^q), under the prior e^-q."""
    return -len(x) * q[0] if np.exp(q[0]) > x.max() else -np.inf


def single(q, x):
    with np.errstate(all="ignore"):
        return np.float32(-0.5) * np.sum((x - np.float32(q[0])) ** 2, dtype=np.float32)


@numba.njit
def single_by_rows(q, x):
    """Single precision, one row after the other: the sum has errors of a hundred-thousandth."""
    total, at = np.float32(0), np.float32(q[0])
    for one in x:
        total -= np.float32(0.5) * (np.float32(one) - at) ** 2
    return float(total)


def of_a_tuple(q, data):
    x, weights = data
    return -0.5 * (weights * (x - q[0]) ** 2).sum()


def of_two_columns(q, x):
    return -0.5 * ((x[:, 1] - q[0] - q[1] * x[:, 0]) ** 2).sum()


def raises_far_out(q, x):
    if abs(q[0]) > 1.5 and len(x) == N and q[0] < 2:
        raise np.linalg.LinAlgError("no positive definite matrix")
    return normal(q, x)


@pytest.mark.parametrize(
    ("density", "data", "start"),
    [
        (normal, X, [0.0]),
        (normal, X + 1e6, [1e6]),
        (constants_of_n, X, [0.0]),
        (of_a_tuple, (X, np.ones(N)), [0.0]),
        (of_two_columns, np.column_stack([X, 2 * X]), [0.0, 0.0]),
    ],
)
def test_sums_over_rows_are_not(density, data, start):
    """Terms that depend on the number of rows alone, far data, and every form of them."""
    found = draw(density, data, start)
    assert found.diagnostics.row("sum over rows")["verdict"] == "good"
    whole = sd.sample(density, None, data, start, random_state=0)
    one, all_rows = (posterior["theta"][:, 0] for posterior in (found, whole))
    assert one.mean() == pytest.approx(all_rows.mean(), abs=0.25 * all_rows.std())


def check(density, x, start):
    halves = [lambda first=first: x[first::2] for first in (0, 1)]
    check_sum(density, x, halves, np.array(start), "")


@pytest.mark.parametrize("density", [single, single_by_rows])
@pytest.mark.parametrize("n", [100, 100_000])
def test_rounding_in_single_precision_is_no_fault(density, n):
    x = np.random.default_rng(1).normal(3, 1, n).astype(np.float32)
    check(density, x, [3.0])
    with pytest.raises(DataError, match="no sum over rows"):
        check(lambda q, x: density(q, x) - len(x) ** 1.5 * q[0], x, [3.0])


def test_places_without_density_are_passed_over():
    """Minus infinity where one row forbids it, and errors where no chain comes."""
    check(bounded, X - X.min(), [2.0])
    check(raises_far_out, X, [0.0])


def test_finite_for_all_rows_and_not_for_parts():
    with pytest.raises(DataError, match=r"no sum over rows: .* at q = "):
        check(lambda q, x: normal(q, x) if len(x) > N / 2 or q[0] == 0 else -np.inf, X, [0.0])
    with pytest.raises(DataError, match="give a start where it is finite"):
        check(lambda q, x: -np.inf, X, [0.0])


def test_improper_priors_say_nothing_of_the_likelihood():
    found = draw(normal, log_prior=lambda q: 0.0)
    assert found.mean()["theta"][0] == pytest.approx(X.mean(), abs=0.3 / np.sqrt(N))


def test_where_the_check_is_blind_the_draws_are_compared():
    """A term that begins two away from the start, where the posterior is: bad, and said aloud."""

    def late(q, x):
        return normal(q, x) - 200 * max(q[0] - 2.5, 0.0) ** 2

    with pytest.warns(PosteriorWarning, match="sum over rows"):
        found = draw(late)
    assert found.diagnostics.row("sum over rows")["verdict"] == "bad"


def test_a_term_that_the_result_avoids_is_seen_by_the_shards():
    """It costs 3 between 2.5 and 3, once; in four shards 12, so that no draw of the result is there."""

    def below(q, x):
        return normal(q, x) - 3.0 * special.expit((3.0 - q[0]) / 3e-4) * special.expit((q[0] - 2.5) / 0.01)

    with pytest.warns(PosteriorWarning, match="sum over rows"):
        found = sd.sample(below, None, X, [0.0], n_shards=M, random_state=0)
    assert found.diagnostics.row("sum over rows")["verdict"] == "bad"


def test_shards_in_files(tmp_path):
    paths = []
    for m in range(M):
        paths.append(str(tmp_path / f"{m}.npy"))
        np.save(paths[-1], X[m::M])
    options = FEW | {"n_shards": "auto"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PosteriorWarning)
        sd.sample(normal, None, paths, [0.0], **options)
    with pytest.raises(DataError, match=r"shard 0 .*depends on the parameters where there are no rows"):
        sd.sample(with_a_prior, None, paths, [0.0], **options)
    with pytest.warns(PosteriorWarning, match="Shards that you cut yourself"):
        sd.sample(mean_over_rows, None, paths, [0.0], **options)
