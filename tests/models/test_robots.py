"""Real robots stand and accelerate as Pinocchio says, where both packages are installed."""

from pathlib import Path

import pytest

pinocchio = pytest.importorskip("pinocchio")

from support.cases import mostly_slow  # noqa: E402
from support.robots import compare, loaded  # noqa: E402
from support.urdf import plain  # noqa: E402

EXACT = 1e-12  # poses
SOLVED = 1e-8  # accelerations, relative to the largest
# Where the package example-robot-data puts its files, beside Pinocchio's own.
PREFIX = Path(pinocchio.__file__).parents[4]
FILES = sorted((PREFIX / "share" / "example-robot-data" / "robots").rglob("*.urdf"))
if not FILES:
    pytest.skip("needs the files of example-robot-data", allow_module_level=True)
# A file without links, and one whose mimics name joints that are not there.
BROKEN = ("ur3.urdf", "alex_psyonic_hands.urdf")


@pytest.mark.parametrize(
    "path",
    mostly_slow(
        [f for f in FILES if f.name not in BROKEN],
        default=("asr_twodof_description-TwoDofs",),
        name=lambda f: f"{f.parts[-3]}-{f.stem}",
    ),
)
def test_a_robot_stands_and_accelerates_as_in_pinocchio(path):
    floating = not loaded(path, visuals=False).coordinates
    poses, accelerations = compare(plain(path.read_text(encoding="utf-8")), floating)
    assert poses < EXACT
    # Where moments of inertia had to be raised, the mechanism is another.
    assert accelerations is None or accelerations < SOLVED
