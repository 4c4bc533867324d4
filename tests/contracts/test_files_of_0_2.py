"""Model files and checkpoints of version 0.2, of every public class: they are read, or an error says how.

`files_of_0_2.npz` has the files as bytes, the data, what the models said of them (`Case.answer`), and what
they said after the rounds that were left of fits stopped after the tenth round of twelve. It stays as it is.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from contract_cases import CASES, DATA, assert_close, cases
from scipy import sparse

import stradask as sd
from stradask.errors import CheckpointMismatch, ModelFileError
from stradask.scheduler.stores.store import read_npz, write_npz

FILES = Path(__file__).with_name("files_of_0_2.npz")
NAMES = frozenset(np.load(FILES).files)
ROUNDS = 12  # of a fit with a checkpoint
# Rounds of a resumed fit are computed here: by other vector instructions, networks in float32.
RESUMED, FLOAT32 = 1e-8, 1e-4
REMEDIES: dict[str, str] = {}  # by the name of a case: words of the error where its checkpoint is not read


def class_of(name):
    return name.partition(",")[0]


def _read_data(case, files):
    """The data of a case as they were: random streams of the cases change."""
    prefix = f"data/{case.data}"
    X, rows = files[f"{prefix}/X"], f"{prefix}/rows/"
    if case.data == "ratings":
        X = sparse.csr_array(X)
    elif case.data == "table":
        X = pd.DataFrame(X, columns=case.given.X.columns)
    by_row = {name.removeprefix(rows): values for name, values in files.items() if name.startswith(rows)}
    return case.given._replace(X=X, y=files.get(f"{prefix}/y"), by_row=by_row)


def _resume(case, given, folder, **options):
    model = case.make()
    longer = {"max_iter": ROUNDS} if "max_iter" in model.get_params() else {}
    return case.fit(given, model=model.set_params(checkpoint=str(folder), **longer), **options)


@pytest.fixture(scope="module")
def files():
    with np.load(FILES) as archive:
        return dict(archive)


def test_every_class_has_files():
    """Classes that are newer have no files of 0.2, and would be named here."""
    models, resumed = (
        {name.removesuffix(end) for name in NAMES if name.endswith(end)} for end in ("/model", "/resumed")
    )
    assert resumed <= models <= {case.name for case in CASES}
    assert set(map(class_of, models)) == {class_of(case.name) for case in CASES}
    assert set(map(class_of, resumed)) == {
        class_of(case.name) for case in CASES if case.takes("checkpoint", "__init__")
    }


@pytest.mark.parametrize("case", cases("files of 0.2", lambda case: f"{case.name}/model" in NAMES))
def test_a_model_file_is_read(case, files, tmp_path):
    (tmp_path / "model").write_bytes(files[f"{case.name}/model"].tobytes())
    module = {"module": case.make().module} if case.name.startswith("Torch") else {}
    answer = case.answer(sd.load(tmp_path / "model", **module), _read_data(case, files))
    expected = files[f"{case.name}/answer"]
    assert_close(answer, expected, tol=FLOAT32 if expected.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("case", cases("checkpoints of 0.2", lambda case: f"{case.name}/resumed" in NAMES))
def test_a_fit_resumes_from_a_checkpoint(case, files, tmp_path):
    prefix, rounds, given = f"{case.name}/checkpoint/", [], _read_data(case, files)
    for name in files:
        if name.startswith(prefix):
            file = tmp_path / name.removeprefix(prefix)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(files[name].tobytes())
    if case.name in REMEDIES:
        with pytest.raises((CheckpointMismatch, ModelFileError), match=REMEDIES[case.name]):
            _resume(case, given, tmp_path)
        return
    model = _resume(case, given, tmp_path, callback=lambda info: rounds.append(info.round))
    answer = case.answer(model, given)
    expected = files[f"{case.name}/resumed"]
    assert rounds == files[f"{case.name}/rounds"].tolist()
    assert_close(answer, expected, tol=FLOAT32 if expected.dtype == np.float32 else RESUMED)


def test_a_posterior_is_read(files, tmp_path):
    (tmp_path / "posterior").write_bytes(files["posterior"].tobytes())
    posterior = sd.load(tmp_path / "posterior")
    for name in posterior:
        np.testing.assert_array_equal(posterior[name], files[f"draws/{name}"])


def test_files_of_0_1_are_refused_with_the_version_that_reads_them(tmp_path):
    sd.Lasso().save(tmp_path / "model")
    arrays, header = read_npz(tmp_path / "model")
    header["versions"]["stradask"] = "0.1.0"
    write_npz(tmp_path / "model", arrays, header)
    with pytest.raises(ModelFileError, match=r"is of stradask 0\.1, .* load and save .* with version 0\.2"):
        sd.load(tmp_path / "model")
    model = sd.GSDMM(2, max_iter=1, checkpoint=tmp_path / "state").fit(DATA["documents"].X)
    manifest = json.loads((tmp_path / "state/manifest.json").read_text()) | {"stradask": "0.1.0"}
    (tmp_path / "state/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFileError, match=r"manifest.json is of stradask 0\.1, .* finish the fit with"):
        model.fit(DATA["documents"].X)
