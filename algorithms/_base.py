"""Base class of all estimators."""

import copy
import functools
import inspect
import os
import sys
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, InvalidParameterError

from .._typing import FileName
from ..datasets.parquet import is_parquet
from ..datasets.row_files import row_format
from ..errors import DataError, shortened
from ..scheduler.coordinator import client_of, fit_there
from ..scheduler.loop import unmasked_interrupt
from ..scheduler.workers import address_of, connected_once, is_client
from ._old_names import accept_old_names, rename_parameters
from .inputs.pieces import is_lazy

_MOST = 2**63  # scikit-learn keeps numbers in 64 bits
_MOST_TEXT = 280  # characters of a message, about
_PLAIN = {int, float, str, bool, type(None), np.float64, np.int64}  # types of values that stay what they are
_NO_PARAMETERS = {"self", "__class__"}  # of the locals of a constructor
_PRINTERS = {"_changed_params", "_safe_repr", "_pprint_estimator", "_get_params_html"}  # of scikit-learn


class _Client(HasMethods):
    """A constraint of scikit-learn's, for a parameter that may be a Dask client."""

    def is_satisfied_by(self, value):
        return is_client(value)

    def __str__(self):
        return "a dask.distributed.Client"


ENGINES = [str, _Client("submit")]  # constraints of the parameter `engine`


class _FitMethod:
    """The method `fit` or `partial_fit`: here, or in a task on the cluster if its loop runs there."""

    def __init__(self, function):
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        self._function = function

    def __get__(self, estimator, owner=None):
        here = self._function.__get__(estimator, owner)  # of scikit-learn's `available_if` it may raise
        return here if estimator is None or "distributed" not in sys.modules else _BoundFit(here)


class _BoundFit:
    """A method that chooses where it runs when it is called: reading it asks no cluster.

    Python evaluates a property `__call__` before it calls the value. So a call from here has no frame more
    than that of `fit`: warnings name the caller's line.
    """

    def __init__(self, here):
        functools.update_wrapper(self, here)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    @property
    def __call__(self):
        here = self.__wrapped__
        estimator, engine = here.__self__, here.__self__.engine
        client = client_of(engine)
        if client is None:
            return here

        def fit(*args, **given):
            if engine == "local" and not any(map(estimator._lies_elsewhere, (*args, *given.values()))):
                return here(*args, **given)
            return fit_there(client, estimator, here.__name__, args, given)

        return fit

    def __reduce__(self):
        return getattr, (self.__self__, self.__name__)

    def __repr__(self):
        return repr(self.__wrapped__)


class Estimator(BaseEstimator):
    """Base of stradask's estimators.

    A subclass declares its parameters in ``_parameter_constraints`` and calls ``_validate_params()``
    first in ``fit``. What is stored in a model file: the parameters, every attribute whose name ends
    with an underscore (and does not begin with one), and those named in ``_state_attributes``. Parameters
    that name places are not stored, see ``_place_parameters``.
    """

    _parameter_constraints: ClassVar[dict] = {}
    # Parameters that take any text and name no place: neither an address nor a file.
    _harmless_text: ClassVar[frozenset[str]] = frozenset({"memory_limit", "scoring"})
    _state_attributes: tuple[str, ...] = ()
    _last_checked: ClassVar[list] = []

    def __init_subclass__(cls, **given):
        for name in ("fit", "partial_fit"):
            method = inspect.getattr_static(cls, name, None)  # of a base that need not know of engines
            known = method is None or isinstance(method, _FitMethod)
            if not known and "engine" in inspect.signature(cls).parameters:
                setattr(cls, name, _FitMethod(method))
        accept_old_names(cls)
        super().__init_subclass__(**given)

    # A Dask client as `engine` is held by reference; pickled and shown, it is its address.

    def __sklearn_clone__(self):
        if not is_client(getattr(self, "engine", None)):
            return super().__sklearn_clone__()
        return clone(copy.copy(self).set_params(engine="local")).set_params(engine=self.engine)

    def __getstate__(self):
        state = super().__getstate__()
        return state | {"engine": address_of(state["engine"])} if "engine" in state else state

    def __copy__(self):
        other = type(self).__new__(type(self))
        other.__dict__.update(vars(self))
        return other

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; scikit-learn's printers get the address of a client."""
        parameters = super().get_params(deep)
        if is_client(parameters.get("engine")) and sys._getframe(1).f_code.co_name in _PRINTERS:
            parameters["engine"] = address_of(self.engine)
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of nested estimators as ``name__parameter``."""
        return super().set_params(**rename_parameters(type(self), params))

    def __sklearn_tags__(self):
        """Sparse input is accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @staticmethod
    def _lies_elsewhere(value):
        """Whether a fit to this data uses the current client although `engine` does not say so."""
        return is_lazy(value) or is_parquet(value) or row_format(value) is not None

    @classmethod
    @functools.cache
    def _get_param_names(cls):
        """Names of the parameters, cached: scikit-learn reads the signature at every fit and clone."""
        return super()._get_param_names()

    @classmethod
    @functools.cache
    def _place_parameters(cls):
        """Names of the parameters that say where to compute, read or write: a model file must not set them.

        These are all that take any text or path, or have no constraints, unless in ``_harmless_text``.
        """

        def is_place(name):
            allowed = cls._parameter_constraints.get(name)
            if not isinstance(allowed, list):
                return True
            return any(isinstance(kind, type) and issubclass(kind, (str, os.PathLike)) for kind in allowed)

        return tuple(
            name for name in cls._get_param_names() if name not in cls._harmless_text and is_place(name)
        )

    @classmethod
    def _read_parameters(cls, parameters, attributes):
        """Return the parameters of a model file, perhaps an older one, by their present names."""
        return parameters

    def _validate_params(self):
        """Check the parameters as scikit-learn does; refuse True as a number, and beyond 64 bits.

        Plain values that were the last to pass in this class are not checked again.
        """
        values = [getattr(self, name, None) for name in self._get_param_names()]
        checked = [(type(value), value) for value in values]
        if checked == vars(type(self)).get("_last_checked"):
            return
        try:
            super()._validate_params()
        except InvalidParameterError as error:
            raise _in_short(error) from None
        for name, flags in self._flags():
            value = getattr(self, name)
            if isinstance(value, int) and not -_MOST < value < _MOST:
                raise DataError(
                    f"{name} of {type(self).__name__} must lie within 64 bits, not {value.bit_length()}"
                )
            if not flags and isinstance(value, (bool, np.bool_)):
                raise DataError(f"{name}={shortened(value)} of {type(self).__name__} must be no truth value")
        if all(kind in _PLAIN for kind, _ in checked):
            type(self)._last_checked = checked

    @classmethod
    @functools.cache
    def _flags(cls):
        """Names of the parameters that are checked, and whether they may be True or False."""
        lists = {name: kinds for name, kinds in cls._parameter_constraints.items() if isinstance(kinds, list)}
        return tuple(
            (name, any(kind in ("boolean", "verbose") or kind is bool for kind in map(_plain, kinds)))
            for name, kinds in lists.items()
        )

    def save(self, path: FileName) -> Self:
        """Write the model into one file, without pickle; `stradask.load` reads it.

        The file is written aside and renamed, so that `path` holds either the old or the whole new model.

        Parameters
        ----------
        path : path-like
            The name is taken as it is, no ending is added.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If a parameter or attribute is of a kind that the format does not hold (a function, for
            instance), or if the class is not one of stradask's own.
        OSError
            If the file cannot be written; an older file is then as it was.

        Notes
        -----
        The format is an npz file of the arrays, with one more array, ``header``, that holds JSON in
        UTF-8: class, format version, versions, parameters and the other attributes. A
        ``numpy.random.RandomState`` given as `random_state` is stored with its state.

        Parameters that name places (`engine`, `checkpoint`, `memmap_folder`) are not stored: they belong to
        this machine and its network. `stradask.load` sets them anew.
        """
        from ._persistence import save

        save(self, path)
        return self

    @contextmanager
    def _draft(self):
        """Yield a copy to fit, whose attributes the estimator takes at the end, unless there is an error.

        So nobody sees a model that is half fitted. An error may be Ctrl-C. What the block does on the
        cluster it does by one client and one subscription.
        """
        draft = copy.copy(self)
        with connected_once(), unmasked_interrupt():
            yield draft
        self.__dict__ = draft.__dict__

    def _check_state(self):
        """Check a fitted model that was read from a file; raise DataError.

        Subclasses whose kernels trust the shapes and ranges of attributes extend this.
        """
        for name, value in vars(self).items():
            if name.startswith("n_") and name.endswith("_") and value is not None:
                counts = np.asarray(value)
                if counts.dtype.kind not in "iu" or (counts < 0).any():
                    raise DataError(f"{name} must count something, and is {shortened(value)}")


def _in_short(error):
    """Shorten the value in a message of scikit-learn's."""
    head, got, value = str(error).partition(" Got ")
    value = value.removesuffix(" instead.")
    most = min(80, _MOST_TEXT - len(head))
    return error if len(value) <= most else type(error)(f"{head}{got}{value[: most - 3]}... instead.")


def _plain(kind):
    """A constraint if it is a word or type, None if it is an object."""
    return kind if isinstance(kind, (str, type)) else None


def keep_parameters(estimator, given):
    """Set the parameters that a constructor was given; `given` is its ``locals()``."""
    vars(estimator).update((name, value) for name, value in given.items() if name not in _NO_PARAMETERS)


def weights_differ(reason):
    """The checks of scikit-learn by which a row of weight 2 is two rows, as failing for a reason."""
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


def documented(sections):
    """Decorate a class: put sections that several docstrings share in place of ``%(name)s``.

    Those of its methods, too.
    """

    def decorate(cls):
        methods = [member for name, member in vars(cls).items() if callable(member) or name == "fit"]
        for member in [cls, *methods, *map(inspect.unwrap, methods)]:
            text = inspect.cleandoc(member.__doc__ or "")  # which python -OO takes away
            if member is cls or "%(" in text:
                for name, section in sections.items():
                    text = text.replace(f"%({name})s", inspect.cleandoc(section))
                member.__doc__ = text
        return cls

    return decorate


def check_classes(classes, n_outputs):
    """Check the classes of a model file: one output for two classes, else one for each."""
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise DataError("classes_ must be a vector")
    if len(classes) < 2 or n_outputs != (1 if len(classes) == 2 else len(classes)):
        raise DataError(f"{n_outputs} outputs cannot be those of a model of {len(classes)} classes")
