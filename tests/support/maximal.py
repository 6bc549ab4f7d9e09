"""Accelerations of bodies in maximal coordinates: one dense problem in numpy, by Gauss's principle.

Of all accelerations that the joints permit, bodies take those that are nearest to the ones of free
bodies, measured by their masses: M v̇ + c = f₀ + Gᵀ f, G v̇ + Ġ v = 0, with the least forces f where
rows are redundant. A joint is a list of conditions on points and axes that its bodies carry, and
its rows are their second derivatives. Only numbers are taken from the library.
"""

from dataclasses import dataclass

import numpy as np

import jaxjoints as jj

# Share of the largest singular value below which a row is one of redundant ones.
REDUNDANT = 1e-9


@dataclass(frozen=True)
class Row:
    """A condition whose second derivative J a + bent is 0, a the accelerations of all bodies."""

    J: np.ndarray
    bent: float


@dataclass(frozen=True)
class Moving:
    """A vector in the world: its value, its rate, and its second derivative J a + bent."""

    value: np.ndarray
    rate: np.ndarray
    J: np.ndarray
    bent: np.ndarray

    def __sub__(self, other):
        return Moving(*(getattr(self, f) - getattr(other, f) for f in vars(self)))

    def dot(self, other):
        """The condition that the product of both stays what it is."""
        bent = self.value @ other.bent + other.value @ self.bent + 2 * self.rate @ other.rate
        return Row(self.value @ other.J + other.value @ self.J, bent)


def skew(v):
    """The matrix of v ×."""
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def rotation(q):
    """The matrix of a unit quaternion, w first."""
    w, v = q[0], q[1:]
    return (w * w - v @ v) * np.eye(3) + 2 * np.outer(v, v) + 2 * w * skew(v)


class Bodies:
    """The bodies of a system in a state of one environment, in numpy."""

    def __init__(self, system, state):
        self.system = system
        self.names = system.topology.bodies
        self.count = len(self.names)
        read = lambda x: np.asarray(x, float)  # noqa: E731
        self.mass, self.com = read(system.mass), read(system.com)
        self.R = [rotation(q / np.linalg.norm(q)) for q in read(state.quaternion).T]
        self.p, self.v, self.w = (read(x).T for x in (state.position, state.velocity, state.omega))
        moments = np.moveaxis(read(system.inertia), -1, 0)
        self.inertia = np.stack(
            [R @ moment @ R.T for R, moment in zip(self.R, moments, strict=True)]
        )

    def axis(self, body, e):
        """A direction that a body carries; body: its index, below 0 for the world."""
        none = np.zeros((3, 6 * self.count))
        if body < 0:
            return Moving(np.asarray(e, float), np.zeros(3), none, np.zeros(3))
        u, w, J = self.R[body] @ e, self.w[body], none.copy()
        J[:, 6 * body + 3 : 6 * body + 6] = -skew(u)
        return Moving(u, np.cross(w, u), J, np.cross(w, np.cross(w, u)))

    def point(self, body, r):
        """A point that a body carries, r from the origin of its frame."""
        if body < 0:
            return self.axis(body, r)
        arm = self.axis(body, r - self.com[:, body])
        J = arm.J.copy()
        J[:, 6 * body : 6 * body + 3] = np.eye(3)
        return Moving(self.p[body] + arm.value, self.v[body] + arm.rate, J, arm.bent)

    def rows(self, name):
        """All conditions of a joint, as its coupling has them in words."""
        joint = self.system.joint(name)
        coupling, (child, parent) = joint.coupling, (joint.child[0], joint.parent[0])
        frames = [
            (body, np.asarray(frame.p, float), rotation(np.asarray(frame.q, float)))
            for body, frame in ((child, joint.frame_C), (parent, joint.frame_D))
        ]
        C, D = (self.point(body, p) for body, p, _ in frames)
        of_C, of_D = (
            (lambda e, body=body, R=R: self.axis(body, R @ np.asarray(e, float)))
            for body, _, R in frames
        )
        apart = C - D
        along = lambda e: apart.dot(self.axis(-1, e))  # noqa: E731
        together = [along(e) for e in np.eye(3)]
        match coupling:
            case jj.Ball():
                return together
            case jj.Hinge():
                u, w, a = triad(coupling.axis)
                return [*together, of_D(u).dot(of_C(a)), of_D(w).dot(of_C(a))]
            case jj.Universal():
                return [*together, of_D(coupling.axis_D).dot(of_C(coupling.axis_C))]
            case jj.Slider():
                u, w, a = triad(coupling.axis)
                turned = [of_D(x).dot(of_C(y)) for x, y in ((u, w), (w, a), (a, u))]
                return [apart.dot(of_D(u)), apart.dot(of_D(w)), *turned]
        raise ValueError(f"joint {name!r}: no conditions for {coupling}")

    def turning(self, name):
        """The row of a hinge's q̈; its J is also how a moment along the hinge acts on the bodies."""
        joint = self.system.joint(name)
        C, D = joint.child[0], joint.parent[0]
        axis = rotation(np.asarray(joint.frame_C.q, float)) @ triad(joint.coupling.axis)[2]
        a, J = self.axis(C, axis).value, np.zeros(6 * self.count)
        for body, sign in ((C, 1.0), (D, -1.0)):
            if body >= 0:
                J[6 * body + 3 : 6 * body + 6] = sign * a
        # ȧ · (ω_C - ω_D) = 0, as the difference is along the axis.
        return Row(J, 0.0)


def triad(axis):
    """Two directions normal to an axis, and its own, of unit length."""
    a = np.asarray(axis, float) / np.linalg.norm(axis)
    u = np.cross(a, np.eye(3)[np.argmin(np.abs(a))])
    u /= np.linalg.norm(u)
    return u, np.cross(a, u), a


def dense_accelerations(system, state, *, moments=None, held=()):
    """Linear and angular accelerations of all bodies, (3, bodies) each, and the rank of all rows.

    moments: of hinges by name [N m]; held: hinges whose speeds stay as they are
    Returns: linear, angular, rank and number of the rows
    """
    bodies = Bodies(system, state)
    n = bodies.count
    rows = [row for name in system.topology.joints for row in bodies.rows(name)]
    rows += [bodies.turning(name) for name in held]
    push = sum((f * bodies.turning(name).J for name, f in (moments or {}).items()), np.zeros(6 * n))
    free, unit = np.zeros(6 * n), np.zeros((6 * n, 6 * n))
    for b in range(n):
        linear, angular = slice(6 * b, 6 * b + 3), slice(6 * b + 3, 6 * b + 6)
        moment = push[angular] - np.cross(bodies.w[b], bodies.inertia[b] @ bodies.w[b])
        free[linear] = np.asarray(system.gravity) + push[linear] / bodies.mass[b]
        free[angular] = np.linalg.solve(bodies.inertia[b], moment)
        unit[linear, linear] = np.eye(3) / np.sqrt(bodies.mass[b])
        # I⁻¹ = U Uᵀ.
        unit[angular, angular] = np.linalg.inv(np.linalg.cholesky(bodies.inertia[b])).T
    J, bent = np.stack([row.J for row in rows]), np.array([row.bent for row in rows])
    change, _, rank, _ = np.linalg.lstsq(J @ unit, -bent - J @ free, rcond=REDUNDANT)
    a = (free + unit @ change).reshape(n, 6)
    return a[:, :3].T, a[:, 3:].T, rank, len(rows)
