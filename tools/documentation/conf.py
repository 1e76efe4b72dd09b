"""Sphinx's configuration of the site."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes

import spillway

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Spillway"
author = "The Spillway developers"
version = release = spillway.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
default_role = "code"
highlight_language = "none"
nb_execution_mode = "off"
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
# Blocks of JSON with an ellipsis, and the like.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
linkcheck_anchors = False
linkcheck_timeout = 20
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"Spillway {release}"
html_static_path = ["_static"]
html_css_files = ["spillway.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
toc_object_entries = False
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _as_restructured_text(*arguments: Any) -> None:
    """Lists, indented code and `names`s of a docstring, as reStructuredText needs them."""
    what, lines = arguments[1], arguments[-1]
    text = "\n".join(lines)
    text = re.sub(r"(`[^`\n]+`)(\w?)", lambda span: "\\ ".join(filter(None, span.groups())), text)
    text = re.sub(r"(?<=[^\n])\n(?= *- )", "\n\n", text)
    text = re.sub(r"^(?![-: ])(.+)\n\n(?=    )", r"\1\n\n::\n\n", text, flags=re.MULTILINE)
    # Of a property, napoleon takes the text before a colon in the first line for a type: that line
    # becomes an empty comment.
    lines[:] = ["..", "", *text.split("\n")] if what == "property" else text.split("\n")


def _navigate(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Shows the sections, and of the page's own section all pages.

    Sphinx would copy and resolve the whole tree of contents for every page, which takes three
    quarters of the build.
    """
    below, titles = app.env.toctree_includes, app.env.titles
    above = {child: name for name, children in below.items() for child in children}
    current = {page}
    while page in above and (page := above[page]) not in current:
        current.add(page)

    def items(names: list[str], level: int) -> str:
        lines = []
        for name in names:
            kind = f"toctree-l{level}{' current' if name in current else ''}"
            inside = items(below.get(name, []), level + 1) if name in current else ""
            link = f'<a class="reference internal" href="{context["pathto"](name)}">'
            lines.append(f'<li class="{kind}">{link}{_title(titles[name])}</a>{inside}</li>')
        return f"<ul>{''.join(lines)}</ul>" if lines else ""

    trees = app.env.tocs[app.config.root_doc].findall(addnodes.toctree)
    parts = [
        f'<p class="caption"><span class="caption-text">{tree["caption"]}</span></p>'
        + items(tree["includefiles"], 1)
        for tree in trees
    ]
    context["toctree"] = lambda **_options: "".join(parts)


def _title(node: nodes.title) -> str:
    """A title as HTML: text and code."""
    return "".join(
        f"<code>{html.escape(part.astext())}</code>"
        if isinstance(part, nodes.literal)
        else html.escape(part.astext())
        for part in node.children
    )


def setup(app: Sphinx) -> None:
    """Connects what docstrings need before they are read as NumPy's, and the navigation."""
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)
    app.connect("html-page-context", _navigate, priority=400)
