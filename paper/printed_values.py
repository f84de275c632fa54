"""The values that the paper prints: micro-F1 of label sets and Kendall's tau of rankings, x 100.

From the tables of Sander, Roulet, Liu, Blondel, "Joint Learning of Energy-based Models and their Partition Function",
ICML 2025. Columns: objective, loss, model of g, coupling, model of tau ("-": it has none), then a value for each set.
"""

__all__ = [
    "RANKINGS",
    "RANKINGS_RESNET",
    "RANKINGS_TAU",
    "SETS",
    "SETS_ICNN",
    "SETS_TAU",
    "TABLE_1",
    "TABLE_2",
    "rows",
]

SETS = ("yeast", "scene", "birds", "emotions", "cal500")
RANKINGS = ("authorship", "glass", "iris", "vehicle", "vowel", "wine")

# Table 1: label sets, losses and models, constant tau.
TABLE_1 = """
min-min       logistic  linear unary         constant  63.41 70.78 45.49 61.63 40.19
min-min       logistic  mlp    unary         constant  65.04 75.35 46.48 65.33 44.91
min-min       logistic  resnet unary         constant  65.03 75.64 36.93 67.45 45.23
min-min       logistic  linear pairwise      constant  63.40 70.72 45.49 61.63 40.23
min-min       logistic  mlp    pairwise      constant  65.11 75.22 46.08 64.84 45.00
min-min       logistic  resnet pairwise      constant  64.84 75.68 41.34 64.26 44.61
min-min       sparsemax linear unary         constant  62.92 70.43 45.12 63.14 45.18
min-min       sparsemax mlp    unary         constant  63.22 75.83 42.42 66.86 46.39
min-min       sparsemax resnet unary         constant  62.27 75.44 28.63 44.53 39.11
min-min       sparsemax linear pairwise      constant  62.91 69.89 45.12 63.14 45.18
min-min       sparsemax mlp    pairwise      constant  63.39 74.94 40.68 66.28 46.39
min-min       sparsemax resnet pairwise      constant  62.32 75.63 27.85 64.58 30.93
exact         logistic  linear unary         -         61.46 70.64 43.97 63.35 37.31
exact         logistic  mlp    unary         -         60.71 70.81 40.88 62.99 36.24
exact         logistic  resnet unary         -         62.27 71.02 40.78 61.50 37.45
fenchel-young logistic  linear unary         -         61.41 70.26 44.13 61.70 36.85
fenchel-young logistic  mlp    unary         -         61.31 70.84 40.73 61.85 37.35
fenchel-young logistic  linear pairwise      -         61.62 70.42 42.28 63.05 35.12
mcmc          logistic  linear unary         -         61.98 70.53 44.93 61.76 44.61
mcmc          logistic  mlp    unary         -         60.34 71.57 33.13 62.23 45.70
mcmc          logistic  resnet unary         -         56.57 71.24 27.03 58.98 44.34
mcmc          logistic  linear pairwise      -         61.96 70.50 44.93 61.76 44.61
mcmc          logistic  mlp    pairwise      -         60.83 71.92 34.61 63.15 45.95
mcmc          logistic  resnet pairwise      -         56.68 70.46 27.08 64.05 44.35
min-max       logistic  linear unary         -         52.80 52.29 27.59 61.72 35.08
min-max       logistic  mlp    unary         -         58.58 52.54 24.95 60.53 46.08
min-max       logistic  resnet unary         -         57.53 42.82 25.32 55.85 47.59
min-max       logistic  linear pairwise      -         52.80 52.29 27.59 61.72 35.08
min-max       logistic  mlp    pairwise      -         58.76 51.59 26.71 58.68 43.31
min-max       logistic  resnet pairwise      -         57.53 42.95 22.35 46.72 47.67
"""

# Table 2: rankings, losses, polytopes and models, tau an MLP.
TABLE_2 = """
min-min       logistic  linear permutahedron mlp       85.14 80.47 57.78 79.74 50.82 91.36
min-min       logistic  mlp    permutahedron mlp       88.69 84.39 97.78 86.27 74.26 90.12
min-min       logistic  linear birkhoff      mlp       87.71 81.29 97.78 83.33 56.33 95.06
min-min       logistic  mlp    birkhoff      mlp       90.80 85.43 98.52 86.41 65.20 91.98
min-min       sparsemax linear permutahedron mlp       84.88 79.84 52.59 78.76 50.25 93.83
min-min       sparsemax mlp    permutahedron mlp       86.52 85.94 99.26 85.75 68.34 91.36
min-min       sparsemax linear birkhoff      mlp       89.09 79.43 97.78 82.81 56.24 90.12
min-min       sparsemax mlp    birkhoff      mlp       87.84 80.47 98.52 87.19 55.43 85.80
mcmc          logistic  linear permutahedron -         84.29 80.67 55.56 79.15 49.97 91.36
mcmc          logistic  mlp    permutahedron -         87.90 75.50 97.04 86.34 57.90 91.98
mcmc          logistic  linear birkhoff      -         88.10 79.33 97.78 82.22 55.99 96.91
mcmc          logistic  mlp    birkhoff      -         89.68 80.16 97.78 85.88 48.90 91.98
min-max       logistic  linear permutahedron -         61.01 79.22 61.48 70.20 45.68 65.43
min-max       logistic  mlp    permutahedron -         70.02 67.03 55.56 68.56 40.22 70.99
min-max       logistic  linear birkhoff      -         82.58 78.40 61.48 74.90 52.86 93.21
min-max       logistic  mlp    birkhoff      -         78.50 71.68 42.96 68.76 48.99 83.33
"""

# Appendix: label sets, tau an ICNN.
SETS_ICNN = """
min-min       logistic  linear unary         icnn      63.53 70.44 45.36 62.90 42.74
min-min       logistic  mlp    unary         icnn      65.16 74.64 46.58 64.99 44.89
min-min       logistic  resnet unary         icnn      65.40 75.60 38.71 67.05 45.23
min-min       logistic  linear pairwise      icnn      63.53 70.47 45.36 62.90 42.75
min-min       logistic  mlp    pairwise      icnn      64.95 74.84 44.11 64.52 45.00
min-min       logistic  resnet pairwise      icnn      65.15 75.53 39.59 66.17 44.62
min-min       sparsemax linear unary         icnn      63.15 71.07 45.79 63.36 45.94
min-min       sparsemax mlp    unary         icnn      63.52 74.34 40.77 66.50 46.44
min-min       sparsemax resnet unary         icnn      62.62 76.79 30.18 63.38 46.64
min-min       sparsemax linear pairwise      icnn      63.15 71.05 45.79 63.36 45.94
min-min       sparsemax mlp    pairwise      icnn      63.25 74.93 41.61 66.18 46.40
min-min       sparsemax resnet pairwise      icnn      62.07 75.59 28.14 63.42 37.53
"""

# Appendix: label sets, models of tau and of g, logistic loss.
SETS_TAU = """
min-min       logistic  linear unary         constant  63.41 70.78 45.49 61.63 40.19
min-min       logistic  mlp    unary         constant  65.04 75.35 46.48 65.33 44.91
min-min       logistic  resnet unary         constant  65.03 75.64 36.93 67.45 45.23
min-min       logistic  linear pairwise      constant  63.40 70.72 45.49 61.63 40.23
min-min       logistic  mlp    pairwise      constant  65.11 75.22 46.08 64.84 45.00
min-min       logistic  resnet pairwise      constant  64.84 75.68 41.34 64.26 44.61
min-min       logistic  linear unary         mlp       61.51 70.77 44.65 60.93 42.40
min-min       logistic  mlp    unary         mlp       62.03 70.81 39.70 62.26 46.24
min-min       logistic  resnet unary         mlp       63.01 70.69 25.25 62.60 45.65
min-min       logistic  linear pairwise      mlp       61.52 70.81 44.65 60.85 42.08
min-min       logistic  mlp    pairwise      mlp       62.42 69.96 38.89 63.38 46.08
min-min       logistic  resnet pairwise      mlp       63.04 70.90 33.79 63.11 45.25
min-min       logistic  linear unary         icnn      63.53 70.44 45.36 62.90 42.42
min-min       logistic  mlp    unary         icnn      65.15 74.65 44.99 64.99 44.89
min-min       logistic  resnet unary         icnn      65.39 75.60 38.84 67.10 45.23
min-min       logistic  linear pairwise      icnn      63.53 70.47 45.36 62.90 42.42
min-min       logistic  mlp    pairwise      icnn      64.94 74.84 45.82 64.52 45.00
min-min       logistic  resnet pairwise      icnn      65.14 75.30 39.52 66.30 44.62
"""

# Appendix: rankings with ResNet, tau an MLP.
RANKINGS_RESNET = """
min-min       logistic  linear permutahedron mlp       85.14 80.47 57.78 79.74 50.82 91.36
min-min       logistic  mlp    permutahedron mlp       88.69 84.39 97.78 86.27 74.26 90.12
min-min       logistic  resnet permutahedron mlp       88.49 84.29 98.52 87.06 71.08 93.21
min-min       logistic  linear birkhoff      mlp       87.71 81.29 97.78 83.33 56.33 95.06
min-min       logistic  mlp    birkhoff      mlp       90.80 85.43 98.52 86.41 65.20 91.98
min-min       logistic  resnet birkhoff      mlp       88.89 85.74 97.04 86.73 62.17 91.98
min-min       sparsemax linear permutahedron mlp       84.88 79.84 52.59 78.76 50.25 93.83
min-min       sparsemax mlp    permutahedron mlp       86.52 85.94 99.26 85.75 68.34 91.36
min-min       sparsemax resnet permutahedron mlp       88.17 85.53 58.52 86.21 59.52 90.74
min-min       sparsemax linear birkhoff      mlp       89.09 79.43 97.78 82.81 56.24 90.12
min-min       sparsemax mlp    birkhoff      mlp       87.84 80.47 98.52 87.19 55.43 85.80
min-min       sparsemax resnet birkhoff      mlp       89.22 84.70 97.04 87.52 55.87 91.98
"""

# Appendix: rankings, polytopes, models of tau and of g, logistic loss.
RANKINGS_TAU = """
min-min       logistic  linear permutahedron constant  84.94 79.64 57.78 79.61 49.18 91.98
min-min       logistic  mlp    permutahedron constant  87.38 84.39 97.04 85.75 73.68 89.51
min-min       logistic  resnet permutahedron constant  88.10 83.88 98.52 87.19 68.98 94.44
min-min       logistic  linear birkhoff      constant  88.17 77.16 97.78 83.66 57.29 95.06
min-min       logistic  mlp    birkhoff      constant  89.41 84.19 98.52 87.32 62.36 91.98
min-min       logistic  resnet birkhoff      constant  88.76 84.60 98.52 87.78 62.70 91.98
min-min       logistic  linear permutahedron mlp       85.14 80.47 57.78 79.74 50.82 91.36
min-min       logistic  mlp    permutahedron mlp       88.69 84.39 97.78 86.27 74.26 90.12
min-min       logistic  resnet permutahedron mlp       88.49 84.29 98.52 87.06 71.08 93.21
min-min       logistic  linear birkhoff      mlp       87.71 81.29 97.78 83.33 56.33 95.06
min-min       logistic  mlp    birkhoff      mlp       90.80 85.43 98.52 86.41 65.20 91.98
min-min       logistic  resnet birkhoff      mlp       88.89 85.74 97.04 86.73 62.17 91.98
min-min       logistic  linear permutahedron icnn      84.35 75.30 56.30 79.74 50.84 91.36
min-min       logistic  mlp    permutahedron icnn      84.62 83.67 82.96 84.84 65.24 93.83
min-min       logistic  resnet permutahedron icnn      87.25 82.53 85.19 83.66 65.09 93.83
min-min       logistic  linear birkhoff      icnn      88.76 81.71 87.41 82.88 53.94 95.06
min-min       logistic  mlp    birkhoff      icnn      90.20 77.98 90.37 84.97 46.83 94.44
min-min       logistic  resnet birkhoff      icnn      89.81 85.01 91.11 85.42 54.48 93.83
"""


def rows(table: str) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
    """(objective, loss, model, coupling, tau) and the values of each row."""
    lines = [line.split() for line in table.strip().splitlines()]
    return [(tuple(words[:5]), tuple(map(float, words[5:]))) for words in lines]
