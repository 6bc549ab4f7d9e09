"""Steps that solve the nearest contacts, and all of them only where the others matter.

Two bodies may have many contacts, such as the corners of a mesh above the ground, of which few
touch at once. Of each such set a step takes the nearest few and solves as if there were no others.
This is a solution with all contacts where no other contact would push: w = u + bias ≥ 0 at the
speed u at which its bodies then move apart (see `Bound`). Without friction there is no other
motion. With it there may be: where more than three contacts share a load, laws do not say how, and
friction goes with the shares.

An environment in which a contact that is left out would push, overlaps, or pushed in the last step
takes the step with all contacts. This step is computed only if there is such an environment among
those that a core steps together; the step with the nearest contacts only if there is one in which
no such contact overlaps or pushed.

Both steps are compiled, so systems with few contacts (`sets_of`) take all of them in every step,
and so do GPUs, which step thousands of environments together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields
from functools import lru_cache
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from ..algebra.compiler import materialize, platform
from ..algebra.dense import multiply_transposed
from ..algebra.places import take
from ..algebra.pytree import replace
from ..assembly.layout import Layout, layout, places
from ..couplings.contact import NORMAL
from ..laws.contact import ContactFriction, ContactLimits
from ..laws.law import CoordinateState
from ..model.groups import ContactGroup
from ..model.kinematics import ContactKinematics, Kinematics, Mechanism, direction_wrenches
from ..model.state import Info, RowForces, State
from ..model.system import System
from ..solve.iteration import chosen

T = TypeVar("T")

# Contacts of two bodies that a step takes at first: three points hold a body on a plane.
NEAREST = 4
# Contacts that a step must then leave out to be worth a second program.
LEAST_LEFT_OUT = 16

# For each group of contacts its sets, the contacts of two bodies: places in the group.
Sets = tuple[tuple[tuple[int, ...], ...], ...]


def sets_of(system: System) -> Sets | None:
    """The sets of a system's contacts, None where every step takes all contacts."""
    if platform() != "cpu" or layout(system).engages:
        return None
    sets = _sets(tuple((g.child, g.parent, _can_wait(g)) for g in system.contacts))
    left_out = sum(max(len(at) - NEAREST, 0) for of_group in sets for at in of_group)
    return sets if left_out >= LEAST_LEFT_OUT else None


@lru_cache(maxsize=256)
def _sets(groups: tuple[tuple[tuple[int, ...], tuple[int, ...], bool], ...]) -> Sets:
    """Sets of contacts; groups: child, parent, and whether the contacts `_can_wait`."""

    def of_group(child, parent, can_wait):
        found: dict[tuple[int, int], list[int]] = {}
        for i, bodies in enumerate(zip(child, parent, strict=True)):
            found.setdefault(bodies, []).append(i)
        if can_wait and max(map(len, found.values())) > NEAREST:
            return tuple(map(tuple, found.values()))
        return tuple((i,) for i in range(len(child)))

    return tuple(of_group(*group) for group in groups)


def _can_wait(group: ContactGroup) -> bool:
    """Whether gap and speed along the normal alone say that a contact does not push."""
    # A class of a user may have other forces.
    stops = [law for law in group.laws if type(law) is ContactLimits]
    others = [law for law in group.laws if type(law) is not ContactLimits]
    return (
        [law.coordinate for law in stops] == [NORMAL]
        and not stops[0].needs_speed
        and all(type(law) is ContactFriction and law.normal == NORMAL for law in others)
    )


class Choice(NamedTuple):
    """The contacts of a group that a step takes.

    which: their places in the group, (taken, *batch)
    back: for each contact of the group its place among the taken ones, their number for one that is
        left out, (contacts, *batch)
    alike: for each taken contact one of the same bodies; () where all of the group are taken
    """

    which: Array
    back: Array
    alike: tuple[int, ...]

    def few(self, x: Array) -> Array:
        """Numbers of the taken contacts, from those of all, (…, contacts, *batch)."""
        return _along(x, self.which)

    def all(self, x: Array) -> Array:
        """Numbers of all contacts, 0 for those left out, from those of the taken ones."""
        axis = x.ndim - self.back.ndim
        none = jnp.zeros_like(jnp.take(x, np.array([0]), axis))
        return _along(jnp.concatenate([x, none], axis), self.back)

    def others(self, x: Array) -> Array:
        """Whether x, (contacts, *batch), is true for a contact that is left out, (*batch)."""
        return jnp.any(x & (self.back == len(self.which)), axis=0)


def _along(x: Array, which: Array) -> Array:
    """Items (…, n, *batch) at places, (m, *batch), of each environment."""
    axis = x.ndim - which.ndim
    x = jnp.broadcast_to(x, (*x.shape[: axis + 1], *which.shape[1:]))
    which = which.reshape((1,) * axis + which.shape)
    return jnp.take_along_axis(x, which, axis, mode="promise_in_bounds")


def advanced(
    mechanism: Mechanism,
    kinematics: Kinematics,
    state: State,
    dt: Array,
    sets: Sets,
    solve: Callable[[Mechanism, Kinematics, State], tuple[State, Info, Array]],
) -> tuple[State, Info]:
    """A step with the nearest contacts, in environments where these are not enough with all.

    solve: a step of some contacts; it returns also the twists that their rows see, (6, bodies,
        *batch) in body axes
    """
    system = mechanism.system
    gaps = [_gap(group, at) for group, at in zip(system.contacts, kinematics.contacts, strict=True)]
    choices = [_choice(*each, state) for each in zip(sets, gaps, strict=True)]
    fewer = replace(mechanism, system=_fewer(system, choices))
    own, whole = (_numbers(layout(x.system)) for x in (fewer, mechanism))
    of_choices = [choice.few for choice in choices], [choice.all for choice in choices]
    each = system.contacts, kinematics.contacts, gaps, choices, whole[-len(choices) :]
    # What only a group with contacts left out is asked for.
    each = [part for part in zip(*each, strict=True) if part[3].alike]

    def of_few():
        contacts = zip(kinematics.contacts, choices, strict=True)
        contacts = tuple(_few(at, choice) for at, choice in contacts)
        forces = _in_layout(state.row_forces, whole, own, of_choices[0])
        at = replace(kinematics, contacts=contacts), replace(state, row_forces=forces)
        new, info, twists = solve(fewer, *at)
        forces = _in_layout(new.row_forces, own, whole, of_choices[1])
        force = _forces_of_all(fewer.system, system, choices, info.contact_force)
        twists = jnp.concatenate([twists, jnp.zeros_like(twists[:, :1])], axis=1)
        pushes = jnp.zeros(state.time.shape, bool)
        for group, contact, _, choice, _ in each:
            pushes |= choice.others(_push(group, contact, twists, dt))
        return replace(new, row_forces=forces), replace(info, contact_force=force), pushes

    touched = jnp.zeros(state.time.shape, bool)
    for _, _, gap, choice, (_, rows) in each:
        pushed = jnp.abs(state.row_forces.bounds[:, rows[0]])
        # Stored: XLA does not vectorize a kernel that both computes and reduces.
        pushed = materialize(pushed).max(axis=0) > 0
        touched |= choice.others(pushed | ~(gap > 0))

    # Traced once, for its shapes and for its values.
    of_few = jax.jit(of_few)

    def nothing():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_few))

    *found, pushes = jax.lax.cond(jnp.all(touched), nothing, of_few)
    again, found = touched | pushes, tuple(found)

    def of_all():
        with_all = solve(mechanism, kinematics, state)[:2]
        return chosen(again, with_all, found)

    return jax.lax.cond(jnp.any(again), of_all, lambda: found)


def _gap(group: ContactGroup, contact: ContactKinematics) -> Array:
    """Gap of each contact, infinite for one that is switched off, (contacts, *batch)."""
    gap = stop_gradient(contact.frame.gap)
    return gap if group.enabled is None else jnp.where(group.enabled > 0, gap, jnp.inf)


def _choice(sets: Sequence[tuple[int, ...]], gap: Array, state: State) -> Choice:
    """The nearest contacts of each set of a group; gap: (contacts, *batch)."""
    gap = jnp.broadcast_to(gap, (len(gap), *state.time.shape))
    most = jnp.finfo(gap.dtype).max
    gap = jnp.where(gap < most, gap, most)
    which, alike, count = [], [], 0
    back = jnp.zeros(gap.shape, int)
    for at in sets:
        members, left = np.array(at), take(gap, np.array(at), 0)
        place = jnp.asarray(members).reshape(-1, *(1,) * (gap.ndim - 1))
        of_set = jnp.full(left.shape, -1)
        for k in range(min(len(at), NEAREST)):
            one = jnp.full_like(place[:1], members[k])
            if len(at) > NEAREST:
                nearest = left == left.min(axis=0, keepdims=True)
                one = jnp.where(nearest, place, len(gap)).min(axis=0, keepdims=True)
            which.append(jnp.broadcast_to(one[0], gap.shape[1:]))
            of_set = jnp.where(place == one, count + k, of_set)
            left = jnp.where(place == one, jnp.inf, left)
        alike += at[:NEAREST]
        count += min(len(at), NEAREST)
        back = back.at[members].set(of_set)
    back = jnp.where(back < 0, count, back)
    return Choice(jnp.stack(which), back, tuple(alike) if count < len(gap) else ())


def _few(tree: T, choice: Choice) -> T:
    """Stacked records of the taken contacts."""
    return jax.tree.map(choice.few, tree) if choice.alike else tree


def _fewer(system: System, choices: Sequence[Choice]) -> System:
    """The system with the taken contacts alone."""
    groups, first = [], 0
    for group, choice in zip(system.contacts, choices, strict=True):
        alike = choice.alike or range(len(group.members))
        fixed = {
            name: tuple(getattr(group, name)[i] for i in alike) for name in ("child", "parent")
        }
        members = tuple(range(first, first + len(alike)))
        groups.append(replace(_few(group, choice), members=members, **fixed))
        first += len(alike)
    topology = with_fields(system.topology, contacts=system.topology.contacts[:first])
    return replace(system, contacts=tuple(groups), topology=topology)


# For each group its nodes, (members,), and its coordinate rows, (coordinates, members).
Numbers = tuple[tuple[np.ndarray, np.ndarray], ...]


@lru_cache(maxsize=256)
def _numbers(plan: Layout) -> Numbers:
    """Where the rows of each group are in a layout."""
    where, found, first = places(plan), [], 0
    for part, rows in zip(plan.parts, plan.groups, strict=True):
        members = part.members if rows.wrenches else ()
        nodes = [where[part.group, member, rows.wrenches[0]][1] for member in members]
        k, n = len(rows.coordinates), len(members)
        found.append((np.array(nodes, int), first + np.arange(k * n).reshape(k, n)))
        first += k * n
    return tuple(found)


def _in_layout(
    forces: RowForces, of: Numbers, to: Numbers, contacts: Sequence[Callable[[Array], Array]]
) -> RowForces:
    """Forces of the rows of one layout in another; contacts: changes numbers of each group."""
    kept = [lambda x: x] * (len(of) - len(contacts))
    nodes, rows = [], []
    for (at, of_group), change in zip(of, [*kept, *contacts], strict=True):
        nodes.append(change(take(forces.rows, at, 1)) if len(at) else forces.rows[:, :0])
        for row in of_group:
            rows.append(change(take(forces.bounds, row, 1)))
    ends = [np.concatenate(x) for x in zip(*((at, row.ravel()) for at, row in to), strict=True)]
    parts = (jnp.concatenate(x, axis=1) for x in (nodes, rows))
    return RowForces(*(take(x, np.argsort(at), 1) for x, at in zip(parts, ends, strict=True)))


def _forces_of_all(few: System, system: System, choices: Sequence[Choice], force: Array) -> Array:
    """Forces of all contacts, from those of the taken ones, (6, contacts, *batch)."""
    pairs = zip(few.contacts, choices, strict=True)
    parts = [choice.all(take(force, np.array(group.members), 1)) for group, choice in pairs]
    order = np.argsort(np.concatenate([group.members for group in system.contacts]))
    return take(jnp.concatenate(parts, axis=1), order, 1)


def _push(group: ContactGroup, contact: ContactKinematics, twists: Array, dt: Array) -> Array:
    """Whether the normal of each contact would push at twists of the bodies and the world, (6,
    bodies + 1, *batch); (contacts, *batch).
    """
    stop = next(law for law in group.laws if isinstance(law, ContactLimits))
    wrenches = direction_wrenches(group, contact, (NORMAL,))
    sides = zip(wrenches, map(np.array, (group.child, group.parent)), strict=True)
    parts = [multiply_transposed(H, twists[:, at])[0] for H, at in sides if (at >= 0).any()]
    bound = stop.force(CoordinateState(q=contact.frame.gap, dt=dt))
    push = (bound.present > 0) & (sum(parts) + bound.bias < 0)
    return push if group.enabled is None else push & (group.enabled > 0)
