"""Add built pages to a site with a folder for each version.

    python docs/versions.py docs/_build/html SITE VERSION

SITE/VERSION is replaced by the built pages. SITE/versions.json lists the versions, newest first, ``dev``
before them; the sidebar of every page, also of older versions, reads it. SITE/index.html leads to the newest
release, to ``dev`` while there is none.
"""

import argparse
import json
import os
import re
import shutil
from pathlib import Path

from packaging.version import InvalidVersion, Version

REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>stradask</title>
<meta http-equiv="refresh" content="0; url={name}/index.html">
<a href="{name}/index.html">stradask {name}</a>
"""


def add(built, site, name):
    """Put the pages of one version into a site, and renew its list of versions and its first page."""
    built, site = Path(built), Path(site)
    if not (built / "index.html").is_file():
        raise SystemExit(f"{built} has no index.html; run `make docs` first")
    if name != "dev":
        try:
            Version(name)
        except InvalidVersion:
            raise SystemExit(f"VERSION is {name!r}; give dev or a version such as 0.2.0") from None
    site.mkdir(parents=True, exist_ok=True)
    fresh = site / f".{name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(built, fresh, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    shutil.rmtree(site / name, ignore_errors=True)
    fresh.rename(site / name)
    names = versions(site)
    released = [one for one in names if one != "dev" and not Version(one).is_prerelease]
    _write(site / "versions.json", json.dumps(names, indent=1) + "\n")
    _write(site / "index.html", REDIRECT.format(name=(released or names)[0]))
    _write(site / ".nojekyll", "")  # pages of GitHub leave out folders such as _static else


def versions(site):
    """Return the versions of a site by its folders: dev, then from the newest to the oldest."""
    names = [folder.name for folder in Path(site).iterdir() if (folder / "index.html").is_file()]
    numbered = sorted((name for name in names if re.match(r"\d", name)), key=Version, reverse=True)
    return ["dev"] * ("dev" in names) + numbered


def _write(path, text):
    aside = path.with_name(path.name + ".new")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for word in ("built", "site", "version"):
        parser.add_argument(word)
    given = parser.parse_args()
    add(given.built, given.site, given.version)
