"""A small corpus, and how the command line is called."""

import subprocess
import sys

from stradask.cli.arguments import main

PARAMS = ["--param", "n_components=3", "max_iter=30"]


def run_fit(folder, *options, data="docword"):
    """Fit the corpus; words are numbered."""
    vocab = ["--vocab", str(folder / "vocab")]
    return main(["fit", "lda", str(folder / data), *vocab, *PARAMS, *options])


def stradask(*arguments, **options):
    """Start the command line in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "stradask", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
