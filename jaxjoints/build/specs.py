"""What the builder knows of each body, joint, contact and so on before the system is built."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from ..algebra.compiler import is_traced
from ..algebra.spatial import Pose
from ..couplings.contact import ContactGeometry
from ..couplings.coupling import Coupling
from ..laws.constraints import Constraint
from ..laws.fields import Field
from ..laws.law import Law
from ..laws.softness import Compliance, PhysicalSoftness
from ..laws.transmissions import Transmission


@dataclass(frozen=True)
class BodySpec:
    """A body, its numbers checked: the arguments of `SystemBuilder.body` in standard form.

    inertia: about the centre of mass in body axes [kg m²], shape (3, 3)
    pose: of the body frame in the world; None for a body that a joint places
    velocity: of the body frame's origin, then angular, world axes, shape (6,); None for the rest
    moving: False for a body of prescribed motion
    """

    mass: float | Array
    inertia: np.ndarray | Array
    com: np.ndarray | Array
    pose: Pose | None
    velocity: Array | None
    moving: bool

    def __str__(self) -> str:
        if is_traced((self.mass, self.com)):
            return "mass and com that JAX is tracing"
        return f"mass {self.mass:g}, com {self.com.tolist()}"


@dataclass(frozen=True)
class RowSoftness:
    """The softness of bilateral rows, as the fields of the same names in `JointGroup`."""

    erp: np.ndarray
    cfm: np.ndarray
    softness: PhysicalSoftness | None = None

    @property
    def is_rigid(self) -> bool:
        """Whether all rows are rigid, so that position projection corrects their errors; rows whose
        softness is traced are not.
        """
        if isinstance(self.softness, Compliance):
            return not is_traced(self.softness) and not self.softness.compliance.any()
        if self.softness is not None:
            return not self.softness.softens
        return not is_traced(self.cfm) and not self.cfm.any()


@dataclass(frozen=True)
class JointSpec:
    """A joint, its records checked: the arguments of `SystemBuilder.joint` in standard form.

    frame_C, frame_D: poses of C in the child's body frame and of D in the parent's
    q, qd: coordinates and speeds at the start, shape (dof,); None for those of the builder's choice
    """

    coupling: Coupling
    child: str
    parent: str
    frame_C: Pose
    frame_D: Pose
    laws: tuple[Law, ...]
    softness: RowSoftness
    attachment: tuple[float, float]
    enabled: np.ndarray | None
    max_effort: np.ndarray | None
    tree: bool
    q: Array | None
    qd: Array | None

    def __str__(self) -> str:
        return f"{type(self.coupling).__name__} of {self.child!r} on {self.parent!r}"

    @property
    def stacked_fields(self) -> dict[str, Any]:
        """Fields of the `JointGroup` whose leaves have an axis of joints."""
        names = ("coupling", "frame_C", "frame_D", "laws", "enabled", "max_effort")
        return {name: getattr(self, name) for name in names} | vars(self.softness)

    @property
    def group_key(self) -> Hashable:
        """Joints of equal keys form one `JointGroup`."""
        facts = self.attachment, self.softness.is_rigid, self.tree
        return structure_and_shapes(self.stacked_fields), *facts


@dataclass(frozen=True)
class TransmissionSpec:
    """A transmission, its records checked: the arguments of `SystemBuilder.transmission`."""

    transmission: Transmission
    joints: tuple[str, ...]
    laws: tuple[Law, ...]
    softness: RowSoftness
    enabled: np.ndarray | None

    def __str__(self) -> str:
        return f"{type(self.transmission).__name__} of {', '.join(map(repr, self.joints))}"

    @property
    def stacked_fields(self) -> dict[str, Any]:
        """Fields of the `TransmissionGroup` whose leaves have an axis of transmissions."""
        names = ("transmission", "laws", "enabled")
        return {name: getattr(self, name) for name in names} | vars(self.softness)


@dataclass(frozen=True)
class ConstraintSpec:
    """A constraint, its records checked: the arguments of `SystemBuilder.constraint`."""

    constraint: Constraint
    bodies: tuple[str, ...]
    softness: RowSoftness
    enabled: np.ndarray | None

    def __str__(self) -> str:
        return f"{type(self.constraint).__name__} of {', '.join(map(repr, self.bodies))}"

    @property
    def stacked_fields(self) -> dict[str, Any]:
        """Fields of the `ConstraintGroup` whose leaves have an axis of constraints."""
        return {"constraint": self.constraint, "enabled": self.enabled} | vars(self.softness)


@dataclass(frozen=True)
class ContactSpec:
    """A contact, its records checked; fields as in a `ContactGroup`, bodies by their names."""

    geometry: ContactGeometry
    child: str
    parent: str
    frame_C: Pose
    frame_D: Pose
    laws: tuple[Law, ...]
    enabled: np.ndarray | None

    def __str__(self) -> str:
        return f"{type(self.geometry).__name__} of {self.child!r} on {self.parent!r}"

    @property
    def stacked_fields(self) -> dict[str, Any]:
        """Fields of the `ContactGroup` whose leaves have an axis of contacts."""
        names = ("geometry", "frame_C", "frame_D", "laws", "enabled")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class FieldSpec:
    """A field, its record checked; bodies: those that it acts on, None for all that move."""

    field: Field
    bodies: tuple[str, ...] | None

    def __str__(self) -> str:
        on = "all bodies" if self.bodies is None else ", ".join(map(repr, self.bodies))
        return f"{type(self.field).__name__} on {on}"


def structure_and_shapes(tree: Any) -> Hashable:
    """What trees have in common whose leaves can be stacked: structure, and shape of each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(leaf.shape for leaf in leaves)
