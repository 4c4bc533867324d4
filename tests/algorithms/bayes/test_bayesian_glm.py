"""`BayesianGLM`: published figures, shards, predictions, formulas, errors."""

import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.mixed import draws, families
from stradask.algorithms.bayes.mixed.design import MixedDesign, Term
from stradask.algorithms.bayes.mixed.draws import Predictors, prior_values
from stradask.algorithms.bayes.mixed.formula_design import FormulaDesign
from stradask.algorithms.bayes.mixed.model import MixedLayout, mixed_model
from stradask.algorithms.bayes.mixed.priors import chosen_priors
from stradask.algorithms.bayes.models.scaling import Scaling
from stradask.algorithms.bayes.shards.mixed_rows import mixed_rows
from stradask.errors import DataError, StradaskError

# Reaction times (ms) after 0 to 9 days of little sleep: Belenky et al., "Patterns of performance degradation
# and restoration during sleep restriction and subsequent recovery", Journal of Sleep Research 2003.
SLEEP = """
249.5600 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
222.7339 205.2658 202.9778 204.7070 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
199.0539 194.3322 234.3200 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
321.5426 300.4002 283.8565 285.1330 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
287.6079 285.0000 301.8206 320.1153 316.2773 293.3187 290.0750 334.8177 293.7469 371.5811
234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
283.8424 289.5550 276.7693 299.8097 297.1710 338.1665 332.0265 348.8399 333.3600 362.0428
265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.2990
241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.3110 235.7541 237.2466
312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
236.1032 230.3167 238.9256 254.9220 250.7103 269.7744 281.5648 308.1020 336.2806 351.6451
256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.2800 366.5131
225.2640 234.5235 238.9008 240.4730 267.5373 344.1937 281.1481 347.5855 365.1630 372.2288
269.8804 272.4428 277.8989 281.7895 279.1705 284.5120 259.2658 304.6306 350.7807 369.4692
269.4117 273.4740 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"""
SUBJECTS = [308, 309, 310, 330, 331, 332, 333, 334, 335, 337, 349, 350, 351, 352, 369, 370, 371, 372]
FORMULA = "reaction ~ days + (days | subject)"


def sleep():
    return {
        "reaction": np.array(SLEEP.split(), dtype=float),
        "days": np.tile(np.arange(10.0), 18),
        "subject": np.repeat(SUBJECTS, 10),
    }


@pytest.fixture(scope="module")
def fitted():
    pytest.importorskip("formulaic")
    return sd.BayesianGLM(FORMULA, random_state=0).fit(sleep())


def test_the_published_fit_of_the_sleep_study(fitted):
    """REML by lme4: Bates, Maechler, Bolker, Walker, Journal of Statistical Software 67, 2015, section 5.

    The posterior's means of coefficients are near the estimates; its standard deviations are a little wider,
    since those of the effects are uncertain, and so is the mean of these.
    """
    posterior = fitted.posterior_
    assert fitted.coef_[0] == pytest.approx(10.467, abs=0.2)
    assert fitted.intercept_ == pytest.approx(251.405, abs=1.0)
    assert 1.546 < posterior["coef"].std() < 1.3 * 1.546
    assert 6.825 < posterior["intercept"].std() < 1.3 * 6.825
    low, high = np.quantile(posterior["sd_subject"], [0.2, 0.8], axis=0)
    assert (low < [24.741, 5.922]).all()
    assert (high > [24.741, 5.922]).all()
    low, high = np.quantile(posterior["cor_subject"], [0.2, 0.8])
    assert low < 0.066 < high
    assert np.median(posterior["sigma"]) == pytest.approx(25.592, abs=0.5)
    # Conditional modes of the first three subjects (ranef), to a fifth of their standard deviations.
    modes = [[2.26, 9.20], [-40.40, -8.62], [-38.96, -5.45]]
    np.testing.assert_allclose(fitted.effects_["subject"][:3], modes, atol=2.5)


def test_shards_of_whole_groups_have_the_same_posterior(fitted):
    settings = {"n_shards": 2, "n_samples": 250, "n_warmup": 250, "n_proposals": 1000, "random_state": 0}
    shards = sd.BayesianGLM(FORMULA, **settings, n_jobs=1).fit(sleep())
    again = sd.BayesianGLM(FORMULA, **settings, n_jobs=2).fit(sleep())
    np.testing.assert_array_equal(shards.posterior_.draws, again.posterior_.draws)
    assert shards.n_shards_ == 2
    assert shards.posterior_.names == fitted.posterior_.names
    one, other = fitted.posterior_.draws, shards.posterior_.draws
    np.testing.assert_allclose((other.mean(axis=0) - one.mean(axis=0)) / one.std(axis=0), 0, atol=0.16)
    np.testing.assert_allclose(other.std(axis=0) / one.std(axis=0), 1, atol=0.2)


def test_predictions(fitted):
    data = sleep()
    posterior = fitted.posterior_
    mean = fitted.predict(data)
    first = posterior["intercept"] + posterior["subject:Intercept"][:, 0]
    slope = posterior["coef"][:, 0] + posterior["subject:days"][:, 0]
    np.testing.assert_allclose(mean[:10], first.mean() + slope.mean() * np.arange(10.0))
    new = {"days": np.array([0.0, 9.0]), "subject": [1, 1]}
    made = fitted.posterior_predictive(new, random_state=0)
    assert made.shape == (4000, 2)
    fixed = posterior["intercept"] + 9 * posterior["coef"][:, 0]
    assert made[:, 1].mean() == pytest.approx(fixed.mean(), abs=4)
    s, r = posterior["sd_subject"], posterior["cor_subject"][:, 0]
    spread = s[:, 0] ** 2 + 81 * s[:, 1] ** 2 + 18 * r * s[:, 0] * s[:, 1] + posterior["sigma"] ** 2
    assert made[:, 1].std() == pytest.approx(np.sqrt(spread.mean() + fixed.var()), rel=0.07)
    pointwise = fitted.log_likelihood(data)
    np.testing.assert_allclose(
        pointwise[5, :10],
        families.log_density(
            "normal",
            first[5] + slope[5] * np.arange(10.0),
            data["reaction"][:10],
            {"sigma": posterior["sigma"][5]},
        ),
    )
    assert str(fitted.summary()).count("\n") == 7  # a title, six parameters, the verdict


def test_model_files_predict(fitted, tmp_path):
    fitted.save(tmp_path / "model.npz")
    again = sd.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.posterior_.draws, fitted.posterior_.draws)
    few = {"days": [9.0, 0.0, 4.0], "subject": [371, 308, 1]}
    np.testing.assert_array_equal(again.predict(few), fitted.predict(few))
    np.testing.assert_array_equal(
        again.posterior_predictive(few, random_state=1), fitted.posterior_predictive(few, random_state=1)
    )
    again.save(tmp_path / "again.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "again.npz").predict(few), fitted.predict(few))


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")  # of so few draws
@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=[pytest.mark.slow] * (family != "logistic")) for family in families.FAMILIES],
)
def test_families_by_formula(family):
    """Few rows, crossed effects: the coefficient of each family is found again."""
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(3)
    n = 400
    x, g, h = rng.standard_normal(n), rng.integers(0, 12, n), rng.choice(["a", "b", "c", "d", "e"], n)
    f = 0.3 + 0.8 * x + rng.normal(0, 0.4, 12)[g]
    n_trials = rng.integers(1, 5, n)
    own = {"sigma": 0.7, "freedom": 5.0, "overdispersion": 0.3, "shape": 2.0, "cut": np.array([-0.5, 1.0])}
    y = families.new_observations(family, f, own, rng, n_trials)
    if family == "logistic":
        y = np.where(y > 0, "yes", "no")
    target = "y | trials(n)" if family == "binomial" else "y"
    model = sd.BayesianGLM(
        f"{target} ~ x + (1 | g) + (1 | h)", family, n_samples=200, n_warmup=300, random_state=0, n_chains=2
    )
    model.fit({"x": x, "g": g, "h": h, "y": y, "n": n_trials})
    sds = model.posterior_["coef"].std()
    assert abs(model.coef_[0] - 0.8) < 4 * sds
    assert sds < 0.15
    mean = model.predict({"x": [0.0, 1.0], "g": [0, 99], "h": ["a", "z"], "n": [1, 3]})
    assert mean.shape == ((2, 3) if family == "ordered" else (2,))
    if family == "ordered":
        np.testing.assert_allclose(mean.sum(axis=1), 1)
    if family == "logistic":
        assert model.classes_.tolist() == ["no", "yes"]
        assert 0 < mean[0] < 1


def test_tables_of_effects_and_variances(fitted):
    posterior, sleep_data = fitted.posterior_, sleep()
    effects, totals = fitted.effects(), fitted.effects(0.5, total=True)
    assert effects.rows[18] == "subject[308] days"
    draws = posterior["subject:days"][:, 0]
    assert effects.row("subject[308] days")["low"] == pytest.approx(
        np.quantile(draws, 0.05, method="weibull")
    )
    slopes = draws + posterior["coef"][:, 0]
    assert totals.row("subject[308] days")["high"] == pytest.approx(
        np.quantile(slopes, 0.75, method="weibull")
    )
    found = fitted.variances()
    squares, noise = posterior["sd_subject"][:, 0] ** 2, posterior["sigma"] ** 2
    assert found.row("icc_subject")["mean"] == pytest.approx((squares / (squares + noise)).mean())
    assert found.rows[2] == "cor_subject[days~Intercept]"
    shares = fitted.r2(sleep_data)
    mean = fitted.posterior_epred(sleep_data)
    alone = fitted.posterior_epred({"days": sleep_data["days"]}, groups=False)
    np.testing.assert_allclose(
        alone[:, :2], posterior["intercept"][:, None] + posterior["coef"] * [0.0, 1.0], rtol=1e-9
    )
    by_hand = np.stack([mean.var(axis=1), alone.var(axis=1)]) / (mean.var(axis=1) + noise)
    np.testing.assert_allclose(shares["mean"], by_hand.mean(axis=1))
    with pytest.raises(DataError, match="level must be a number above 0"):
        fitted.effects(95)


def test_pictures_of_effects(fitted):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    sleep_data = sleep()
    ax = fitted.plot_effect(sleep_data, "days", groups={"subject": 309})
    line = ax.lines[0]
    expected = fitted.predict({"days": line.get_xdata(), "subject": np.full(50, 309)})
    np.testing.assert_allclose(line.get_ydata(), expected)
    pyplot.close(ax.figure)
    for given, words in (
        ({"column": "day"}, "column='day' is no column of data"),
        ({"column": "days", "groups": {"subject": 1}}, "groups has subject=1, which the fit did not see"),
        ({"column": "days", "groups": {}}, "must name one group of each of subject"),
    ):
        with pytest.raises(DataError, match=words):
            fitted.plot_effect(sleep_data, **given)


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_counts_of_trials_are_as_many_rows_of_zeros_and_ones(tmp_path):
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    n, g, x = rng.integers(1, 6, 40), np.arange(40) % 8, rng.standard_normal(40)
    k = rng.binomial(n, 0.3)
    data = {"k": k, "n": n, "g": g, "x": x, "z": x + 1}
    ones = np.concatenate([[1] * a + [0] * (b - a) for a, b in zip(k, n, strict=True)])
    rows = {"b": ones, "g": np.repeat(g, n), "x": np.repeat(x, n), "z": np.repeat(x + 1, n)}
    formula, found = "cbind(k, n - k) ~ offset(x) + z + (1 | g)", []
    for text, family, table in (
        (formula, "binomial", data),
        ("b ~ offset(x) + z + (1 | g)", "logistic", rows),
    ):
        design = FormulaDesign(text, family).learn(table, None, None)
        priors, scaling = chosen_priors(None, family, design), Scaling(design.centres, design.spreads)
        made = mixed_model(family, design, scaling, priors)
        points = np.random.default_rng(1).standard_normal((4, made.n_params))
        found.append(np.column_stack([made.logp_grads(points)[0], made.logp_grads(points)[1]]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    settings = {"n_samples": 100, "n_warmup": 200, "random_state": 0}
    model = sd.BayesianGLM(formula, "binomial", **settings).fit(data)
    p = model.posterior_epred(data) / n
    np.testing.assert_allclose(model.log_likelihood(data), stats.binom.logpmf(k, n, p))
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "model.npz").predict(data), model.predict(data))
    for formula, family, words in (
        ("k ~ x", "binomial", "has no trials"),
        ("k | trials(n) ~ x", "poisson", "take family='binomial'"),
        ("n | trials(k) ~ x", "binomial", "row . has 0 trials"),
        ("n | trials(3) ~ x", "binomial", "the target n holds [45] in row"),
    ):
        with pytest.raises(DataError, match=words):
            sd.BayesianGLM(formula, family, **settings).fit(data)
    rare = {"k": [1] * 2 + [0] * 38, "n": [2] * 40, "x": x}
    formula = FormulaDesign("k | trials(n) ~ x", "binomial")
    design = formula.learn(rare, None, None)
    for seed in range(5):
        model = sd.BayesianGLM(formula.formula, "binomial", n_shards=2, random_state=seed)
        parts = mixed_rows("binomial", design, model._settings(formula, False, False, None))
        assert [sum(design.y[part] > 0) for part in parts] == [1, 1]
    with pytest.raises(DataError, match="successes, or failures, are in 2 rows, too few for 3 shards"):
        model.set_params(n_shards=3).fit(rare)


def test_prior_predictive_checks(fitted):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    data = sleep()
    model = sd.BayesianGLM(FORMULA, priors={"days": sd.priors.normal(10, 1), "sd": sd.priors.half_normal(10)})
    prior = model.sample_prior(data, 4000, random_state=0)
    assert prior.names == fitted.posterior_.names
    assert prior["coef"].mean() == pytest.approx(10, abs=0.1)
    assert prior["coef"].std() == pytest.approx(1, abs=0.05)
    made = model.prior_predictive(data, 500, random_state=0)
    assert made.shape == (500, 180)
    assert np.isfinite(made).all()
    for options in ({"prior": True}, {"n": 20}):
        ax = (model if "prior" in options else fitted).plot_predictive(data, random_state=0, **options)
        assert len(ax.lines) == options.get("n", 50) + 1
        pyplot.close(ax.figure)


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_forms_of_data_and_of_formulas():
    pytest.importorskip("formulaic")
    pandas = pytest.importorskip("pandas")
    data, short = sleep(), {"n_samples": 50, "n_warmup": 100, "random_state": 0}
    frame = pandas.DataFrame(data, index=np.arange(180)[::-1])
    by_frame, by_columns = (sd.BayesianGLM(FORMULA, **short).fit(rows) for rows in (frame, data))
    np.testing.assert_array_equal(by_frame.posterior_.draws, by_columns.posterior_.draws)
    frame["half"] = np.where(frame["days"] < 5, "early", "late")
    few = {"n_samples": 20, "n_warmup": 20, "n_chains": 1, "sampler": "slice"}  # labels are looked at alone
    nested = sd.BayesianGLM("reaction ~ days + (1 | subject/half)", **few, random_state=0).fit(frame)
    assert nested.groups_["subject:half"][:2].tolist() == ["308:early", "308:late"]
    assert len(nested.groups_["subject"]) == 18
    assert "sd_subject:half" in nested.posterior_.variables
    weights = np.tile([1.0, 0.0], 90)
    part = sd.BayesianGLM("reaction ~ days + (days || subject)", **short)
    half = part.fit(data, sample_weight=weights).posterior_.draws
    few = {name: values[::2] for name, values in data.items()}
    np.testing.assert_array_equal(part.fit(few).posterior_.draws, half)


@pytest.mark.parametrize(
    ("formula", "options", "change", "words"),
    [
        ("reaction ~ days + (1 | town)", {}, {}, "data has no column town"),
        ("reaction ~ day + (1 | subject)", {}, {}, "do not fit formula="),
        ("reaction ~ days | subject", {}, {}, "put parentheses around"),
        ("reaction days", {}, {}, "must have a target on the left"),
        (FORMULA, {"family": "poisson"}, {}, "in row 0: poisson takes counts"),
        (FORMULA, {"family": "gamma"}, {"reaction": np.zeros(180)}, "takes numbers above zero"),
        (FORMULA, {"family": "logistic"}, {}, "classes: family='logistic' takes 2"),
        (FORMULA, {"family": "ordered"}, {"reaction": np.arange(180) % 2}, "takes 3 and more"),
        (FORMULA, {}, {"days": np.full(180, np.nan)}, "do not fit formula="),
        (FORMULA, {}, {"subject": np.zeros(180)}, "holds one group"),
        ("reaction ~ (1 | subject) + (1 | days)", {"n_shards": 19}, {}, "but there are 18 groups"),
        ("reaction ~ (1 | subject) + (1 | days)", {"sampler": "laplace"}, {}, "needs a mode"),
        (FORMULA, {"n_shards": 40}, {}, "but there are 18 groups"),
        (
            "late ~ days",
            {"family": "logistic", "n_shards": 2},
            {"late": np.arange(180) == 3},
            "a class has 1 rows, too few for 2 shards",
        ),
        (FORMULA, {"priors": {"slope": 1}}, {}, "priors has 'slope'"),
        ("reaction ~ days + same", {}, {"same": np.ones(180)}, "constant"),
        ("reaction ~ days + C(same)", {}, {"same": np.ones(180)}, r"the category C\(same\) has one level"),
        ("reaction ~ (same | subject)", {}, {"same": ["a"] * 180}, "same has one level in data, 'a'"),
    ],
)  # fmt: skip
def test_what_is_refused(formula, options, change, words):
    pytest.importorskip("formulaic")
    with pytest.raises(DataError, match=words):
        sd.BayesianGLM(formula, **options).fit({**sleep(), **change})


def test_combinations_of_factors_are_those_of_the_fit_whatever_the_type():
    pytest.importorskip("formulaic")
    formula = FormulaDesign("y ~ 1 + (1 | a:b)", "normal")
    a, b = np.repeat([1, 2, 3], 4), np.tile(["p:q", "r"], 6)
    learnt = formula.learn({"y": np.arange(12.0), "a": a, "b": b}, None, None).terms[0]
    assert learnt.levels.tolist() == ["1:p:q", "1:r", "2:p:q", "2:r", "3:p:q", "3:r"]
    for kind in (np.float64, np.int8, object):
        again = formula.design({"a": a.astype(kind), "b": b}).terms[0]
        np.testing.assert_array_equal(again.groups, learnt.groups)
    unseen = formula.design({"a": [1, 4, 1], "b": ["r", "r", "q"]}).terms[0]
    assert unseen.groups[0] == 1
    assert unseen.groups[1] < 0 > unseen.groups[2] != unseen.groups[1]
    as_numbers = formula.design({"a": [1.0, 4.0, 1.0], "b": ["r", "r", "q"]}).terms[0]
    np.testing.assert_array_equal(as_numbers.groups, unseen.groups)
    with pytest.raises(DataError, match="those of the fit numbers"):
        formula.design({"a": a.astype(str), "b": b})
    with pytest.raises(DataError, match="labels of a and of b hold a colon, such as '1:2' and 'p:q'"):
        formula.learn({"y": np.arange(12.0), "a": np.repeat(["1", "1:2", "3"], 4), "b": b}, None, None)


@pytest.mark.parametrize(("offset", "block"), [(None, 4_000_000), (0.5, 60_000)])
def test_rows_of_a_new_group_share_its_effects(monkeypatch, offset, block):
    """Intercepts and slopes of nested groups: covariances of rows are Z D R D Z' within a group, else 0."""
    pytest.importorskip("formulaic")
    monkeypatch.setattr(draws, "_CELLS", block)
    formula = FormulaDesign("y ~ x + (x | a/b)", "normal")
    a, b, n = np.repeat([1, 2, 3], 8), np.tile(np.repeat(["p", "q"], 4), 3), 20_000
    learnt = formula.learn({"y": np.arange(24.0), "x": np.arange(24.0), "a": a, "b": b}, None, None)
    sds, correlations = {"a": [1.0, 0.5], "a:b": [0.7, 0.2]}, {"a": 0.3, "a:b": -0.6}
    values = {"coef": np.zeros((n, 1)), "intercept": np.zeros(n), "sigma": np.ones(n)}
    for term in learnt.terms:
        values[f"sd_{term.name}"] = np.tile(sds[term.name], (n, 1))
        values[f"cor_{term.name}"] = np.full((n, 1), correlations[term.name])
        values |= {f"{term.name}:{column}": np.zeros((n, len(term.levels))) for column in term.columns}
    x = np.array([0.0, 1.0, -2.0, 1.0, 3.0, 0.5, 0.0])
    new = {"x": x, "a": [9, 9, 9, 9, 1, 1, 4], "b": ["p", "p", "q", "q", "z", "z", "p"]}
    offsets = None if offset is None else np.full(7, offset)
    made = np.concatenate(list(Predictors("normal", formula.design(new, offsets)).means(values, 5)), axis=1)
    Z, expected = np.column_stack([np.ones(7), x]), np.zeros((7, 7))
    for name, labels in (("a", [9, 9, 9, 9, 0, 0, 4]), ("a:b", [0, 0, 1, 1, 2, 2, 3])):
        s, r = np.array(sds[name]), correlations[name]
        covariance = Z @ (np.outer(s, s) * np.array([[1, r], [r, 1]])) @ Z.T
        same = np.equal.outer(labels, labels) & ((np.array(labels) > 0) | (name == "a:b"))
        expected += np.where(same, covariance, 0)  # the effects of a = 1 are those of the fit
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        np.cov(made.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.04
    )
    some = {name: np.array(column)[[6, 1, 1]] for name, column in new.items()}
    part = Predictors("normal", formula.design(some, None if offset is None else offsets[:3])).means(
        values, 5
    )
    np.testing.assert_array_equal(np.concatenate(list(part), axis=1), made[:, [6, 1, 1]])


def test_the_prior_follows_the_offset_and_is_named_where_it_dominates():
    """An exposure in other units moves the intercept alone, and the priors by their densities the verdict."""
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(3)
    x = rng.standard_normal(80)
    data = {"x": x, "y": rng.poisson(np.exp(0.5 * x)), "z": x + rng.standard_normal(80)}
    for formula, family in (("y ~ x", "poisson"), ("z ~ x", "normal")):
        near = sd.BayesianGLM(formula, family, n_samples=200, random_state=0).fit(data).posterior_
        far = sd.BayesianGLM(formula, family, n_samples=200, random_state=0)
        far = far.fit(data, offset=np.full(80, -27.6)).posterior_
        np.testing.assert_allclose(far["coef"], near["coef"], atol=1e-6)
        np.testing.assert_allclose(far["intercept"] - 27.6, near["intercept"], atol=1e-6)
        assert near.diagnostics.row("prior")["verdict"] == "good"
        priors = {"x": sd.priors.normal(0, 0.01)}
        strong = sd.BayesianGLM(formula, family, priors=priors, n_samples=200, random_state=0).fit(data)
        line = strong.posterior_.diagnostics.row("prior")
        assert line["verdict"] == "care"
        assert "the prior dominates: with twice its power coef[x]" in line["in words"]


def test_without_formulaic(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "formulaic", None)
    with pytest.raises(StradaskError, match="pip install formulaic"):
        sd.BayesianGLM(FORMULA).fit(sleep())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "crossed"), [("normal", False), ("logistic", True), ("negative_binomial", False)]
)
def test_ranks_of_the_truth_are_uniform(family, crossed):
    """Simulation-based calibration: Talts et al., 2018. Closed form, crossed effects, slopes by NUTS."""
    from stradask.algorithms.bayes.chains.sampling import sample_model

    rng, n = np.random.default_rng(0), 160
    x, g, h = rng.standard_normal(n), rng.integers(0, 10, n), rng.integers(0, 8, n)
    slopes = Term("g", ("Intercept", "x"), np.arange(10), np.column_stack([np.ones(n), x]), g)
    terms = (slopes, Term("h", ("Intercept",), np.arange(8), np.ones((n, 1)), h))[: 1 + crossed]
    blank = MixedDesign(("x",), x[:, None], rng.standard_normal(n) > 0, np.ones(n), np.zeros(n), terms)
    scaling = Scaling(blank.centres, blank.spreads)
    given = {
        "coef": sd.priors.normal(0, 1), "intercept": sd.priors.normal(0, 1), "sd": sd.priors.half_normal(0.7),
        "cor": sd.priors.lkj(2),
    }  # fmt: skip
    given |= {"overdispersion": sd.priors.half_normal(0.5)} if family == "negative_binomial" else {}
    given |= {"sigma": sd.priors.half_normal(1)} if family == "normal" else {}
    priors = chosen_priors(given, family, blank)
    layout = MixedLayout(family, blank, scaling, priors, len(terms))
    n_sets, ranks = 80, []
    truths = prior_values(layout, n_sets, rng)
    names = [f"{name}|{i}" for name, shape in layout.shared.items()
             for i in range(len(shape) if isinstance(shape, list) else 1)]  # fmt: skip
    for k in range(n_sets):
        values, first = {}, 0
        for name, shape in layout.variables.items():
            size = len(shape) if isinstance(shape, list) else 1
            values[name] = truths[[k], first : first + size] if shape else truths[[k], first]
            first += size
        y = Predictors(family, blank).observations(values, k)[0].astype(float)
        design = MixedDesign(("x",), x[:, None], y, np.ones(n), np.zeros(n), terms)
        model = mixed_model(family, design, scaling, priors)
        sample = sample_model(model, "nuts", n_samples=200, n_warmup=300, target=0.9, seed=k, n_jobs=1)
        draws = sample.stacked().reshape(-1, model.n_params)[::8]
        ranks.append((model.values(draws)[:, : len(names)] < truths[k, : len(names)]).sum(axis=0))
    counts = np.array([np.bincount(r * 10 // 101, minlength=10) for r in np.array(ranks).T])
    chi2 = ((counts - n_sets / 10) ** 2 / (n_sets / 10)).sum(axis=1)
    assert (chi2 < 30).all(), dict(zip(names, chi2, strict=True))  # of 9 degrees of freedom: p = 4e-4
