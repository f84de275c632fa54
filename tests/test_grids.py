"""A grid is trained as its points would be alone."""

import equinox as eqx
import jax
import numpy as np
import pytest

import partita as pt
from partita import training

RNG = np.random.RandomState(0)
X = RNG.randn(40, 3)
Y = (X @ RNG.randn(3, 4) > 0).astype(int)
SPACE = pt.structures.Hypercube(4)


def make(key):
    h = pt.networks.MLP(3, 4, width=8, key=key)
    tau = pt.model.Network(pt.networks.MLP(3, (), width=8, key=key))
    return pt.EBM(pt.Energy(h, pt.couplings.Bilinear(pt.structures.Cube(4))), tau)


def train(points, **more):
    objective = pt.objectives.MinMin(8, "shared", proposal=None)
    return training.fit_grid(make, objective, training.Rows(X, Y, batch_size=16), points, steps=20, every=10, **more)


def test_a_grid_is_all_combinations():
    points = training.Grid((1e-3, 1e-2), (0.0, 0.1, 1.0), (0, 7)).points()
    assert len(points) == len(set(points)) == 12
    assert training.Point(1e-2, 0.1, 7) in points


def test_a_point_is_trained_to_the_same_end_in_any_company():
    points = training.Grid((1e-3, 3e-2), (0.0, 1.0), (0, 1)).points()
    together = train(points).losses
    assert together.shape == (20, 8)
    for i in (0, 3, 6):
        # Products round alike; the loss that is told is a sum over rows, which rounds in another order.
        np.testing.assert_allclose(train([points[i]]).losses[:, 0], together[:, i], rtol=1e-6, atol=1e-7)
    # They are not all the same run: each part of a point matters.
    assert len(np.unique(together[-1].round(4))) == 8


def test_points_may_weigh_rows_their_own_way():
    points = [training.Point(1e-2, 0.0, 0)] * 2
    weights = np.ones((2, len(X)))
    weights[1, :20] = 0
    losses = train(points, weights=weights).losses
    # Before the first step every loss is 0.
    assert (losses[1:, 0] != losses[1:, 1]).all()


def test_a_grid_trains_what_it_is_told_to():
    """Ten steps of g, then ten of tau: what is frozen keeps its bits, and each point is trained as it is alone."""
    points, in_turn, seen = (
        training.Grid((1e-3, 3e-2), (0.1,), (0,)).points(),
        training.Alternating(g=10, tau=10),
        [],
    )
    together = train(points, train=in_turn, callbacks=[lambda now: seen.append(now.model)])
    for i, point in enumerate(points):
        alone = train([point], train=in_turn)
        # As above: the loss is a sum over rows, which rounds in another order.
        np.testing.assert_allclose(alone.losses[:, 0], together.losses[:, i], rtol=1e-6, atol=1e-7)
    begun, half, end = training.stack([make(jax.random.key(0))] * 2), *seen
    assert eqx.tree_equal(half.tau, begun.tau)
    assert not eqx.tree_equal(half.g, begun.g)
    assert eqx.tree_equal(end.g, half.g)
    assert not eqx.tree_equal(end.tau, half.tau)


def test_an_interrupted_grid_has_no_result():
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train([training.Point(1e-2, 0.0, 0)] * 2, callbacks=[interrupt])


def test_no_points_are_refused():
    with pytest.raises(ValueError, match="at least one point"):
        train([])
