"""Lay the package out as it is installed, in links, for tools that follow no mapping of setup.cfg.

python tests/lint_tree.py FOLDER
"""

import configparser
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lay_out(folder):
    """Link the folders at the root, and the files of `stradask`, into ``folder/stradask``."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    mapped = [line.split(" = ") for line in settings["options"]["package_dir"].strip().splitlines()]
    top = [ROOT / place for package, place in mapped if package.count(".") == 1 and "/" not in place]
    package = Path(folder).resolve() / "stradask"
    package.mkdir(parents=True, exist_ok=True)
    for target in [*top, *(ROOT / "stradask").iterdir()]:
        link = package / target.name
        if not link.is_symlink():
            link.symlink_to(target)


if __name__ == "__main__":
    lay_out(sys.argv[1])
