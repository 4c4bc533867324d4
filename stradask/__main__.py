"""The command line as ``python -m stradask``, and the entry point of the script ``stradask``."""

import sys

from .cli.arguments import main

if __name__ == "__main__":
    sys.exit(main())
