"""The command line, `partita` or `python -m partita`. What is heavy is imported by the command that needs it."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Commands

if TYPE_CHECKING:
    from ..datasets import State

__all__ = ["app", "main"]

PACKAGE = __name__.partition(".")[0]

Input = Annotated[
    Path,
    typer.Argument(
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="CSV with a line of column names, ARFF, LIBSVM or parquet; also packed as .gz or .bz2.",
    ),
]
Model = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, metavar="MODEL", help="The file that `partita fit` wrote.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Unpickle the reference of a model that was fitted with --reference, which executes any code in that "
        "file: for files that you trust.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file if it exists.")]
Name = str | None

Labels = Annotated[
    Name,
    typer.Option(
        metavar="N|A,B,...",
        help="Label sets: the 0/1 columns of the labels, by name or as the number of last columns. Rankings: the "
        "column of orderings such as b>a>c, best first; by default the last one.",
    ),
]
Network = Annotated[Name, typer.Option(help="From features to logits: mlp (default), linear or resnet.")]
Coupling = Annotated[
    Name,
    typer.Option(
        help="From logits and an output to an energy. Label sets: pairwise (default), unary, pairwise-of-x, "
        "pairwise-full, pairwise-concave or low-rank. Rankings: permutahedron (default) or birkhoff."
    ),
]
Objective = Annotated[
    Name,
    typer.Option(
        help="What training minimizes: auto (default; exact where it is cheap, else min-min), min-min, exact, min-max, "
        "mcmc, nce, pseudo-likelihood, ratio-matching, concrete-score-matching, fenchel-young or perceptron."
    ),
]
Loss = Annotated[
    Name,
    typer.Option(help="Its kind: logistic (default), sparsemax, tsallis, jensen-shannon, hellinger or reverse-kl."),
]
Tau = Annotated[
    Name,
    typer.Option(
        help="The learned log-partition: residual (default; a bound plus a learned correction), logits (a network of "
        "the logits), or as in the paper of the features: mlp, resnet, icnn, linear or constant."
    ),
]
Proposal = Annotated[
    Name,
    typer.Option(help="Where min-min and nce draw outputs from: surrogate (default) or reference (Algorithm 1)."),
]
Train = Annotated[
    Name,
    typer.Option(
        "--train",
        help="Which part of the model is trained: both (default), g (the energy), or alternate (steps of g and of tau "
        "in turn). tau alone needs a trained energy, which only Python can pass.",
    ),
]
Decision = Annotated[
    Name,
    typer.Option(
        help="The criterion that predictions are best for. Label sets: mode (default, the most probable set), hamming, "
        "f1 or micro_f1. Rankings: mode (default), borda or kemeny."
    ),
]
Reference = Annotated[
    Name,
    typer.Option(
        help="The distribution that the energy corrects: uniform (default), or extra-trees, a forest fitted first."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="Training steps; by default 10 passes over the rows, at least 600 and at most 3,000."),
]
EnsembleSize = Annotated[
    int | None, typer.Option(min=1, help="How many models are trained and averaged; by default 5.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Folder for the state of the training: the same command continues a run that was killed."),
]

# The scores of `partita score`, and which way is better.
SCORES = {
    "rows": ("rows", ""),
    "whole_rows": ("rows without missing labels", ""),
    "subset_accuracy": ("subset accuracy", "higher"),
    "micro_f1": ("micro-F1", "higher"),
    "hamming_loss": ("Hamming loss", "lower"),
    "kendall": ("Kendall tau", "higher"),
    "spearman": ("Spearman rho", "higher"),
    "log_likelihood": ("mean log p(y|x), in nats", "higher"),
}

app = typer.Typer(
    name=PACKAGE,
    cls=Commands,
    help="Learn the joint probability of label sets or rankings from a file, and predict for new rows.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data = typer.Typer(
    help="List, download and check the data sets that are known by name.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data, name="data")


@app.command()
def fit(
    file: Input,
    *,
    task: Annotated[str, typer.Option(metavar="multilabel|ranking", help="What the outputs are.")],
    out: Annotated[Path, typer.Option(help="The file to write the model to.")],
    labels: Labels = None,
    network: Network = None,
    coupling: Coupling = None,
    objective: Objective = None,
    loss: Loss = None,
    tau: Tau = None,
    proposal: Proposal = None,
    train: Train = None,
    decision: Decision = None,
    reference: Reference = None,
    steps: Steps = None,
    ensemble_size: EnsembleSize = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same model.")] = None,
    checkpoint: Checkpoint = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    force: Force = False,
) -> None:
    """Learn a model from a file.

    Example: partita fit train.csv --task multilabel --labels red,green,blue --out model.partita
    """
    from .. import datasets, estimators
    from . import answers

    for path in (out, Path(f"{out}.sklearn")) if reference not in (None, "uniform") else (out,):
        answers.check_writable(path, force)
    options: dict[str, Any] = {"network": network, "coupling": coupling, "objective": objective, "loss": loss}
    options |= {"tau": tau, "proposal": proposal, "train": train, "decision": decision, "steps": steps}
    options |= {"reference": _reference(reference, task), "ensemble_size": ensemble_size}
    options |= {"random_state": seed, "verbose": int(not quiet)}
    any_task: Any = task
    rows = datasets.read(file, task=any_task, labels=_columns(labels, task))
    answers.check_training_data(rows)
    kind = estimators.LabelRanker if task == "ranking" else estimators.MultilabelClassifier
    model: Any = kind(classes=rows.classes, **{name: value for name, value in options.items() if value is not None})
    answers.fit_estimator(model, rows, checkpoint)
    with answers.name_file(out):
        model.save(out)
    if not quiet:
        n, d = rows.x.shape
        typer.echo(f"{out}: learned from {n} rows with {d} features and {len(rows.classes)} labels.")


@app.command()
def predict(
    model: Model,
    file: Input,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: .csv, .jsonl or .parquet; by default CSV to standard output."),
    ] = None,
    proba: Annotated[
        bool,
        typer.Option(
            "--proba",
            help="Add the probabilities of single labels: columns P(a), or for rankings P(a=0) for a at rank 0, which "
            "is best.",
        ),
    ] = False,
    trust: Trust = False,
    force: Force = False,
) -> None:
    """Predict the output of each row of a file.

    The column log_prob is the log of the probability of the whole prediction. Columns are matched by their names;
    those that are no features of the model are ignored.
    """
    from . import answers

    if out is not None:
        answers.check_writable(out, force)
        answers.check_suffix(out)
    estimator = answers.open_model(model, trust)
    answers.store(answers.predictions(estimator, answers.read_for(estimator, file, 0), proba), out)


@app.command()
def score(
    model: Model,
    file: Input,
    *,
    labels: Annotated[
        Name,
        typer.Option(
            metavar="N|A,B,...",
            help="Label sets: the columns of the labels, in the order of the model, if their names differ from those "
            "of fit. Rankings: the column of orderings; by default the last one.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    trust: Trust = False,
) -> None:
    """Compare the predictions of a model with the labels in a file."""
    from . import answers

    estimator = answers.open_model(model, trust)
    rows = answers.read_for(estimator, file, _columns(labels, answers.task_of(estimator)))
    values = answers.scores(estimator, rows)
    if as_json:
        typer.echo(answers.as_json(values))
        return
    titles, better = zip(*(SCORES[name] for name in values), strict=True)
    numbers = [f"{value:.6g}" for value in values.values()]
    answers.show({"score": list(titles), "value": numbers, "better": list(better)})


@app.command("demo")
def run_demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo")) -> None:
    """Train on three small problems and show the results.

    It takes two minutes and downloads nothing. The learned normalizer is compared with the exact one, in a table and in
    a picture.
    """
    from .demo import run

    run(out)


@data.command("list")
def list_sets() -> None:
    """Show all sets, their sizes and their folders."""
    from .. import datasets
    from .answers import show

    sets = datasets.SETS.values()
    show(
        {
            "name": [known.name for known in sets],
            "task": [known.task for known in sets],
            "rows": [" + ".join(map(str, known.rows)) for known in sets],
            "features": [str(known.features) for known in sets],
            "labels": [str(known.k) for known in sets],
            "folder": [_folder(datasets.check(known.name)) for known in sets],
            "note": [known.note for known in sets],
        }
    )


@data.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of `partita data list`.")],
) -> None:
    """Download sets that are not on this machine."""
    from .. import datasets

    known = [datasets.entry(name).name for name in names]
    for name in known:
        for path in datasets.fetch(name):
            typer.echo(f"{name}: {path}")


@data.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of `partita data list`; by default all.")
    ] = None,
) -> None:
    """Check the files on this machine against the published checksums.

    If one differs, the exit code is 1.
    """
    from .. import datasets
    from .answers import show

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


def _version(requested: bool) -> bool:
    if requested:
        typer.echo(f"{PACKAGE} {importlib.import_module(PACKAGE).__version__}")
        raise typer.Exit
    return requested


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # `errors.Commands` reads --debug.
    pass


def main() -> None:
    """The entry point of the script `partita`."""
    app(prog_name=PACKAGE)


def _columns(labels: str | None, task: str) -> Any:
    """The argument `labels` of `datasets.read`."""
    if labels is None or task == "ranking":
        return labels
    return int(labels) if labels.isdecimal() else labels.split(",")


def _reference(name: str | None, task: str) -> Any:
    """The argument `reference` of the estimators."""
    if name in (None, "uniform"):
        return name
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    if name != "extra-trees":
        raise ValueError(f"reference must be uniform or extra-trees; got {name!r}.")
    return ExtraTreesRegressor(300) if task == "ranking" else ExtraTreesClassifier(300, min_samples_leaf=2)


def _folder(states: "tuple[State, ...]") -> str:
    """The folder of a set, if all of its files are on this machine."""
    folders = [str(state.path.parent) for state in states if state.path is not None]
    return folders[0] if len(folders) == len(states) else ""
