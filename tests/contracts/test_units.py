"""Predictions do not depend on units, but where the case, its class and, if it matters, the result say so."""

import inspect
import math
import re
import warnings

import numpy as np
import pytest
from contract_cases import DATA, D, N, cases
from sklearn.base import is_classifier

from stradask.errors import DataError

FACTORS = np.array([1e-6, 1e6, 1e-3, 1e3])  # of columns
FAR = 1e6  # deviations by which columns and targets are shifted
# What the docstring of a class says where predictions change.
SENTENCES = {
    "columns": r"units of the columns|to about 1\b|scale of about 1\b",
    "target": r"of y\b|targets should be|counts",
    "ratings": "units of ratings",
}
SENTENCES |= {"shift": SENTENCES["columns"], "target shift": SENTENCES["target"]}


def scaled(target, factor):
    """Multiply numbers, or survival times."""
    if target.dtype.names:
        target = target.copy()
        target["time"] *= factor
        return target
    return factor * target


def columns_changed(given, factors=1.0, shifts=0.0):
    """Change the columns, shifts in deviations."""
    shifts = shifts * DATA["regression"].X.std(axis=0)
    if hasattr(given.X, "columns"):
        changed = given.X.to_numpy()[:, :D] * factors + shifts
        return given._replace(X=given.X.assign(**{f"c{j}": changed[:, j] for j in range(D)}))
    return given._replace(X=given.X * factors + shifts)


def target_changed(given, factor=1.0, shift=0.0):
    if given.y is None:
        return given._replace(X=given.X.assign(y=factor * given.X["y"] + shift))
    return given._replace(y=scaled(given.y, factor) + shift if shift else scaled(given.y, factor))


def covariates_changed(given, factor=1.0, shift=0.0):
    return given._replace(by_row={"covariates": factor * given.by_row["covariates"] + shift})


def changes(case):
    """Return the changes of units that apply to a case, and what takes its answers back, by name."""
    changed = {}
    if case.data == "ratings":
        for factor in (1e-6, 1e6):
            back = same if case.name != "MatrixFactorization" else lambda answer, f=factor: answer / f
            changed[f"ratings, {factor:g}"] = lambda given, f=factor: given._replace(X=f * given.X), back
        return changed
    if not case.data.startswith("documents"):
        changed["columns"] = lambda given: columns_changed(given, FACTORS), same
        changed["shift"] = lambda given: columns_changed(given, shifts=FAR), same
    if case.data == "documents and covariates":
        for factor in (1e-6, 1e6):
            changed[f"covariates, {factor:g}"] = lambda given, f=factor: covariates_changed(given, f), same
        changed["covariates, shift"] = lambda given: covariates_changed(given, 1.0, FAR), same
    numbers = case.data in ("tasks", "table", "documents and numbers") or case.data.startswith("regression")
    if numbers or case.data in ("counts", "survival"):
        for factor in (1e-6, 1e6):
            changed[f"target, {factor:g}"] = (
                lambda given, f=factor: target_changed(given, f),
                same if case.data == "survival" else lambda answer, f=factor: answer / f,
            )
    if numbers:
        far = FAR if case.data != "documents and numbers" else 1e3
        changed["target shift"] = lambda given: target_changed(given, shift=far), lambda answer: answer - far
    if case.takes("offset"):
        counts = case.data == "counts"
        for constant in (math.log(1e-12), math.log(1e12)) if counts else (-30.0, 30.0, FAR):
            if constant == FAR and is_classifier(case.make()):
                continue
            changed[f"offset, {constant:.3g}"] = lambda given, c=constant: with_offset(given, c), same
    if case.takes("exposure") and case.data == "counts":
        for factor in (1e-12, 1e12):
            changed[f"exposure, {factor:g}"] = (
                lambda given, f=factor: given._replace(by_row=given.by_row | {"exposure": np.full(N, f)}),
                same,
            )
    return changed


def with_offset(given, constant):
    several = given.y is not None and given.y.dtype.kind == "U" and len(np.unique(given.y)) > 2
    n_outputs = 3 if several else np.shape(given.y)[1:] or 1
    offset = np.full((N, *np.atleast_1d(n_outputs)), constant)
    offset = offset * [1, 0, 0] if several else offset if np.ndim(given.y) == 2 else offset[:, 0]
    return given._replace(by_row=given.by_row | {"offset": offset})


def same(answer):
    return answer


def reading(case, model, given):
    """What a model says of rows; of hazards their ratios."""
    if hasattr(model, "support_"):
        return model.support_.astype(float)
    answer = case.answer(model, given)
    if answer.dtype.kind == "U":
        return (answer[:, None] == model.classes_).astype(float)
    return answer - answer.mean() if case.data == "survival" else answer


def new(case):
    """A model that ends at its optimum; a topic model after enough sweeps to have coefficients."""
    return case.tight(**({"max_iter": 40} if case.data.startswith("documents") else {}))


def tolerance(case, kind):
    """Draws end where their mode was found, or are few; numbers far from zero lose digits."""
    if case.variant == "groups":  # 50 of one chain, which other seeds move by .02; the fault moves them by 1
        return 0.04
    return 1e-3 if case.scales == "prior" else 1e-5 if kind in ("shift", "target shift", "offset") else 1e-8


@pytest.mark.parametrize("case", cases("units", changes))
def test_predictions_do_not_depend_on_units(case):
    expected = reading(case, case.fit(model=new(case)), case.given)
    doc = " ".join(inspect.getdoc(type(case.make())).split())
    applied, moved = set(), set()
    for name, (change, back) in changes(case).items():
        kind = name.partition(",")[0]
        model, message = fit(case, change(case.given))
        answer = expected * np.inf if model is None else reading(case, model, change(case.given))
        answer = answer if hasattr(model, "support_") else back(answer)
        difference = np.abs(answer - expected).max() / np.abs(expected).max()
        applied.add(kind)
        if kind not in case.units:
            assert difference <= tolerance(case, kind), f"{name}: {difference:.1e} {message}"
        elif not difference < 1e-3:
            moved.add(kind)
            assert "scale" in message or not case.name.startswith("MLP"), name
    assert moved == applied & set(case.units), "what is declared to change does not"
    for kind in moved:
        assert re.search(SENTENCES[kind], doc), f"the docstring does not say that predictions change: {kind}"


def fit(case, given):
    """Return a model, or None where the fit is refused, and its warnings, or the refusal."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = new(case).fit(*given.arguments(), **given.by_row, **given.also)
        except DataError as error:
            return None, str(error)
    return model, "; ".join(str(warning.message) for warning in caught)
