"""The command line as ``python -m stradask``, and what the script ``stradask`` calls."""

import sys

from .cli.arguments import main

if __name__ == "__main__":
    sys.exit(main())
