"""Label sets: which of 14 functions does a yeast gene have?

You learn to fit a `MultilabelClassifier` and to ask it for what a joint probability gives: how probable a whole set of
labels is, the most probable sets, the labels given that one is known, and the answer that suits your metric.

    python examples/yeast.py [--quick] [--out folder]

takes a minute or two on one core, prints what it finds and draws yeast.png. The data set yeast is downloaded, unless
PARTITA_DATA is a folder that has it. `--quick` trains too briefly to be good.
"""

import numpy as np
from common import arguments, figure, load

import partita as pt
from partita.metrics import micro_f1, subset_accuracy


def main() -> None:
    options = arguments(__doc__)
    X, Y, X_test, Y_test = pt.datasets.split(load("yeast"))
    print(f"{len(X)} genes to learn from, {len(X_test)} to test on, {X.shape[1]} features, {Y.shape[1]} labels")

    # Defaults everywhere; features are standardized inside. "micro_f1" learns a threshold on held-out rows.
    model = pt.MultilabelClassifier(decision="micro_f1", random_state=0, steps=50 if options.quick else None)
    model.fit(X, Y)

    # 1. One model, several answers: each decision is the best one for its own metric.
    print("\ndecision    micro-F1   whole set right")
    for decision in ("micro_f1", "mode"):
        answer = model.set_params(decision=decision).predict(X_test)
        print(f"{decision:10}  {micro_f1(Y_test, answer):8.3f}   {subset_accuracy(Y_test, answer):8.3f}")

    # 2. The probability of a whole set. Independent labels with the same marginals are the comparison.
    marginals = model.predict_proba(X_test)
    joint = model.log_prob(X_test, Y_test)
    independent = np.log(np.where(Y_test == 1, marginals, 1 - marginals)).sum(axis=1)
    print(f"\nmean log-probability of the true set: {joint.mean():.2f}, independent labels {independent.mean():.2f}")

    # 3. The most probable of the 2^14 sets of one gene.
    gene = X_test[:1]
    sets, probability = model.top_k(gene, 3)
    print("\nthe first test gene most probably has")
    for labels, p in zip(sets[0], probability[0], strict=True):
        print(f"  {p:.3f}  {np.flatnonzero(labels).tolist()}")
    print(f"  {np.exp(joint[0]):.3f}  {np.flatnonzero(Y_test[0]).tolist()}  is the truth")

    # 4. An experiment finds that it has label 6, which is true. How do the others change?
    updated = model.predict_proba(gene, given={6: 1})[0]
    print("\nlabel       " + " ".join(f"{j:4d}" for j in range(14)))
    print("before      " + " ".join(f"{p:4.2f}" for p in marginals[0]))
    print("given 6     " + " ".join(f"{p:4.2f}" for p in updated))

    # 5. Training never summed over all 16,384 sets: tau was learned. Here the sum can be done, so we can check.
    learned, exact = model.log_partition(X_test, method="learned"), model.log_partition(X_test, method="exact")
    print(f"\nlearned tau is off by {np.abs(learned - exact).mean():.3f} nats on average (unseen rows)")

    fig, axes = figure(1, 3, size=(15, 4.8))
    pt.plots.log_partitions(learned, exact, ax=axes[0]).set_title("learned against exact log-partition")
    pt.plots.reliability(Y_test, marginals, ax=axes[1]).set_title("how often labels are on")
    pt.plots.interactions(model.ebm_, ax=axes[2]).set_title("which labels go together")
    fig.savefig(options.out / "yeast.png", dpi=90)


if __name__ == "__main__":
    main()
