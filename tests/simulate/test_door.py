"""What users pass to steps and rollouts: made floating, checked, and refused by name."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints import Cause, Control, Controller, replicate, rollout, step
from support import mechanisms

DT = 1e-2


@pytest.fixture(scope="module")
def chain():
    return mechanisms.chain(2, qd=1.0)


@pytest.fixture(scope="module")
def info(chain):
    """What a step of the chain did, by its shapes alone."""
    system, state = chain
    return jax.eval_shape(lambda: step(system, state, dt=DT)[1])


@pytest.fixture(scope="module")
def advanced(chain):
    """One step of the chain, compiled once for all who ask."""
    return jax.jit(lambda system, state, dt: step(system, state, dt=dt))


class TestNumbers:
    @pytest.mark.slow
    def test_integers_count_as_floats(self, chain):
        system, state = chain
        found = [
            step(system, state, Control(effort=effort), dt=DT)[0].position
            for effort in (jnp.array([1, -2]), [1, -2], np.array([1.0, -2.0], np.float32))
        ]
        without = step(system, state, dt=DT)[0].position
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)
        assert np.abs(found[0] - without).max() > 1e-5

    @pytest.mark.slow
    def test_integers_of_a_system_and_a_state_count_too(self, chain, advanced):
        system, state = chain
        whole = replace(system, mass=jnp.array([1, 2])), replace(state, time=jnp.array(0))
        float_ = replace(system, mass=jnp.array([1.0, 2.0])), state
        np.testing.assert_array_equal(*(advanced(*x, DT)[0].position for x in (whole, float_)))

    def test_half_precision_is_refused(self, chain):
        system, state = chain
        half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), system)
        with pytest.raises(ValueError, match="bfloat16.*float32 or float64"):
            step(half, state, dt=DT)

    def test_arrays_of_a_system_keep_the_axes_they_were_built_with(self, chain):
        system, state = chain
        front = replace(system, mass=jnp.ones((3, 2)))
        with pytest.raises(ValueError, match=r"mass has shape \(3, 2\); it was built with \(2,\)"):
            step(front, state, dt=DT)

    @pytest.mark.slow
    def test_a_batch_that_may_be_in_front_has_to_be_told(self, chain):
        system, state = chain
        effort = jnp.ones((2, 2))
        with pytest.raises(ValueError, match=r"effort of shape \(2, 2\).*replicate\(state, 2\)"):
            step(system, state, Control(effort=effort), dt=DT)
        with pytest.raises(ValueError, match=r"mass of shape \(2, 2\).*replicate\(state, 2\)"):
            step(replace(system, mass=effort), state, dt=DT)
        new, _ = step(system, replicate(state, 2), Control(effort=effort), dt=DT)
        assert new.position.shape == (3, 2, 2)


class TestSentences:
    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda s, x: step(x, s, dt=DT), r"exchanged; call step\(system, state"),
            (lambda s, x: rollout(s, x, dt=DT, steps=10.0), "steps 10.0 must be a whole number"),
            (lambda s, x: rollout(s, x, dt=DT, steps=2, scheme="euler"), "scheme 'euler' must be"),
            (lambda s, x: step(s, x, dt=DT, scheme=jj.Rattle), "scheme <class .* must be a Scheme"),
            (lambda s, x: rollout(s, x, dt=DT, steps=2, record="q"), "record 'q' must be a func"),
            (lambda s, x: rollout(s, x, [Control()], dt=DT), "controls are a list; give one Cont"),
            (
                lambda s, x: rollout(s, x, Control(effort=jnp.ones(2)), dt=DT, steps=3),
                "to hold one control, repeat it",
            ),
            (lambda s, x: step(s, x, Control(effort="much"), dt=DT), "effort 'much' must be an"),
            (lambda s, x: jj.replace(x, q=x.q + 1.0), r"replace: q of a State .* system.state\(q="),
            (
                lambda s, x: rollout(s, x, lambda a, b: Control(), dt=DT, steps=2),
                r"controls <lambda> must be a function of \(state\): missing",
            ),
            (
                lambda s, x: rollout(s, x, dt=DT, steps=2, record=lambda a: a),
                r"record <lambda> must be a function of \(state, info\): too many",
            ),
            (lambda s, x: Controller(lambda a: a), r"Controller function <lambda> must be a func"),
            (
                lambda s, x: rollout(s, replicate(x, 2), dt=DT, steps=2, tile="auto"),
                "tile 'auto' must be a whole number",
            ),
            (lambda s, x: jj.use_all_cores("all"), "use_all_cores: count 'all' must be a whole"),
            (lambda s, x: jj.use_all_cores(True), "use_all_cores: count True must be a whole"),
            (lambda s, x: jj.readout(s), "readout: nothing is named to record.*coordinates=True"),
            (lambda s, x: jj.readout(x, energy=True), r"readout: system .a State. must be a Syst"),
            (
                lambda s, x: jj.readout(s, coordinates=True)(*mechanisms.pendulum(), None),
                "readout: coordinates '0' is not in this system.*'pivot'",
            ),
            (lambda s, x: jj.wrench_at(s, x, s.topology.bodies[0], force=1.0), "force 1.0 must be"),
            (
                lambda s, x: jj.wrench_at(s, x, s.topology.bodies[0], force=(0.0, 0.0, np.nan)),
                "wrench_at: force .* must be finite",
            ),
            (lambda s, x: jj.diagnose(s, x, dt="small"), "dt 'small' must be numbers"),
            (lambda s, x: jj.inverse_kinematics(s, x, None), "goals None has no goal; give one"),
            (lambda s, x: jj.dynamics.tree_forces(s, x, "zero"), "rates 'zero' must be numbers"),
            (lambda s, x: jj.models.to_urdf(jj.SystemBuilder()), "to_urdf: system .* must be a Sy"),
            (lambda s, x: jj.models.load_urdf(None), "source None must be the path of a file"),
            (lambda s, x: jj.joint_space.JointSpace(jj.Hinge), "coupling .* must be a record"),
            (lambda s, x: replicate(x, 0), "batch 0 must be at least 1"),
            (lambda s, x: jj.project(s, x, iterations=0), "iterations 0 must be >= 1"),
            (
                lambda s, x: jax.jit(lambda n: rollout(s, x, dt=DT, steps=n))(3),
                "steps is traced.*static_argnames='steps'",
            ),
        ],
        ids=lambda x: x if isinstance(x, str) else "",
    )
    def test_a_wrong_argument_is_named(self, chain, call, words):
        with pytest.raises(ValueError, match=words):
            call(*chain)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda s, x: step((s, x), x, dt=DT), r"system .a tuple of System, State. must be a"),
            (
                lambda s, x: step(s, (s, x), dt=DT),
                r"state .* must be a State; build return",
            ),
            (
                lambda s, x: jj.coordinates(s, (x, None)),
                "state .*; step and rollout return",
            ),
            (lambda s, x: jj.coordinates(x, s), r"exchanged; call coordinates\(system, state"),
            (lambda s, x: jj.reaction(s, x, None, "joint0"), "info None must be the Info"),
            (lambda s, x: replicate((s, x), 3), "replicate: state .* must be a State"),
        ],
        ids=lambda x: x if isinstance(x, str) else "",
    )
    def test_what_is_no_record_is_shown_in_a_few_words(self, chain, call, words):
        with pytest.raises(ValueError, match=words) as error:
            call(*chain)
        assert len(str(error.value)) < 200

    @pytest.mark.parametrize("batch", [(), (5,)])
    @pytest.mark.parametrize("times", [2, 3, 4])
    def test_times_in_front_are_told(self, chain, info, batch, times):
        system, state = chain
        states = jax.tree.map(lambda x: jnp.stack([x] * times), replicate(state, *batch))
        calls = {
            **{
                f.__name__: f
                for f in (jj.coordinates, jj.energies, jj.body_poses, jj.coordinate_speeds)
            },
            "step": lambda system, state: step(system, state, dt=DT),
            "reaction": lambda system, state: jj.reaction(system, state, info, "joint0"),
            "replicate": lambda system, state: replicate(state, 3),
        }
        for name, call in calls.items():
            with pytest.raises(ValueError, match=f"{name}: the state has {times} times in front"):
                call(system, states)

    def test_times_in_front_are_read_by_vmap(self, chain):
        system, state = chain
        states = jax.tree.map(lambda x: jnp.stack([x] * 4), state)
        read = jax.jit(jax.vmap(lambda x: jj.coordinates(system, x)))
        assert read(states).shape == (4, 2)

    def test_an_info_of_other_times_is_told(self, chain, info):
        system, state = chain
        many = jax.tree.map(lambda x: jnp.zeros((4, *x.shape)), info)
        with pytest.raises(ValueError, match=r"wrench has shape \(4, 6, 2\); it must be \(6, 2"):
            jj.reaction(system, state, many, system.topology.joints[0])

    def test_a_state_of_a_system_with_other_laws(self, chain):
        state = chain[1]
        limited, _ = mechanisms.chain(2, laws=[jj.Limits(-1.0, 1.0)])
        with pytest.raises(ValueError, match="of a system with other laws"):
            rollout(limited, state, dt=DT, steps=2)

    @pytest.mark.slow
    def test_a_state_with_the_rows_of_a_system_with_other_laws(self, chain):
        state = chain[1]
        limited, start = mechanisms.chain(2, laws=[jj.Limits(-1.0, 1.0)])
        own = replace(state, row_forces=start.row_forces, engagement=start.engagement)
        assert rollout(limited, own, dt=DT, steps=2)[0].time == 2 * DT

    def test_a_controller_that_branches_in_python(self, chain):
        def late(state):
            return Control(effort=jnp.ones(2)) if state.time > 0 else Control()

        with pytest.raises(ValueError, match="jnp.where"):
            rollout(*chain, late, dt=DT, steps=2)


class TestCauses:
    def test_a_traced_time_step_out_of_range(self, chain, advanced):
        system, state = chain
        for dt in (-DT, 0.0, 2.0, np.nan):
            new, info = advanced(system, state, dt)
            assert info.cause == Cause.TIME_STEP and not info.ok
            np.testing.assert_array_equal(new.position, state.position)

    @pytest.mark.parametrize("mass", [0.0, -1.0, np.nan])
    def test_a_mass_that_all_share(self, chain, advanced, mass):
        system, state = chain
        _, info = advanced(replace(system, mass=system.mass.at[0].set(mass)), state, DT)
        assert info.cause == Cause.PARAMETERS and not info.ok

    def test_an_inertia_that_is_not_positive_definite(self, chain, advanced):
        system, state = chain
        inertia = system.inertia.at[2, 2, 1].multiply(-1)
        _, info = advanced(replace(system, inertia=inertia), state, DT)
        assert info.cause == Cause.PARAMETERS

    def test_a_quaternion_of_zeros(self, chain, advanced):
        system, state = chain
        zeros = replace(state, quaternion=state.quaternion.at[:, 1].set(0.0))
        new, info = advanced(system, zeros, DT)
        assert info.cause == Cause.STATE
        assert np.isfinite(new.position).all()

    def test_a_joint_far_open(self, chain, advanced):
        system, state = chain
        far = replace(state, position=state.position.at[0, 1].add(7.0))
        for _ in range(3):
            far, info = advanced(system, far, 1e-4)
            assert info.cause == Cause.OPEN and not info.ok
        near = replace(state, position=state.position.at[0, 1].add(1e-3))
        assert advanced(system, near, 1e-4)[1].cause == Cause.NONE

    @pytest.mark.slow
    def test_a_gimbal_at_its_lock(self):
        world = jj.SystemBuilder()
        top = world.body("top", mass=1.0, inertia=(0.1, 0.1, 0.2))
        world.joint("gimbal", jj.Gimbal(), child=top)
        system, state = world.build()
        run = jax.jit(lambda state: step(system, state, dt=1e-4)[1])
        for angle, cause in ((np.pi / 2, Cause.SINGULAR), (1.5, Cause.NONE), (0.0, Cause.NONE)):
            info = run(system.state(q={"gimbal": (0.3, angle, 0.2)}))
            assert info.cause == cause and info.ok == (cause == Cause.NONE)


class TestStarts:
    @pytest.mark.slow
    def test_a_transmission_off_its_law_is_told(self):
        world = mechanisms_of_two_hinges()
        world.transmission(
            "mimic", jj.transmissions.Mimic(ratio=2.0, offset=0.1), joints=["a", "b"]
        )
        with pytest.warns(UserWarning, match="transmission 'mimic': its value is 0.1"):
            system, state = world.build()
        moved = jj.project(system, state)
        assert np.abs(residual(system, moved)) < 1e-9

    def test_speeds_off_its_law_are_told(self):
        world = mechanisms_of_two_hinges(qd=1.0)
        world.transmission("mimic", jj.transmissions.Mimic(ratio=2.0), joints=["a", "b"])
        with pytest.warns(UserWarning, match="transmission 'mimic': its value moves off"):
            world.build()

    @pytest.mark.slow
    def test_a_loop_whose_speeds_do_not_fit_is_told(self):
        system, _ = mechanisms.four_bar()
        with pytest.warns(UserWarning, match="joint 'C'.*moves off its surface at .* velocities=T"):
            state = system.state(
                q={"A": 1.0, **dict(zip("BD", loop_angles(system), strict=True))}, qd={"A": 1.0}
            )
        fitting = jj.project(system, state, velocities=True)
        assert np.abs(jj.coordinate_speeds(system, fitting)).min() > 1e-3

    @pytest.mark.slow
    def test_what_a_projection_leaves_open_is_told(self):
        """Two bodies of prescribed motion hold the ends of a rod too far apart."""
        world = jj.SystemBuilder()
        for name, x in (("left", 0.0), ("right", 1.5)):
            world.body(name, pose=(x, 0.0, 0.0), prescribed=True)
        rod = world.body("rod", mass=1.0, inertia=(0.1, 0.1, 0.1), pose=(0.5, 0.0, 0.0))
        world.joint("a", jj.Ball(), child=rod, parent="left", frame_C=(-0.5, 0.0, 0.0))
        world.joint("b", jj.Ball(), child=rod, parent="right", frame_C=(0.5, 0.0, 0.0))
        with pytest.warns(UserWarning, match="joint 'b': the frames"):
            system, state = world.build()
        with pytest.warns(UserWarning, match="project: joint '[ab]' is open by 0.25"):
            jj.project(system, state)


def mechanisms_of_two_hinges(qd=0.0):
    world = jj.SystemBuilder()
    for name in "ab":
        world.body(name, mass=1.0, inertia=(0.1, 0.1, 0.1))
        world.joint(name, jj.Hinge(), child=name, qd=qd if name == "a" else 0.0)
    return world


def residual(system, state):
    q = jj.coordinates(system, state)
    return system.transmission("mimic").transmission.value(q)


def loop_angles(system):
    state = mechanisms.four_bar(crank=1.0)[1]
    return [float(state.q[system.coordinate(name)][0]) for name in "BD"]


class TestControllers:
    @pytest.mark.slow
    def test_noise_and_memory_do_not_depend_on_tiles_nor_on_pieces(self):
        system, state = mechanisms.pendulum(q=0.3)
        states = replicate(state, 16)
        start = Controller(
            wandering,
            shared=0.1,
            batched=jnp.arange(16.0),
            memory=jnp.zeros((1, 16)),
            key=jax.random.key(0),
        )
        whole, records, end = rollout(system, states, start, dt=DT, steps=8)
        tiled = rollout(system, states, start, dt=DT, steps=8, tile=8)
        half, _, middle = rollout(system, states, start, dt=DT, steps=4)
        pieces = rollout(system, half, middle, dt=DT, steps=4)
        fewer = jax.tree.map(lambda x: x[..., :8], (states, start.batched, start.memory))
        some = rollout(
            system,
            fewer[0],
            replace(start, batched=fewer[1], memory=fewer[2]),
            dt=DT,
            steps=8,
        )
        for other in (tiled[0], pieces[0]):
            same(whole, other)
        same(jax.tree.map(lambda x: x[..., :8], whole), some[0])
        assert np.unique(np.asarray(records.omega[0, 1, 0])).size == 16
        np.testing.assert_array_equal(end.memory, pieces[2].memory)
        assert end.interval == pieces[2].interval == 8

    def test_the_system_is_that_of_the_environment(self):
        system, state = mechanisms.pendulum(q=0.3)
        heavier = replace(system, mass=system.mass[:, None] * jnp.array([[1.0, 3.0]]))
        final, _, _ = rollout(
            heavier, replicate(state, 2), Controller(held_up, shared=1.0), dt=DT, steps=5
        )
        np.testing.assert_allclose(final.q, 0.3, atol=1e-9)

    @pytest.mark.slow
    def test_gradients_reach_its_parameters(self):
        system, state = mechanisms.pendulum(q=0.3)

        @jax.jit
        @jax.value_and_grad
        def lifted(share):
            final, _, _ = rollout(system, state, Controller(held_up, shared=share), dt=DT, steps=5)
            return final.position[2, 0]

        h = 1e-5
        slope = (lifted(0.9 + h)[0] - lifted(0.9 - h)[0]) / (2 * h)
        np.testing.assert_allclose(lifted(0.9)[1], slope, rtol=1e-6)

    def test_arrays_without_the_batch_are_refused(self):
        system, state = mechanisms.pendulum(q=0.3)
        control = Controller(held_up, batched=jnp.ones(3))
        with pytest.raises(
            ValueError, match=r"batched has shape \(3,\); its last axes must be the batch"
        ):
            rollout(system, replicate(state, 2), control, dt=DT, steps=1)

    @pytest.mark.slow
    def test_a_function_defined_anew_is_told_once(self):
        system, state = mechanisms.pendulum(q=0.3)

        def push(gain):
            rollout(system, state, lambda s: Control(effort=gain * s.q), dt=DT, steps=1)

        for gain in range(4):
            push(gain)
        with pytest.warns(UserWarning, match="is defined anew.*Controller"):
            push(5.0)
        push(6.0)


def wandering(state, inputs):
    noise = inputs.batched * jax.random.normal(inputs.key, (1,))
    return Control(effort=inputs.memory + inputs.shared * noise), inputs.memory + 0.1


def held_up(state, inputs):
    """The effort that holds a pendulum against its weight."""
    system = inputs.system
    arm = jnp.stack([state.position[2, 0], -state.position[0, 0]])
    weight = system.mass[0] * system.gravity[2]
    return Control(effort=-inputs.shared * weight * arm[1:])


def same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


class TestOptions:
    @pytest.mark.parametrize(
        ("made", "words"),
        [
            (lambda: jj.SemiImplicitEuler(gyroscopic="implict"), "did you mean 'implicit'"),
            (lambda: jj.SemiImplicitEuler(rotation="exponentiall"), "did you mean 'exponential'"),
            (lambda: jj.SemiImplicitEuler(projections=-1), "projections -1 must be at least 0"),
            (lambda: jj.SemiImplicitEuler(solver=jj.Newton), "solver .* must be a Solver"),
            (lambda: jj.RungeKutta(projections=1.5), "projections 1.5 must be a whole number"),
            (lambda: jj.Rattle(iterations=0), "iterations 0 must be at least 1"),
            (lambda: jj.Newton(smoothing=-1), "smoothing -1 must not be negative"),
            (lambda: jj.Newton(friction="couple"), "did you mean 'coupled'"),
            (lambda: jj.Newton(smoothing="much"), "smoothing 'much' must be a number"),
            (lambda: jj.Newton(derivative="implicit"), "must be a Derivative"),
        ],
    )
    def test_a_wrong_option_is_refused_with_a_near_match(self, made, words):
        with pytest.raises(ValueError, match=words):
            made()
