"""How tests compile: that costs them most of their time, the programs themselves little.

The core of the library is tested with the optimizations that users have too: `default_flags`.

There is no cache of compiled programs on disk: writing it takes a tenth of the time of the tests,
and what they read again saves them a sixtieth.
"""

from collections.abc import MutableMapping

import jax

# Without optimizations: less than two thirds of the time to compile, for programs that run several
# times slower.
FLAGS = ["--xla_backend_optimization_level=0"]
# A release of XLA refuses what it does not know. Other emitters halve the time to compile, and a
# program in one part instead of 32 takes a tenth off it, where both cores have tests of their own.
if jax.__version_info__ < (0, 11):
    FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
# Passes that move code about and change no number. Without them a gradient compiles in a tenth less
# time, and a long program in a quarter less: most of that is `reshape-mover`, whose moves later
# passes go over again.
PASSES = ("reshape-mover", "while-loop-constant-sinking", "while-loop-invariant-code-motion")
FLAGS += [f"--xla_disable_hlo_passes={','.join(PASSES)}"]

# Options of `jax.jit` for a program that runs longer than it compiles, which all others do not.
OPTIMIZED = {"xla_backend_optimization_level": 1}


def compile_quickly(environment: MutableMapping[str, str]) -> None:
    """Let the XLA of this process, and of those it starts, compile fast; before it computes."""
    given = environment.get("XLA_FLAGS", "").split()
    # The last one counts: whoever runs the tests decides.
    added = [flag for flag in FLAGS if flag not in given]
    environment["XLA_FLAGS"] = " ".join([*added, *given])
