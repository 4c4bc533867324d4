"""Searches for all modes of a density: climbs from rays, from scattered points, and about the modes found.

How often climbs ended in each mode tells of the modes that they did not find. With f1 modes that one climb
ended in, and f2 that two did, at least

.. math:: f_1 (f_1 - 1) / (2 (f_2 + 1))

further ones exist (Chao 1984). They are taken to weigh as much as those with one climb.

Reference: Chao, "Nonparametric estimation of the number of classes in a population", Scandinavian Journal of
Statistics 1984.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg, special

from ....kernels.bayes.streams import normals
from ....scheduler.threads import single_threaded_blas
from .chain import PROPOSING, starting_point, stream
from .laplace import Budget, Mode, find_mode
from .rays import ELLIPTICAL, cosines, points_of_a_ray, points_on_rays

_FAR = 3.0  # times twice the standard deviation
_TIMES = (1, 5, 25)  # the distance from the start at which chains begin
_RAYS = 8  # pairs of rays for each pair of scattered points
MOST_MODES = 32  # that are found and weighed; there may be more
_WITH_LIGHT = 4  # times that number, with those that hardly weigh
MOST_UNSEEN = 0.05  # of the posterior, about modes that were not found
_PATIENCE = 8  # climbs from rays that bring no new mode
_SCREENED, _CLIMBS = 256, 16  # pairs of points and climbs for each pair of scattered points
_ROUNDS = 6  # of further climbs, where there are several modes
_WIDER = 2.0  # times the standard deviations of all modes, for half of their starts
_NUMBERS = 2**22  # numbers of chains from here on are those of such rounds
_LEAST_MASS = -10.0  # logarithm of a mode's part, by the normal density there, of the heaviest one's
# Searches after the draws: docs/mcmc.md, "Several modes".
_WORTH = 0.05  # of the evaluations that the draws took, for a later search
_FEW, _WORTH_OF_FEW = 1000, 0.25  # where these are few
_WORTH_OF_RAYS = 0.4  # of these
_ELSEWHERE = 2**32 - 1  # in the place of a shard's number: random numbers that no chain has


@dataclass(frozen=True)
class FoundModes:
    """The modes that searches ended in.

    `modes` are the heaviest first, without those with less than 1 in 20,000 of the first one's mass. `unseen`
    is the part of the posterior about modes that were not found, as far as the ends of the searches tell; NaN
    where there may be more than 32 modes.
    """

    modes: tuple[Mode, ...] = ()
    n_searches: int = 0
    unseen: float = 0.0

    @property
    def complete(self):
        """Whether hardly any of the posterior seems to lie about other modes."""
        return self.unseen <= MOST_UNSEEN


NOTHING_FOUND = FoundModes()


class _Climbs:
    """Modes, the number of climbs that ended in each, and the evaluations that climbs may take."""

    def __init__(self, model, mode, budget=None):
        self.modes, self.hits = [mode], [1]
        self._model, self._scales = model, mode.A
        self._budget = Budget() if budget is None else budget

    def climb(self, starts, patience=np.inf):
        """Climb from starts until so many in a row have brought no new mode, or the budget is spent."""
        in_vain = 0
        for start in starts:
            if in_vain >= patience or self.full or self._budget.left <= 0:
                break
            in_vain += 1
            end = find_mode(self._model, start, scales=self._scales, known=self.modes, budget=self._budget)
            if end is None:
                continue
            for k, mode in enumerate(self.modes):
                if end is mode or mode.is_near(end.q):
                    self.hits[k] += 1
                    break
            else:
                self.modes.append(end)
                self.hits.append(1)
                in_vain = 0

    @property
    def full(self):
        """Whether there are as many modes as are weighed, or many times as many light ones."""
        return self._weighty().sum() >= MOST_MODES or len(self.modes) >= _WITH_LIGHT * MOST_MODES

    def _weighty(self):
        masses = np.array([mode.log_mass for mode in self.modes])
        return masses - masses.max() > _LEAST_MASS

    def unseen(self):
        """Estimate the part of the posterior about modes in which no climb ended."""
        masses = special.softmax([mode.log_mass for mode in self.modes])
        hits = np.where(self._weighty(), self.hits, 0)
        once, twice = (hits == 1).sum(), (hits == 2).sum()
        if once < 2:
            return 0.0
        mass = once * (once - 1) / (2 * (twice + 1)) * masses[hits == 1].mean()
        return float(mass / (1 + mass))

    def between(self, n_pairs, name):
        """Return points (m, d) scattered about all modes whose gradients lead to none, the most turned first.

        They are scattered in turn by the covariance of all modes, and as far in all directions.
        """
        middles = np.stack([mode.q for mode in self.modes])
        middle, A = middles.mean(axis=0), self._scales
        apart = middles - middle
        far = linalg.solve_triangular(A, apart.T, lower=True)
        in_all = np.sqrt(1 + (far**2).sum(axis=0).mean() / len(A)) * A
        along = np.linalg.cholesky(A @ A.T + apart.T @ apart / len(apart))
        ways = normals(name, n_pairs, len(A))
        ways[::2], ways[1::2] = ways[::2] @ along.T, ways[1::2] @ in_all.T
        ways[n_pairs // 2 :] *= _WIDER
        points = middle + np.concatenate([ways, -ways])
        measured = cosines(self._model, self.modes, points)
        self._budget.left -= len(points)
        if measured is None:
            return points[:0]
        order = np.argsort(measured[0], kind="stable")
        return points[order[measured[0][order] < ELLIPTICAL]]

    def go_on(self, n_pairs, seed, shard):
        """Climb from points about several modes until no more are found; returns the number of searches."""
        n, grown = 0, len(self.modes) > 1
        for number in range(_ROUNDS):
            if not grown or self.full or self._budget.left <= 0:
                break
            before = len(self.modes)
            starts = self.between(_SCREENED * n_pairs, stream(seed, shard, _NUMBERS + number, PROPOSING))
            self.climb(starts[: _CLIMBS * n_pairs])
            grown = len(self.modes) > before or self.unseen() > MOST_UNSEEN
            n += 2 * _SCREENED * n_pairs
        return n

    def found(self, n_searches):
        """Make the `FoundModes`."""
        unseen = np.nan if self.full else self.unseen()
        return FoundModes(tuple(heaviest(self.modes)), n_searches, unseen)


def find_modes(model, mode, n_pairs, *, seed, shard=0):
    """Look for further modes by climbs from points of rays, and about the start and the given mode.

    Points come in opposite pairs, of which one lies on the side of another mode, if there is one. There are
    `n_pairs` about the mode, at six standard deviations, and at 2, 10 and 50 about the start, and `n_pairs`
    times eight pairs of rays from the mode. If they end in several modes, 256 times `n_pairs` pairs of points
    follow about these, with climbs from up to 16 times `n_pairs`, and again while more are found, but six
    times at most. Returns a `FoundModes` of about 32 modes at most. Concave densities are not searched.
    Regressions, whose shapes are known and whose integrals over groups take long far out, have no rays.
    """
    if model.concave:
        return FoundModes((mode,))
    n = 2 * (2 if model.regular else _RAYS + 1 + len(_TIMES)) * n_pairs
    with single_threaded_blas():
        climbs = _Climbs(model, mode)
        if not model.regular:
            climbs.climb(points_on_rays(model, mode, _RAYS * n_pairs, seed=seed, shard=shard)[0], _PATIENCE)
        climbs.climb(scattered(model, mode, n_pairs, seed, shard))
        n += climbs.go_on(n_pairs, seed, shard)
    return climbs.found(n)


def find_further(model, found, n, n_pairs, *, seed, shard=0):
    """Look for modes along more rays from the only one found, with about n evaluations; see `find_modes`."""
    if model.concave or model.regular:
        return found
    mode, n_rays = found.modes[0], max(1, n // (4 * points_of_a_ray()))
    with single_threaded_blas():
        climbs = _Climbs(model, mode, Budget(n / 2))
        climbs.climb(points_on_rays(model, mode, n_rays, seed=seed, shard=shard, number=1)[0])
        n_further = climbs.go_on(n_pairs, seed, shard)
    return climbs.found(found.n_searches + 2 * n_rays + n_further)


def heaviest(modes):
    """Sort modes by mass; leave out those with less than 1 in 20,000 of the first one's."""
    modes = sorted(modes, key=lambda one: -one.log_mass)
    return [one for one in modes if one.log_mass - modes[0].log_mass > _LEAST_MASS]


def scattered(model, mode, n_pairs, seed, shard=0):
    """Yield the points from which `find_modes` searches."""
    times = _TIMES[:1] if model.regular else _TIMES  # a regression far out is flat, and slow
    for chain in range(n_pairs):
        numbers = {"chain": chain, "seed": seed, "shard": shard}
        far = _FAR * (starting_point(model, mode=mode, **numbers) - mode.q)
        near = starting_point(model, **numbers) - model.start
        for origin, way in ((mode.q, far), *((model.start, k * near) for k in times)):
            yield origin + way
            yield origin - way


def look_for_modes(model, sample, seed):
    """Look for modes about chains that were sampled without a search for any; return the sample with them.

    Chains of NUTS, HMC and slices begin near the start. Of modes that lie apart, or of a narrow one within a
    wide one, all may know the same one, and R-hat is 1.00. This search is for the diagnostics alone, with
    random numbers of its own and few evaluations compared with the chains'. It begins at the draw with the
    highest density, then at points of rays from it, and scattered about it, by the covariance of the draws,
    and about the start. An error that the density raises so far out ends that search alone. Ctrl-C keeps the
    draws. The sample is unchanged where modes were looked for before, where the density is known to be
    concave, and where no mode with a definite Hessian is found.
    """
    if sample.found.n_searches or not sample.states or model.concave:
        return sample
    known = _place_of(sample)
    if known is None:
        return sample
    total = float(sample.statistic("n_gradients").sum())
    budget = Budget(max(_WORTH * total, min(_FEW, _WORTH_OF_FEW * total)))
    modes: list[Mode] = []
    n = 0
    try:
        with single_threaded_blas():
            for start in _starts(model, known, len(sample.chains), seed, budget):
                if budget.left <= 0 or len(modes) == MOST_MODES:
                    break
                n += 1
                mode = _search(model, start, known, modes, budget)
                if mode is not None and not any(one is mode or one.is_near(mode.q) for one in modes):
                    modes.append(mode)
    except KeyboardInterrupt:
        sample = replace(sample, reason=f"{sample.reason}; the search for other modes was stopped")
    model.take_tally()  # of places where no chain was
    if not modes:
        return sample
    modes = heaviest(modes)
    unseen = np.nan if len(modes) >= MOST_MODES else 0.0  # there may be more
    return replace(sample, found=FoundModes(tuple(modes), n, unseen))


def _place_of(sample):
    """The draw with the highest density, with the covariance of all; None where that is singular."""
    draws = sample.stacked().reshape(-1, sample.chains[0].draws.shape[1])
    if len(draws) <= draws.shape[1]:  # a singular covariance, and large
        return None
    logps = sample.stacked("log_densities").ravel()
    try:
        A = np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
    except np.linalg.LinAlgError:
        return None
    best = int(logps.argmax())
    return Mode(draws[best], A, np.eye(len(A)), float(logps[best])) if np.isfinite(A).all() else None


def _starts(model, known, n_pairs, seed, budget):
    """Yield the best draw, then points of rays and scattered ones in turn."""
    yield known.q
    left = max(0.0, budget.left)  # the climb from there may take more than all
    most = int(_WORTH_OF_RAYS * left) // (2 * points_of_a_ray())
    n_rays = 0 if model.regular else min(most, _RAYS * n_pairs)
    far, n = points_on_rays(model, known, n_rays, seed=seed, shard=_ELSEWHERE)
    budget.left -= n
    near = scattered(model, known, n_pairs, seed, _ELSEWHERE)
    for points in itertools.zip_longest(far, _until_an_error(near)):
        yield from (point for point in points if point is not None)


def _until_an_error(points):
    while True:
        try:
            yield next(points)
        except Exception:  # the end, or no finite density there
            return


def _search(model, start, known, modes, budget):
    """A mode, or None, where the density may fail as it likes."""
    try:
        return find_mode(model, start, scales=known.A, known=modes, budget=budget)
    except Exception:
        return None
