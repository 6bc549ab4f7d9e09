"""What a user may get wrong: each input is refused or noted, naming the element and the value."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxjoints.algebra.pytree import struct
from jaxjoints.build.builder import SystemBuilder
from jaxjoints.couplings.compound import Chain, Reversed
from jaxjoints.couplings.coupling import Coupling
from jaxjoints.couplings.gimbal import Gimbal
from jaxjoints.couplings.linear import Helical, Slider
from jaxjoints.couplings.rigid import Fixed, Free
from jaxjoints.couplings.rotary import Ball, Hinge, Universal
from jaxjoints.laws.drives import Armature, Effort, Motor, Servo
from jaxjoints.laws.friction import DryFriction
from jaxjoints.laws.law import Law
from jaxjoints.laws.limits import Limits, Lock
from jaxjoints.laws.softness import Softness
from jaxjoints.laws.springs import Damping, SpringDamper
from jaxjoints.laws.transmissions import Mimic
from jaxjoints.model.system import WORLD
from jaxjoints.simulate.door import check_time_step
from support.refusals import SOLID, hinge_on_arm, refused, warned, world_with_arm

NAN, INF = math.nan, math.inf


def notes(world):
    return world.build()[0].topology.notes


def first_law(world):
    (law,) = world.build()[0].groups[0].laws
    return law


@pytest.mark.parametrize("mass", [-1.0, 0.0])
def test_mass_must_be_positive(mass):
    with refused("'arm'", f"mass {mass}", "> 0", "prescribed=True"):
        world_with_arm(mass=mass)


def test_missing_mass_is_refused():
    with refused("'arm'", "mass is missing"):
        world_with_arm(mass=None)


@pytest.mark.parametrize("mass", [NAN, INF])
def test_mass_must_be_finite(mass):
    with refused("'arm'", f"mass {mass}", "finite"):
        world_with_arm(mass=mass)


def test_mass_ratio_across_a_joint_warns():
    world = world_with_arm()
    world.body("dust", mass=1e-7, inertia=(1e-9, 1e-9, 1e-9))
    with warned("'elbow'", "'arm'", "'dust'", "1e-07"):
        world.joint("elbow", Hinge(), child="dust", parent="arm")


def test_mass_ratio_across_a_transmission_warns():
    world = world_with_arm()
    world.body("dust", mass=1e-7, inertia=(1e-9, 1e-9, 1e-9))
    for name in ("arm", "dust"):
        world.joint(f"of {name}", Hinge(), child=name)
    with warned("'gear'", "'arm'", "'dust'", "1e-07"):
        world.transmission("gear", Mimic(2.0), joints=["of arm", "of dust"])


def test_inertia_must_be_symmetric():
    inertia = np.diag([0.1, 0.1, 0.1])
    inertia[0, 1] = 1e-3
    with refused("'arm'", "inertia", "symmetric", "0.001", "symmetrize=True"):
        world_with_arm(inertia=inertia)
    system, _ = world_with_arm(inertia=inertia, symmetrize=True).build()
    np.testing.assert_allclose(system.inertia[0, 1, 0], 5e-4, rtol=1e-6)
    np.testing.assert_allclose(system.inertia[1, 0, 0], 5e-4, rtol=1e-6)


def test_inertia_must_be_positive_definite():
    with refused("'arm'", "positive definite", "-0.123456789012345", "0.2"):
        world_with_arm(inertia=(-0.123456789012345, 0.1, 0.2))


def test_principal_moments_obey_the_triangle_inequality():
    with refused("'arm'", "0.100000000000001", "0.5", "balance_inertia=True"):
        world_with_arm(inertia=(0.100000000000001, 0.2, 0.5))
    with warned("'arm'", "0.5", "raised"):
        world = world_with_arm(inertia=(0.1, 0.2, 0.5), balance_inertia=True)
    system, _ = world.build()
    np.testing.assert_allclose(jnp.diag(system.inertia[..., 0]), [0.2, 0.3, 0.5], rtol=1e-6)
    world_with_arm(inertia=(0.1, 0.2, 0.3))  # a plate: exactly on the bound


def test_inertia_about_the_wrong_point_says_which_was_tested():
    with refused("'arm'", "about the centre of mass", "from the origin", "-0.9"):
        world_with_arm(com=(1.0, 0.0, 0.0), inertia_at="origin")
    world = world_with_arm(com=(0.0, 0.0, 0.5), inertia=(0.35, 0.35, 0.1), inertia_at="origin")
    system, _ = world.build()
    np.testing.assert_allclose(jnp.diag(system.inertia[..., 0]), [0.1, 0.1, 0.1], rtol=1e-6)


def test_unknown_point_is_refused():
    with refused("'arm'", "inertia_at", "'center'"):
        world_with_arm(inertia_at="center")


@pytest.mark.parametrize("com", [(NAN, 0.0, 0.0), (0.0, INF, 0.0)])
def test_com_must_be_finite(com):
    with refused("'arm'", "com", str(max(com)) if INF in com else "nan"):
        world_with_arm(com=com)


@pytest.mark.parametrize("inertia", [(0.0, 0.0, 0.0), (0.1, 0.1, 0.0), np.zeros((3, 3))])
def test_zero_inertia_is_refused(inertia):
    with refused("'arm'", "inertia", "0.0", "every axis"):
        world_with_arm(inertia=inertia)


def test_missing_inertia_is_refused():
    with refused("'arm'", "inertia is missing"):
        world_with_arm(inertia=None)


def test_zero_quaternion_is_refused():
    with refused("'arm'", "pose", "(0, 0, 0, 0)", "zero"):
        world_with_arm(pose=((0, 0, 0), (0, 0, 0, 0)))
    with refused("'elbow'", "frame_C", "zero"):
        hinge_on_arm(frame_C=((0, 0, 0), (0, 0, 0, 0)))


def test_quaternion_off_unit_is_normalized_with_a_warning_or_refused():
    with warned("'arm'", "pose", "1.1", "normalized"):
        world = world_with_arm(pose=((0, 0, 0), (1.1, 0, 0, 0)))
    np.testing.assert_allclose(world.build()[1].quaternion[:, 0], [1, 0, 0, 0])
    with refused("'arm'", "pose", "2.0", "length 1"):
        world_with_arm(pose=((0, 0, 0), (2.0, 0, 0, 0)))


@pytest.mark.parametrize(
    ("matrix", "rule"),
    [(np.diag([1.0, 1.0, 1.25]), "orthonormal"), (np.diag([1.0, 1.0, -1.0]), "reflection")],
)
def test_rotation_matrix_must_be_a_rotation(matrix, rule):
    with refused("'arm'", "pose", str(matrix[2, 2]), rule):
        world_with_arm(pose=((0, 0, 0), matrix))
    with refused("'elbow'", "frame_D", rule):
        hinge_on_arm(frame_D=((0, 0, 0), matrix))


def test_axis_of_zero_length_is_refused():
    with refused("'elbow'", "axis", "[0.0, 0.0, 0.0]", "length 0"):
        hinge_on_arm(Hinge(axis=(0, 0, 0)))


def test_axis_must_be_finite():
    with refused("'elbow'", "axis", "nan", "finite"):
        hinge_on_arm(Slider(axis=(0.0, NAN, 1.0)))


def test_axis_not_unit_is_normalized_with_a_note():
    world = hinge_on_arm(Hinge(axis=(0, 0, 2)))
    assert "joint 'elbow': axis normalized from length 2" in notes(world)
    np.testing.assert_allclose(world.build()[0].joint("elbow").coupling.axis, [0, 0, 1])


def test_universal_with_parallel_axes_is_refused():
    with refused("'elbow'", "axis_D", "0 degrees", "parallel"):
        hinge_on_arm(Universal(axis_D=(1, 0, 0), axis_C=(-2, 0, 0)))


@pytest.mark.parametrize(("pitch", "use"), [(0.0, "use Hinge"), (INF, "use Slider")])
def test_screw_pitch_must_be_neither_zero_nor_infinite(pitch, use):
    with refused("'elbow'", "pitch", use):
        hinge_on_arm(Helical(pitch=pitch))


def test_lower_limit_above_upper_is_refused():
    with refused("'elbow'", "Limits", "lower 1.0", "upper -1.0"):
        hinge_on_arm(laws=[Limits(1.0, -1.0)])


def test_equal_limits_are_a_lock():
    world = hinge_on_arm(laws=[Limits(0.25, 0.25)], q=0.25)
    assert isinstance(first_law(world), Lock)
    assert first_law(world).value == 0.25
    assert any("'elbow'" in note and "Lock" in note for note in notes(world))


def test_equal_soft_limits_are_a_spring():
    law = first_law(hinge_on_arm(laws=[Limits(0.25, 0.25, stiffness=8.0)], q=0.25))
    assert isinstance(law, SpringDamper)
    assert (law.stiffness, law.damping, law.rest) == (8.0, 0.0, 0.25)


def test_two_locks_of_one_coordinate_are_refused():
    with refused("'elbow'", "coordinate 0", "Lock"):
        hinge_on_arm(laws=[Lock(0.0), Limits(0.1, 0.1)])


@pytest.mark.parametrize("bounds", [(NAN, 1.0), (0.0, NAN), (NAN, None)])
def test_limits_must_not_be_nan(bounds):
    with refused("'elbow'", "Limits", "nan", "None"):
        hinge_on_arm(laws=[Limits(*bounds)])


def test_infinite_bounds_are_absent_sides():
    law = first_law(hinge_on_arm(laws=[Limits(-INF, 1.0)]))
    assert law.lower is None and law.upper == 1.0
    assert hinge_on_arm(laws=[Limits(-INF, INF)]).build()[0].groups[0].laws == ()
    with refused("'elbow'", "lower inf"):
        hinge_on_arm(laws=[Limits(INF, None)])


def test_start_outside_limits_warns():
    world = hinge_on_arm(laws=[Limits(-0.5, 0.5)], q=0.75)
    with warned("'elbow'", "0.75", "upper 0.5", "0.25"):
        world.build()


def test_start_off_a_lock_warns():
    world = hinge_on_arm(laws=[Lock(0.5)])
    with warned("'elbow'", "value 0.5", "starts at 0"):
        world.build()


def test_limits_beyond_a_turn_are_accepted_for_an_angle_that_winds():
    world = hinge_on_arm(laws=[Limits(-7.0, 7.0)], q=6.5)
    assert any("'elbow'" in note and "14 rad" in note for note in notes(world))
    _, state = world.build()
    np.testing.assert_allclose(state.q, [6.5], rtol=1e-6)
    assert notes(hinge_on_arm(Slider(), laws=[Limits(-7.0, 7.0)])) == ()
    assert any("turn" in note for note in notes(hinge_on_arm(laws=[Limits(-1e6, 1e6)])))


@pytest.mark.parametrize(("coupling", "coordinate"), [(Ball(), 1), (Free(), 3)])
def test_limits_beyond_a_turn_are_refused_for_an_angle_that_ends(coupling, coordinate):
    with refused("'elbow'", "-7 to 7", f"coordinate {coordinate}", "whole turn", "Gimbal"):
        hinge_on_arm(coupling, laws=[Limits(-7.0, 7.0, coordinate=coordinate)])
    assert notes(hinge_on_arm(Gimbal(), laws=[Limits(-7.0, 7.0, coordinate=1)]))


@pytest.mark.parametrize(
    ("law", "complaint"),
    [
        (Limits(-1, 1, restitution=1.5), "restitution 1.5 must lie in [0, 1]"),
        (Limits(-1, 1, stiffness=1.0, restitution=0.5), "a soft stop bounces by its damping"),
        (Motor(1.0, -2.0), "effort -2.0 must be >= 0"),
        (Motor(NAN, 2.0), "speed nan must be a number"),
        (Motor(1.0, INF), "effort inf must be finite"),
        (Motor(1.0, 1.0, cfm=-1.0), "cfm -1.0 must be >= 0"),
        (Servo(1.0, 1.0, effort=-2.0), "effort -2.0 must be >= 0"),
        (Servo(1.0, 1.0, target=INF), "target inf must be finite"),
        (Effort(NAN), "effort nan must be a number"),
        (Lock(INF), "value inf must be finite"),
    ],
)
def test_bad_numbers_of_laws_are_refused(law, complaint):
    with refused("'elbow'", f"{type(law).__name__} on coordinate 0", complaint):
        hinge_on_arm(laws=[law])


@pytest.mark.parametrize(("field", "value"), [("erp", 1.5), ("erp", -0.1), ("cfm", -1.0)])
def test_softness_must_be_in_range(field, value):
    for options in (
        {"softness": Softness(**{field: value})},
        {"laws": [Limits(-1, 1, **{field: value})]},
    ):
        with refused("'elbow'", f"{field} {value}"):
            hinge_on_arm(**options)
    with refused("system", f"{field} {value}"):
        SystemBuilder(**{field: value})


@pytest.mark.parametrize("field", ["erp", "cfm"])
def test_softness_must_not_be_nan(field):
    for options in (
        {"softness": Softness(**{field: NAN})},
        {"laws": [Limits(-1, 1, **{field: NAN})]},
    ):
        with refused("'elbow'", f"{field} nan"):
            hinge_on_arm(**options)


def test_softness_has_one_number_or_one_per_row():
    with refused("'elbow'", "erp", "(2,)", "(5,)"):
        hinge_on_arm(softness=Softness(erp=(0.1, 0.2)))
    group = hinge_on_arm(softness=Softness(erp=0.1 * np.arange(5), cfm=1e-6)).build()[0].groups[0]
    np.testing.assert_allclose(group.erp[:, 0], 0.1 * np.arange(5), rtol=1e-6)
    assert not group.rigid


@pytest.mark.parametrize(
    ("law", "field"),
    [
        (Damping(-0.5), "damping"),
        (SpringDamper(stiffness=-0.5), "stiffness"),
        (DryFriction(-0.5), "friction_force"),
        (Limits(-1, 1, stiffness=10.0, damping=-0.5), "damping"),
        (Servo(-0.5, 1.0), "stiffness"),
        (Servo(1.0, -0.5, effort=1.0), "damping"),
        (Armature(-0.5), "inertia"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Law) else x,
)
def test_negative_resistance_needs_allow_active(law, field):
    with refused("'elbow'", f"{field} -0.5", "allow_active=True"):
        hinge_on_arm(laws=[law])
    hinge_on_arm(laws=[law], allow_active=True)


@pytest.mark.parametrize("dt", [0.0, -1e-3, NAN, INF, 1.5])
def test_time_step_must_be_in_range(dt):
    with refused("dt", str(dt)):
        check_time_step(dt)
    check_time_step(1.0)
    check_time_step(jnp.asarray(1e-3))


@pytest.mark.parametrize("gravity", [(0.0, 0.0, NAN), (0.0, -9.81), -9.81])
def test_gravity_must_be_three_finite_numbers(gravity):
    with refused("gravity"):
        SystemBuilder(gravity=gravity)


def test_duplicate_names_are_refused_with_both_definitions():
    world = world_with_arm()
    with refused("'arm'", "body 0 (mass 1", "body 1 (mass 3"):
        world.body("arm", **SOLID | {"mass": 3.0})
    world.joint("elbow", Hinge(), child="arm")
    with refused("'elbow'", "joint 0 (Hinge", "joint 1 (Ball"):
        world.joint("elbow", Ball(), child="arm")
    with refused("'world'", "choose another"):
        world.body(WORLD, **SOLID)


def test_missing_body_is_refused_with_near_matches():
    world = world_with_arm()
    with refused("'elbow'", "'amr'", "'arm'"):
        world.joint("elbow", Hinge(), child="amr")
    with refused("'elbow'", "child ['arm'] must be the name of one body"):
        world.joint("elbow", Hinge(), child=["arm"])
    with refused("'elbow'", "parent 'base'", "'arm'"):
        world.joint("elbow", Hinge(), child="arm", parent="base")


def test_joint_from_a_body_to_itself_is_refused():
    with refused("'elbow'", "'arm'"):
        hinge_on_arm(parent="arm")


def test_joint_between_immovable_bodies_is_refused():
    world = SystemBuilder()
    world.body("lift", prescribed=True)
    world.body("base", prescribed=True)
    with refused("'elbow'", "'lift'", "'world'"):
        world.joint("elbow", Hinge(), child="lift")
    with refused("'elbow'", "'lift'", "'base'"):
        world.joint("elbow", Hinge(), child="lift", parent="base")


def test_world_as_child_is_refused():
    with refused("'elbow'", "child is the world", "'arm'"):
        world_with_arm().joint("elbow", Hinge(), child=WORLD, parent="arm")


def test_a_system_needs_a_body_but_not_a_joint():
    with refused("no bodies"):
        SystemBuilder().build()
    system, state = world_with_arm().build()
    assert system.coordinates == 0 and state.position.shape == (3, 1)


def test_frames_that_do_not_meet_warn():
    world = world_with_arm(pose=(0.0, 0.0, 0.125))
    world.joint("elbow", Hinge(), child="arm")
    with warned("'elbow'", "0.125"):
        world.build()


def test_contradicting_starts_are_refused():
    world = world_with_arm(pose=(0.0, 0.0, 0.0))
    world.joint("elbow", Hinge(), child="arm", q=0.5)
    with refused("'elbow'", "q [0.5]", "0."):
        world.build()
    world = world_with_arm(pose=(0.0, 0.0, 0.0))
    world.joint("elbow", Hinge(), child="arm", qd=0.5)
    with refused("'elbow'", "qd [0.5]", "no effect"):
        world.build()


def test_unknown_names_of_a_state_are_refused_with_near_matches():
    system, _ = hinge_on_arm().build()
    with refused("q:", "'elbwo'", "'elbow'"):
        system.state(q={"elbwo": 0.1})
    with refused("pose:", "'amr'", "'arm'"):
        system.state(pose={"amr": (0, 0, 0)})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda s: s.state(q=[0.1]),
            ("q [0.1]", "mapping", "q={'elbow': …}"),
        ),
        (lambda s: s.state(pose=(0, 0, 0)), ("pose (0, 0, 0)", "pose={'arm': …}")),
        (lambda s: s.state(qd=jnp.ones(1)), ("qd", "mapping", "qd={'elbow': …}")),
        (lambda s: s.control(effort=1.0), ("effort 1.0", "effort={'elbow': …}")),
        (lambda s: s.control(wrench=np.zeros(6)), ("wrench", "wrench={'arm': …}")),
        (lambda s: s.with_numbers([1.0]), ("numbers [1.0]", "{'body.arm.mass': …}")),
    ],
)
def test_values_without_names_are_refused(call, words):
    system, _ = hinge_on_arm().build()
    with refused(*words):
        call(system)


def test_numbers_in_place_of_names_are_refused():
    with refused("'gear'", "3", "must be a name of a joint"):
        hinge_on_arm().transmission("gear", Mimic(2.0), joints=3)


def test_coordinates_of_wrong_number_are_refused():
    with refused("'elbow'", "q", "(2, 2)", "1 numbers"):
        hinge_on_arm(q=[[1.0, 2.0], [3.0, 4.0]]).build()
    with refused("'elbow'", "q", "2 components"):
        hinge_on_arm(Universal(), q=1.0)
    with refused("'elbow'", "q", "rigid"):
        hinge_on_arm(Fixed(), q=1.0)
    with refused("'elbow'", "q", "finite"):
        hinge_on_arm(q=NAN)
    system, _ = hinge_on_arm(Universal()).build()
    for number in (-5.0, jnp.asarray(-5.0)):
        with refused("'elbow'", "effort -5.0 is one number for 2", "effort={'elbow.0': …}"):
            system.control(effort={"elbow": number})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coupling": Hinge}, ("Hinge", "write Hinge(")),
        ({"coupling": "hinge"}, ("'hinge'", "not a coupling")),
        ({"laws": [3.0]}, ("3.0", "not a law")),
        ({"laws": [Damping(1.0, coordinate=1)]}, ("Damping", "coordinate 1", "1 coordinates")),
        ({"laws": [Limits((0.0, 1.0), 2.0)]}, ("Limits", "lower", "(2,)")),
        ({"laws": [Limits(0.0, 1.0, max_correction=0.0)]}, ("max_correction 0.0", "> 0")),
        ({"laws": [Limits(0.0, 1.0, stiffness=1.0, erp=0.2)]}, ("Limits", "stiffness", "erp")),
        ({"softness": 0.2}, ("softness 0.2",)),
        ({"attachment": "midpiont"}, ("'midpiont'", "'midpoint'")),
        ({"frame_W": (0, 0, 0), "frame_C": (0, 0, 0)}, ("frame_W", "not both")),
        ({"frame_W": (0, 0, 0)}, ("frame_W", "'arm'", "pose")),
        ({"frame_C": (0, 0)}, ("frame_C", "(3,)")),
        ({"coupling": Hinge(axis="z")}, ("Hinge", "axis", "'z'", "static()")),
    ],
)
def test_wrong_records_of_a_joint_are_refused(options, words):
    options = dict(options)
    coupling = options.pop("coupling", None)
    with refused("'elbow'", *words):
        hinge_on_arm(coupling, **options)


def test_couplings_without_a_check_of_their_own_must_be_finite():
    @struct
    class Unchecked(Helical):
        check = Coupling.check

    with refused("'elbow'", "Unchecked", "pitch nan"):
        hinge_on_arm(Unchecked(pitch=NAN))


def test_poses_that_are_not_finite_are_refused():
    @struct
    class Broken(Helical):
        def pose(self, q):
            return super().pose(q / 0.0)

    with refused("'elbow'", "Broken", "not finite"):
        hinge_on_arm(Broken(pitch=1.0)).build()


@pytest.mark.parametrize("switch", ["prescribed", "symmetrize", "allow_unphysical"])
def test_switches_of_a_body_are_true_or_false(switch):
    """A text is true to Python, also "no"."""
    with refused("'arm'", f"{switch} 'no'", "True or False"):
        world_with_arm(**{switch: "no"})
    with refused("'elbow'", "allow_active 'no'", "True or False"):
        hinge_on_arm(allow_active="no")
    with refused("system", "strict 'yes'", "True or False"):
        SystemBuilder(strict="yes")


def test_numbers_as_texts_are_refused():
    with refused("'arm'", "mass '1.0'", "numbers"):
        world_with_arm(mass="1.0")
    with refused("'elbow'", "Limits", "lower '-90'", "numbers"):
        hinge_on_arm(laws=[Limits("-90", "90")])
    with refused("'elbow'", "damping '1'", "number"):
        hinge_on_arm(laws=[Damping("1")])
    with refused("'elbow'", "pitch", "'0.1'", "numbers"):
        hinge_on_arm(Helical(pitch="0.1"))
    with refused("'elbow'", "q [None]", "numbers"):
        hinge_on_arm(q=None).build()[0].state(q={"elbow": None})


def test_a_class_within_a_record_is_refused():
    with refused("'elbow'", "Chain.first", "Hinge'> is a class", "Hinge(…)"):
        hinge_on_arm(Chain(Hinge, Slider()))
    with refused("'elbow'", "Reversed.of 'hinge'", "record"):
        hinge_on_arm(Reversed("hinge"))
