"""What the builder refuses is refused after the build too, or `Info.cause` tells it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints import (
    Cause,
    Hinge,
    Limits,
    Servo,
    SpringDamper,
    SystemBuilder,
    replace,
    step,
)

SOLID = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1)}
SKEW = np.diag([0.1, 0.1, 0.1]) + 1e-3 * np.eye(3, k=1)
FLAT = np.diag([0.1, 0.1, 0.25])
SOFT = {"stiffness": 5.0, "damping": 1.0}


def swing(**lenient):
    world = SystemBuilder()
    unphysical = lenient.pop("allow_unphysical", False)
    world.body("arm", **SOLID, com=(0.0, 0.0, -0.5), allow_unphysical=unphysical)
    laws = [Limits(-1.0, 1.0, **SOFT), Servo(10.0, 1.0)]
    world.joint("elbow", Hinge((0.0, 1.0, 0.0)), child="arm", laws=laws, **lenient)
    return world.build()


@pytest.fixture(scope="module")
def built():
    return swing()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: s.with_joint("elbow", limits=Limits(2.0, -2.0, **SOFT)),
            "joint 'elbow': Limits on coordinate 0: lower 2.0 must not be above upper -2.0",
        ),
        (lambda s: s.with_numbers({"joint.elbow.limits.lower": 3.0}), "lower 3.0 must not be abo"),
        (
            lambda s: s.with_numbers({"joint.elbow.limits.lower": [0.0, 3.0]}),
            "lower 3.0 must not be above upper 1.0",
        ),
        (lambda s: s.with_joint("elbow", axis=(0.0, 0.0, 0.0)), "'elbow': Hinge axis .* length 0"),
        (lambda s: s.with_joint("elbow", axis=(0.0, np.nan, 0.0)), "'elbow': Hinge axis .*finite"),
        (
            lambda s: s.with_joint("elbow", servo=Servo(-1.0, 1.0)),
            "Servo on coordinate 0: stiffness -1.0 must be >= 0.*allow_active=True",
        ),
        (lambda s: s.with_numbers({"joint.elbow.limits.damping": -1.0}), "damping -1.0 must be"),
        (lambda s: s.with_joint("elbow", erp=1.5), "'elbow': erp .* must lie in .0, 1."),
        (lambda s: s.with_numbers({"body.arm.mass": -1.0}), "body 'arm': mass -1.0 must be > 0"),
        (lambda s: s.with_numbers({"body.arm.mass": "two"}), "'arm': mass 'two' must be numbers"),
        (lambda s: s.with_numbers({"body.arm.inertia": SKEW}), "'arm': inertia .* symmetric"),
        (lambda s: s.with_numbers({"body.arm.inertia": FLAT}), "'arm': .* exceed the sum of the"),
        (
            lambda s: s.with_numbers({"body.arm.inertia": np.stack([np.eye(3), -np.eye(3)], -1)}),
            "'arm': inertia .* positive definite",
        ),
        (lambda s: s.with_numbers({"joint.elbow.limits.upper": None}), "is None; leave the path"),
        (lambda s: s.with_joint("elbow", axis=None), "'elbow': axis is None; leave axis out"),
        (lambda s: s.with_numbers({"gravity": -9.81}), r"gravity has shape \(\); it must be"),
        (lambda s: s.with_numbers({"body.arm": 1.0}), r"must be a BodyInertia\(mass, com"),
    ],
)
def test_numbers_that_the_builder_refuses(built, change, words):
    with pytest.raises(ValueError, match=words):
        change(built[0])


def test_what_the_builder_was_told_to_take_may_be_changed_to():
    system, _ = swing(allow_active=True, allow_unphysical=True)
    system = system.with_joint("elbow", servo=Servo(-1.0, 1.0))
    system = system.with_numbers({"body.arm.inertia": FLAT})
    assert system.number("joint.elbow.servo.stiffness") == -1.0


def test_numbers_that_fit_are_taken(built):
    system, _ = built
    system = system.with_joint("elbow", limits=Limits(-2.0, 2.0), erp=0.5, axis=(0.0, 0.0, 2.0))
    np.testing.assert_allclose(system.joint("elbow").coupling.axis, [0.0, 0.0, 1.0])
    assert np.shape(system.joint("elbow").erp) == (5,)
    # A plate, exactly on the bound, in single precision.
    plate = np.float32([[0.1, 0.02, 0.0], [0.02, 0.2, 0.0], [0.0, 0.0, 0.3]])
    system.with_numbers({"body.arm.inertia": plate})


def test_a_single_number_for_all_rows_is_taken(built):
    system = built[0].with_joint("elbow", erp=0.5)
    np.testing.assert_array_equal(system.joint("elbow").erp, 0.5)


@pytest.fixture(scope="module")
def causes(built):
    """Cause of a step with numbers of the system that were not known when it was traced."""
    _, state = built
    return jax.jit(lambda system: step(system, state, dt=1e-3)[1].cause)


class TestTraced:
    @pytest.mark.parametrize(
        "numbers",
        [
            {"joint.elbow.limits.lower": 2.0},
            {"joint.elbow.limits.stiffness": -1.0},
            {"joint.elbow.servo.damping": -1.0},
            {"joint.elbow.axis": np.zeros(3)},
            {"body.arm.inertia": SKEW},
            {"body.arm.inertia": FLAT},
        ],
    )
    def test_the_cause_tells(self, built, causes, numbers):
        system, _ = built
        # As traced numbers are put in: without a look at their values.
        changed = jax.jit(lambda system, values: system.with_numbers(values))
        values = {path: jnp.asarray(value) for path, value in numbers.items()}
        assert causes(changed(system, values)) == Cause.PARAMETERS

    def test_bodies_of_masses_are_sound(self, built, causes):
        """Inertias of 3 to 6 points of mass, at the bound where these lie in a plane."""
        system, _ = built
        rng = np.random.default_rng(0)
        for _ in range(20):
            r = rng.normal(size=(rng.integers(3, 7), 3)) * 10.0 ** rng.uniform(-3, 2)
            inertia = sum(x @ x * np.eye(3) - np.outer(x, x) for x in r)
            changed = replace(system, inertia=jnp.asarray(inertia)[..., None])
            assert causes(changed) == Cause.NONE

    @pytest.mark.slow
    def test_what_the_builder_was_told_to_take(self):
        system, state = swing(allow_active=True, allow_unphysical=True)
        system = system.with_joint("elbow", servo=Servo(-1.0, 1.0))
        system = system.with_numbers({"body.arm.inertia": FLAT})
        assert step(system, state, dt=1e-3)[1].cause == Cause.NONE


def test_a_law_of_another_type_is_still_refused(built):
    with pytest.raises(ValueError, match=r"laws\[0\] must be a Limits"):
        built[0].with_joint("elbow", limits=SpringDamper(1.0))
