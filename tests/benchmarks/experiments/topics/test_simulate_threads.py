"""Sweeps on many threads, simulated: cases that can be counted by hand."""

import numpy as np
import pytest

from stradask.benchmarks.experiments.topics.simulate_threads import main, seconds_of_step, seconds_of_sweep


def test_a_step_of_kernels_alone_takes_the_longest_thread():
    assert seconds_of_step([2.0, 2.0, 2.0, 2.0], 0.0, 2) == 4
    assert seconds_of_step([3.0, 1.0, 1.0, 1.0], 0.0, 2) == 3
    assert seconds_of_step([2.0, 2.0, 2.0], 0.0, 64) == 2


def test_python_is_one_after_the_other_on_any_number_of_threads():
    assert seconds_of_step([0.0] * 10, 1.0, 64) == 10
    assert seconds_of_step([1.0] * 10, 1.0, 1) == 20
    assert seconds_of_step([5.0] * 4, 1.0, 64) == 4 + 5  # the last kernel begins after all Python


def test_a_sweep_is_the_sum_of_its_steps():
    tokens = np.array([[1.0, 4.0], [2.0, 3.0]])  # steps: 1 and 3, 4 and 2
    assert seconds_of_sweep(tokens, 1.0, 0.0, 2) == 3 + 4
    assert seconds_of_sweep(tokens, 1.0, 0.5, 1) == pytest.approx(10 + 4 * 0.5)


def test_the_table_has_the_groups_that_a_fit_takes(capsys):
    main(["--tokens", "1e6", "--words", "10000", "--threads", "2", "1000"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1,000,000 tokens of 10,000 words: a fit takes 5 groups"
    assert [int(line.split()[0]) for line in lines[2:]] == [5, 16, 32, 64]
    for line in lines[2:]:
        groups, _, two, most = map(float, line.split())
        assert 1 < two <= 2
        assert most <= groups
