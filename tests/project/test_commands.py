"""Every command that a page or a script prints is run by a test, in its smallest form."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "tests" / "benchmarks"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


class Run(NamedTuple):
    """A command at its smallest: arguments, and the modules without which it cannot run.

    sweep: whether it takes longer than what `-m slow` runs
    """

    arguments: str
    needs: tuple[str, ...] = ()
    sweep: bool = False


# ASSETS stands for the folder of gymnasium's MJCF files, DATA for that of the tests, OUT for a file
# to write.
SMALLEST = {
    "tests/benchmarks/accuracy.py": [Run('--only "chain of 10" --share 0.001', sweep=True)],
    "tests/benchmarks/artisynth.py": [Run("--only limit_violated")],
    "tests/benchmarks/beside_mujoco.py": [
        Run(
            "--packages DATA --only hopper --tables motion,speed --batches 2 --out OUT"
            " --picture OUT.png",
            ("gymnasium", "mujoco", "defusedxml", "matplotlib"),
            True,
        )
    ],
    "tests/benchmarks/dynamics.py": [
        Run(
            "DATA/panda_arm.urdf --floating none --batch 2 --rounds 1 --float32",
            ("pinocchio", "mujoco", "defusedxml"),
        )
    ],
    "tests/benchmarks/energy.py": [
        Run('--only "three-link chain"', ("mujoco",), sweep=True),
        Run("--turning 100 --seconds 0.01", sweep=True),
    ],
    "tests/benchmarks/files.py": [
        Run(
            "ASSETS DATA --only inverted_pendulum,panda_arm --without double"
            " --simulate pendulum,panda --floating none --speed pendulum --seconds 0.01 --batch 2"
            " --minutes 1 --out OUT.json --table OUT.md",
            ("gymnasium", "mujoco", "defusedxml"),
        )
    ],
    "tests/benchmarks/friction.py": [Run("--count 4 --links 1", sweep=True)],
    "tests/benchmarks/fuzz.py": [
        Run("--count 1 --seconds 1", sweep=True),
        Run("--replay 0", sweep=True),
    ],
    "tests/benchmarks/gaps.py": [
        Run("--only four-bar,panda --urdf DATA/panda_arm.urdf --share 0.001", ("defusedxml",), True)
    ],
    "tests/benchmarks/gpu_programs.py": [
        Run("chain5 --batch 32 --gradient --heaviest 2 --float64", ("jax_cuda12_plugin",), True),
        Run("chain5 --batch 32 --engines mjx", ("jax_cuda12_plugin", "mujoco.mjx"), True),
    ],
    "tests/benchmarks/ground.py": [Run('--scenes "slope 0.59" --precisions float64')],
    "tests/benchmarks/identification.py": [
        Run("--steps 20 --starts 1", ("plotly", "tabulate", "defusedxml"), True)
    ],
    "tests/benchmarks/iterations.py": [Run("--tasks hopper --envs 2 --steps 3", sweep=True)],
    "tests/benchmarks/learning_curves.py": [
        Run(
            "--tasks cart_pole --seeds 1 --transfer --out OUT.json --picture OUT.png --settings"
            " num_timesteps=80,num_evals=3,num_envs=2,num_eval_envs=2,episode_length=4,"
            "batch_size=2,num_minibatches=4",
            ("brax", "mujoco", "defusedxml", "matplotlib"),
            True,
        ),
    ],
    "tests/benchmarks/resting.py": [
        Run(
            "ASSETS/ant.xml --batch 8 --steps 2 --rounds 1",
            ("gymnasium", "mujoco.mjx", "defusedxml"),
            True,
        )
    ],
    "tests/benchmarks/robots.py": [
        Run(
            "ASSETS --only inverted_pendulum --batch 2 --out OUT",
            ("gymnasium", "pinocchio", "defusedxml"),
        )
    ],
    "tests/benchmarks/run.py": [
        Run(
            "--platform cpu --tables speed --cases chain5 --batches 2 --rounds 1 --patience 900"
            ' --engines "jaxjoints,mujoco one core,mujoco all cores"',
            ("mujoco",),
        ),
        Run(
            "--quick --markdown --patience 900"
            " --tables gradient --cases chain10 --engines jaxjoints",
            sweep=True,
        ),
        Run(
            "--tables gaps,kernels --cases fourbar --batches 2 --rounds 1 --bandwidth 4800"
            ' --gflops 67000 --patience 900 --engines "jaxjoints,mujoco one core"',
            ("mujoco",),
            True,
        ),
        Run('--tables speed --cases fourbar --batches 2 --engines "mjx,mjx fast"', ("mujoco.mjx",)),
        Run('--tables speed --cases chain5 --batches 2 --engines "pinocchio"', ("pinocchio",)),
        Run('--tables speed --cases chain5 --batches 2 --engines "brax generalized"', ("brax",)),
        Run('--tables speed --cases chain5 --batches 2 --engines "jaxsim"', ("jaxsim",)),
    ],
    "tests/benchmarks/searches.py": [
        Run(
            "--tasks swing_up --searches gradients,evolution --seeds 1 --seconds 0.1,0.2"
            " --tune 0.1 --out OUT.json --picture OUT.png",
            ("matplotlib",),
            sweep=True,
        ),
        Run(
            "--tasks swing_up --searches PPO --seeds 1 --tune 1 --seconds 1", ("brax",), sweep=True
        ),
    ],
    "tests/benchmarks/softness.py": [
        Run("--task swing_up --iterations 1 --window 2 --seeds 1", sweep=True)
    ],
    "tests/benchmarks/tasks.py": [
        Run('--tasks cart_pole --envs 16 --steps 2 --rounds 1 --backends ""'),
        Run("--tasks cart_pole --envs 16 --steps 2 --rounds 1", ("brax",)),
        Run('--tasks cart_pole --envs 16 --backends "" --playground', ("mujoco_playground",)),
    ],
    "tests/benchmarks/throws.py": [Run("--throws 2 --bodies capsule --tile 4")],
    "tests/benchmarks/touching.py": [
        Run("ASSETS --only hopper --rest none", ("gymnasium", "mujoco", "defusedxml"), True),
    ],
    "tests/benchmarks/train_policies.py": [
        Run("--tasks finger --folder OUT --settings iterations=1,envs=2,window=2", sweep=True),
        Run(
            "--tasks cart_pole --folder OUT --settings num_timesteps=80,num_evals=3,num_envs=2,"
            "batch_size=2,num_minibatches=4",
            ("brax",),
            True,
        ),
    ],
    "tests/benchmarks/trajectories.py": [Run("--only throw --iterations 1", ("mujoco.mjx",), True)],
    "tests/benchmarks/transfers.py": [Run("--tasks hopper --episodes 2", ("mujoco",), True)],
    "tests/benchmarks/waits.py": [Run("--jobs hinge")],
    "tests/benchmarks/windows.py": [Run("--windows 2 --seeds 1 --budget 1", sweep=True)],
    "tests/benchmarks/workarounds.py": [
        Run("--only arctan --rounds 2"),
        Run("--cases chain5 --only spread --forward --rounds 1 --steps 2", sweep=True),
    ],
}
# Commands that tests of their own run, with the options that they print.
ELSEWHERE = {
    ".ci/reference": "project/test_docs.py",
    "examples/gallery.py": "project/test_gallery.py",
    "examples/identify_stop.py": "project/test_examples.py",
    "examples/learn_finger.py": "learning/test_learning.py",
    "examples/panda_gains.py": "project/test_examples.py",
    "examples/policies.py": "project/test_policies.py",
    "examples/policies_picture.py": "project/test_policies.py",
    "examples/stewart_platform.py": "project/test_stewart_platform.py",
    "jaxjoints bench": "cli/test_main.py",
    "jaxjoints diagnose": "cli/test_main.py",
    "jaxjoints simulate": "cli/test_main.py",
    "jaxjoints view": "cli/test_main.py",
}

SCRIPT = re.compile(r"python3? ((?:tests|examples|\.ci)/[\w./]+)([^&\n]*)")
SHELL = re.compile(r"(jaxjoints (?:view|simulate|diagnose|bench))\b([^&\n]*)")
OPTION = re.compile(r"(?<=[\s\[])--[a-z][\w-]*")


def code(page):
    """What a page shows as code: blocks, indented lines, and what stands between backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^ {4}(.*)$", text, re.MULTILINE)
    # The page of names has the commands of the command line without the program.
    short = re.findall(r"`((?:simulate|diagnose) [^`]+)`", text)
    return [*blocks, *lines, *re.findall(r"`([^`\n]+)`", text), *(f"jaxjoints {x}" for x in short)]


def printed():
    """Pages and scripts with the commands and options that they print, and the extras of pip."""
    shown = {}
    hidden = lambda path: any(part[0] == "." for part in path.relative_to(ROOT).parts)  # noqa: E731
    for page in sorted(ROOT.rglob("*.md")):
        if not hidden(page):
            shown[page] = code(page)
    for script in [*(ROOT / "examples").glob("*.py"), *BENCHMARKS.glob("*.py")]:
        shown[script] = [script.read_text(encoding="utf-8").split('"""')[1]]
    for path, texts in shown.items():
        for text in texts:
            # An option may stand in the line below its command.
            joined = re.sub(r"\n +(?=\[--)", " ", text)
            for command, rest in [*SCRIPT.findall(joined), *SHELL.findall(joined)]:
                yield str(path.relative_to(ROOT)), command, frozenset(OPTION.findall(rest))


PRINTED = sorted(set(printed()), key=str)


def test_what_is_printed_is_found():
    """A page, an option in brackets, one that stands between backticks, one of the shell."""
    found = {(path, command): options for path, command, options in PRINTED}
    page = "tests/benchmarks/README.md"
    assert found[page, "tests/benchmarks/throws.py"] == {"--throws"}
    assert found["jaxjoints/NAMES.md", "jaxjoints simulate"] == {"--envs", "--seconds"}
    assert ("examples/gallery/README.md", "examples/gallery.py") in found
    assert ("README.md", ".ci/reference") in found
    script = "tests/benchmarks/gpu_programs.py"
    assert "--gradient" in found[script, script]


@pytest.mark.parametrize("path", sorted({path for path, *_ in PRINTED}))
def test_commands_that_are_printed_are_run_with_their_options(path):
    for where, command, options in PRINTED:
        if where != path:
            continue
        assert command in SMALLEST or command in ELSEWHERE, f"no test runs {command}"
        if command in SMALLEST:
            run = " ".join(one.arguments for one in SMALLEST[command])
        else:
            run = (ROOT / "tests" / ELSEWHERE[command]).read_text(encoding="utf-8")
            assert command.split("/")[-1].split()[-1].removesuffix(".py") in run
        for option in options:
            # Tests may call `main(option=...)`.
            named = f"{option.removeprefix('--')}="
            assert option in run or named in run, f"no test runs {command} with {option}"


def test_tables_have_no_command_that_nobody_prints():
    scripts = {str(path.relative_to(ROOT)) for path in BENCHMARKS.glob("*.py")}
    commands = {path for path in scripts if "__main__" in (ROOT / path).read_text(encoding="utf-8")}
    commands.remove("tests/benchmarks/worker.py")  # what `run.py` starts
    assert set(SMALLEST) == commands
    assert set(ELSEWHERE) <= {command for _, command, _ in PRINTED}


def test_extras_that_are_printed_exist():
    named = [
        extra
        for page in sorted(ROOT.rglob("*.md"))
        if not any(part[0] == "." for part in page.relative_to(ROOT).parts)
        for extra in re.findall(r"-e \"?\.\[([\w,-]+)\]", page.read_text(encoding="utf-8"))
    ]
    assert named and set(named) <= set(EXTRAS)


def found(module):
    """Whether a module is there, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "run"),
    [
        pytest.param(
            *(script, run),
            id=f"{Path(script).stem} {run.arguments}",
            marks=pytest.mark.sweep if run.sweep else pytest.mark.slow,
        )
        for script, runs in SMALLEST.items()
        for run in runs
    ],
)
def test_a_command_runs(script, run, tmp_path):
    for module in run.needs:
        if not found(module):
            pytest.skip(f"needs {module}")
    arguments = [x.strip('"') for x in re.findall(r'"[^"]*"|\S+', run.arguments)]
    assets = ROOT
    if "gymnasium" in run.needs:
        assets = Path(importlib.util.find_spec("gymnasium").origin).parent / "envs/mujoco/assets"
    folders = {"ASSETS": assets, "DATA": ROOT / "tests" / "data", "OUT": tmp_path / "out"}
    for name, folder in folders.items():
        arguments = [x.replace(name, str(folder)) for x in arguments]
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # An engine, a robot or a seed that fails is a line of its table.
    assert not re.search(r"Error|Exception|failed|left out", done.stdout), done.stdout
    assert re.search(r"\d", done.stdout), done.stdout


@pytest.fixture
def engine(monkeypatch):
    """An engine that lets links fall one by one: all that it shares with the others is its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from engines.engine import JaxEngine

    class Falling(JaxEngine):
        def rollout(self, mechanism, batch, steps, dt, checkpoint=None):
            def roll(q, v):
                return q + steps * dt * v, v

            return roll, tuple(jnp.asarray(x.T) for x in mechanism.start(batch))

        def angles(self, final):
            return final[0]

        def note(self, mechanism, final):
            return f"{final[0].shape[1]} environments"

    return Falling()


def test_an_engine_on_jax_answers_every_request(engine):
    """Of one rollout, and of its gradient."""
    from cases import CASES, DT

    q, v = CASES["chain5"]().start(2)
    built = engine.build("chain5", 2, 10)
    np.testing.assert_allclose(built["q"], (q + 10 * DT * v)[0, :3], rtol=1e-12)
    assert built["note"] == "2 environments"
    final = engine.run()
    np.testing.assert_allclose(final[0].T, q + 10 * DT * v, rtol=1e-12)
    assert engine.once() is None
    ((seconds, _),) = engine.time()["seconds"]
    assert seconds > 0
    told = engine.gradient("chain5", 2, 10, None)
    assert told["finite"]
    forward, reverse = (one() for one in engine.pair)
    np.testing.assert_allclose(forward, ((q + 10 * DT * v) ** 2).sum(), rtol=1e-12)
    np.testing.assert_allclose(reverse[0], forward)
    np.testing.assert_allclose(reverse[1][0].T, 2 * (q + 10 * DT * v), rtol=1e-12)
    assert len(engine.time_gradient()["seconds"]) == 2
    assert engine.memory("chain5", 2, 10, None).keys() == told.keys() - {"finite"}
    assert engine.kernels("chain5", 2)["flops"] > 0
    assert jax.config.jax_enable_x64
