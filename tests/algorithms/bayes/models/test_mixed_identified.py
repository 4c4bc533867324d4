"""Mixed models whose parameters only priors tell apart: warnings and errors of `BayesianGLM`."""

import re
import warnings

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.bayes.mixed.formula_design import FormulaDesign
from stradask.algorithms.bayes.mixed.identified import check_identified
from stradask.errors import DataError


def _few():
    rng = np.random.default_rng(0)
    x, z, y = rng.standard_normal((3, 60))
    data = {"y": y, "x": x, "z": z, "g": np.arange(60) % 6, "h": np.arange(60) % 6 + 10, "row": np.arange(60)}
    data |= {"celsius": 3 * z, "fahrenheit": 32 + 5.4 * z, "sum": 2 * x - z + 5, "near": x + 1e-4 * z}
    data |= {"count": rng.poisson(2, 60), "two": np.full(60, 2), "bit": np.arange(60) % 2}
    return data | {"kind": np.array(["a", "b"])[np.arange(60) % 2], "size": np.exp(y)}


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize(
    ("formula", "family", "words"),
    [
        ("y ~ x + z + sum + near", "normal", ["sum is a combination of x and z"]),
        ("y ~ celsius + x + fahrenheit", "normal", ["fahrenheit is a combination of celsius"]),
        (
            "y ~ (celsius + fahrenheit | g)",
            "normal",
            [r"fahrenheit of \(g\) is a combination of Inter"],
        ),
        ("y ~ 0 + kind + near + x", "normal", []),
        ("y ~ (1 | g) + (1 | h)", "normal", [r"\(g\) and \(h\) have the same groups"]),
        ("y ~ (1 | g) + (0 + x | h)", "normal", []),
        ("y ~ x + (0 + x | row)", "normal", []),  # the noise grows with x
        ("count ~ (1 | row)", "poisson", []),
        ("count ~ (1 | row)", "negative_binomial", ["overdispersion is the spread between rows already"]),
        ("size ~ (1 | row)", "gamma", ["shape is the spread between rows already"]),
        ("bit ~ (1 | row)", "logistic", ["one class a row"]),
        ("bit | trials(two) ~ (1 | row)", "binomial", []),
        ("bit | trials(1) ~ (1 | row)", "binomial", ["one trial a row"]),
    ],
)
def test_what_only_priors_tell_apart_has_a_warning(formula, family, words):
    pytest.importorskip("formulaic")
    design = FormulaDesign(formula, family).learn(_few(), None, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_identified(family, design)
    assert len(caught) == len(words)
    for one, pattern in zip(caught, words, strict=True):
        assert re.search(pattern, str(one.message))


def test_an_effect_for_each_row_is_refused_with_normal_noise():
    pytest.importorskip("formulaic")
    for formula in ("y ~ x + (1 | row)", "y ~ (1 | g) + (0 + kind | row)", "y ~ (x || row)"):
        with pytest.raises(DataError, match=r"\(row\) are 60 single rows.*Leave the term out"):
            sd.BayesianGLM(formula).fit(_few())


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_a_search_for_modes_whose_first_climb_takes_all_its_evaluations():
    """Of few draws hardly any evaluations are left for it: the rays are left out."""
    pytest.importorskip("formulaic")
    model = sd.BayesianGLM("size ~ (1 | row)", "gamma", n_samples=20, n_warmup=50, random_state=0)
    with pytest.warns(UserWarning, match="60 single rows"):
        model.fit(_few())
    assert model.posterior_.draws.shape == (80, 63)


def test_levels_that_no_row_has_change_nothing():
    """pandas keeps them in a category: of a filtered frame, and where rows have weight 0."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    kind, g = rng.choice(["u", "v", "w"], 60), rng.choice(["a", "b", "c"], 60)
    plain = pandas.DataFrame({"y": rng.normal(size=60), "kind": kind, "g": g})
    kept = plain.assign(
        kind=pandas.Categorical(kind, ["u", "v", "none", "w"]),
        g=pandas.Categorical(g, ["none", "a", "b", "c"]),
    )
    for formula in (
        "y ~ kind + (1 | g)",
        "y ~ 0 + C(kind) + (kind | g)",
        "y ~ kind * g",
        "y ~ g + (1 | g:kind)",
    ):
        one, other = (FormulaDesign(formula, "normal").learn(frame, None, None) for frame in (plain, kept))
        assert one.names == other.names
        np.testing.assert_array_equal(one.X, other.X)
        for first, second in zip(one.terms, other.terms, strict=True):
            assert list(first.levels) == list(second.levels)
            np.testing.assert_array_equal(first.Z, second.Z)
    known = FormulaDesign("y ~ kind", "normal")
    known.learn(kept, None, (kind != "w").astype(float))
    assert known.design(kept[kind == "u"]).names == ("kind[T.v]",)
    with pytest.raises(DataError, match="not seen"):
        known.design(kept)
    with pytest.raises(DataError, match=r"no row has this level, .*: join it with another one"):
        FormulaDesign("y ~ kind * g", "normal").learn(kept[(kind != "w") | (g != "c")], None, None).spreads  # noqa: B018
