"""Accelerations at an instant, to compare with those of other engines."""

import jax

import jaxjoints as jj
from jaxjoints.assembly.layout import mechanism_of
from support.mechanisms import compiled


@compiled
def rates(system, state, control):
    """q̈ of all coordinates, and the rates of change of a state, for systems of smooth laws."""
    rate, _ = jj.RungeKutta()._rate(mechanism_of(system, 0), state, control)
    return jax.jvp(lambda state: jj.speeds(system, state), (state,), (rate,))[1], rate
