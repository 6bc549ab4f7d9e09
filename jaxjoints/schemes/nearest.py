"""Steps that solve the nearest contacts, and all of them only where the others matter.

Two bodies may have many contacts, such as the corners of a mesh above the ground, of which few
touch at once. Of each such set a step takes the nearest few, the same in all environments, and
solves as if there were no others. This is the solution with all contacts where no other contact
would push: w = u + bias ≥ 0 at the speed u at which its bodies then move apart (see `Bound`). Else
the step is made again with all contacts.

Both programs are compiled, so this holds for systems with many contacts (`sets_of`) on CPUs, whose
tiles have few environments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.compiler import platform
from ..algebra.dense import multiply_transposed
from ..algebra.pytree import replace
from ..assembly.layout import Layout, layout, places
from ..couplings.contact import NORMAL
from ..laws.contact import ContactFriction, ContactLimits
from ..laws.law import CoordinateState
from ..model.groups import ContactGroup
from ..model.kinematics import (
    ContactKinematics,
    Kinematics,
    Mechanism,
    direction_wrenches,
)
from ..model.state import Info, RowForces, State
from ..model.system import System

# Contacts of two bodies that a step takes at first: three points hold a body on a plane.
NEAREST = 4
# Contacts that a step must then leave out to be worth a second program.
LEAST_LEFT_OUT = 32


@dataclass(frozen=True)
class Sets:
    """The contacts of a system by the pairs of bodies that they connect.

    of_groups: for each group of `System.contacts` its sets, each of places in the group
    """

    of_groups: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def left_out(self) -> int:
        """Number of contacts that a step leaves out at first."""
        return sum(max(len(at) - NEAREST, 0) for sets in self.of_groups for at in sets)


# For each group of contacts the places of those that a step takes, in ascending order within a set.
Choice = tuple[Array, ...]


def sets_of(system: System) -> Sets | None:
    """The sets of a system's contacts, None where every step takes all contacts."""
    if platform() != "cpu" or layout(system).engages:
        return None
    sets = _sets(tuple((g.child, g.parent, _can_wait(g)) for g in system.contacts))
    return sets if sets.left_out >= LEAST_LEFT_OUT else None


@lru_cache(maxsize=256)
def _sets(groups: tuple[tuple[tuple[int, ...], tuple[int, ...], bool], ...]) -> Sets:
    """Sets of contacts; groups: child, parent and whether contacts `_can_wait`, for each group."""

    def of_group(child, parent, can_wait):
        if not can_wait:
            return tuple((i,) for i in range(len(child)))
        found: dict[tuple[int, int], list[int]] = {}
        for i, bodies in enumerate(zip(child, parent, strict=True)):
            found.setdefault(bodies, []).append(i)
        return tuple(map(tuple, found.values()))

    return Sets(tuple(of_group(*group) for group in groups))


def _can_wait(group: ContactGroup) -> bool:
    """Whether the laws of contacts say by gap and speed alone that they do not push."""
    stops = [law for law in group.laws if isinstance(law, ContactLimits)]
    others = [law for law in group.laws if not isinstance(law, ContactLimits)]
    return (
        len(stops) == 1
        and stops[0].coordinate == NORMAL
        and not stops[0].needs_speed
        and all(isinstance(law, ContactFriction) and law.normal == NORMAL for law in others)
    )


def advanced(
    mechanism: Mechanism,
    kinematics: Kinematics,
    state: State,
    dt: Array,
    sets: Sets,
    solve: Callable[[Mechanism, Kinematics, State], tuple[State, Info, Array]],
) -> tuple[State, Info]:
    """A step with the nearest contacts, and where these are not enough with all.

    solve: a step of some contacts; it returns also the twists that their rows see, (6, bodies,
        *batch) in body axes
    """
    choice = _nearest(sets, kinematics, state)
    few, whole = _fewer(mechanism, sets, choice), layout(mechanism.system)
    plan, batch = layout(few.system), state.time.ndim

    def of_all():
        return solve(mechanism, kinematics, state)[:2]

    def of_few():
        contacts = tuple(map(_members, kinematics.contacts, choice, [batch] * len(choice)))
        nodes, rows = _rows_of(plan, whole, mechanism.system, choice)
        forces = state.row_forces
        forces = RowForces(forces.rows[:, nodes], forces.bounds[:, rows])
        start = replace(state, row_forces=forces)
        new, info, twists = solve(few, replace(kinematics, contacts=contacts), start)
        forces = jax.tree.map(
            lambda x, at, like: jnp.zeros_like(like).at[:, at].set(x),
            new.row_forces,
            RowForces(nodes, rows),
            state.row_forces,
        )
        new = replace(new, row_forces=forces)
        pushes = _push(mechanism, kinematics, sets, choice, twists, dt)
        return new, replace(info, contact_force=_of_all(few, mechanism, choice, info)), pushes

    def none():
        like = jax.eval_shape(of_few)[:2]
        return *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like), jnp.array(True)

    new, info, again = jax.lax.cond(_touch(kinematics, state, whole, sets, choice), none, of_few)
    return jax.lax.cond(again, of_all, lambda: (new, info))


def _nearest(sets: Sets, kinematics: Kinematics, state: State) -> Choice:
    """The contacts whose gap is least in any environment."""
    batch = state.time.ndim

    def of_group(of_sets, contact):
        gap = jax.lax.stop_gradient(contact.frame.gap)
        gap = gap.min(axis=tuple(range(gap.ndim - batch, gap.ndim)))
        parts = []
        for at in of_sets:
            members = np.array(at)
            if len(at) > NEAREST:
                order = jnp.sort(jnp.argsort(gap[members])[:NEAREST])
                members = jnp.asarray(members)[order]
            parts.append(members)
        return jnp.concatenate([jnp.asarray(x) for x in parts])

    return tuple(map(of_group, sets.of_groups, kinematics.contacts))


def _members(tree: Any, which: Array, batch: int) -> Any:
    """Some members of stacked records."""

    def of_leaf(x):
        axis = x.ndim - 1 - batch
        return x.at[(slice(None),) * axis + (which,)].get(mode="promise_in_bounds")

    return jax.tree.map(of_leaf, tree)


def _fewer(mechanism: Mechanism, sets: Sets, choice: Choice) -> Mechanism:
    """The mechanism with some of its contacts."""
    system, groups, first = mechanism.system, [], 0
    batch = mechanism.inverse_mass.ndim - 1
    for group, of_sets, which in zip(system.contacts, sets.of_groups, choice, strict=True):
        # All contacts of a set connect the same bodies.
        alike = [at[0] for at in of_sets for _ in at[:NEAREST]]
        fixed = {
            name: tuple(getattr(group, name)[i] for i in alike) for name in ("child", "parent")
        }
        members = tuple(range(first, first + len(alike)))
        groups.append(replace(_members(group, which, batch), members=members, **fixed))
        first += len(alike)
    topology = with_fields(system.topology, contacts=system.topology.contacts[:first])
    return replace(mechanism, system=replace(system, contacts=tuple(groups), topology=topology))


def _rows_of(few: Layout, whole: Layout, system: System, choice: Choice) -> tuple[Array, Array]:
    """Nodes, and coordinate rows, of the layout of all contacts for those of the layout of few."""
    own, others = _numbers(few), _numbers(whole)
    first = len(whole.parts) - len(system.contacts)
    nodes, rows = (jnp.zeros(n, int) for n in (few.structure.nodes, len(few.structure.row)))
    for g, (small, large) in enumerate(zip(own, others, strict=True)):
        which = slice(None) if g < first else choice[g - first]
        nodes = nodes.at[small[0]].set(jnp.asarray(large[0])[which])
        rows = rows.at[small[1]].set(jnp.asarray(large[1])[:, which])
    return nodes, rows


@lru_cache(maxsize=256)
def _numbers(plan: Layout) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For each group its nodes, (members,), and its coordinate rows, (coordinates, members)."""
    where, found, first = places(plan), [], 0
    for part, rows in zip(plan.parts, plan.groups, strict=True):
        n, k = len(part.members), len(rows.coordinates)
        keys = [(part.group, member, rows.wrenches[0]) for member in part.members if rows.wrenches]
        nodes = np.array([where[key][1] for key in keys], int)
        found.append((nodes, first + np.arange(k * n).reshape(k, n)[:, : len(nodes)]))
        first += k * n
    return tuple(found)


def _of_all(few: Mechanism, mechanism: Mechanism, choice: Choice, info: Info) -> Array:
    """Forces of all contacts, 0 for those that were left out, (6, contacts, *batch)."""
    force = info.contact_force
    count = len(mechanism.system.topology.contacts)
    total = jnp.zeros((len(force), count, *force.shape[2:]), force.dtype)
    pairs = zip(few.system.contacts, mechanism.system.contacts, choice, strict=True)
    for own, group, which in pairs:
        at = jnp.asarray(np.array(group.members))[which]
        total = total.at[:, at].set(force[:, np.array(own.members)])
    return total


def _touch(
    kinematics: Kinematics, state: State, whole: Layout, sets: Sets, choice: Choice
) -> Array:
    """Whether some contact that is left out overlaps, or pushed in the last step."""
    touch, numbers = jnp.array(False), _numbers(whole)[len(whole.parts) - len(choice) :]
    for contact, of_sets, which, (_, rows) in zip(
        kinematics.contacts, sets.of_groups, choice, numbers, strict=True
    ):
        if all(len(at) <= NEAREST for at in of_sets):
            continue
        pushed = jnp.abs(state.row_forces.bounds[:, rows[0]]).max(axis=0) > 0
        touch |= jnp.any(_others(which, (contact.frame.gap <= 0) | pushed))
    return touch


def _others(which: Array, x: Array) -> Array:
    """x of contacts (contacts, *batch), False for those in `which`."""
    return x.at[which].set(False)


def _push(
    mechanism: Mechanism,
    kinematics: Kinematics,
    sets: Sets,
    choice: Choice,
    twists: Array,
    dt: Array,
) -> Array:
    """Whether some contact that is left out would push while bodies move at twists."""
    twists = jnp.concatenate([twists, jnp.zeros_like(twists[:, :1])], axis=1)
    push = jnp.array(False)
    for group, contact, of_sets, which in zip(
        mechanism.system.contacts, kinematics.contacts, sets.of_groups, choice, strict=True
    ):
        if all(len(at) <= NEAREST for at in of_sets):
            continue
        push |= jnp.any(_others(which, _approaches(group, contact, twists, dt)))
    return push


def _approaches(group: ContactGroup, contact: ContactKinematics, twists: Array, dt: Array) -> Array:
    """True for contacts whose normal would push at these twists of the bodies and the world,
    (contacts, *batch).
    """
    sides = zip(
        direction_wrenches(group, contact, (NORMAL,)), (group.child, group.parent), strict=True
    )
    bodies = ((H, np.array(at)) for H, at in sides)
    speed = sum(multiply_transposed(H, twists[:, at])[0] for H, at in bodies if (at >= 0).any())
    stop = next(law for law in group.laws if isinstance(law, ContactLimits))
    bound = stop.force(CoordinateState(q=contact.frame.gap, dt=dt))
    push = (bound.present > 0) & (speed + bound.bias < 0)
    return push if group.enabled is None else push & (group.enabled > 0)
