"""Checkpoints of a minimisation: of whole vectors, and of vectors in slices on workers."""

import itertools
import re

import numpy as np

from ...scheduler.stores.store import Checkpoint, read_npz, write_npz


class States:
    """The whole state of `minimize_lbfgs`, saved every few steps: a fit goes on from it bitwise."""

    def __init__(self, path, every, fingerprint):
        self.store, self.every, self.fingerprint = Checkpoint(path), every, fingerprint
        self._unsaved = None

    def load(self, space=None):
        """Return the newest state, or None; its vector ``x`` is one of the space."""
        saved = self.store.load(self.fingerprint)
        return None if saved is None else saved[1]

    def take(self, iterate, space=None):
        """Note a step, and save it if it is due."""
        self._unsaved = iterate
        if iterate.nit % self.every == 0:
            self.finish(space)

    def forget(self):
        """Forget the last step, whose vectors are lost."""
        self._unsaved = None

    def finish(self, space=None):
        """Save the last step, unless that is done."""
        if self._unsaved is not None:
            self._save(self._unsaved, space)
        self._unsaved = None

    def _save(self, iterate, space):
        self.store.save(iterate.nit, iterate.state(), {}, self.fingerprint)


class PieceStates(States):
    """The point only, in files of a bounded size that are written one after another.

    The files of a point are written before the state that names it, and removed after the states that follow:
    the newest state has its files, whenever a process is killed.
    """

    _NAME = re.compile(r"point-(\d{9})-\d{6}\.npz")

    def load(self, space=None):
        """See `States.load`."""
        saved = self.store.load(self.fingerprint)
        if saved is None:
            return None
        nit, state, header = saved
        pieces = (read_npz(self._file(nit, k))[0]["x"] for k in range(header["n_files"]))
        return state | {"x": space.lay_pieces(_cut(pieces, space.pieces()))}

    def _save(self, iterate, space):
        n_files = 0
        for piece in space.read_pieces(iterate.x):
            self.store.path.mkdir(parents=True, exist_ok=True)
            write_npz(self._file(iterate.nit, n_files), {"x": piece}, {}, follow=False)
            n_files += 1
        self.store.save(iterate.nit, iterate.state(whole=False), {"n_files": n_files}, self.fingerprint)
        for file in self.store.path.iterdir():
            of = self._NAME.fullmatch(file.name)
            if of and not (self.store.path / f"round-{of[1]}.npz").exists():
                file.unlink()

    def _file(self, nit, k):
        return self.store.path / f"point-{nit:09d}-{k:06d}.npz"


def _cut(arrays, pieces):
    """Yield the same numbers in other pieces, as the present workers need them."""
    numbers = itertools.chain.from_iterable(arrays)
    for start, stop in pieces:
        yield np.fromiter(itertools.islice(numbers, stop - start), np.float64)
