"""One system on one model, in a process of its own: a first call, and later ones.

``python -P peers_worker.py JOB.json`` is started by ``peers.py``, perhaps with the interpreter of an
environment that has the peers and not stradask. Draws of call number i are left as ``i.npz``, seconds and
counts as ``figures.json``. CPU seconds are those of all threads and of child processes, such as compilers.
"""

import importlib
import json
import resource
import sys
from pathlib import Path

import numpy as np

_NEEDED = {  # others need JAX
    "stradask": ("stradask.benchmarks.experiments.mcmc.peers_densities",),
    "nutpie": ("arviz", "nutpie"),
}
_JAX = ("jax", "blackjax", "numpyro.infer")


def cpu_seconds():
    """CPU seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Stradask:
    """`stradask.sample` with the compiled densities of ``posteriordb.py`` and ``peers_densities.py``."""

    def __init__(self, name, data, counts, *, sampler):
        import stradask
        from stradask.benchmarks.experiments.mcmc import peers_densities, posteriordb

        self.settings = counts | {"sampler": sampler, "n_jobs": 1}
        self.aliases, self.counted = posteriordb.ALIASES.get(name, {}), {}
        if sampler == "loops":
            self.density, self.settings["data"], names = _loops().named(name, data)
            self.settings |= {"parameters": {"q": stradask.real(len(names))}, "sampler": "nuts"}
            self.aliases = {posteriordb.from_one(one): f"q[{j + 1}]" for j, one in enumerate(names)}
        elif name == "student":
            self.density = student_density()
            self.settings |= {"data": np.column_stack([data["X"], data["y"]]), "names": student_names(data)}
        else:
            self.density, rows, parameters, priors, derived = peers_densities.MADE[name](data)
            self.settings |= {"data": rows, "parameters": parameters, "priors": priors}
            self.settings["deterministic"] = derived
        self._count()

    def sample(self, seed):
        """Return draws by name, numbers of gradients, and what weighted draws are worth."""
        import warnings

        import stradask
        from stradask.benchmarks.experiments.mcmc.posteriordb import from_one

        self.counted.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stradask.errors.PosteriorWarning)  # draws are judged elsewhere
            posterior = stradask.sample(self.density, random_state=seed, **self.settings)
        draws = posterior.draws.reshape(self.settings["n_chains"], -1, posterior.draws.shape[1])
        columns = {from_one(name): draws[:, :, j] for j, name in enumerate(posterior.names)}
        columns |= {theirs: columns[ours] for theirs, ours in self.aliases.items()}
        figures = {"method": posterior.method.split(":")[0], **self.counted}
        if figures["method"] == "laplace":
            figures["worth"] = float(posterior.diagnostics.row("importance ESS")["value"])
        return columns, figures

    def _count(self):
        """Count gradients of all chains; the posterior does not keep those of a warm-up."""
        from stradask.algorithms.bayes.chains import adaptation, sampling
        from stradask.algorithms.bayes.chains.chain import WARM_UP, advance_all

        def counting(model, states, *args, **settings):
            made = advance_all(model, states, *args, **settings)
            for before, (_, draws) in zip(states, made, strict=True):
                name = "warm_up_gradients" if before.draw >= WARM_UP else "gradients"
                self.counted[name] = self.counted.get(name, 0) + int(draws.statistics["n_gradients"].sum())
            return made

        adaptation.advance_all = sampling.advance_all = counting


class Nutpie:
    """`nutpie.sample` on a Stan program through BridgeStan, or on a compiled function of Python."""

    def __init__(self, name, data, counts, *, stan, loops=False, **settings):
        import nutpie

        if loops:
            self.model = self._function(*_loops().looped(name, data))
        elif stan is None:
            rows = np.column_stack([data["X"], data["y"]])
            self.model = self._function(student_density(), rows, student_names(data))
        else:
            self.model = nutpie.compile_stan_model(filename=stan).with_data(**data)
        self.settings = {
            "draws": counts["n_samples"],
            "tune": counts["n_warmup"],
            "chains": counts["n_chains"],
        }
        self.settings |= {"cores": 1, "progress_bar": False} | settings

    def sample(self, seed):
        """Return draws by name, and the numbers of gradients."""
        import nutpie

        made = nutpie.sample(self.model, seed=seed, **self.settings)
        draws = {name: made.posterior[name].values for name in made.posterior.data_vars}
        return draws, {
            "gradients": int(made.sample_stats["n_steps"].sum()),
            "warm_up_gradients": int(made.warmup_sample_stats["n_steps"].sum()),
        }

    @staticmethod
    def _function(density, rows, names):
        """The model of a density of q; entries but one, the first or the last, are those of ``beta``."""
        import numba
        from nutpie.compiled_pyfunc import from_pyfunc

        d = len(names)
        (other,) = (j for j, name in enumerate(names) if not name.startswith("beta["))
        many = slice(1, None) if other == 0 else slice(None, -1)

        @numba.njit
        def value_and_gradient(q, rows):
            g = np.zeros(len(q))
            return density(q, rows, g), g

        def make_logp():
            return lambda q: value_and_gradient(q, rows)

        def make_expand(*_):
            return lambda q, **_: {"beta": np.asarray(q[many]), names[other]: np.asarray(q[other])}

        kinds = [np.dtype("float64")] * 2
        return from_pyfunc(d, make_logp, make_expand, kinds, [(d - 1,), ()], ["beta", names[other]])


def _loops():
    """The module of loops; an environment of peers has no stradask."""
    sys.path.insert(0, str(Path(__file__).parent))
    import peers_loops

    return peers_loops


def student_names(data):
    """Names of the entries of q of `student_density`."""
    return [*(f"beta[{j}]" for j in range(np.shape(data["X"])[1])), "log_sigma"]


def student_density():
    """A regression with Student noise of four degrees of freedom; rows are (columns, response)."""
    import numba

    @numba.njit(error_model="numpy")
    def log_density(q, rows, g):
        n, d = rows.shape[0], rows.shape[1] - 1
        precision = np.exp(-q[d])
        total = -n * q[d] - 0.5 * q[d] * q[d]
        g[d] -= q[d] + n
        for j in range(d):
            total -= 0.02 * q[j] * q[j]
            g[j] -= 0.04 * q[j]
        for i in range(n):
            z = rows[i, d]
            for j in range(d):
                z -= rows[i, j] * q[j]
            z *= precision
            u = 1 + 0.25 * z * z
            total -= 2.5 * np.log(u)
            slope = 1.25 * z / u
            for j in range(d):
                g[j] += slope * precision * rows[i, j]
            g[d] += slope * z
        return total

    return log_density


def made(job, data):
    """Return the system of a job, by its name."""
    name, counts = job["model"], job["counts"]
    if job["system"].startswith("stradask"):
        return Stradask(name, data, counts, sampler=job["system"].partition(" ")[2])
    if job["system"].startswith("nutpie"):
        low_rank = job["system"].endswith("low rank")
        settings = {"low_rank_modified_mass_matrix": True} if low_rank else {}
        settings["loops"] = job["system"].endswith("loops")
        return Nutpie(name, data, counts, stan=job["stan"], **settings)
    sys.path.insert(0, str(Path(__file__).parent))
    from peers_numpyro import BlackJAX, NumPyro

    if job["system"] == "blackjax":
        return BlackJAX(name, data, counts)
    return NumPyro(name, data, counts, dense=job["system"].endswith("dense"))


def prepare(system):
    """Import what a system needs, which is no part of a call."""
    modules = [importlib.import_module(name) for name in _NEEDED.get(system.partition(" ")[0], _JAX)]
    if modules[0].__name__ == "jax":
        modules[0].numpy.zeros(1).block_until_ready()  # starts its threads


def main(path):
    """Run the job of a file."""
    job = json.loads(Path(path).read_text())
    folder = Path(path).parent
    data = json.loads(Path(job["data"]).read_text())
    prepare(job["system"])
    figures, system = [], None
    for call in range(1 + job["later"]):
        started = cpu_seconds()
        if system is None:
            system = made(job, data)
        draws, found = system.sample(job["seed"] + call)
        figures.append(found | {"cpu_seconds": cpu_seconds() - started})
        np.savez(folder / f"{call}.npz", **draws)
    (folder / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
