"""Model files: npz with a JSON header, no pickle."""

import platform
import warnings
from typing import Any

import numpy as np
import scipy
import sklearn
from scipy import sparse

from .._typing import FileName
from .._version import __version__
from ..errors import DataError, ModelFileError, shortened
from ..scheduler.stores.store import check_writer, read_npz, write_npz
from ._old_names import rename_attributes, rename_parameters

_FORMAT = "stradask model"
POSTERIOR_FORMAT = "stradask posterior"  # which its class writes
_VERSION = 1  # of the format; grows when older code could not read a new file
_KEYS = (bool, int, float, str, np.generic)  # of a dict
_TAG = "$"  # the key of JSON objects that encode a type JSON lacks
_SPARSE = {
    cls.__name__: cls for cls in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix)
}


def save(estimator, path):
    """Write an estimator into one file; see `Estimator.save`."""
    name = type(estimator).__name__
    if _class_named(name) is not type(estimator):
        raise DataError(
            f"{name} is not one of stradask's own estimators, so that load could not find its class; "
            "save an instance of the class itself"
        )
    writer = _Writer()
    header = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "class": name,
        "versions": {
            "stradask": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        **writer.encode_estimator(estimator),
    }
    write_npz(path, writer.arrays, header)


def load(path: FileName, **places: Any) -> Any:
    """Read a model that the method `save` of an estimator wrote, or the posterior that one of its own did.

    Nothing in the file is executed: it holds numbers and text, and the class is looked up among
    stradask's own. The file does not say where the model computes, reads or writes either: `engine`,
    `checkpoint` and `memmap_folder` have their defaults after `load`, or the values given here.

    Parameters
    ----------
    path : path-like
        Or a URL that fsspec opens, such as ``s3://bucket/model.npz``.
    **places : str, path-like or None
        `engine`, `checkpoint` or `memmap_folder`, where the class has a parameter of that name.

    Returns
    -------
    estimator
        With the parameters and fitted attributes it was saved with, except for `places`; or a `Posterior`.

    Warns
    -----
    UserWarning
        If the file sets one of `places` to another value than the default, and it is not given here, as
        altered files do.

    Raises
    ------
    ModelFileError
        If the file is truncated, damaged, not a model of stradask, of a newer format, or of version 0.1: load
        and save such a file with version 0.2.
    OSError
        If there is no such file, or it cannot be opened.
    TypeError
        If one of `places` is not such a parameter of the class. `set_params` changes the others.

    Examples
    --------
    >>> import tempfile
    >>> import stradask as sd
    >>> lda = sd.LatentDirichletAllocation(n_components=7, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lda.save(f"{folder}/lda.npz").n_components, sd.load(f"{folder}/lda.npz").n_components
    (7, 7)
    """
    arrays, header = read_npz(path)
    if header.get("format") == POSTERIOR_FORMAT:
        import stradask

        if places:
            raise TypeError(f"load got {next(iter(places))}=, but for a posterior it takes only path")
        return stradask.Posterior.load(path)
    try:
        estimator, in_file = _rebuild(arrays, header)
    except ModelFileError as error:
        raise ModelFileError(f"{path} {error}") from error
    _set_places(estimator, path, in_file, places)
    return estimator


def _set_places(estimator, path, in_file, given):
    """Set the place parameters that the caller gives; warn of values in the file, which are ignored."""
    name, known = type(estimator).__name__, estimator._place_parameters()
    unknown = [place for place in given if place not in known]
    if unknown:
        raise TypeError(
            f"load got {unknown[0]}={shortened(given[unknown[0]])}, but for a {name} it takes only path, "
            f"{', '.join(known)}; change other parameters by set_params after load"
        )
    ignored = {
        place: value
        for place, value in in_file.items()
        if place not in given and value != getattr(estimator, place)
    }
    if ignored:
        settings = ", ".join(f"{place}={shortened(str(value), 100)}" for place, value in ignored.items())
        warnings.warn(
            f"{shortened(str(path), 200)} sets {settings}. A model file must not decide where to connect or "
            "write: the "
            f"defaults are used. If you trust these values, pass them: stradask.load(path, {settings})",
            stacklevel=3,
        )
    if given:
        estimator.set_params(**given)._validate_params()


def _rebuild(arrays, header):
    """Return the estimator, and the place parameters in the file, which are not set."""
    if header.get("format") != _FORMAT:
        raise ModelFileError(
            f"is a file of stradask, but not a model: its format is {shortened(header.get('format'))}"
        )
    version, versions = header.get("format_version"), header.get("versions")
    writer = versions.get("stradask", "") if isinstance(versions, dict) else ""
    if isinstance(version, int) and version > _VERSION:
        raise ModelFileError(
            f"has the model format {version} of a newer stradask {writer}; this is stradask {__version__}, "
            f"which reads formats up to {_VERSION}: upgrade stradask"
        )
    if version != _VERSION:
        raise ModelFileError(f"has the unknown model format {shortened(version)}")
    check_writer(writer, "load and save the file with version 0.2")
    return _made(_Reader(arrays), header)


def _made(reader, header):
    """Make an estimator from its part of the header; return it, and the place parameters that were there."""
    cls = _class_named(header.get("class"))
    if cls is None:
        raise ModelFileError(
            f"holds a model of the class {shortened(header.get('class'))}, which stradask does not have"
        )
    parameters = reader.decode_all(header.get("parameters"))
    attributes = reader.decode_all(header.get("attributes"))
    attributes = rename_attributes(cls, attributes)
    parameters = cls._read_parameters(rename_parameters(cls, parameters, warn=False), attributes)
    known = cls._get_param_names()
    for name in parameters:
        if name not in known:
            raise ModelFileError(f"has the parameter {shortened(name)}, which {cls.__name__} does not have")
    places = {name: parameters.pop(name) for name in cls._place_parameters() if name in parameters}
    if not all(value is None or isinstance(value, str) for value in places.values()):
        raise ModelFileError(f"holds a model that makes no sense: {places} must be text")
    estimator = cls(**parameters)
    for name, value in attributes.items():
        if not _is_state(cls, name):
            raise ModelFileError(
                f"has the attribute {shortened(name)}, which does not belong to a {cls.__name__}"
            )
        setattr(estimator, name, value)
    try:
        estimator._validate_params()
        if attributes.keys() - {"n_features_in_", "feature_names_in_"}:
            estimator._check_state()
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ModelFileError(f"holds a model that makes no sense: {error}") from error
    return estimator, places


def _class_named(name):
    """The public estimator class of that name, or None."""
    import stradask

    cls = getattr(stradask, name) if name in dir(stradask) else None
    return cls if isinstance(cls, type) and hasattr(cls, "_state_attributes") else None


def _is_state(cls, name):
    return name in cls._state_attributes or (
        name.isidentifier() and name.endswith("_") and not name.startswith("_") and not hasattr(cls, name)
    )


def _fitted_attributes(estimator):
    cls = type(estimator)
    return {name: value for name, value in vars(estimator).items() if _is_state(cls, name)}


class _Writer:
    """Encodes values as JSON; arrays are stored apart, by number."""

    def __init__(self):
        self.arrays = {}

    def encode_all(self, values, what):
        encoded = {}
        for name, value in values.items():
            try:
                encoded[name] = self.encode(value)
            except TypeError as error:
                raise DataError(f"{what} {name} cannot be saved: {error}") from error
        return encoded

    def encode(self, value):
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [self.encode(item) for item in value]
        if type(value) is tuple:
            return {_TAG: "tuple", "items": [self.encode(item) for item in value]}
        if type(value) is dict:
            return self._encode_dict(value)
        if isinstance(value, np.generic):
            return {_TAG: "scalar", "array": self._put(np.asarray(value))}
        if isinstance(value, np.ndarray) and not isinstance(value, (np.ma.MaskedArray, np.matrix)):
            return self._encode_array(value)
        if sparse.issparse(value) and type(value).__name__ in _SPARSE:
            return self._encode_sparse(value)
        if isinstance(value, np.random.RandomState):
            kind = value.get_state(legacy=False)["bit_generator"]
            if kind != "MT19937":
                raise TypeError(f"a RandomState of {kind} has no place in a model file, only one of MT19937")
            return {_TAG: "RandomState", "state": self.encode(value.get_state(legacy=True))}
        if hasattr(value, "_place_parameters") and _class_named(type(value).__name__) is type(value):
            return {_TAG: "estimator", "class": type(value).__name__, **self.encode_estimator(value)}
        instead = getattr(value, "instead_of_saving", "")
        raise TypeError(f"a {type(value).__name__} has no place in a model file{instead}")

    def encode_estimator(self, estimator):
        """Parameters, without places, and fitted attributes."""
        places = type(estimator)._place_parameters()
        parameters = {k: v for k, v in estimator.get_params(deep=False).items() if k not in places}
        return {
            "parameters": self.encode_all(parameters, "the parameter"),
            "attributes": self.encode_all(_fitted_attributes(estimator), "the attribute"),
        }

    def _encode_dict(self, value):
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: self.encode(item) for key, item in value.items()}
        for key in value:  # labels of classes, for instance
            if not isinstance(key, _KEYS):
                raise TypeError(f"a {type(key).__name__} as the key of a dict has no place in a model file")
        return {_TAG: "dict", "items": [[self.encode(key), self.encode(item)] for key, item in value.items()]}

    def _encode_array(self, value):
        if not value.dtype.hasobject:
            return {_TAG: "array", "array": self._put(value)}
        if not all(type(item) is str for item in value.flat):
            raise TypeError("an array of Python objects other than str has no place in a model file")
        return {_TAG: "strings", "shape": list(value.shape), "items": [str(item) for item in value.flat]}

    def _encode_sparse(self, value):
        parts = {part: self._put(getattr(value, part)) for part in ("data", "indices", "indptr")}
        return {_TAG: type(value).__name__, "shape": [int(n) for n in value.shape], **parts}

    def _put(self, array):
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name


class _Reader:
    """Decodes JSON; an unknown tag is an error."""

    def __init__(self, arrays):
        self._arrays = arrays

    def decode_all(self, values):
        if not isinstance(values, dict):
            raise ModelFileError("lacks a part of its header")
        decoded = {}
        for name, value in values.items():
            try:
                decoded[name] = self.decode(value)
            except (
                LookupError,
                ValueError,
                TypeError,
                AttributeError,
                OverflowError,
                RecursionError,
            ) as error:
                raise ModelFileError(f"cannot be read: {name} is damaged or missing ({error})") from error
        return decoded

    def decode(self, value):
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _TAG not in value:
            return {key: self.decode(item) for key, item in value.items()}
        tag = value[_TAG]
        if tag in _SPARSE:
            return self._decode_sparse(value)
        if tag == "dict":
            return self._decode_pairs(value)
        if tag == "tuple":
            return tuple(self.decode(item) for item in value["items"])
        if tag == "scalar":
            return self._arrays[value["array"]][()]
        if tag == "array":
            return self._arrays[value["array"]]
        if tag == "strings":
            return np.array(value["items"], dtype=object).reshape(value["shape"])
        if tag == "RandomState":
            return self._decode_random_state(value)
        if tag == "estimator":  # within another; its places keep their defaults
            return _made(self, value)[0]
        raise ValueError(f"unknown kind {shortened(tag)}")

    def _decode_pairs(self, value):
        pairs = [(self.decode(key), self.decode(item)) for key, item in value["items"]]
        if not all(isinstance(key, _KEYS) for key, _ in pairs):
            raise ValueError("the keys of a dict are no plain values")
        return dict(pairs)

    def _decode_random_state(self, value):
        kind, key, position, has_gauss, gauss = self.decode(value["state"])
        # numpy believes any position, and some versions crash on too short a state
        if kind != "MT19937" or key.shape != (624,) or not 0 <= position <= 624:
            raise ValueError("not the state of an MT19937")
        random = np.random.RandomState()
        random.set_state((kind, key, position, has_gauss, gauss))
        return random

    def _decode_sparse(self, value):
        parts = tuple(self._arrays[value[part]] for part in ("data", "indices", "indptr"))
        data, indices, indptr = parts
        if any(part.dtype.kind != "i" or part.ndim != 1 for part in parts[1:]) or data.ndim != 1:
            raise ValueError("indices of a sparse matrix are no integers")
        # scipy holds no index against the shape where it finds a number of entries below 1
        if not len(indptr) or indptr[-1] != len(indices) or len(data) != len(indices) or indptr.min() < 0:
            raise ValueError("the parts of a sparse matrix do not fit together")
        matrix = _SPARSE[value[_TAG]](parts, shape=tuple(value["shape"]))
        matrix.check_format(full_check=True)
        return matrix
