"""Downloads from a real server on this machine: what is kept is what was published, whatever the server does."""

import bz2
import dataclasses
import errno
import functools
import gzip
import hashlib
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from partita import datasets
from partita.datasets import DataError, DownloadError, registry, store

HEAD = "@relation r\n@attribute a numeric\n@attribute u {0,1}\n@attribute v {0,1}\n@data\n"
TRAIN, TEST = (HEAD + "1.5,0,1\n2,1,0\n").encode(), (HEAD + "3,1,1\n").encode()
PATHS = ("multilabel/toy/toy-train.arff", "multilabel/toy/toy-test.arff")


class Server(http.server.ThreadingHTTPServer):
    """Answers each path by the functions of its list, one after the other; the last one stays."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = {}, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_):
        """A client that was killed is no error here."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        answers = self.server.answers.get(self.path, [missing])
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *_):
        """The tests look at `asked`."""


def begin(handler, length):
    handler.send_response(200)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()


def whole(content, handler):
    begin(handler, len(content))
    handler.wfile.write(content)


def half(content, handler):
    begin(handler, len(content))
    handler.wfile.write(content[: len(content) // 2])
    handler.close_connection = True


def missing(handler):
    handler.send_error(404)


def redirect(target, handler):
    handler.send_response(302)
    handler.send_header("Location", target)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def serves(answer, *given):
    return functools.partial(answer, *given)


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of data, no proxy, and no pause before the next try."""
    monkeypatch.setenv("PARTITA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PARTITA_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    return tmp_path / "cache"


def toy_entry(url, contents=(TRAIN, TEST), paths=PATHS):
    files = zip(paths, ("train", "test"), contents, strict=True)
    files = [datasets.File(path, f"{url}/{part}", hashlib.sha256(made).hexdigest()) for path, part, made in files]
    return registry.Entry("toy", "multilabel", (2, 1), 1, 2, tuple(files), "nobody")


@pytest.fixture
def toy(server, monkeypatch):
    """A data set of two files, both of which the server has."""
    monkeypatch.setitem(registry.SETS, "toy", toy_entry(server.url))
    server.answers |= {"/train": [serves(whole, TRAIN)], "/test": [serves(whole, TEST)]}
    return server


def held(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


BOTH = dict(zip(PATHS, (TRAIN, TEST), strict=True))


def check_toy(found):
    assert found.x.tolist() == [[1.5], [2], [3]]
    assert found.y.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert (found.train, found.classes) == (2, ("u", "v"))


def test_a_set_is_downloaded_once(toy, cache, capsys):
    assert [state.verdict for state in datasets.check("toy")] == ["absent", "absent"]
    check_toy(datasets.load("toy"))
    assert toy.asked == ["/train", "/test"]
    assert held(cache) == BOTH
    shown = capsys.readouterr().err
    assert "toy-train.arff" in shown
    assert re.search(rf"{len(TRAIN)}/{len(TRAIN)} bytes", shown)
    check_toy(datasets.load("toy", download=False))
    assert datasets.fetch("toy") == tuple(cache / path for path in PATHS)
    assert [state.verdict for state in datasets.check("toy")] == ["good", "good"]
    assert len(toy.asked) == 2


def test_the_first_file_is_kept_when_the_second_fails(toy, cache):
    toy.answers["/test"] = [missing]
    with pytest.raises(DownloadError):
        datasets.fetch("toy")
    assert held(cache) == {PATHS[0]: TRAIN}
    toy.answers["/test"] = [serves(whole, TEST)]
    toy.asked.clear()
    check_toy(datasets.load("toy"))
    assert toy.asked == ["/test"]


FAILURES = {
    "wrong content": (serves(whole, TRAIN + b"1,0,0\n"), "does not match the known hash: expected {sha256} but got"),
    "cut off": (serves(half, TRAIN), "the connection broke off"),
    "empty": (serves(whole, b""), "does not match the known hash"),
    "not found": (missing, "the server answers 404 Not Found"),
    "elsewhere on this machine": (serves(redirect, "file:///etc/hostname"), "No connection adapters were found"),
    "in circles": (serves(redirect, "/train"), "Exceeded 30 redirects"),
}


@pytest.mark.parametrize(("answer", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failed_download_leaves_nothing_and_says_what_to_do(answer, reason, toy, cache):
    toy.answers["/train"] = [answer]
    with pytest.raises(DownloadError) as caught:
        datasets.load("toy")
    said = str(caught.value)
    assert said.startswith(f"{PATHS[0]} could not be downloaded from {toy.url}/train: ")
    assert reason.format(sha256=hashlib.sha256(TRAIN).hexdigest()) in said
    assert said.endswith(
        f"Get {toy.url}/train and put it at {cache / PATHS[0]}, or set PARTITA_DATA to a folder that holds {PATHS[0]}."
    )
    assert "\n" not in said
    assert held(cache) == {}
    toy.answers["/train"] = [serves(whole, TRAIN)]
    check_toy(datasets.load("toy"))


def test_a_server_that_breaks_off_is_asked_again(toy, cache):
    toy.answers["/train"] = [serves(half, TRAIN), serves(whole, b"busy"), serves(whole, TRAIN)]
    check_toy(datasets.load("toy"))
    assert toy.asked == ["/train"] * 3 + ["/test"]
    assert held(cache) == BOTH


def test_offline_the_file_its_address_and_its_place_are_named(cache, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setitem(registry.SETS, "toy", toy_entry(url))
        with pytest.raises(DownloadError, match="the server cannot be reached") as caught:
            datasets.load("toy", folder=tmp_path / "mine")
    assert f"Get {url}/train and put it at {tmp_path / 'mine' / PATHS[0]}" in str(caught.value)
    assert held(cache) == {}


def test_a_server_that_is_silent_is_not_waited_for(toy, monkeypatch):
    monkeypatch.setattr(store, "SECONDS", 0.1)
    monkeypatch.setattr(store, "RETRIES", 0)
    stop = threading.Event()
    toy.answers["/train"] = [lambda _: stop.wait(20)]
    with pytest.raises(DownloadError, match=r"the server did not answer for 0\.1 seconds"):
        datasets.load("toy")
    stop.set()


def test_a_full_disk_leaves_nothing(toy, cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pooch.core.shutil.move", full)
    with pytest.raises(DownloadError, match="No space left on device"):
        datasets.load("toy")
    assert held(cache) == {}


# Paths.


@pytest.mark.parametrize("target", ["/../../../../outside", "/%2e%2e/outside", "/multilabel/toy/..%2f..%2foutside"])
def test_a_redirect_does_not_choose_the_place(target, toy, cache, tmp_path):
    toy.answers["/train"] = [serves(redirect, target)]
    # The client may tidy the path before it asks: whatever it asks for, it gets.
    other = {path: [serves(whole, TRAIN)] for path in ("/outside", target, target.replace("%2f", "%2F"))}
    toy.answers |= other
    check_toy(datasets.load("toy"))
    assert toy.asked[1] in other
    assert held(tmp_path) == {f"cache/{path}": content for path, content in BOTH.items()}


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a\\..\\x", "..", "a//x", "", "a\n", "~/x", "C:x"])
def test_a_path_that_leaves_the_folder_is_refused(path, toy, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.SETS, "toy", toy_entry(toy.url, paths=(path, PATHS[1])))
    for verb in (datasets.load, datasets.fetch, datasets.check):
        with pytest.raises(ValueError, match="must have a plain path inside its folder; got"):
            verb("toy")
    assert toy.asked == []
    assert held(tmp_path) == {}


def test_the_table_has_only_plain_paths_and_addresses():
    files = [file for entry in registry.SETS.values() for file in entry.files]
    assert len({file.path for file in files}) == len({file.url for file in files}) == len(files)
    for file in files:
        assert store._place(Path("here"), file.path).name in file.url
        assert file.url.startswith(("https://raw.githubusercontent.com/", "https://www.csie.ntu.edu.tw/"))
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
    assert {file.path.split("/")[1] for file in files if file.sha256 is None} == {"mediamill"}


# An interruption.

# Many pieces of a download.
LARGE = TRAIN + b"0,0,0\n" * 200_000
LOAD = """
import sys
sys.path[:0] = [{tests!r}]
from partita import datasets
from partita.datasets import registry
from test_downloads import LARGE, TEST, toy_entry
registry.SETS["toy"] = toy_entry({url!r}, (LARGE, TEST))
datasets.load("toy")
"""


def test_a_killed_download_leaves_nothing_that_is_believed(toy, cache, monkeypatch):
    monkeypatch.setitem(registry.SETS, "toy", toy_entry(toy.url, (LARGE, TEST)))
    stop = threading.Event()

    def stalls(handler):
        half(LARGE, handler)
        stop.wait(60)

    toy.answers["/train"] = [stalls]
    script = LOAD.format(tests=str(Path(__file__).parent), url=toy.url)
    child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not any(held(cache).values()):
            assert child.poll() is None, child.stderr.read().decode()
            assert time.monotonic() < end
            threading.Event().wait(0.05)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        stop.set()
    (left,) = held(cache).values()
    assert LARGE.startswith(left)
    assert 0 < len(left) < len(LARGE)
    assert [state.verdict for state in datasets.check("toy")] == ["absent", "absent"]
    with pytest.raises(FileNotFoundError, match="is not on this machine"):
        datasets.load("toy", download=False)
    toy.answers["/train"] = [serves(whole, LARGE)]
    assert datasets.load("toy").train == 200_002
    assert [state.verdict for state in datasets.check("toy")] == ["good", "good"]


# Files that are already here.


def put(folder, path, content):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)


def test_the_folder_comes_before_the_cache_and_the_cache_before_the_server(toy, cache, tmp_path, monkeypatch):
    put(tmp_path / "mine", f"{PATHS[0]}.gz", gzip.compress(TRAIN))
    put(cache, f"{PATHS[1]}.bz2", bz2.compress(TEST))
    monkeypatch.setenv("PARTITA_DATA", str(tmp_path / "mine"))
    check_toy(datasets.load("toy"))
    assert datasets.fetch("toy") == (tmp_path / "mine" / f"{PATHS[0]}.gz", cache / f"{PATHS[1]}.bz2")
    assert toy.asked == []
    # A folder that is given is the one that counts.
    check_toy(datasets.load("toy", folder=tmp_path / "other"))
    assert toy.asked == ["/train"]


@pytest.mark.parametrize("pack", [lambda made: made, gzip.compress], ids=["plain", "gz"])
def test_a_wrong_file_in_the_folder_is_refused_by_name(pack, toy, tmp_path):
    path = PATHS[0] + (".gz" if pack is gzip.compress else "")
    put(tmp_path, path, pack(TEST))
    expected, found = (hashlib.sha256(made).hexdigest() for made in (TRAIN, TEST))
    with pytest.raises(DataError) as caught:
        datasets.load("toy", folder=tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / path} is not the published file: expected content with sha256 {expected}, got {found}. "
        f"Replace it by {toy.url}/train, or delete it."
    )
    assert toy.asked == []
    states = datasets.check("toy", folder=tmp_path)
    assert [state.verdict for state in states] == ["wrong", "absent"]
    assert (states[0].expected, states[0].actual) == (expected, found)


def test_a_damaged_archive_in_the_folder_is_refused(toy, tmp_path):
    put(tmp_path, f"{PATHS[0]}.gz", gzip.compress(TRAIN)[:-5])
    with pytest.raises(DataError, match=r"toy-train\.arff\.gz is no whole \.gz file"):
        datasets.load("toy", folder=tmp_path)
    assert datasets.check("toy", folder=tmp_path)[0].verdict == "wrong"


def test_a_wrong_file_in_the_cache_is_replaced(toy, cache):
    put(cache, PATHS[0], TRAIN[:20])
    with pytest.raises(DataError, match="is not the published file"):
        datasets.load("toy", download=False)
    check_toy(datasets.load("toy"))
    assert held(cache) == BOTH


# mediamill, whose checksums are not published.

LINES = {"train": b"3,100 1:0.5 120:1\n 2:0.25\n0 7:-1\n", "test": b"99 1:1\n 3:1\n"}


@pytest.fixture
def mediamill(server, monkeypatch):
    """Made files of mediamill's format, under its own paths."""
    known = registry.SETS["mediamill"]
    files = tuple(file._replace(url=f"{server.url}/{Path(file.url).name}") for file in known.files)
    monkeypatch.setitem(registry.SETS, "mediamill", dataclasses.replace(known, files=files))
    for part, lines in LINES.items():
        server.answers[f"/{part}-exp1.svm.bz2"] = [serves(whole, bz2.compress(lines))]
    return server


def test_mediamill_is_checked_from_its_first_use_on(mediamill, cache):
    digest = hashlib.sha256(LINES["train"]).hexdigest()
    with pytest.warns(UserWarning, match=f"train-exp1.svm.bz2 has no published checksum.*sha256 {digest}, is kept in"):
        found = datasets.load("mediamill")
    assert isinstance(found.x, np.ndarray)
    assert (found.x.shape, found.y.shape, found.train) == ((5, 120), (5, 101), 3)
    assert found.x[[0, 0, 1, 2], [0, 119, 1, 6]].tolist() == [0.5, 1, 0.25, -1]
    assert [np.flatnonzero(row).tolist() for row in found.y] == [[3, 100], [], [0], [99], []]
    assert [len(part) for part in datasets.split(found)] == [2, 2, 1, 1]
    assert (cache / "multilabel/mediamill/train-exp1.svm.sha256").read_text() == f"{digest}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        datasets.load("mediamill", download=False)
    assert [state.verdict for state in datasets.check("mediamill")] == ["good", "good"]
    assert len(mediamill.asked) == 2


@pytest.mark.parametrize("where", ["cache", "server", "folder"])
def test_a_later_change_of_mediamill_is_refused(where, mediamill, cache, tmp_path):
    with pytest.warns(UserWarning, match="first use"):
        datasets.load("mediamill")
    path, changed = "multilabel/mediamill/train-exp1.svm", LINES["train"] + b"1 1:1\n"
    if where == "folder":
        put(tmp_path / "mine", path, changed)
    elif where == "cache":
        put(cache, f"{path}.bz2", bz2.compress(changed))
    else:
        (cache / f"{path}.bz2").unlink()
        mediamill.answers["/train-exp1.svm.bz2"] = [serves(whole, bz2.compress(changed))]
    digests = (hashlib.sha256(made).hexdigest() for made in (LINES["train"], changed))
    said = "has changed since its first use: expected content with sha256 {}, got {}. If the change is intended, delete"
    with pytest.raises(DataError, match=re.escape(said.format(*digests))):
        datasets.load("mediamill", folder=tmp_path / "mine")
    # Who means it says so.
    (cache / f"{path}.sha256").unlink()
    with pytest.warns(UserWarning, match="first use"):
        assert datasets.load("mediamill", folder=tmp_path / "mine").train == 4


def test_a_file_of_mediamill_put_by_hand_is_not_checked_yet(mediamill, tmp_path):
    for part, lines in LINES.items():
        put(tmp_path, f"multilabel/mediamill/{part}-exp1.svm", lines)
    assert [state.verdict for state in datasets.check("mediamill", folder=tmp_path)] == ["not checked yet"] * 2
    with pytest.warns(UserWarning, match="first use"):
        datasets.load("mediamill", folder=tmp_path, download=False)
    assert [state.verdict for state in datasets.check("mediamill", folder=tmp_path)] == ["good"] * 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (serves(half, bz2.compress(LINES["train"])), "the connection broke off"),
        (serves(whole, b""), "train-exp1.svm.bz2 is empty"),
        (serves(whole, b"<html>Please sign in</html>"), "train-exp1.svm.bz2 is no whole .bz2 file"),
        (serves(whole, bz2.compress(LINES["train"])[:-3]), "train-exp1.svm.bz2 is no whole .bz2 file"),
    ],
    ids=["cut off", "nothing", "a page", "cut off before it was sent"],
)
def test_without_a_checksum_half_a_file_is_not_kept_either(answer, reason, mediamill, cache):
    mediamill.answers["/train-exp1.svm.bz2"] = [answer]
    with pytest.raises(DownloadError, match=re.escape(reason)):
        datasets.load("mediamill")
    assert held(cache) == {}


def test_the_cache_is_the_user_s_folder_of_caches(monkeypatch):
    monkeypatch.delenv("PARTITA_CACHE")
    assert datasets.cache().name == "partita"
    assert datasets.cache().is_absolute()
