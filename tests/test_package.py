"""The package as a whole: what importing it loads, and that setup.cfg tells the truth about the folders."""

import ast
import configparser
import inspect
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stradask

ROOT = Path(__file__).parents[1]
FACE = ROOT / "stradask"
UNDOCUMENTED = {"__version__", "datasets", "errors", "functions", "priors", "scheduler"}
FOLDERS = sorted(p.parent for p in ROOT.glob("*/__init__.py") if p.parent != FACE)
EXPERIMENTS = ROOT / "benchmarks" / "experiments"
NOT_IN_THE_WHEEL = {
    ".".join(["stradask", *p.parent.relative_to(ROOT).parts]) for p in EXPERIMENTS.rglob("__init__.py")
}
SOURCES = sorted({*FACE.rglob("*.py"), *(source for folder in FOLDERS for source in folder.rglob("*.py"))})


@pytest.mark.parametrize("module", ["stradask", "stradask.datasets", "stradask.scheduler", "stradask.errors"])
def test_import_is_light(module, tmp_path):
    heavy = "numba distributed cupy matplotlib pandas pooch tqdm"
    code = f"import sys, {module}; print([m for m in {heavy.split()!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def options():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser["options"]


def test_packages_of_setup_cfg_are_the_folders():
    folders = [p.parent.relative_to(ROOT) for folder in FOLDERS for p in folder.rglob("__init__.py")]
    expected = {".".join(["stradask", *folder.parts]) for folder in folders} - NOT_IN_THE_WHEEL
    expected |= {".".join(p.parent.relative_to(ROOT).parts) for p in FACE.rglob("__init__.py")}
    listed = options()["packages"].split()
    assert set(listed) == expected
    assert len(listed) == len(expected)


def test_the_readme_counts_the_required_packages():
    required = options()["install_requires"].split()
    assert f"It has {len(required)} direct dependencies" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_weighs_what_the_readme_says(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("setuptools", "77")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "results", "_build")
    shutil.copytree(ROOT, tmp_path / "tree", symlinks=True, ignore=left_out)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist"]
    subprocess.run([*command, tmp_path / "tree"], check=True, capture_output=True, timeout=1500)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    said = re.search(r"The wheel is ([\d.]+) MB", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert abs(wheel.stat().st_size / 1e6 - float(said[1])) < 0.15
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    sources = {
        "/".join(["stradask", *path.relative_to(ROOT).parts]) for path in SOURCES if FACE not in path.parents
    }
    experiments = {name for name in sources if name.startswith("stradask/benchmarks/experiments/")}
    assert experiments
    assert sources - experiments <= names
    assert not experiments & names
    assert "stradask/kernels/cuda/philox.cuh" in names
    assert {"stradask/__init__.pyi", "stradask/datasets/__init__.pyi"} <= set(names)
    assert not any(name.startswith(("tests", "docs")) for name in names)
    for line in ("License-Expression: BSD-3-Clause", "Requires-Python: >=3.11", "Provides-Extra: cuda"):
        assert line in metadata.splitlines()


def test_package_dir_maps_every_package_to_its_folder():
    mapped = dict(line.split(" = ") for line in options()["package_dir"].strip().splitlines())
    assert set(mapped) == set(options()["packages"].split())
    for package, folder in mapped.items():
        inside = package.removeprefix("stradask").removeprefix(".").replace(".", "/")
        assert folder in (inside, package.replace(".", "/"))
        assert (ROOT / folder / "__init__.py").is_file()


def test_every_python_file_is_in_a_package():
    stray = [source for source in SOURCES if not (source.parent / "__init__.py").is_file()]
    assert stray == []


def test_a_checkout_needs_no_installation_and_no_links(tmp_path):
    """Archives and Windows make text files of links."""
    assert not any(path.is_symlink() for path in FACE.iterdir())
    code = "import stradask, stradask.scheduler; print(stradask.scheduler.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]; {code}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{ROOT / 'scheduler' / '__init__.py'}\n", "")


def test_every_public_name_is_there():
    assert sorted(stradask.__all__) == sorted(set(stradask.__all__))
    for name in stradask.__all__:
        assert getattr(stradask, name) is not None
    assert set(stradask.__all__) <= set(dir(stradask))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Lassoo'"):
        _ = stradask.Lassoo


def public_definitions(tree):
    """Give the public functions, classes and methods of a module, by name."""
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if any(ast.unparse(one) == "overload" for one in node.decorator_list):
            continue  # a signature alone: the function that follows has the docstring
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            for name, method in public_definitions(node):
                yield f"{node.name}.{name}", method


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_everything_public_is_documented(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    bare = [name for name, node in public_definitions(tree) if not ast.get_docstring(node)]
    assert ast.get_docstring(tree), "the module has no docstring"
    assert bare == []


def test_no_two_classes_have_one_name():
    """A reader who searches for a class finds one; benchmarks and the command line stand by themselves."""
    inside = ("algorithms", "scheduler", "kernels", "datasets")
    places = {}
    for source in (source for name in inside for source in (ROOT / name).rglob("*.py")):
        for name in re.findall(r"^\s*class (\w+)", source.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(source.relative_to(ROOT).as_posix())
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("name", sorted(set(stradask.__all__) - UNDOCUMENTED))
def test_public_docstrings_have_examples(name):
    assert "\nExamples\n--------\n" in inspect.cleandoc(getattr(stradask, name).__doc__)


def test_the_conda_recipe_asks_for_what_pip_does():
    recipe = (ROOT / "packaging" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("test:")[0]
    asked = {line.strip("- ").replace(" ", "") for line in run.splitlines() if line.strip()}
    assert asked == {*options()["install_requires"].split(), f"python{options()['python_requires']}"}
    assert f'version = "{stradask.__version__}"' in recipe
