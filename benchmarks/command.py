"""``stradask bench``: one family, a quick look at all of them, or the recipes of the tables in the docs."""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import NamedTuple

from ..errors import DataError, shortened
from . import recipes, run
from .objectives import families

SETTLED = ("family", "dataset", "against", "param", "max_seconds", "repeats", "quick")  # by a recipe
SUFFIXES = (".gz", ".txt", ".csv")  # of recipes' data that are files


class Family(NamedTuple):
    """The functions of a family that the command calls.

    ``collect(args, on_record, tell)`` runs it; ``table`` and ``page`` make text and a `Page` of its records.
    """

    collect: Callable
    table: Callable
    page: Callable


def family(name):
    """Return how a family is run and shown; an unknown name is an error."""
    if name in run.COMPARISONS:
        module = importlib.import_module(f".{run.COMPARISONS[name]}", __package__)
        return Family(module.collect, module.table, module.page)
    if name not in families():
        known = ", ".join([*families(), *run.COMPARISONS])
        raise DataError(f"no benchmark of the name {shortened(name)}; there are: {known}")
    view = run.view_of(name)
    return Family(run.collect, view.table, view.page)


def main(args):
    """Run ``stradask bench``; return the exit status.

    1 when a system failed (one without an environment is only reported), 130 when interrupted.
    """
    records: list[dict] = []
    interrupted = False
    try:
        for out, jobs in jobs_of(args):
            kept: list[dict] = []
            try:
                for together in _together(jobs):
                    _collect(together, _keeper(out, kept))
            finally:  # what was kept is shown, also if the next family cannot go on
                records += kept
                if kept and not args.json:
                    _show(kept, out)
    except KeyboardInterrupt:
        interrupted = True
        print(f"interrupted; {len(records)} finished runs are in {args.out}", file=sys.stderr)
    if args.json:
        print(json.dumps(records))
    if interrupted:
        return 130
    return int(any(record.get("status") == "failed" for record in records))


def _together(jobs):
    """Return jobs in lists: those of a quick look that have systems, which warm up side by side, in one."""
    lists: dict[object, list] = {}
    for number, job in enumerate(jobs):
        warms_up = job.quick and job.family not in run.COMPARISONS
        lists.setdefault("systems" if warms_up else number, []).append(job)
    return list(lists.values())


def _collect(jobs, keep):
    if len(jobs) > 1:
        run.collect_all(jobs, keep, _tell)
    else:
        family(jobs[0].family).collect(jobs[0], keep, _tell)


def _tell(line):
    print(line, file=sys.stderr, flush=True)


def _keeper(out, kept):
    """Return a function that writes a record and remembers it."""

    def keep(record):
        out.mkdir(parents=True, exist_ok=True)
        kept.append(run.append_record(out / "records.jsonl", record))

    return keep


def jobs_of(args):
    """Return folders with the arguments of the runs whose records go there."""
    if args.full:
        return _full_jobs(args)
    if args.family is not None:
        return [(args.out, [args])]
    if not args.quick:
        known = ", ".join([*families(), *run.COMPARISONS])
        raise DataError(f"which benchmark? --quick looks at all of them; or give one of: {known}")
    _refuse_with(args, "--quick without a family", ("dataset", "param", "max_seconds", "repeats", "solvers"))
    peers = [] if args.against is None else ["--against", *args.against]
    if peers[1:]:
        raise DataError("--against: peers are of one family: give it, or --against without a name")
    jobs = [_job(args, recipe) for recipe in recipes.QUICK if _has_what_it_needs(recipe)]
    for job in jobs:
        job.quick = True
        if peers and job.family not in run.COMPARISONS:
            job.against = []
    return [(args.out, jobs)]


def _has_what_it_needs(recipe):
    """Whether the package is installed without which a family runs nothing; if not, say so."""
    name = recipes.family_of(recipe)
    package = recipes.NEEDS.get(name)
    there = package is None or importlib.util.find_spec(package) is not None
    if not there:
        _tell(f"{name}: left out, since {package} is not installed")
    return there


def _full_jobs(args):
    if args.family is None:
        raise DataError("--full needs a family: its recipes take hours for all of them")
    _refuse_with(args, "--full", ("dataset", "against", "param", "max_seconds", "repeats", "quick"))
    family(args.family)
    jobs = []
    for folder, lines in recipes.full(args.family).items():
        with_data = [job for line in lines if (job := _job(args, line)) is not None]
        if with_data:
            jobs.append((args.out / folder, with_data))
    if not jobs:
        raise DataError(f"--data: {str(args.data)!r} has none of the files that {args.family} --full runs on")
    return jobs


def _refuse_with(args, option, names):
    for name in names:
        if getattr(args, name):
            raise DataError(f"--{name.replace('_', '-')} does not go with {option}: recipes settle it")


def _job(args, recipe):
    """Return the arguments of a recipe, with the user's for all the rest; None if no file of it is there."""
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    job = parser.parse_args(recipe.split())
    for name, value in vars(args).items():
        if name not in SETTLED:
            setattr(job, name, value)
    if job.dataset is None:
        return job
    files = [name for name in job.dataset if name.endswith(SUFFIXES)]
    places = {name: place for name in files for place in _at_hand(args.data, name)}
    missing = [name for name in files if name not in places]
    if missing:
        _tell(f"{job.family}: left out, since not in {str(args.data)!r}: {', '.join(missing)}")
    job.dataset = [str(places.get(name, name)) for name in job.dataset if name not in missing]
    return job if job.dataset else None


def _at_hand(folder, name):
    """Return the path of a file in a folder or a folder of it, in a list; if several, the first by name."""
    return sorted(folder.glob(name)) or sorted(folder.glob(f"*/{name}"))[:1]


def _show(records, out):
    """Print the table and write the page."""
    names = list(dict.fromkeys(record["family"] for record in records))
    if len(names) == 1:
        print(family(names[0]).table(records))
    else:
        from .overview import table

        print(table(records))
    _write_report(names, records, out / "report.html")


def _write_report(names, records, path):
    """Write the page; matplotlib is an extra, and without it there are the table and the records."""
    try:
        if len(names) == 1:
            page = family(names[0]).page(records)
        else:
            from .overview import page_of_all

            pages = [family(name).page([r for r in records if r["family"] == name]) for name in names]
            page = page_of_all(records, pages)
        page.write(path)
    except ModuleNotFoundError as error:
        print(f"no report: {error.name} is not installed (pip install 'stradask[plot]')", file=sys.stderr)
    else:
        print(f"records: {path.parent / 'records.jsonl'}\nreport:  {path}")
