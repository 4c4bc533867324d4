"""The program of WarpLDA as a peer: what it is given, what is read from it, what is said without it."""

import stat
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from stradask.benchmarks.objectives.lda import Objective
from stradask.benchmarks.runs.environments import PeerUnavailable, interpreter_for
from stradask.benchmarks.runs.worker import Stopwatch, load_solver
from stradask.benchmarks.solvers import find_solvers

# Reads both bigraphs, sees that they are one corpus, and gives each token the topic "word modulo K".
PROGRAM = """#!{python}
import sys
import numpy as np
prefix, n_topics, alpha, beta, sweeps, out = sys.argv[1:]
read = lambda name, dtype: np.fromfile(prefix + name, dtype)
ends, words = read(".u.idx", np.uint64), read(".u.lnk", np.uint32)
word_ends, documents = read(".v.idx", np.uint64), read(".v.lnk", np.uint32)
own = np.repeat(np.arange(len(ends) - 1), np.diff(ends).astype(int))
theirs = np.repeat(np.arange(len(word_ends) - 1), np.diff(word_ends).astype(int))
assert sorted(zip(own, words)) == sorted(zip(documents, theirs))
with open(out, "w") as file:
    for first, last in zip(ends[:-1].astype(int), ends[1:].astype(int)):
        tokens = " ".join(f"{{w}}:{{w % int(n_topics)}}" for w in words[first:last])
        file.write(f"{{last - first}} {{tokens}}\\n")
for sweep in range(int(sweeps)):
    print(f"Iteration {{sweep}}, 0.25 s, 1.0 Mtoken/s")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "warplda"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("WARPLDA", str(path))


@pytest.mark.slow
def test_the_states_of_the_program_can_be_judged(program):
    parameters = {
        "n_components": 7,
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
        "optimize_priors": False,
    }
    objective = Objective("synthetic", seed=0, parameters=parameters)
    solver = load_solver(find_solvers("lda")["warplda"].path)(SimpleNamespace(**parameters, n_jobs=1))
    solver.set_data(SimpleNamespace(**objective.arrays()))
    watch = Stopwatch([0.6], folder=None)
    solver.run(watch)
    assert watch.seconds >= 0.75  # three sweeps: the program's own clock, on which two take half a second
    assert watch.work == 3 * objective.train.sum()
    judged = objective.evaluate(solver.snapshot())  # refuses counts that are not those of the corpus
    assert np.isfinite(judged["held_out_perplexity"])
    assert np.isfinite(judged["joint_log_likelihood"])


def test_without_the_program_the_peer_is_left_out_and_says_what_to_set(monkeypatch):
    monkeypatch.delenv("WARPLDA", raising=False)
    peer = find_solvers("lda")["warplda"]
    assert not peer.is_installed()
    with pytest.raises(PeerUnavailable, match="set WARPLDA to its path"):
        interpreter_for(peer, None)
