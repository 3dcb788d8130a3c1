"""How Sphinx builds the site: `make docs`. The pages are the Markdown files of the repository as they are.

The sidebar is made from the tables of `docs/index.md`, which are the one list of pages.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from tomllib import loads

ROOT = Path(__file__).parents[1]

project = "apples"
author = "The apples developers"
version = release = loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [
    *(f"{name}/**" for name in (".[a-z]*", "apples", "nws", "hat", "blueprints", "build", "runs")),
    *(
        f"{name}/**"
        for name in ("benchmarks", "dist", "examples", "experiments", "packaging", "tests")
    ),
]
root_doc = "docs/index"
myst_heading_anchors = 4  # as GitHub has them: the same links lead to the same places on both
nitpicky = True

html_theme = "furo"
html_title = f"apples {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

SECTION = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
LINK = re.compile(r"\]\(([\w./-]+)\.md\)")
MORE = ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY"]


def with_sidebar(app, name, source):
    if name != root_doc:
        return
    parts = SECTION.split(source[0])
    for title, text in [*zip(parts[1::2], parts[2::2], strict=True), ("Project", "")]:
        pages = dict.fromkeys(LINK.findall(text)) if text else [f"../{one}" for one in MORE]
        listed = "\n".join(pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


MODEL = "lublin:jobs=300,processors=64"
POLICIES = ("--policy", "easy", "--policy", "sd", "--nodes", "16", "--cores-per-node", "4")


def with_gallery(app, problem):
    """Draw the pages of docs/gallery: of the runs recorded there, and of a simulation that is repeated."""
    recorded = ROOT / "docs/gallery"
    if problem is not None or app.builder.name != "html" or not recorded.is_dir():
        return
    from apples.jobs.pages.demo import demo_page
    from apples.jobs.pages.run import run_page

    out = Path(app.outdir) / "docs/gallery"
    out.mkdir(exist_ok=True)
    for name, page in (("run", run_page), ("demo", demo_page)):
        document = json.loads((recorded / f"{name}.json").read_text("utf-8"))
        (out / f"{name}.html").write_text(page(document), "utf-8")
    report = [sys.executable, "-m", "apples", "report", MODEL, *POLICIES, "--out"]
    subprocess.run([*report, out / "simulation.html"], check=True, stdout=subprocess.DEVNULL)


def with_front_door(app, problem):
    if problem is None and app.builder.name == "html":
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">'
        (Path(app.outdir) / "index.html").write_text(f"{page}<title>apples</title>\n")


def setup(app):
    app.connect("source-read", with_sidebar)
    app.connect("build-finished", with_front_door)
    app.connect("build-finished", with_gallery)
