"""The command ``stradask plan``: what a fit takes of machines, before it begins."""

from .options import add_output, command, number, positive
from .outputs import show


def plan_lda(args):
    """Print the plan of a fit of topics."""
    from ..algorithms.topics.planning import plan_lda

    left_out = ("run", "debug", "json", "measure", "n_components")
    settings = {name: value for name, value in vars(args).items() if name not in left_out}
    plan = plan_lda(args.n_components, rate="measure" if args.measure else None, **settings)
    show(args, plan.as_dict(), str(plan))


def add_commands(parsers):
    """Add ``plan lda``."""
    actions = command(parsers, "plan", None, "say what a fit takes of machines").add_subparsers(
        title="commands", metavar="MODEL", required=True
    )
    text = "memory, disk, network and hours of a topic model, and whether it fits"
    lda = command(actions, "lda", plan_lda, text, "plan")
    for option, name, said in (
        ("--tokens", "n_tokens", "tokens of the corpus, such as 2e11"),
        ("--vocabulary", "n_words", "words of the corpus"),
        ("--documents", "n_documents", "documents (default: of 200 tokens)"),
        ("--longest", "longest", "tokens of the longest document (default: ten times the mean)"),
    ):
        lda.add_argument(option, dest=name, type=number, metavar="N", help=said)
    lda.add_argument(
        "--files", nargs="+", metavar="FILE", help="count these, as fit takes them, in place of the above"
    )
    lda.add_argument("--topics", dest="n_components", type=number, required=True, metavar="K", help="topics")
    lda.add_argument(
        "--sampler", choices=("gibbs", "light", "warp"), default="warp", help="of topics (%(default)s)"
    )
    for option, name, default, said in (
        ("--sweeps", "max_iter", 200, "sweeps (%(default)s)"),
        ("--n-groups", "n_groups", None, "groups of documents (default: as many as a fit takes or needs)"),
        ("--machines", "n_machines", 1, "machines, a Dask worker each (%(default)s: one process)"),
        ("--threads", "n_threads", 16, "threads of a machine (%(default)s)"),
        ("--cores", "cores", None, "cores that all share, if machines are processes of one"),
    ):
        lda.add_argument(option, dest=name, type=positive, default=default, metavar="N", help=said)
    for name, amount, said in (
        ("memory", "64GB", "of a machine (%(default)s)"),
        ("disk", "500MB/s", "what a machine's disk reads or writes (%(default)s)"),
        ("network", "10Gbit/s", "what a machine receives (%(default)s)"),
    ):
        lda.add_argument(f"--{name}", default=amount, metavar="AMOUNT", help=said)
    lda.add_argument(
        "--measure", action="store_true", help="measure the time of a token on this machine (some seconds)"
    )
    add_output(lda, quiet=False)
