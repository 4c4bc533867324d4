"""The model of a rotation against what can be said in closed form."""

import numpy as np
import pytest

from stradask.benchmarks.experiments.topics.simulate_rotation import dealt, losses_to_heavy_words, main, table
from stradask.benchmarks.scheduling.rotation_model import Machines, simulate


def test_a_word_of_two_fifths_of_the_corpus_bounds_a_sweep_from_below():
    """It is met by one shard at a time; the others go on meanwhile, and wait at the end of a step."""
    shares = np.array([0.4, *[0.6 / 15] * 15])
    tokens = np.outer(np.full(16, 1 / 16), shares) * 1e8
    for n_workers in (2, 4, 16):
        machines = Machines(n_workers, rate=1e7, latency=0, overhead=0)
        sweep = simulate(tokens, np.zeros(16), 0, machines)
        assert max(4.0, 10 / n_workers) <= sweep.seconds <= 4.0 + 6 / n_workers


def test_a_heavy_word_costs_what_its_row_must_take_and_no_more(capsys):
    frequency = np.array([0.1, *[0.9 / 9990] * 9990])
    for n_workers, lost, least in losses_to_heavy_words(frequency, [2, 4, 8, 16, 32]):
        assert least == pytest.approx(max(0.1 * n_workers - 1, 0))
        assert lost == pytest.approx(least, abs=4e-3)  # of words that are not infinitely small
    for _, lost, least in losses_to_heavy_words(frequency, [2, 4, 8], 2):
        assert least == 0
        assert lost < 2e-3
    even = losses_to_heavy_words(np.ones(6400), [2, 16, 64], 2)
    assert [lost for _, lost, _ in even] == pytest.approx([0, 0, 0], abs=1e-9)
    main(["--zipf", "0", "--workers", "16", "64"])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "the most frequent word has 8.3% of the tokens"
    assert [line.split()[:3] for line in out[2:]] == [["16", "32%", "32%"], ["64", "429%", "429%"]]


def test_one_worker_samples_all_the_time():
    sweep = simulate(np.full((4, 4), 1000.0), np.zeros(4), 0, Machines(1, 1, 1e4, 1, 1, 0))
    assert sweep.seconds == pytest.approx(16_000 / 1e4)
    assert sweep.waiting == pytest.approx(0)
    assert sweep.n_bytes == 0


def test_even_work_divides_and_overheads_add_up():
    sweep = simulate(np.full((8, 8), 1000.0), np.zeros(8), 0, Machines(2, 2, 1e4, 0, 1e9, 0.01))
    assert sweep.seconds == pytest.approx(8 * (2 * 0.1 + 0.01))
    assert sweep.waiting == pytest.approx(4 * sweep.seconds - 6.4)


@pytest.mark.parametrize(("size", "per_step"), [(1e6, 0.4), (2.9e8, 0.4), (5e8, 0.1 + 0.001 + 0.5)])
def test_a_block_travels_while_the_other_shards_are_worked_on(size, per_step):
    """Of four shards of 0.1 s the first one's block goes away, in 0.001 s and at 1 GB/s."""
    machines = Machines(2, 1, 1e4, 0.001, 1e9, 0)
    sweep = simulate(np.full((8, 8), 1000.0), np.full(8, size), 0, machines)
    assert sweep.seconds == pytest.approx(8 * per_step)
    assert sweep.n_bytes == pytest.approx(2 * 8 * size)


def test_the_slowest_worker_decides_each_step():
    tokens = np.zeros((4, 4))
    for shard in range(4):
        tokens[shard, (shard + 1) % 4] = 1000 * (shard + 1)  # all in step 1
    sweep = simulate(tokens, np.zeros(4), 0, Machines(4, 1, 1e3, 0, 1e9, 0))
    assert sweep.seconds == pytest.approx(4)


def test_totals_go_up_from_shards_and_down_to_workers():
    sweep = simulate(np.zeros((4, 4)), np.zeros(4), 8000, Machines(2, 1, 1e3, 0, 8000, 0))
    assert sweep.n_bytes == 4 * 8000 * (4 + 2)
    assert sweep.seconds == pytest.approx(4 * (2 + 1))


def test_tokens_dealt():
    tokens = dealt(1e6, 50, spread=0.1)
    assert tokens.sum() == pytest.approx(1e6)
    assert np.std(tokens) / np.mean(tokens) == pytest.approx(0.1, rel=0.1)


def test_more_workers_are_faster_until_overheads_are_all_there_is(capsys):
    rows = table(738e6, 60e6, 1000, Machines(1), [1, 2, 8, 64])
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds, reverse=True)
    assert rows[0]["efficiency"] > 0.99 > rows[-1]["efficiency"]
    main(["--workers", "1", "2"])
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3
    assert out[2].split()[0] == "2"


def test_bad_input():
    with pytest.raises(ValueError, match="tokens must be square"):
        simulate(np.ones((2, 3)), np.ones(2), 0, Machines(1))
    with pytest.raises(ValueError, match="3 workers have nothing to do with 2 shards"):
        simulate(np.ones((2, 2)), np.ones(2), 0, Machines(3))
