"""A sweep in which threads take tasks by themselves, against the same tasks one by one."""

from dataclasses import replace

import distributed
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks import program, word_blocks
from stradask.algorithms.topics.samplers import gibbs, gibbs_steps
from stradask.kernels.lda import gibbs_steps as kernels
from stradask.scheduler.program import Program


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(200, 0.1), 4)  # words of very different frequency: few keep a row
    counts = np.stack(
        [rng.multinomial(rng.integers(0, 60), rng.dirichlet(np.ones(4)) @ shares) for _ in range(150)]
    )
    return sparse.csr_array(counts)


def _model(**options):
    given = {"sampler": "gibbs", "n_groups": 5, "max_iter": 25, "random_state": 0, "optimize_priors": True}
    return sd.LatentDirichletAllocation(20, **given | options)


def _fitted(X, **options):
    model = _model(**options).fit(X)
    model.partial_fit(X[:70])  # on top of the counts of the fit
    return model.components_, model.log_likelihood_, model.doc_topic_prior_


@pytest.fixture(scope="module")
def one_by_one(X):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program.TopicProgram, "run_steps", Program.run_steps)
        return _fitted(X)


@pytest.mark.parametrize(("n_jobs", "at_once"), [(1, 2**24), (2, 2**24), (5, 2**24), (3, 100)])
def test_threads_that_take_tasks_give_the_bits_of_tasks_one_by_one(
    X, one_by_one, monkeypatch, n_jobs, at_once
):
    n_calls, run = [], kernels.run_tasks
    monkeypatch.setattr(kernels, "run_tasks", lambda *given: (n_calls.append(1), run(*given))[1])
    monkeypatch.setattr(gibbs_steps, "_TOKENS_AT_ONCE", at_once)
    for found, expected in zip(_fitted(X, n_jobs=n_jobs), one_by_one, strict=True):
        np.testing.assert_array_equal(found, expected)
    n_sweeps = 25 - 1  # the first one fills the blocks, too
    assert len(n_calls) > (4 if at_once == 100 else 1) * n_sweeps


def test_totals_that_are_exchanged_after_several_steps_are_those_of_tasks_one_by_one(X, monkeypatch):
    monkeypatch.setattr(word_blocks, "_MOST_EXCHANGES", 2)
    own = {"n_groups": 6, "max_iter": 5, "optimize_priors": False}  # two exchanges of three steps each
    assert word_blocks.between_exchanges(6) == 3
    model = _model(n_jobs=2, **own).fit(X)
    monkeypatch.setattr(program.TopicProgram, "run_steps", Program.run_steps)
    other = _model(n_jobs=3, **own).fit(X)
    np.testing.assert_array_equal(model.components_, other.components_)
    assert model.word_topic_counts_.sum() == X.sum()


def test_threads_do_not_wait_for_a_task_that_failed(X, monkeypatch):
    run, failed = kernels.run_tasks, []

    def fails(task, at_once, progress, *given):
        if not failed and progress[kernels.DONE] > 3:
            failed.append(1)
            kernels.run_tasks = run
            progress[kernels.TAKEN] += 1  # a task that no thread will do
            raise RuntimeError("lost")
        return run(task, 1, progress, *given)

    monkeypatch.setattr(kernels, "run_tasks", fails)
    with pytest.raises(RuntimeError, match="lost"):
        _model(n_jobs=3).fit(X)
    assert failed


def test_shards_of_other_types_are_swept_one_by_one(X, monkeypatch):
    """The kernel takes addresses: it must not read 8 bytes where a shard has 4, nor what lies apart."""
    may_run, found = gibbs_steps.may_run_steps, []

    def asked(program, states):
        docs = states[1].docs
        odd = [docs.astype(np.int64), np.repeat(docs, 2)[::2], docs]
        answers = [may_run(program, [states[0], replace(states[1], docs=own), *states[2:]]) for own in odd]
        found.append(answers)
        return may_run(program, states)

    monkeypatch.setattr(gibbs, "may_run_steps", asked)
    _model().fit(X)
    assert found
    assert all(answers == [False, False, True] for answers in found)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_workers_that_do_tasks_of_a_step_together_give_the_bits_of_tasks_one_by_one(
    X, one_by_one, monkeypatch, n_threads
):
    asked, together = [], gibbs_steps.tasks_of_a_step

    def noted(program, states, tasks):
        asked.append([(task.shard, task.blocks) for task in tasks])
        assert len({task.step for task in tasks}) == 1
        return together(program, states, tasks)

    monkeypatch.setattr(program, "tasks_of_a_step", noted)
    own = {"n_workers": 2, "threads_per_worker": n_threads, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**own) as cluster, distributed.Client(cluster):
        for found, expected in zip(_fitted(X, engine="dask"), one_by_one, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert max(map(len, asked)) > 1
