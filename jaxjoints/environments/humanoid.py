"""A humanoid that walks, from the file of gymnasium, to compare with gymnasium and Brax."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from ..algebra.calls import public
from ..algebra.pytree import static, struct
from ..algebra.spatial import Pose
from ..model.measures import body_poses
from ..model.state import State
from ..models.mjcf import load_mjcf
from .environment import Environment

FILE = "envs/mujoco/assets/humanoid.xml"
LOWEST, HIGHEST = 1.0, 2.0  # of the torso [m]


@struct
class Humanoid(Environment):
    """A torso with two legs and two arms that walks forwards, along x, as in gymnasium.

    Action: moments of the 17 hinges, in the order of the file's motors.
    Observation (45), the first 45 numbers of gymnasium's: height of the torso [m], its quaternion,
    the angles [rad] in the order of the file's joints; velocity of the torso [m/s] in world axes,
    its angular velocity [rad/s] in its own axes, speeds of the angles [rad/s].
    Reward: "forwards", 1.25 times the speed of the centre of mass along x at the end of the step
    [m/s]; "alive" 5; "effort", -0.016 times the sum of the squares of the action: -0.1 in
    gymnasium, where the largest action is 0.4.
    Ends: where the torso is below 1 m or above 2 m.
    Start: standing; each coordinate and speed within ±0.01.

    Left out: gymnasium's observations of inertias and forces, its cost of contact forces, contacts
    of the humanoid with itself; its simulation is by Runge-Kutta, of the same time step.

    hinges: joints of the file, as names of coordinates

    >>> task = humanoid()
    >>> mass, effort = task.system.mass.sum(), task.control(jnp.ones(17)).effort.max()
    >>> print(round(float(mass), 1), round(float(effort), 1))  # [kg]; [N m], at the hips
    42.1 120.0
    """

    hinges: tuple[str, ...] = static(default=(), kw_only=True)

    def draw(self, key: Array) -> State:
        n = len(self.hinges)
        x = jax.random.uniform(key, (12 + 2 * n,), self.start.q.dtype, -0.01, 0.01)
        q, qd = x[12 : 12 + n], x[12 + n :]
        rest = body_poses(self.system, self.start)[self.system.body("torso")]
        # A quaternion changes by half of the angle.
        torso = Pose.from_rotation_vector(2 * x[:3], rest.p + x[3:6])
        return self.system.state(
            q=dict(zip(self.hinges, q, strict=True)),
            qd=dict(zip(self.hinges, qd, strict=True)),
            pose={"torso": torso},
            velocity={"torso": x[6:12]},
        )

    def observe(self, state: State, qd: Array, goal: Array) -> Array:
        i, at = self.system.body("torso"), self.places(*self.hinges)
        pose, omega = body_poses(self.system, state)[i], state.omega[:, i]
        # Of the frame's origin, from that of the centre of mass.
        velocity = state.velocity[:, i] + jnp.cross(omega, pose.p - state.position[:, i])
        where = [pose.p[2:], pose.q, state.q[at]]
        return jnp.concatenate([*where, velocity, pose.R.T @ omega, qd[at]])

    def judge(
        self, state: State, qd: Array, goal: Array, action: Array
    ) -> tuple[dict[str, Array], Array]:
        height = body_poses(self.system, state)[self.system.body("torso")].p[2]
        mass = self.system.mass
        fallen = (height < LOWEST) | (height > HIGHEST)
        parts = {
            "forwards": 1.25 * (state.velocity[0] @ mass) / jnp.sum(mass),
            "alive": jnp.where(fallen, 0.0, 5.0),
            "effort": -0.016 * jnp.sum(action**2),
        }
        return parts, fallen


@public
def humanoid(*, like_mujoco: bool = False) -> Humanoid:
    """Gymnasium's humanoid.xml on its floor; 1 is 40 N m, 80 at knees, 120 at hips about y, 10 in
    arms.

    like_mujoco: as in `load_mjcf`

    Raises: ImportError without gymnasium or mujoco: `pip install -e '.[gymnasium,mjcf]'` in the
        checkout.
    """
    where = find_spec("gymnasium")
    if where is None or where.origin is None:
        raise ImportError(
            "humanoid: its file is in gymnasium: pip install -e '.[gymnasium,mjcf]' in the checkout"
        )
    with warnings.catch_warnings():
        # Cameras and lights are left out, and knees start 2° beyond their stops, as in gymnasium.
        warnings.simplefilter("ignore")
        path = Path(where.origin).parent / FILE
        model = load_mjcf(path, contacts=True, like_mujoco=like_mujoco, visuals=False)
        system, start = model.build()
    names = {place: f"{place[0]}.{place[1]}" for place in model.coordinates.values()}
    # Of a motor, the coordinate that it drives and its moment where the control is 0.4.
    drives = [(*actuator.arms[0], actuator.control_range[1]) for actuator in model.actuators]
    effort = jnp.asarray([gear * most for _, gear, most in drives], start.q.dtype)
    actuated = tuple(names[place] for place, *_ in drives)
    options = {"substeps": 5, "limit": 1000, "hinges": tuple(names.values())}
    return Humanoid(system, start, effort, model.timestep, actuated=actuated, **options)
