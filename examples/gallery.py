"""A picture of each coupling: frames C and D, its free directions, and its motion.

Writes an image for each family of couplings, and a page that shows them, into examples/gallery.
"""

import argparse
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from drawing import COORDINATES, DARK, RED_GREEN_BLUE
from exhibits import FAMILIES, Exhibit
from PIL import Image
from studies import draw

FOLDER = Path(__file__).parent / "gallery"
COLUMNS, SIDE = 3, 3.9  # pictures in a row; width of one [inches]
HEAD = """# Gallery of the couplings

Made by `python examples/gallery.py`. Each picture shows the frame D in grey and the frame C with a
body; the axes x, y, z of C are red, green, blue. Each coordinate has a colour. In this colour you
see

* at the solid body, the motion at unit speed of the coordinate: a straight arrow for the velocity
  of C's origin, a curved arrow for the angular velocity of C (directions only, not to scale);
* the body at several places while this coordinate changes and the others rest, and a dashed line
  for the path of one point of the body.

r is the rotation vector of C in D, axis times angle. For anatomical angles take a `Gimbal`, such as
`Gimbal("ZXY")`; `Gimbal()` is "ZYX". Docstrings state axes, zero and positive directions.

A coupling that rolls is shown along a rolling motion, with arrows for its three free velocities.
"""


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
        parts.append("\n".join(["| coupling | coordinates | motion |", "|---|---|---|", *rows]))
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
