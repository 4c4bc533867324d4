"""R-hat, effective sizes and the table of diagnostics: figures of arviz-stats, known distributions."""

import numpy as np
import pytest
from scipy import stats

from stradask.algorithms.bayes.posterior import convergence as figures
from stradask.algorithms.bayes.posterior.convergence import convergence, e_bfmi, ess, split_rhat
from stradask.algorithms.bayes.posterior.diagnostics import (
    Diagnostics,
    cochran_q,
    diagnose,
    largest_skewness,
    leave_one_out_distances,
)
from stradask.errors import DataError
from stradask.kernels.bayes.autocovariances import autocovariances


def chains(n_chains, n, rho, shift=0.0):
    """Autoregressive chains from quantiles in a fixed disorder: the same on every version of numpy."""
    u = np.arange(1, n_chains * n + 1) * 0.6180339887498949 % 1.0
    disorder = np.argsort(np.arange(n_chains * n) * 0.7548776662466927 % 1.0)
    noise = stats.norm.ppf(u[disorder]).reshape(n_chains, n)
    x = np.empty_like(noise)
    x[:, 0] = noise[:, 0]
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x + shift * np.arange(n_chains)[:, None]


# rhat, ess bulk, tail (5 % and 95 %), mean, and mcse of the mean by arviz_stats 0.8.0, array_stats.
ARVIZ = {
    (4, 500, 0.0): (
        0.9992619189628335,
        1062.2449361314307,
        2253.7855948647243,
        1060.5643968768172,
        0.030671080378074804,
    ),
    (4, 501, 0.9): (
        1.0025033149219211,
        97.40403730176895,
        255.25727779074228,
        93.52337965857264,
        0.3234228271804327,
    ),
    (3, 200, -0.5): (
        0.9966476173853336,
        244.76293247573963,
        496.4795070747373,
        538.5010816917826,
        0.043510703899364095,
    ),
    (4, 400, 0.5, 0.4): (
        1.0836346030822905,
        118.78309763125108,
        345.77700231000205,
        117.31179047783071,
        0.12329663259738467,
    ),
}


@pytest.mark.parametrize("arguments", ARVIZ)
def test_figures_of_arviz(arguments):
    x = chains(*arguments)
    found = (split_rhat(x), ess(x), ess(x, "tail"), ess(x, "mean"))
    np.testing.assert_allclose(found, ARVIZ[arguments][:4], rtol=1e-8)


def test_energy_figures_of_arviz():
    np.testing.assert_allclose(
        e_bfmi(chains(4, 501, 0.9)),
        [0.10942898680348387, 0.10817912103025736, 0.10279882832520605, 0.08891994132731358],
        rtol=1e-10,
    )


def test_agrees_with_arviz_where_installed():
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    rng = np.random.default_rng(0)
    for n_chains, n, rho in ((1, 50, 0.3), (2, 11, -0.9), (5, 333, 0.95), (4, 1000, 0.0)):
        x = rng.standard_normal((n_chains, n))
        for t in range(1, n):
            x[:, t] += rho * x[:, t - 1]
        x = np.exp(x) if n == 333 else x
        assert ess(x) == pytest.approx(float(array_stats.ess(x)), rel=1e-9)
        tail = array_stats.ess(x, method="tail", prob=(0.05, 0.95))
        assert ess(x, "tail") == pytest.approx(float(tail), rel=1e-9)
        if n_chains > 1:
            assert split_rhat(x) == pytest.approx(float(array_stats.rhat(x)), rel=1e-12)


def test_all_parameters_at_once_are_each_alone():
    x = np.stack([chains(3, 200, rho) for rho in (0.0, 0.7, -0.5)], axis=2)
    for measure in (split_rhat, ess, lambda x: ess(x, "tail"), lambda x: ess(x, "mean")):
        np.testing.assert_allclose(measure(x), [measure(x[:, :, j]) for j in range(3)], rtol=1e-12)


def test_effective_size_of_an_autoregressive_chain():
    rng = np.random.default_rng(3)
    for rho in (0.5, 0.9):
        x = rng.standard_normal((4, 20_000))
        for t in range(1, x.shape[1]):
            x[:, t] += rho * x[:, t - 1]
        expected = x.size * (1 - rho) / (1 + rho)
        assert ess(x, "mean") == pytest.approx(expected, rel=0.1)


def test_sums_that_end_soon_are_those_over_all_lags(monkeypatch):
    """Of three columns one ends at the lags tried first, one at those tried next, one is transformed."""
    tried = []
    kept = figures.autocovariances

    def counted(x, n_lags):
        tried.append((len(x), n_lags))
        return kept(x, n_lags)

    monkeypatch.setattr(figures, "autocovariances", counted)
    x = np.stack([chains(2, 3000, rho) for rho in (0.5, 0.95, 0.9999)], axis=2)
    found = ess(x, "mean")
    assert tried == [(3, 32), (2, 256), (1, 1500)]
    monkeypatch.setattr(figures, "_NEAR", ())
    np.testing.assert_allclose(found, ess(x, "mean"), rtol=1e-10)
    assert tried[3:] == [(3, 1500)]


def test_autocovariances_are_sums_of_products():
    x = np.stack([chains(3, 101, rho) for rho in (0.0, 0.9)])
    expected = [[np.mean([c[: 101 - k] @ c[k:] for c in column]) / 101 for k in range(101)] for column in x]
    for n_lags in (1, 20, 101):
        np.testing.assert_allclose(
            autocovariances(x, n_lags), np.array(expected)[:, :n_lags], rtol=1e-10, atol=1e-12
        )


def test_what_rhat_must_see():
    rng = np.random.default_rng(0)
    same = rng.standard_normal((4, 500))
    assert split_rhat(same) < 1.01
    drifting = same + np.linspace(0, 3, 500)
    assert split_rhat(drifting) > 1.1
    assert split_rhat(drifting[:1]) > 1.1  # one chain, by its halves
    wide = same * np.array([1, 1, 1, 4])[:, None]
    assert split_rhat(wide) > 1.1  # equal means: only the folded part sees it


def test_what_does_not_move_has_no_figures():
    x = np.ones((2, 50, 2))
    x[:, :, 1] = chains(2, 50, 0.0)
    assert np.isnan(split_rhat(x)[0])
    assert np.isnan(ess(x)[0])
    assert np.isfinite([split_rhat(x)[1], ess(x)[1]]).all()
    x = np.zeros((2, 11))
    x[0, 5] = 1  # the middle one, which is of neither half
    assert np.isnan([ess(x, kind) for kind in ("bulk", "tail", "mean")]).all()
    x = np.ones((2, 50))
    x[0, 10] = 0  # which neither quantile tells from the others
    assert np.isnan(ess(x, "tail"))
    assert np.isfinite(ess(x))


def test_the_last_autocorrelation_of_a_short_chain():
    """In fractions, those of 4 halves of 5 draws are 1, 0.27, -0.11 and 0.21; ArviZ has 13.986013986."""
    x = np.zeros((2, 11))
    x[1, 7:9] = 1
    expected = 20 / (2 * (1 + 0.27) - 1 - 0.11)
    assert ess(x, "mean") == pytest.approx(expected, rel=1e-12)
    assert ess(x) == pytest.approx(expected, rel=1e-12)  # two values: their ranks are as far apart


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((2, 3)), "at least 4 draws"),
        (np.zeros(9), "shape"),
        (np.array([[0, 1, np.nan, 3, 4.0]]), r"nan at \(chain, draw\[, parameter\]\) \(0, 2\)"),
    ],
)
def test_bad_draws(x, words):
    with pytest.raises(DataError, match=words):
        split_rhat(x)
    with pytest.raises(DataError, match=words):
        ess(x)


def test_kind_of_size():
    with pytest.raises(DataError, match="kind must be"):
        ess(chains(2, 50, 0), "median")


def gaussian_shards(rng, M=8, T=4000, d=3):
    """Draws and gradients of shards whose means scatter as much as their posteriors say."""
    means = rng.standard_normal((M, d))
    draws = means[:, None] + rng.standard_normal((M, T, d))
    return draws, means[:, None] - draws


def test_shards_that_agree_give_uniform_p_values():
    rng = np.random.default_rng(5)
    pairs = [gaussian_shards(rng, T=400) for _ in range(150)]
    for p in (
        [cochran_q(draws)[1] for draws, _ in pairs],
        [leave_one_out_distances(draws)[1] for draws, _ in pairs],
        [leave_one_out_distances(*pair)[1] for pair in pairs],
    ):
        # Bonferroni's p is a little too large: P(p < 0.2) is between 0.12 and 0.2, here of 150.
        assert 8 <= np.sum(np.array(p) < 0.2) <= 42


def test_cochran_by_hand():
    draws = np.array([[[-1.0], [1.0]], [[1.0], [5.0]]])  # means 0 and 3, variances 2 and 8
    q, p = cochran_q(draws)
    # Weights 1/2 and 1/8, mean 0.6: 0.36 / 2 + 5.76 / 8.
    assert q[0] == pytest.approx(0.9)
    assert p == pytest.approx(stats.chi2.sf(0.9, 1))


def test_the_odd_shard_is_named():
    draws, gradients = gaussian_shards(np.random.default_rng(6))
    draws[5] += 6
    assert cochran_q(draws)[1] < 1e-4
    for distances, p in (leave_one_out_distances(draws), leave_one_out_distances(draws, gradients)):
        assert distances.argmax() == 5
        assert p < 1e-4
    # Known exactly for two unit shards a distance of 6 apart: 6 / sqrt(2).
    pair = np.stack([draws[0] - draws[0].mean(axis=0), draws[0] - draws[0].mean(axis=0) + [6, 0, 0]])
    exact, _ = leave_one_out_distances(pair, -(pair - pair.mean(axis=1, keepdims=True)))
    assert exact == pytest.approx([6 / np.sqrt(2)] * 2, rel=1e-9)


def test_one_shard_agrees_with_itself():
    draws = np.random.default_rng(0).standard_normal((1, 50, 2))
    assert cochran_q(draws)[1] == 1.0
    distances, p = leave_one_out_distances(draws)
    assert (distances.tolist(), p) == ([0.0], 1.0)


def test_skewness():
    x = np.random.default_rng(0).exponential(1, (2, 100_000, 1))
    assert largest_skewness(x) == pytest.approx(2, abs=0.1)
    assert largest_skewness(-x) == pytest.approx(2, abs=0.1)


def test_table_of_good_shards():
    draws, gradients = gaussian_shards(np.random.default_rng(7), T=1000)
    parts = draws.reshape(8, 2, 500, 3)
    energy = np.random.default_rng(0).standard_normal((8, 2, 500))
    table = diagnose(
        parts,
        gradients=gradients,
        energy=energy,
        divergences=np.zeros(8),
        figures={"k_hat": 0.2, "k_hat_limit": 0.7, "importance_ess": 900, "importance_ess_limit": 100},
    )
    assert table.verdict == "The draws can be trusted."
    assert table.level == 0
    assert str(table).endswith(table.verdict)
    assert {"R-hat", "bulk ESS", "tail ESS", "divergences", "E-BFMI", "skewness", "Cochran's Q"} <= set(
        table.rows
    )
    assert table.row("k-hat")["value"] == 0.2


@pytest.mark.parametrize(
    ("change", "row", "level"),
    [
        ({"rhat": True}, "R-hat", "bad"),
        ({"few": True}, "bulk ESS", "care"),
        ({"divergences": [0, 0, 2, 0]}, "divergences", "care"),
        ({"divergences": [0, 0, 50, 0]}, "divergences", "bad"),
        ({"slow": True}, "E-BFMI", "care"),
        ({"apart": True}, "Cochran's Q", "care"),
        ({"figures": {"k_hat": 0.8, "k_hat_limit": 0.7}}, "k-hat", "bad"),
        ({"figures": {"k_hat": np.nan, "k_hat_limit": 0.7}}, "k-hat", "bad"),
        ({"figures": {"importance_ess": 80.0, "importance_ess_limit": 100}}, "importance ESS", "bad"),
        ({"figures": {"half_disagreement": 0.5}}, "halves apart", "bad"),
        ({"figures": {"acceptance": 0.01}}, "acceptance", "bad"),
        ({"figures": {"populations_apart": 0.5}}, "populations apart", "bad"),
    ],
)
def test_each_line_can_fail(change, row, level):
    rng = np.random.default_rng(8)
    draws = rng.standard_normal((4, 2, 500, 2))
    energy = rng.standard_normal((4, 2, 500))
    if "rhat" in change:
        draws[2, 1] += 2
    if "few" in change:
        draws[1] = np.cumsum(draws[1], axis=1) / 20  # slow, and not yet refused
        draws[1] -= draws[1].mean(axis=1, keepdims=True)
        draws[1, :, 250:] = draws[1, :, 249::-1]
    if "slow" in change:
        energy = np.cumsum(energy, axis=2)
    if "apart" in change:
        draws[3] += 9
    table = diagnose(
        draws, energy=energy, divergences=change.get("divergences", [0] * 4), figures=change.get("figures")
    )
    assert table.row(row)["verdict"] == level
    assert table.verdict.split(":")[0] != "The draws can be trusted."


def test_nothing_known():
    assert Diagnostics([]).verdict == "Nothing is known of these draws."
    with pytest.raises(DataError, match="chains must have the shape"):
        diagnose(np.zeros((2, 3, 4)))


def test_shards_that_only_propose_may_be_rougher():
    rng = np.random.default_rng(9)
    draws = rng.standard_normal((3, 1, 40, 1))
    plain, weighed = diagnose(draws), diagnose(draws, figures={"k_hat": 0.1})
    assert plain.row("bulk ESS")["verdict"] == "care"
    assert weighed.row("bulk ESS")["verdict"] == "good"


@pytest.mark.parametrize("n_draws", [4, 33, 100])
def test_figures_made_at_once_are_those_made_alone(n_draws):
    draws = np.random.default_rng(0).standard_normal((3, n_draws, 4)).cumsum(axis=1)
    draws[..., 1] = np.round(draws[..., 1])  # ties
    draws[..., 2] = 5.0  # does not move
    rhat, bulk, tail = convergence(draws)
    np.testing.assert_array_equal(rhat, split_rhat(draws))
    np.testing.assert_array_equal(bulk, ess(draws, "bulk"))
    np.testing.assert_array_equal(tail, ess(draws, "tail"))
    assert np.isnan([rhat[2], bulk[2], tail[2]]).all()
