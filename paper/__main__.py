"""`partita demo`, `reproduce` and `report`."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo", "report", "reproduce"]

ALL = "all"
CACHE, CACHED_FROM = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo")) -> None:
    """Show the point of the library in two minutes.

    It trains on bundled data, compares the learned with the exact normalizer, and draws a picture.
    """
    from ..demo import run

    run(out)


def reproduce(
    names: Annotated[list[str], typer.Argument(help="table1, figure1, ...; or all.")],
    *,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this model; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One split, a smaller grid, fewer steps.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results; what is in it is not run again.")] = Path(
        "out/paper"
    ),
) -> None:
    """Run tables and figures of the paper. An interrupted run goes on where it stood."""
    from .. import datasets
    from ..paper import run

    if unknown := [name for name in names if name not in (*run.NAMES, ALL)]:
        raise ValueError(f"There is no {unknown[0]!r} in the paper; there are {', '.join(run.NAMES)}, and {ALL}.")
    sets = tuple(datasets.entry(name).name for name in dataset or ())
    chosen = run.NAMES if ALL in names else tuple(names)
    with _common_programs():
        run.reproduce(chosen, datasets=sets, models=tuple(model or ()), quick=quick, jobs=jobs, out=out)


@contextlib.contextmanager
def _common_programs() -> Iterator[None]:
    """What one process has compiled, the others find in a folder that ends with the run; unless JAX has one already."""
    if CACHE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="partita-", ignore_cleanup_errors=True) as folder:
        # Nearly all programs are small, and compiled in less than the second from which on JAX would keep them.
        os.environ |= {CACHE: folder, CACHED_FROM: "0"}
        try:
            yield
        finally:
            del os.environ[CACHE], os.environ[CACHED_FROM]


def report(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The --out of reproduce.")],
) -> None:
    """Write the results of `reproduce` as pages.

    They are HTML, Markdown and LaTeX, with pictures, in the same folder.
    """
    from ..paper import report as pages
    from ..paper import run

    for path in pages.write(run.document(folder), folder).values():
        typer.echo(path)
