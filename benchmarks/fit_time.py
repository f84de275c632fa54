"""How long a fit takes beside ClassifierChain: yeast, one core.

    python -m benchmarks.fit_time [--repeats 5] [--out out/bench]

MultilabelClassifier() against ten ClassifierChain(LogisticRegression(max_iter=1000), order="random") on standardized
features. The first fit of a process compiles and is given apart; the others are in turn with the chains.
"""

import argparse
from pathlib import Path

from benchmarks.timing import pin

if __name__ == "__main__":
    pin()

from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

import partita as pt
from benchmarks.data import multilabel
from benchmarks.report import show
from benchmarks.timing import in_turn, spread, timed, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    x, y, _, _ = multilabel("yeast")

    def chains() -> list[ClassifierChain]:
        made = [ClassifierChain(LogisticRegression(max_iter=1000), order="random", random_state=s) for s in range(10)]
        return [chain.fit(x, y) for chain in made]

    def ours() -> None:
        pt.MultilabelClassifier(random_state=0).fit(x, y)

    first = timed(ours)[1]
    seconds = in_turn({"partita": ours, "chains": chains}, options.repeats)
    ratio = spread([a / b for a, b in zip(seconds["chains"], seconds["partita"], strict=True)])
    row = {"first fit s": first, **{f"{who} s": spread(values)["median"] for who, values in seconds.items()}}
    row |= {f"chains / partita, {what}": value for what, value in ratio.items()}
    write(options.out / "fit_time.jsonl", row)
    show("Fit on yeast, one core", [row])


if __name__ == "__main__":
    main()
