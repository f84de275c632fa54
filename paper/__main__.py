"""`python -m paper table1 --quick` trains the cells of a table and writes the report of all results.

What is heavy is imported by the command that needs it.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from partita.cli.errors import Commands

__all__ = ["app", "main", "with_command"]

ALL, OUT = "all", Path("out/paper")
RUN, REPORT = "run", "report"
CACHE, CACHE_FROM_SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"

app = typer.Typer(
    cls=Commands,
    help="Run the experiments of the paper. The command `run` may be left out: python -m paper table1 --quick.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    # `Commands` reads --debug.
    pass


@app.command(RUN)
def run(
    names: Annotated[list[str], typer.Argument(help="table1, figure1, ...; or all.")],
    *,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this model; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One split, a smaller grid, fewer steps.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the results; what it holds is not computed again.")] = OUT,
) -> None:
    """Compute tables and figures of the paper and write the report.

    Results are stored one by one: the same command continues an interrupted run.
    """
    from partita import datasets

    from . import run as experiments

    if unknown := [name for name in names if name not in (*experiments.NAMES, ALL)]:
        raise ValueError(
            f"There is no {unknown[0]!r} in the paper; there are {', '.join(experiments.NAMES)}, and {ALL}."
        )
    sets = tuple(datasets.entry(name).name for name in dataset or ())
    selected = experiments.NAMES if ALL in names else tuple(names)
    with _shared_compilation_cache():
        experiments.reproduce(selected, datasets=sets, models=tuple(model or ()), quick=quick, jobs=jobs, out=out)


@contextlib.contextmanager
def _shared_compilation_cache() -> Iterator[None]:
    """Processes share compiled programs in a temporary folder, unless JAX has a cache already."""
    if CACHE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="partita-", ignore_cleanup_errors=True) as folder:
        # Nearly all programs compile in less than the second from which on JAX stores them by default.
        os.environ |= {CACHE: folder, CACHE_FROM_SECONDS: "0"}
        try:
            yield
        finally:
            del os.environ[CACHE], os.environ[CACHE_FROM_SECONDS]


@app.command(REPORT)
def report(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The --out of a run.")],
) -> None:
    """Write the stored results as HTML, Markdown and LaTeX, with pictures, into the same folder."""
    from . import report as pages
    from . import run as experiments

    for path in pages.write(experiments.document(folder), folder).values():
        typer.echo(path)


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments of the command line, with the command `run` where they name none."""
    start = 1 if list(arguments[:1]) == ["--debug"] else 0
    if len(arguments) == start or arguments[start] in (RUN, REPORT, "--help"):
        return list(arguments)
    return [*arguments[:start], RUN, *arguments[start:]]


def main() -> None:
    """The entry of `python -m paper`."""
    app(with_command(sys.argv[1:]), prog_name="python -m paper")


if __name__ == "__main__":
    main()
