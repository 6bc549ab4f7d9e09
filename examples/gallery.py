"""A picture of each coupling: frames C and D, its free directions, and its motion.

Writes an image for each family of couplings, and a page that shows them, into examples/gallery.
"""

import argparse
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawing import COORDINATES, DARK, GREY, RED_GREEN_BLUE, Picture, Place
from exhibits import FAMILIES, Exhibit
from PIL import Image

import jaxjoints as jj

FOLDER = Path(__file__).parent / "gallery"
COLUMNS, SIDE = 3, 3.9  # pictures in a row; width of one [inches]
FINE, GHOSTS = 25, 5  # places along a path; places at which the body is drawn
STEP = 1e-2  # of the central differences for S, in float32
HEAD = """# Gallery of the couplings

Made by `python examples/gallery.py`. Each picture shows the frame D in grey and the frame C with a
body; the axes x, y, z of C are red, green, blue. Each coordinate has a colour, in which the picture
shows

* its column of the motion subspace S, at the solid body: a straight arrow for the velocity of C's
  origin, a curved arrow for the angular velocity of C (directions only, not to scale);
* its motion: the body at several places while this coordinate changes and the others rest, and a
  dashed line for the path of one point of the body.

A coupling that rolls is shown along a rolling motion, with arrows for its three free velocities.
"""


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


def draw_family(path: Path, exhibits: dict[type, Exhibit]) -> None:
    """Write the pictures of a family into one image."""
    rows = -(-len(exhibits) // COLUMNS)
    height = SIDE * rows
    fig, axes = plt.subplots(rows, COLUMNS, figsize=(SIDE * COLUMNS, height), squeeze=False)
    fig.subplots_adjust(0.01, 0.35 / height, 0.99, 1 - 0.8 / height, 0.04, 0.40)
    for panel, (kind, exhibit) in zip(axes.flat, exhibits.items(), strict=False):
        draw(panel, exhibit)
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
        panel.annotate(kind.__name__, (0, 1), (2, 36), **place, fontsize=11, weight="bold")
        text = textwrap.fill(first_sentence(kind), 64)
        panel.annotate(text, (0, 1), (2, 34), **(place | {"va": "top"}), fontsize=7.5, color=DARK)
    for panel in axes.flat[len(exhibits) :]:
        panel.remove()
    fig.set_dpi(90)
    fig.canvas.draw()
    pixels = np.asarray(fig.canvas.buffer_rgba())[..., :3].astype(int)
    plt.close(fig)
    save(path, pixels)


def save(path: Path, pixels: np.ndarray) -> None:
    """Write an image (h, w, 3) with 256 colours, which makes the file a third as large.

    The colours are those of the lines, pale variants of each, and the most frequent of the image.
    """
    named = [int(color[1:], 16) for color in (*COORDINATES, *RED_GREEN_BLUE)]
    named = np.array(named)[:, None] // [65536, 256, 1] % 256
    named = np.concatenate([(named * i + 255 * (4 - i)) // 4 for i in (4, 3, 2, 1)])
    packed, counts = np.unique(pixels @ [65536, 256, 1], return_counts=True)
    colors = packed[:, None] // [65536, 256, 1] % 256
    kept = np.concatenate([named, colors[np.argsort(-counts, kind="stable")]])[:256]
    nearest = [np.argmin(np.sum((kept - color) ** 2, axis=1)) for color in colors]
    index = np.array(nearest, np.uint8)[np.searchsorted(packed, pixels @ [65536, 256, 1])]
    picture = Image.fromarray(index)
    picture.putpalette(kept.astype(np.uint8).tobytes())
    picture.save(path, optimize=True)


def first_sentence(kind: type) -> str:
    """The first sentence of a coupling's docstring."""
    text = " ".join(kind.__doc__.split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "."


def page() -> str:
    """The page that shows all families, in Markdown."""
    parts = [HEAD]
    for name, (title, exhibits) in FAMILIES.items():
        parts += [f"## {title}", f"![{title}]({name}.png)"]
        rows = [
            f"| `{kind.__name__}` | {', '.join(exhibit.names)} | {first_sentence(kind)} |"
            for kind, exhibit in exhibits.items()
        ]
        parts.append("\n".join(["| coupling | coordinates | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.families:
        draw_family(args.folder / f"{name}.png", FAMILIES[name][1])
    (args.folder / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
