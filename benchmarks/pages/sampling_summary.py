"""Figures of sampled posteriors: effective draws a CPU second, and errors of combined shards."""

import math

from .gap_summary import not_run
from .summary import Spread, aligned, number

WHOLE = ("chains", "auto")


def finished(records):
    """Return the records with draws by data set and problem, then by solver, ours first."""
    groups: dict[tuple[str, str], dict[str, list]] = {}
    for record in sorted(records, key=lambda record: not record["ours"]):
        if record["status"] == "ok":
            key = record["data"]["name"], record["problem"]
            groups.setdefault(key, {}).setdefault(record["solver"], []).append(record)
    return groups


def rate(record):
    """Tail ESS of the worst parameter in a CPU second, warm-up counted."""
    return record["tail_ess"] / record["cpu_seconds"]


def rows(records):
    """Return header and rows of the chains: a row a data set, a column a solver, and ours over the best."""
    whole: dict[str, dict[str, list]] = {}
    for (data, problem), group in finished(records).items():
        for name, runs in group.items():
            if problem in WHOLE:
                label = name if problem == "chains" else f"{name} {problem}"
                whole.setdefault(data, {})[label] = runs
    names = list(dict.fromkeys(name for group in whole.values() for name in group))
    names.sort(key=lambda name: not any(r["ours"] for group in whole.values() for r in group.get(name, ())))
    body = []
    for data, group in whole.items():
        medians = {name: Spread.of(map(rate, runs)).median for name, runs in group.items()}
        cells = [
            f"{number(medians[name])} ({_error(group[name])})" if name in group else "-" for name in names
        ]
        ours = max((medians[name] for name, runs in group.items() if runs[0]["ours"]), default=math.nan)
        peers = {name: medians[name] for name, runs in group.items() if not runs[0]["ours"]}
        best = max(peers, key=peers.__getitem__, default=None)
        ratio = "-" if best is None else f"{number(ours / peers[best])} ({best})"
        body.append([data, *cells, ratio])
    return ["tail ESS / CPU s (error)", *names, "ours / best peer"], body


def _error(runs):
    """The error of means, two digits."""
    return f"{Spread.of(run['mean_error'] for run in runs).median:.2g}"


def shard_rows(records):
    """Return header and rows of the combinations: a row a data set and way."""
    refused: dict[tuple[str, str], dict] = {}
    for record in records:
        if record["status"] == "refused":
            refused.setdefault((record["data"]["name"], record["problem"]), record)
    body = []
    for (data, problem), group in finished(records).items():
        for runs in group.values():
            if problem in WHOLE or "parallel_seconds" not in runs[0]:
                continue
            figures = [
                Spread.of(run[key] for run in runs).median
                for key in ("mean_error", "sd_error", "quantile_error", "parallel_seconds")
            ]
            body.append([data, problem, *(f"{figure:.3g}" for figure in figures)])
    body += [[data, problem, "refused", "", "", ""] for data, problem in refused]
    return [
        "shards",
        "",
        "error of means",
        "error of sd",
        "of 5 and 95 %",
        "slowest shard + combination, s",
    ], sorted(body, key=lambda row: row[0])


def setting(records):
    """Return a sentence on what the figures are."""
    settings = records[0]["settings"]
    return (
        f"{settings['n_chains']} chains of {settings['n_warmup']} + {settings['n_samples']} draws. Tail ESS "
        "of the worst parameter in a CPU second, warm-up counted, compiling not (but NumPyro's, of which "
        "each run does a part); in brackets the error of the means, in posterior standard deviations (root "
        "mean square over parameters). Medians over the runs."
    )


def table(records):
    """Return the tables as text, and a line on each system that did not run."""
    lines = []
    for header, body in (rows(records), shard_rows(records)):
        if body:
            lines += [*aligned(header, body), ""]
    if lines:
        lines += [setting(records), ""]
    lines += [
        f"{r['data']['name']} {r['problem']}: refused: {r['refused'].splitlines()[0]}"
        for r in records
        if r["status"] == "refused"
    ]
    return "\n".join(lines + not_run(records))


def result_of(record):
    """Return in a few words how one record came out."""
    if record["status"] == "refused":
        return f"refused: {record['refused'].splitlines()[0]}"
    errors = f"errors {record['mean_error']:.3f} and {record['sd_error']:.3f}"
    return f"tail ESS {number(rate(record))} a CPU second, {errors}, {record['seconds']:.1f} s"
