"""The command line, `partita` or `python -m partita`. What is heavy is imported by the command that needs it."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from . import data, models
from .errors import Commands

__all__ = ["app", "main"]

PACKAGE = __name__.partition(".")[0]

app = typer.Typer(
    name=PACKAGE,
    cls=Commands,
    help="Learn probabilities over label sets and rankings from files, and answer questions about new rows.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
for command in (models.fit, models.predict, models.score):
    app.command()(command)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo")) -> None:
    """Show what the library does in two minutes, on data that need no download.

    It trains on three problems, compares the learned with the exact normalizer, and draws a picture.
    """
    from ..demo import run

    run(out)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"{PACKAGE} {importlib.import_module(PACKAGE).__version__}")
        raise typer.Exit
    return asked


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # Of no command: `errors.Commands` reads --debug.
    pass


def main() -> None:
    """What the script `partita` runs."""
    app(prog_name=PACKAGE)
