"""A program is handed what its shards hold, also after a loss."""

import numpy as np
from engine_programs import EveryBlock, LeastSquares

from stradask.errors import WorkerLost
from stradask.scheduler.engine import run
from stradask.scheduler.sessions.local import LocalSession


class Collecting(LeastSquares):
    """Keeps what it was handed."""

    held = None

    def collect(self, ask):
        self.held = ask(lambda session, messages: session.snapshot(messages))


def test_a_program_is_handed_what_its_shards_hold():
    """At the end, and before each snapshot of a callback; one that does not ask is not."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    program, seen = Collecting(X, y, 3), []

    def look(info):
        info.snapshot()
        seen.append(program.held)

    run(program, EveryBlock(4, 3), max_rounds=5, callback=look, snapshot=lambda history: None)
    assert len(seen) == 5
    for held in (seen[-1], program.held):
        assert held.keys() == {f"shard-{s}/residual" for s in range(3)}
        for s in range(3):
            np.testing.assert_allclose(held[f"shard-{s}/residual"], y[s::3] - X[s::3] @ program.coef)
    assert not np.array_equal(seen[0]["shard-0/residual"], program.held["shard-0/residual"])


def test_what_shards_hold_is_fetched_again_after_a_loss():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    whole, program = Collecting(X, y, 3), Collecting(X, y, 3)
    run(whole, EveryBlock(4, 3), max_rounds=6)

    class Losing(LocalSession):
        """Loses its shards when they are first asked for: after the last round."""

        remote, asked = True, 0

        def snapshot(self, messages):
            self.asked += 1
            if self.asked == 1:
                self.states = None
                raise WorkerLost("gone")
            return super().snapshot(messages)

    done = run(program, EveryBlock(4, 3), max_rounds=6, engine=Losing())
    assert done.n_recoveries == 1
    for name, array in whole.held.items():
        np.testing.assert_array_equal(array, program.held[name])
