"""One environment per peer, made when first asked for."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from ...errors import StradaskError


class PeerUnavailable(StradaskError):
    """A peer whose environment could not be made."""


def default_folder():
    """Return the folder for peers' environments, in the user's cache folder."""
    import pooch

    return Path(pooch.os_cache("stradask")) / "bench-environments"


def interpreter_for(solver, folder):
    """Return the Python that runs a solver: this one, or that of the solver's own environment.

    Our solvers and peers that are installed with us run in this environment. For any other peer an
    environment with its requirements, and nothing else, is made under `folder` (None: `default_folder`) and
    kept for the next time; its name holds the requirements and the version of Python. PeerUnavailable where
    it could not be made (the message ends with what pip said), or for a program that is not built.
    """
    if solver.is_ours or solver.is_installed():
        return Path(sys.executable)
    if solver.program:
        raise PeerUnavailable(f"{solver.name} is a program: build it and set {solver.program} to its path")
    key = hashlib.sha256("\n".join([sys.version, *solver.requires]).encode()).hexdigest()[:10]
    environment = Path(folder or default_folder()).resolve() / f"{solver.name}-{key}"
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = environment / "ready"
    if not ready.exists():
        _make(environment, python, solver)
        ready.touch()
    return python


def _make(environment, python, solver):
    environment.parent.mkdir(parents=True, exist_ok=True)
    venv.create(environment, clear=True, symlinks=os.name != "nt")
    # The pip of this environment installs into the other one, which so needs none of its own.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "--quiet", *solver.requires], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise PeerUnavailable(
            f"no environment for {solver.name} ({' '.join(solver.requires)}): pip said: {said[-1]}"
        )
