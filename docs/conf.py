"""How ``make docs`` builds the pages: Sphinx, from the Markdown of this folder and the code's docstrings."""

from stradask import __version__
from stradask.cli.arguments import build_parser

project = "stradask"
author = "the stradask maintainers"
version = release = __version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "myst_parser",
    "numpydoc",
    "sphinxarg.ext",
    "sphinx_gallery.gen_gallery",
]
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/start", "../examples/gallery"],
    "gallery_dirs": ["generated/start", "generated/gallery"],
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 3600,  # seconds on the machine that builds the pages mean nothing elsewhere
    "write_computation_times": False,
}
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"stradask {version}"
html_sidebars = {  # furo's own, and the versions of the site
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/versions.html",
        "sidebar/scroll-end.html",
    ]
}
html_copy_source = False
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's Parameters say more than annotations do
numpydoc_show_class_members = False  # the template lists them once
numpydoc_xref_param_type = False
default_role = "code"
intersphinx_mapping: dict = {}  # a build needs no network


def parser():
    """Return the parser that the page of the command line shows."""
    return build_parser(with_bench=True)


def setup(app):
    """Leave out what scikit-learn adds to every estimator."""
    app.connect("autodoc-skip-member", _is_scikit_learns)


def _is_scikit_learns(app, what, name, obj, skip, options):
    of_routing = name.startswith("set_") and name.endswith("_request")
    return skip or of_routing or name in {"get_metadata_routing", "set_output"}
