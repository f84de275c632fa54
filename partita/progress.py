"""A progress bar for long runs, on the standard error."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .training import Progress as Step

__all__ = ["ProgressBar"]


class ProgressBar:
    """A title, a bar, a text, the time spent and the time left.

    Inside `with ProgressBar() as bar:`, `fit(..., callbacks=[bar])` shows the step, the loss and the validation score.
    Other loops call `update`.

    Parameters
    ----------
    title : str, default="fit"
        What is being done.
    text : str, default="compiling"
        What to show before the first update.
    """

    def __init__(self, title: str = "fit", text: str = "compiling"):
        columns = (BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
        self.task = self.bar.add_task(title, total=None, text=text)

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def __call__(self, step: Step) -> None:
        text = f"{step.step}/{step.steps} loss {step.loss:.4g}"
        if step.validation is not None:
            text += f", validation {step.validation:.4g}"
        self.update(step.step, step.steps, text)

    def update(self, completed: int, total: int, text: str) -> None:
        """Show how much is completed.

        Parameters
        ----------
        completed, total : int
            How many of how many steps are done.
        text : str
            A text beside the bar.
        """
        self.bar.update(self.task, completed=completed, total=total, text=text)
