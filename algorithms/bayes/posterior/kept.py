"""What lives with a `Posterior`, and not in its file."""


class NotKept:
    """What a `Posterior` knows for as long as it lives; pickled it is None, as data may be large."""

    def __reduce__(self):
        return type(None), ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self
