"""Goals: where an assembly brings frames, points and orientations of bodies.

A goal holds a frame C of a body on a frame D of another body, or of the world, as a joint would:
`Frame` as a weld, `Point` as a ball joint, `Orientation` as a joint that slides along three axes.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ..algebra.pytree import Numbers, static, struct
from ..algebra.spatial import Pose
from ..build.checks.values import read_pose
from ..couplings.coupling import Coupling
from ..couplings.linear import Translation
from ..couplings.rigid import Fixed
from ..couplings.rotary import Ball
from ..model.system import WORLD


class Goal(ABC):
    """Base of all goals.

    body: name of the body that carries frame C
    relative_to: name of the body that carries frame D, or `WORLD`
    coupling: how C is held on D

    >>> from jaxjoints import PlanePoint
    >>> @struct
    ... class OnFloor(Goal):  # the origin of a body comes to z = 0
    ...     body: str = static()
    ...     relative_to: str = static(default=WORLD)
    ...     coupling: ClassVar[Coupling] = PlanePoint()
    ...     def frames(self, owner):
    ...         return Pose.identity(), Pose.identity()
    >>> print(OnFloor("foot").coupling.distances(Pose.along_z(0.25)))  # 0.25 m to go
    [0.25]
    """

    body: str
    relative_to: str
    coupling: ClassVar[Coupling]

    @abstractmethod
    def frames(self, owner: str) -> tuple[Pose, Pose]:
        """Pose of C in its body's frame and of D in the frame of `relative_to`.

        owner: name of the goal, for errors

        Raises: ValueError for what is no pose, point or orientation
        """


@struct
class Frame(Goal):
    """A frame of a body takes a pose.

    body: name of the body
    at: the pose, in one of the forms of `SystemBuilder.body`; batch axes may follow
    frame: pose of the frame in the body frame, None for the body frame itself
    relative_to: name of the body in whose frame `at` is given, or `WORLD`

    >>> tool = Frame("hand", at=(1.0, 0.0, 0.0), frame=(0.25, 0.0, 0.0))
    >>> C, D = tool.frames("tool")
    >>> print((D @ C.inverse()).p)  # where the hand comes
    [0.75 0.   0.  ]
    """

    body: str = static()
    at: Any
    frame: Any = None
    relative_to: str = static(default=WORLD, kw_only=True)
    coupling: ClassVar[Coupling] = Fixed()

    def frames(self, owner: str) -> tuple[Pose, Pose]:
        return _pose(owner, "frame", self.frame), _pose(owner, "at", self.at)


@struct
class Point(Goal):
    """A point of a body comes to a place.

    body: name of the body
    at: the place [m], shape (3, *batch)
    point: in the body frame [m], shape (3, *batch)
    relative_to: name of the body in whose frame `at` is given, or `WORLD`

    >>> tip = Point("hand", at=(1.0, 0.0, 0.0), point=(0.25, 0.0, 0.0))
    >>> C, D = tip.frames("tip")
    >>> print(tip.coupling.distances(D.inverse() @ C))  # of a hand at the origin of the world
    [-0.75  0.    0.  ]
    """

    body: str = static()
    at: Numbers
    point: Numbers = (0.0, 0.0, 0.0)
    relative_to: str = static(default=WORLD, kw_only=True)
    coupling: ClassVar[Coupling] = Ball()

    def frames(self, owner: str) -> tuple[Pose, Pose]:
        return _pose(owner, "point", self.point), _pose(owner, "at", self.at)


@struct
class Orientation(Goal):
    """A body turns to an orientation, wherever it is.

    body: name of the body
    at: the orientation: a quaternion (w first), shape (4, *batch), or a rotation matrix, shape
        (3, 3, *batch)
    relative_to: name of the body in whose frame `at` is given, or `WORLD`

    >>> upside_down = Orientation("cup", at=(0.0, 1.0, 0.0, 0.0))  # half a turn about x
    >>> _, D = upside_down.frames("upside_down")
    >>> print(D.R[:, 2] + 0.0)
    [ 0.  0. -1.]
    """

    body: str = static()
    at: Numbers
    relative_to: str = static(default=WORLD, kw_only=True)
    coupling: ClassVar[Coupling] = Translation()

    def frames(self, owner: str) -> tuple[Pose, Pose]:
        return _pose(owner, "frame", None), _pose(owner, "at", ((0.0, 0.0, 0.0), self.at))


def _pose(owner: str, field: str, value: Any) -> Pose:
    return read_pose(owner, field, value, batched=True)
