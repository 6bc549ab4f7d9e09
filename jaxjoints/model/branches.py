"""Which joint places which body: a spanning tree of the joints, breadth first from the world."""

from collections.abc import Iterable
from dataclasses import dataclass

from .system import WORLD_INDEX, System

# Coordinates of a joint that holds nothing.
FREEDOMS = 6


@dataclass(frozen=True)
class Branch:
    """A joint of the tree, by its number: it places `body` from `base`.

    base: `WORLD_INDEX` for the world
    side: 0 if `body` is the joint's child, 1 if it is the parent
    """

    joint: int
    body: int
    base: int
    side: int


def spanning_branches(
    system: System, placed: Iterable[int]
) -> tuple[tuple[Branch, ...], tuple[int, ...]]:
    """The branches of the tree, each after the one that places its base; and its roots, the first
    bodies of those that no joint connects to the world or to a body that is placed.

    Breadth first, in the order in which joints were added. A joint with six coordinates, as a
    bushing beside a chain, holds nothing: it places only what is out of reach of the others.
    Contacts place no bodies.

    placed: indices of bodies that have their place otherwise, besides the world
    """
    joints = {
        j: (child, parent, group.coupling.dof)
        for group in system.groups
        if group.coupling.places_bodies
        for j, child, parent in zip(group.joints, group.child, group.parent, strict=True)
    }
    joints = {j: joints[j] for j in sorted(joints)}
    holding: dict[int, list[int]] = {}
    for j, (child, parent, dof) in joints.items():
        if dof < FREEDOMS:
            holding.setdefault(child, []).append(j)
            holding.setdefault(parent, []).append(j)
    loose = [j for j, (_, _, dof) in joints.items() if dof == FREEDOMS]
    queue, branches, roots = [WORLD_INDEX, *placed], [], []
    seen = set(queue)

    def grow(j: int) -> None:
        """Place the body at the other end of a joint, where one end is placed."""
        child, parent, _ = joints[j]
        if (child in seen) != (parent in seen):
            ends = (parent, child, 1) if child in seen else (child, parent, 0)
            branches.append(Branch(j, *ends))
            seen.add(ends[0])
            queue.append(ends[0])

    visited, bodies = 0, range(len(system.topology.bodies))
    while visited < len(queue):
        for j in holding.get(queue[visited], ()):
            grow(j)
        visited += 1
        if visited == len(queue):
            for j in loose:
                grow(j)
        if visited == len(queue):
            roots += [body for body in bodies if body not in seen][:1]
            queue += [root for root in roots if root not in seen]
            seen.update(roots)
    return tuple(branches), tuple(roots)
