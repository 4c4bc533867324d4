"""Public names of a package that are loaded when first used, from the list in its stub, ``__init__.pyi``."""

import ast
import sys
from pathlib import Path


def lazy_names(package, file):
    """Return where each public name of a package is, and its ``__getattr__`` and ``__dir__``.

    The stub beside `file`, which type checkers read, has a line ``from .module import name as name`` of each.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {name.name: f".{node.module or name.name}" for node in imports for name in node.names}
    modules = dict(sorted(modules.items()))

    def load(name):
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = __import__(package + modules[name], fromlist=[name])
        value = module if modules[name] == f".{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return modules, load, lambda: [*modules]
