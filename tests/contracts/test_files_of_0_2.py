"""Model files and checkpoints of version 0.2, of every public class: they are read, or an error says how.

`files_of_0_2.npz` has the files as bytes, what their models said of the data of the contracts, and the rounds
that were left of the fits. ``python tests/contracts/test_files_of_0_2.py`` wrote it; it stays as it is.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from contract_cases import CASES, DATA, assert_close, cases

import stradask as sd
from stradask.errors import CheckpointMismatch, ModelFileError
from stradask.scheduler.stores.store import read_npz, write_npz

FILES = Path(__file__).with_name("files_of_0_2.npz")
ROUNDS, CUT = 12, 10  # of a fit with a checkpoint, and when it was stopped
# Rounds of a resumed fit are computed here: by other vector instructions, networks in float32.
RESUMED, FLOAT32 = 1e-8, 1e-4
REMEDIES: dict[str, str] = {}  # by the name of a case: words of the error where its checkpoint is not read


def _hash_of_data():
    """Hash what the cases are fitted to, as random streams of numpy may change."""
    parts = [given.X for name, given in DATA.items() if name not in ("ratings", "table")]
    parts += [
        DATA["ratings"].X.toarray(),
        DATA["table"].X.to_numpy(),
        DATA["documents and covariates"].by_row["covariates"],
    ]
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def _resume(case, folder, **options):
    model = case.make()
    longer = {"max_iter": ROUNDS} if "max_iter" in model.get_params() else {}
    return case.fit(model=model.set_params(checkpoint=str(folder), **longer), **options)


@pytest.fixture(scope="module")
def files():
    with np.load(FILES) as archive:
        stored = dict(archive)
    if str(stored["data"]) != _hash_of_data():
        pytest.skip("numpy draws other data than in version 0.2")
    return stored


def _has_checkpoint(case):
    return case.takes("checkpoint", "__init__")


@pytest.mark.parametrize("case", cases("files of 0.2"))
def test_a_model_file_is_read(case, files, tmp_path):
    (tmp_path / "model").write_bytes(files[f"{case.name}/model"].tobytes())
    module = {"module": case.make().module} if case.name.startswith("Torch") else {}
    answer, expected = case.answer(sd.load(tmp_path / "model", **module)), files[f"{case.name}/answer"]
    assert_close(answer, expected, tol=FLOAT32 if expected.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("case", cases("checkpoints of 0.2", _has_checkpoint))
def test_a_fit_resumes_from_a_checkpoint(case, files, tmp_path):
    prefix, rounds = f"{case.name}/checkpoint/", []
    for name in files:
        if name.startswith(prefix):
            file = tmp_path / name.removeprefix(prefix)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(files[name].tobytes())
    if case.name in REMEDIES:
        with pytest.raises((CheckpointMismatch, ModelFileError), match=REMEDIES[case.name]):
            _resume(case, tmp_path)
        return
    answer = case.answer(_resume(case, tmp_path, callback=lambda info: rounds.append(info.round)))
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


def _written():
    """Return the arrays of the archive, of the version that runs."""
    arrays = {"data": np.array(_hash_of_data())}
    posterior = next(case.fitted.posterior_ for case in CASES if case.name == "BayesianLinearRegression")
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "file")
        arrays["posterior"] = np.fromfile(Path(folder) / "file", np.uint8)
    arrays |= {f"draws/{name}": posterior[name] for name in posterior}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path, rounds = Path(folder), []
            case.fitted.save(path / "model")
            arrays[f"{case.name}/model"] = np.fromfile(path / "model", np.uint8)
            arrays[f"{case.name}/answer"] = case.answer(case.fitted)
            if not _has_checkpoint(case):
                continue
            (path / "state").mkdir()
            _resume(case, path / "state", callback=lambda info: info.round >= CUT)
            stored = sorted(file for file in (path / "state").rglob("*") if file.is_file())
            newest = {file.parent: file for file in stored if file.name.startswith("round-")}
            for file in stored:
                if not file.name.startswith("round-") or file in newest.values():
                    name = file.relative_to(path / "state").as_posix()
                    arrays[f"{case.name}/checkpoint/{name}"] = np.fromfile(file, np.uint8)
            resumed = _resume(
                case, path / "state", callback=lambda info, seen=rounds: seen.append(info.round)
            )
            arrays |= {f"{case.name}/resumed": case.answer(resumed), f"{case.name}/rounds": np.array(rounds)}
    return arrays


if __name__ == "__main__":
    if FILES.exists():
        sys.exit(f"{FILES} is what 0.2 wrote, and stays")
    np.savez_compressed(FILES, **_written())
