"""What is known of the paper's graphs: tasks, public homes, hashes, counts, licences.

Hashes were recorded from public records of others who fetched the same files, named
beside each; where nobody recorded one, there is none here, and a fetched file is
checked by what it holds alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from xnq_dist.core.errors import SettingsError

__all__ = [
    "DATASETS",
    "Dataset",
    "Expected",
    "KnownTask",
    "RemoteFile",
    "Source",
    "dataset_of",
    "find",
    "has_features",
    "known_tasks",
]

VARIABLE = "XNQ_DATA_DIR"
"""Environment variable that names the folder of the graphs' folders."""

TABLES = ("nodes.parquet", "edges.parquet")


@dataclass(frozen=True)
class RemoteFile:
    """One file at a public home."""

    name: str
    url: str
    sha256: str | None = None
    """None: nobody recorded it."""
    size: int | None = None
    """Bytes; None: nobody recorded them."""
    members: tuple[str, ...] = ()
    """Paths inside a zip archive that are unpacked under their last names."""


@dataclass(frozen=True)
class Expected:
    """What a parsed graph must hold."""

    nodes: int
    edges: int
    """Directed rows."""
    features: int
    classes: int
    class_counts: tuple[int, ...] | None = None
    """Nodes of each class, where they are known."""
    share: float | None = None
    """Published prevalence of class 1, two decimals, where the counts are not."""


@dataclass(frozen=True)
class Source:
    """A public home of a graph and how its files are read."""

    name: str
    form: Literal["planetoid", "heterophilous", "linkx", "musae", "ptg", "graphsaint"]
    files: tuple[RemoteFile, ...]
    expected: Expected
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the form's reader."""
    note: str = ""
    """What to know before taking it."""

    @property
    def size(self) -> int | None:
        """Bytes of all files, None when one is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True)
class Dataset:
    """A graph of the paper."""

    name: str
    """Also the name of its folder."""
    sources: tuple[Source, ...]
    """The first is fetched unless another is asked for."""
    licence: str
    licence_note: str
    paper: Mapping[str, Any]
    """What the paper prints of it."""
    differs: str
    """Where the files and the paper's print disagree."""
    splits: Mapping[str, int | None]
    """Files of folds to write, and the class set against the rest (None: all)."""

    def source(self, name: str | None) -> Source:
        """A source by name, the first without one."""
        if name is None:
            return self.sources[0]
        for source in self.sources:
            if source.name == name:
                return source
        raise SettingsError(
            f"{self.name} has no source {name!r}: choose one of "
            f"{', '.join(source.name for source in self.sources)}"
        )


@dataclass(frozen=True)
class KnownTask:
    """A task of the paper on one of its graphs."""

    name: str
    folder: str
    """Name of the graph's folder."""
    splits: str
    """File of folds in the folder."""
    positive: str | None
    """Class set against the rest, None: the classes as they are."""
    protocol: Literal["app", "upp"]
    """Binary tasks draw prevalences from a grid, the others uniformly."""
    has_features: bool
    """Whether the graph has input features at its public home; a folder made
    elsewhere may lack them (`has_features`)."""


def _raw(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


_PLANETOID = ("kimiyoung/planetoid", "af6abf468a772cc055bec88c52e4d6f51b7c37e3")
_YANDEX = (
    "yandex-research/heterophilous-graphs",
    "a431395582e929d88271309716bea4fe24ce6318",
)
_LINKX = "CUAI/Non-Homophily-Large-Scale"
_TWITCH_COMMIT = "82f8f05c5c3ec16bd5b505cc7ad62ab5e09051e6"
_DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
_SAINT = ("adj_full.npz", "feats.npy", "class_map.json")

# The same six hashes are recorded for this commit in three unrelated projects (one
# pins them to the commit, one to the copies inside THUDM/GRAND).
_CORA_HASHES = {
    "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
}


def _heterophilous(
    name: str, sha256: str, size: int, expected: Expected
) -> tuple[Source, ...]:
    """A file of Platonov et al.

    Hashes and sizes are those that one project recorded of all five files of the
    commit; of Tolokers and Amazon-ratings others recorded the same.
    """
    file = RemoteFile(f"{name}.npz", _raw(*_YANDEX, f"data/{name}.npz"), sha256, size)
    return (Source("yandex", "heterophilous", (file,), expected),)


_YANDEX_NOTE = (
    "the repository's licence; the rights in the data beneath are not stated separately"
)

_CORA = Dataset(
    name="cora",
    sources=(
        Source(
            "planetoid",
            "planetoid",
            tuple(
                RemoteFile(
                    f"ind.cora.{part}", _raw(*_PLANETOID, f"data/ind.cora.{part}"), sha
                )
                for part, sha in _CORA_HASHES.items()
            ),
            Expected(2708, 10_556, 1433, 7, (351, 217, 418, 818, 426, 298, 180)),
            {"prefix": "ind.cora"},
        ),
    ),
    licence="MIT",
    licence_note="the repository's licence; the home of the citations states none",
    paper={"nodes": 2708, "edges": 5429, "features": 1433, "prevalence": 0.15},
    differs="The table has 5,429 citation links; the planetoid form has 5,278 "
    "undirected edges without self-loops and duplicates, here both ways.",
    splits=MappingProxyType({"splits.parquet": 2, "splits_multiclass.parquet": None}),
)

_TOLOKERS = Dataset(
    name="tolokers",
    sources=_heterophilous(
        "tolokers",
        "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
        1_329_769,
        Expected(11_758, 1_038_000, 10, 2, (9192, 2566)),
    ),
    licence="MIT",
    licence_note=_YANDEX_NOTE,
    paper={"nodes": 11_758, "edges": 1_038_000, "features": 10, "prevalence": 0.02},
    differs="The prevalence of the file is .218; the table prints .02.",
    splits=MappingProxyType({"splits.parquet": None}),
)

_QUESTIONS = Dataset(
    name="questions",
    sources=_heterophilous(
        "questions",
        "757ebd772bab1475c4dd951ca9e364400c6db161656cff9d21780ee874cf3074",
        47_369_919,
        Expected(48_921, 307_080, 301, 2, share=0.03),
    ),
    licence="MIT",
    licence_note=_YANDEX_NOTE,
    paper={"nodes": 48_921, "edges": 307_080, "features": 301, "prevalence": 0.03},
    differs="Nothing.",
    splits=MappingProxyType({"splits.parquet": None}),
)

_AMAZON = Dataset(
    name="amazon-ratings",
    sources=_heterophilous(
        "amazon_ratings",
        "4c3a3e3b9d9f6cba0fede4625a00aad8c5721c1a36ed771367f446763241c7dd",
        27_744_018,
        Expected(24_492, 186_100, 300, 5),
    ),
    licence="MIT",
    licence_note=_YANDEX_NOTE,
    paper={"nodes": 29_492, "edges": 182_100, "features": 300, "classes": 4},
    differs="The text has 29,492 nodes, 182,100 edges and 4 classes; the file has "
    "24,492 nodes, 93,050 undirected edges (186,100 both ways) and 5 classes.",
    splits=MappingProxyType({"splits.parquet": None}),
)

_GENIUS = Dataset(
    name="genius",
    sources=(
        Source(
            "linkx",
            "linkx",
            # No public record of the hash was found, nor of a commit that surely has
            # the file: the branch is what the paper's code fetched from.
            (
                RemoteFile(
                    "genius.mat",
                    f"https://github.com/{_LINKX}/raw/master/data/genius.mat",
                ),
            ),
            Expected(421_961, 984_979, 12, 2, share=0.20),
            {"normalise": True},
        ),
    ),
    licence="not stated",
    licence_note="the repository has no licence file",
    paper={"nodes": 421_961, "edges": 984_979, "features": 12, "prevalence": 0.20},
    differs="Nothing.",
    splits=MappingProxyType({"splits.parquet": None}),
)

_TWITCH_EXPECTED = Expected(9498, 315_774, 128, 2, (3756, 5742))
_TWITCH_LANGUAGES = ("DE", "ENGB", "ES", "FR", "PTBR", "RU")


def _musae_features(language: str) -> str:
    """Name of a language's features in SNAP's archive; the German one is odd."""
    return f"musae_{language}{'' if language == 'DE' else '_features'}.json"


_TWITCH = Dataset(
    name="twitch-de",
    sources=(
        Source(
            "snap",
            "musae",
            (
                RemoteFile(
                    "twitch.zip",
                    "https://snap.stanford.edu/data/twitch.zip",
                    # recorded by one project that also lists the archive's members
                    "65a6c4c23da23889517734a8c947e522b2f0c7db179559a3904aeb8793d004dc",
                    members=(
                        "twitch/DE/musae_DE_edges.csv",
                        "twitch/DE/musae_DE_target.csv",
                        *(
                            f"twitch/{language}/{_musae_features(language)}"
                            for language in _TWITCH_LANGUAGES
                        ),
                    ),
                ),
            ),
            _TWITCH_EXPECTED,
            {
                "language": "DE",
                "features": tuple(map(_musae_features, _TWITCH_LANGUAGES)),
                # the published matrices have two empty rows more for French
                "rows": (9498, 7126, 4648, 6551, 1912, 4385),
                "rebuild": 128,
            },
            note="the 128 features are rebuilt from the game counts, which takes tens "
            "of minutes on two cores",
        ),
        Source(
            "ptg",
            "ptg",
            (
                RemoteFile(
                    "DE.npz", "https://graphmining.ai/datasets/ptg/twitch/DE.npz"
                ),
            ),
            _TWITCH_EXPECTED,
            note="the file of the paper; its host has been down since 2025 "
            "(pytorch_geometric issues 10346, 10510): for a copy that you hold",
        ),
        Source(
            "musae",
            "musae",
            tuple(
                RemoteFile(
                    f"musae_DE_{part}",
                    _raw(_LINKX, _TWITCH_COMMIT, f"data/twitch/DE/musae_DE_{part}"),
                )
                for part in ("edges.csv", "target.csv", "features.json")
            ),
            Expected(9498, 315_774, 3170, 2, (3756, 5742)),
            {
                "language": "DE",
                "features": ("musae_DE_features.json",),
                "rows": (9498,),
                "rebuild": None,
            },
            note="3,170 game counts as features, not the paper's 128",
        ),
    ),
    licence="not stated",
    licence_note="SNAP asks for a citation and states no licence",
    paper={"nodes": 9498, "edges": 315_774, "features": 128, "prevalence": 0.61},
    differs="The prevalence of the file is .6045; the table prints .61.",
    splits=MappingProxyType({"splits.parquet": None}),
)

_FLICKR_EXPECTED = Expected(
    89_250, 899_756, 500, 7, (5264, 8506, 6413, 4903, 22_966, 3479, 37_719)
)

_FLICKR = Dataset(
    name="flickr",
    sources=(
        Source(
            "graphsaint",
            "graphsaint",
            # role.json of the same folder holds the split of another paper: not read
            tuple(
                RemoteFile(name, _DRIVE + key)
                for name, key in zip(
                    _SAINT,
                    (
                        "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
                        "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
                        "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
                    ),
                    strict=True,
                )
            ),
            _FLICKR_EXPECTED,
        ),
        Source(
            "dgl",
            "graphsaint",
            (
                RemoteFile(
                    "flickr.zip",
                    "https://data.dgl.ai/dataset/flickr.zip",
                    members=_SAINT,
                ),
            ),
            _FLICKR_EXPECTED,
            note="the same files in one archive, where Google Drive is out of reach",
        ),
    ),
    licence="not stated",
    licence_note="GraphSAINT's code is under MIT; its data folder states no licence",
    paper={"nodes": 89_250, "edges": 899_756, "features": 500},
    differs="Nothing.",
    splits=MappingProxyType({"splits.parquet": None}),
)

DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        dataset.name: dataset
        for dataset in (
            _CORA,
            _GENIUS,
            _QUESTIONS,
            _TOLOKERS,
            _TWITCH,
            _AMAZON,
            _FLICKR,
        )
    }
)
"""The graphs by name."""

_TASKS = (
    KnownTask("cora-2", "cora", "splits.parquet", "2", "app", True),
    KnownTask("cora-multi", "cora", "splits_multiclass.parquet", None, "upp", True),
    KnownTask("genius", "genius", "splits.parquet", None, "app", True),
    KnownTask("questions", "questions", "splits.parquet", None, "app", True),
    KnownTask("tolokers", "tolokers", "splits.parquet", None, "app", True),
    KnownTask("twitch-de", "twitch-de", "splits.parquet", None, "app", True),
    KnownTask("amazon-ratings", "amazon-ratings", "splits.parquet", None, "upp", True),
    KnownTask("flickr", "flickr", "splits.parquet", None, "upp", True),
)


def known_tasks() -> dict[str, KnownTask]:
    """The paper's eight tasks by name, in its order.

    In a binary task without `positive` the class 1 is the positive one.
    """
    return {task.name: task for task in _TASKS}


def dataset_of(name: str) -> Dataset:
    """The graph of a task or folder name.

    Raises
    ------
    SettingsError
        Naming the known ones.
    """
    task = known_tasks().get(name)
    try:
        return DATASETS[task.folder if task else name]
    except KeyError:
        raise SettingsError(
            f"there is no graph {name!r}: choose one of {', '.join(known_tasks())}"
        ) from None


def find(name: str, root: Path | None = None) -> Path | None:
    """Where a graph lies on this machine.

    Parameters
    ----------
    name
        Task or folder name.
    root
        Folder of the graphs' folders; None: what ``XNQ_DATA_DIR`` names.

    Returns
    -------
    Path or None
        The graph's folder when it holds node and edge tables.

    Raises
    ------
    SettingsError
        For a name that is none of the paper's.
    """
    dataset = dataset_of(name)
    named = os.environ.get(VARIABLE)
    if root is None and not named:
        return None
    folder = Path(root or named or ".").expanduser() / dataset.name
    return folder if all((folder / table).is_file() for table in TABLES) else None


def has_features(folder: Path) -> bool:
    """Whether a graph's node table has input features."""
    import pyarrow.parquet as pq

    return "features" in pq.read_schema(folder / "nodes.parquet").names
