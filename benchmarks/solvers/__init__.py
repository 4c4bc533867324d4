"""One small file a solver: ours and the peers'.

A solver is a file ``FAMILY_NAME.py`` with one class `Solver`, here in a folder a family. It is loaded by
path, in the runner to be listed and in a process of its own to be run, so it imports its library inside its
methods and nothing from here, but for what several solvers share: a neighbour whose name begins with an
underscore. The class has

- ``name``: what the user types after ``--against``; ``method``: what it computes, in a few words;
- ``requires``: pip requirements of its own environment; empty for our solvers, which run in the
  environment of stradask, and may name ``libraries`` whose versions the records should give; ``program``,
  where it runs a program that pip does not install: the environment variable that holds its path;
- ``device``: ``"cuda"`` if it needs a GPU (then it runs where ``--device cuda`` asks for one alone);
- ``__init__(settings)``: the settings of the run as attributes (``n_jobs``, ``seed`` and the
  family's own, such as ``n_components``);
- ``set_data(data)``: the arrays of the family's objective as attributes; converts them to what the
  library reads (timed apart, as the set-up);
- where the family trains: ``run(watch)``, which trains and calls ``watch.tick(work, snapshot)`` after each
  step until it returns False. `snapshot` is a callable that returns the arrays which the objective judges; it
  is called at checkpoints only, while the clock stands still. In a warm-up ``watch.max_ticks`` is a number,
  else None;
- where the family samples: ``sample()``, which returns the ``draws`` (chains, n, parameters), warm-up thrown
  away, and perhaps ``automatic()`` and ``combine(n_shards, method)``: see ``objectives/mcmc.py``;
- where the family solves: ``tolerances``, the loosest and the tightest that the library takes, and a method
  for each call of the family, such as ``solve(alpha, tolerance)``, which starts afresh each time and returns
  the arrays that the objective judges.
"""

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from ...errors import DataError
from ..runs.worker import installed_versions, load_solver

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class SolverFile:
    """A solver: its file, and the facts that the file states."""

    path: Path
    name: str
    method: str
    requires: tuple[str, ...]
    calls: tuple[str, ...] = ()
    program: str | None = None
    device: str = "cpu"

    @property
    def is_ours(self):
        """Whether this is a solver of stradask itself."""
        return not self.requires

    def is_installed(self):
        """Whether all that the solver requires is in the current environment (in any version)."""
        if self.program and not shutil.which(os.environ.get(self.program, "")):
            return False
        try:
            return bool(installed_versions(self.requires))
        except PackageNotFoundError:
            return False


def find_solvers(family, folders=()):
    """Return the solvers of a family by name, ours first, of this package and of more folders.

    DataError for a solver file without the class or an attribute of it, or two solvers of one name.
    """
    found: dict[str, SolverFile] = {}
    stem = family.replace("-", "_")
    for folder in (FOLDER / stem, *map(Path, folders)):
        if not folder.is_dir():
            raise DataError(f"--solvers: {str(folder)!r} is not a folder; give a folder of solver files")
        for path in sorted(folder.glob(f"{stem}_*.py")):
            solver = _read(path)
            if solver.name in found:
                raise DataError(
                    f"{path}: the solver name {solver.name!r} is taken by {found[solver.name].path}"
                )
            found[solver.name] = solver
    return dict(sorted(found.items(), key=lambda item: (not item[1].is_ours, item[0])))


def _read(path):
    try:
        solver = load_solver(path)
        calls = tuple(name for name, value in vars(solver).items() if callable(value))
        rest = (calls, getattr(solver, "program", None), getattr(solver, "device", "cpu"))
        return SolverFile(path, solver.name, solver.method, tuple(solver.requires), *rest)
    except AttributeError as error:
        raise DataError(f"{path}: not a solver file ({error}); see benchmarks/solvers") from error
