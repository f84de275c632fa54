"""Compiled programs are kept from process to process, and a bad folder fails nothing."""

import subprocess
import sys
import threading
import warnings

import pytest

from partita.compilation import SUFFIX, VARIABLE, ProgramFiles

# Compiles one function and prints how many programs were read and how many were compiled.
COUNT = """
import os, warnings
import jax, jax.numpy as jnp
from jax._src import monitoring
events = []
monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
{before}
from partita.compilation import enable_cache
enable_cache()
jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones((3, 3))).block_until_ready()
print(events.count("cache_hits"), events.count("cache_misses"), jax.config.jax_compilation_cache_dir)
"""


def run(folder, before="", **variables):
    """(programs read, programs compiled, folder, standard error) of a process with the cache in the folder."""
    environment = {"PATH": "", VARIABLE: str(folder), "JAX_PLATFORMS": "cpu", **variables}
    code = COUNT.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    hits, misses, used = done.stdout.split()
    return int(hits), int(misses), used, done.stderr


def test_a_second_process_compiles_nothing(tmp_path):
    hits, misses, used, _ = run(tmp_path)
    assert hits == 0
    assert misses > 0
    assert used.startswith(str(tmp_path))
    assert run(tmp_path)[:2] == (misses, 0)


def test_a_process_that_compiled_before_still_uses_it(tmp_path):
    run(tmp_path)
    hits, misses, *_ = run(tmp_path, before="jax.jit(lambda x: x + 1)(1.0)")
    assert hits > 0
    assert misses == 0


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_programs_are_compiled_again(tmp_path, damage):
    _, misses, *_ = run(tmp_path)
    for path in tmp_path.rglob("*" + SUFFIX):
        content = bytearray(path.read_bytes())
        content[-1] ^= damage == "flipped"
        path.write_bytes(content[: {"truncated": len(content) // 2, "flipped": None, "empty": 0}[damage]])
    assert run(tmp_path)[:2] == (0, misses)
    assert run(tmp_path)[:2] == (misses, 0)


def test_a_folder_that_cannot_be_used_is_one_warning(tmp_path):
    path = tmp_path / "file"
    path.write_text("not a folder")
    hits, misses, _, error = run(path)
    assert hits == 0
    assert misses > 0
    assert error.count("cannot be kept") == 1


def test_it_can_be_turned_off(tmp_path):
    assert run("off")[2] == "None"


def test_a_cache_of_ones_own_is_left_alone(tmp_path):
    own = tmp_path / "own"
    assert run(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(own))[2] == str(own)
    assert not (tmp_path / "ours").exists()


def test_importing_sets_nothing():
    code = "import jax, partita.estimators, partita.compilation; print(jax.config.jax_compilation_cache_dir)"
    environment = {"PATH": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "None"


def test_the_least_recently_used_programs_are_deleted(tmp_path):
    files = ProgramFiles(tmp_path, max_bytes=1000)
    for i in range(3):
        files.put(f"program{i}", bytes(300))
    assert files.get("program0") == bytes(300)
    files.put("program3", bytes(300))
    assert files.get("program1") is None
    assert files.get("program0") == bytes(300)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    files.put("too large", bytes(2000))
    assert files.get("too large") is None


def test_nobody_reads_half_a_program(tmp_path):
    """Two writers of other contents and a reader of the same key, side by side; temporary files do not stay."""
    contents = [bytes([i]) * 300_000 for i in range(2)]
    writers = [
        threading.Thread(target=lambda c=content: [ProgramFiles(tmp_path).put("key", c) for _ in range(50)])
        for content in contents
    ]
    for writer in writers:
        writer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = {ProgramFiles(tmp_path).get("key") for _ in range(200)}
    for writer in writers:
        writer.join()
    assert values <= {None, *contents}
    assert [path.name for path in tmp_path.iterdir()] == ["key" + SUFFIX]
