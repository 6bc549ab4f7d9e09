"""`print` of a system, of what a step did and of a cause: every number and name is there."""

import jax
import jax.numpy as jnp
import pytest

import jaxjoints as jj
from jaxjoints.model.table import units_of


@pytest.fixture(scope="module")
def mechanism():
    world = jj.SystemBuilder(gravity=(0.0, 0.0, -9.81))
    world.body("arm", mass=1.5, inertia=(0.1, 0.11, 0.02), com=(0.0, 0.0, -0.5))
    world.body("cart", mass=2.0, inertia=(0.3, 0.3, 0.3))
    world.body("platform", prescribed=True, pose=(0.0, 0.0, 3.0))
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="cart", laws=jj.Damping(0.25))
    world.joint(
        *("pivot", jj.Universal()),
        child="arm",
        parent="cart",
        laws=[jj.Limits(-1.0, 2.0, coordinate=1), jj.Servo(30.0, 2.0)],
        max_effort=7.0,
    )
    belt = jj.transmissions.Weighted([1.0, -0.5, 0.0])
    world.transmission("belt", belt, joints=("rail", "pivot"))
    world.field("air", jj.fields.Drag(linear=0.75), bodies="arm")
    return world.build()


def test_a_system_prints_all_it_consists_of(mechanism):
    system, _ = mechanism
    lines = [" ".join(line.split()) for line in str(system).splitlines()]
    assert lines[0] == "System of 3 bodies, 2 joints, 3 coordinates; gravity 0 0 -9.81 m/s²"
    for line in (
        "arm 1.5 0 0 -0.5 0.02 0.1 0.11",
        "platform prescribed",
        "rail Slider cart world 0 m Damping(damping=0.25)",
        "pivot Universal arm cart 1 rad Servo(stiffness=30, damping=2, effort=7); |effort| <= 7",
        "pivot.1 2 rad Limits(lower=-1, upper=2, erp=0.2, cfm=0); |effort| <= 7",
        "belt Weighted(weights=1 -0.5 0) rail, pivot held at 0",
        "air Drag(linear=0.75) arm",
    ):
        assert line in lines, str(system)


@pytest.mark.parametrize(
    "coupling, units",
    [
        (jj.Rope(), "m rad rad rad rad rad"),
        (jj.DoubleBall(length=0.5), "rad rad rad rad rad"),
        (jj.Chain(jj.Slider((1.0, 0.0, 0.0)), jj.DoubleBall(length=0.5)), "m rad rad rad rad rad"),
        (jj.Reversed(jj.DoubleBall(length=0.5)), "rad rad rad rad rad"),
        (jj.SpurGear(0.1, 0.2), "m rad m m rad rad"),
        (jj.BevelGear(0.1, 0.2), "m rad rad m m m"),
        (jj.FreeRodrigues(), "m m m 1 1 1"),
        (jj.Helical(pitch=0.1), "rad"),
        (jj.Fixed(), ""),
    ],
)
def test_units_of_coordinates_are_those_of_the_coupling(coupling, units):
    assert units_of(coupling) == units.split()


def test_a_batch_prints_its_first_environment(mechanism):
    system, _ = mechanism
    heavier = jj.replace(system, mass=jnp.outer(system.mass, jnp.array([1.0, 3.0])))
    text = str(heavier)
    assert "environment 0 of 2" in text and "4.5" not in text
    told = []
    jax.eval_shape(lambda s: told.append(str(s)), heavier)
    assert told == ["System of 3 bodies that JAX is tracing"]


@pytest.mark.slow
def test_a_step_says_what_it_did(mechanism):
    system, state = mechanism
    one = jax.jit(lambda state: jj.step(system, state, dt=1e-3)[1])
    assert str(one(state)).startswith("The step is sound.\nLargest residual ")
    states = jj.replicate(state, 3)
    broken = jj.replace(states, velocity=states.velocity.at[0, 0, 1].set(jnp.nan))
    text = str(jax.jit(lambda state: jj.step(system, state, dt=1e-3)[1])(broken))
    assert text.startswith("2 of 3 environments are sound.\n1 (1): STATE: NaN, infinity or a")


def test_every_cause_has_a_sentence():
    sentences = {str(cause) for cause in jj.Cause}
    assert len(sentences) == len(jj.Cause) and all(len(text) > 10 for text in sentences)


def test_a_notebook_shows_the_tables_of_a_system(mechanism):
    system, _ = mechanism
    assert repr(system) == str(system)
    page = system._repr_html_()
    assert page.startswith("<p>System of 3 bodies, 2 joints, 3 coordinates; gravity 0 0 -9.81 m/s²")
    assert page.count("<table>") == page.count("</table>") == 4  # no contacts, no constraints
    assert ">Limits(lower=-1, upper=2, erp=0.2, cfm=0); |effort| &lt;= 7</td>" in page
    world = jj.SystemBuilder()
    world.body("<b>&", mass=1.0, inertia=(1.0, 1.0, 1.0))
    assert ">&lt;b&gt;&amp;</td>" in world.build()[0]._repr_html_()


def test_a_state_says_what_it_is(mechanism):
    _, state = mechanism
    lines = repr(state).splitlines()
    assert len(lines) == 3
    assert lines[0] == "State of 3 bodies and 3 coordinates, at 0 s, all finite"
    batch = jj.replace(jj.replicate(state, 4, 2), time=jnp.linspace(0.5, 2.0, 8).reshape(4, 2))
    first = "State of 3 bodies and 3 coordinates, batch of 4 x 2, at 0.5 to 2 s, all finite"
    assert repr(batch).splitlines()[0] == first
    bad = jj.replace(batch, omega=batch.omega.at[0, 0, 0, 0].set(jnp.nan))
    assert repr(bad).splitlines()[0].endswith("not all finite")
    records = jax.tree.map(lambda x: jnp.stack([x] * 5), jj.replicate(state, 2))
    first = "State of 3 bodies and 3 coordinates, 5 records, batch of 2, at 0 s, all finite"
    assert repr(records).splitlines()[0] == first


def test_records_without_numbers_show_their_shapes(mechanism):
    system, state = mechanism
    told = []

    def tell(*records):
        told.extend(map(repr, records))
        return 0.0

    jax.eval_shape(tell, state, system)
    jax.eval_shape(jax.vmap(tell, in_axes=-1), jj.replicate(state, 4))
    jax.eval_shape(jax.grad(lambda s: tell(s) + jnp.sum(s.q)), state)
    assert told[1] == "System of 3 bodies that JAX is tracing"
    for text in (told[0], *told[2:]):
        assert text.startswith("State that JAX is tracing: position (3, 3), quaternion (4, 3), vel")
    shapes = jax.eval_shape(lambda *x: x, state, system)
    assert repr(shapes[0]).startswith("State of: position (3, 3), quaternion (4, 3)")
    assert repr(shapes[1]) == "System of 3 bodies of which shapes are known"
    for odd in (None, "a", 1):
        assert repr(jax.tree.map(lambda _: odd, state)).startswith("State of: ")  # noqa: B023
        assert repr(jax.tree.map(lambda _: odd, system)).startswith("System of")  # noqa: B023


def test_closures_and_linear_models_are_told_in_a_few_lines(mechanism):
    flags = jnp.array([True, False])
    errors = [jnp.array([[1e-9, -2e-3]])] * 2 + [jnp.zeros((0, 2))] * 5
    closure = jj.AssemblyReport(
        *errors, closed=flags, reached=~flags | flags, iterations=jnp.array([3, 7])
    )
    assert repr(closure) == (
        "AssemblyReport: 1 of 2 closed, reached, after 3 to 7 iterations\n"
        "largest errors [m or rad, and per s]: joint 0.002, transmission 0.002"
    )
    model = jj.dynamics.LinearModel(jnp.eye(4), jnp.ones((4, 1)), jnp.array([0.0, -2.0, 0, 0]))
    first, second = repr(model).splitlines()
    assert first.startswith("LinearModel of 2 coordinates under 1 efforts: A x + B u + c")
    assert second.startswith("A (4, 4), B (4, 1), c (4,) of at most 2;")
    for record in (closure, model):
        text = repr(jax.eval_shape(lambda x: x, record))
        assert text.startswith(f"{type(record).__name__} of: ")
