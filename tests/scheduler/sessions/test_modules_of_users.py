"""What is defined in a user's own module, which workers that were started by hand cannot import."""

import importlib
import sys

import cloudpickle
import pytest

from stradask.errors import StradaskError
from stradask.scheduler import RotationSchedule, run
from stradask.scheduler.sessions.payloads import Frames
from stradask.scheduler.tasks import Load
from stradask.scheduler.workers import open_workers

ADVICE = r"Call client\.upload_file\('{}\.py'\) before the fit, or install it there"


class Elsewhere:
    """Something of a module that the process which unpickles it does not have."""

    def __reduce__(self):
        return importlib.import_module, ("module_elsewhere",)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "module_of_a_user.py").write_text("class Program:\n    size = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("module_of_a_user")
    sys.modules.pop("module_of_a_user", None)


def test_a_module_that_is_not_there_is_named_with_the_remedy(module, monkeypatch):
    packed = Frames.of({"program": module.Program()})
    assert packed.open()["program"].size == 3
    monkeypatch.delattr(module, "Program")  # an older file of the same name
    with pytest.raises(StradaskError, match=r"Can't get attribute.*" + ADVICE.format("my_module")):
        packed.open()
    monkeypatch.setitem(sys.modules, "module_of_a_user", None)
    with pytest.raises(StradaskError, match=r"module_of_a_user.*" + ADVICE.format("module_of_a_user")):
        packed.open()


def test_a_module_that_is_registered_goes_by_value(module, monkeypatch):
    cloudpickle.register_pickle_by_value(module)
    try:
        packed = Frames.of((0, module.Program()))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.setitem(sys.modules, "module_of_a_user", None)
    assert packed.open()[1].size == 3


def test_programs_and_tasks_on_workers_without_the_module_name_it(one_process, make_rotation):
    program, address = make_rotation(), one_process.scheduler_address
    program.helper = Elsewhere()
    with pytest.raises(StradaskError, match=ADVICE.format("module_elsewhere")):
        run(program, RotationSchedule(4, 8), max_rounds=1, engine=address)
    # Dask's scheduler, which unpickles tasks, does not tell which module it is.
    for inputs, task in [([Load(str, (Elsewhere(),))], (0, 1)), ([1], (0, Elsewhere()))]:
        with (
            open_workers(address).tasks(inputs) as tasks,
            pytest.raises(StradaskError, match=ADVICE.format("my_module")),
        ):
            tasks.map(pow, [task])
