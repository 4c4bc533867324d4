"""Digests of a user's functions, by which files of draws are found again."""

import functools
import types


def fingerprint(value):
    """Describe a function by its code and all that it refers to, so that its digest differs from others'.

    Pickled bytes will not do: a function of a module is pickled as its name, whatever it has become since.
    Compiled functions, bound methods and partials are described too; of functions of other packages the name
    is enough. Other values are returned as they are.

    >>> from stradask.algorithms.bayes.models.fingerprint import fingerprint
    >>> def scaled(scale):
    ...     return lambda x: scale * x
    >>> fingerprint(scaled(2)) == fingerprint(scaled(2)), fingerprint(scaled(2)) == fingerprint(scaled(3))
    (True, False)
    """
    return _described(value, None, ())


def _described(value, package, path):
    value = getattr(value, "py_func", value)
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, tuple(sorted(value.keywords.items())))
        return "partial", _described(parts, package, path)
    if isinstance(value, types.MethodType):
        return "method", _described((value.__func__, value.__self__), package, path)
    if isinstance(value, types.FunctionType):
        return _function(value, package, path)
    if type(value) in (tuple, list):
        return type(value).__name__, [_described(part, package, path) for part in value]
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return "name", value.__module__, value.__qualname__
    return value


def _function(function, package, path):
    """Name, code, defaults, closure and the globals that it uses."""
    name = (function.__module__, function.__qualname__)
    own = (function.__module__ or "").partition(".")[0]
    if function in path or (package is not None and own != package):
        return "name", *name
    path = (*path, function)
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    found = {
        name: function.__globals__[name] for name in _looked_up(function.__code__) & {*function.__globals__}
    }
    parts = [function.__defaults__, tuple((function.__kwdefaults__ or {}).items()), held]
    parts += [(key, found[key]) for key in sorted(found)]
    return "function", *name, _code(function.__code__), _described(parts, own, path)


def _looked_up(code):
    """Names that the code, and functions inside it, look up."""
    inner = [_looked_up(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _code(code):
    parts = [_code(part) if isinstance(part, types.CodeType) else _shown(part) for part in code.co_consts]
    return code.co_code.hex(), parts, code.co_names, code.co_varnames, code.co_freevars


def _shown(constant):
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
