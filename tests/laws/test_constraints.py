"""Constraints between any number of bodies: against RBDL's recordings, joints and closed forms."""

from functools import cache, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.algebra.spatial import quat_conjugate, quat_multiply
from jaxjoints.model.kinematics import body_twists, prepare, system_kinematics
from support import oracle
from support.cases import mostly_slow
from support.refusals import refused

RECORDED = 1e-10  # of numbers that RBDL computed by other formulas
EXACT = 1e-12  # float64, some thousand roundings of numbers of order one
MASS, INERTIA = 1.3, (0.1, 0.2, 0.15)
PIVOT = (0.2, 0.0, 0.0)


@jj.struct
class Pin(jj.Constraint):
    """RBDL's pin: two points coincide, an axis of the second stays normal to two of the first."""

    first: jax.Array
    second: jax.Array
    across: jax.Array
    axis: jax.Array
    position_rows: ClassVar[int] = 5

    def position(self, poses, t):
        A = jj.Pose.identity(dtype=poses.p.dtype) if len(poses) == 1 else poses[0]
        B = poses[-1]
        gap = A.rotate_inverse(B.apply(self.second) - A.apply(self.first))
        axis = B.rotate(self.axis)
        tilt = [jnp.dot(A.rotate(self.across[i]), axis)[None] for i in range(2)]
        return jnp.concatenate([gap, *tilt])


@jj.struct
class OnPath(jj.Constraint):
    """A point of a body moves as c + A (sin wt, cos wt, sin wt cos wt)."""

    point: jax.Array
    centre: jax.Array
    size: jax.Array
    rate: jax.Array
    position_rows: ClassVar[int] = 3

    def position(self, poses, t):
        s, c = jnp.sin(self.rate * t), jnp.cos(self.rate * t)
        path = self.centre + self.size * jnp.stack([s, c, s * c])
        return poses[0].apply(self.point) - path


@jj.struct
class RollingBall(jj.Constraint):
    """A ball about the origin of its body's frame rolls on z = 0."""

    radius: jax.Array
    position_rows: ClassVar[int] = 1
    velocity_rows: ClassVar[int] = 2

    def position(self, poses, t):
        return poses.p[2] - self.radius

    def velocity(self, poses, twists, t):
        v, ω = twists[:3, 0], twists[3:, 0]
        return jnp.stack([v[0] - self.radius * ω[1], v[1] + self.radius * ω[0]])


def recorded(case):
    """The system of a recorded case, made of constraints alone."""
    world = jj.SystemBuilder()
    for i, com in enumerate(case["com"]):
        world.body(str(i), mass=1.0, inertia=(0.1, 0.1, 0.1), com=com, pose=(0.0, 0.0, 0.0))
    for j, one in enumerate(case["constraints"]):
        if "pin" in one["kind"]:
            ends = [i // 6 - 1 for i in (one["predecessor_body"], one["successor_body"])]
            record = Pin(one["r_p"], one["r_s"], (one["a_1"], one["a_2"]), one["n"])
            names = [str(i) for i in ends if i >= 0]
        elif "radius" in one:
            record, names = RollingBall(one["radius"]), ["0"]
        else:
            record, names = OnPath(one["point"], one["c"], one["A"], one["w"]), ["0"]
        world.constraint(str(j), record, bodies=names)
    return world.build(rough=True)


def placed(system, state, q, qd, t):
    """The state of RBDL's coordinates (x, y, z, a, b, c) of each body, R = Rz(a) Ry(b) Rx(c)."""

    def pose(q):
        x, y, z, a, b, c = q
        place = jj.Pose.translation(jnp.stack([x, y, z]))
        return place @ jj.Pose.about_z(a) @ jj.Pose.about_y(b) @ jj.Pose.about_x(c)

    com = system.com.T
    parts = []
    for i, (one, rate) in enumerate(zip(q.reshape(-1, 6), qd.reshape(-1, 6), strict=True)):
        centre = lambda x, i=i: (pose(x).apply(com[i]), pose(x).q)  # noqa: E731
        (p, r), (v, dr) = jax.jvp(centre, (one,), (rate,))
        parts.append((p, r, v, 2 * quat_multiply(dr, quat_conjugate(r))[1:]))
    p, r, v, ω = (jnp.stack(x, axis=1) for x in zip(*parts, strict=True))
    return jj.replace(state, position=p, quaternion=r, velocity=v, omega=ω, time=t)


def row_program(system, state):
    """G, γ and errors of all rows in RBDL's coordinates, from the rows that a step has."""

    def rows(q, qd, t):
        mechanism, at = prepare(system, 0), placed(system, state, q, qd, t)
        twist, speeds, errors = body_twists(at), [], []
        of_groups = system_kinematics(mechanism, at).constraints
        for group, kinematics in zip(mechanism.system.constraints, of_groups, strict=True):
            for i, member in enumerate(group.members):
                speed = kinematics.drift[:, i]
                for H, b in zip(kinematics.H, group.bodies[i], strict=True):
                    if b >= 0:
                        speed = speed + H[:, :, i].T @ twist[:, b]
                speeds.append((member, speed))
                errors.append((member, kinematics.error[:, i]))
        return tuple(
            jnp.concatenate([x for _, x in sorted(part, key=lambda pair: pair[0])])
            for part in (speeds, errors)
        )

    def program(q, qd, t):
        G = jax.jacfwd(lambda qd: rows(q, qd, t)[0])(qd)
        moving = (qd, jnp.zeros_like(qd), jnp.ones_like(t))
        (speeds, errors), (bias, _) = jax.jvp(rows, (q, qd, t), moving)
        return G, -bias, errors, speeds

    return jax.jit(program)


def custom_cases():
    cases = dict(oracle.load("rbdl_constraints"))
    ball = oracle.load("rbdl_custom")["rolling_ball"]
    one = {"kind": "rolling", **ball["constraint"]}
    com = [b["com"] for b in ball["bodies"]]
    return cases | {"rolling_ball": {**ball, "com": com, "constraints": [one]}}


@pytest.mark.parametrize("name", mostly_slow(custom_cases(), default=("rolling_ball",)))
def test_rows_are_those_that_rbdl_recorded(name):
    case = custom_cases()[name]
    program = row_program(*recorded(case))
    # RBDL's ball has its rows at velocity level first.
    order = [1, 2, 0] if name == "rolling_ball" else slice(None)
    stabilized = [one for one in case["constraints"] if one.get("baumgarte_enabled")]
    for at in case["states"]:
        q, qd, t = (jnp.asarray(at[x], float) for x in ("q", "qd", "t"))
        G, γ, φ, ψ = (np.asarray(x)[order] for x in program(q, qd, t))
        if stabilized:
            T = stabilized[0]["T_stab"]
            γ = γ - 2 / T * ψ - φ / T**2
        scale = 1 + np.abs(at["gamma"]).max()
        np.testing.assert_allclose(G, at["G"], rtol=0, atol=RECORDED)
        np.testing.assert_allclose(γ, at["gamma"], rtol=0, atol=RECORDED * scale)
        np.testing.assert_allclose(φ, at["errPos"], rtol=0, atol=RECORDED)
        np.testing.assert_allclose(ψ, at["errVel"], rtol=0, atol=RECORDED)


@jj.struct
class Pivot(jj.Constraint):
    """The origin of a body's frame stays at a place."""

    place: jax.Array
    position_rows: ClassVar[int] = 3

    def position(self, poses, t):
        return poses.p[:, 0] - self.place


def pendulum(custom, **options):
    world = jj.SystemBuilder()
    pose = (PIVOT, (np.cos(0.2), np.sin(0.2), 0.0, 0.0))
    motion = (0.0, 0.0, 0.0, 0.0, 1.0, 0.5)
    solid = {"mass": MASS, "inertia": INERTIA, "com": (0.0, 0.1, -0.4)}
    world.body("bob", **solid, pose=pose, velocity=motion)
    if custom:
        world.constraint("pivot", Pivot(PIVOT), bodies="bob", **options)
    else:
        world.joint("pivot", jj.Ball(), child="bob", frame_D=PIVOT)
    return world.build()


@pytest.mark.parametrize(
    "scheme, tolerance",
    [
        pytest.param(jj.Rattle(), 1e-10, marks=pytest.mark.slow),
        pytest.param(jj.RungeKutta(), 1e-6, marks=pytest.mark.slow),
    ],
)
def test_a_constraint_moves_a_body_as_the_joint_does(scheme, tolerance):
    ends = []
    for custom in (True, False):
        system, state = pendulum(custom)
        run = jax.jit(
            lambda system, state: jj.rollout(system, state, dt=1e-2, steps=20, scheme=scheme)
        )
        ends.append(run(system, state)[0])
    np.testing.assert_allclose(ends[0].position, ends[1].position, atol=tolerance)
    np.testing.assert_allclose(ends[0].omega, ends[1].omega, atol=tolerance)


def test_forces_of_rows_hold_a_hanging_body():
    world = jj.SystemBuilder()
    world.body("bob", mass=MASS, inertia=INERTIA, com=(0.0, 0.0, -0.4), pose=PIVOT)
    world.constraint("pivot", Pivot(PIVOT), bodies="bob", enabled=True)
    system, state = world.build()
    one = jax.jit(lambda system: jj.step(system, state, dt=1e-3))
    _, info = one(system)
    np.testing.assert_allclose(
        info.constraint_force[system.rows("pivot")], [0.0, 0.0, 9.81 * MASS], atol=1e-9
    )
    free, info = one(system.with_constraint("pivot", enabled=0.0))
    np.testing.assert_allclose(free.velocity[2], -9.81e-3, rtol=EXACT)
    np.testing.assert_array_equal(info.constraint_force, 0.0)


@jj.struct
class Midpoint(jj.Constraint):
    """The third body stays midway between the first two."""

    position_rows: ClassVar[int] = 3

    def position(self, poses, t):
        return poses.p[:, 2] - (poses.p[:, 0] + poses.p[:, 1]) / 2


@cache
def three():
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    for i, (place, speed) in enumerate([((0, 0, 0), 1.0), ((1, 0, 0), 0.0), ((0.5, 0, 0), 0.0)]):
        pose = tuple(map(float, place))
        inertia = (0.1, 0.1, 0.1)
        world.body(
            str(i), mass=1.0 + i, inertia=inertia, pose=pose, velocity=(0, 0, speed, 0, 0, 0)
        )
    world.constraint("mid", Midpoint(), bodies=["0", "1", "2"])
    # Of bodies 1 and 2 apart from the first, its error grows at half the first's speed.
    with pytest.warns(UserWarning, match="'mid': it moves off its surface at 0.5 m/s"):
        return world.build()


def test_three_bodies_share_a_constraint_and_keep_their_momentum():
    system, state = three()
    end, info = jax.jit(lambda: jj.step(system, state, dt=1e-3))()
    np.testing.assert_allclose(
        jj.momentum(system, end)[:3], jj.momentum(system, state)[:3], atol=EXACT
    )
    z = np.asarray(end.velocity[2])
    np.testing.assert_allclose(z[2], (z[0] + z[1]) / 2, atol=EXACT)
    # G = (-½, -½, 1) along z, masses 1, 2, 3: A = ¼ + ⅛ + ⅓, G v = -½.
    impulse = 0.5 / (1 / 4 + 1 / 8 + 1 / 3)
    np.testing.assert_allclose(info.constraint_force[2] * 1e-3, impulse, rtol=1e-9)


def test_errors_are_assembled_and_diagnosed():
    system, state = three()
    moved = jj.replace(state, position=state.position.at[1, 2].add(0.3))
    found = jj.diagnose(system, moved)
    assert found.open == {"mid": pytest.approx(0.3)} and found.mobility == 15
    closed, closure = jax.jit(lambda state: jj.assemble(system, state))(moved)
    assert closure.closed and closure.constraint_error[0] < EXACT
    np.testing.assert_allclose(closed.position[1], [0.1, 0.1, 0.1], atol=EXACT)


@pytest.mark.slow
def test_the_world_may_stand_anywhere_among_the_bodies_of_a_constraint():
    """Midway between a body and the world, a body moves at half the speed."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    solid = {"mass": 1.0, "inertia": INERTIA}
    for i in range(3):
        for name, x, speed in ((f"far {i}", 1.0, 2.0), (f"mid {i}", 0.5, 0.5)):
            velocity = (0.0, 0.0, speed, 0.0, 0.0, 0.0)
            world.body(name, **solid, pose=(x, i * x, 0.0), velocity=velocity)
    for i, ends in enumerate([("far 0", jj.WORLD), (jj.WORLD, "far 1"), ("far 2", "world")]):
        world.constraint(f"halves {i}", Midpoint(), bodies=(*ends, f"mid {i}"))
    with pytest.warns(UserWarning, match="moves off its surface at 0.5 m/s"):
        system, state = world.build()
    # Of a type and an order, one group; the world is none of its bodies.
    assert [group.bodies for group in system.constraints] == [((0, 1), (4, 5)), ((2, 3),)]
    assert "far 0, world, mid 0" in str(system) and "world, far 1, mid 1" in str(system)
    end, info = jj.step(system, state, dt=1e-2)
    # G = (-1/2, 1) along z, A = 5/4, G v = -1/2.
    np.testing.assert_allclose(end.velocity[2], [1.8, 0.9] * 3, atol=EXACT)
    force = np.asarray(info.constraint_force).reshape(3, 3)
    np.testing.assert_allclose(force, [[0.0, 0.0, 40.0]] * 3, atol=1e-9)


def test_a_constraint_of_the_world_alone_is_refused():
    world = jj.SystemBuilder()
    world.body("a", mass=1.0, inertia=INERTIA)
    with refused("'mid'", "none of ['world'] can be moved"):
        world.constraint("mid", Midpoint(), bodies=jj.WORLD)
    with refused("'mid'", "'wrld' is no body", "'world'"):
        world.constraint("mid", Midpoint(), bodies=["a", "wrld"])


@jj.struct
class Accelerates(jj.Constraint):
    """The origin of a body's frame has an acceleration."""

    value: jax.Array
    acceleration_rows: ClassVar[int] = 3

    def acceleration(self, poses, twists, rates, t):
        return rates[:3, 0] - self.value


def test_an_acceleration_is_that_of_the_row():
    world = jj.SystemBuilder()
    world.body("box", mass=MASS, inertia=INERTIA, pose=PIVOT, velocity=(0.5, 0, 0, 0, 0, 0))
    world.constraint("push", Accelerates((1.0, 2.0, 3.0)), bodies="box")
    system, state = world.build()
    end, info = jax.jit(lambda: jj.step(system, state, dt=1e-2))()
    np.testing.assert_allclose(end.velocity[:, 0], [0.51, 0.02, 0.03], atol=EXACT)
    force = MASS * np.array([1.0, 2.0, 3.0 + 9.81])
    np.testing.assert_allclose(info.constraint_force, force, rtol=1e-9)


@jj.struct
class Geared(jj.Constraint):
    """A body accelerates `ratio` times as fast upwards as along x."""

    ratio: jax.Array
    acceleration_rows: ClassVar[int] = 1

    def acceleration(self, poses, twists, rates, t):
        return rates[2] - self.ratio * rates[0]


CART, RATIO, PUSH = 2.0, 2.0, 50.0
# Along the rail the lift counts with its way upwards: (M + m (1 + r²)) ẍ = τ - r m g.
GEARED = CART + MASS * (1 + RATIO**2)
SLOW_DOWN = RATIO * MASS * 9.81


def lift_on_a_cart():
    world = jj.SystemBuilder()
    world.body("cart", mass=CART, inertia=INERTIA)
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="cart")
    world.body("lift", mass=MASS, inertia=INERTIA, com=(0.1, 0.0, 0.2))
    world.joint("mast", jj.Slider((0.0, 0.0, 1.0)), child="lift", parent="cart")
    world.constraint("gear", Geared(RATIO), bodies="lift")
    return world.build()


@pytest.mark.slow
def test_rows_of_accelerations_hold_against_weights_and_efforts():
    system, state = lift_on_a_cart()
    control = system.control(effort={"rail": PUSH})
    along = (PUSH - SLOW_DOWN) / GEARED
    now = jj.dynamics.accelerations(system, state, control)
    np.testing.assert_allclose(now.qdd, [along, RATIO * along], rtol=1e-9)
    np.testing.assert_allclose(now.linear[:, 1], [along, 0.0, RATIO * along], atol=1e-9)


@pytest.mark.slow
def test_what_follows_from_rows_of_accelerations_knows_of_weights():
    system, state = lift_on_a_cart()
    wanted = {"rail": 0.7}
    needed = jj.dynamics.inverse_dynamics(system, state, wanted, actuated="rail")
    np.testing.assert_allclose(needed.effort, [GEARED * 0.7 + SLOW_DOWN, 0.0], rtol=1e-9)
    model = jj.dynamics.linear_model(system, state, actuated="rail")
    np.testing.assert_allclose(model.B[:, 0], [0, 0, 1 / GEARED, RATIO / GEARED], atol=1e-9)
    fall = -SLOW_DOWN / GEARED
    np.testing.assert_allclose(model.c, [0.0, 0.0, fall, RATIO * fall], atol=1e-9)


@pytest.mark.slow
def test_rows_of_accelerations_are_exact_under_runge_kutta():
    system, state = lift_on_a_cart()
    push = jj.Control(effort=jnp.tile(jnp.array([PUSH, 0.0]), (20, 1)))
    run = partial(jj.rollout, dt=1e-2, steps=20, scheme=jj.RungeKutta(), record_every=20)
    end, _ = jax.jit(run)(system, state, push)
    way = (PUSH - SLOW_DOWN) / GEARED * 0.2**2 / 2
    np.testing.assert_allclose(end.q, [way, RATIO * way], rtol=1e-9)


@jj.struct
class Stabilized(jj.Constraint):
    """Baumgarte's φ̈ + 2/T φ̇ + φ/T² = 0 of the three rows of another constraint."""

    of: jj.Constraint
    T: jax.Array
    acceleration_rows: ClassVar[int] = 3

    def acceleration(self, poses, twists, rates, t):
        def rate(poses, twists, t):
            spin = jnp.concatenate([jnp.zeros_like(twists[:1]), twists[3:]])
            moving = jj.Pose(twists[:3], 0.5 * quat_multiply(spin, poses.q))
            return jax.jvp(self.of.position, (poses, t), (moving, jnp.ones_like(t)))[1], moving

        _, moving = rate(poses, twists, t)
        along = moving, rates, jnp.ones_like(t)
        speed, change = jax.jvp(lambda *at: rate(*at)[0], (poses, twists, t), along)
        return change + 2 / self.T * speed + self.of.position(poses, t) / self.T**2


@pytest.mark.slow
def test_stabilized_accelerations_are_those_of_rbdl():
    case = oracle.load("rbdl_constraints")["time_varying_point_path/baumgarte"]
    (solid,), (one,) = case["bodies"], case["constraints"]
    world = jj.SystemBuilder(gravity=case["gravity"])
    inertia = np.array(solid["inertia_about_com"])
    world.body("body", mass=solid["mass"], com=solid["com"], inertia=inertia)
    world.joint("of body", jj.FreeEuler(), child="body")
    path = OnPath(one["point"], one["c"], one["A"], one["w"])
    world.constraint("path", Stabilized(path, one["T_stab"]), bodies="body")
    system, _ = world.build()
    for at in case["states"]:
        state = system.state(q={"of body": at["q"]}, qd={"of body": at["qd"]})
        state = jj.replace(state, time=jnp.asarray(at["t"], float))
        control = system.control(effort={"of body": at["tau"]})
        now = jj.dynamics.accelerations(system, state, control)
        scale = 1 + np.abs(at["qdd"]).max()
        np.testing.assert_allclose(now.qdd, at["qdd"], rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(now.info.constraint_force, at["force"], rtol=1e-8)


@jj.struct
class Wrong(jj.Constraint):
    position_rows: ClassVar[int] = 2

    def position(self, poses, t):
        return poses.p[:, 0]


def test_bad_constraints_are_refused_by_name():
    world = jj.SystemBuilder()
    world.body("bob", mass=MASS, inertia=INERTIA)
    with refused("constraint 'pin'", "'rod' is no body", "'bob'"):
        world.constraint("pin", Pivot(PIVOT), bodies="rod")
    with refused("constraint 'pin'", "is not a constraint"):
        world.constraint("pin", jj.Ball(), bodies="bob")
    with refused("constraint 'pin'", "Wrong.position(poses, t) returns"):
        world.constraint("pin", Wrong(), bodies="bob")
    with refused("constraint 'pin'", "place", "finite"):
        world.constraint("pin", Pivot((0.0, np.nan, 0.0)), bodies="bob")
    with refused("constraint 'pin'", "damping of a Compliance"):
        world.constraint("pin", Pivot(PIVOT), bodies="bob", softness=jj.Compliance(1e-3))
    world.constraint("pin", Pivot(PIVOT), bodies="bob")
    with pytest.warns(UserWarning, match="constraint 'pin': its error is 0.2 at the start"):
        world.build()
    world.body("dust", mass=1e-7, inertia=(1e-9, 1e-9, 1e-9))
    with pytest.warns(UserWarning, match="constraint 'tie': 'dust' of 1e-07 kg and 'bob' of 1.3"):
        world.constraint("tie", Pivot(PIVOT), bodies=["bob", "dust"])


def test_a_start_that_rows_do_not_allow_is_warned_of():
    world = jj.SystemBuilder()
    world.body("ball", mass=MASS, inertia=INERTIA, pose=(0.0, 0.0, 0.5))
    world.constraint("roll", RollingBall(0.5), bodies="ball", enabled=True)
    system, _ = world.build()
    slip = {"ball": (0.3, 0.0, 0.0, 0.0, 0.0, 0.0)}
    place = {"ball": (0.0, 0.0, 0.5)}
    with pytest.warns(UserWarning, match="constraint 'roll': it moves off its surface at 0.3 m/s"):
        system.state(pose=place, velocity=slip)
    system.state(pose=place, velocity={"ball": (0.5, 0.0, 0.0, 0.0, 1.0, 0.0)})
    system.with_constraint("roll", enabled=0.0).state(velocity=slip)


def test_what_a_scheme_or_an_answer_cannot_hold_is_refused_by_name():
    world = jj.SystemBuilder()
    world.body("box", mass=MASS, inertia=INERTIA)
    world.joint("lift", jj.Slider((0.0, 0.0, 1.0)), child="box")
    world.constraint(
        "height", Pivot((0.0, 0.0, 0.0)), bodies="box", softness=jj.Softness(0.5, 0.01)
    )
    system, state = world.build()
    with refused("RungeKutta: constraint 'height' is softened by cfm", "Rattle"):
        jj.step(system, state, dt=1e-3, scheme=jj.RungeKutta())
    with refused("accelerations: constraint 'height' is softened by cfm", "Compliance"):
        jj.dynamics.accelerations(system, state)
    world = jj.SystemBuilder()
    world.body("box", mass=MASS, inertia=INERTIA)
    world.joint("lift", jj.Slider((0.0, 0.0, 1.0)), child="box")
    world.constraint("height", Pivot((0.0, 0.0, 0.0)), bodies="box")
    with refused("linear_model: 'height' makes coordinates depend", "independent="):
        jj.dynamics.linear_model(*world.build())


@pytest.mark.slow
def test_a_constraint_accelerates_a_body_as_the_joint_does():
    found = []
    for custom in (True, False):
        system, state = pendulum(custom)
        state = jj.project(system, state, iterations=4, velocities=True)
        found.append(jj.dynamics.accelerations(system, state))
    np.testing.assert_allclose(found[0].linear, found[1].linear, atol=1e-9)
    np.testing.assert_allclose(found[0].angular, found[1].angular, atol=1e-9)
    # A body that no joint holds has six speeds.
    assert jj.dynamics.mass_matrix(system, state).shape == (3, 3)
    system, state = pendulum(True)
    assert jj.dynamics.mass_matrix(system, state).shape == (6, 6)
    assert jj.dynamics.constraint_jacobian(system, state).shape == (3, 6)
