"""Densities of `posteriordb` against Stan's own, through BridgeStan: values and gradients at ten points.

    python -m stradask.benchmarks.experiments.mcmc.posteriordb_check FOLDER PROGRAMS [--only NAME ...]

FOLDER is a copy of github.com/stan-dev/posteriordb. PROGRAMS has NAME.stan, or what BridgeStan made of it as
NAME.so, for the name of each model. Values are compared up to a constant, without Jacobians; gradients, in
the unconstrained numbers of stradask, are central differences of Stan's density.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from stradask.algorithms.bayes.models.layout import NamedLayout
from stradask.algorithms.bayes.models.named import named_model
from stradask.kernels.bayes.densities import parameter_priors

from .posteriordb import MODELS
from .posteriordb_linear import read
from .posteriordb_processes import PROCESSES
from .posteriordb_series import SERIES

N_POINTS, SPREAD, STEP = 10, 0.3, 1e-5
STAN = {"gp_pois_regr-gp_pois_regr": {"z": "f_tilde"}}  # names that are not those of derived values


def check(folder, programs, name):
    """Largest errors of log densities, and of gradients in parts of the largest slope."""
    import bridgestan

    data, reference = read(folder, name)
    path = Path(programs) / f"{name.split('-')[1]}.so"
    stan = bridgestan.StanModel(str(path if path.exists() else path.with_suffix(".stan")), json.dumps(data))
    density, rows, parameters, priors, derived = MODELS[name](data)
    layout = NamedLayout(parameters, priors)
    model = named_model(density, None, rows, layout.start(), layout=layout, check=False)
    table, reals = layout.tables
    numbers, places = np.append(1.0, reals), np.concatenate([[2, layout.n_values], table])

    def jacobian(q):
        return parameter_priors.place(q, np.zeros(4 * layout.n_values + len(q)), numbers, places)

    def theirs(q):
        p = layout.named(layout.values(q[None])[0])
        values = p._asdict() | ({} if derived is None else derived(p))  # Stan takes those that it knows
        listed = {STAN.get(name, {}).get(key, key): np.asarray(x).tolist() for key, x in values.items()}
        return stan.log_density(stan.param_unconstrain_json(json.dumps(listed)), propto=False, jacobian=False)

    start = layout.start(_middle(layout, reference))
    rng = np.random.default_rng(0)
    points = [start + SPREAD * rng.standard_normal(len(start)) for _ in range(N_POINTS)]
    apart, slopes = [], []
    for q in points:
        logp, gradient = model.logp_grad(q)
        apart.append(logp - jacobian(q) - theirs(q))
        steps = STEP * np.eye(len(q))
        expected = [
            (theirs(q + s) - theirs(q - s) + jacobian(q + s) - jacobian(q - s)) / (2 * STEP) for s in steps
        ]
        slopes.append(np.abs(gradient - expected).max() / np.abs(expected).max())
    return {"name": name, "points": N_POINTS, "values": float(np.ptp(apart)), "gradients": float(max(slopes))}


def _middle(layout, reference):
    """Means of the reference, of parameters that have the same names and shapes there."""
    made = {}
    for name, one in layout.parameters.items():
        entries = [f"{name}[{','.join(str(i + 1) for i in place)}]" for place in np.ndindex(one.shape)]
        entries = entries if one.shape else [name]
        if all(entry in reference for entry in entries):
            values = np.array([reference[entry]["mean"] for entry in entries])
            made[name] = values.reshape(one.shape) if one.shape else float(values[0])
    return made


def main(arguments=None):
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="copy of posteriordb")
    parser.add_argument("programs", type=Path, help="folder of Stan programs")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=[*SERIES, *PROCESSES])
    given = parser.parse_args(arguments)
    print("| posterior | log density | gradient |\n|---|---|---|")
    for name in given.only:
        found = check(given.folder, given.programs, name)
        print(f"| {name} | {found['values']:.1g} | {found['gradients']:.1g} |", flush=True)


if __name__ == "__main__":
    main()
