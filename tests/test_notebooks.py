"""The notebooks run from top to bottom and show what the committed ones show."""

import asyncio
import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 400_000  # [bytes] of a notebook with its pictures
PATIENCE = 900  # [s] for one cell on a busy machine
KERNEL = "this-interpreter"


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell):
    """Media types of what a cell displays, and names of the streams that it writes."""
    kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
    return kinds | {output.name for output in cell.outputs if output.output_type == "stream"}


def execute(notebook, folder):
    """The notebook executed in `folder` by the interpreter that runs the tests."""
    specification = folder / "kernels" / KERNEL / "kernel.json"
    specification.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification.write_text(
        json.dumps({"argv": command, "display_name": KERNEL, "language": "python"})
    )
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        # The package of this checkout, installed or not.
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    specifications = KernelSpecManager(
        kernel_dirs=[str(folder / "kernels")], ensure_native_kernel=False
    )
    manager = AsyncKernelManager(
        kernel_name=KERNEL, kernel_spec_manager=specifications, transport="tcp"
    )
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=PATIENCE,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )

    async def run():
        await client.async_execute(env=environment)

    asyncio.run(run())
    return notebook


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def committed(request):
    return nbformat.read(request.param, as_version=4)


@pytest.fixture(scope="module")
def executed(committed, tmp_path_factory):
    notebook = nbformat.from_dict(committed)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    return execute(notebook, tmp_path_factory.mktemp("notebook"))


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["first_joint", "optimize_a_trajectory"]


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_is_committed(committed, executed):
    for cell, again in zip(code_cells(committed), code_cells(executed), strict=True):
        assert shown(again) == shown(cell), cell.source
        assert "stderr" not in shown(again), again.outputs


@pytest.mark.slow
def test_it_draws(executed):
    pictures = [cell for cell in code_cells(executed) if "image/png" in shown(cell)]
    assert len(pictures) >= 2
