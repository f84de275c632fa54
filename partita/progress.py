"""What a person sees of a long run: a progress bar, as a callback of `fit`."""

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .solver import Progress as Told

__all__ = ["ProgressBar", "bar"]


def bar(said: ProgressColumn) -> Progress:
    """What is going on, how far it is in pictures and as `said`, time spent and time left, on the standard error."""
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(TextColumn("{task.description}"), BarColumn(), said, *times, console=Console(stderr=True))


class ProgressBar:
    """`fit(..., callbacks=[bar])` inside `with ProgressBar() as bar:`.

    Shows the step, the loss, the validation measure, time spent and time left, on the standard error.
    """

    def __init__(self, title: str = "fit"):
        self.bar = bar(TextColumn("{task.fields[said]}"))
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
