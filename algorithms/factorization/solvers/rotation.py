"""The grid of blocks for gradient descent in rotation: shards of users, and blocks of items."""

import itertools

import numpy as np

from ....errors import DataError
from ....kernels.factorization.lanes import LANES
from ....kernels.factorization.sgd import BIAS, COUNT, RIDGE, SQUARES, deal, shuffle
from ....scheduler.program import Outcome, Program
from ....scheduler.schedules.rotation import RotationSchedule
from ....scheduler.threads import run_tasks
from ....scheduler.wire import Wire
from .sides import Sides, penalty_of, ranges_of

_OWN = 4  # numbers of a row besides its factors; see the kernel
_LARGE = 3_000_000  # ratings from which on a block travels while another is worked on; fewer are soon done


class Rotation(Program):
    """Users in shards that stay on their workers, items in blocks that travel; no two at work share a row.

    So the result depends on the grid and the seed alone, wherever it is computed. A shard keeps 12 bytes a
    rating (16 with weights) and ``4 (d + 4)`` a user; a block has ``4 (d + 4)`` an item, and fewer where a
    `wire` shortens factors on their way; d is the number of factors rounded up to 16. Ratings are centred by
    `mean` and divided by `scale`; the initial factors have the standard deviation `spread`.

    Reference: Gemulla, Nijkamp, Haas, Sismanis, "Large-scale matrix factorization with distributed stochastic
    gradient descent", KDD 2011.
    """

    travels, spreads, keeps_copies = True, True, True
    saved = ("factors", "own")
    unit = "rating"

    def __init__(self, entries, settings, seed, mean, scale, spread):
        self.settings, self.seed, self.mean, self.scale, self.spread = settings, seed, mean, scale, spread
        self.dtype, self.wire = entries.values.dtype, Wire(settings.wire)
        self.vectors = (0,) * (-(-settings.n_components // LANES))
        n_shards = min(settings.n_blocks, entries.shape[0])
        self.n_blocks = min(n_shards * (2 if len(entries) >= _LARGE else 1), entries.shape[1])
        self.schedule = RotationSchedule(n_shards, self.n_blocks)
        rng = np.random.default_rng(seed)
        item_counts = np.bincount(entries.indices, minlength=entries.shape[1])
        self.users = Deal(entries.counts, n_shards, rng)
        self.items = Deal(item_counts, self.n_blocks, rng)
        self.shards = self._dealt(entries)
        self.n_ratings = len(entries)
        # The steps of a round in which a shard, or a block, is met for the last time.
        plan = [(step, *pair) for step, pairs in enumerate(self.schedule.plan(0, {})) for pair in pairs]
        self._last_turn = {shard: step for step, shard, _ in plan}
        self._last_visit = {block: step for step, _, block in plan}

    def __getstate__(self):
        return {**self.__dict__, "shards": (), "users": None}

    def _dealt(self, entries):
        """Sort the ratings into blocks, shuffled: neighbours must not wait for each other."""
        users, items, n_blocks = self.users, self.items, self.n_blocks
        cells = np.zeros((len(users.starts) - 1) * n_blocks + 1, np.int64)
        user_cell = users.block * np.int32(n_blocks)
        for a, b in ranges_of(entries.indptr):  # in parts: numbers of all blocks would take 8 bytes a rating
            part = slice(entries.indptr[a], entries.indptr[b])
            block = np.repeat(user_cell[a:b], np.diff(entries.indptr[a : b + 1]))
            block += items.block[entries.indices[part]]
            cells[1:] += np.bincount(block, minlength=len(cells) - 1)
        cuts = np.cumsum(cells)
        n = len(entries)
        rows, columns, targets = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, self.dtype)
        weights = np.empty(len(entries.weights), self.dtype) if len(entries.weights) > 1 else entries.weights
        deal(
            entries.indptr, entries.indices, entries.values, entries.weights, self.dtype.type(self.mean),
            self.dtype.type(1 / self.scale), user_cell, users.place, items.block, items.place,
            cuts[:-1].copy(), rows, columns, weights, targets,
        )  # fmt: skip
        tasks = [
            (self.arrange, (int(a), int(b), rows, columns, weights, targets, (self.seed << 16) + number))
            for number, (a, b) in enumerate(itertools.pairwise(cuts))
        ]
        run_tasks(tasks, self.settings.n_jobs)
        return [
            self._shard(number, cuts[number * n_blocks :][: n_blocks + 1], rows, columns, weights, targets)
            for number in range(len(users.starts) - 1)
        ]

    @staticmethod
    def arrange(start, stop, rows, columns, weights, targets, seed):
        """Put the ratings of a block into the order of the steps."""
        shuffle(start, stop, rows, columns, weights, targets, seed)

    def _shard(self, number, cuts, rows, columns, weights, targets):
        part = slice(cuts[0], cuts[-1])
        return {
            "number": number,
            "cuts": cuts - cuts[0],
            "rows": rows[part],
            "columns": columns[part],
            "weights": weights[part] if len(weights) > 1 else weights,
            "targets": targets[part],
            "counts": self.users.counts_of(number),
        }

    # On the workers -----------------------------------------------------------------------------------

    def load(self, data):
        """Make the state of a shard: its ratings, and initial factors of its users."""
        factors, own = self._begun(data["counts"], data["number"], 0)
        return {**data, "factors": factors, "own": own}

    def renew(self, state):
        """Make the factors again."""
        return self.load(state)

    def block(self, block):
        """Make a block of items: all initial factors, then bias, squares, ridge and count of each row."""
        factors, own = self._begun(self.items.counts_of(block), block, 1)
        self._round(factors)
        return np.concatenate([factors.ravel(), own.ravel()])

    def _round(self, factors):
        """Round a block's factors to what travels, also if it stays: the route does not matter."""
        if self.wire.name:  # NaN and infinity are found in the objective
            factors[:] = self.wire.rounded(factors)

    def pack(self, block, value):
        """Encode the factors, which are rounded already; the other numbers of a row travel as they are."""
        if not self.wire.name:
            return value
        factors, own = self.opened(value)
        parts = self.wire.encode(factors), own
        return np.concatenate([np.ascontiguousarray(part).view(np.uint8).ravel() for part in parts])

    def unpack(self, block, packed):
        """Undo `pack`."""
        if not self.wire.name:
            return packed
        n, d = len(self.items.counts_of(block)), len(self.vectors) * LANES
        value = np.empty(n * (d + _OWN), self.dtype)
        factors, own = self.opened(value)
        end = len(packed) - own.nbytes
        self.wire.from_bytes(packed[:end], factors)
        own[:] = packed[end:].view(self.dtype).reshape(n, _OWN)
        return value

    def _begun(self, counts, number, side):
        """Draw initial factors, from a stream for each shard or block; rows without ratings keep zeros."""
        n, K = len(counts), self.settings.n_components
        rng = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, number, side]))
        factors = np.zeros((n, len(self.vectors) * LANES), self.dtype)
        factors[:, :K] = self.spread * rng.standard_normal((n, K)) * (counts > 0)[:, None]
        own = np.zeros((n, _OWN), self.dtype)
        own[:, SQUARES] = 1
        own[:, RIDGE] = self.settings.ridge(counts, self.dtype, side) / np.maximum(counts, 1)
        own[:, COUNT] = counts
        return factors, own

    def opened(self, value):
        """Factors and the other four numbers of each row of a travelling block, as views."""
        d = len(self.vectors) * LANES
        n = len(value) // (d + _OWN)
        return value[: n * d].reshape(n, d), value[n * d :].reshape(n, _OWN)

    def update(self, state, task):
        """One pass over a block; return its loss, and penalties of shard and block at their last visit."""
        Q, q_own = self.opened(task.value)
        first, last = map(int, state["cuts"][task.blocks : task.blocks + 2])
        cell = first, last, state["rows"], state["columns"]
        loss = self.descend(state, task, cell, (state["factors"], Q, state["own"], q_own))
        self._round(Q)
        return (
            loss,
            self._penalty(state["factors"], state["own"], 0, task.step == self._last_turn[task.shard]),
            self._penalty(Q, q_own, 1, task.step == self._last_visit[task.blocks]),
        )

    def descend(self, state, task, cell, tables):
        """One pass over a block; return its loss.

        `cell` is the range of the block's ratings, and their rows and columns; `tables` are the factors of
        both sides, and their other numbers.
        """
        raise NotImplementedError

    def rate(self, round_):
        """Learning rate of a round; it falls linearly."""
        settings = self.settings
        return self.dtype.type(settings.learning_rate * (1 - round_ / settings.max_iter))

    def _penalty(self, factors, own, side, ready):
        if not ready:
            return 0.0
        bias, ridges = own[:, BIAS], self.settings.ridges(own[:, COUNT], np.float64, side)
        return penalty_of(np.sqrt(self.scale) * factors, self.scale * bias, *ridges)

    # At the coordinator ---------------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Add up the objective of an epoch; its loss is of the residuals before each step."""
        loss, of_users, of_items = (sum(column) for column in zip(*partials, strict=True))
        objective = loss * self.scale**2 + of_users + of_items
        if not np.isfinite(objective):
            raise DataError(
                f"gradient descent diverged in epoch {tasks[0].round + 1} with learning_rate="
                f"{self.settings.learning_rate:g}; take a lower one, or solver='als'"
            )
        return Outcome(objective=objective, updates=self.n_ratings)

    def restore(self, arrays):
        """Nothing to restore: shards and blocks hold all that changes."""

    def collect(self, ask):
        """Gather the factors of all shards and blocks."""
        arrays = ask(lambda session, messages: session.snapshot(messages))
        shards = range(len(self.users.starts) - 1)
        users = [[arrays[f"shard-{s}/{name}"] for s in shards] for name in self.saved]
        blocks = (self.opened(self.unpack(b, arrays[f"block-{b}"])) for b in range(self.n_blocks))
        items = zip(*blocks, strict=True)
        self._collected = [[np.concatenate(part) for part in side] for side in (users, items)]

    @property
    def sides(self):
        """The model, in the caller's order of rows."""
        K, scale = self.settings.n_components, self.dtype.type(self.scale)
        factors, bias = [], []
        for (table, own), order in zip(self._collected, (self.users, self.items), strict=True):
            rows = table[order.number, :K]
            rows *= np.sqrt(scale)
            factors.append(rows)
            bias.append(own[order.number, 0] * scale)
        return Sides.of(factors, bias, self.mean)


class Deal:
    """Rows dealt to blocks, the busiest first, in serpentine order; rows of a block get adjacent numbers.

    For each row: its `block`, its `number` among all, and its `place` in the block (int32); `starts` (int64)
    are the first numbers of the blocks, and the end.
    """

    def __init__(self, counts, n_blocks, rng):
        lap, place = np.divmod(np.arange(len(counts)), n_blocks)
        self.block = np.empty(len(counts), np.int32)
        self.block[np.argsort(-counts, kind="stable")] = np.where(lap % 2 == 0, place, n_blocks - 1 - place)
        rows = np.lexsort((rng.random(len(counts)), self.block))
        self.number = np.empty(len(counts), np.int32)
        self.number[rows] = np.arange(len(counts), dtype=np.int32)
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(self.block, minlength=n_blocks))])
        self.place = (self.number - self.starts[self.block]).astype(np.int32)
        self._counts = counts[rows].astype(np.int32)

    def counts_of(self, block):
        """Number of ratings of each row of a block."""
        return self._counts[self.starts[block] : self.starts[block + 1]]
