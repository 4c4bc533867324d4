"""Sets of blocks drawn by how much they changed last, no two of which depend on each other."""

import numpy as np

from ..errors import DataError, ModelFileError
from .parameters import CANDIDATES, check_count, check_weights, seed_from, stream
from .schedule import Schedule

_MOST = 1e290  # priorities above it count as it, so that sums of very many stay finite


class DynamicSchedule(Schedule):
    """The schedule of STRADS for Lasso and logistic regression: by priority and dependency.

    The blocks are cut into `n_schedulers` contiguous ranges, and round r belongs to range
    ``r mod n_schedulers``. A round draws ``oversample * size`` candidates of its range in
    proportion to::

        |last change of block j| + eta * (mean of the last changes over the range),

    drops repeats, and goes through them in the order drawn: a candidate is kept if it depends on none that was
    kept before, until `size` are. (Sorting by priority first, as is sometimes done, would let heavy
    candidates shut out the light ones for ever.) Blocks that were never updated come first, drawn with
    equal weights among themselves; so every block is updated, at first within as many
    rounds as there are blocks and later, since ``eta > 0``, in the long run. Every shard is given the set.

    Parameters
    ----------
    n_blocks : int
        Parts of the model.
    size : int
        Blocks a round, at most: the updates in flight, all made from the same state.
    n_shards : int, default=1
        Parts of the data.
    eta : float, default=0.1
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
        n_blocks,
        *,
        size,
        n_shards=1,
        eta=0.1,
        conflicts=None,
        oversample=4,
        n_schedulers=1,
        loads=None,
        lookahead=0,
        random_state=None,
    ):
        self.n_blocks = check_count("n_blocks", n_blocks)
        self.size = check_count("size", size)
        self.n_shards = check_count("n_shards", n_shards)
        self.oversample = check_count("oversample", oversample)
        self.n_schedulers = check_count("n_schedulers", n_schedulers)
        if n_schedulers > n_blocks:
            raise DataError(f"n_schedulers={n_schedulers} ranges cannot be cut from {n_blocks} blocks; take fewer")
        if not (np.isfinite(eta) and eta > 0):
            raise DataError(f"eta must be a finite number above 0, or some blocks would never come; got {eta}")
        if check_count("lookahead", lookahead, least=0) > 1:
            raise DataError(f"lookahead must be 0 or 1, got {lookahead}")
        self.eta = float(eta)
        self.lookahead = int(lookahead)
        self._conflicts = _as_function(conflicts, self.n_blocks)
        self._loads = None if loads is None else check_weights("loads", loads, self.n_blocks)
        self._seed = seed_from(random_state)
        # Range k holds the blocks first[k] to first[k + 1] and, in `tree`, what lies at twice that.
        self._first = np.linspace(0, self.n_blocks, self.n_schedulers + 1).astype(np.int64)

    def start(self):
        """Make the state: no block was ever updated.

        Returns
        -------
        dict
            ``change``: the last change of each block; -1 if there was none. ``tree``: a tree of sums for each
            range (see `stradask.kernels.scheduling`): while it has blocks without an update, of 1 for these
            and 0 for others, and of the changes then.
        """
        from ..kernels import scheduling

        state = {"change": np.full(self.n_blocks, -1.0), "tree": np.ones(2 * self.n_blocks)}
        for k in range(self.n_schedulers):
            scheduling.build(self._tree(state, k))
        return state

    def plan(self, round, state):
        """Draw candidates of the round's range, thin them, and give the set to every shard."""
        self._check(state)
        k = round % self.n_schedulers
        candidates = self._candidates(round, k, self._tree(state, k)) + self._first[k]
        blocks = self._thinned(candidates)
        if self._loads is not None:
            blocks = blocks[np.argsort(-self._loads[blocks], kind="stable")]
        return [[(shard, blocks) for shard in range(self.n_shards)]]

    def observe(self, state, round, blocks, priorities):
        """Take in how much the blocks changed."""
        from ..kernels import scheduling

        self._check(state)
        blocks, priorities = np.asarray(blocks, np.int64), np.asarray(priorities, np.float64)
        self._check_event(blocks, priorities)
        changes = np.minimum(priorities, _MOST)
        ranges = np.searchsorted(self._first, blocks, side="right") - 1
        for k in np.unique(ranges):
            here = ranges == k
            span, tree = slice(*self._first[k : k + 2]), self._tree(state, k)
            fresh = self._has_fresh(tree, state["change"][span])
            state["change"][blocks[here]] = changes[here]
            weights = np.zeros(here.sum()) if fresh else changes[here]
            scheduling.change(tree, blocks[here] - self._first[k], weights)
            if fresh and tree[1] == 0:
                tree[len(tree) // 2 :] = state["change"][span]
                scheduling.build(tree)
