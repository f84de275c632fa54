"""Put a joint model on top of your random forest.

A forest gives a probability for each label, but no word on how labels go together. Here it becomes the reference
q(y|x), and an energy learned on top turns its probabilities into joint ones: p(y|x) = q(y|x) exp(g(x, y) - tau(x)).
The forest is fitted out of fold inside `fit`, so that the energy never sees probabilities of rows the trees have seen.

    python examples/forest.py [--quick] [--out folder]

takes a minute or two on one core, prints what it finds and draws forest.png. The data set scene is downloaded, unless
PARTITA_DATA is a folder that has it. `--quick` trains too briefly to be good.
"""

import numpy as np
from common import arguments, figure, load
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import KFold, cross_val_predict

import partita as pt
from partita.metrics import micro_f1, subset_accuracy

LABELS = ["beach", "sunset", "foliage", "field", "mountain", "urban"]


def main() -> None:
    options = arguments(__doc__)
    X, Y, X_test, Y_test = pt.datasets.split(load("scene"))

    forest = ExtraTreesClassifier(20 if options.quick else 300, min_samples_leaf=2, random_state=0)
    model = pt.MultilabelClassifier(
        reference=forest, decision="micro_f1", random_state=0, steps=50 if options.quick else None
    )
    model.fit(X, Y)

    # The forest alone is the model without its energy: its labels are independent.
    alone = np.stack([table[:, 1] for table in forest.fit(X, Y).predict_proba(X_test)], axis=1)
    floor = model.reference_.floor  # trees say 0 and 1, which no log-likelihood survives; this floor suits unseen rows
    alone = np.clip(alone, floor, 1 - floor)
    independent = np.log(np.where(Y_test == 1, alone, 1 - alone)).sum(axis=1)
    joint = model.log_prob(X_test, Y_test)
    gain = joint - independent
    error = gain.std() / np.sqrt(len(gain))
    print(f"held-out log-likelihood of whole label sets, {len(X_test)} pictures")
    print(f"  forest alone    {independent.mean():.3f}")
    print(f"  joint model     {joint.mean():.3f}    better by {gain.mean():.3f} +- {error:.3f} nats")

    # Answers. A forest does well on micro-F1 only above a threshold of its own, from rows that it has not seen.
    unseen = cross_val_predict(forest, X, Y, cv=KFold(5, shuffle=True, random_state=0), method="predict_proba")
    rule = pt.decisions.MicroF1.fit(np.stack([table[:, 1] for table in unseen], axis=1), Y)
    answers = {
        "forest, above 1/2": (alone > 0.5).astype(int),
        f"forest, above {rule.threshold:.2f}": rule(alone).y,
        "joint, micro_f1": model.predict(X_test),
        "joint, mode": model.set_params(decision="mode").predict(X_test),
    }
    print("\n                       micro-F1   whole set right")
    for name, answer in answers.items():
        print(f"  {name:21}{micro_f1(Y_test, answer):8.3f}   {subset_accuracy(Y_test, answer):8.3f}")

    # One question that shows the difference: P(no label at all). Every picture here has at least one.
    none = np.zeros_like(Y_test)
    empty_joint, empty_alone = np.exp(model.log_prob(X_test, none)), np.prod(1 - alone, axis=1)
    print(f"\nmean P(no label): forest {empty_alone.mean():.3f}, joint {empty_joint.mean():.3f}, truth 0")

    fig, axes = figure(1, 3, size=(14, 4.4))
    axes[0].hist(gain, bins=np.linspace(-3, 3, 61), color="C0")
    axes[0].axvline(0, color="black", linewidth=0.8)
    axes[0].set(title=f"log p joint - log p forest: mean {gain.mean():.2f} nats", xlabel="nats", ylabel="test pictures")
    axes[1].hist([empty_alone, empty_joint], bins=20, range=(0, 0.45), color=["C1", "C0"])
    axes[1].legend(["forest", "joint"], frameon=False)
    axes[1].set(title="P(no label at all), never true here", xlabel="probability", ylabel="test pictures")
    pt.plots.interactions(model.ebm_, labels=LABELS, ax=axes[2]).set_title("what the energy adds")
    fig.savefig(options.out / "forest.png", dpi=90)


if __name__ == "__main__":
    main()
