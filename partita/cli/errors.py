"""From an exception to one sentence on the standard error and an exit code: 1 for failures, 2 for wrong usage."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["Commands"]

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
# Of click or, in newer versions, of typer's copy of it; BadParameter is its public child in both.
UsageError: Any = typer.BadParameter.__bases__[0]


class Commands(TyperGroup):
    """Commands that report an error as one sentence, and with --debug before the command also its traceback."""

    def invoke(self, ctx: Any) -> Any:
        with _sentences(debug=ctx.params["debug"]), _plain_warnings():
            try:
                return super().invoke(ctx)
            finally:
                # Errors of the output are reported here, not when Python ends.
                sys.stdout.flush()


@contextlib.contextmanager
def _sentences(debug: bool) -> Iterator[None]:
    try:
        yield
    except (typer.Exit, typer.Abort, UsageError):
        raise
    except KeyboardInterrupt as error:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(INTERRUPTED) from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()
        if debug:
            traceback.print_exception(error)
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"Error: {_sentence(error)}", err=True)
        raise typer.Exit(_code(error)) from error


def _sentence(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'The output could not be written'}: {error.strerror}."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{message}. Install it: pip install {error.name}."
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return message
    if isinstance(error, MemoryError):
        return f"There is not enough memory. {message}".strip()
    kind = type(error).__name__
    return f"unexpected {kind}: {message.rstrip('.')}. Put --debug before the command for the traceback."


def _code(error: Exception) -> int:
    """A ValueError is wrong usage, unless it is about the content of a file."""
    from ..datasets import DataError
    from ..persistence import FileError

    return USAGE if isinstance(error, ValueError) and not isinstance(error, DataError | FileError) else FAILURE


def _drop_output() -> None:
    """Discard the rest of the output: Python would try to write it again at its end, and fail again."""
    # The output of tests is no file.
    with contextlib.suppress(OSError):
        output = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings as one sentence, without the line of code."""

    def show(message: Warning | str, *_: Any) -> None:
        typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        # Columns of files are matched by name before they become arrays, which have no names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
