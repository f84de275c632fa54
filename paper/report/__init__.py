"""A report as files: Markdown, LaTeX, pictures, and one HTML page that needs no network."""

import os
from pathlib import Path

from partita import atomic

from ..document import Report
from . import latex, markdown, page, svg
from .words import panel_names

__all__ = ["write"]


def write(report: Report, folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Write report.html, report.md, report.tex and figures/*.svg, all or none; their paths by these names."""
    pictures = zip(report.figures, panel_names(report), strict=True)
    contents = {
        "report.html": page.document(report),
        "report.md": markdown.document(report),
        "report.tex": latex.document(report),
        **{
            f"figures/{name}.svg": svg.file(panel)
            for figure, names in pictures
            for panel, name in zip(figure.panels, names, strict=True)
        },
    }
    paths = {name: Path(folder) / name for name in contents}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write({os.fspath(paths[name]): text.encode() for name, text in contents.items()})
    return paths
