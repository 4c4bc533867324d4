"""The memory that a fit is said to take, against the arrays of states and what an emulated GPU holds."""

import numpy as np
import pytest
from cuda_devices import emulated
from cuda_emulator import EmulatedDevice
from lda_chains import Chain

from stradask.algorithms.topics.blocks.document_rows import PackedLists
from stradask.algorithms.topics.corpus.footprint import footprint
from stradask.algorithms.topics.samplers import light_cuda
from stradask.algorithms.topics.samplers.light_cuda import LightCudaState
from stradask.algorithms.topics.samplers.saber import SaberState
from stradask.cli.arguments import main
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError, DeviceError

SAMPLERS = ["gibbs", "warp", "light", "saber"]


@pytest.fixture(scope="module")
def X():
    return make_lda_corpus(2000, n_features=500, n_components=5, mean_length=60, random_state=0)[0].tocsr()


def _bytes_of(*things):
    """Bytes of the arrays that the things hold, each once."""
    held = [v for thing in things for v in (thing if isinstance(thing, dict) else vars(thing)).values()]
    return sum({id(array): array.nbytes for array in held if isinstance(array, np.ndarray)}.values())


@pytest.mark.parametrize("n_topics", [20, 300])
@pytest.mark.parametrize("name", SAMPLERS)
def test_bytes_of_the_cpu(X, name, n_topics):
    model = (X, n_topics, np.full(n_topics, 0.1), np.full(500, 0.01), 1)
    if name == "saber":
        held = _bytes_of(SaberState(*model, n_groups=2))
    else:
        chain = Chain(*model, sampler=name, n_groups=2)
        documents = [state.documents for state in chain.states]
        parts = (*chain.states, *documents, *chain.blocks, *chain.program.shards)
        held = _bytes_of(*parts, chain.program.words)
    assert footprint(X, n_topics)["cpu"][name] == pytest.approx(held, rel=0.15)


@emulated
@pytest.mark.parametrize(("name", "kind"), [("saber", SaberState), ("light", LightCudaState)])
def test_bytes_of_a_gpu(X, name, kind):
    device = EmulatedDevice()
    device.zone = 0
    sizes = footprint(X, 300, device=device)
    state = kind(X, 300, np.full(300, 0.1), np.full(500, 0.01), 1, device=device)
    held = device.memory - device.free_memory()
    assert 0.8 * sizes["cuda"][name] < held <= sizes["cuda"][name], state
    assert sizes["cuda chunks"] == {"light": 1, "saber": 1}
    scarce = footprint(X, 4, memory=500_000)
    assert scarce["cuda chunks"]["saber"] > 1
    assert scarce["cuda chunks"]["light"] is None
    with pytest.raises(DeviceError, match=r"even in [\d,]+ chunks"):
        footprint(X, 4, memory=1000)


def test_chunks_of_light_are_the_sections_of_a_large_corpus(X, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.topics.samplers.light_cuda.TOKENS_PER_SECTION", 10_000)
    plans = light_cuda.plans_of(*(np.asarray(X.sum(axis=a)).ravel() for a in (1, 0)), 300)
    assert plans[0].n_bytes > 1.5 * plans[1].n_bytes
    for plan, n_chunks in zip(plans, (1, X.sum() // 10_000), strict=True):
        sizes = footprint(X, 300, memory=plan.n_bytes + 2**28)
        assert sizes["cuda"]["light"] == plans[0].n_bytes
        assert sizes["cuda chunks"]["light"] == n_chunks


def test_samplers_that_cannot_hold_a_corpus_are_left_out(X):
    many = footprint(X, 40_000)
    assert set(many["cpu"]) == {"gibbs", "warp", "light"}
    assert set(many["cuda"]) == {"light"}
    assert footprint(X, 70_000)["cpu"]["warp"] > many["cpu"]["warp"]  # topics of four bytes
    long = X[:2].copy()
    long.data[0] = 70_000
    assert set(footprint(long, 2**17)["cpu"]) == {"warp"}
    assert not PackedLists.hold(70_000, 2**17)
    with pytest.raises(DataError, match="no token"):
        footprint(X[:0], 3)


def test_from_the_command_line(capsys):
    command = ["data", "info", "docstrings", "--quiet", "--n-components", "50"]
    assert main([*command, "--memory", "1GB", "--json"]) == 0
    assert '"cuda chunks"' in capsys.readouterr().out
    assert main(command) == 0
    assert "cpu gibbs" in capsys.readouterr().out
    for wrong in (["--memory", "1GB"], ["--n-components", "50", "--memory", "much"]):
        assert main([*command[:4], *wrong]) != 0
        assert "--memory" in capsys.readouterr().err
    assert main([*command, "--memory", "1MB"]) != 0
    assert "chunks" in capsys.readouterr().err
