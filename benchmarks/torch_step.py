"""The peer of `benchmarks.steps`: the same step of Algorithm 1 as one writes it in eager torch, on one thread.

Of the ways to write it, this was the fastest on one core: coins as bytes (float coins and `rand < 0.5` were up to 1.5
times slower, `bernoulli_` 4 times), per-row scores by einsum (a product and a sum were 1.5 times slower), fused Adam.
"""

import numpy as np
import torch
from torch import nn

BYTE = 8


def coins(*shape: int) -> torch.Tensor:
    """Fair 0/1 draws, one random number each: what a user writes."""
    return torch.randint(2, shape, dtype=torch.uint8).float()


def packed_coins(*shape: int) -> torch.Tensor:
    """Fair 0/1 draws, 8 from each random byte: nearest to how partita draws them (from words it was slower)."""
    *lead, k = shape
    drawn = torch.randint(256, (*lead, -(-k // BYTE)), dtype=torch.uint8)
    return (drawn[..., None] >> torch.arange(BYTE, dtype=torch.uint8) & 1).flatten(-2)[..., :k].float()


class Run:
    """Linear unary energy, MLP tau(x), KL, Adam, full batch; each call of `steps` does that many."""

    def __init__(self, x: np.ndarray, y: np.ndarray, width: int, num_samples: int, shared: bool, packed: bool):
        torch.set_num_threads(1)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))
        self.h = nn.Linear(x.shape[1], y.shape[1])
        self.tau = nn.Sequential(nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, 1))
        for layer in (self.h, self.tau[-1]):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.optimizer = torch.optim.Adam([*self.h.parameters(), *self.tau.parameters()], lr=1e-4, fused=True)
        self.num_samples, self.shared = num_samples, shared
        self.draw = packed_coins if packed else coins

    def loss(self) -> torch.Tensor:
        """tau(x) + 1/B' sum_j f+*(g(x, y'_j) - tau(x)) - g(x, y), f+*(v) = exp(v) - 1."""
        theta, tau = self.h(self.x), self.tau(self.x)
        n, k = theta.shape
        if self.shared:
            v = torch.addmm(tau, theta, self.draw(self.num_samples, k).T, beta=-1)
        else:
            v = torch.einsum("nk,nbk->nb", theta, self.draw(n, self.num_samples, k)) - tau
        return tau.mean() + v.exp().mean() - 1 - (theta * self.y).sum(1).mean()

    def steps(self, num: int) -> None:
        for _ in range(num):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()
