"""Records as JAX sees them."""

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from jax.tree_util import keystr, tree_flatten_with_path

from jaxjoints.algebra.pytree import map_trailing, overrides, replace, static, struct


@struct
class Spring:
    stiffness: Array
    rest: Array | None = None
    name: str = static(default="spring")

    def force(self, x):
        return -self.stiffness * x


@struct
class Damper:
    stiffness: Array
    rest: Array | None = None
    name: str = static(default="spring")

    def force(self, x):
        return -2 * self.stiffness * x


def test_a_record_is_a_tree_of_its_fields():
    spring = Spring(jnp.array(3.0), name="knee")
    leaves, tree = jax.tree.flatten(spring)
    assert leaves == [3.0]
    again = jax.tree.unflatten(tree, [jnp.array(4.0)])
    assert (type(again), again.stiffness, again.rest, again.name) == (Spring, 4.0, None, "knee")
    assert [keystr(path) for path, _ in tree_flatten_with_path(spring)[0]] == [".stiffness"]


def test_records_are_frozen_and_replaced():
    spring = Spring(jnp.array(3.0))
    with pytest.raises(AttributeError):
        spring.stiffness = 1.0
    assert replace(spring, stiffness=5.0).stiffness == 5.0


def test_records_of_different_classes_have_different_trees():
    one, other = jax.tree.structure(Spring(1.0)), jax.tree.structure(Damper(1.0))
    assert one != other
    assert jax.tree.structure(Spring(1.0, name="a")) != jax.tree.structure(Spring(1.0, name="b"))


@pytest.mark.slow
def test_a_compiled_function_tells_classes_apart():
    for _ in range(100):
        run = jax.jit(lambda law: law.force(1.0))
        assert (run(Spring(1.0)), run(Damper(1.0))) == (-1.0, -2.0)


def test_a_record_overrides_the_methods_that_its_class_or_a_base_of_it_replaces():
    @struct
    class Stiffer(Spring):
        def force(self, x):
            return 2 * super().force(x)

    class Named(Stiffer):
        pass

    assert not overrides(Spring(1.0), Spring.force)
    assert overrides(Stiffer(1.0), Spring.force)
    assert not overrides(Stiffer(1.0), Stiffer.force)
    assert overrides(struct(Named)(1.0), Spring.force)


def test_mapping_over_trailing_axes_keeps_shared_leaves_shared():
    spring = Spring(jnp.array([2.0]))
    x = jnp.arange(6.0).reshape(2, 3)
    found = map_trailing(lambda s, x: s.force(x), 1, spring, x[0])
    assert (found == -2 * x[0]).all()
    with pytest.raises(ValueError, match="2 and 3 items do not broadcast"):
        map_trailing(lambda a, b: a + b, 1, jnp.ones(2), jnp.ones(3))
