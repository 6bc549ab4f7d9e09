"""The system that an assembly solves: limits, wanted coordinates, weights and goals as rows.

Its joints carry laws of this file only, and a goal is one more joint. So the functions of a step
make its rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.pytree import expand, expand_trailing, replace, static, struct
from ..algebra.spatial import Pose
from ..assembly.group_rows import GroupRows
from ..assembly.targets import Step, Surface
from ..build.checks.values import Stated
from ..couplings.coupling import Coupling
from ..laws.law import CoordinateState, Law
from ..laws.limits import Limits, Lock
from ..model.groups import ContactGroup, JointGroup, TransmissionGroup
from ..model.system import System
from ..solve.forces import Bound, Latch, Linear, RowLaw
from ..solve.problem import REGULARIZATION

# How near to a bound a coordinate of the assembled state counts as held there [m or rad], by the
# bytes of a number.
ON_BOUND = {4: 1e-5, 8: 1e-9}
# How much more an error of a range counts than others: a step that passes a limit is rather taken
# back than led to where the limit is in the way.
STRICTNESS = 100.0


@struct
class Range(Law):
    """A coordinate kept within lower ≤ q ≤ upper, and on its value where both are the same.

    margin: how near to a bound it is held there, too
    """

    lower: Array
    upper: Array
    margin: Array
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Latch
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Latch:
        q = at.q
        below = (q < self.lower + self.margin) | (self.lower == self.upper)
        above = ~below & (q > self.upper - self.margin)
        error = jnp.where(below, q - self.lower, jnp.where(above, q - self.upper, 0.0))
        return Latch(error, (below | above).astype(q.dtype))

    def violation(self, q: Array) -> Array:
        """How far coordinates are outside [m or rad]."""
        return jnp.maximum(jnp.maximum(self.lower - q, q - self.upper), 0.0)


@struct
class Value(Law):
    """A coordinate that takes a value.

    value: [m or rad]; named: 1 for joints that have one; present: 0 where it has no effect
    """

    value: Array
    named: Array
    present: Array
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Latch
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Latch:
        return Latch(at.q - self.value, jnp.zeros_like(at.q) + self.named * self.present)

    def violation(self, q: Array) -> Array:
        """How far coordinates are off [m or rad], whether it is present or not."""
        return self.named * jnp.abs(q - self.value)


@struct
class Speed(Law):
    """A coordinate that moves at a speed.

    value: [m/s or rad/s]; present: 0 where it has no effect
    """

    value: Array
    present: Array
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Latch
    batched: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Latch:
        zero = jnp.zeros_like(at.q)
        return Latch(zero - self.value, zero + self.present)


@struct
class Weight(Law):
    """A coordinate that resists a change by `weight` times the inertia that it moves."""

    weight: Array
    coordinate: int = static(default=0, kw_only=True)
    kind: ClassVar[type] = Latch
    batched: ClassVar[bool] = True
    needs_speed: ClassVar[bool] = True

    def force(self, at: CoordinateState) -> Latch:
        return Latch(-at.qd, jnp.zeros_like(at.q) + self.weight)


@struct
class Held:
    """A goal as what a joint is made of: a coupling between frames C and D, and indices of bodies.

    C, D: poses in their bodies' frames, of batch axes of their own
    """

    C: Pose
    D: Pose
    coupling: Coupling
    child: int = static()
    parent: int = static()


@struct
class Closing(Step):
    """Rows of a damped Newton step that closes joints, reaches goals and keeps to ranges.

    damping: softness of all rows as a share of the diagonal of A, (*batch)
    """

    damping: Array

    def hard(self, rows: GroupRows) -> tuple[Array, Array]:
        return rows.hard.error, jnp.zeros_like(rows.hard.error)

    def off(self, rows: GroupRows) -> np.ndarray | None:
        """See `Step.off`: rows at velocity and acceleration level say nothing of positions."""
        if rows.layout.has_error.all():
            return None
        return ~rows.layout.has_error.reshape(-1, *(1,) * (rows.hard.error.ndim - 1))

    def linear(self, law: Law, force: RowLaw) -> Linear | None:
        """See `Step.linear`: there is none."""
        return None

    def bound(self, law: Law, force: RowLaw) -> Bound | None:
        """See `Step.bound`: there is none."""
        return None

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        if isinstance(law, Weight):
            return Latch(
                jnp.zeros_like(force.bias), force.engaged * least_share(self.damping)[None]
            )
        if isinstance(law, Range):
            return replace(force, engaged=force.engaged * STRICTNESS)
        return None if isinstance(law, Speed) else force

    def stiffness(self, latch: Latch, A: Array) -> Array:
        return latch.engaged / (least_share(self.damping)[None] * A)


@struct
class ClosingSpeeds(Surface):
    """Rows that bring velocities onto the surfaces, at wanted speeds and as weights say."""

    def latch(self, law: Law, force: RowLaw) -> Latch | None:
        if isinstance(law, Weight):
            share = REGULARIZATION[force.engaged.dtype.itemsize]
            return replace(force, engaged=force.engaged * share)
        return force if isinstance(law, Speed) else None

    def stiffness(self, latch: Latch, A: Array) -> Array:
        return latch.engaged / (REGULARIZATION[A.dtype.itemsize] * A)


def least_share(damping: Array) -> Array:
    """A damping, and the least softness of a row that can be solved."""
    return jnp.maximum(damping, REGULARIZATION[damping.dtype.itemsize])


def placement(
    system: System,
    batch: int,
    q: Mapping[str, Stated],
    qd: Mapping[str, Stated],
    weights: Mapping[str, Stated],
    goals: Mapping[str, Held],
) -> System:
    """The system whose joints are also goals, and whose laws are those of this file.

    batch: number of batch axes, which all leaves get
    q, qd, weights: coordinates of joints by name
    """
    system = expand(system, list(system.topology.ranks), batch)
    numbers = [(Value, q), (Speed, qd), (Weight, weights)]
    groups = []
    for group in system.groups:
        names = [system.topology.joints[j] for j in group.joints]
        of_names = (
            law for kind, values in numbers for law in _of_names(kind, values, names, group, batch)
        )
        laws = (*_ranges(group, batch), *of_names)
        # Both ends of a row act at C: it is then the derivative of its error.
        plain = {"attachment": (0.0, 0.0), "softness": None, "max_effort": None}
        groups.append(replace(group, laws=laws, **plain))
    transmissions = [
        replace(group, laws=_ranges(group, batch), softness=None) for group in system.transmissions
    ]
    constraints = tuple(replace(group, softness=None) for group in system.constraints)
    contacts = tuple(replace(group, laws=_ranges(group, batch)) for group in system.contacts)
    start = system.coordinates
    for j, goal in enumerate(goals.values()):
        groups.append(_held(system, batch, goal, len(system.topology.joints) + j, start))
        start += goal.coupling.dof
    placed = replace(
        system,
        groups=tuple(groups),
        transmissions=tuple(transmissions),
        constraints=constraints,
        contacts=contacts,
        fields=(),
    )
    shapes = tuple(leaf.shape[: leaf.ndim - batch] for leaf in jax.tree.leaves(placed))
    joints = (*system.topology.joints, *goals)
    topology = replace(system.topology, joints=joints, fields=(), shapes=shapes)
    return replace(placed, topology=topology)


def with_goals(placed: System, joints: int, present: Array) -> System:
    """A placement whose goals and wanted values count where `present` is 1, (*batch).

    joints: how many joints are no goals
    """

    def group_with(group):
        if group.joints[0] >= joints:
            return replace(group, enabled=present[None] + 0 * group.enabled)
        laws = (
            replace(x, present=present[None] + 0 * x.present) if isinstance(x, Value) else x
            for x in group.laws
        )
        return replace(group, laws=tuple(laws))

    return replace(placed, groups=tuple(map(group_with, placed.groups)))


def with_margins(placed: System) -> System:
    """A placement that holds what is on a bound."""

    def group_with(group):
        laws = (
            replace(x, margin=x.margin + ON_BOUND[x.margin.dtype.itemsize])
            if isinstance(x, Range)
            else x
            for x in group.laws
        )
        return replace(group, laws=tuple(laws))

    return replace(
        placed,
        groups=tuple(map(group_with, placed.groups)),
        transmissions=tuple(map(group_with, placed.transmissions)),
        contacts=tuple(map(group_with, placed.contacts)),
    )


def _ranges(group: JointGroup | TransmissionGroup | ContactGroup, batch: int) -> tuple[Range, ...]:
    """The ranges of a group by its limits and locks; values of transmissions that laws act on get
    one, that no row holds them.
    """
    ranges, bounded = [], set()
    dtype = jnp.result_type(*jax.tree.leaves(group))
    zero = jnp.zeros((len(group.members), *(1,) * batch), dtype)
    for law in group.laws:
        bounds = None
        if isinstance(law, Limits):
            bounds = law.lower, law.upper
        elif isinstance(law, Lock):
            bounds = law.value, law.value
            if law.engaged is not None:
                bounds = tuple(
                    jnp.where(law.engaged > 0, law.value, side * jnp.inf) for side in (-1, 1)
                )
        elif isinstance(group, TransmissionGroup) and law.coordinate not in bounded:
            bounds = None, None
        if bounds is not None:
            bounded.add(law.coordinate)
            lower, upper = (
                zero + side * jnp.inf if bound is None else bound
                for side, bound in zip((-1, 1), bounds, strict=True)
            )
            ranges.append(Range(lower, upper, zero, coordinate=law.coordinate))
    return tuple(ranges)


def _of_names(
    kind: type, values: Mapping[str, Stated], names: Sequence[str], group: JointGroup, batch: int
) -> Iterator[Law]:
    """The laws of a kind for the joints of a group that are among `values`, one per coordinate."""
    ones, dtype = (1,) * batch, group.erp.dtype
    zero = jnp.zeros((1, *ones), dtype)
    for k in range(group.coupling.dof):
        given = [name in values and k in values[name].at for name in names]
        if not any(given):
            continue
        rows = [zero] * len(names)
        for i, name in enumerate(names):
            if given[i]:
                at = values[name].at.index(k)
                rows[i] = expand_trailing(values[name].value[at : at + 1].astype(dtype), 1, batch)
        stacked = jnp.concatenate(jnp.broadcast_arrays(*rows))
        named = jnp.asarray(np.array(given, dtype).reshape(-1, *ones))
        if kind is Weight:
            yield Weight(stacked, coordinate=k)
        elif kind is Speed:
            yield Speed(stacked, named, coordinate=k)
        else:
            yield Value(stacked, named, jnp.ones_like(named), coordinate=k)


def _held(system: System, batch: int, goal: Held, joint: int, start: int) -> JointGroup:
    """A goal as a joint; joint, start: its index and that of its first coordinate."""
    dtype, ones = system.mass.dtype, (1,) * batch
    C, D = (
        jax.tree.map(lambda x: expand_trailing(x, 1, batch)[:, None].astype(dtype), T)
        for T in (goal.C, goal.D)
    )
    zeros = jnp.zeros((6 - goal.coupling.dof, 1, *ones), dtype)
    return JointGroup(
        coupling=goal.coupling,
        frame_C=C,
        frame_D=D,
        laws=(),
        erp=zeros,
        cfm=zeros,
        joints=(joint,),
        child=(goal.child,),
        parent=(goal.parent,),
        start=(start,),
        enabled=jnp.ones((1, *ones), dtype),
    )
