"""What a formula learned of the data of a fit, as numbers and text of a model file, and back.

A formula is code: formulaic evaluates the factors of ``np.log(x) + bs(z, df=4)`` as Python. Those of a file
are evaluated only if they are arithmetic of columns and calls of the functions in `FUNCTIONS`.
"""

import ast

import numpy as np

from ...errors import DataError, shortened
from .formulas import formulaic

# Of formulaic, and of numpy by name: they compute, and do nothing else.
_NUMPY = frozenset(
    {
        "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "clip", "cos",
        "cosh", "exp", "exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "maximum", "minimum",
        "power", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "where",
    }
)  # fmt: skip
_CONTRASTS = frozenset({"treatment", "SAS", "sum", "helmert", "diff", "poly", "sas"})
FUNCTIONS = frozenset(
    {
        "C", "I", "bs", "cc", "center", "cr", "cs", "exp", "exp10", "exp2", "log", "log10", "log2", "poly",
        "scale", "standardize",
    }
)  # fmt: skip
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Name, ast.Attribute,
    ast.List, ast.Tuple, ast.Constant, ast.operator, ast.unaryop, ast.cmpop, ast.Load,
)  # fmt: skip
_MOST_POWER, _MOST_NUMBER = 64, 1e6  # of a constant: 9**9**9 would compute for ever
_PLAIN = (bool, int, float, str)


def learned(spec):
    """Return what a formulaic ModelSpec learned as plain values, or None where these cannot hold it."""
    levels, kinds = {}, {}
    for factor, (kind, state) in spec.encoder_state.items():
        kinds[factor] = kind.value
        if "categories" in state:
            levels[factor] = [_plain(value) for value in state["categories"]]
    try:
        transforms = {factor: _plain(state) for factor, state in spec.transform_state.items()}
    except TypeError:
        return None
    if not all(type(value) in _PLAIN for found in levels.values() for value in found):
        return None
    columns = list(map(str, spec.column_names))
    return {"levels": levels, "kinds": kinds, "transforms": transforms, "columns": columns}


def _plain(value):
    """Numbers of numpy and pandas as Python's; raises TypeError for what a file does not hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value
    raise TypeError(f"a {type(value).__name__}")


def check_learned(state):
    """Raise DataError where the state of a file is none that `learned` made."""
    parts = ("levels", "kinds", "transforms", "columns")
    if not isinstance(state, dict) or set(state) != set(parts):
        raise DataError(f"what a formula learned cannot be {shortened(state)}")
    if not all(isinstance(state[part], dict) for part in parts[:3]) or not isinstance(state["columns"], list):
        raise DataError(f"what a formula learned cannot be {shortened(state)}")
    if not all(isinstance(found, list) for found in state["levels"].values()):
        raise DataError(f"what a formula learned cannot have the levels {shortened(state['levels'])}")


def restored(formula, state, remedy):
    """Return the ModelSpec of a formula (the right side) with the state that `learned` made.

    Raises
    ------
    DataError
        If the formula calls a function that is not in `FUNCTIONS`; the message names it.
    """
    package = formulaic(remedy)
    spec = package.ModelSpec.from_spec(formula)
    if not isinstance(spec, package.ModelSpec):
        raise DataError(f"formula={shortened(formula)} must have a single ~")
    factors = {factor.expr: factor for term in spec.formula for factor in term.factors}
    for factor in factors.values():
        if factor.eval_method.value == "python":
            _check_harmless(factor.expr, formula)
    kind_of = {kind.value: kind for kind in next(iter(factors.values())).Kind} if factors else {}
    kinds = {name: kind for name, kind in state["kinds"].items() if name in factors}
    if not set(kinds.values()) <= set(kind_of):
        raise DataError(f"what a formula learned cannot have the kinds {shortened(kinds)}")
    encoders = {
        name: (kind_of[kind], {"categories": list(state["levels"][name])} if name in state["levels"] else {})
        for name, kind in kinds.items()
    }
    transforms = {name: value for name, value in state["transforms"].items() if name in factors}
    return spec.update(na_action="raise", output="pandas", transform_state=transforms, encoder_state=encoders)


def _check_harmless(code, formula):
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"formula={shortened(formula)}: {shortened(code)} cannot be read") from error
    for node in ast.walk(tree):
        wrong: str | None = None
        if not isinstance(node, _NODES):
            wrong = f"has a {type(node).__name__}"
        elif isinstance(node, ast.Call):
            wrong = None if _is_known(node.func) else f"calls {ast.unparse(node.func)}"
        elif isinstance(node, ast.Attribute):
            wrong = None if _is_known(node) else f"reads {ast.unparse(node)}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            wrong = None if _is_small(node.right) else "has a power that is no small number"
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            wrong = None if abs(node.value) <= _MOST_NUMBER else "has too large a number"
        if wrong is not None:
            raise DataError(
                f"the model was read from a file, and formula={shortened(formula)} {shortened(wrong)}: a "
                "file runs only arithmetic and common functions (log, sqrt, C, bs, poly, scale). Fit again, "
                "or make the column before and name it in the formula"
            )


def _is_small(power):
    return (
        isinstance(power, ast.Constant)
        and isinstance(power.value, (int, float))
        and abs(power.value) <= _MOST_POWER
    )


def _is_known(function):
    """Whether a function is in the lists, by its name: ``log``, ``np.log``, ``contr.sum``."""
    if isinstance(function, ast.Name):
        return function.id in FUNCTIONS
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.attr in {"np": _NUMPY, "contr": _CONTRASTS}.get(function.value.id, ())
