"""Calls that do not fit: every public function and record names the arguments that it has."""

import dataclasses
import types
import warnings

import pytest

import jaxjoints as jj
from jaxjoints.algebra.calls import public
from support import mechanisms


def public_names(module=jj, prefix="", seen=frozenset()):
    """Functions and records of the library by the names that users write."""
    for name in getattr(module, "__all__", None) or [n for n in vars(module) if n[:1] != "_"]:
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            # What a folder exports; of a single file its records, not the functions beside them.
            inside = value.__name__.startswith("jaxjoints") and value not in seen
            if inside and hasattr(value, "__all__"):
                yield from public_names(value, f"{prefix}{name}.", seen | {value})
        elif getattr(value, "__module__", "").startswith("jaxjoints"):
            yield f"{prefix}{name}", value


# Decorators of a user's classes, what takes anything by name, and what a subclass is made of.
LEFT_OUT = {"struct", "static", "replace", "map_trailing", "environments.make", "models.save"}
LEFT_OUT |= {"environments.Environment"}
CALLED = {
    name: value
    for name, value in public_names()
    if name not in LEFT_OUT
    and (
        dataclasses.is_dataclass(value)
        and hasattr(value.__init__, "__wrapped__")
        or isinstance(value, types.FunctionType)
        or value is jj.SystemBuilder
    )
}


def test_records_and_functions_are_among_them():
    names = {"step", "coordinates", "dynamics.mass_matrix", "identification.fit", "Hinge", "Servo"}
    assert names | {"optimization.Problem", "environments.unroll"} <= set(CALLED)
    records = [name for name, value in public_names() if hasattr(value, "__dataclass_fields__")]
    results = {"Diagnosis", "dynamics.Branch", "dynamics.SpanningTree", "models.Model"}
    assert set(records) - results - LEFT_OUT <= set(CALLED)


@pytest.mark.parametrize("name", CALLED)
def test_an_argument_that_is_not_there_is_named(name):
    with pytest.raises(TypeError) as error:
        CALLED[name](no_such_argument=1)
    text = str(error.value)
    assert text.startswith(f"{name.rpartition('.')[2]}: there is no argument 'no_such_argument'")
    assert "__init__" not in text


@pytest.fixture(scope="module")
def pendulum():
    return mechanisms.pendulum()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s, x: s.control(torque={}), "control: .* 'torque'; did you mean 'effort'"),
        (lambda s, x: s.state(angles={}), "state: .* 'angles'; did you mean 'q'"),
        (lambda s, x: jj.contact_laws(mu=0.5), "contact_laws: .* 'mu'; did you mean 'friction'"),
        (lambda s, x: jj.Servo(kp=1.0), "Servo: .* 'kp'; did you mean 'stiffness'"),
        (lambda s, x: jj.Limits(min=1.0), "Limits: .* 'min'; did you mean 'lower'"),
        (lambda s, x: jj.SystemBuilder().body("a", I=1), "body: .* 'I'; did you mean 'inertia'"),
        (
            lambda s, x: jj.SystemBuilder().joint("a", jj.Hinge(), child="b", limits=()),
            "joint: .* 'limits'; did you mean 'laws'",
        ),
        (lambda s, x: jj.rollout(s, x, dt=1e-3, T=1), "rollout: .* 'T'; did you mean 'steps'"),
        (lambda s, x: jj.SystemBuilder(g=9.81), "SystemBuilder: .* 'g'; did you mean 'gravity'"),
        (lambda s, x: jj.Hinge(0, 0, 1), r"Hinge: 3 numbers .* one argument: \(0, 0, 1\)"),
        (lambda s, x: jj.step(s, x), "step: dt is missing; give dt=…"),
        (lambda s, x: jj.coordinates(s, x, 3), "coordinates: .* takes system, state, and 3 are"),
        (lambda s, x: jj.SystemBuilder(9.8), "takes no argument, and 1 is given.* gravity=…"),
        (lambda s, x: jj.Limits(1.0, lower=2.0), "lower is given twice"),
        (
            lambda s, x: jj.SystemBuilder().contact("c", jj.shapes.Point(), friction=1.0),
            "contact: child is missing",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_argument_that_was_meant_is_named(pendulum, call, words):
    with pytest.raises(TypeError, match=words):
        call(*pendulum)


def test_errors_within_a_function_stay_as_they_are():
    @public
    def broken(x):
        return x + "text"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)


def test_warnings_show_the_line_of_the_caller(pendulum):
    world = jj.SystemBuilder()
    world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("elbow", jj.Hinge(), child="arm", laws=jj.Limits(upper=1.0), q=2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        system, _ = world.build()
        system.state(q={"elbow": 3.0})
    assert [warning.filename for warning in caught] == [__file__, __file__]
