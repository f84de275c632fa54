"""What a person sees of a long run: a progress bar, as a callback of `fit`."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .solver import Progress as Told

__all__ = ["ProgressBar"]


class ProgressBar:
    """`fit(..., callbacks=[bar])` inside `with ProgressBar() as bar:`.

    Shows the step, the loss, the validation measure, time spent and time left, on the standard error.
    """

    def __init__(self, title: str = "fit"):
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task(title, total=None, said="compiling")

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def __call__(self, told: Told) -> None:
        said = f"{told.step}/{told.steps} loss {told.loss:.4g}"
        if told.measure is not None:
            said += f", held out {told.measure:.4g}"
        self.bar.update(self.task, completed=told.step, total=told.steps, said=said)
