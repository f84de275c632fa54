"""The command line, `partita` or `python -m partita`. What is heavy is imported by the command that needs it."""

import importlib
from typing import Annotated

import typer

from . import data, models, paper
from .errors import Commands

__all__ = ["app", "main"]

PACKAGE = __name__.partition(".")[0]

app = typer.Typer(
    name=PACKAGE,
    cls=Commands,
    help="Probabilities over label sets and rankings: learn them from files, ask them, and redo the paper.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
for command in (models.fit, models.predict, models.score, paper.demo, paper.reproduce, paper.report):
    app.command()(command)


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
