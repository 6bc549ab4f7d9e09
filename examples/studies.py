"""The picture of one coupling of the gallery: where its frame goes, and how that is drawn."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from drawing import COORDINATES, DARK, GREY, Picture, Place
from exhibits import Exhibit

import jaxjoints as jj

FINE, GHOSTS = 25, 5  # places along a path; places at which the body is drawn
STEP = 1e-2  # of the central differences for S, in float32


@jax.jit
def places(coupling: jj.Coupling, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rotation matrices (3, 3, n) and origins (3, n) of C in D at coordinates (k, n)."""
    T = jax.vmap(coupling.pose, in_axes=-1, out_axes=-1)(q)
    return T.R, T.p


@jax.jit
def slips(coupling: jj.Coupling, q: jax.Array) -> jax.Array:
    """Velocity residual for a unit speed of each coordinate, shape (velocity_rows, k)."""
    S, T = jj.joint_space.JointSpace(coupling).motion_subspace(q), coupling.pose(q)
    columns = [coupling.velocity_residual(T, S[:, j], jnp.zeros(())) for j in range(S.shape[1])]
    return jnp.stack(columns, axis=1)


def rolling(coupling: jj.Coupling, q: np.ndarray) -> np.ndarray:
    """Speeds of all five coordinates (5, 3) for unit speeds of the three angles, without slip."""
    slip = np.asarray(slips(coupling, jnp.asarray(q, float)))
    return np.concatenate([-np.linalg.solve(slip[:, :2], slip[:, 2:]), np.eye(3)])


def path_rolled(exhibit: Exhibit, duration: float = 2.4, finer: int = 4) -> np.ndarray:
    """Coordinates along a rolling motion, shape (5, FINE): x and y follow from the angles."""
    path = [np.array(exhibit.at)]
    for _ in range(finer * (FINE - 1)):
        rates = rolling(exhibit.coupling, path[-1]) @ np.array(exhibit.roll)
        path.append(path[-1] + duration / (finer * (FINE - 1)) * rates)
    return np.stack(path[::finer], axis=1)


def path_swept(exhibit: Exhibit, j: int) -> np.ndarray:
    """Coordinates (k, FINE) while coordinate j changes and the others rest."""
    q = np.repeat(np.array(exhibit.at)[:, None], FINE, axis=1)
    q[j] += np.linspace(*exhibit.sweep[j], FINE)
    return q


def study(exhibit: Exhibit) -> tuple[Place, np.ndarray, list[list[Place]]]:
    """The place of C, S there (6, k), and the places along each path.

    All poses come from one compiled call.
    """
    start, k = np.array(exhibit.at), exhibit.coupling.dof
    if exhibit.roll:
        paths = [path_rolled(exhibit)]
    else:
        paths = [path_swept(exhibit, j) for j, swept in enumerate(exhibit.sweep) if swept]
    shifted = [start[:, None] + sign * STEP * np.eye(k) for sign in (1, -1)]
    q = np.concatenate([start[:, None], *shifted, *paths], axis=1)
    R, p = map(np.asarray, places(exhibit.coupling, jnp.asarray(q, float)))
    C, *others = [Place(R[..., i], p[..., i]) for i in range(q.shape[1])]
    ahead, behind, swept = others[:k], others[k : 2 * k], others[2 * k :]
    S = np.zeros((6, k))
    for j in range(k):
        turning = C.R.T @ (ahead[j].R - behind[j].R) / (2 * STEP)
        S[:3, j] = C.R.T @ (ahead[j].p - behind[j].p) / (2 * STEP)
        S[3:, j] = turning[2, 1], turning[0, 2], turning[1, 0]
    return C, S, [swept[i : i + FINE] for i in range(0, len(swept), FINE)]


def draw(axes: plt.Axes, exhibit: Exhibit) -> None:
    """Draw the picture of one coupling."""
    picture = Picture(axes, *exhibit.view)
    C, S, paths = study(exhibit)
    colors = COORDINATES[: S.shape[1]]
    path_colors = [color for color, swept in zip(colors, exhibit.sweep, strict=False) if swept]
    if exhibit.roll:
        S = S @ rolling(exhibit.coupling, np.array(exhibit.at))
        path_colors, colors = [DARK], colors[:3]
    for line in exhibit.scenery():
        picture.line(line, GREY, 1, 0.8)
    if exhibit.rod:
        picture.line(np.stack([np.zeros(3), C.p], axis=1), DARK, 5, 2.2)
    for path, color in zip(paths, path_colors, strict=True):
        tips = [place(np.array(exhibit.body.tip)[:, None])[:, 0] for place in path]
        picture.line(np.stack(tips, axis=1), color, 2.5, 0.9, ls=(0, (4, 2)))
        for place in path[:: (FINE - 1) // (GHOSTS - 1)]:
            picture.body(exhibit.body, place, ghost=color)
    picture.body(exhibit.body, C)
    picture.frame(Place(np.eye(3), np.zeros(3)), "D")
    picture.frame(C, "C")
    for twist, color in zip(S.T, colors, strict=True):
        picture.twist(C, twist, color)
    rest = [DARK] * (len(exhibit.names) - len(colors))
    picture.coordinates(list(zip(exhibit.names, [*rest, *colors], strict=True)))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.07)
    axes.set(xticks=[], yticks=[])
    plt.setp(axes.spines.values(), color="#dddddd")
