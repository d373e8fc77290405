"""The site: ``make docs`` builds it, ``make docs-serve`` shows it."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

import evodrop

project = "evodrop"
author = "The evodrop authors"
copyright = author  # noqa: A001
version = release = evodrop.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "gallery"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
html_math_renderer = "mathml"  # see write_math
suppress_warnings = ["config.cache", "myst.header"]  # an included file may begin with its own title

autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"  # the signature has them, and napoleon's Args explain them
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_use_ivar = True  # the fields of a named tuple are described once
napoleon_custom_sections = [("Shape", "notes_style")]
# No inventory of another project is at hand offline, so its names cannot be links.
nitpick_ignore_regex = [("py:.*", r"(?!evodrop\.).*"), ("py:.*", r"evodrop\..*\._.*"), ("py:.*", r"evodrop\._.*")]

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 0,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = "evodrop"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {
    page.stem: [] for page in Path(__file__).parent.glob("*.md")
}  # only the API and the gallery have pages

ROOT = Path(__file__).parents[1]
PAGES = {  # files of the repository that the site shows on pages of its own
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "README.md": "index",
    "results/README.md": "reproduction",
}


class LinksToTheRepository(SphinxPostTransform):
    """Files link to each other as they do in the repository. Here a file is its page, or its name in plain text.

    A link to what is neither a page nor a file stays, and Sphinx warns of it.
    """

    default_priority = 5  # before links are resolved

    def run(self, **_: Any) -> None:
        for link in list(self.document.findall()):
            target = link.get("reftarget", "") if isinstance(link, nodes.Element) else ""
            if link.__class__.__name__ not in ("pending_xref", "download_reference") or "://" in target:
                continue
            path = target.partition("#")[0]
            for folder, ending in product((ROOT / "docs", ROOT, ROOT / "results"), ("", ".md")):  # MyST may cut it off
                file = Path(os.path.normpath(folder / (path + ending)))
                if path and file.exists() and file.is_relative_to(ROOT):
                    break
            else:
                continue
            name = file.relative_to(ROOT).as_posix()
            if name == "results":
                name = "results/README.md"
            if name in PAGES or (name.startswith("docs/") and name.endswith(".md")):
                page = PAGES.get(name, name.removeprefix("docs/").removesuffix(".md"))
                uri = self.app.builder.get_relative_uri(self.env.docname, page)
                new = nodes.reference("", "", *link.children, internal=True, refuri=uri)
            else:
                new = nodes.literal("", name)
            link.replace_self(new)


def skip_what_others_document(_app: Sphinx, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Members of torch's and scikit-learn's classes, and the fields of named tuples."""
    home = getattr(getattr(member, "fget", member), "__module__", None) or ""
    return skip or not home.startswith("evodrop")


def write_math(writer: Any, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw by themselves: no script, no network, and a mistake is a warning.

    docutils lacks a few of LaTeX's commands, which have equals here.
    """
    tex = re.sub(r"\\[Bb]ig[lr]?(?![a-z])", "", node.astext()).replace("\\dots", "\\ldots")
    tex = re.sub(r"\\([td]?frac)(\d)(\d)", r"\\\1{\2}{\3}", tex)
    block = isinstance(node, nodes.math_block)
    try:
        formula = tex2mathml(tex, as_block=block)
    except MathError as error:
        logging.getLogger(__name__).warning("%r: %s", tex, error, location=node)
        formula = ""
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("autodoc-skip-member", skip_what_others_document)
    app.add_post_transform(LinksToTheRepository)
