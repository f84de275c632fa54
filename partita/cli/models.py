"""`partita fit`, `predict` and `score`: from files to a fitted estimator, and from it to answers."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["fit", "predict", "score"]


Input = Annotated[
    Path,
    typer.Argument(exists=True, dir_okay=False, help="CSV, ARFF, LIBSVM or parquet, also packed as .gz or .bz2."),
]
Saved = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What `partita fit` wrote.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Read the pickle of a model with a reference, which executes whatever code is in that file."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it is there.")]
Name = str | None

FIGURES = {
    "rows": "rows",
    "whole_rows": "rows whose labels are all known",
    "subset_accuracy": "subset accuracy",
    "micro_f1": "micro-F1",
    "hamming_loss": "Hamming loss",
    "kendall": "Kendall tau",
    "spearman": "Spearman rho",
    "log_likelihood": "mean log p",
}


def fit(
    train: Input,
    *,
    task: Annotated[str, typer.Option(metavar="multilabel|ranking", help="What the outputs are.")],
    out: Annotated[Path, typer.Option(help="The file to write the model to.")],
    labels: Annotated[
        Name,
        typer.Option(
            metavar="N|A,B,...",
            help="The columns of labels: how many of the last ones, or their names. For rankings the column of "
            "orderings such as b>a>c, if it is not the last one.",
        ),
    ] = None,
    network: Annotated[Name, typer.Option(help="mlp, linear or resnet.")] = None,
    coupling: Annotated[
        Name,
        typer.Option(
            help="pairwise, unary, pairwise-of-x, pairwise-full, pairwise-concave or low-rank; for rankings "
            "permutahedron or birkhoff."
        ),
    ] = None,
    objective: Annotated[
        Name,
        typer.Option(
            help="auto, min-min, exact, min-max, mcmc, nce, pseudo-likelihood, ratio-matching, "
            "concrete-score-matching, fenchel-young or perceptron."
        ),
    ] = None,
    loss: Annotated[
        Name, typer.Option(help="logistic, sparsemax, tsallis, jensen-shannon, hellinger or reverse-kl.")
    ] = None,
    tau: Annotated[
        Name,
        typer.Option(
            help="The learned log-partition: residual (a bound, corrected), logits, or of x as in the paper, mlp, "
            "resnet, icnn, linear or constant."
        ),
    ] = None,
    proposal: Annotated[
        Name, typer.Option(help="Where min-min and nce draw from: surrogate, or reference (the paper's Algorithm 1).")
    ] = None,
    parts: Annotated[
        Name,
        typer.Option(
            "--train",
            help="both, g, or alternate (steps of g and tau in turn); tau alone needs an energy learned before, which "
            "only Python can give.",
        ),
    ] = None,
    decision: Annotated[
        Name,
        typer.Option(
            help="What answers are best for: mode, hamming, f1 or micro_f1; for rankings mode, borda or kemeny."
        ),
    ] = None,
    reference: Annotated[
        Name, typer.Option(help="uniform; or extra-trees, whose dependent labels the energy then learns.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training.")] = None,
    ensemble_size: Annotated[int | None, typer.Option(min=1, help="How many models are trained and averaged.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same model.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder by which the same command goes on after it was killed.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    force: Force = False,
) -> None:
    """Learn a model from a file. What is not given is as in the estimators of the library."""
    from .. import datasets, estimators
    from . import answers, outputs

    trees = reference not in (None, "uniform")
    for path in (out, Path(f"{out}.sklearn")) if trees else (out,):
        outputs.check(path, force)
    given = {"network": network, "coupling": coupling, "objective": objective, "decision": decision, "steps": steps}
    given |= {"ensemble_size": ensemble_size, "random_state": seed, "verbose": int(not quiet)}
    given |= {"loss": loss, "tau": tau, "proposal": proposal, "train": parts}
    given |= {"reference": _reference(reference, task)}
    known: Any = task
    found = datasets.read(train, task=known, labels=_columns(labels, task))
    answers.check(found)
    kind = estimators.LabelRanker if task == "ranking" else estimators.MultilabelClassifier
    made: Any = kind(classes=found.classes, **{name: value for name, value in given.items() if value is not None})
    answers.learn(made, found, checkpoint)
    answers.remember_names(made, found)
    with outputs.writing(out):
        made.save(out)
    if not quiet:
        n, d = found.x.shape
        typer.echo(f"{out}: learned from {n} rows with {d} features and {len(found.classes)} labels.")


def predict(
    model: Saved,
    file: Input,
    *,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, .csv, .jsonl or .parquet; else CSV on the standard output.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Columns P(a) as well; for rankings P(a=0), that a has rank 0, the best.")
    ] = False,
    trust: Trust = False,
    force: Force = False,
) -> None:
    """Answer for each row of a file.

    The column log_prob is the log of the probability of the whole answer. Features are found by their names; other
    columns, such as the labels, are left out.
    """
    from . import answers, outputs

    if out is not None:
        outputs.check(out, force)
        outputs.check_kind(out)
    fitted = answers.open_model(model, trust)
    found = answers.read_for(fitted, file, 0)
    outputs.store(answers.answered(fitted, found, proba), out)


def score(
    model: Saved,
    file: Input,
    *,
    labels: Annotated[
        Name,
        typer.Option(
            metavar="N|A,B,...",
            help="The columns of labels, in the order of the model, if they are called otherwise. For rankings the "
            "column of orderings, if it is not the last one.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    trust: Trust = False,
) -> None:
    """Compare a model's answers with the labels in a file."""
    from . import answers, outputs

    fitted = answers.open_model(model, trust)
    found = answers.read_for(fitted, file, _columns(labels, answers.task_of(fitted)))
    made = answers.figures(fitted, found)
    if as_json:
        typer.echo(outputs.as_json(made))
    else:
        outputs.show({"": [FIGURES[name] for name in made], "value": [f"{value:.6g}" for value in made.values()]})


def _columns(labels: str | None, task: str) -> Any:
    """As `datasets.read` takes it."""
    if labels is None or task == "ranking":
        return labels
    return int(labels) if labels.isdecimal() else labels.split(",")


def _reference(name: str | None, task: str) -> Any:
    """As the estimators take it."""
    if name in (None, "uniform"):
        return name
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    if name != "extra-trees":
        raise ValueError(f"reference must be uniform or extra-trees; got {name!r}.")
    return ExtraTreesRegressor(300) if task == "ranking" else ExtraTreesClassifier(300, min_samples_leaf=2)
