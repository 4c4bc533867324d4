"""Errors that stradask raises.

They stand beside the face of the package, because every room (also `datasets`, which
imports no other) raises them.
"""


class StradaskError(Exception):
    """Base of every error that stradask defines."""


class DataError(StradaskError, ValueError):
    """An input that cannot be used; the message names the argument, the value and the remedy."""


class CheckpointMismatch(StradaskError):
    """A checkpoint belongs to other parameters or other data than the fit that found it."""


class ModelFileError(StradaskError):
    """A model file that is truncated, foreign, or of a newer format."""


class DeviceError(StradaskError, RuntimeError):
    """A GPU that is not there, cannot be used or has no room; the message says what to do about it."""


class WorkerLost(StradaskError):
    """A worker, or the way to it, is gone; the engine opens its session anew and repeats the round."""


class InterruptedFitWarning(UserWarning):
    """A fit was stopped with Ctrl-C between two rounds; the model so far is kept."""


class PosteriorWarning(UserWarning):
    """The diagnostics of a posterior say not to use its draws; the message quotes the lines marked bad."""
