"""Arrays of checkpoints: taken by name, and checked before kernels trust them."""

from ....errors import ModelFileError, shortened


def taken(arrays, *names):
    """Take arrays of a checkpoint by their names."""
    absent = [name for name in names if name not in arrays]
    if absent:
        raise ModelFileError(
            f"the checkpoint lacks the array {shortened(absent[0])}; remove the folder to start anew"
        )
    return [arrays[name] for name in names]


def unfit(what="arrays", to="its data"):
    """Make the error of a checkpoint whose arrays cannot be those of the fit."""
    return ModelFileError(f"the checkpoint's {what} do not fit {to}; remove the folder to start anew")


def damaged(block):
    """Make the error of a block that is not as it was packed."""
    return ModelFileError(
        f"block {block} of the words is damaged; if it comes from a checkpoint, remove the folder to start "
        "anew"
    )
