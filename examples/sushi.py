"""Rankings: 5,000 people ranked ten kinds of sushi. What does the next one like?

You learn to fit a `LabelRanker` on strings such as "fatty tuna>tuna>shrimp", and to ask it how probable every rank of
every item is, and what follows once the favorite is known. All answers are exact sums over the 10! rankings.

    python examples/sushi.py [--quick] [--out folder]

takes a minute or two on one core, because it trains 2 members for 300 steps at one penalty; the defaults take about
ten times as long. It prints what it finds and draws sushi.png. Kamishima's sushi set A (sushi_one_hot) is downloaded,
unless PARTITA_DATA is a folder that has it. `--quick` trains too briefly to be good.
"""

import numpy as np
from common import arguments, figure, load
from sklearn.ensemble import ExtraTreesRegressor

import partita as pt
from partita.metrics import kendall

ITEMS = ["shrimp", "sea eel", "tuna", "squid", "sea urchin", "salmon roe", "egg", "fatty tuna", "tuna roll"]
ITEMS = np.array([*ITEMS, "cucumber roll"], object)


def main() -> None:
    options = arguments(__doc__)
    X, ranks, X_test, ranks_test = pt.datasets.split(load("sushi_one_hot"))  # X: sex, age group, places lived in, ...
    Y, Y_test = (np.array([">".join(ITEMS[order]) for order in np.argsort(y, axis=1)]) for y in (ranks, ranks_test))
    print(f"{len(X)} people to learn from, {len(X_test)} to test on; the first ranks\n  {Y[0]}")

    # "birkhoff" has a score for each item and rank: sea urchin is loved or hated, with little between.
    steps = 20 if options.quick else 300
    ranker = pt.LabelRanker(coupling="birkhoff", ensemble_size=2, penalty=0.03, steps=steps, random_state=0).fit(X, Y)
    names, ranks, truth = ranker.classes_, ranker.codec_.encode(Y).y, ranker.codec_.encode(Y_test).y

    # 1. How near are the answers? The mode is the most probable ranking; "borda" is right on average, and nearer.
    trees = ExtraTreesRegressor(100, min_samples_leaf=20, random_state=0).fit(X, ranks)
    print("\nmean Kendall tau on the test people")
    for decision in ("mode", "borda"):
        print(f"  LabelRanker, {decision:9}{ranker.set_params(decision=decision).score(X_test, Y_test):.3f}")
    print(f"  extra trees           {kendall(truth, trees.predict(X_test)):.3f}")
    print(f"  one ranking for all   {kendall(truth, np.broadcast_to(ranks.mean(axis=0), truth.shape)):.3f}")
    print(f"mean log-probability of a test ranking: {ranker.log_prob(X_test, Y_test).mean():.2f}, at random -15.10")

    # 2. What does one person probably like? P(item j has rank p).
    matrix = ranker.predict_proba(X_test[:1])[0]
    print(f"\nfor the first test person we answer\n  {ranker.predict(X_test[:1])[0]}")
    print("favorite: " + ", ".join(f"{names[j]} {matrix[j, 0]:.2f}" for j in np.argsort(-matrix[:, 0])[:3]))
    fig, axes = figure(1, 3, size=(15, 4.8))
    pt.plots.rank_probabilities(matrix, labels=names, ax=axes[0]).set_title("one person")

    # 3. What features tell: who has an item among the first three?
    sex, age = X_test[:, 0], X_test[:, 1]
    groups = {"women under 30": (sex == 1) & (age < 2), "men from 40": (sex == 0) & (age >= 3)}
    order = np.argsort(ranker.predict_proba(X_test)[:, :, :3].sum(axis=2).mean(axis=0))
    for place, (name, those) in zip((0.2, -0.2), groups.items(), strict=True):
        expected = ranker.predict_proba(X_test[those])[:, :, :3].sum(axis=2).mean(axis=0)
        axes[1].barh(np.arange(10) + place, expected[order], 0.38, label=f"{name} ({those.sum()})")
        axes[1].plot(np.mean(truth[those] < 3, axis=0)[order], np.arange(10) + place, "kd", markersize=4)
    axes[1].plot([], [], "kd", markersize=4, label="seen in the test people")
    axes[1].set(title="among the first three", xlabel="probability", yticks=range(10), yticklabels=names[order])
    axes[1].legend(frameon=False, loc="lower right")

    # 4. Who ranks fatty tuna first, what comes next? The same for egg shows a limit: scores of single ranks cannot say
    # that who likes egg best is not one for raw fish.
    for favorite in ("egg", "fatty tuna"):
        those = np.array([ranking.startswith(f"{favorite}>") for ranking in Y_test])
        expected = ranker.predict_proba(X_test[those], given={favorite: 0})[:, :, 1].mean(axis=0)
        seen = np.mean(truth[those] == 1, axis=0)
        said = ", ".join(f"{names[j]} {expected[j]:.2f} (seen {seen[j]:.2f})" for j in np.argsort(-expected)[:3])
        print(f"after {favorite}, {those.sum()} people: {said}")
    order = np.argsort(expected)[1:]
    axes[2].barh(range(9), expected[order], 0.6, label="predicted")
    axes[2].plot(seen[order], range(9), "kd", markersize=4, label=f"seen in {those.sum()} test people")
    axes[2].set(title="second, if fatty tuna is first", xlabel="probability", yticks=range(9), yticklabels=names[order])
    axes[2].legend(frameon=False, loc="lower right")
    fig.savefig(options.out / "sushi.png", dpi=90)


if __name__ == "__main__":
    main()
