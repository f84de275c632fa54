"""Alternating beside joint minimization: what a figure's configuration computes, and what is drawn of it."""

import json

import numpy as np
import pytest

from paper import alternating, run
from paper.alternating import EXACT_FIRST
from paper.settings import QUICK
from partita import datasets


@pytest.fixture
def data(monkeypatch):
    """A small set in place of the real one."""
    rng = np.random.RandomState(0)
    x = rng.randn(60, 4)
    y = (x @ rng.randn(4, 3) > 0).astype(np.int32)
    small = datasets.Dataset("emotions", "multilabel", x, y, tuple("abcd"), tuple("efg"), 45)
    monkeypatch.setattr(datasets, "load", lambda name: small)


@pytest.mark.usefixtures("data", "unchecked")
def test_a_training_is_followed_for_all_of_its_steps():
    given = [each | {"steps": 16} for each in alternating.configurations(QUICK) if each["coupling"] == "unary"]
    assert json.loads(json.dumps(given)) == given
    stored = {each["training"]: run.compute(each) for each in given if each["training"] in ("g 5, tau 5", EXACT_FIRST)}
    for found in stored.values():
        assert found["step"] == sorted(found["step"])
        assert found["step"][-1] == 16
        assert found["train NLL"][-1] < found["train NLL"][0] < 3 * np.log(2)
    exact = stored[EXACT_FIRST]
    half = exact["step"].index(8)
    # g is kept while tau is trained.
    np.testing.assert_allclose(exact["train NLL"][half:], exact["train NLL"][-1], rtol=1e-5)
    assert len(set(exact["train |tau - LSE|"][half:])) == 9, "and tau moves"

    def look(given):
        return stored.get(given["training"]) if given["coupling"] == "unary" else None

    panels = alternating.build(look, QUICK).panels
    assert len(panels) == 3, "what was not run is not drawn"
    assert all([series.name for series in panel.series] == list(stored) for panel in panels)
