"""Remarks on label sets: Table 1 and the appendix's tables of micro-F1."""

from .pattern import Remark, listing

__all__ = ["CONSTANT_SETS", "LOGISTIC", "NETWORK", "REMARKS"]

CAL500 = ("cal500, paper's rows",)
OTHERS = ("yeast", "scene", "birds", "emotions")
MEMORIZED = "The 101 test rows are among our training rows and are memorized. On rows apart (the column cal500) "

# Micro-F1 x 100 of the test rows. One set for all rows: the labels that at least this share of the training rows have.
CONSTANT_SETS = {"yeast": (0.30, 58.8), "birds": (0.15, 28.2), CAL500[0]: (0.25, 48.4)}
# scikit-learn's LogisticRegression(max_iter=1000) for each label, with its defaults.
LOGISTIC = {"yeast": 62.5, "scene": 63.7, "birds": 43.1, "emotions": 64.1}
# scikit-learn's MLPClassifier((128,)) with its defaults, three seeds.
NETWORK = {"scene": 73.1, "birds": 47.5, "emotions": 67.8}

CONSTANT_YEAST = (
    "The printed values of min-max on yeast, and of MCMC with a ResNet, are no better than one set for all rows: the "
    "six labels that at least 30% of the training rows have score 58.8."
)
CONSTANT_BIRDS = (
    "The printed values of min-max on birds, and of ResNets with MCMC, with sparsemax and with an MLP as τ (22.35 to "
    "28.63), are about that of one set for all rows: the three labels that at least 15% of the training rows have "
    "score 28.2."
)
BIRDS_CLIPPING = (
    "The gradient is clipped to norm 1 here, and the paper does not say so. Without clipping the unary ResNet with one "
    "number per row as τ has 36.1 (printed 36.93) in place of 46.3, and the MLP 43.3 (printed 46.48) in place of 49.0; "
    "three seeds, chosen by the same folds. With 45 dev rows in place of four folds the ResNet has 43.5."
)

ABOVE_CAL500 = (
    Remark(
        f"{MEMORIZED}exact likelihood has 35.6 (linear), 34.8 (MLP) and 35.5 (ResNet), within 2 points of the printed "
        "values: the paper's test rows were probably not trained on, whatever its table of sizes implies.",
        off="above",
        dataset=CAL500,
        objective=("exact",),
    ),
    Remark(
        f"{MEMORIZED}generalized Fenchel-Young has 35.4 (linear), 34.4 (MLP) and 28.1 (pairwise), below the printed "
        "values.",
        off="above",
        dataset=CAL500,
        objective=("fenchel-young",),
    ),
    Remark(
        f"{MEMORIZED}MCMC has 35.4 (linear) and 36.5 (MLP), 9 points below the printed values.",
        off="above",
        dataset=CAL500,
        objective=("mcmc",),
    ),
    Remark(
        f"{MEMORIZED}min-max has 37.7 (linear unary), 37.9 (linear pairwise) and 36.4 (ResNet unary).",
        off="above",
        dataset=CAL500,
        objective=("min-max",),
    ),
    Remark(
        f"{MEMORIZED}linear models have 42.7 to 47.4 (unary) and 44.2 to 45.2 (pairwise), 0 to 7.2 points above the "
        "printed values. The labels that at least a quarter of the training rows have, as one set for all rows, score "
        "48.4: a strong penalty, which dev rows choose, is enough for that.",
        off="above",
        dataset=CAL500,
        objective=("min-min",),
        model=("linear",),
    ),
    Remark(
        "Ours hardly reads x: it is the same on rows apart (46.7 unary, 45.4 pairwise), and one set for all rows, the "
        "labels that at least a quarter of the training rows have, scores 48.4. The printed 39.11, 30.93 and 37.53 are "
        "below that, and below the 46.64 that the paper has for the unary model with an ICNN as τ: its training "
        "probably failed here.",
        off="above",
        dataset=CAL500,
        objective=("min-min",),
        loss=("sparsemax",),
        model=("resnet",),
    ),
)

ABOVE_BASELINES = (
    Remark(CONSTANT_YEAST, off="above", dataset=("yeast",), objective=("min-max",)),
    Remark(CONSTANT_YEAST, off="above", dataset=("yeast",), objective=("mcmc",), model=("resnet",)),
    Remark(CONSTANT_BIRDS, off="above", dataset=("birds",), objective=("min-max",)),
    Remark(CONSTANT_BIRDS, off="above", dataset=("birds",), objective=("mcmc",), model=("resnet",)),
    Remark(
        "The paper does not say at which rate the generator learns. Ours learns at the rate of g or at ten times it; "
        "dev rows chose ten times in 23 of 24 cells of yeast, scene, birds and emotions.",
        off="above",
        dataset=OTHERS,
        objective=("min-max",),
    ),
    Remark(
        f"scikit-learn's logistic regression with its defaults scores {LOGISTIC['scene']} on the same rows, more than "
        "every printed value of min-max on scene: the paper's game probably did not converge.",
        off="above",
        dataset=("scene",),
        objective=("min-max",),
        reference=LOGISTIC,
    ),
    Remark(
        "Dev rows chose single flips from the data in 5 of 6 cells of yeast and in 6 of 6 of birds. The paper has "
        "uniform proposals, which are seldom accepted among 2^14 or 2^19 sets.",
        off="above",
        dataset=("yeast", "birds"),
        objective=("mcmc",),
    ),
    Remark(
        f"scikit-learn's logistic regression with its defaults scores {LOGISTIC['yeast']} on the same rows, more than "
        "the printed value. Its MLPClassifier with 128 units, which has no dev rows to stop it, scores 60.6, as much "
        "as the printed MLPs; dev rows stop ours early or choose rate 1e-4.",
        off="above",
        dataset=("yeast",),
        objective=("exact", "fenchel-young", "mcmc"),
        reference=LOGISTIC,
    ),
    Remark(
        "The negative semi-definite U(x) gains 4.2 points on scene, 2.1 on birds and 9.0 on emotions over the unary "
        "model; in the paper 0.2, -1.9 and 1.4. Ours is -A(x) A(x)' of rank k; the paper does not give its form.",
        off="above",
        dataset=OTHERS,
        objective=("fenchel-young",),
        coupling=("pairwise",),
    ),
)

ABOVE = (
    Remark(
        "scikit-learn's MLPClassifier with one hidden layer of 128 units and its defaults, which is exact likelihood "
        "without tuning, is above every printed value of a network that ours exceeds on these sets: "
        f"{listing(NETWORK)} (three seeds). The number of steps is not the reason: with the last step in place of the "
        "chosen one MLPs by exact likelihood have 75.1, 46.1 and 67.4.",
        off="above",
        dataset=tuple(NETWORK),
        model=("mlp", "resnet"),
        reference=NETWORK,
    ),
    Remark(
        f"scikit-learn's logistic regression with its defaults scores {LOGISTIC['emotions']} on the same rows, more "
        "than every printed value of a linear model on emotions (60.85 to 63.36): these were probably trained or tuned "
        "less.",
        off="above",
        dataset=("emotions",),
        model=("linear",),
        reference=LOGISTIC,
    ),
    Remark(
        "The printed 44.53 is 20 points below the same model with pairwise coupling (64.58), and 19 below the one with "
        "an ICNN as τ (63.38): the paper's training probably failed here.",
        off="above",
        dataset=("emotions",),
        objective=("min-min",),
        loss=("sparsemax",),
        model=("resnet",),
        coupling=("unary",),
        tau=("constant",),
    ),
    Remark(
        "The paper prints the same values for linear models with unary and with pairwise coupling, or values at most "
        "0.54 apart: its pairwise weights had hardly any effect on the answers. In ours U(x) changes the value by -1.0 "
        "to 5.0 points, in 11 of 14 cells upwards.",
        off="above",
        dataset=OTHERS,
        objective=("min-min", "mcmc", "min-max"),
        model=("linear",),
        coupling=("pairwise",),
    ),
    Remark(
        "An MLP as τ costs the paper, against one number per row and on average over six models of g, 2.2 points on "
        "yeast, 3.2 on scene, 5.8 on birds and 2.0 on emotions; ours loses 0.3, 1.0, 2.0 and 0.7. A prediction does "
        "not read τ: the difference is one of training.",
        off="above",
        dataset=OTHERS,
        objective=("min-min",),
        tau=("mlp",),
    ),
    Remark(
        "Four folds of the training rows choose on birds, where the paper has 45 dev rows. With 45 dev rows ours "
        "chooses another rate and penalty and has 42.3 (unary, three seeds), 2.8 below the printed value.",
        off="above",
        dataset=("birds",),
        objective=("min-min",),
        loss=("sparsemax",),
        model=("linear",),
    ),
    Remark(BIRDS_CLIPPING, off="above", dataset=("birds",), objective=("min-min",), loss=("logistic",)),
    Remark(
        CONSTANT_BIRDS, off="above", dataset=("birds",), objective=("min-min",), loss=("sparsemax",), model=("resnet",)
    ),
)

BELOW = (
    Remark(
        "Uniform draws seldom fall where sparsemax is not 0. Tried: 1,000 draws a step in place of 200, rates 1e-4 and "
        "1e-3, 1,200 steps, chosen on dev rows, three seeds: 75.8 unary and 74.7 pairwise with one number per row as "
        "τ, 75.6 and 74.0 with an ICNN, all within 2 points of the printed values.",
        off="below",
        dataset=("scene",),
        loss=("sparsemax",),
        model=("resnet",),
    ),
    Remark(
        "Uniform draws seldom fall where sparsemax is not 0. Tried: 1,000 draws a step in place of 200, rates 1e-4 and "
        "1e-3, 1,200 steps, chosen on dev rows, three seeds: 64.3 unary and 60.8 pairwise, within 2 points of the "
        "printed 62.62 and 62.07.",
        off="below",
        dataset=("yeast",),
        loss=("sparsemax",),
        model=("resnet",),
    ),
    Remark(
        "The appendix is tuned over four pairs of rate and penalty. Tried: the whole grid of Table 1, which chose rate "
        "1e-2 with penalty 0.01: 65.0 on dev rows, 65.6 on the test rows (three seeds), within 2 points.",
        off="below",
        dataset=("yeast",),
        loss=("logistic",),
        model=("resnet",),
        coupling=("pairwise",),
    ),
    Remark(
        "Uniform draws seldom fall where sparsemax is not 0: the more draws, the better. Tried, chosen by the same "
        "folds, three seeds, unary with one number per row as τ: 37.8 with 200 draws, 38.5 with 1,000, 40.2 with "
        "5,000, 42.6 with 20,000 (printed 42.42; 35.6, 37.9, 39.9 and 40.0 on the folds). With 5,000 draws pairwise "
        "has 40.4 (printed 40.68), and with an ICNN as τ unary 40.2 (40.77) and pairwise 41.1 (41.61). Without "
        "effect: 4,000 steps, and batches of 32 rows.",
        off="below",
        dataset=("birds",),
        loss=("sparsemax",),
        model=("mlp",),
    ),
    Remark(
        "98 dev rows chose penalty 1, the largest (62.2 on dev rows). Tried: four folds of the training rows and 3,000 "
        "steps, which chose rate 1e-3, penalty 0.1 and 1,200 steps: 64.0 on the folds, 64.5 on the test rows, above "
        "the printed 61.70.",
        off="below",
        dataset=("emotions",),
        objective=("fenchel-young",),
    ),
    Remark(
        "Dev rows, which are not trained on before the last training, chose uniform proposals (43.6 on dev rows), "
        "which hardly move among 2^174 sets. Tried: single flips only, which have 36.9 on dev rows and 86.9 on the "
        "test rows (three seeds), since these are among the training rows and are memorized. One set for all rows, the "
        "labels that at least a quarter of the training rows have, scores 48.4.",
        off="below",
        dataset=CAL500,
        objective=("mcmc",),
        coupling=("unary",),
    ),
    Remark(
        "Tried: 400 steps in place of 100 with 40 single flips, chosen on dev rows, three seeds: linear 43.1, within 2 "
        "points of the printed 44.61; MLP 33.9 and ResNet 35.2, not closed (35.0 and 35.4 on dev rows). Without a "
        "choice, 400 steps at rate 1e-2 without penalty: MLP 56.5 and ResNet 53.5, since the test rows are among the "
        "training rows and are memorized (34.6 and 34.8 on dev rows). One set for all rows scores 48.4, more than the "
        "printed values: the paper's models may hardly read x.",
        off="below",
        dataset=CAL500,
        objective=("mcmc",),
        coupling=("pairwise",),
    ),
    Remark(
        "Dev rows chose step 100 of 1,000 (39.3 on dev rows). Tried: the last step for all, chosen over rates 1e-3 and "
        "1e-2 with penalties 0 and 0.1: 38.9 on dev rows, 48.5 on the test rows (three seeds), above the printed "
        "46.08. The test rows are among the training rows and are memorized as training goes on.",
        off="below",
        dataset=CAL500,
        objective=("min-max",),
        coupling=("unary",),
    ),
    Remark(
        "Not closed. Dev rows chose step 25 of 100. Tried: the last of 200 steps at rate 1e-3 with penalties 0.1 and "
        "1: 37.8 on dev rows, 33.4 on the test rows (three seeds); the last of 400 steps at rate 1e-2 without penalty: "
        "20.2 and 20.4, where the generator has lost g. One set for all rows, the labels that at least a quarter of "
        "the training rows have, scores 48.4, more than the printed 47.67: the paper's model may hardly read x.",
        off="below",
        dataset=CAL500,
        objective=("min-max",),
        coupling=("pairwise",),
    ),
)

REMARKS = (*ABOVE_CAL500, *ABOVE_BASELINES, *ABOVE, *BELOW)
