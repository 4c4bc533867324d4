"""What a formula learned of the data of a fit, as numbers and text of a model file, and back.

A formula is code: formulaic evaluates the factors of ``np.log(x) + bs(z, df=4)`` as Python. Those of a file
are evaluated only if they are arithmetic of columns and calls of the functions in `FUNCTIONS`.
"""

import ast
from typing import Any

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
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor,
)  # fmt: skip
_INPUTS = {"power": 2, "maximum": 2, "minimum": 2, "round": 2, "where": 3, "clip": 3}  # of numpy's; others: 1
_NAMED = frozenset({"a_min", "a_max", "min", "max", "decimals"})  # inputs of these by name: ``out`` writes
_BASES = frozenset({"bs", "cc", "cr", "cs", "poly"})
_MOST_POWER, _MOST_NUMBER = 64, 1e6  # of a constant: 9**9**9 would compute for ever
_MOST_FREEDOM, _MOST_DEGREE = 2000, 64  # of a basis
_MOST_TERMS = 10_000  # (a + b + c + ...)**20 would take all memory
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
    _check_terms(formula, package)
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


def _check_terms(formula, package):
    """Refuse a formula of too many terms before they are made."""

    def most(node):
        if not hasattr(node, "operator"):
            return 1
        counts = [most(arg) for arg in node.args]
        symbol = node.operator.symbol
        if len(counts) < 2:
            return max(counts, default=0)
        if symbol in ("**", "^"):
            return min((counts[0] + 1) ** _power_of(node.args[1]), 2 ** min(counts[0], 100))
        if symbol in ("*", "/", "%in%", ":"):
            return (counts[0] + 1) * (counts[1] + 1)
        return sum(counts)

    if most(package.parser.DefaultFormulaParser().get_ast(formula)) > _MOST_TERMS:
        raise DataError(f"formula={shortened(formula)} of a file may make more than {_MOST_TERMS:,} terms")


def _power_of(node):
    """The power of a formula's part: of what is no small number, so high that no formula passes."""
    text = str(getattr(node, "token", node)).strip()
    return min(int(text), 100) if text.isdecimal() else 100


def _check_harmless(code, formula):
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"formula={shortened(formula)}: {shortened(code)} cannot be read") from error
    for node in ast.walk(tree):
        wrong = _fault(node)
        if wrong is not None:
            raise DataError(
                f"the model was read from a file, and formula={shortened(formula)} {wrong[:100]}: a "
                "file runs only arithmetic and common functions (log, sqrt, C, bs, poly, scale). Fit again, "
                "or make the column before and name it in the formula"
            )


def _fault(node):
    """Return why a part of an expression is not evaluated, or None."""
    if not isinstance(node, _NODES):
        return f"has a {type(node).__name__}"
    if isinstance(node, ast.Call):
        return _fault_of_call(node)
    if isinstance(node, ast.Attribute):
        return None if _is_known(node) else f"reads {ast.unparse(node)}"
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, _OPERATORS):
            return f"has a {type(node.op).__name__}"
        if _is_text(node.left) or _is_text(node.right):
            return "computes with text or lists"  # which it could make too long for memory
        if isinstance(node.op, ast.Pow):
            inner = (part.op for part in ast.walk(node.left) if isinstance(part, ast.BinOp))
            if not _is_small(node.right, _MOST_POWER) or any(isinstance(op, ast.Pow) for op in inner):
                return "has a power that is no small number"
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            # formulaic writes the text of a call into code of its own.
            return "has a quote or backslash in a text" if set(node.value) & set("'\"\\\\`\n\r") else None
        if node.value is not None and not _is_small(node, _MOST_NUMBER):
            return "has too large a number"
    return None


def _fault_of_call(node: Any) -> str | None:
    if not _is_known(node.func):
        return f"calls {ast.unparse(node.func)}"
    names = {keyword.arg for keyword in node.keywords}
    if any(name is None or name.startswith("_") for name in names):
        return f"calls {ast.unparse(node.func)} with arguments that have no names or hidden ones"
    if isinstance(node.func, ast.Attribute):
        if ast.unparse(node.func.value) == "contr":
            return None
        if len(node.args) > _INPUTS.get(node.func.attr, 1) or not names <= _NAMED:
            return f"calls {ast.unparse(node.func)} with arguments that are not its inputs"
    elif node.func.id in _BASES:
        return _fault_of_basis(node)
    first = node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg in ("data", "x")]
    given = first if getattr(node.func, "id", "") == "C" else [*node.args, *(k.value for k in node.keywords)]
    return "computes with text or lists" if any(map(_is_text, given)) else None


def _fault_of_basis(node):
    """Of a spline or a polynomial: its size is a small number, which stands there."""
    inputs = ("x", "degree") if node.func.id == "poly" else ("x", "df", "knots", "degree")
    sizes = dict(zip(inputs, node.args, strict=False))
    sizes |= {keyword.arg: keyword.value for keyword in node.keywords}
    if _is_text(sizes.get("x")):
        return "computes with text or lists"
    for name, most in ("df", _MOST_FREEDOM), ("degree", _MOST_DEGREE):
        size = sizes.get(name)
        if size is not None and not _is_small(size, most) and getattr(size, "value", 0) is not None:
            return f"has {node.func.id} with a {name} that is no small number"
    return None


def _is_text(node):
    """Whether a part of an expression is text, or a list or tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (str, bytes))
    return isinstance(node, (ast.List, ast.Tuple))


def _is_small(node: Any, most: float) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    value: Any = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return type(value) in (bool, int, float) and abs(value) <= most


def _is_known(function):
    """Whether a function is in the lists, by its name: ``log``, ``np.log``, ``contr.sum``."""
    if isinstance(function, ast.Name):
        return function.id in FUNCTIONS
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.attr in {"np": _NUMPY, "contr": _CONTRASTS}.get(function.value.id, ())
