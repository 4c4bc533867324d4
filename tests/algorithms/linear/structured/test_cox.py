"""Cox regression against the partial likelihood by double loops, published numbers and closed forms."""

import numpy as np
import pytest
from scipy.optimize import minimize

import stradask as sd
from stradask.algorithms.linear.structured.cox_loss import PartialLikelihood
from stradask.algorithms.linear.structured.survival import concordance
from stradask.errors import DataError

RNG = np.random.default_rng(0)
N, P = 60, 5
X = RNG.standard_normal((N, P)) + 3
LIVES = RNG.exponential(np.exp(-X[:, 2] + 3))
CENSORED = RNG.exponential(2, N)
TIME, EVENT = np.ceil(8 * np.minimum(LIVES, CENSORED)), LIVES <= CENSORED  # with ties
Y = np.rec.fromarrays([EVENT, TIME], names="event,time")
ENTRY = np.maximum(TIME - RNG.integers(1, 12, N), 0)
STRATA = np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]
WEIGHTS = RNG.uniform(0.3, 2, N)
# Freireich and others, 1963: weeks of remission of leukaemia, without and with 6-MP.
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
TREATED = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
LOST = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]


def minus_log_likelihood(f, ties, *, weights=None, entry=None, strata=None):
    """Summed over deaths, one loop in another."""
    weights = np.ones(N) if weights is None else weights
    entry = np.full(N, -1.0) if entry is None else entry
    strata = np.zeros(N) if strata is None else strata
    total = 0.0
    for s in np.unique(strata):
        for t in np.unique(TIME[(strata == s) & EVENT]):
            risk = (strata == s) & (entry < t) & (t <= TIME)
            dead = risk & EVENT & (t == TIME)
            d, mass = dead.sum(), weights[dead].sum()
            total -= weights[dead] @ f[dead]
            all_of, of_dead = weights[risk] @ np.exp(f[risk]), weights[dead] @ np.exp(f[dead])
            for part in range(d):
                total += mass / d * np.log(all_of - (part / d * of_dead if ties == "efron" else 0))
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize(
    "given", [{}, {"entry": ENTRY}, {"strata": STRATA}, {"entry": ENTRY, "strata": STRATA}]
)
def test_the_partial_likelihood_is_least(ties, given):
    model = sd.CoxRegression(0, ties=ties, tol=1e-13).fit(X, Y, WEIGHTS, offset=0.3 * X[:, 1], **given)

    def objective(b):
        return minus_log_likelihood(X @ b + 0.3 * X[:, 1], ties, weights=WEIGHTS, **given) / WEIGHTS.sum()

    assert model.objective_ * N / WEIGHTS.sum() * WEIGHTS.mean() == pytest.approx(
        objective(model.coef_) + np.log(1 / WEIGHTS.mean()) * WEIGHTS[EVENT].sum() / WEIGHTS.sum()
    )
    other = minimize(objective, model.coef_ + 0.1, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(model.coef_, other.x, atol=1e-5)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_l1_fits_satisfy_the_optimality_conditions_and_the_gap_is_a_bound(ties):
    alpha = 0.05
    model = sd.CoxRegression(alpha, ties=ties, tol=1e-11).fit(X, Y, entry=ENTRY, strata=STRATA)
    h, slopes = 1e-5, []
    for j in range(P):
        ends = [
            minus_log_likelihood(X @ model.coef_ + e * X[:, j], ties, entry=ENTRY, strata=STRATA) / N
            for e in (h, -h)
        ]
        slopes.append((ends[0] - ends[1]) / (2 * h))
    slopes, b = np.array(slopes), model.coef_
    assert 0 < np.count_nonzero(b) < P
    np.testing.assert_allclose(slopes[b != 0], -alpha * np.sign(b[b != 0]), atol=1e-7)
    assert np.abs(slopes[b == 0]).max() <= alpha
    assert 0 <= model.dual_gap_ < 1e-10
    loose = sd.CoxRegression(alpha, ties=ties, tol=0.2).fit(X, Y, entry=ENTRY, strata=STRATA)
    assert loose.dual_gap_ >= loose.objective_ - model.objective_
    assert loose.dual_gap_ > 1e-6


@pytest.mark.parametrize(("ties", "published"), [("breslow", 1.50919), ("efron", 1.57213)])
def test_the_published_effect_of_6_mp(ties, published):
    group = np.repeat([1.0, 0.0], 21)[:, None]
    events = np.concatenate([np.ones(21), 1 - np.array(LOST)])
    model = sd.CoxRegression(0, ties=ties, tol=1e-12).fit(group, np.column_stack([PLACEBO + TREATED, events]))
    assert model.coef_[0] == pytest.approx(published, abs=2e-5)


def test_without_coefficients_the_hazard_is_that_of_nelson_and_aalen():
    model = sd.CoxRegression(1e3, ties="breslow").fit(X, Y, entry=ENTRY, strata=STRATA)
    assert not model.coef_.any()
    for s in np.unique(STRATA):
        own = model.event_strata_ == s
        times = model.event_times_[own]
        at_risk = [((s == STRATA) & (t > ENTRY) & (t <= TIME)).sum() for t in times]
        deaths = [((s == STRATA) & EVENT & (t == TIME)).sum() for t in times]
        hazard = np.cumsum(np.divide(deaths, at_risk))
        np.testing.assert_allclose(model.cumulative_baseline_hazard_[own], hazard)
        curve = model.predict_survival(X[:2], times=[0, times[1], 1e9], stratum=s)
        np.testing.assert_allclose(curve, [[1, np.exp(-hazard[1]), np.exp(-hazard[-1])]] * 2)
    with pytest.raises(DataError, match="stratum must be given"):
        model.predict_survival(X)
    with pytest.raises(DataError, match="no events"):
        model.predict_survival(X, stratum="d")


def test_hazards_grow_with_the_predictor_as_breslow_estimates_them():
    model = sd.CoxRegression(0.01, ties="breslow").fit(X, Y)
    risk = np.exp(X @ model.coef_)
    np.testing.assert_allclose(np.exp(model.predict(X)), risk)
    steps = [(EVENT & (t == TIME)).sum() / risk[t <= TIME].sum() for t in model.event_times_]
    np.testing.assert_allclose(model.cumulative_baseline_hazard_, np.cumsum(steps))
    np.testing.assert_allclose(model.predict_cumulative_hazard(X), np.outer(risk, np.cumsum(steps)))


def test_the_concordance_counts_pairs():
    risk = np.round(RNG.standard_normal(N), 1)
    right, total = 0.0, 0
    for i in range(N):
        for j in range(N):
            if EVENT[i] and (TIME[i] < TIME[j] or (TIME[i] == TIME[j] and not EVENT[j])):
                total += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    assert concordance(TIME, EVENT, risk) == pytest.approx(right / total, rel=1e-12)
    model = sd.CoxRegression(0.01).fit(X, Y)
    assert model.score(X, Y) == concordance(TIME, EVENT, model.predict(X))


def test_forms_of_the_target_and_a_path():
    coef = sd.CoxRegression(0.02).fit(X, Y).coef_
    table = np.column_stack([TIME, EVENT])
    np.testing.assert_array_equal(sd.CoxRegression(0.02).fit(X, table).coef_, coef)
    all_events = np.rec.fromarrays([np.ones(N, bool), TIME], names="a,b")
    np.testing.assert_array_equal(
        sd.CoxRegression(0.02).fit(X, TIME).coef_, sd.CoxRegression(0.02).fit(X, all_events).coef_
    )
    model = sd.CoxRegression(tol=1e-10)
    alphas, coefs, gaps = model.path(X, Y, alphas=4)
    assert alphas[0] == pytest.approx(model.alpha_max(X, Y))
    assert not coefs[:, 0].any()
    assert gaps.max() < 1e-9
    np.testing.assert_allclose(sd.CoxRegression(alphas[2], tol=1e-10).fit(X, Y).coef_, coefs[:, 2], atol=1e-6)
    grouped = sd.CoxRegression(0.05, groups=[0, 0, 1, 1, 1], l1_ratio=0).fit(X, Y)
    assert (grouped.coef_[2:] != 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.column_stack([-TIME, EVENT])}, "times are 0 or above"),
        ({"y": np.column_stack([TIME, np.zeros(N)])}, "all rows are censored"),
        ({"y": np.column_stack([TIME, EVENT + 1])}, "events are 1"),
        ({"y": np.column_stack([TIME, EVENT, EVENT])}, "y has 3 columns"),
        ({"y": np.rec.fromarrays([TIME, TIME], names="a,b")}, "one of booleans"),
        ({"entry": TIME}, "entry is .* not before its time"),
        ({"entry": TIME[1:]}, "entry must be 60 finite numbers"),
        ({"strata": STRATA[1:]}, "strata has the shape"),
        ({"y": Y[1:]}, "y has 59 rows"),
    ],
)
def test_bad_targets_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        sd.CoxRegression().fit(X, **{"y": Y, **change})


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_strata_are_refused_and_numbers_stay_numbers(missing):
    rng = np.random.default_rng(0)
    X, time = rng.standard_normal((40, 2)), rng.exponential(size=40)
    strata = np.array([1, 2] * 20, object)
    model = sd.CoxRegression(alpha=0.01).fit(X, time, strata=strata)
    assert model.predict_cumulative_hazard(X[:1], stratum=2).shape[0] == 1
    strata[3] = missing
    with pytest.raises(DataError, match="strata has missing labels"):
        sd.CoxRegression(alpha=0.01).fit(X, time, strata=strata)


# Inference ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ties", "coef", "error"), [("breslow", 1.50919, 0.40956), ("efron", 1.57213, 0.4124)]
)
def test_the_published_standard_errors_of_6_mp(ties, coef, error):
    group = np.repeat([1.0, 0.0], 21)[:, None]
    table = np.column_stack([PLACEBO + TREATED, np.concatenate([np.ones(21), 1 - np.array(LOST)])])
    model = sd.CoxRegression(0, ties=ties).fit(group, table)
    row = model.summary().table.row("x0")
    reach = 1.959964 * model.standard_errors_
    ends = np.column_stack([model.coef_ - reach, model.coef_ + reach])
    np.testing.assert_allclose(model.confidence_interval(), ends, rtol=1e-5)
    assert len(model.plot().get_yticks()) == len(model.coef_)
    assert row["coef"] == pytest.approx(coef, abs=1e-5)
    assert row["std err"] == pytest.approx(error, abs=1e-5)
    assert row["exp(coef)"] == pytest.approx(np.exp(row["coef"]))
    assert row["z"] == pytest.approx(row["coef"] / row["std err"])
    thrice = sd.CoxRegression(0, ties="breslow").fit(group, table, np.full(42, 3.0))
    if ties == "breslow":
        np.testing.assert_allclose(thrice.covariance_, model.covariance_ / 3)


def test_the_examples_in_rs_manual_of_coxph():
    """`?coxph`: test1 with strata, 0.8023 (0.8224); test2 with entry, -0.0211 (0.7952)."""
    x, status = np.array([[0.0], [2], [1], [1], [1], [0], [0]]), [1, 1, 1, 0, 1, 1, 0]
    table = np.column_stack([[4, 3, 1, 1, 2, 2, 3], status])
    model = sd.CoxRegression(0).fit(x, table, strata=[0, 0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose([model.coef_[0], model.standard_errors_[0]], [0.8023, 0.8224], atol=5e-5)
    x = np.array([1.0, 0, 0, 1, 0, 1, 1, 1, 0, 0])[:, None]
    table = np.column_stack([[2, 3, 6, 7, 8, 9, 9, 9, 14, 17], [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]])
    model = sd.CoxRegression(0).fit(x, table, entry=[1, 2, 5, 2, 1, 7, 3, 4, 8, 8])
    np.testing.assert_allclose([model.coef_[0], model.standard_errors_[0]], [-0.0211, 0.7952], atol=5e-5)


@pytest.mark.parametrize(("ties", "coef"), [("breslow", np.log((3 + np.sqrt(33)) / 2)), ("efron", 1.676857)])
def test_therneaus_and_grambschs_first_set_by_hand(ties, coef):
    """Modeling Survival Data, 2000, appendix E: the coefficient, and the baseline hazard as a formula."""
    x = np.array([1.0, 1, 1, 0, 0, 0])[:, None]
    model = sd.CoxRegression(0, ties=ties).fit(x, np.column_stack([[1, 1, 6, 6, 8, 9], [1, 0, 1, 1, 0, 1]]))
    assert model.coef_[0] == pytest.approx(coef, abs=1e-6)
    r = np.exp(model.coef_[0])
    at_6 = 2 / (r + 3) if ties == "breslow" else 1 / (r + 3) + 2 / (r + 5)
    np.testing.assert_array_equal(model.event_times_, [1, 6, 9])
    np.testing.assert_allclose(
        model.cumulative_baseline_hazard_, np.cumsum([1 / (3 * r + 3), at_6, 1]), rtol=1e-9
    )


def test_errors_are_the_curvature_of_the_likelihood():
    model = sd.CoxRegression(0).fit(X, Y, entry=ENTRY, strata=STRATA)
    h, H = 1e-4, np.empty((P, P))
    for i in range(P):
        for j in range(P):
            signs = [(a, b) for a in (h, -h) for b in (h, -h)]
            ends = [
                minus_log_likelihood(
                    X @ model.coef_ + a * X[:, i] + b * X[:, j], "efron", entry=ENTRY, strata=STRATA
                )
                for a, b in signs
            ]
            H[i, j] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4 * h * h)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(H), rtol=1e-4, atol=1e-6)


def test_no_errors_where_there_are_none():
    with pytest.raises(DataError, match="alpha=0"):
        sd.CoxRegression(0.01).fit(X, Y).summary()
    with pytest.warns(UserWarning, match=f"depend on each other; 'x{P}' is left out"):
        model = sd.CoxRegression(0).fit(np.hstack([X, X[:, :1]]), Y)
    alone = sd.CoxRegression(0).fit(X, Y)
    np.testing.assert_allclose(model.coef_, [*alone.coef_, 0], rtol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, [*alone.standard_errors_, np.nan], rtol=1e-6)
    with pytest.warns(UserWarning, match="without end"):
        sd.CoxRegression(0, tol=1e-4).fit(np.arange(6.0)[:, None], [6.0, 5, 4, 3, 2, 1])


def test_survival_curves_are_drawn():
    model = sd.CoxRegression(0.01).fit(X, Y)
    ax = model.plot_survival(X[:2], labels=["one", "two"])
    assert [line.get_label() for line in ax.lines] == ["one", "two"]
    np.testing.assert_allclose(ax.lines[1].get_ydata()[1:], model.predict_survival(X[1:2])[0])
    assert ax.lines[0].get_ydata()[0] == 1
    with pytest.raises(DataError, match="labels has 1 names"):
        model.plot_survival(X[:2], labels=["one"])
    stratified = sd.CoxRegression(0.01).fit(X, Y, strata=STRATA)
    assert len(stratified.plot_survival(X[:1], stratum="a").lines[0].get_xdata()) == 1 + np.count_nonzero(
        stratified.event_strata_ == "a"
    )


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("weights", [np.linspace(2, 1, 8), 1 / np.arange(1, 9)])
def test_the_sorted_norm_of_a_partial_likelihood_is_minimised(ties, weights):
    X, time, event = _tied_data()
    model = sd.CoxRegression(
        0.05, penalty="slope", penalty_options={"weights": weights}, ties=ties, tol=1e-10
    ).fit(X, np.c_[time, event])
    assert model.stopped_by_ == "duality gap"
    loss = PartialLikelihood(time, event, np.ones(len(time)), ties=ties)

    def objective(b):
        return loss.value((X @ b)[:, None]) + 0.05 * np.sort(np.abs(b))[::-1] @ weights

    assert objective(model.coef_) == pytest.approx(model.objective_, rel=1e-12)
    for start in (np.zeros(8), model.coef_):
        found = minimize(objective, start, method="SLSQP", options={"ftol": 1e-14, "maxiter": 5000})
        assert model.objective_ <= found.fun + 1e-9


@pytest.mark.parametrize(("penalty", "gamma"), [("mcp", 3.0), ("scad", 3.7)])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_penalties_that_are_not_convex_leave_large_effects_as_they_are(penalty, gamma, ties):
    X, time, event = _tied_data()
    y = np.c_[time, event]
    model = sd.CoxRegression(0.15, penalty=penalty, ties=ties, tol=1e-9).fit(X, y)
    assert model.stopped_by_ == "kkt violation"
    chosen = np.flatnonzero(model.coef_)
    assert 0 < len(chosen) < 8
    large = np.abs(model.coef_[chosen]) > gamma * 0.15
    assert large.all()  # so that the penalty is flat there, and the fit that of no penalty
    free = sd.CoxRegression(0.0, ties=ties).fit(X[:, chosen], y)
    np.testing.assert_allclose(model.coef_[chosen], free.coef_, atol=1e-5)
    loss = PartialLikelihood(time, event, np.ones(len(time)), ties=ties)
    slopes = X.T @ loss.gradient((X @ model.coef_)[:, None])[:, 0]
    assert (np.abs(np.delete(slopes, chosen)) <= 0.15).all()


def _tied_data():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 8))
    time = np.ceil(10 * rng.exponential(np.exp(-X[:, :3] @ [1.0, -1.0, 0.7]))) / 10
    return X, time, rng.random(300) < 0.7


def test_a_penalty_of_ones_own_on_a_partial_likelihood():
    class Plain(sd.Penalty):
        def value(self, coef, alpha):
            return np.sum(alpha * np.abs(coef))

        def prox(self, coef, step, alpha):
            return np.sign(coef) * np.maximum(np.abs(coef) - step * alpha, 0)

    X, time, event = _tied_data()
    y = np.c_[time, event]
    own = sd.CoxRegression(0.05, penalty=Plain(), tol=1e-9).fit(X, y)
    ours = sd.CoxRegression(0.05, tol=1e-12).fit(X, y)
    assert own.stopped_by_ == "kkt violation"
    np.testing.assert_allclose(own.coef_, ours.coef_, atol=1e-6)
    with pytest.raises(sd.errors.DataError, match="penalty='group' needs groups"):
        sd.CoxRegression(penalty="group").fit(X, y)


def test_the_concordance_takes_an_offset():
    model, offset = sd.CoxRegression(0.0).fit(X, Y), np.linspace(-3, 3, N)
    assert model.score(X, Y, offset=offset) == concordance(TIME, EVENT, X @ model.coef_ + offset)
