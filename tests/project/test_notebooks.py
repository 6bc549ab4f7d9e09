"""The notebooks run from top to bottom, in short settings, and show what is committed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PATIENCE = 900  # [s] for one cell on a busy machine
# What the tests write in place of what stands in a notebook, once. Its assertions hold for that
# too, and what is committed was executed as it stands. These notebooks take longest nonetheless and
# are sweeps. The knee gains little: most of its time goes into tracing and compiling one program.
SHORT = {
    "batch_and_randomize": {
        "BATCH = 4096": "BATCH = 64",
        "SAMPLE = 128": "SAMPLE = 32",
        "ITERATIONS = 15": "ITERATIONS = 10",
        "hold, steps=200,": "hold, steps=50,",
    },
    "identify_a_knee": {'"starts": 4, "polish": 10': '"starts": 2, "polish": 8'},
    "optimize_a_trajectory": {
        "STARTS, INTERVALS, SUBSTEPS, DT = 256,": "STARTS, INTERVALS, SUBSTEPS, DT = 48,"
    },
    "policy_by_gradient": {"ITERATIONS, options = 50,": "ITERATIONS, options = 30,"},
    "policy_of_an_identified_robot": {"ITERATIONS = 300": "ITERATIONS = 150"},
}

# In a process of its own, which takes the sockets of the kernel with it when it ends.
EXECUTE = f"""
import sys
import nbformat
from nbclient import NotebookClient

source, target, folder = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
place = {{"metadata": {{"path": folder}}}}
settings = {{"kernel_name": "python3", "coalesce_streams": True, "resources": place}}
NotebookClient(notebook, timeout={PATIENCE}, **settings).execute()
nbformat.write(notebook, target)
"""


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell):
    """Media types of what a cell displays, and names of the streams that it writes."""
    kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
    streams = (x for x in cell.outputs if x.output_type == "stream" and not only_waits(x.text))
    return kinds | {output.name for output in streams}


def only_waits(text):
    """Whether a stream only says what is compiled, and how far a search is."""
    lines = filter(None, (line.strip() for line in re.split("[\\r\\n]", text)))
    return all(re.match(r"compiling .* …$|\w+: +\d+%\|", line) for line in lines)


def shortened(path):
    """A notebook without outputs, in the settings of SHORT."""
    notebook = nbformat.read(path, as_version=4)
    cells = code_cells(notebook)
    for cell in cells:
        cell.outputs, cell.execution_count = [], None
    for full, short in SHORT.get(path.stem, {}).items():
        counts = [cell.source.count(full) for cell in cells]
        assert sum(counts) == 1, f"{path.stem} has {full!r} {sum(counts)} times"
        cell = cells[counts.index(1)]
        cell.source = cell.source.replace(full, short)
    return notebook


def execute(path, folder):
    """A notebook executed in `folder` by the interpreter that runs the tests, in short settings."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        # The package of this checkout, installed or not.
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        # Nothing of the user's own settings and kernels.
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    source, target = folder / "short.ipynb", folder / "executed.ipynb"
    nbformat.write(shortened(path), source)
    command = [sys.executable, "-c", EXECUTE, str(source), str(target), str(folder)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return nbformat.read(target, as_version=4)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, id=path.stem, marks=pytest.mark.sweep if path.stem in SHORT else ())
        for path in NOTEBOOKS
    ],
)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def committed(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def executed(path, tmp_path_factory):
    return execute(path, tmp_path_factory.mktemp("notebook"))


def test_there_are_notebooks():
    names = ["batch_and_randomize", "closed_loops", "first_joint", "identify_a_knee"]
    names += ["identify_a_mechanism", "joint_of_your_own"]
    names += ["leg_that_walks_flat", "limits_and_gradients", "optimize_a_trajectory"]
    names += ["policy_by_gradient", "policy_of_an_identified_robot", "quadruped"]
    names += ["robot_from_its_file"]
    assert [path.stem for path in NOTEBOOKS] == names


def test_short_settings_replace_what_stands_in_the_notebooks():
    assert SHORT.keys() <= {path.stem for path in NOTEBOOKS}
    for path in NOTEBOOKS:
        shortened(path)


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_is_committed(committed, executed):
    for cell, again in zip(code_cells(committed), code_cells(executed), strict=True):
        assert shown(again) == shown(cell), cell.source
        assert "stderr" not in shown(again), again.outputs


@pytest.mark.slow
def test_it_draws(executed):
    pictures = [cell for cell in code_cells(executed) if "image/png" in shown(cell)]
    assert len(pictures) >= 2
