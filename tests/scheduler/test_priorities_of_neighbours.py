"""Priorities of any blocks, figures of a program's own, and the page on graphs."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from stradask.errors import DataError
from stradask.scheduler import DynamicSchedule, Outcome, Program, StaticSchedule, run
from stradask.scheduler.schedules.schedule import events_of

PAGE = (Path(__file__).parents[2] / "docs" / "graph-programs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
OUTPUT = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def names():
    names: dict = {"printed": []}
    for block in BLOCKS[:-1]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "graph-programs.md", "exec"), names)
        names["printed"].append(out.getvalue())
    return names


def test_the_page_prints_what_it_says(names):
    assert names["printed"] == OUTPUT[:-1]


@pytest.mark.cluster
def test_the_cluster_gives_the_same_bits(capsys, names):
    exec(compile(BLOCKS[-1], "graph-programs.md", "exec"), names)
    assert capsys.readouterr().out.endswith(OUTPUT[-1])


@pytest.mark.cluster
def test_the_markov_field_on_a_cluster(names):
    from distributed import Client, LocalCluster

    schedule = DynamicSchedule(size=4, eta=0.1, random_state=0)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        remote = names["MarkovField"](names["unary"], names["edges"], names["pair"], 2)
        stop = lambda history: history.figures["stale"] < 1e-10  # noqa: E731
        run(remote, schedule, max_rounds=2000, stop=stop, engine="dask")
    assert np.array_equal(remote.messages, names["field"].messages)


def test_pagerank_is_the_stationary_distribution_of_the_surfer(names):
    """The leading eigenvector of Google's matrix, with pages without links that link to all."""
    rng = np.random.default_rng(1)
    links = (rng.random((30, 30)) < 0.1).astype(float)
    links[3] = 0
    surfer = np.where(
        links.sum(1, keepdims=True) > 0, links / np.maximum(links.sum(1, keepdims=True), 1), 1 / 30
    )
    values, vectors = np.linalg.eig(0.85 * surfer.T + 0.15 / 30)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    pages = names["PageRank"](sparse.csr_array(links), 3)
    stop = lambda history: history.figures["left"] < 1e-13  # noqa: E731
    run(pages, DynamicSchedule(size=4, random_state=0), max_rounds=5000, stop=stop)
    np.testing.assert_allclose(pages.rank / pages.rank.sum(), stationary / stationary.sum(), atol=1e-12)


def test_checkpoints_keep_priorities_of_neighbours(names, tmp_path):
    schedule = DynamicSchedule(size=16, eta=0.1, random_state=0)
    whole, parts = (names["PageRank"](names["links"], 2) for _ in range(2))
    run(whole, schedule, max_rounds=200)
    for rounds in (120, 200):
        options = {"checkpoint": tmp_path / "state", "checkpoint_every": 60}
        result = run(parts, schedule, max_rounds=rounds, **options)
    assert np.array_equal(parts.rank, whole.rank)
    assert result.history.figures == {"left": whole.residual.sum()}


class Told(Program):
    """Gives the priorities and figures that a function makes."""

    def __init__(self, n_blocks, tell, figures=None):
        self.n_blocks, self.tell, self.figures, self.seen = n_blocks, tell, figures, []

    def update(self, state, task):
        return None

    def aggregate(self, tasks, partials):
        blocks = np.atleast_1d(tasks[0].blocks)
        self.seen.append(blocks.tolist())
        return Outcome(priorities=self.tell(blocks), figures=self.figures and self.figures(len(self.seen)))

    def restore(self, arrays):
        pass


def test_neighbours_are_drawn_by_the_priorities_that_they_were_given():
    # Every block hands its priority to the next one; the first pass over all blocks comes before.
    program = Told(8, lambda blocks: (np.array([(blocks[0] + 1) % 8]), np.array([2.0])))
    run(program, DynamicSchedule(size=1, eta=1e-9, random_state=0), max_rounds=40)
    seen = np.ravel(program.seen)
    assert sorted(seen[:8]) == list(range(8))
    state = DynamicSchedule(8, size=1).start()
    schedule = DynamicSchedule(8, size=1, random_state=0)
    schedule.observe(state, 0, np.arange(8), np.zeros(8))
    schedule.prioritise(state, np.array([5]), np.array([3.0]))
    assert state["change"].tolist() == [0, 0, 0, 0, 0, 3, 0, 0]
    assert state["tree"][1] == 3


def test_blocks_that_were_never_updated_stay_first():
    schedule = DynamicSchedule(4, size=1, eta=1e-9, random_state=0)
    state = schedule.start()
    schedule.prioritise(state, np.array([0, 1]), np.array([0.0, 9.0]))
    assert state["fresh"].all()
    assert state["tree"][4:].tolist() == [1, 1, 1, 1]
    schedule.observe(state, 0, np.arange(4), np.array([0, 0, 0, 1.0]))
    schedule.prioritise(state, np.array([1]), np.array([9.0]))
    assert state["tree"][4:].tolist() == [0, 9, 0, 1]


def test_blocks_of_the_round_that_are_not_named_have_no_priority():
    program = Told(6, lambda blocks: None)
    blocks, own, (others, values) = events_of(
        program, np.array([4, 1]), (np.array([5, 1, 0]), [0.5, 0.1, 0.0])
    )
    assert (blocks.tolist(), own.tolist()) == ([1, 4], [0.1, 0.0])
    assert (others.tolist(), values.tolist()) == ([0, 5], [0.0, 0.5])
    blocks, own, (others, _) = events_of(program, np.array([4, 1]), (np.array([]), np.array([])))
    assert (own.tolist(), others.tolist()) == ([0.0, 0.0], [])
    # Two numbers for two blocks, as before, may be a tuple.
    assert events_of(program, np.array([4, 1]), (0.5, 0.1))[1].tolist() == [0.5, 0.1]


@pytest.mark.parametrize(
    ("priorities", "said"),
    [
        (([0, 1], [1.0]), "there must be a value for each id"),
        (([0.5], [1.0]), "there must be a value for each id"),
        (([0, 9], [1.0, 1.0]), "gives priorities of blocks 0 to 9, but has blocks 0 to 3"),
        (([-1], [1.0]), "gives priorities of blocks -1 to -1"),
        (([2, 1, 2], [1.0, 1.0, 1.0]), "gives two priorities of block 2"),
        (([0, 1], [1.0, np.nan]), "priorities must be finite and not negative"),
        (([0, 1], [1.0, -1.0]), "priorities must be finite and not negative"),
    ],
)
def test_priorities_that_cannot_be(priorities, said):
    program = Told(4, lambda blocks: (np.array(priorities[0]), np.array(priorities[1])))
    with pytest.raises(DataError, match=said):
        run(program, DynamicSchedule(size=1, random_state=0), max_rounds=1)


def test_stop_and_callbacks_see_the_figures():
    program = Told(4, lambda blocks: None, lambda n: {"left": 1 / n})
    heard = []
    result = run(
        program,
        StaticSchedule(size=1),
        max_rounds=100,
        stop=lambda history: "small" if history.figures["left"] <= 0.25 else False,
        callback=lambda info: heard.append(dict(info.history.figures)),
    )
    assert (result.reason, result.n_rounds) == ("small", 4)
    assert heard == [{"left": 1 / n} for n in (1, 2, 3, 4)]
    assert result.history.figures == {"left": 0.25}
    silent = run(Told(4, lambda blocks: None), StaticSchedule(size=1), max_rounds=2)
    assert silent.history.figures == {}
    with pytest.raises(DataError, match="figures that are not a dict of numbers"):
        run(Told(4, lambda blocks: None, lambda n: {"left": "much"}), StaticSchedule(size=1), max_rounds=1)
