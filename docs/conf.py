"""The site: sphinx-build docs site. Pages are Markdown; the reference is made of docstrings and the command line."""

from importlib.metadata import version as version_of

project = "crew-runner"
author = "the crew-runner authors"
version = release = version_of("crew-runner")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinxcontrib.mermaid",
]
html_theme = "furo"
html_title = "crew-runner"
default_role = "code"

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Links to files of the repository; that each leads to one is a test (tests/docs/test_links.py).
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {
    "members": True,
    "show-inheritance": False,
    "exclude-members": "model_config,model_post_init",
}
