"""What every estimator shares, beyond scikit-learn's own base class."""

from contextlib import contextmanager
from typing import ClassVar

from sklearn.base import BaseEstimator


class Estimator(BaseEstimator):
    """Base of stradask's estimators.

    A subclass declares its parameters in ``_parameter_constraints`` and calls ``_validate_params()``
    first in ``fit``. What is stored in a model file: the parameters, every attribute whose name ends
    with an underscore (and does not begin with one), and those named in ``_state_attributes``.
    """

    _parameter_constraints: ClassVar[dict] = {}
    _state_attributes: tuple[str, ...] = ()

    def __sklearn_tags__(self):
        """Tell scikit-learn that sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def save(self, path):
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
        """
        from ._persistence import save

        save(self, path)
        return self

    @contextmanager
    def _unchanged_on_error(self):
        """Put the attributes back as they were if the block raises: a fit that fails changes nothing."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _check_state(self):
        """Check what came out of a file before anything compiled reads it; raise DataError.

        Subclasses whose kernels trust the shapes and ranges of their attributes extend this.
        """
