"""A parser whose errors are one line, and to which options that it does not know are parameters."""

import argparse

from ..errors import in_brief, shortened

DEFAULTS = {"n_jobs": -1, "random_state": 0}  # of options that are parameters of models


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and whose examples keep their lines.

    With `takes_parameters`, an option that it does not know is a parameter of the model: ``--alpha 2`` is
    ``--param alpha=2``, and without a value it is True.
    """

    takes_parameters = False
    _last_taken = None  # the last word that became the value of a parameter, after its option

    def __init__(self, **options):
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args=None, namespace=None):
        """Parse; options that are not known become those of ``--param``."""
        if not self.takes_parameters:
            return super().parse_known_args(args, namespace)
        given, kept, parameters = list(args or ()), [], []
        while given:
            word = given.pop(0)
            option, equals, value = word.partition("=")
            if not word.startswith("--") or word == "--" or option in self._option_string_actions:
                kept.append(word)
                continue
            if not equals:
                value = given.pop(0) if given and not given[0].startswith("--") else "True"
                self._last_taken = (option, value) if value != "True" else self._last_taken
            parameters.append(f"{option[2:].replace('-', '_')}={value}")
        return super().parse_known_args(kept + (["--param", *parameters] if parameters else []), namespace)

    def error(self, message):
        """Print a line and exit with status 2."""
        if self._last_taken is not None and "arguments are required" in message:
            option, value = self._last_taken
            message += f"; {shortened(value)} was taken as the value of {option}: name MODEL and DATA first"
        self.exit(2, f"{self.prog}: error: {in_brief(message, 400)} ({self.prog} --help)\n")
