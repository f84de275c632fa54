"""`partita data`: the data sets that are known by name."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..datasets import State

__all__ = ["app"]

app = typer.Typer(help="Data sets that are known by name.", no_args_is_help=True, rich_markup_mode=None)

Names = Annotated[list[str], typer.Argument(help="As in `partita data list`.")]
Some = Annotated[list[str] | None, typer.Argument(help="As in `partita data list`; without one, all.")]


@app.command("list")
def list_() -> None:
    """Show the sets, and where they are."""
    from .. import datasets
    from .outputs import show

    sets = datasets.SETS.values()
    show(
        {
            "name": [known.name for known in sets],
            "task": [known.task for known in sets],
            "rows": [" + ".join(map(str, known.rows)) for known in sets],
            "features": [str(known.features) for known in sets],
            "labels": [str(known.k) for known in sets],
            "where": [_place(datasets.check(known.name)) for known in sets],
            "note": [known.note for known in sets],
        }
    )


@app.command()
def fetch(names: Names) -> None:
    """Download sets that are not on this machine."""
    from .. import datasets

    known = [datasets.entry(name).name for name in names]
    for name in known:
        for path in datasets.fetch(name):
            typer.echo(f"{name}: {path}")


@app.command()
def check(names: Some = None) -> None:
    """Say which files are here, and as published.

    If one is not as published, the exit code is 1.
    """
    from .. import datasets
    from .outputs import show

    states = [(name, state) for name in names or datasets.names() for state in datasets.check(name)]
    show(
        {
            "name": [name for name, _ in states],
            "file": [str(state.path or state.file.path) for _, state in states],
            "checksum": [state.verdict for _, state in states],
            "sha256": [state.actual or "" for _, state in states],
        }
    )
    wrong = [str(state.path) for _, state in states if state.verdict == "wrong"]
    if wrong:
        raise datasets.DataError(f"Not as published: {', '.join(wrong)}. Replace or delete them.")


def _place(states: "tuple[State, ...]") -> str:
    """The folder of a set, if all of it is here."""
    folders = [str(state.path.parent) for state in states if state.path is not None]
    return folders[0] if len(folders) == len(states) else ""
