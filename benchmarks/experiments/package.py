"""What the package weighs: ``python -m stradask.benchmarks.experiments.package`` prints a line.

Seconds of the import, bytes of the wheel in `dist/` (``make dist`` builds it), and how many packages an
installation brings.
"""

import importlib.metadata
import re
import statistics
import sys
from pathlib import Path

from .import_time import CASES, measure

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5
_NAME = re.compile(r"[\w.-]+")


def required(name):
    """Return the names of the packages that a distribution requires, here, without its extras.

    Examples
    --------
    >>> from stradask.benchmarks.experiments.package import required
    >>> "numpy" in required("scikit-learn")
    True
    """
    names = set()
    for requirement in importlib.metadata.requires(name) or ():
        package, _, marker = requirement.partition(";")
        if "extra" not in marker and _holds(marker):
            match = _NAME.match(package.strip())
            assert match is not None
            names.add(match[0].lower().replace("_", "-"))
    return names


def _holds(marker):
    """Return whether an environment marker holds here."""
    from packaging.markers import Marker

    return not marker.strip() or Marker(marker.strip()).evaluate()


def brought(name):
    """Return all packages that an installation of `name` brings, in turn, as far as they are installed."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in required(waiting.pop()) - seen:
            seen.add(other)
            waiting.append(other)
    return seen


def wheel_bytes(folder=None):
    """Return the size of the newest wheel in a folder (`dist/`); None if there is none."""
    wheels = sorted((folder or ROOT / "dist").glob("stradask-*.whl"), key=lambda path: path.stat().st_mtime)
    return wheels[-1].stat().st_size if wheels else None


def line():
    """Return what the package weighs, in one line."""
    seconds = statistics.median(measure(CASES["import stradask"])[0] for _ in range(RUNS))
    size, own = wheel_bytes(), len(required("stradask"))
    wheel = "" if size is None else f"The wheel is {size / 1e6:.1f} MB and pure Python. "
    return (
        f"{wheel}It has {own} direct dependencies, {len(brought('stradask') | required('stradask'))} in all. "
        f"`import stradask` takes {1e3 * seconds:.0f} ms more than importing NumPy, SciPy and scikit-learn."
    )


if __name__ == "__main__":
    print(line())
    sys.exit(0)
