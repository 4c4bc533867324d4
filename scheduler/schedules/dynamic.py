"""Dynamic scheduling: blocks drawn by their last change, no two of which depend on each other."""

from typing import Any

import numpy as np

from ..._typing import Array, RandomState
from ...errors import DataError, ModelFileError, shortened
from ..parameters import CANDIDATES, check_count, check_weights, known_numbers, seed_from, stream
from .schedule import Schedule

_MOST = 1e290  # priorities above it count as it, so that sums of very many stay finite


class DynamicSchedule(Schedule):
    """The schedule of STRADS for Lasso and logistic regression: by priority and dependency.

    The blocks are cut into `n_schedulers` contiguous ranges, and round r belongs to range
    ``r mod n_schedulers``. A round draws ``oversample * size`` candidates of its range in
    proportion to::

        |last change of block j| + eta * (mean of the last changes over the range),

    drops repeats, and goes through them in the order drawn: a candidate is kept if it depends on none that
    was kept before, until `size` are. (Sorting by priority first, as is sometimes done, would let heavy
    candidates shut out the light ones for ever.) Blocks that were never updated come first, drawn with
    equal weights among themselves. So every block is updated: for the first time within as many rounds as
    there are blocks, and again and again since ``eta > 0``. Every shard is given the set. A program may give
    priorities of other blocks than those it updated (`Outcome.priorities`); they count as last changes.

    Parameters
    ----------
    n_blocks : int, optional
        Parts of the model; those of the program that is run when None.
    size : int
        Blocks a round, at most: the updates in flight, all made from the same state.
    n_shards : int, optional
        Parts of the data; those of the program that is run when None.
    eta : float, default=1.0
        Share of draws that do not look at priorities, to that of those which do. It is a pure number:
        scaling the model changes nothing.
    conflicts : callable or boolean matrix, optional
        Which blocks depend on each other: ``conflicts(left, right)`` for two vectors of block
        numbers returns a boolean array of shape (len(left), len(right)); or a symmetric matrix of shape
        (n_blocks, n_blocks), dense or sparse. None tests nothing.
    oversample : int, default=4
        Candidates for each wanted block, for the test to choose from.
    n_schedulers : int, default=1
        Ranges that take turns.
    loads : array-like of shape (n_blocks,), optional
        Work that a block makes; a set then has its heaviest blocks first.
    lookahead : {0, 1}, default=0
        1 plans round r while round r - 1 runs, without knowing what becomes of it.
    random_state : int, RandomState or None, default=None
        The same seed and the same priorities give the same plans.

    Notes
    -----
    The state holds 24 bytes a block. A plan costs ``oversample * size * log2(n_blocks)`` steps and
    the calls of `conflicts`, which sees a candidate only with those kept so far and with at most `size`
    others. `plan` may run while another thread reads the same state.

    References
    ----------
    Lee, Kim, Zheng, Ho, Gibson, Xing, "On model parallelization and scheduling strategies for distributed
    machine learning", NIPS 2014.

    Bradley, Kyrola, Bickson, Guestrin, "Parallel coordinate descent for L1-regularized loss minimization",
    ICML 2011.

    Examples
    --------
    Neighbours depend on each other; block 3 changed most.

    >>> import numpy as np
    >>> from stradask.scheduler import DynamicSchedule
    >>> near = lambda left, right: abs(left[:, None] - right) == 1
    >>> schedule = DynamicSchedule(6, size=2, conflicts=near, random_state=0)
    >>> state = schedule.start()
    >>> schedule.observe(state, 0, np.arange(6), np.array([0, 0, 0, 9.0, 0, 1]))
    >>> [schedule.plan(r, state)[0][0][1].tolist() for r in range(4)]
    [[3, 5], [3, 5], [3, 5], [3, 5]]
    """

    def __init__(
        self,
        n_blocks: int | None = None,
        *,
        size: int,
        n_shards: int | None = None,
        eta: float = 1.0,
        conflicts: Any = None,
        oversample: int = 4,
        n_schedulers: int = 1,
        loads: Any = None,
        lookahead: int = 0,
        random_state: RandomState | None = None,
    ) -> None:
        self.n_blocks = None if n_blocks is None else check_count("n_blocks", n_blocks)
        self.size = check_count("size", size)
        self.n_shards = None if n_shards is None else check_count("n_shards", n_shards)
        self.oversample = check_count("oversample", oversample)
        self.n_schedulers = check_count("n_schedulers", n_schedulers)
        if not (np.isfinite(eta) and eta > 0):
            raise DataError(
                f"eta must be a finite number above 0, or some blocks would never come; got {eta}"
            )
        if check_count("lookahead", lookahead, least=0) > 1:
            raise DataError(f"lookahead must be 0 or 1, got {lookahead}")
        self.eta = float(eta)
        self.lookahead = int(lookahead)
        self._given, self._loads = conflicts, loads
        self._seed = seed_from(random_state)
        self._prepare()

    def _prepare(self):
        if self.n_blocks is None:
            return
        if self.n_schedulers > self.n_blocks:
            raise DataError(
                f"n_schedulers={self.n_schedulers} ranges cannot be cut from {self.n_blocks} blocks; "
                "take fewer"
            )
        self._conflicts = _as_function(self._given, self.n_blocks)
        if self._loads is not None:
            self._loads = check_weights("loads", self._loads, self.n_blocks)
        # Range k begins with block first[k]; its tree, of twice as many numbers, at twice that.
        self._first = np.arange(self.n_schedulers + 1) * self.n_blocks // self.n_schedulers

    def start(self) -> dict[str, Array]:
        """Return the state in which no block was ever updated.

        ``change``: the last change of each block. ``fresh``: for each range, whether some of its blocks were
        never updated. ``tree``: a tree of sums for each range (see `stradask.kernels.scheduling`); in a fresh
        range over 1 for blocks that were never updated and 0 for others, then over changes.
        """
        from ...kernels import scheduling

        known_numbers(self)
        state = {
            "change": np.zeros(self.n_blocks),
            "fresh": np.ones(self.n_schedulers, np.bool_),
            "tree": np.ones(2 * self.n_blocks),
        }
        for k in range(self.n_schedulers):
            scheduling.build(self._tree(state, k))
        return state

    def plan(self, round: int, state: Any) -> Any:
        """Draw candidates of the round's range, thin them, and give the set to every shard."""
        n_shards, _ = known_numbers(self)
        self._check_state(state)
        blocks = self._thinned(self._candidates(round, state))
        if self._loads is not None:
            blocks = blocks[np.argsort(-self._loads[blocks], kind="stable")]
        return [[(shard, blocks) for shard in range(n_shards)]]

    def observe(self, state: Any, round: int, blocks: Any, priorities: Any) -> None:
        """Take in how much the blocks changed."""
        self._take(state, blocks, priorities, updated=True)

    def prioritise(self, state: Any, blocks: Any, priorities: Any) -> None:
        """Take in priorities of other blocks; those that were never updated still come first."""
        self._take(state, blocks, priorities, updated=False)

    def _take(self, state, blocks, priorities, updated):
        from ...kernels import scheduling

        self._check_state(state)
        blocks, changes = self._check_event(blocks, priorities)
        state["change"][blocks] = changes
        owner = np.searchsorted(self._first, blocks, side="right") - 1
        for k in np.unique(owner):
            mine = owner == k
            tree, fresh = self._tree(state, k), state["fresh"]
            if fresh[k] and not updated:
                continue
            weights = np.zeros(mine.sum()) if fresh[k] else changes[mine]
            scheduling.change(tree, blocks[mine] - self._first[k], weights)
            if fresh[k] and tree[1] == 0:
                tree[len(tree) // 2 :] = state["change"][self._first[k] : self._first[k + 1]]
                scheduling.build(tree)
                fresh[k] = False

    def _tree(self, state, k):
        return state["tree"][2 * self._first[k] : 2 * self._first[k + 1]]

    # Drawing and thinning -----------------------------------------------------------------------------

    def _candidates(self, round_, state):
        """Draw from the range whose turn it is; repeats are dropped, the order of drawing stays."""
        from ...kernels import scheduling

        k = round_ % self.n_schedulers
        share = 0.0 if state["fresh"][k] else self.eta / (1 + self.eta)
        coins, uniforms = stream(self._seed, CANDIDATES, round_, k).random((2, self.oversample * self.size))
        drawn = np.empty(len(coins), np.int64)
        scheduling.draw(self._tree(state, k), coins, uniforms, share, drawn)
        first = np.unique(drawn, return_index=True)[1]
        return drawn[np.sort(first)] + self._first[k]

    def _thinned(self, candidates):
        """Keep the first candidates that depend on none kept before, `size` at a time."""
        if self._conflicts is None:
            return candidates[: self.size]
        from ...kernels import scheduling

        kept = candidates[:0]
        for start in range(0, len(candidates), self.size):
            more = candidates[start : start + self.size]
            more = more[~self._depend(more, kept).any(axis=1)]
            more = more[scheduling.independent(self._depend(more, more), self.size - len(kept))]
            kept = np.concatenate([kept, more])
            if len(kept) == self.size:
                break
        return kept

    def _depend(self, left, right):
        if not len(left) or not len(right):
            return np.zeros((len(left), len(right)), np.bool_)
        answer = np.asarray(self._conflicts(left, right))
        if answer.shape != (len(left), len(right)) or answer.dtype != np.bool_:
            raise DataError(
                f"conflicts must return booleans of shape {(len(left), len(right))} for {len(left)} and "
                f"{len(right)} blocks, but returned {answer.dtype} of shape {answer.shape}"
            )
        return np.ascontiguousarray(answer)

    # Checks: compiled code reads wherever these point ---------------------------------------------------

    def _check_state(self, state):
        """Check the form of a state, which may come from a checkpoint."""
        form = {"change": self.n_blocks, "fresh": self.n_schedulers, "tree": 2 * self.n_blocks}
        kinds = {"change": np.float64, "fresh": np.bool_, "tree": np.float64}
        for name, length in form.items():
            array = state.get(name)
            if array is None or array.shape != (length,) or array.dtype != kinds[name]:
                raise ModelFileError(
                    f"the state of the schedule must hold {length} {kinds[name].__name__} as "
                    f"{shortened(name)}: it belongs to another schedule; start anew"
                )

    def _check_event(self, blocks, priorities):
        blocks, priorities = np.atleast_1d(blocks), np.atleast_1d(np.asarray(priorities, np.float64))
        if blocks.dtype.kind not in "iu" or blocks.ndim != 1 or blocks.shape != priorities.shape:
            raise DataError(
                f"priorities must be one number for each block of the round: got {priorities.shape} for "
                f"{blocks.shape}"
            )
        if len(blocks) and not 0 <= blocks.min() <= blocks.max() < self.n_blocks:
            raise DataError(f"blocks must be numbers from 0 to {self.n_blocks - 1}, got {blocks}")
        wrong = np.flatnonzero(~(np.isfinite(priorities) & (priorities >= 0)))
        if len(wrong):
            raise DataError(
                f"priorities must be finite and not negative, but that of block {blocks[wrong[0]]} is "
                f"{priorities[wrong[0]]}: if the program diverges, update fewer blocks a round, or give "
                "conflicts"
            )
        return blocks.astype(np.int64), np.minimum(priorities, _MOST)


def _as_function(conflicts, n_blocks):
    """Turn a matrix of conflicts into a function; check that it is boolean and symmetric."""
    if conflicts is None or callable(conflicts):
        return conflicts
    from scipy import sparse

    is_sparse = sparse.issparse(conflicts)
    matrix: Any = conflicts.tocsr() if is_sparse else np.asarray(conflicts)
    if matrix.shape != (n_blocks, n_blocks) or matrix.dtype != np.bool_:
        raise DataError(
            f"conflicts must be a callable or a boolean matrix of shape {(n_blocks, n_blocks)}, got "
            f"{matrix.dtype} of shape {matrix.shape}"
        )
    differ = matrix != matrix.T
    if differ.nnz if is_sparse else differ.any():
        raise DataError("conflicts must be symmetric: block i depends on j where j depends on i")
    if is_sparse:
        return lambda left, right: matrix[left][:, right].toarray()
    return lambda left, right: matrix[np.ix_(left, right)]
