"""Formulas of model files: what they learned is kept; what is unsound or would take hours is refused."""

import numpy as np
import pytest

from stradask.algorithms.bayes.mixed.formula_design import FormulaDesign
from stradask.algorithms.bayes.mixed.model import mixed_model
from stradask.algorithms.bayes.mixed.priors import chosen_priors
from stradask.algorithms.bayes.models.scaling import Scaling
from stradask.algorithms.inputs.formula_files import learned, restored
from stradask.errors import DataError

formulaic = pytest.importorskip("formulaic")
pd = pytest.importorskip("pandas")


def _rows(n=90):
    rng = np.random.default_rng(0)
    texts, numbers = np.array(["a", "b", "c"]), np.array([3, 5, 8])
    return {
        "y": rng.standard_normal(n), "x": rng.random(n) + 0.5, "kind": texts[np.arange(n) % 3],
        "size": numbers[rng.permutation(n) % 3], "on": rng.random(n) > 0.5, "g": rng.integers(0, 9, n),
        "h": texts[rng.permutation(n) % 3],
    }  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x*kind + np.log(x) + (1 | g)",
        "y ~ bs(x, df=4) + C(size) + on + (x + kind | g)",
        "y ~ 0 + kind + C(size, contr.sum) + poly(x, 2) + (0 + x | g:h)",
        "np.log1p(x) ~ scale(x) + center(x):kind + cr(x, df=3) + {x**2 > 1} + (1 | h/g)",
        "y ~ I(center(x) ** 2) + np.log(scale(x) ** 2) + center(bs(x, df=4)) + (1 | g)",
        "y ~ np.sin(2 * np.pi * x / 365) + np.cos(2 * np.pi * x / 365) + (1 | g)",
        "y ~ np.where(kind == 'a', x, 1 / x**-1) + C(kind, contr.treatment('b')) + (1 | g)",
    ],
)
def test_what_a_formula_learned_is_kept_by_files(formula):
    known = FormulaDesign(formula, "normal")
    rows = _rows()
    known.learn(rows, None, None)
    levels = {term.name: found for term, found in zip(known.terms, known.levels, strict=True)}
    read = FormulaDesign.of_state(formula, "normal", known.state(), levels, None)
    few = {
        name: values[[0, 4, 17]] for name, values in rows.items()
    }  # few rows: levels and knots are the fit's
    one, other = known.design(few, target=True), read.design(few, target=True)
    assert one.names == other.names
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.y, other.y)
    for term, same in zip(one.terms, other.terms, strict=True):
        np.testing.assert_array_equal(term.Z, same.Z)
        np.testing.assert_array_equal(term.groups, same.groups)
    with pytest.raises(DataError, match="data do not fit formula="):
        read.design(few | {"kind": np.array(["a", "z", "b"]), "x": np.array(["p", "q", "r"])})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("{__import__('os').getcwd()}", "calls __import__"),
        ("np.load(x)", "calls np.load"),
        ("{np.log.__class__}", "reads np.log.__class__"),
        ("{[q for q in x]}", "has a ListComp"),
        ("{9**9**9**9}", "has a power"),
        ("my_function(x)", "calls my_function"),
        ("I(I([0]) * 1000000 * 1000000)", "computes with text or lists"),
        ("{'%999999999d' % 5}", "computes with text or lists"),
        ("{1 << 1000000 << 1000000}", "has a LShift"),
        ("{((9**64)**64)**64}", "has a power"),
        ("np.log(x, out=x)", "calls np.log with arguments"),
        ("bs(x, df=1000 * 1000 * 1000)", "bs with df that are no small number"),
        ("C(kind, contr.treatment('\"'))", "has a quote"),
        ("bs(x, knots=x)", "bs with knots that are no list"),
        ("C(kind, levels=kind)", "C with levels that are no list"),
        ("{poly(x, 1) * scale(x)}", "computes with poly and with another column"),
        ("(x + kind + size)**9999999", "more than 10,000 terms"),
        ("*".join("abcdefghijklmnopqrstuvwxyz"), "more than 10,000 terms"),
    ],
)
def test_formulas_of_files_run_no_other_code(code, words):
    known = FormulaDesign("y ~ x + (1 | g)", "normal")
    known.learn(_rows(), None, None)
    levels = {"g": known.levels[0]}
    read = FormulaDesign.of_state(f"y ~ {code} + (1 | g)", "normal", known.state(), levels, None)
    with pytest.raises(DataError, match=words):
        read.design(_rows())


def test_terms_of_the_same_groups():
    rows = _rows()
    joined = FormulaDesign("y ~ x + (1 | g) + (0 + x | g) + (x | h)", "normal")
    design = joined.learn(rows, None, None)
    assert [(term.name, term.columns, term.correlated) for term in design.terms] == [
        ("g", ("Intercept", "x"), False),
        ("h", ("Intercept", "x"), True),
    ]
    apart = FormulaDesign("y ~ x + (1 + size | g) + (0 + x | g)", "normal").learn(rows, None, None)
    assert [term.name for term in apart.terms] == ["g", "g.1"]
    for formula, words in (
        ("y ~ (1 | g) + (0 + kind | g)", "for a category, which has several: write one term"),
        ("y ~ (x | g) + (x | g)", "twice: leave one out"),
    ):
        with pytest.raises(DataError, match=words):
            FormulaDesign(formula, "normal").learn(rows, None, None)
    none = FormulaDesign("y ~ 0 + (1 | g)", "poisson").learn(rows | {"y": np.arange(90) % 4}, None, None)
    assert none.X.shape == (90, 0)
    mixed_model("poisson", none, Scaling(none.centres, none.spreads), chosen_priors(None, "poisson", none))


def _levels(n):
    return ["a", "b", "c"][:n] + [str(level) for level in range(n - 3)]


def _bs(knots, degree=3):
    return {"lower_bound": 0.0, "upper_bound": 2.0, "knots": [0.0] * degree + knots + [2.0] * degree}


@pytest.mark.parametrize(
    ("formula", "levels", "transforms"),
    [
        ("kind:h:size", {"kind": 200, "h": 200, "size": 200}, {}),
        ("kind + h", {"kind": 2000, "h": 2000}, {}),
        (":".join("abcdefghij"), dict.fromkeys("abcdefghij", 1), {}),
        ("bs(x, df=4)", {}, {"bs(x, df=4)": _bs([1.0] * 30_000)}),
        ("bs(x, df=200):bs(y, df=200)", {}, {}),
        ("center(bs(bs(x, df=200), df=200))", {}, {}),
        ("scale(x)", {}, {"scale(x)": {"ddof": 1, "center": np.zeros((30_000, 1)), "scale": None}}),
        ("*".join(f"bs(x + {k}, df=1, degree=0, include_intercept=True)" for k in range(12)), {}, {}),
    ],
)
def test_the_size_of_a_formula_of_a_file_is_checked_before_it_is_made(formula, levels, transforms):
    factors = {
        factor.expr for term in formulaic.ModelSpec.from_spec(formula).formula for factor in term.factors
    }
    kinds = {name: "categorical" if name in levels else "numerical" for name in factors}
    state = {
        "levels": {name: _levels(n) for name, n in levels.items()},
        "kinds": kinds, "transforms": transforms, "columns": ["Intercept"],
    }  # fmt: skip
    with pytest.raises(DataError, match="may make over 2,500 columns"):
        restored(formula, state, "")


@pytest.mark.parametrize(
    "formula",
    [
        "1", "kind*C(size):x", "0 + kind:h", "a*b*c", "C(kind, contr.poly)*h",
        "C(kind, spans_intercept=False):h",
        "bs(x, df=7)*kind", "bs(x, knots=[.7, .9, 1.1], degree=2):h", "kind:poly(x, 5) + h:cc(x, df=6):x",
        "bs(x, df=5, include_intercept=True):kind", "cr(x, df=3, constraints='center')", "(x + h + kind)**3",
    ],
)  # fmt: skip
def test_the_size_of_a_formula_is_about_that_of_its_matrix(formula, monkeypatch):
    more = {name: np.array(["p", "q"])[np.arange(90) // k % 2] for k, name in enumerate("abc", 1)}
    rows = pd.DataFrame(_rows() | more)
    matrix = formulaic.model_matrix(formula, rows)
    state, n = learned(matrix.model_spec), matrix.shape[1]
    for most, passes in ((int(1.4 * n) + 1, True), (n - 1, False)):
        monkeypatch.setattr("stradask.algorithms.inputs.formula_files._MOST_COLUMNS", most)
        if passes:
            np.testing.assert_array_equal(restored(formula, state, "").get_model_matrix(rows), matrix)
        else:
            with pytest.raises(DataError, match="may make over"):
                restored(formula, state, "")


def test_levels_and_kinds_that_a_file_lacks_are_not_learned_from_new_rows():
    state = learned(formulaic.model_matrix("C(size)", pd.DataFrame(_rows())).model_spec)
    for part in ("levels", "kinds"):
        with pytest.raises(DataError, match=r"does not say what 'C\(size\)' holds"):
            restored("C(size)", state | {part: {}}, "")


@pytest.mark.parametrize("groups", ["(1 | " + "/".join("a" * 4000) + ")", " + ".join(["(1 | a)"] * 4000)])
def test_terms_of_groups_are_counted_before_they_are_made(groups):
    with pytest.raises(DataError, match="has over 100 terms of groups"):
        FormulaDesign(f"y ~ x + {groups}", "normal")
