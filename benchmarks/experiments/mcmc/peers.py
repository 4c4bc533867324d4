"""NUTS of stradask, nutpie, NumPyro and BlackJAX: effective draws a CPU second on models of posteriordb.

    python -m stradask.benchmarks.experiments.mcmc.peers FOLDER [--moments FOLDER] [--only NAME ...]
        [--systems SYSTEM ...] [--python PYTHON] [--later N] [--out FOLDER]
    python -m stradask.benchmarks.experiments.mcmc.peers --show FOLDER

FOLDER is a copy of github.com/stan-dev/posteriordb. Models without reference draws there have their means and
standard deviations in the other folder, as ``NAME/reference.json``. PYTHON has the peers: ``pip install
nutpie[stan] numpyro blackjax``; BridgeStan needs a C++ compiler.

Every system has every model in a process of its own, with one thread: one call after the imports, and some
later ones with other seeds. Four chains make 1,000 + 1,000 draws. A first call has all that is compiled for
the model: nutpie's Stan program by the C++ compiler, JAX's loops, our density (and the kernels of the
sampler, which are read from Numba's cache if stradask has run before). Figures are the least of bulk and tail
ESS over all parameters of the reference in a CPU second, threads and compilers included.

nutpie has the Stan programs of posteriordb, with its default metric and with the one of low rank; NumPyro a
diagonal and a dense metric. The seeds have a Stan program of their own here, as the others have them: effects
times their scale. "student" is a user's own density, 3,000 x 6, with four degrees of freedom: nutpie has the
Stan program below, and as "nutpie function" the compiled function that stradask has. By "loops" NUTS and
nutpie have the same loops over rows with the elementary functions of `sd.functions`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from scipy import optimize, special

from ....algorithms.bayes.posterior.convergence import ess
from ....errors import DataError, StradaskError
from ...pages.tables import Table
from ...run import append_record, describe_machine, read_records
from .peers_loops import LOOPS
from .posteriordb_linear import read

MODELS = (
    "kidiq-kidscore_interaction",
    "earnings-logearn_interaction",
    "mesquite-logmesquite",
    "nes1972-nes",
    "arK-arK",
    "nes_logit_data-nes_logit_model",
    "GLM_Poisson_Data-GLM_Poisson_model",
    "eight_schools-eight_schools_noncentered",
    "radon_mn-radon_hierarchical_intercept_centered",
    "radon_mn-radon_hierarchical_intercept_noncentered",
    "low_dim_gauss_mix-low_dim_gauss_mix",
    "seeds_data-seeds_model",
    "student",
)
OURS = ("stradask nuts", "stradask auto", "stradask loops")
PEERS = (
    "nutpie",
    "nutpie low rank",
    "nutpie function",
    "nutpie loops",
    "numpyro",
    "numpyro dense",
    "blackjax",
)
COUNTS = {"n_chains": 4, "n_samples": 1000, "n_warmup": 1000}
SAME = {  # of the same posterior, whose reference is given under another name
    "radon_mn-radon_hierarchical_intercept_centered": "radon_mn-radon_hierarchical_intercept_noncentered"
}
PROGRAMS = {
    "seeds_data-seeds_model": """
data { int<lower=0> I; array[I] int<lower=0> n; array[I] int<lower=0> N; vector[I] x1; vector[I] x2; }
transformed data { vector[I] x1x2 = x1 .* x2; }
parameters { real alpha0; real alpha1; real alpha12; real alpha2; real<lower=0> tau; vector[I] b_raw; }
transformed parameters { real<lower=0> sigma = inv_sqrt(tau); vector[I] b = sigma * b_raw; }
model {
  alpha0 ~ normal(0, 1000);
  alpha1 ~ normal(0, 1000);
  alpha2 ~ normal(0, 1000);
  alpha12 ~ normal(0, 1000);
  tau ~ gamma(0.001, 0.001);
  b_raw ~ std_normal();
  n ~ binomial_logit(N, alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * x1x2 + b);
}
""",
    "student": """
data { int<lower=0> N; int<lower=0> d; matrix[N, d] X; vector[N] y; }
parameters { vector[d] beta; real log_sigma; }
model {
  beta ~ normal(0, 5);
  log_sigma ~ normal(0, 1);
  y ~ student_t(4, X * beta, exp(log_sigma));
}
""",
}
LIMIT = 900  # wall seconds of a process


def student_data():
    """3,000 rows of six columns, and responses with Student noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6))
    y = X @ [1, -0.5, 0.3, 0, 0, 2] + 0.7 * rng.standard_t(4, 3000)
    return {"N": 3000, "d": 6, "X": X.tolist(), "y": y.tolist()}


def student_reference(data, n=40_000):
    """Means and standard deviations by importance sampling about the mode, in plain numpy."""
    X, y = np.array(data["X"]), np.array(data["y"])

    def log_density(q):
        z = (y[:, None] - X @ q[:-1]) * np.exp(-q[-1])
        rest = 0.02 * (q[:-1] ** 2).sum(axis=0) + 0.5 * q[-1] ** 2 + len(y) * q[-1]
        return -2.5 * np.log1p(z * z / 4).sum(axis=0) - rest

    least = optimize.minimize(lambda q: -log_density(q[:, None])[0], np.zeros(X.shape[1] + 1), tol=1e-8)
    d = len(least.x)  # of Student's t with four degrees of freedom the information is 5 / 7, and 8 / 7
    precision = np.diag(np.append(np.full(d - 1, 0.04), 1 + 8 / 7 * len(y)))
    precision[:-1, :-1] += 5 / 7 * np.exp(-2 * least.x[-1]) * X.T @ X
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    rng = np.random.default_rng(1)
    z = 1.1 * rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(8, n) / 8)[:, None]
    Q = least.x + z @ root.T
    logp = np.concatenate([log_density(part.T) for part in np.array_split(Q, 40)])
    weights = special.softmax(logp + (8 + d) / 2 * np.log1p((z / 1.1) ** 2 @ np.ones(d) / 8))
    if 1 / (weights @ weights) < n / 4:
        raise StradaskError("the reference of the Student regression is not known: weights differ too much")
    mean = weights @ Q
    sds = np.sqrt(weights @ (Q - mean) ** 2)
    names = [*(f"beta[{j + 1}]" for j in range(d - 1)), "log_sigma"]
    return {name: {"mean": m, "sd": s} for name, m, s in zip(names, mean, sds, strict=True)}


class Case:
    """A model: its data, its reference, and its Stan program, as files of a folder."""

    def __init__(self, name, folder, moments, place):
        self.name = name
        if name == "student":
            data = student_data()
            self.reference = student_reference(data)
        else:
            data, self.reference = _read(name, folder, moments)
        self.data, self.stan = place / "data.json", place / "program.stan"
        self.data.write_text(json.dumps(data))
        self.stan.write_text(PROGRAMS.get(name) or _program(name, folder))

    def systems(self, wanted):
        """Names of the systems that have this model."""
        functions = ["nutpie function"] if self.name == "student" else []
        functions += ["stradask loops", "nutpie loops"] if self.name in LOOPS else []
        return [one for one in wanted if one in functions or one.split()[-1] not in ("function", "loops")]

    def run(self, system, python, later, place):
        """Run a system; returns its record."""
        job = {"system": system, "model": self.name, "data": str(self.data), "counts": COUNTS, "seed": 1}
        job |= {"stan": None if system == "nutpie function" else str(self.stan), "later": later}
        (place / "job.json").write_text(json.dumps(job))
        record = {"model": self.name, "system": system, "parameters": len(self.reference)}
        alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        alone["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        worker = [python, "-P", str(Path(__file__).parent / "peers_worker.py"), str(place / "job.json")]
        try:
            done = subprocess.run(
                worker, env=os.environ | alone, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return record | {"status": "failed", "error": f"stopped after {LIMIT} s"}
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            return record | {"status": "failed", "error": said[-1]}
        calls = json.loads((place / "figures.json").read_text())
        for number, call in enumerate(calls):
            with np.load(place / f"{number}.npz") as draws:
                call |= judged({name: draws[name] for name in draws.files}, self.reference, call.get("worth"))
        return record | {"status": "ok", "calls": calls}


def _read(name, folder, moments):
    """Data and reference moments of a posterior of posteriordb."""
    root = Path(folder) / "posterior_database"
    known = json.loads((root / "posteriors" / f"{name}.json").read_text())
    if known["reference_posterior_name"] is not None:
        return read(folder, name)
    if moments is None:
        raise DataError(f"{name} has no reference draws: give --moments, or --only with other models")
    with zipfile.ZipFile(root / "data" / "data" / f"{known['data_name']}.json.zip") as archive:
        data = json.loads(archive.read(archive.namelist()[0]))
    path = Path(moments) / SAME.get(name, name) / "reference.json"
    return data, json.loads(path.read_text())["summary"]


def _program(name, folder):
    model = name.partition("-")[2]
    return (Path(folder) / "posterior_database" / "models" / "stan" / f"{model}.stan").read_text()


def judged(draws, reference, worth=None):
    """Least ESS and errors of draws by name, each (chains, draws, ...)."""
    columns = {}
    for name, values in draws.items():
        for index in np.ndindex(values.shape[2:]):
            entry = f"{name}[{','.join(str(i + 1) for i in index)}]" if index else name
            columns[entry] = values[(slice(None), slice(None), *index)]
    made = np.stack([columns[name] for name in reference], axis=-1)
    theirs = {key: np.array([one[key] for one in reference.values()]) for key in ("mean", "sd")}
    flat = made.reshape(-1, made.shape[-1])
    error = (flat.mean(axis=0) - theirs["mean"]) / theirs["sd"]
    most = np.inf if worth is None else worth
    sizes = {kind: min(float(np.nan_to_num(ess(made, kind)).min()), most) for kind in ("bulk", "tail")}
    ratio = float(np.exp(np.abs(np.log(flat.std(axis=0) / theirs["sd"])).max()))
    return {f"{kind}_ess": size for kind, size in sizes.items()} | {
        "mean_error": float(np.sqrt(np.mean(error**2))), "sd_ratio": ratio
    }  # fmt: skip


def rate(call):
    """Effective draws in a CPU second, of the worse kind and parameter."""
    return min(call["bulk_ess"], call["tail_ess"]) / call["cpu_seconds"]


def figure(record, which, of):
    """The figure of a record's first call, or the median over the later ones."""
    calls = record["calls"][:1] if which == "first" else record["calls"][1:]
    return float(np.median([of(call) for call in calls]))


def _each_model(records):
    last = {(r["model"], r["system"]): r for r in records}
    names = [name for name in MODELS if any(model == name for model, _ in last)]
    return [(name, {system: r for (model, system), r in last.items() if model == name}) for name in names]


def rates_table(records, which):
    """A row a model: effective draws a CPU second of every system, and ours over the best peer."""
    models = _each_model([r for r in records if r["status"] == "ok"])
    systems = [name for name in (*OURS, *PEERS) if any(name in runs for _, runs in models)]
    body = []
    for name, runs in models:
        rates = {s: figure(r, which, rate) for s, r in runs.items()}
        peers = {s: value for s, value in rates.items() if s in PEERS}
        best = max(peers, key=peers.__getitem__, default=None)
        plain = max((s for s in peers if s != "nutpie loops"), key=peers.__getitem__, default=None)
        against = zip(OURS, (plain, plain, best), strict=True)  # loops with all
        times = [f"{rates[s] / peers[p]:.1f}" if p and s in rates else "-" for s, p in against]
        cells = ["-" if s not in rates else f"{rates[s]:,.{0 if rates[s] >= 20 else 1}f}" for s in systems]
        body.append([name, *cells, *times, plain or "-"])
    columns = ["model", *systems, "nuts / best", "auto / best", "loops / best", "best peer"]
    return Table(body, columns, f"Effective draws in a CPU second, {which} call")


def work_table(records):
    """A row a model: what a draw costs by NUTS here and by the peer that is the fastest later."""

    def gradients(call):
        return call["gradients"] + call.get("warm_up_gradients", np.nan)

    body = []
    for name, done in _each_model([r for r in records if r["status"] == "ok"]):
        peers = [s for s in done if s in PEERS]
        if not peers or "stradask nuts" not in done:
            continue
        for system in ("stradask nuts", max(peers, key=lambda s: figure(done[s], "later", rate))):
            record = done[system]
            values = {
                "gradients": lambda c: c["gradients"] / 1000,
                "before": lambda c: c.get("warm_up_gradients", np.nan) / 1000,
                "worth": lambda c: 1000 * min(c["bulk_ess"], c["tail_ess"]) / c["gradients"],
                "each": lambda c: 1e6 * c["cpu_seconds"] / gradients(c),
                "seconds": lambda c: c["cpu_seconds"],
                "error": lambda c: c["mean_error"],
            }
            v = {key: figure(record, "later", of) for key, of in values.items()}
            cells = [f"{v['before']:.1f}", f"{v['gradients']:.1f}", f"{v['worth']:.0f}", f"{v['each']:.2f}"]
            cells += [f"{v['seconds']:.2f}", f"{figure(record, 'first', values['seconds']):.1f}"]
            body.append([name, system, *cells, f"{v['error']:.3f}"])
    columns = [
        "model", "system", "warm-up, thousand gradients", "draws, thousand gradients",
        "ESS of 1,000 gradients of draws", "microseconds a gradient", "CPU s, later", "first",
        "error of means, sd",
    ]  # fmt: skip
    return Table(body, columns, "Work of a later call")


def show(records):
    """All tables as text, and a line on each run that failed."""
    tables = [rates_table(records, "later"), rates_table(records, "first"), work_table(records)]
    lines = [f"{made.caption}\n\n{made.text()}\n" for made in tables]
    lines += [f"{r['model']}, {r['system']}: {r['error']}" for r in records if r["status"] == "failed"]
    return "\n".join(lines)


def main(arguments=None):
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="a copy of posteriordb")
    parser.add_argument("--moments", type=Path, help="folder of NAME/reference.json")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, help="models (all)")
    parser.add_argument(
        "--systems", nargs="+", choices=(*OURS, *PEERS), default=(*OURS, *PEERS), help="systems (all)"
    )
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the peers (this one)")
    parser.add_argument("--later", type=int, default=3, help="calls after the first (3)")
    parser.add_argument("--out", type=Path, help="folder of records.jsonl")
    parser.add_argument("--show", type=Path, help="print the tables of a folder of records")
    given = parser.parse_args(arguments)
    if given.show is not None:
        print(show(read_records(given.show / "records.jsonl")))
        return
    if given.folder is None:
        parser.error("FOLDER, a copy of posteriordb, is needed, or --show")
    if given.later < 1:
        parser.error("--later must be 1 or more")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    records, machine = [], describe_machine()
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="stradask-peers-") as place:
            case = Case(name, given.folder, given.moments, Path(place))
            for system in case.systems(given.systems):
                python = sys.executable if system in OURS else given.python
                record = case.run(system, python, given.later, Path(place))
                records.append(record | {"machine": machine})
                if given.out is not None:
                    append_record(given.out / "records.jsonl", records[-1])
                print(_line(record), flush=True)
    print(show(records))


def _line(record):
    head = f"{record['model']}, {record['system']}"
    if record["status"] != "ok":
        return f"{head}: {record['error']}"
    rates = [f"{rate(call):,.1f}" for call in record["calls"]]
    return f"{head}: {', '.join(rates)} a CPU second, error {record['calls'][-1]['mean_error']:.3f}"


if __name__ == "__main__":
    main()
