"""What a formula learned of the data of a fit, as numbers and text of a model file, and back.

A formula is code: formulaic evaluates the factors of ``np.log(x) + bs(z, df=4)`` as Python. Those of a file
are evaluated only if they are arithmetic of columns and calls of the functions in `FUNCTIONS`.
"""

import ast
import math
from itertools import combinations
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
_CONSTANTS = {"np.pi", "np.e"}
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor,
)  # fmt: skip
_INPUTS = {"power": 2, "maximum": 2, "minimum": 2, "round": 2, "where": 3, "clip": 3}  # of numpy's; others: 1
_NAMED = frozenset({"a_min", "a_max", "min", "max", "decimals"})  # inputs of these by name: ``out`` writes
_BASES = frozenset({"bs", "cc", "cr", "cs", "poly"})
_MOST_POWER, _MOST_NUMBER = 64, 1e6  # of a constant: 9**9**9 would compute for ever
_MOST_FREEDOM, _MOST_DEGREE = 2000, 64  # of a basis
_MOST_TERMS = 10_000  # (a + b + c + ...)**20 would take all memory
_MOST_COLUMNS = 2500  # of a matrix: fits take 2,000, and sizes of some bases are upper bounds
_MOST_WORK = 250_000  # products of terms in a power, or pairs of sets of categories in a term
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
    calls: dict[str, list[ast.Call]] = {}
    for name, factor in factors.items():
        method, kind = factor.eval_method.value, state["kinds"].get(name)
        nodes = _checked_nodes(name, formula) if method == "python" else ()
        calls[name] = [node for node in nodes if isinstance(node, ast.Call)]
        if method != "literal" and (kind is None or (kind == "categorical") != (name in state["levels"])):
            raise DataError(f"what a formula learned does not say what {shortened(name)} holds")
    _check_size(spec, calls, state, formula)
    kind_of = {kind.value: kind for kind in next(iter(factors.values())).Kind} if factors else {}
    kinds = {name: kind for name, kind in state["kinds"].items() if name in factors}
    if not set(kinds.values()) <= set(kind_of):
        raise DataError(f"what a formula learned cannot have the kinds {shortened(kinds)}")
    encoders = {
        name: (kind_of[kind], {"categories": list(state["levels"][name])} if name in state["levels"] else {})
        for name, kind in kinds.items()
    }
    # by the name of a call, which may be a part of a factor: I(center(x) ** 2)
    names = {ast.unparse(call) for found in calls.values() for call in found}
    transforms = {name: value for name, value in state["transforms"].items() if name in names}
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
            products = counts[0] ** _power_of(node.args[1])  # formulaic makes all, and joins equal ones
            return min(products, 2 ** min(counts[0], 100)) if products <= _MOST_WORK else math.inf
        if symbol in ("*", "/", "%in%", ":"):
            return (counts[0] + 1) * (counts[1] + 1)
        return sum(counts)

    if most(package.parser.DefaultFormulaParser().get_ast(formula)) > _MOST_TERMS:
        raise DataError(f"formula={shortened(formula)} of a file may make more than {_MOST_TERMS:,} terms")


def _power_of(node):
    """The power of a formula's part: of what is no small number, so high that no formula passes."""
    text = str(getattr(node, "token", node)).strip()
    return min(int(text), 100) if text.isdecimal() else 100


def _check_size(spec, calls, state, formula):
    """Refuse a formula whose matrix would be larger than that of any fit, before it is made."""
    widths, least = {}, {}  # columns of each factor, and at the least, beside an intercept
    for name, found in calls.items():
        bases = (_most_columns(call, state["transforms"].get(ast.unparse(call))) for call in found)
        widths[name] = max(len(state["levels"].get(name, ())), math.prod(bases))
        least[name] = widths[name] - (name in state["levels"] and "spans_intercept" not in name)
    spanned, columns, work = set[Any](), 0, 0
    for term in spec.formula:
        names = {factor.expr for factor in term.factors}
        spanning = {name for name in names if name in state["levels"] or "include_intercept" in name}
        work += 2 ** len(spanning)  # formulaic compares all with all
        if work <= _MOST_WORK:
            subsets = (part for k in range(len(spanning) + 1) for part in combinations(spanning, k))
            new = {frozenset(part) | (names - spanning) for part in subsets} - spanned
            spanned |= new
            work += len(new) ** 2
            columns += sum(
                math.prod(least[name] if name in spanning else widths[name] for name in part) for part in new
            )
        if work > _MOST_WORK or columns > _MOST_COLUMNS:
            raise DataError(f"formula={shortened(formula)} of a file may make over {_MOST_COLUMNS:,} columns")


def _most_columns(call, state):
    """The columns that a call makes of one, from its arguments and from what it learned."""
    name = getattr(call.func, "id", "")
    arguments = _arguments_of_basis(call) if name in _BASES else {}
    degree, df = (getattr(arguments.get(argument), "value", None) for argument in ("degree", "df"))
    degree = degree if degree is not None else 3 if name == "bs" else 0
    listed = sum(len(node.elts) for node in ast.walk(call) if isinstance(node, (ast.List, ast.Tuple)))
    beyond = {"bs": degree + 2 - ("include_intercept" in arguments), "cc": 1}.get(name, 0)  # knots
    return max(1, df or 0, listed + degree, _longest(state) - beyond)


def _longest(state):
    """The most numbers of an array or a list in what a call learned."""
    if isinstance(state, dict):
        return max(map(_longest, state.values()), default=0)
    return np.size(state)


def _checked_nodes(code, formula):
    """The nodes of an expression; DataError if a file does not run it."""
    try:
        nodes = list(ast.walk(ast.parse(code, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"formula={shortened(formula)}: {shortened(code)} cannot be read") from error
    for node in nodes:
        wrong = _fault(node)
        if wrong is not None:
            raise DataError(
                f"the model was read from a file, and formula={shortened(formula)} {wrong[:100]}: a "
                "file runs only arithmetic and common functions (log, sqrt, C, bs, poly, scale). Fit again, "
                "or make the column before and name it in the formula"
            )
    return nodes


def _fault(node):
    """Return why a part of an expression is not evaluated, or None."""
    if not isinstance(node, _NODES):
        return f"has a {type(node).__name__}"
    if isinstance(node, (ast.BinOp, ast.Compare, ast.Call)) and _makes_rows_by_rows(node):
        return "computes with poly and with another column"
    if isinstance(node, ast.Call):
        return _fault_of_call(node)
    if isinstance(node, ast.Attribute):
        return None if _is_known(node) or ast.unparse(node) in _CONSTANTS else f"reads {ast.unparse(node)}"
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


def _makes_rows_by_rows(node):
    """Whether a polynomial's matrix meets a vector: of one column and n rows NumPy makes n x n."""
    inputs = [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "func", None)]
    names = [{part.id for part in ast.walk(child) if isinstance(part, ast.Name)} for child in inputs]
    return sum(map(bool, names)) > 1 and any("poly" in found for found in names)


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
    levels = next((keyword.value for keyword in node.keywords if keyword.arg == "levels"), None)
    if levels is not None and not isinstance(levels, (ast.List, ast.Tuple)):
        return "has C with levels that are no list"
    first = node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg in ("data", "x")]
    given = first if getattr(node.func, "id", "") == "C" else [*node.args, *(k.value for k in node.keywords)]
    return "computes with text or lists" if any(map(_is_text, given)) else None


def _fault_of_basis(node):
    """Of a spline or a polynomial: its size is a small number, which stands there."""
    arguments = _arguments_of_basis(node)
    if _is_text(arguments.get("x")):
        return "computes with text or lists"
    for name, most in ("df", _MOST_FREEDOM), ("degree", _MOST_DEGREE), ("knots", None):
        size = arguments.get(name)
        if size is None or getattr(size, "value", 0) is None:
            continue
        if not (isinstance(size, (ast.List, ast.Tuple)) if most is None else _is_small(size, most)):
            return f"has {node.func.id} with {name} that are no {'list' if most is None else 'small number'}"
    return None


def _arguments_of_basis(call):
    inputs = ("x", "degree") if call.func.id == "poly" else ("x", "df", "knots", "degree")
    arguments = dict(zip(inputs, call.args, strict=False))
    return arguments | {keyword.arg: keyword.value for keyword in call.keywords}


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
