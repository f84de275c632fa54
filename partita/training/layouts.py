"""How the models of a stack are laid out over the machine: all in one program, or in blocks that fit a core's cache.

A layout runs a compiled chunk of steps for a whole stack. It changes no number: a model reads nothing of the others.
"""

import abc
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..types import Array
from . import ensembles
from .optimizer import Solver
from .runs import TrainState

__all__ = ["AbstractLayout", "Blocks", "OneProgram", "choose_layout"]

# More models at a time leave a core's cache. emotions, MLP, one core: 0.23 ms a step and model with 6 at a time, 0.26
# with 12, 0.32 with 36. Free cores take a block each.
BLOCK = 6

# Values of every step by name, with the models as leading axis.
Record = dict[str, np.ndarray]


class AbstractLayout(eqx.Module):
    """A strategy that runs a chunk of steps for a stack of models."""

    @abc.abstractmethod
    def run(
        self, program: Any, solver: Solver, state: TrainState, weights: Array | None, active: np.ndarray, chunk: Any
    ) -> tuple[TrainState, Record]:
        """Run the chunk.

        Parameters
        ----------
        program
            A jitted function (groups, solver, state, weights, active, chunk) -> (state, record).
        solver
            A stack of solvers, one per model.
        state
            The state of the stack.
        weights
            Of the rows, for each model; None: all are 1.
        active
            Which models do the steps; the others keep their state.
        chunk
            What all models share: data, rows of each step, and so on.

        Returns
        -------
        tuple
            The state after the chunk, and what was recorded.
        """


class OneProgram(AbstractLayout):
    """All models in one program, on one device.

    Parameters
    ----------
    groups
        How many groups of equally many models share a random key; they make their draws together.
    """

    groups: int = eqx.field(static=True)

    def run(self, program, solver, state, weights, active, chunk):
        state, record = program(self.groups, solver, state, weights, active, chunk)
        return state, {name: np.asarray(values) for name, values in record.items()}


class Blocks(AbstractLayout):
    """Blocks of models, as many at a time as there are cores; one compiled program serves all blocks.

    Parameters
    ----------
    slices
        The models of each block.
    groups
        How many groups of a block share a random key.
    """

    slices: tuple[slice, ...] = eqx.field(static=True)
    groups: int = eqx.field(static=True)

    def run(self, program, solver, state, weights, active, chunk):
        parts = [(*ensembles.take((solver, state, weights), block), active[block]) for block in self.slices]
        # Compiled in this thread: settings of JAX may be those of this thread alone.
        compiled = program.lower(self.groups, *parts[0], chunk).compile()

        def advance(part: tuple) -> tuple[TrainState, Record | None]:
            if not part[-1].any():
                return part[1], None
            after, record = compiled(self.groups, *part, chunk)
            return after, {name: np.asarray(values) for name, values in record.items()}

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            states, records = zip(*pool.map(advance, parts), strict=True)
        return ensembles.concatenate(states), _concatenate(records, [len(part[-1]) for part in parts])


def _concatenate(records: tuple[Record | None, ...], sizes: list[int]) -> Record:
    """Records of all blocks; NaN where no model of a block was active."""
    known = next(record for record in records if record is not None)

    def values(name: str) -> np.ndarray:
        idle = known[name].shape[1:]
        return np.concatenate(
            [np.full((size, *idle), np.nan) if r is None else r[name] for r, size in zip(records, sizes, strict=True)]
        )

    return {name: values(name) for name in known}


def choose_layout(keys: Any, block: int = BLOCK) -> AbstractLayout:
    """The layout for models with these random keys: blocks on a CPU where models can be parted, else one program.

    Parameters
    ----------
    keys
        The key of each model.
    block
        How many models a block may have.

    Returns
    -------
    AbstractLayout
        Blocks are whole groups of models that share a key, or equal parts of one.
    """
    num, groups = len(keys), _groups(keys)
    size = num // groups
    block_size = _divisor(groups, block // size) * size if size <= block else _divisor(size, block)
    # An accelerator is the faster the more it gets at once; and models one by one are slower than all together.
    if jax.default_backend() != "cpu" or block_size < block // 2 or block_size == num:
        return OneProgram(groups)
    return Blocks(tuple(slice(i, i + block_size) for i in range(0, num, block_size)), max(1, block_size // size))


def _divisor(number: int, most: int) -> int:
    """The largest divisor up to `most`."""
    return max(d for d in range(1, most + 1) if number % d == 0)


def _groups(keys: Any) -> int:
    """How many groups of equally many models have a key in common."""
    data = np.asarray(jax.random.key_data(keys))
    same = (data[1:] == data[:-1]).all(axis=1)
    starts = np.flatnonzero(np.append(True, ~same))
    sizes = np.diff(np.append(starts, len(data)))
    return len(starts) if (sizes == sizes[0]).all() else len(data)
