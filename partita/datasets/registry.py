"""The table of data sets: what each holds, where it is published, and the checksum of what is published there."""

import difflib
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["SETS", "Entry", "File", "Task", "entry", "names"]

Task = Literal["multilabel", "ranking"]

GITHUB = "https://raw.githubusercontent.com"
KORBA = f"{GITHUB}/akorba/Structured_Approach_Label_Ranking/5bfe2a93b33426bc9d1f6445146d727d6b94f458/data"
MULAN = f"{GITHUB}/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
JUNG = f"{GITHUB}/YoungHJung/OnlineMLRBoostingWithVFDT/ab77d1019b61611b7f41d10d2cbf5c59732afc52/data"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multilabel"

KORBA_ET_AL = "Korba, Garcia, d'Alche-Buc, A Structured Prediction Approach for Label Ranking, NeurIPS 2018"
CHENG = "Cheng, Huhn, Hullermeier, Decision tree and instance-based learning for label ranking, ICML 2009"
SUSHI = "Kamishima, Nantonac collaborative filtering, KDD 2003"
TSOUMAKAS = "Tsoumakas et al., Mulan, JMLR 12, 2011"


class File(NamedTuple):
    """A published file.

    Parameters
    ----------
    path : str
        Its path in a folder of data, where it may also be packed.
    url : str
        Its address.
    sha256 : str or None
        The checksum of its unpacked content; None where none is published, and that of the first use is kept.
    """

    path: str
    url: str
    sha256: str | None


@dataclass(frozen=True)
class Entry:
    """A data set that is known by name.

    Parameters
    ----------
    name : str
        Its name.
    task : {"multilabel", "ranking"}
        What its outputs are.
    rows : tuple of int
        How many rows each file has.
    features, k : int
        How many features and labels it has.
    files : tuple of File
        The official training and test rows, in this order; a single file has no official split.
    cite : str
        Where it was published.
    note : str, default=""
        What to know before results are compared.
    paper : bool, default=False
        Whether it is one of the paper's.
    sparse : bool, default=False
        Whether x and y are csr.
    labeled : bool, default=False
        Whether its split leaves out rows without a label.
    coded : bool, default=False
        Whether a value such as 26:Osaka stands for the number 26.
    """

    name: str
    task: Task
    rows: tuple[int, ...]
    features: int
    k: int
    files: tuple[File, ...]
    cite: str
    note: str = ""
    paper: bool = False
    sparse: bool = False
    labeled: bool = False
    coded: bool = False


def _ranking(
    name: str,
    shape: tuple[int, int, int],
    sha256: str,
    *,
    cite: str = CHENG,
    note: str = "",
    paper: bool = False,
    coded: bool = False,
) -> Entry:
    rows, features, k = shape
    files = (File(f"label_ranking/{name}.txt", f"{KORBA}/{name}.txt", sha256),)
    return Entry(name, "ranking", (rows,), features, k, files, f"{KORBA_ET_AL}; {cite}", note, paper=paper, coded=coded)


def _multilabel(
    name: str,
    rows: tuple[int, ...],
    shape: tuple[int, int],
    files: dict[str, str],
    *,
    cite: str = TSOUMAKAS,
    note: str = "",
    folder: str = "",
    base: str = MULAN,
    paper: bool = False,
    sparse: bool = False,
    labeled: bool = False,
) -> Entry:
    folder = folder or name
    parts = tuple(File(f"multilabel/{folder}/{at}", f"{base}/{folder}/{at}", sha256) for at, sha256 in files.items())
    return Entry(name, "multilabel", rows, *shape, parts, cite, note, paper, sparse, labeled)


_TABLE = (
    _ranking(
        "authorship", (841, 70, 4), "b410bfee195dbd81643a3193dd747d22466d6e06f23bc06a7f84ce7421c3f93a", paper=True
    ),
    _ranking("glass", (214, 9, 6), "d1e1b0c9fc7bd37945be6ea6ae4565601229ed9aa7ada90d68aa776f0f855668", paper=True),
    _ranking("iris", (150, 4, 3), "3d9271c29963a2f6ef3845d35d09906df946ed35881622c40005f5ec0c53195a", paper=True),
    _ranking("vehicle", (846, 18, 4), "59c14a16fe66df9f5a694a9b8ddb417656978d6e6afe7b51f34dced25226e50c", paper=True),
    _ranking("vowel", (528, 10, 11), "1baf59c6141d16693bebf29549d942158b8ad3566f29fea892f0d327c569aacb", paper=True),
    _ranking("wine", (178, 13, 3), "6eab2f5fd73fb0c1ef5366904a1e1481b74669aa3da1ecae52f76d896dd7b909", paper=True),
    _ranking("calhousing", (20640, 4, 4), "a8b78da920568d67f091464c017706b0aa012b690f6dd408f824722ac7f9f4d6"),
    _ranking("cpu-small", (8192, 6, 5), "5411073cd0b74dcd0f87cb8f9b8671196b579de6ecd202a363e3fb77ab2ab723"),
    _ranking("fried", (40768, 9, 5), "2989d652ecad498151f54b1ecf7e755914364b0b56e717ea329d1a858be86c13"),
    _ranking("pendigits", (10992, 16, 10), "393a7f9b1d1d968595362fdcad6d012a87d7eab1128208e0e2731ecf393dd6e6"),
    _ranking(
        "sushi",
        (5000, 10, 10),
        "20275de23d36a3d7e3996914fe1c7ce22992d271e29b7c72c0c6c8e2b135b31a",
        note="Six of the ten features are numbers of places, such as 26 for Osaka: encode them, or take sushi_one_hot.",
        cite=SUSHI,
        coded=True,
    ),
    _ranking(
        "sushi_one_hot", (5000, 125, 10), "c5bc2c1d36706ed81b6cf2b387716121b91f820e6cc767cb71c94b2bb088824d", cite=SUSHI
    ),
    _multilabel(
        "birds",
        (322, 323),
        (260, 19),
        {
            "birds-train.arff": "8f215db6ee163149901e753977f631ba8bea0e0e8e1abc42b234414822f8ae36",
            "birds-test.arff": "51ba6326d65ccdd7c755b6461280eb6d2769c7f59d8e12fd4250f91e6ca28326",
        },
        cite=f"Briggs et al., MLSP 2013; {TSOUMAKAS}",
        note="The split leaves out rows without a label, as the paper does: 179 and 172 are left.",
        paper=True,
        labeled=True,
    ),
    _multilabel(
        "cal500",
        (502,),
        (68, 174),
        {"cal500.arff": "cfe6097ba5fd6e8584e54911ab9783dcab34e898446b7c9370c71d477eae56d3"},
        cite=f"Turnbull, Barrington, Torres, Lanckriet, IEEE TASLP 16(2), 2008; {TSOUMAKAS}",
        note="cal500 has no official split. The paper's 376 / 126 / 101 are more than its 502 rows: its test rows are "
        "among its training rows, or its table misstates the sizes. Ours are disjoint, 401 / 101 by "
        "train_test_split(test_size=0.2, random_state=0), and not comparable with the paper's.",
        paper=True,
    ),
    _multilabel(
        "emotions",
        (391, 202),
        (72, 6),
        {
            "emotions-train.arff": "bbe704106c79bb8fb99c1d1d2e9bde081d6a2daeb01f100862f11fd91a3c1f98",
            "emotions-test.arff": "f13d4b746b7b5c8eb484bd751d6ac463d4560dff998a93516a5c1fe35daf6c8f",
        },
        cite=f"Trohidis, Tsoumakas, Kalliris, Vlahavas, ISMIR 2008; {TSOUMAKAS}",
        paper=True,
    ),
    _multilabel(
        "scene",
        (1211, 1196),
        (294, 6),
        {
            "scene-train.arff": "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
            "scene-test.arff": "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
        },
        cite=f"Boutell, Luo, Shen, Brown, Pattern Recognition 37(9), 2004; {TSOUMAKAS}",
        paper=True,
    ),
    _multilabel(
        "yeast",
        (1500, 917),
        (103, 14),
        {
            "yeast-train.arff": "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
            "yeast-test.arff": "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
        },
        cite=f"Elisseeff and Weston, NIPS 2001; {TSOUMAKAS}",
        paper=True,
    ),
    Entry(
        "mediamill",
        "multilabel",
        (30993, 12914),
        120,
        101,
        tuple(
            File(f"multilabel/mediamill/{part}-exp1.svm", f"{LIBSVM}/mediamill/{part}-exp1.svm.bz2", None)
            for part in ("train", "test")
        ),
        "Snoek et al., ACM Multimedia 2006",
        "The checksums of mediamill are not published: those of the first use are kept and checked from then on. The "
        "split leaves out rows without a label, which agrees with the sizes of the paper's table.",
        paper=True,
        labeled=True,
    ),
    _multilabel(
        "mediamill_reduced",
        (1500, 500),
        (120, 101),
        {
            "mediamill-train.arff": "f4a562d2b78f5daedeafabc0747542ed2e4d5fd0bb20d348c53d63cc3a0b1e7c",
            "mediamill-test.arff": "7594040bfe35e09f674d1c15727d978f310c1106de49ea448764e4627b8b424d",
        },
        cite=f"Snoek et al., ACM Multimedia 2006; Jung and Tewari, AISTATS 2018; {TSOUMAKAS}",
        note="A subset of mediamill that Jung and Tewari picked: never to be compared with the paper's mediamill.",
        base=JUNG,
    ),
    _multilabel(
        "bibtex",
        (4880, 2515),
        (1836, 159),
        {
            "bibtex-train.arff": "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
            "bibtex-test.arff": "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
        },
        sparse=True,
    ),
    _multilabel(
        "delicious",
        (12920, 3185),
        (500, 983),
        {
            "delicious-train.arff": "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
            "delicious-test.arff": "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
        },
        sparse=True,
    ),
    _multilabel(
        "tmc2007-500",
        (21519, 7077),
        (500, 22),
        {
            "tmc2007-500-train.arff": "edfe7b7615c6f80e54c92a214437610d1ae36560c5cc6c4253b51c434d258273",
            "tmc2007-500-test.arff": "b24f9c3f1eba77c9da0bbaff093ba41d331b7351be0167a8e1e3852c62e25e38",
        },
        folder="tmc2007",
        sparse=True,
    ),
)

SETS = {row.name: row for row in _TABLE}


def names(task: Task | None = None) -> tuple[str, ...]:
    """List the names that `load` knows.

    Parameters
    ----------
    task : {"multilabel", "ranking"}, default=None
        Only sets of this task.

    Returns
    -------
    tuple of str
        The names.
    """
    if task not in (None, "multilabel", "ranking"):
        raise ValueError(f"task must be 'multilabel', 'ranking' or None; got {task!r}.")
    return tuple(name for name, known in SETS.items() if task in (None, known.task))


def entry(name: str) -> Entry:
    """Look up a data set by its name.

    Parameters
    ----------
    name : str
        One of `names()`.

    Returns
    -------
    Entry
        Its sizes, files, source and note.
    """
    if name not in SETS:
        similar = difflib.get_close_matches(name, SETS, n=1)
        question = f" Did you mean {similar[0]!r}?" if similar else ""
        raise ValueError(f"There is no data set {name!r}; there are {', '.join(sorted(SETS))}.{question}")
    return SETS[name]
