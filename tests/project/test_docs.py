"""The pages: the code of the page on extending runs and does what it says; links lead somewhere."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jaxjoints"
EXTENDING = (PACKAGE / "EXTENDING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", EXTENDING, re.DOTALL)
MOST_LINES = 15
OVERVIEW = (PACKAGE / "README.md").read_text(encoding="utf-8")
MOST_LINES_OF_OVERVIEW = 90
ARCHITECTURE = (PACKAGE / "NOTES.md").read_text(encoding="utf-8")

G = 9.81
# The package of this checkout, installed or not.
PATH = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}

ROUNDING = 1e-12  # float64, of one evaluation of numbers of order one
EXACT = 1e-10  # the same after some thousand operations
CONVERGED = 1e-6  # Jacobi's 400 iterations


PAGES = [ROOT / "README.md", *PACKAGE.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def test_code_of_the_pages_is_python():
    blocks = [
        (page, code)
        for page in PAGES
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]
    assert len(blocks) > 40
    for page, code in blocks:
        compile(code, f"{page}: {code[:40]}", "exec")


@pytest.fixture(scope="module")
def names():
    """What the code of the page leaves behind."""
    names = {}
    for code in BLOCKS:
        exec(compile(code, "EXTENDING.md", "exec"), names)
    return names


def one_body(coupling=None, *, gravity=G, mass=2.0, **joint):
    """A body of diagonal inertia (0.1, 0.2, 0.3) on a joint to the world, or free."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -gravity))
    start = {"pose": (0.0, 0.0, 0.0)} if coupling is None else {}
    world.body("body", mass=mass, inertia=(0.1, 0.2, 0.3), **start)
    if coupling is not None:
        world.joint("joint", coupling, child="body", parent=jj.WORLD, **joint)
    return world


def test_each_example_has_at_most_fifteen_lines():
    assert len(BLOCKS) == 9  # imports, three couplings, law, field, constraint, scheme, solver
    for code in BLOCKS[1:]:
        assert len([line for line in code.splitlines() if line.strip()]) <= MOST_LINES


@pytest.mark.slow
def test_a_cam_is_held_by_the_torque_of_virtual_work(names):
    lift, angle = 0.05, 0.7
    system, state = one_body(names["Cam"](lift=lift), q=angle).build()
    torque = 2.0 * G * lift * np.sin(angle)
    one = jax.jit(lambda effort: jj.step(system, state, jj.Control(effort), dt=1e-3)[1].qd[0])
    held, free = (one(jnp.array([x])) for x in (torque, 0.0))
    np.testing.assert_allclose(held, 0.0, atol=EXACT)
    assert free < -1e-3  # it slides down without


@jax.jit
def rows(joint, T, q):
    return joint.rows(T, q, jnp.zeros(()))


@pytest.mark.slow
def test_the_slotted_hinge_is_the_one_written_by_hand(names):
    q, by_hand = jnp.array([0.3, 2.0]), jj.SlottedHinge()
    T = by_hand.pose(q)
    derived = rows(names["SlottedHinge"](), T, q)
    # W⁻¹ = [E | S]: the rows of one read the motion of the other, and take up nothing of it.
    S = np.linalg.inv(rows(by_hand, T, q).W)[:, 4:]
    np.testing.assert_allclose(derived.W @ S, np.eye(6)[:, 4:], atol=ROUNDING)
    np.testing.assert_allclose(derived.q, q, rtol=ROUNDING)


@pytest.mark.slow
def test_the_point_on_the_ellipsoid_is_held_along_its_normal(names):
    radii = jnp.array([1.0, 1.5, 2.0])
    p = radii * jnp.array([2.0, -1.0, 2.0]) / 3
    T = jj.Pose.translation(p)
    found = rows(names["PointOnEllipsoid"](radii), T, jnp.zeros(5))
    normal = np.append(p / radii**2, np.zeros(3))
    along = normal * np.linalg.norm(found.W[0]) / np.linalg.norm(normal)
    np.testing.assert_allclose(found.error, [0.0], atol=ROUNDING)
    np.testing.assert_allclose(found.W[0], along, atol=ROUNDING)


def test_a_rotor_swings_about_a_detent(names):
    torque, steps, inertia, dt = 2.0, 8.0, 0.3, 1e-3
    law = names["Detent"](torque=torque, steps=steps)
    system, state = one_body(jj.Hinge(), gravity=0.0, laws=[law], q=0.01).build()
    period = 2 * np.pi * np.sqrt(inertia / (torque * steps))
    end, q = jax.jit(
        lambda: jj.rollout(
            system, state, dt=dt, steps=round(period / dt), record=lambda state, info: info.q[0]
        )
    )()
    # It returns after a period, but for the rounding of the period to steps and the step itself.
    np.testing.assert_allclose(end.q[0], 0.01, rtol=2e-2)
    np.testing.assert_allclose(q[len(q) // 2], -0.01, rtol=2e-2)
    np.testing.assert_allclose(law.energy(0.01), 0.5 * torque * steps * 0.01**2, rtol=2e-3)


def test_the_wind_takes_a_body_along(names):
    air, drag, mass, dt, steps = np.array([3.0, 0.0, 1.0]), 0.5, 2.0, 1e-3, 400
    world = one_body(gravity=0.0, mass=mass)
    world.field("wind", names["Wind"](velocity=air, drag=drag), bodies="body")
    system, state = world.build()
    end, _ = jax.jit(lambda: jj.rollout(system, state, dt=dt, steps=steps, record_every=steps))()
    expected = air * (1 - (1 - dt * drag / mass) ** steps)  # explicit Euler steps of the field
    np.testing.assert_allclose(end.velocity[:, 0], expected, atol=EXACT)
    np.testing.assert_allclose(end.velocity[:, 0], air * -np.expm1(-0.1), rtol=1e-3)


@pytest.mark.slow
def test_the_third_body_stays_midway_between_two(names):
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    bodies = {"left": 0.0, "right": 1.0, "middle": 0.5}
    for name, x in bodies.items():
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(x, 0.0, 0.0))
    world.constraint("mid", names["Midpoint"](), bodies=list(bodies))
    system, state = world.build()
    push = system.control(wrench={"left": (0.0, 0.0, 6.0, 0.0, 0.0, 0.0)})
    end, _ = jax.jit(lambda: jj.step(system, state, push, dt=0.1))()
    # The push less λ/2 moves the left, -λ/2 the right, λ the middle: λ = 6/3 N.
    np.testing.assert_allclose(end.velocity[2], [0.5, -0.1, 0.2], atol=EXACT)


def test_steps_of_two_halves_have_half_the_error(names):
    dt, steps = 1e-2, 20
    system, state = one_body().build()
    fall = -0.5 * G * (dt * steps) ** 2
    errors = []
    for scheme in (jj.SemiImplicitEuler(), names["Halves"](jj.SemiImplicitEuler())):
        run = jax.jit(
            lambda scheme=scheme: jj.rollout(
                system, state, dt=dt, steps=steps, record_every=steps, scheme=scheme
            )
        )
        errors.append(run()[0].position[2, 0] - fall)
    np.testing.assert_allclose(errors[0], -0.5 * G * dt * dt * steps, rtol=1e-9)
    np.testing.assert_allclose(errors[1], errors[0] / 2, rtol=1e-9)


@pytest.mark.slow
def test_jacobi_holds_a_hanging_body(names):
    system, state = one_body(jj.Hinge(), frame_C=(0.0, 0.0, 0.4)).build()
    infos = []
    for solver in (names["Jacobi"](), jj.Newton()):
        scheme = jj.SemiImplicitEuler(solver=solver, joints="rows")
        infos.append(
            jax.jit(lambda scheme=scheme: jj.step(system, state, dt=1e-3, scheme=scheme))()[1]
        )
    jacobi, newton = infos
    np.testing.assert_allclose(jacobi.wrench[2, 0], 2.0 * G, rtol=CONVERGED)
    np.testing.assert_allclose(jacobi.wrench, newton.wrench, atol=CONVERGED * 2.0 * G)
    assert jacobi.ok


PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts
    )
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page):
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link} does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


def folders():
    return sorted(path for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] not in "._")


@pytest.mark.parametrize("folder", folders(), ids=lambda path: path.name)
def test_the_page_of_a_folder_names_its_files(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {folder.name}: ")
    assert "What flows through" in text or folder.name == "algebra"
    files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    missing = [path.name for path in files if f"{path.name}`" not in text]
    assert not missing, f"{folder.name}/README.md does not name {missing}"


def test_the_overview_is_two_screens():
    assert len(OVERVIEW.splitlines()) <= MOST_LINES_OF_OVERVIEW


def test_the_architecture_page_names_what_each_folder_imports():
    from project.test_floors import IMPORTS_OF_FOLDERS

    rows = re.findall(
        r"^\| \[(\w+)\]\(\w+/README.md\) \|.*\| (.*?) ?\|$", ARCHITECTURE, re.MULTILINE
    )
    table = {name: set(filter(None, imports.split(", "))) for name, imports in rows}
    assert table == IMPORTS_OF_FOLDERS


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Pages of the API reference, built as the README says, by their names."""
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, str(ROOT / ".ci" / "reference"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | PATH)
    assert done.returncode == 0, done.stderr
    assert "Warn" not in done.stderr, done.stderr
    return {
        str(page.relative_to(folder)): page.read_text(encoding="utf-8")
        for page in folder.rglob("*.html")
    }


@pytest.mark.slow
def test_the_reference_has_every_public_name(reference):
    door = reference["jaxjoints.html"]
    sections = set(re.findall(r'<section id="(\w+)">', door))
    families = {name for name in jj.__all__ if type(getattr(jj, name)) is ModuleType}
    assert sections >= set(jj.__all__) - families
    for name in families:
        assert getattr(jj, name).__name__.replace(".", "/") + ".html" in reference


@pytest.mark.slow
def test_the_reference_lists_arguments_and_keeps_equations(reference):
    door = reference["jaxjoints.html"]
    limits = re.search(r'<section id="Limits">.*?</section>', door, re.DOTALL)[0]
    assert re.search(r"<li><strong>stiffness</strong>: \[N/m", limits)
    assert re.search(r"<li><strong>damping</strong>: \[N s/m", limits)
    assert "<strong>False</strong>" not in limits  # a value that a line explains, no argument
    force = re.search(r'<section id="LimitForce">.*?</section>', door, re.DOTALL)[0]
    equations = " ".join(re.findall(r"<code>(.*?)</code>", force, re.DOTALL))
    assert "f = k x" in html.unescape(re.sub(r"<[^>]+>", "", equations))


@pytest.mark.slow
def test_pages_of_the_reference_link_to_pages_that_exist(reference):
    for name, page in reference.items():
        for link in re.findall(r'href="([^"#:]+\.html)', page):
            target = (Path("/") / name).parent / link
            assert str(Path(os.path.normpath(target)).relative_to("/")) in reference, (name, link)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["STEP.md", "FOOT.md", "TRANSFORMS.md"])
def test_a_step_goes_as_its_page_says(capsys, name):
    page = (PACKAGE / name).read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    with jax.enable_x64(False):
        exec(compile(code, name, "exec"), {})
    # Behind a print, or in lines of their own below one in a loop.
    shown = re.findall(r"print\(.*\)  # (.*)|\n    # (.*)", code)
    assert capsys.readouterr().out.splitlines() == ["".join(each) for each in shown]
