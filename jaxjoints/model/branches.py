"""Which joint places which body: a spanning tree of the joints, breadth first from the world."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from .system import WORLD_INDEX, System

# Coordinates of a joint that holds nothing.
FREEDOMS = 6


@dataclass(frozen=True)
class Branch:
    """A joint of the tree, by its number: it places `body` from `base`.

    base: `WORLD_INDEX` for the world
    side: 0 if `body` is the joint's child, 1 if it is the parent

    >>> from jaxjoints import Hinge, SystemBuilder
    >>> from jaxjoints.dynamics import spanning_tree
    >>> world = SystemBuilder()
    >>> upper = world.body("upper arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> lower = world.body("forearm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    >>> _ = world.joint("shoulder", Hinge(), child=upper)
    >>> _ = world.joint("elbow", Hinge(), child=lower, parent=upper)
    >>> tree = spanning_tree(world.build()[0])
    >>> tree.branches[1]  # the elbow places the forearm from the upper arm
    Branch(joint=1, body=1, base=0, side=0)
    """

    joint: int
    body: int
    base: int
    side: int


def spanning_branches(
    system: System,
    placed: Iterable[int],
    stated: Collection[int] = (),
    only: Collection[int] | None = None,
) -> tuple[tuple[Branch, ...], tuple[int, ...]]:
    """The branches of the tree, each after the one that places its base; and its roots, the first
    bodies of those that no joint connects to the world or to a body that is placed.

    Of the joints that lead from a placed body to one that is not, the next branch is one of those
    whose coordinates are stated, if there is any, so that they count. Then joints count that hold
    something: one with six coordinates, as a bushing beside a chain, places only what is out of
    reach of the others. Among equal ones the tree grows breadth first, in the order in which joints
    were added.

    placed: indices of bodies that have their place otherwise, besides the world
    stated: numbers of joints whose coordinates are stated
    only: numbers of the joints that may place bodies, None for all
    """
    joints = {
        j: (child, parent, (j not in stated, group.coupling.dof == FREEDOMS))
        for group in system.groups
        if group.coupling.places_bodies
        for j, child, parent in zip(group.joints, group.child, group.parent, strict=True)
        if only is None or j in only
    }
    touching: dict[int, list[int]] = {}
    for j in sorted(joints):
        for body in joints[j][:2]:
            touching.setdefault(body, []).append(j)
    seen: set[int] = set()
    # Joints of placed bodies, the next branch first: by rank, then by when their base was placed.
    ahead: list[tuple[tuple[bool, bool], int, int]] = []
    branches, roots = [], []

    def place(body: int) -> None:
        """Let the joints of a body lead on from it."""
        for j in touching.get(body, ()):
            heappush(ahead, (joints[j][2], len(seen), j))
        seen.add(body)

    def grow() -> None:
        """Place what the joints ahead reach."""
        while ahead:
            j = heappop(ahead)[-1]
            child, parent, _ = joints[j]
            if not {child, parent} <= seen:
                ends = (parent, child, 1) if child in seen else (child, parent, 0)
                branches.append(Branch(j, *ends))
                place(ends[0])

    for body in (WORLD_INDEX, *placed):
        place(body)
    grow()
    for body in range(len(system.topology.bodies)):
        if body not in seen:
            roots.append(body)
            place(body)
            grow()
    return tuple(branches), tuple(roots)
