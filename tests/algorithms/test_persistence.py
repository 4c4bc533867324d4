"""Model files: what comes back, and what damaged, foreign and hostile files do (nothing)."""

import io
import json
import math
import pickle
import sys
import zipfile
from numbers import Real

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils._param_validation import Interval

import stradask
from stradask.algorithms._base import Estimator
from stradask.errors import DataError, ModelFileError


class Tiny(Estimator):
    _harmless_text = frozenset({"extra"})
    _parameter_constraints = {  # noqa: RUF012
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "extra": "no_validation",
        "random_state": ["random_state"],
    }
    _state_attributes = ("_counts",)

    def __init__(self, alpha=1.0, extra=None, random_state=None):
        self.alpha = alpha
        self.extra = extra
        self.random_state = random_state

    def fit(self):
        self._counts = sparse.csr_array(np.eye(3, dtype=np.int32))
        self._scratch = object()  # belongs to no file
        self.components_ = np.arange(6.0).reshape(2, 3)
        self.n_iter_ = 5
        return self

    @property
    def total_(self):
        return self.components_.sum()

    def _check_state(self):
        if hasattr(self, "components_") and self.components_.ndim != 2:
            raise DataError("components_ must have two dimensions")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(stradask, "Tiny", Tiny, raising=False)
    monkeypatch.setitem(stradask._PLACES, "Tiny", ".nowhere")


def same(a, b):
    """Whether two values are equal, in type too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    if sparse.issparse(a):
        return a.shape == b.shape and all(
            same(getattr(a, p), getattr(b, p)) for p in ("data", "indices", "indptr")
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def state(model):
    return {name: value for name, value in vars(model).items() if name != "_scratch"}


def test_same_is_a_judge_that_can_say_no():
    assert same({"a": [np.eye(2), 1.5]}, {"a": [np.eye(2), 1.5]})
    different = [
        (1, True),
        (1, 1.0),
        ((1,), [1]),
        ({"a": 1}, {"b": 1}),
        (np.eye(2), np.eye(2, dtype=np.float32)),
        (np.zeros(2), -np.zeros(2)),
        (sparse.eye_array(2, format="csr"), sparse.csr_matrix(np.eye(2))),
    ]
    for a, b in different:
        assert not same(a, b)


VALUES = {
    "none": None,
    "bool": True,
    "int": -(2**70),
    "float": 0.1,
    "nan": math.nan,
    "infinity": -math.inf,
    "str": 'grüße "x" \\ \x00 $',
    "list": [1, [2.5, None], "a"],
    "tuple": (1, ("b", [3])),
    "dict": {"seconds": np.array([0.5, 1.5]), "deep": {"round": np.arange(2), "": 1}},
    "class weights": {0: 1.0, True: {2.5: np.arange(2)}, np.int64(7): 2.0, "$": 3},
    "float32": np.float32(0.1),
    "int64": np.int64(7),
    "bool_": np.bool_(True),
    "array": np.array([[1, 2], [3, 4]], dtype=np.int16),
    "empty array": np.empty((0, 3)),
    "zero-dimensional": np.array(2.5),
    "specials": np.array([math.nan, -0.0, math.inf]),
    "fixed strings": np.array(["a", "bcd"]),
    "names": np.array([["word", "ä"]], dtype=object),
    "csr": sparse.csr_array(np.array([[0, 1.5], [2, 0]])),
    "csr, 64 bit": sparse.csr_array((np.ones(1), np.array([2**33]), np.array([0, 1])), shape=(1, 2**34)),
    "csc": sparse.csc_array(np.eye(2, 3, dtype=np.int8)),
    "matrix": sparse.csr_matrix(np.eye(2, dtype=np.float32)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_comes_back_as_parameter_and_as_attribute(tmp_path, kind):
    model = Tiny(extra=VALUES[kind]).fit()
    model.extra_ = VALUES[kind]
    assert model.save(tmp_path / "m") is model
    again = stradask.load(tmp_path / "m")
    assert type(again) is Tiny
    assert same(state(again), state(model))
    assert not hasattr(again, "_scratch")


def test_an_unfitted_model_comes_back_unfitted(tmp_path):
    again = stradask.load(Tiny(alpha=2.5).save(tmp_path / "m") and tmp_path / "m")
    assert state(again) == {"alpha": 2.5, "extra": None, "random_state": None}


def test_a_random_state_comes_back_in_its_state(tmp_path):
    random = np.random.RandomState(3)
    random.standard_normal(5)  # odd: one normal is kept for the next call
    Tiny(random_state=random).save(tmp_path / "m")
    again = stradask.load(tmp_path / "m").random_state
    np.testing.assert_array_equal(again.standard_normal(9), random.standard_normal(9))
    assert again.randint(10**6) == random.randint(10**6)


@pytest.mark.parametrize("position", [-1, 625, 10**6])
def test_a_random_state_that_would_read_beyond_its_key_is_an_error(tmp_path, position):
    random = np.random.RandomState(3)
    Tiny(random_state=random).save(tmp_path / "m")

    def move(header):
        header["parameters"]["random_state"]["state"]["items"][2] = position

    rewrite(tmp_path / "m", move)
    (tmp_path / "m.npz").replace(tmp_path / "m")
    with pytest.raises(ModelFileError, match="random_state is damaged"):
        stradask.load(tmp_path / "m")


def test_a_saved_model_is_replaced_whole(tmp_path):
    path = tmp_path / "m"
    Tiny().fit().save(path)
    with pytest.raises(DataError):
        Tiny(extra=print).save(path)
    assert stradask.load(path).n_iter_ == 5
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (print, "the parameter extra cannot be saved: a builtin_function_or_method has no place"),
        (np.random.default_rng(0), "a Generator has no place"),
        (np.random.RandomState(np.random.PCG64(0)), "a RandomState of PCG64 has no place"),
        ({(1, 2): 2}, "a tuple as the key of a dict has no place"),
        (np.array([{}, "a"]), "an array of Python objects other than str"),
        (np.ma.array([1, 2], mask=[0, 1]), "a MaskedArray has no place"),
        (sparse.coo_array(np.eye(2)), "a coo_array has no place"),
        ([{"deep": {1, 2}}], "a set has no place"),
    ],
)
def test_what_has_no_place_in_a_file_is_refused(tmp_path, value, message):
    with pytest.raises(DataError, match=message):
        Tiny(extra=value).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_subclass_is_refused_because_load_would_not_find_it(tmp_path):
    class Tinier(Tiny):
        pass

    with pytest.raises(DataError, match="Tinier is not one of stradask's own"):
        Tinier().save(tmp_path / "m")
    Tinier.__name__ = "Tiny"
    with pytest.raises(DataError, match="not one of stradask's own"):
        Tinier().save(tmp_path / "m")


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.npz"
    Tiny(extra={"a": np.arange(4), "s": ["x", None]}, random_state=1).fit().save(path)
    return path


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        stradask.load(tmp_path / "m")


def test_a_truncated_file_is_an_error_wherever_it_was_cut(saved):
    whole = saved.read_bytes()
    for cut in np.linspace(0, len(whole) - 1, 60).astype(int):
        saved.write_bytes(whole[:cut])
        with pytest.raises(ModelFileError, match=r"model\.npz (is empty|is truncated)"):
            stradask.load(saved)


def test_a_flipped_byte_is_an_error_or_changes_nothing(saved):
    whole = saved.read_bytes()
    expected = state(stradask.load(saved))
    n_refused = 0
    for at in range(0, len(whole), max(1, len(whole) // 200)):
        for flip in (0x01, 0xFF):
            saved.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            try:
                again = stradask.load(saved)
            except ModelFileError:
                n_refused += 1
            else:  # a date, say
                assert same(state(again), expected)
    assert n_refused > 200


def rewrite(path, change_header=None, **arrays):
    """Write a model file anew with another header or other arrays, checksums right."""
    with np.load(path) as file:
        members = dict(file)
    header = json.loads(members.pop("header").tobytes())
    if change_header is not None:
        header = change_header(header) or header
    members.update(arrays)
    members = {name: array for name, array in members.items() if array is not None}
    np.savez(
        path,
        header=np.frombuffer(json.dumps(header).replace('"deep lists"', deep()).encode(), np.uint8),
        **members,
    )


def put(*keys, value):
    def change(header):
        inner = header
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def drop(key):
    def change(header):
        del header[key]

    return change


HOSTILE = {
    "other format": (put("format", value="other"), "is a file of stradask, but not a model"),
    "no format": (drop("format"), "is a file of stradask, but not a model"),
    "newer format": (
        put("format_version", value=2),
        r"has the model format 2 of a newer stradask .*: upgrade",
    ),
    "older format": (put("format_version", value=0), r"has the unknown model format 0"),
    "no version": (drop("format_version"), r"has the unknown model format None"),
    "a version that is text": (put("format_version", value="1"), r"has the unknown model format '1'"),
    "unknown class": (
        put("class", value="Huge"),
        r"holds a model of the class 'Huge', which stradask does not have",
    ),
    "any function": (put("class", value="load"), r"holds a model of the class 'load', which"),
    "any path": (put("class", value="os.system"), r"holds a model of the class 'os\.system', which"),
    "class of no type": (
        put("class", value=["Tiny"]),
        r"of the class \['Tiny'\], which stradask does not have",
    ),
    "no parameters": (drop("parameters"), r"lacks a part of its header"),
    "no attributes": (put("attributes", value=[]), r"lacks a part of its header"),
    "unknown parameter": (
        put("parameters", "beta", value=1),
        r"has the parameter 'beta', which Tiny does not",
    ),
    "bad parameter": (put("parameters", "alpha", value=-1), r"makes no sense: The 'alpha' parameter of Tiny"),
    "a method": (put("attributes", "fit", value=1), r"has the attribute 'fit', which does not belong"),
    "a dunder": (put("attributes", "__class__", value=1), r"has the attribute '__class__', which"),
    "a private name": (put("attributes", "_scratch_", value=1), r"has the attribute '_scratch_', which"),
    "a property": (put("attributes", "total_", value=1), r"has the attribute 'total_', which"),
    "no identifier": (put("attributes", "a b_", value=1), r"has the attribute 'a b_', which"),
    "missing array": (
        put("attributes", "x_", value={"$": "array", "array": "a99"}),
        r"x_ is damaged or missing",
    ),
    "unknown kind": (put("attributes", "x_", value={"$": "pickle", "array": "a1"}), r"unknown kind 'pickle'"),
    "kind of no type": (put("attributes", "x_", value={"$": ["csr_array"]}), r"x_ is damaged"),
    "array of no name": (put("attributes", "x_", value={"$": "array", "array": [1]}), r"x_ is damaged"),
    "strings of a wrong shape": (
        put("attributes", "x_", value={"$": "strings", "shape": [2], "items": ["a"]}),
        r"x_ is damaged",
    ),
    "bad random state": (
        put("parameters", "random_state", value={"$": "RandomState", "state": ["MT19937", 1]}),
        r"random_state is damaged",
    ),
    "deep nesting": (lambda header: put("attributes", "x_", value="deep lists")(header), r"damaged"),
    "state that the class refuses": (
        put("attributes", "components_", value={"$": "array", "array": "a0"}),
        r"makes no sense: components_ must have two dimensions",
    ),
}


def deep():
    """Nest lists deeper than Python's functions may; some versions of json write no more than they read."""
    n = 2000 if sys.version_info >= (3, 12) else 900
    return "[" * n + "]" * n


@pytest.mark.parametrize("case", HOSTILE)
def test_a_well_formed_file_with_wrong_content_is_an_error(saved, case):
    change, message = HOSTILE[case]
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=rf"^{saved} .*{message}"):
        stradask.load(saved)


def test_rewriting_alone_breaks_nothing(saved):
    before = state(stradask.load(saved))
    rewrite(saved)
    assert same(state(stradask.load(saved)), before)


def test_an_older_file_without_a_newer_parameter_takes_the_default(saved):
    rewrite(saved, lambda header: header["parameters"].pop("extra") and None)
    assert stradask.load(saved).extra is None


@pytest.mark.parametrize("part", ["indices", "indptr", "data"])
@pytest.mark.parametrize(
    "wrong",
    [
        np.array([0, 1, 7]),
        np.array([-1, 1, 2]),
        np.array([0.5, 1, 2]),
        np.arange(9).reshape(3, 3),
        np.arange(2),
    ],
)
def test_a_sparse_matrix_with_broken_parts_is_an_error(saved, part, wrong):
    with np.load(saved) as file:
        header = json.loads(file["header"].tobytes())
    name = header["attributes"]["_counts"][part]
    if part == "data" and wrong.shape == (3,):
        wrong = np.zeros((3, 1))
    rewrite(saved, **{name: wrong})
    with pytest.raises(ModelFileError, match="_counts is damaged or missing"):
        stradask.load(saved)


# --- pickles --------------------------------------------------------------------------------------


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture
def trap(tmp_path):
    trap = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(trap))).close()
    assert trap.exists()  # the payload works
    trap.unlink()
    return trap


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_a_pickle_is_not_read(tmp_path, trap):
    path = tmp_path / "model.npz"
    path.write_bytes(pickle.dumps(Payload(trap)))
    with pytest.raises(ModelFileError, match="not a file of stradask"):
        stradask.load(path)
    path.write_bytes(npy(np.array([Payload(trap)])))
    with pytest.raises(ModelFileError, match="not a file of stradask"):
        stradask.load(path)
    assert not trap.exists()


@pytest.mark.parametrize("member", ["header", "a0", "extra"])
def test_a_pickle_inside_an_npz_is_refused_unexecuted(saved, trap, member):
    with np.load(saved) as file:
        members = {name: npy(array) for name, array in file.items()}
    members[member] = npy(np.array([Payload(trap)]))
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    with pytest.raises(ModelFileError, match="Object arrays cannot be loaded"):
        stradask.load(saved)
    assert not trap.exists()
    # numpy, when allowed, does execute what this file holds.
    with np.load(saved, allow_pickle=True) as file:
        file[member][0].close()
    assert trap.exists()
