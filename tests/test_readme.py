"""The README's Python runs as it stands, block after block, and says what it claims."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_readme_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "all steps were done" in printed
    off = float(re.search(r"\|tau - LSE\| = (\S+)", printed).group(1))
    assert off < 0.1
    assert "\nnormalized | tau is off by" in printed
    assert (names["best"] == names["best"].astype(bool)).all()
    assert names["marginals"].shape == (400, 4)
    assert names["matrix"].shape == (400, 6, 6)
    # The rankings are a noiseless linear function of x: nearly all of them are found.
    assert (names["ranks"] == names["Y"]).all(axis=1).mean() > 0.8


def test_readme_commands_exist_in_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (README.parent / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", README.read_text())) <= targets
