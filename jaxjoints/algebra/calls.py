"""Calls from outside: arguments that a function or record does not have; warnings at their line."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, TypeVar, overload

from .options import near_matches

F = TypeVar("F", bound=Callable)

# What calls of the library go through, beside itself.
CALLED_THROUGH = ("jax", "contextlib", "dataclasses")
# What other programs call arguments of the library, with the names that these have here.
OTHER_NAMES = {
    name: here
    for names, here in (
        (("k", "kp", "gain", "p_gain"), ("stiffness",)),
        (("c", "d", "kd", "kv", "d_gain"), ("damping",)),
        (("torque", "tau", "force", "u", "efforts"), ("effort",)),
        (("max_torque", "max_force", "effort_limit", "forcerange"), ("max_effort", "effort")),
        (("setpoint", "desired", "reference", "goal", "q_des"), ("target",)),
        (("min", "low", "minimum", "lo"), ("lower",)),
        (("max", "high", "maximum", "hi"), ("upper",)),
        (("i", "moi", "moments"), ("inertia",)),
        (("m", "weight"), ("mass",)),
        (("g",), ("gravity",)),
        (("center_of_mass", "cog", "com_offset"), ("com",)),
        (("h", "timestep", "time_step", "step_size", "delta_t"), ("dt",)),
        (("t", "n", "n_steps", "num_steps", "length", "duration"), ("steps", "horizon")),
        (("horizon",), ("steps",)),
        (("limit", "limits", "range", "spring", "friction", "motor", "actuator"), ("laws",)),
        (("damping", "stiffness", "law", "servo"), ("laws",)),
        (("mu", "friction_coefficient"), ("friction",)),
        (("bounce", "e"), ("restitution",)),
        (("pos", "position", "xyz", "origin", "frame", "anchor"), ("pose", "frame_D", "frame_C")),
        (("position", "positions", "qpos", "angle", "angles"), ("q", "pose")),
        (("qvel", "qdot", "dq", "speed", "speeds"), ("qd", "velocity")),
        (("vel", "twist"), ("velocity", "qd")),
        (("rest_length", "q0", "x0", "equilibrium"), ("rest",)),
        (("type", "joint_type", "kind"), ("coupling",)),
        (("body", "link"), ("bodies", "child")),
        (("joint",), ("joints",)),
        (("integrator", "method"), ("scheme",)),
        (("seed", "rng", "prng_key"), ("key",)),
        (("iters", "max_iter", "maxiter", "niter"), ("iterations",)),
        (("iterations",), ("projections", "solver")),
        (("ratio", "gear"), ("ratio", "ratios")),
        (("every", "record_interval", "save_every"), ("record_every",)),
        (("control", "policy", "controller", "action"), ("controls",)),
    )
    for name in names
}


@overload
def public(function: F) -> F: ...
@overload
def public(*, name: str) -> Callable[[F], F]: ...
def public(function: F | None = None, *, name: str | None = None) -> Any:
    """A function, or a class, that names in its errors the arguments that it has, with near
    matches, where a call does not fit them: Python names them by what is inside.

    name: of a method that is written as a function of another name

    >>> @public
    ... def pushed(effort=0.0): ...
    >>> pushed(torque=1.0)
    Traceback (most recent call last):
    TypeError: pushed: there is no argument 'torque'; did you mean 'effort'?
    """
    if function is None:
        return partial(public, name=name)
    if isinstance(function, type):
        function.__init__ = public(function.__init__)  # type: ignore[misc]
        return function

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError:
            problem = _misfit(function, arguments, named, method=name is not None)
            if problem is None:
                raise
            owner = name or function.__name__
            if owner == "__init__":
                owner = type(arguments[0]).__name__
        raise TypeError(f"{owner}: {problem}")

    return called


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn of a line outside of the library: the innermost one that led to this call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _inside(module: str) -> bool:
    """Whether code is the library's own, or JAX's or Python's that it calls through."""
    return module.partition(".")[0] in (__name__.partition(".")[0], *CALLED_THROUGH)


def _misfit(
    function: Callable, arguments: tuple, named: dict[str, Any], *, method: bool
) -> str | None:
    """Why arguments do not fit a function, as a sentence, or None.

    method: the first argument is what the function is called on, as one named `self` is
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **named)
        return None
    except TypeError:
        pass
    parameters = list(signature.parameters.values())
    if method or parameters and parameters[0].name == "self":
        parameters, arguments = parameters[1:], arguments[1:]
    known = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in named:
        if key not in known and not open_ended:
            return f"there is no argument {key!r}; {_hint(key, known)}"
    if len(arguments) > len(places):
        return _too_many(arguments, places, [name for name in known if name not in places])
    for key in places[: len(arguments)]:
        if key in named:
            return f"{key} is given twice, by its place and by its name; leave one out"
    needed = [p.name for p in parameters if p.default is p.empty and p.name in known]
    missing = [key for key in needed if key not in (*places[: len(arguments)], *named)]
    give = ", ".join(f"{key}=…" for key in missing)
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; give {give}"


def _too_many(arguments: tuple, places: list[str], named: list[str]) -> str:
    """That more arguments are given without names than there are places for."""
    given = len(arguments)
    without = f"without its name it takes {', '.join(places) or 'no argument'}"
    if given > 1 and all(isinstance(x, (int, float)) for x in arguments):
        vector = "(" + ", ".join(map(str, arguments)) + ")"
        return f"{given} numbers are given, {without}; a vector is one argument: {vector}"
    shown = ", ".join(f"{key}=…" for key in named[:8]) + (", …" if len(named) > 8 else "")
    more = f"; by their names: {shown}" if named else ""
    return f"{without}, and {given} {'is' if given == 1 else 'are'} given{more}"


def _hint(name: str, known: Iterable[str]) -> str:
    """Names that an argument may have been meant for."""
    meant = [here for here in OTHER_NAMES.get(name.lower(), ()) if here in known]
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    return near_matches(name, known)
