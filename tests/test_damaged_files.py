"""A file is as `save` wrote it or it is refused, and nothing in it is executed; a failed save changes nothing."""

import errno
import functools
import hashlib
import json
import os
import pickle
import re

import jax
import numpy as np
import pytest
import safetensors.numpy
from cases import COUPLINGS
from sklearn.preprocessing import StandardScaler
from test_persistence import same_bits

import partita
from partita import atomic
from partita.model import EBM, Energy, Table
from partita.networks import Linear
from partita.persistence import FileError, objects, store
from partita.types import RESULTS

KEY = jax.random.key(3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.partita"


# A failed save.


class Full:
    """A file on a disk that is full after ten bytes."""

    def __init__(self, *args):
        self.file = open(*args)  # noqa: SIM115

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        self.file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")


def failing(*_):
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("module", "name", "broken"), [(atomic, "open", Full), (os, "fsync", failing), (os, "replace", failing)]
)
def test_a_failed_save_leaves_the_old_file_and_nothing_else(module, name, broken, path, monkeypatch):
    old = [StandardScaler().fit(np.eye(2)), 1]
    partita.save(old, path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    new = [StandardScaler().fit(np.ones((3, 2))), 2]
    monkeypatch.setattr(module, name, broken, raising=False)
    with pytest.raises(OSError, match=r"No space|Input/output"):
        partita.save(new, path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    assert len(before) == 2


def test_a_save_replaces_what_a_link_points_to(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    partita.save(1, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert partita.load(path) == 1


# A file that is not what `save` wrote.


def original():
    """A small model, text, an enum and a key."""
    ebm = EBM(Energy(Linear(3, 10, key=KEY), COUPLINGS["ising-sparse"]), Table(3))
    return {"model": ebm, "names": np.array(["a", "b"]), "end": RESULTS.completed, "key": jax.random.key(1)}


@functools.cache
def original_bytes():
    encoder = objects.Encoder()
    return store.pack({"object": encoder(original(), ""), "side": None}, encoder.tensors)


def parts_of(raw):
    """(header, description, data) of a file, by hand."""
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    return header, json.loads(header["__metadata__"]["description"]), raw[8 + size :]


def sealed(header, description, data, *, seal=True):
    """A file of these parts; its checksum is done again as `save` does it, or left as it was."""
    text = description if isinstance(description, str) else json.dumps(description)
    old = header["__metadata__"]["sha256"]
    metadata = {**header["__metadata__"], "sha256": "0" * 64 if seal else old, "description": text}
    dumped = json.dumps({**header, "__metadata__": metadata}, separators=(",", ":")).encode()
    raw = len(dumped).to_bytes(8, "little") + dumped + data
    return raw.replace(b"0" * 64, hashlib.sha256(raw).hexdigest().encode(), 1) if seal else raw


def edited(change, *, seal=True):
    """The original after `change(header, description)`, which may give another description."""
    header, description, data = parts_of(original_bytes())
    found = change(header, description)
    return sealed(header, description if found is None else found, data, seal=seal)


def at(description, *keys):
    """The description of the part of the model at a path of fields."""
    found = description["object"]["dict"][0][1]
    for key in keys:
        found = found["fields"][key]
    return found


def setting(value, *keys, name=None):
    """An edit: the field `keys[-1]` of the model becomes `value`; or its entry `name`."""

    def change(header, description):
        if name is not None:
            at(description, *keys)[name] = value
        else:
            at(description, *keys[:-1])["fields"][keys[-1]] = value

    return change


def more(value):
    """An edit: another value beside the model."""
    return lambda header, description: description["object"]["dict"].append(["more", value])


def metadata(**entries):
    return lambda header, description: header["__metadata__"].update(entries)


WEIGHT = "['model'].g.h.layer.weight"
SPACE = ("g", "coupling", "polytope")
# Each with a checksum that is right again.
FORGED = {
    "os.system": setting("os.system", "g", name="class"),
    "builtins.eval": setting("builtins.eval", "g", name="class"),
    "module of partita's": setting("partita.persistence.store.json", "g", name="class"),
    "imported name": setting("partita.couplings.Hypercube", *SPACE, name="class"),
    "function": setting("partita.training.fit", "g", name="class"),
    "demo": setting("partita.cli.Problem", "g", name="class"),
    "no class": setting("partita.model.Nonsense", "g", name="class"),
    "no module": setting("partita.nonsense.EBM", "g", name="class"),
    "only partita": setting("partita", "g", name="class"),
    "dots": setting("..", "g", name="class"),
    "no string": setting(["partita.model.Energy"], "g", name="class"),
    "abstract": setting("partita.couplings.AbstractInteraction", "g", "coupling", "interaction", name="class"),
    "abstract and empty": more({"class": "partita.couplings.AbstractInteraction", "fields": {}}),
    "another class": setting("partita.structures.Permutations", "g", name="class"),
    "missing": lambda header, description: at(description, "g", "coupling")["fields"].pop("shared"),
    "unknown": setting(1, "g", "coupling", "more"),
    "init": setting(1, "g", "coupling", "__init__"),
    "class as field": setting(1, "g", "coupling", "__class__"),
    "text for a number": setting("4", *SPACE, "k"),
    "fraction": setting(4.5, *SPACE, "k"),
    "bool for a number": setting(True, *SPACE, "k"),
    "nothing": setting(None, *SPACE, "k"),
    "number for a module": setting(3, "g"),
    "module of another kind": setting({"class": "partita.structures.Hypercube", "fields": {"k": 4}}, "f"),
    "list for a tuple": setting([10], "g", "h", "out_shape"),
    "text in a tuple": setting({"tuple": ["10"]}, "g", "h", "out_shape"),
    "no array": setting(0.0, "g", "h", "layer", "weight"),
    "too few labels": setting(0, *SPACE, "k"),
    "edge of no label": setting({"tuple": [{"tuple": [0, 9]}]}, "g", "coupling", "interaction", "edges"),
    "nan bound": setting({"float": "000000000000f87f"}, "f", "bound"),
    "no reference": setting({"class": "partita.structures.Uniform", "fields": {}}, "q"),
    "enum as class": more({"class": "partita.types.RESULTS", "fields": {}}),
    "class as enum": more({"enum": "partita.model.EBM", "member": "g"}),
    "no member": more({"enum": "partita.types.RESULTS", "member": "mro"}),
    "no such thing": more({"code": "print(1)"}),
    "nothing at all": more({}),
    "sklearn without": more({"sklearn": 0}),
    "negative index": more({"sklearn": -1}),
    "short float": more({"float": "00"}),
    "no hexadecimals": more({"float": "zz"}),
    "literal nan": lambda header, description: json.dumps(description)[:-1] + ', "more": NaN}',
    "list as key": lambda header, description: description["object"]["dict"].append([["x"], 1]),
    "triple in dict": lambda header, description: description["object"]["dict"].append([1, 2, 3]),
    "twice": more({"jax": [WEIGHT, "<f4"], "weak": False}),
    "no tensor": more({"jax": ["nonsense", "<f4"], "weak": False}),
    "extra tensor": lambda header, description: description["object"]["dict"].pop(3) and None,
    "other type": setting({"jax": [WEIGHT, "<i4"], "weak": False}, "g", "h", "layer", "weight"),
    "objects": setting({"numpy": [WEIGHT, "|O"], "scalar": False}, "g", "h", "layer", "weight"),
    "records": setting({"numpy": [WEIGHT, "i4,f8"], "scalar": False}, "g", "h", "layer", "weight"),
    "void": setting({"numpy": [WEIGHT, "V999999999"], "scalar": False}, "g", "h", "layer", "weight"),
    "no type": setting({"numpy": [WEIGHT, "__import__('os')"], "scalar": False}, "g", "h", "layer", "weight"),
    "no impl": lambda header, description: description["object"]["dict"][3][1].update(impl="nonsense"),
    "key of floats": setting({"key": [WEIGHT, "<f4"], "impl": "rbg"}, "g", "h", "layer", "weight"),
    "much text": more({"items": ["a"], "dtype": "<U100000000", "shape": [1], "scalar": False}),
    "text of objects": more({"items": [{}], "dtype": "|O", "shape": [1], "scalar": False}),
    "text of numbers": more({"items": [1], "dtype": "<U1", "shape": [1], "scalar": False}),
    "text of shape": more({"items": ["a"], "dtype": "<U1", "shape": [2], "scalar": False}),
    "deep": lambda header, description: '{"object":' + "[" * 100_000 + "]" * 100_000 + ',"side":null}',
    "deep tuples": lambda header, description: '{"object":' + '{"tuple":[' * 900 + "]}" * 900 + ',"side":null}',
    "no JSON": lambda header, description: "{object}",
    "long integer": lambda header, description: '{"object":' + "9" * 5000 + ',"side":null}',
    "no object": lambda header, description: {"side": None},
    "no dict": lambda header, description: ["object", "side"],
    "no side": lambda header, description: {"object": 1},
    "odd side": lambda header, description: {"object": 1, "side": 3},
    "overlap": lambda header, description: header[WEIGHT].update(data_offsets=[0, 120]),
    "shape": lambda header, description: (
        header[WEIGHT].update(shape=[2, 15]) or setting(5, *SPACE, "k")(header, description)
    ),
    "huge shape": lambda header, description: header[WEIGHT].update(shape=[2**40, 2**40]),
    "strange type": lambda header, description: header[WEIGHT].update(dtype="F8_E4M3"),
    "hole": lambda header, description: header.pop(WEIGHT) and None,
    "other format": metadata(format="pt"),
    "no version": metadata(version=""),
    "version zero": metadata(version="0"),
    "odd version": metadata(version="1.0"),
    "newer version": metadata(version="2"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused(name, path, monkeypatch):
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("executed"))
    path.write_bytes(edited(FORGED[name]))
    assert path.read_bytes() != original_bytes()
    with pytest.raises(FileError, match=f"^{re.escape(str(path))} "):
        partita.load(path)


def test_the_forger_s_tools_make_a_file_that_is_read(path):
    """Else the tests above would refuse for another reason."""
    path.write_bytes(edited(lambda header, description: None))
    assert same_bits(partita.load(path), original())
    path.write_bytes(edited(more({"tuple": [1]})))
    assert partita.load(path)["more"] == (1,)


def test_a_newer_file_says_to_upgrade(path):
    path.write_bytes(edited(metadata(version="12", partita="9.1")))
    with pytest.raises(FileError, match=r"newer partita, 9\.1, in format 12; this one reads formats up to 1\. Upgrade"):
        partita.load(path)


def swapped(raw):
    """The file with two tensors of one shape exchanged."""
    header, description, data = parts_of(raw)
    (a, b), (c, d) = (header[name]["data_offsets"] for name in ("['model'].tau.values", "['model'].g.h.layer.bias"))
    n = min(b - a, d - c)
    data = bytearray(data)
    data[a : a + n], data[c : c + n] = data[c : c + n], data[a : a + n]
    return sealed(header, description, bytes(data), seal=False)


def corrupted():
    """A hundred files that an accident may have made of a good one."""
    raw, rng, found = original_bytes(), np.random.default_rng(0), {}
    for i, length in enumerate([0, 1, 7, 8, 9, len(raw) - 1, *rng.integers(10, len(raw) - 1, size=24)]):
        found[f"truncated-{i}"] = raw[:length]
    size = int.from_bytes(raw[:8], "little")
    # The length of the header, the header, its last byte, the tensors.
    places = [*range(8), *rng.integers(8, 8 + size, size=30), 7 + size, *rng.integers(8 + size, len(raw), size=16)]
    for i, place in enumerate(places):
        one = bytearray(raw)
        one[place] ^= int(rng.integers(1, 256))
        found[f"flipped-{i}"] = bytes(one)
    found |= {"padded": raw + b"\0", "before": b"\0" + raw, "twice": raw + raw, "blank": bytes(len(raw))}
    found |= {"other": b"PK\3\4" + raw[4:], "swapped": swapped(raw)}
    found["spaces"] = raw[: 8 + size - 1] + b"\n" + raw[8 + size :] if raw[7 + size] == 32 else raw[:-1]
    edits = ["os.system", "missing", "unknown", "fraction", "no tensor", "shape", "other type", "too few labels"]
    found |= {f"edited-{name}": edited(FORGED[name], seal=False) for name in edits}
    return found


CORRUPTED = corrupted()


@pytest.mark.parametrize("name", CORRUPTED)
def test_a_corrupted_file_is_refused(name, path):
    path.write_bytes(CORRUPTED[name])
    with pytest.raises(FileError, match=f"^{re.escape(str(path))} "):
        partita.load(path)


def test_a_hundred_files_were_corrupted():
    assert len(CORRUPTED) >= 100
    assert original_bytes() not in CORRUPTED.values()


def test_other_files_are_told_apart(path):
    with pytest.raises(FileNotFoundError):
        partita.load(path)
    safetensors.numpy.save_file({"a": np.zeros(2)}, path, metadata={"format": "np"})
    with pytest.raises(FileError, match="is a safetensors file, but not one that partita wrote"):
        partita.load(path)
    path.write_bytes(pickle.dumps(os.system))
    with pytest.raises(FileError, match="is not a file that partita wrote"):
        partita.load(path)
    path.write_bytes(original_bytes()[:-4])
    with pytest.raises(FileError, match="changed or cut off"):
        partita.load(path)


# Pickles.


class Evil:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def test_a_pickle_is_never_executed_without_consent_or_with_a_wrong_checksum(path, tmp_path):
    mark, side = tmp_path / "mark", tmp_path / "model.partita.sklearn"
    partita.save(StandardScaler(), path)
    evil = pickle.dumps([Evil(mark)])
    side.write_bytes(evil)
    with pytest.raises(FileError, match=r"model\.partita\.sklearn that was written with it.*checksum.*differs"):
        partita.load(path, trusted=True)
    header, description, data = parts_of(path.read_bytes())
    description["side"]["sha256"] = hashlib.sha256(evil).hexdigest()
    path.write_bytes(sealed(header, description, data))
    with pytest.raises(FileError, match="trusted=True"):
        partita.load(path)
    assert not mark.exists()
    # With consent and the right checksum it is: the mark does work.
    partita.load(path, trusted=True)
    assert mark.exists()


def test_a_side_file_that_is_missing_or_unreadable_is_said(path):
    side = path.with_name("model.partita.sklearn")
    partita.save(StandardScaler(), path)
    header, description, data = parts_of(path.read_bytes())
    description["side"]["sha256"] = hashlib.sha256(b"nonsense").hexdigest()
    path.write_bytes(sealed(header, description, data))
    side.write_bytes(b"nonsense")
    with pytest.raises(FileError, match=r"which scikit-learn .* cannot read"):
        partita.load(path, trusted=True)
    side.unlink()
    with pytest.raises(FileError, match=r"needs .*model\.partita\.sklearn beside it.*not there"):
        partita.load(path, trusted=True)
