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

Labels = Annotated[
    Name,
    typer.Option(
        metavar="N|A,B,...",
        help="The columns of labels: how many of the last ones, or their names. For rankings the column of orderings "
        "such as b>a>c, if it is not the last one.",
    ),
]
Network = Annotated[Name, typer.Option(help="mlp, linear or resnet.")]
Coupling = Annotated[
    Name,
    typer.Option(
        help="pairwise, unary, pairwise-of-x, pairwise-full, pairwise-concave or low-rank; for rankings "
        "permutahedron or birkhoff."
    ),
]
Objective = Annotated[
    Name,
    typer.Option(
        help="auto, min-min, exact, min-max, mcmc, nce, pseudo-likelihood, ratio-matching, concrete-score-matching, "
        "fenchel-young or perceptron."
    ),
]
Loss = Annotated[Name, typer.Option(help="logistic, sparsemax, tsallis, jensen-shannon, hellinger or reverse-kl.")]
Tau = Annotated[
    Name,
    typer.Option(
        help="The learned log-partition: residual (a bound, corrected), logits, or of x as in the paper, mlp, resnet, "
        "icnn, linear or constant."
    ),
]
Proposal = Annotated[
    Name, typer.Option(help="Where min-min and nce draw from: surrogate, or reference (the paper's Algorithm 1).")
]
Train = Annotated[
    Name,
    typer.Option(
        "--train",
        help="both, g, or alternate (steps of g and tau in turn); tau alone needs an energy learned before, which only "
        "Python can give.",
    ),
]
Decision = Annotated[
    Name,
    typer.Option(help="What answers are best for: mode, hamming, f1 or micro_f1; for rankings mode, borda or kemeny."),
]
Reference = Annotated[
    Name, typer.Option(help="uniform; or extra-trees, whose dependent labels the energy then learns.")
]
Checkpoint = Annotated[Path | None, typer.Option(help="Folder by which the same command goes on after it was killed.")]

SCORES = {
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
    labels: Labels = None,
    network: Network = None,
    coupling: Coupling = None,
    objective: Objective = None,
    loss: Loss = None,
    tau: Tau = None,
    proposal: Proposal = None,
    parts: Train = None,
    decision: Decision = None,
    reference: Reference = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training.")] = None,
    ensemble_size: Annotated[int | None, typer.Option(min=1, help="How many models are trained and averaged.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same model.")] = None,
    checkpoint: Checkpoint = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    force: Force = False,
) -> None:
    """Learn a model from a file. What is not given is as in the estimators of the library."""
    from .. import datasets, estimators
    from . import answers, outputs

    trees = reference not in (None, "uniform")
    for path in (out, Path(f"{out}.sklearn")) if trees else (out,):
        outputs.check(path, force)
    options = {"network": network, "coupling": coupling, "objective": objective, "decision": decision, "steps": steps}
    options |= {"ensemble_size": ensemble_size, "random_state": seed, "verbose": int(not quiet)}
    options |= {"loss": loss, "tau": tau, "proposal": proposal, "train": parts}
    options |= {"reference": _reference(reference, task)}
    known_task: Any = task
    data = datasets.read(train, task=known_task, labels=_columns(labels, task))
    answers.check(data)
    kind = estimators.LabelRanker if task == "ranking" else estimators.MultilabelClassifier
    model: Any = kind(classes=data.classes, **{name: value for name, value in options.items() if value is not None})
    answers.learn(model, data, checkpoint)
    with outputs.writing(out):
        model.save(out)
    if not quiet:
        n, d = data.x.shape
        typer.echo(f"{out}: learned from {n} rows with {d} features and {len(data.classes)} labels.")


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
    outputs.store(answers.predictions(fitted, answers.read_for(fitted, file, 0), proba), out)


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
    scores = answers.scores(fitted, answers.read_for(fitted, file, _columns(labels, answers.task_of(fitted))))
    if as_json:
        typer.echo(outputs.as_json(scores))
    else:
        outputs.show({"": [SCORES[name] for name in scores], "value": [f"{value:.6g}" for value in scores.values()]})


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
