"""A strip of stills for each task with a stored policy, drawn by a browser from the viewer's pages.

    python examples/policies_picture.py examples/policies.png

It needs `pip install -e ".[browser]" pillow` and Chromium.
"""

import argparse
import tempfile
from pathlib import Path

from film import stills
from policies import FOLDER, load, made, recorded

import jaxjoints as jj

# Times of the stills [s], of tasks that are over sooner or later than others.
TIMES = {
    "cart_pole": (0.02, 0.3, 0.6, 2.0),
    "finger": (0.02, 0.1, 0.3, 1.5),
    "gripper": (0.02, 0.1, 0.2, 0.4),
    "stewart_platform": (0.02, 0.5, 1.0, 1.5),
    "swing_up": (0.04, 1.0, 2.0, 5.0),
}
OTHERS = 1.0, 1.2, 1.4, 1.6
WIDTH, HEIGHT, TITLE = 240, 200, 18  # of a still, and the height of a task's name [pixels]


def strip(name: str, folder: Path):
    """Stills of an episode side by side, below the task's name."""
    from PIL import Image, ImageDraw

    task, times = made(name), TIMES.get(name, OTHERS)
    steps = int(times[-1] / float(task.interval)) + 2
    states = recorded(task, load(name)["parameters"], 1, steps)
    page = jj.view(task.system, states, title=name).save(folder / f"{name}.html")
    picture = Image.new("RGB", (WIDTH * len(times), HEIGHT + TITLE), "white")
    ImageDraw.Draw(picture).text((4, 2), name.replace("_", " "), fill="black", font_size=13)
    images = stills(page, times, (WIDTH, HEIGHT))
    assert len({image.tobytes() for image in images}) == len(times), f"{name} stands still"
    for i, still in enumerate(images):
        picture.paste(still, (WIDTH * i, TITLE))
    return picture


def main(path: Path, names: list[str]) -> None:
    """Draw the strips of some tasks into a picture."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        strips = [strip(name, Path(folder)) for name in names]
    wide, high = strips[0].size
    columns = min(len(strips), 2)
    rows = -(-len(strips) // columns)
    picture = Image.new("RGB", (wide * columns + 12 * (columns - 1), high * rows), "white")
    for i, one in enumerate(strips):
        picture.paste(one, (i % columns * (wide + 12), i // columns * high))
    picture.quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("path", type=Path, help="PNG to write")
    options.add_argument("--tasks", nargs="+", help="all by default")
    given = options.parse_args()
    main(given.path, given.tasks or sorted(path.stem for path in FOLDER.glob("*.npz")))
