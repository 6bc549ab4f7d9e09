"""Live view: a mechanism in a browser, posed and driven by sliders, through viser."""

import threading
import time
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algebra.calls import public
from ..model.measures import body_poses, coordinates
from ..model.state import Control, State
from ..model.system import WORLD_INDEX, System
from ..models.geometry import Visual
from ..models.model import Model
from ..schemes.scheme import Scheme
from ..schemes.semi_implicit_euler import SemiImplicitEuler
from ..simulate.controller import Controller, Inputs
from ..simulate.rollout import rollout
from ..simulate.surface import project
from .motion import read_motion
from .scene import Part, Scene, read_scene

# Pictures per second.
RATE = 30
# Ends of sliders of coordinates without limits: an angle [rad], a way by the size of the bodies.
TURN, WAY = np.pi, 2.0
# Iterations that close the loops of a mechanism that is posed.
CLOSING = 20


class Live:
    """A mechanism in a browser; `live` makes it.

    server: of viser, whose `scene` and `gui` take further elements
    state: the `State` that is shown
    url: where to look

    >>> from jaxjoints import Slider, SystemBuilder
    >>> world = SystemBuilder()
    >>> cart = world.body("cart", mass=2.0, inertia=(1.0, 1.0, 1.0))
    >>> _ = world.joint("rail", Slider((1.0, 0.0, 0.0)), child=cart)
    >>> shown = live(*world.build(), port=0)
    >>> print(shown.pose([0.5]).position[:, 0])
    [0.5 0.  0. ]
    >>> shown.stop()
    """

    def __init__(
        self,
        system: System,
        state: State,
        *,
        visuals: Model | Iterable[Visual],
        dt: float,
        scheme: Scheme,
        host: str,
        port: int,
    ):
        try:
            import viser
        except ImportError as error:
            raise ImportError(
                "live: viser is not installed; pip install -e '.[live]' in the checkout"
            ) from error
        if state.time.ndim:
            raise ValueError(
                f"live: the state has a batch {state.time.shape}; it must be of one environment"
            )
        motion = read_motion(system, state)
        scene = read_scene(motion, visuals)
        self.state, self._system, self._start = state, system, state
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._driven, steps = _driven(system), max(1, round(1 / (RATE * dt)))
        self._advance = jax.jit(
            lambda state, target: rollout(
                system, state, Controller(_aiming, shared=target), dt=dt, steps=steps, scheme=scheme
            )[0]
        )
        joints = [joint.name for joint in scene.joints]
        self._pose = jax.jit(lambda state, q: _posed(system, state, joints, q))
        self._read = jax.jit(lambda state: (body_poses(system, state), coordinates(system, state)))
        self.server = viser.ViserServer(host=host, port=port, verbose=False)
        self.url = f"http://{host}:{self.server.get_port()}"
        self._bodies = self._draw(scene)
        self._add_controls(scene, motion.turning)
        self._show()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def advance(self) -> State:
        """Simulate until the next picture, show it, and return the state."""
        with self._lock:
            target = jnp.asarray(self._values(), self.state.q.dtype) if self._driven else None
            self.state = self._advance(self.state, target)
            self._show()
            return self.state

    def pose(self, q: Any) -> State:
        """Show the mechanism at rest at coordinates near q [m or rad], shape (coordinates,), where
        its joints close; returns the state.
        """
        with self._lock:
            self.state = self._pose(self.state, jnp.asarray(q, self.state.q.dtype))
            self._show()
            return self.state

    def reset(self) -> State:
        """Show the state from which the view began."""
        with self._lock:
            self.state = self._start
            self._show(targets=True)
            return self.state

    def stop(self) -> None:
        """End the simulation and the server."""
        self._ended.set()
        self._thread.join()
        self.server.stop()

    def __repr__(self) -> str:
        return f"Live view at {self.url}; end it by stop()"

    def _run(self) -> None:
        while not self._ended.is_set():
            begin = time.perf_counter()
            if self._running.value:
                self.advance()
            self._ended.wait(max(0.0, 1 / RATE - (time.perf_counter() - begin)))

    def _draw(self, scene: Scene) -> list[Any]:
        """Frames of the bodies, with their parts."""
        names = self._system.topology.bodies
        # Numbers, because a name with a slash would be a frame in another.
        bodies = [
            self.server.scene.add_frame(f"/bodies/{i}", show_axes=False) for i in range(len(names))
        ]
        for n, part in enumerate(scene.parts):
            shown = part.layer == "geometry" or (part.layer == "skeleton" and not scene.drawn)
            if shown:
                at = "world" if part.body == WORLD_INDEX else f"bodies/{part.body}"
                self._add_part(f"/{at}/{n}", part, scene)
        self.server.scene.set_up_direction(tuple(scene.up))
        self.server.scene.add_grid("/ground", position=tuple(scene.ground * scene.up))
        return bodies

    def _add_part(self, name: str, part: Part, scene: Scene) -> None:
        """One part on its body."""
        add = self.server.scene
        size, frame = part.size[0], part.frame[0]
        look = {
            "color": part.color[:3],
            "opacity": None if part.color[3] == 1 else part.color[3],
            "position": frame[:3],
            "wxyz": frame[3:],
        }
        if part.kind == "box":
            add.add_box(name, dimensions=tuple(size), **look)
        elif part.kind == "sphere":
            add.add_icosphere(name, radius=0.5, scale=tuple(size), **look)
        elif part.kind == "cylinder":
            add.add_cylinder(name, radius=0.5, height=1.0, scale=tuple(size), **look)
        elif part.kind == "mesh":
            mesh = scene.meshes[part.mesh]
            add.add_mesh_simple(name, mesh.vertices, mesh.faces, side="double", **look)

    def _add_controls(self, scene: Scene, turning: np.ndarray) -> None:
        """Switch, button, clock and a slider for each coordinate."""
        gui, system = self.server.gui, self._system
        self._running = gui.add_checkbox(
            "run", False, hint="Simulate in real time; sliders with a drive are its target"
        )
        gui.add_button("reset").on_click(lambda _: self.reset())
        self._clock = gui.add_text("time [s]", "", disabled=True)
        self._sliders: list[Any] = [None] * system.coordinates
        q = np.asarray(coordinates(system, self.state), float)
        named = [
            (joint.name if joint.dof == 1 else f"{joint.name} {k}", joint.start + k)
            for joint in scene.joints
            for k in range(joint.dof)
        ]
        for name, i in named:
            reach = TURN if turning[i] else WAY * scene.size
            low, high = scene.limits[0, i]
            low = low if np.isfinite(low) else min(-reach, q[i] - reach)
            high = high if np.isfinite(high) else max(reach, q[i] + reach)
            slider = gui.add_slider(
                f"{name} [{'rad' if turning[i] else 'm'}]",
                *(min(low, q[i]), max(high, q[i]), (high - low) / 1000 or 1e-3),
                initial_value=float(q[i]),
            )
            slider.on_update(self._moved)
            self._sliders[i] = slider

    def _moved(self, event: Any) -> None:
        """A user moved a slider: without simulation it poses the mechanism."""
        if event.client is not None and not self._running.value:
            self.pose(self._values())

    def _values(self) -> np.ndarray:
        """What the sliders say."""
        return np.array([slider.value for slider in self._sliders], float)

    def _show(self, targets: bool = False) -> None:
        """Move the picture and the sliders to the state; targets: sliders of drives too."""
        poses, q = self._read(self.state)
        p, wxyz, q = (np.asarray(x, float) for x in (poses.p, poses.q, q))
        with self.server.atomic():
            for i, body in enumerate(self._bodies):
                body.position, body.wxyz = p[:, i], wxyz[:, i]
            self._clock.value = f"{float(self.state.time):.2f}"
            for i, slider in enumerate(self._sliders):
                if targets or not (self._running.value and i in self._driven):
                    slider.value = float(np.clip(q[i], slider.min, slider.max))


@public
def live(
    system: System,
    state: State,
    *,
    visuals: Model | Iterable[Visual] = (),
    dt: float = 2e-3,
    scheme: Scheme | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
) -> Live:
    """A live view: a page served on this machine in which sliders pose and drive a mechanism.

    At rest the sliders of its coordinates pose the mechanism, with its loops closed. While `run` is
    ticked it is simulated in real time, or as fast as the machine can; the sliders of coordinates
    that have a `Servo` are then its target, and the others follow. It needs the extra `live`.

    state: of one environment
    visuals: what bodies look like: the `Model` of their file, or each `Visual`; see `view`
    dt: time step [s]; scheme: `SemiImplicitEuler(projections=1)` by default
    host: who may look: by default browsers on this machine alone
    port: of the server; another one is taken if it is not free

    Raises: ImportError without viser; ValueError for a state with batch axes.
    """
    scheme = SemiImplicitEuler(projections=1) if scheme is None else scheme
    return Live(system, state, visuals=visuals, dt=dt, scheme=scheme, host=host, port=port)


def _aiming(state: State, inputs: Inputs) -> Control:
    """A control of targets alone."""
    return Control(target=inputs.shared)


def _posed(system: System, state: State, joints: list[str], q: Array) -> State:
    """The state at rest at coordinates q of some joints, closed; bodies that float stay there."""
    poses, roots = body_poses(system, state), _roots(system)
    free = {name: poses[i] for i, name in enumerate(system.topology.bodies) if i in roots}
    q = {name: q[system.coordinate(name)] for name in joints}
    near = system.state(q=q, pose=free, time=state.time)
    return jax.lax.fori_loop(0, CLOSING, lambda _, x: project(system, x, iterations=1), near)


def _roots(system: System) -> set[int]:
    """The first body of each part of the mechanism that no joint connects to the world."""
    part = list(range(len(system.topology.bodies) + 1))
    for group in system.groups:
        for child, parent in zip(group.child, group.parent, strict=True):
            old, new = sorted((part[child], part[parent]), reverse=True)
            part = [new if x == old else x for x in part]
    return set(part) - {part[WORLD_INDEX]}


def _driven(system: System) -> set[int]:
    """Indices of the coordinates whose laws have a target."""
    return {
        start + law.coordinate
        for group in system.groups
        for law in group.laws
        if "target" in law.aims
        for start in group.start
    }
