"""Checkpoints that were cut, flipped, changed or taken from another fit.

A fit goes on from what is whole, to the model of a fit that never stopped; or it says what is wrong.
"""

import functools
import json
import shutil
import warnings

import numpy as np
import pytest
from scipy import sparse
from unsound import other_files, some

import stradask as sd
from stradask.algorithms.bayes.combine.combiners import CombinationRefused
from stradask.algorithms.optimize.downpour import minimize_downpour
from stradask.benchmarks.scheduling.group_blocks import GroupBlocks
from stradask.errors import CheckpointMismatch, DataError, ModelFileError
from stradask.scheduler import DynamicSchedule, run
from stradask.scheduler.stores import store

N, D = 30, 5
_RNG = np.random.default_rng(0)
COUNTS = _RNG.integers(4, size=(N, D))
COUNTS[:, 0] += 1
X = COUNTS.astype(np.float64)
Y = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + _RNG.standard_normal(N)
R = sparse.csr_array(X)
HALVES = [(X[::2], Y[::2]), (X[1::2], Y[1::2])]


def least_squares(portion, w):
    A, b = portion
    residual = A @ w - b
    return 0.5 * float(residual @ residual), A.T @ residual


def topics(folder, rounds, seed, **options):
    model = sd.LatentDirichletAllocation(3, max_iter=rounds, checkpoint=folder, random_state=seed, **options)
    return model.fit(COUNTS).components_


def factors(folder, rounds, seed, **options):
    options |= {"random_state": seed, "tol": 0.0}  # R has nothing beyond biases, which is found in few rounds
    model = sd.MatrixFactorization(2, max_iter=rounds, checkpoint=folder, **options)
    return model.fit(R).item_factors_


def minimum(folder, rounds, seed):
    every = {"checkpoint": folder, "checkpoint_every": 1, "deterministic": True}
    return sd.minimize(least_squares, np.full(D, float(seed)), HALVES, max_iter=rounds, tol=0.0, **every).x


def downpour(folder, rounds, seed):
    """All of its passes, whatever the rounds: what is there is gone on from, and its end as well."""
    options = {"max_epochs": 3, "batch_size": 5, "warm_steps": 2, "checkpoint_every": 2}
    return minimize_downpour(
        least_squares, np.zeros(D), HALVES, checkpoint=folder, random_state=seed, **options
    ).x


def lasso(folder, rounds, seed, **options):
    program = GroupBlocks(X, Y, 0.5, 1, n_shards=1)
    schedule = DynamicSchedule(size=2, random_state=seed, **options)
    run(
        program,
        schedule,
        max_rounds=rounds,
        checkpoint=folder,
        checkpoint_every=1,
        fingerprint={"seed": seed},
    )
    return program.coef


ROUNDS = {
    "gibbs": topics,
    "warp": functools.partial(topics, sampler="warp"),
    "light": functools.partial(topics, sampler="light"),
    "priors": functools.partial(topics, optimize_priors=True),
    "factors": factors,
    "implicit": functools.partial(factors, implicit=True),
    "descent": lambda folder, rounds, seed: factors(folder, 6, seed, solver="sgd"),
    "minimize": minimum,
    "downpour": downpour,
    "lasso": lasso,
    "lasso, planned ahead": functools.partial(lasso, lookahead=1),
}


def fitted(name, folder, rounds, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rounds, and of states that are lost
        return ROUNDS[name](folder, rounds, seed)


def contents(folder):
    return {file: file.read_bytes() for file in sorted(folder.iterdir())}


def laid(folder, files):
    """Make the folder hold these files and no others."""
    shutil.rmtree(folder)
    folder.mkdir()
    for file, content in files.items():
        file.write_bytes(content)


# States with sound checksums and unsound content ----------------------------------------------------------


def check_changed_states(name, share, folder):
    fitted(name, folder, 3)
    state = max(folder.glob("round-*.npz"))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    sound = contents(folder)
    arrays, header = store.read_npz(state)
    manifest["rounds"] = [int(state.stem.removeprefix("round-"))]
    refused, cases = 0, some(other_files(arrays, header["header"]), share, len(name))
    for what, others, inner in cases:
        laid(folder, sound)
        store.write_npz(state, others, header | {"header": inner})
        (folder / "manifest.json").write_text(json.dumps(manifest))
        try:
            fitted(name, folder, 5)
        except (ModelFileError, CheckpointMismatch, DataError):
            refused += 1
        except Exception as error:
            error.add_note(what)
            raise
    assert refused
    return len(cases)


# Of the only array of Downpour, few changes make no table.
SHARES = {"downpour": 4}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_changed_state_is_refused_or_gone_on_from(tmp_path, quick_disk, name):
    assert check_changed_states(name, SHARES.get(name, 24), tmp_path / "c") > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_a_changed_state_is_refused_or_gone_on_from_at_length(tmp_path, quick_disk, name):
    assert check_changed_states(name, 1, tmp_path / "c") > 10


@pytest.mark.parametrize("plan", [[], {}, [[]]])
def test_a_plan_that_does_nothing_is_refused(tmp_path, plan):
    fitted("lasso, planned ahead", tmp_path, 3)
    state = max(tmp_path.glob("round-*.npz"))
    arrays, header = store.read_npz(state)
    assert header["header"]["plan"]
    store.write_npz(state, arrays, header | {"header": header["header"] | {"plan": plan}})
    with pytest.raises(ModelFileError, match="does nothing"):
        fitted("lasso, planned ahead", tmp_path, 5)


def test_a_plan_of_single_blocks_is_refused_where_they_come_in_sets(tmp_path):
    fitted("lasso, planned ahead", tmp_path, 3)
    state = max(tmp_path.glob("round-*.npz"))
    arrays, header = store.read_npz(state)
    ((shard, _),) = header["header"]["plan"][0]
    store.write_npz(state, arrays, header | {"header": header["header"] | {"plan": [[[shard, 0]]]}})
    with pytest.raises(ModelFileError, match="of its schedule's form"):
        fitted("lasso, planned ahead", tmp_path, 5)


def test_a_table_without_cells_is_refused(tmp_path):
    fitted("downpour", tmp_path, 3)
    state = max(tmp_path.glob("round-*.npz"))
    store.write_npz(state, {}, store.read_npz(state)[1])
    with pytest.raises(ModelFileError, match="cells are missing, but the table has float64"):
        fitted("downpour", tmp_path, 3)


# Files cut, flipped, and of another fit -------------------------------------------------------------------


def damaged(content, dice):
    """A file cut somewhere, with a bit flipped, or with bytes of its own elsewhere."""
    kind, at = dice.integers(3), int(dice.integers(len(content)))
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + bytes([content[at] ^ (1 << int(dice.integers(8)))]) + content[at + 1 :]
    return content[:at] + content[: len(content) // 2] + content[at:]


def check_damage(name, times, folder):
    """Count how often the fit went on, from the newest state, from the one before, or not at all."""
    expected = fitted(name, folder.with_name("whole"), 6)
    fitted(name, folder, 4)
    fitted(name, folder, 5)
    sound, other = contents(folder), folder.with_name("other")
    assert len(sound) == 3  # two states and the manifest
    fitted(name, other, 4, seed=1)
    dice, went_on = np.random.default_rng(len(name)), 0
    newest = max(folder.glob("round-*.npz"))
    for n in range(times):
        laid(folder, sound)
        file = [newest, *sound][n % (len(sound) + 1)]
        if n % 4 == 3 and (other / file.name).exists():
            file.write_bytes((other / file.name).read_bytes())
        else:
            file.write_bytes(damaged(sound[file], dice))
        try:
            found = fitted(name, folder, 6)
        except (ModelFileError, CheckpointMismatch):
            continue
        np.testing.assert_array_equal(found, expected)
        went_on += 1
    return went_on


@pytest.mark.parametrize("name", ["gibbs", "minimize", "downpour", "lasso"])
def test_a_damaged_folder_gives_the_model_of_a_fit_that_never_stopped(tmp_path, quick_disk, name):
    assert check_damage(name, 4, tmp_path / "c") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_a_damaged_folder_gives_the_model_of_a_fit_that_never_stopped_at_length(tmp_path, quick_disk, name):
    assert check_damage(name, 200, tmp_path / "c") > 100


# Chunks of chains -----------------------------------------------------------------------------------------


def normal(q, x):
    return -0.5 * float(((x - q) ** 2).sum())


def regression(folder, seed=0, **options):
    settings = {"n_samples": 200, "n_warmup": 20, "n_chains": 1, "n_jobs": 1} | options
    model = sd.BayesianLogisticRegression(checkpoint=folder, random_state=seed, **settings)
    return model.fit(X[:, :2], Y > 1).posterior_.draws


CHAINS = {
    "nuts": functools.partial(regression, sampler="nuts"),
    "random walk": functools.partial(regression, sampler="random_walk"),
    "shards": functools.partial(regression, sampler="split_hmc", n_shards=2, combine="score"),
    "any density": lambda folder, seed=0: (
        sd.sample(
            *(normal, None, Y, [0.0]),
            **{"sampler": "slice", "n_samples": 200, "n_warmup": 20, "n_chains": 1, "n_jobs": 1},
            checkpoint=folder,
            random_state=seed,
        ).draws
    ),
}


def drawn(name, folder, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        return CHAINS[name](folder, seed)


def check_chunks(name, share, folder):
    """Each chunk's file changed, and the ones after it gone, so that the chain goes on from it."""
    expected = drawn(name, folder)
    sound, n_cases = contents(folder), 0
    files = [file for file in sound if file.name.startswith("shard-0-chain-0-chunk-")]
    assert len(files) == 3
    for number, file in enumerate(files):
        arrays, header = store.read_npz(file)
        kept = {other: content for other, content in sound.items() if other not in files[number:]}
        for what, others, other_header in some(other_files(arrays, header), share, len(name) + number):
            laid(folder, kept)
            store.write_npz(file, others, other_header)
            n_cases += 1
            try:
                found = drawn(name, folder)
            except CombinationRefused:  # of a draw far off, in words
                assert name == "shards", what
                assert what.startswith("arrays/"), what
                continue
            except Exception as error:
                error.add_note(f"{file.name}: {what}")
                raise
            assert found.shape == expected.shape
            assert np.isfinite(found).all(), what
    return n_cases


@pytest.mark.parametrize("name", CHAINS)
def test_a_changed_chunk_is_made_anew_or_gone_on_from(tmp_path, quick_disk, name):
    assert check_chunks(name, 50, tmp_path / "c") > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_a_changed_chunk_is_made_anew_or_gone_on_from_at_length(tmp_path, quick_disk, name):
    assert check_chunks(name, 1, tmp_path / "c") > 200


@pytest.mark.parametrize("part", ["state/z", "state/A", "state/tuning", "state/draw", "arrays/draws"])
def test_a_chunk_of_another_form_is_made_anew(tmp_path, quick_disk, part):
    expected = drawn("nuts", tmp_path)
    (middle,) = tmp_path.glob("*-chunk-1-*")
    (last,) = tmp_path.glob("*-chunk-2-*")
    last.unlink()
    arrays, header = store.read_npz(middle)
    array = arrays[part]
    other = array[..., :-1] if array.ndim else array + 1
    store.write_npz(middle, arrays | {part: other}, header)
    np.testing.assert_array_equal(drawn("nuts", tmp_path), expected)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("part", ["z", "gz", "logp"])
@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_a_chain_goes_on_only_from_where_the_density_is_what_its_file_says(
    tmp_path, quick_disk, name, part, value
):
    expected = drawn(name, tmp_path)
    (*_, first) = sorted(tmp_path.glob("shard-0-*-chunk-0-*"))
    for later in tmp_path.glob("shard-0-*-chunk-[12]-*"):
        later.unlink()
    arrays, header = store.read_npz(first)
    other = np.array(arrays[f"state/{part}"])
    other.reshape(-1)[-1] = value
    store.write_npz(first, arrays | {f"state/{part}": other}, header)
    np.testing.assert_array_equal(drawn(name, tmp_path), expected)


@pytest.mark.parametrize("name", CHAINS)
def test_damaged_chunks_are_made_anew(tmp_path, quick_disk, name):
    expected = drawn(name, tmp_path / "c")
    sound, dice = contents(tmp_path / "c"), np.random.default_rng(0)
    drawn(name, tmp_path / "other", seed=1)
    others = {file.name.rsplit("-", 1)[0]: file for file in (tmp_path / "other").iterdir()}
    for n, file in enumerate(sound):
        laid(tmp_path / "c", sound)
        file.write_bytes(damaged(sound[file], dice))
        np.testing.assert_array_equal(drawn(name, tmp_path / "c"), expected)
        if n < 3:
            file.write_bytes(others[file.name.rsplit("-", 1)[0]].read_bytes())
            np.testing.assert_array_equal(drawn(name, tmp_path / "c"), expected)
