"""Public names of version 0.2 that were renamed: until 0.4 they work, with a FutureWarning.

`Estimator` reads them when a class is defined: its constructor and `set_params` take the old parameters, its
objects have the old attributes, and model files of version 0.2 are read.
"""

import functools
import operator
import warnings
from typing import Any

PARAMETERS: dict[str, dict[str, str]] = {  # by class
    "GroupLassoCV": {"l1_ratio": "l1_ratios"},
    "SparseLogisticRegressionCV": {"l1_ratio": "l1_ratios"},
}
# With the function that turns a new value into an old one, and back.
ATTRIBUTES: dict[str, dict[str, tuple[str, Any]]] = {
    "SparseGLMCV": {
        "losses_": ("scores_", operator.neg),
        "losses_mean_": ("scores_mean_", operator.neg),
        "losses_se_": ("scores_se_", operator.pos),
    },
}


def accept_old_names(cls):
    """Let the constructor of a class take old names, and its objects have them."""
    parameters, attributes = PARAMETERS.get(cls.__name__, {}), ATTRIBUTES.get(cls.__name__, {})
    if parameters:
        cls.__init__ = _with_new_names(cls.__init__, cls)
    same = {old: (new, operator.pos) for old, new in parameters.items()}
    for old, (new, convert) in (same | attributes).items():
        setattr(cls, old, _old_attribute(old, new, convert))
    if parameters or attributes:  # what lists attributes does not read the old ones
        listed = cls.__dir__
        cls.__dir__ = lambda self: [name for name in listed(self) if name not in same | attributes]


def rename_parameters(cls, parameters, *, warn=True):
    """Return parameters of a class by their present names."""
    renamed = _of_bases(PARAMETERS, cls)
    for old in renamed.keys() & parameters.keys():
        if renamed[old] in parameters:
            raise TypeError(f"{old} is the old name of {renamed[old]}: pass the latter alone")
        if warn:
            _warn(old, renamed[old], cls, 4)
    return {renamed.get(name, name): value for name, value in parameters.items()}


def rename_attributes(cls, attributes):
    """Return attributes of a model file by their present names."""
    renamed = _of_bases(ATTRIBUTES, cls)
    names = {name: renamed.get(name, (name, lambda value: value)) for name in attributes}
    return {new: convert(attributes[name]) for name, (new, convert) in names.items()}


def _of_bases(table, cls):
    return {old: new for base in cls.__mro__ for old, new in table.get(base.__name__, {}).items()}


def _with_new_names(constructor, cls):
    @functools.wraps(constructor)
    def __init__(self, *args, **parameters):
        constructor(self, *args, **rename_parameters(cls, parameters))

    return __init__


def _old_attribute(old, new, convert):
    def read(estimator: Any) -> Any:
        value = getattr(estimator, new)
        _warn(old, new, type(estimator), 3)
        return convert(value)

    def write(estimator: Any, value: Any) -> None:
        _warn(old, new, type(estimator), 3)
        setattr(estimator, new, convert(value))

    return property(read, write, doc=f"The old name of `{new}`.")


def _warn(old, new, cls, stacklevel):
    text = f"{old} of {cls.__name__} is now {new}; the old name ends with version 0.4"
    warnings.warn(text, FutureWarning, stacklevel=stacklevel)
