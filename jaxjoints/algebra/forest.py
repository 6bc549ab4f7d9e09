"""Items of a forest combined along their paths."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from .compiler import materialize
from .places import take


def along_paths(
    before: np.ndarray, combine: Callable[[Array, Array], Array], x: Array, none: Array
) -> Array:
    """What is combined along the path of each item, the root's end first, (k, items, *batch).

    before: the item before each in its path, earlier in the array; the number of items for none
    combine: an associative operation on arrays (k, n, *batch); none: its neutral element, (k, 1,
        *batch)

    Each round doubles all paths, so there are log₂ of the depth of the forest.
    """
    count = len(before)
    before = np.append(before, count)
    while (before < count).any():
        # Roots that stand in front stay as they are.
        first = int(np.argmax(before < count))
        places = before[first:-1]
        earlier = jnp.concatenate([x, none], axis=1) if (places == count).any() else x
        further = combine(take(earlier, places, 1), x[:, first:])
        x = materialize(jnp.concatenate([x[:, :first], further], axis=1))
        before = before[before]
    return x
