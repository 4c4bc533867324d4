"""Model files and checkpoints that name places: nothing connects there, nothing is written there."""

import os
import socket
import threading
import warnings
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.errors import ModelFileError
from stradask.scheduler.stores import store

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(4, size=(12, 5)) + np.eye(12, 5, dtype=int)
X, Y = COUNTS.astype(float), COUNTS @ np.arange(5.0) + RNG.standard_normal(12)
R = sparse.csr_array(X)
ESTIMATORS = [
    cls
    for cls in (getattr(sd, name) for name in sd.__all__)
    if isinstance(cls, type) and hasattr(cls, "_parameter_constraints")
]
PLACES = {"engine", "checkpoint", "memmap_folder", "module"}  # a module is code, which a file must not name


@pytest.fixture
def listener():
    """A server on this machine, and a list of those who connected to it."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:  # closed at the end
                    return
                connections.append(peer)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", connections
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def alter(path, **parameters):
    arrays, header = store.read_npz(path)
    store.write_npz(path, arrays, header | {"parameters": header["parameters"] | parameters})


def fitted():
    return {
        "lda": sd.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(COUNTS),
        "factors": sd.MatrixFactorization(2, max_iter=2, random_state=0).fit(R),
        "lasso": sd.Lasso(0.1, warm_start=True).fit(X, Y),
        "mlp": sd.MLPRegressor((3,), max_iter=2, random_state=0).fit(X, Y),
        "bayes": sd.BayesianLinearRegression(n_samples=20, n_chains=2, random_state=0).fit(X, Y),
    }


def use_again(name, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rounds and draws
        if name in ("lda", "factors"):
            for method in (model.partial_fit, model.fit, model.transform):
                method(COUNTS if name == "lda" else R)
        else:
            model.fit(X, Y)
            model.predict(X)
        if name == "mlp":
            model.set_params(solver="downpour").partial_fit(X, Y)


@pytest.fixture(scope="module")
def models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted()


@pytest.mark.parametrize("name", ["lda", "factors", "lasso", "mlp", "bayes"])
def test_an_altered_engine_is_not_connected_to(tmp_path, models, listener, name):
    address, connections = listener
    models[name].save(tmp_path / "model")
    alter(tmp_path / "model", engine=address)
    with pytest.warns(UserWarning, match="must not decide where to connect or write"):
        model = sd.load(tmp_path / "model")
    assert model.engine == "local"
    use_again(name, model)
    assert not connections


def test_the_listener_hears_who_does_connect(listener):
    address, connections = listener
    host, port = address.removeprefix("tcp://").split(":")
    socket.create_connection((host, int(port))).close()
    for _ in range(100):
        if connections:
            break
        threading.Event().wait(0.02)
    assert len(connections) == 1


@pytest.mark.parametrize("name", ["lda", "factors", "bayes"])
def test_an_altered_checkpoint_is_not_written(tmp_path, models, name):
    models[name].save(tmp_path / "model")
    planted = tmp_path / "planted"
    changes = {"checkpoint": str(planted)} | ({"memmap_folder": str(tmp_path)} if name == "lda" else {})
    alter(tmp_path / "model", **changes)
    with pytest.warns(UserWarning, match="planted") as caught:
        model = sd.load(tmp_path / "model")
    assert [w.filename for w in caught if "planted" in str(w.message)] == [__file__]
    use_again(name, model)
    assert os.listdir(tmp_path) == ["model"]


def test_places_are_set_on_purpose(tmp_path, models):
    models["lda"].save(tmp_path / "model")
    alter(tmp_path / "model", engine="tcp://elsewhere:1", checkpoint="planted", memmap_folder="planted")
    own = {"engine": "dask", "checkpoint": tmp_path / "states", "memmap_folder": str(tmp_path)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sd.load(tmp_path / "model", **own)
        assert {name: getattr(model, name) for name in own} == own
        model = sd.load(tmp_path / "model", engine="local", checkpoint=None, memmap_folder=None)
        assert (model.engine, model.checkpoint, model.memmap_folder) == ("local", None, None)
    with pytest.warns(UserWarning, match="sets checkpoint='planted', memmap_folder='planted'"):
        sd.load(tmp_path / "model", engine="local")
    with pytest.raises(ValueError, match="engine"):
        sd.load(tmp_path / "model", **(own | {"engine": 3}))


def test_other_keywords_are_refused(tmp_path, models):
    models["lasso"].save(tmp_path / "model")
    with pytest.raises(TypeError, match=r"checkpoint='x', but for a Lasso it takes only path, engine;"):
        sd.load(tmp_path / "model", checkpoint="x")
    with pytest.raises(TypeError, match="set_params"):
        sd.load(tmp_path / "model", alpha=3)
    alter(tmp_path / "model", engine=["tcp://elsewhere:1"])
    with pytest.raises(ModelFileError, match="must be text"):
        sd.load(tmp_path / "model")


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_what_is_saved_names_no_place_and_loads_without_a_word(tmp_path, cls):
    own = dict.fromkeys(PLACES & set(cls._get_param_names()), "tcp://secret.example:1")
    needed = {"formula": "y ~ x"} if cls is sd.BayesianGLM else {}
    cls(**own, **needed).save(tmp_path / "model")
    assert b"secret" not in (tmp_path / "model").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sd.load(tmp_path / "model")
    assert model.get_params() == cls(**needed).get_params()


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_each_parameter_is_a_place_or_a_plain_value(cls):
    """A new parameter of free text is a place, and is listed here, or is declared harmless, with a reason."""
    assert cls._parameter_constraints.keys() >= set(cls._get_param_names())
    places = PLACES | (
        {"device"} if cls.__name__.startswith("Torch") else set()
    )  # any device, by torch's name
    if cls is sd.BayesianGLM:
        places |= {"priors"}  # densities are objects, which a file does not hold
    assert set(cls._place_parameters()) == places & set(cls._get_param_names())


def test_a_new_parameter_of_free_text_is_taken_for_a_place():
    class Later(sd.Lasso):
        def __init__(self, cache=None, log=None, level=1, unchecked=None):
            pass

        _parameter_constraints: ClassVar[dict] = {"cache": [None, str], "log": [os.PathLike], "level": [int]}

    assert Later._place_parameters() == ("cache", "log", "unchecked")


# Checkpoints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ["Checkpoint", "SharedCheckpoint"])
def test_links_planted_in_a_checkpoint_are_not_followed(tmp_path, cls):
    pytest.importorskip("fsspec")
    from stradask.scheduler.stores.shared_store import open_checkpoint

    folder, victim = tmp_path / "fit", tmp_path / "victim"
    folder.mkdir()
    victim.write_bytes(b"mine")
    checkpoint = open_checkpoint(folder if cls == "Checkpoint" else f"file://{folder}")
    for name in ("round-000000001.npz", "round-000000002.npz", "probe"):
        (folder / name).symlink_to(victim)
    if cls == "SharedCheckpoint":
        checkpoint.leave_word()
    checkpoint.save(1, {"block-0": np.ones(2)}, {}, {"a": 1})
    if cls == "Checkpoint":
        content = (folder / "manifest.json").read_bytes()
        (folder / "manifest.json").unlink()
        (tmp_path / "manifest").write_bytes(content)
        (folder / "manifest.json").symlink_to(tmp_path / "manifest")
    checkpoint.save(2, {"block-0": np.ones(2)}, {}, {"a": 1})
    assert victim.read_bytes() == b"mine"
    if cls == "Checkpoint":
        assert (tmp_path / "manifest").read_bytes() == content
    assert checkpoint.load({"a": 1})[0] == 2


@pytest.mark.parametrize(
    "names",
    [
        {"folder": "../outside"},
        {"folder": "/outside"},
        {"sizes": {"../../outside.npz": 3}},
        {"sizes": {"shard-0/../../outside.npz": 3}},
    ],
)
def test_a_manifest_names_no_place_outside_its_folder(tmp_path, names):
    pytest.importorskip("fsspec")
    import json

    from stradask.scheduler.stores.shared_store import SharedCheckpoint

    checkpoint = SharedCheckpoint(f"file://{tmp_path}/fit")
    checkpoint.save(1, {"block-0": np.ones(2)}, {}, {"a": 1})
    path = tmp_path / "fit" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["states"]["1"] |= names
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelFileError, match="damaged"):
        checkpoint.load({"a": 1})


def test_rounds_of_a_manifest_are_numbers(tmp_path):
    checkpoint = store.Checkpoint(tmp_path / "fit")
    checkpoint.save(1, {"a": np.ones(2)}, {}, {"a": 1})
    path = tmp_path / "fit" / "manifest.json"
    path.write_text(path.read_text().replace("[\n  1\n ]", '["../outside"]'))
    assert "outside" in path.read_text()
    with pytest.raises(ModelFileError, match="damaged"):
        checkpoint.load({"a": 1})
