"""Compiled programs of the command line, kept on disk for its next run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import jax

# Programs that compile faster are not worth a file [s].
LEAST = 0.1


def keep_programs() -> None:
    """Let JAX keep compiled programs in `cache_folder`.

    What JAX's own variables say counts: JAX_COMPILATION_CACHE_DIR names another folder, and
    JAX_ENABLE_COMPILATION_CACHE=0 keeps none.
    """
    if not jax.config.jax_enable_compilation_cache or jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(cache_folder(os.environ, sys.platform)))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST)


def cache_folder(environment: Mapping[str, str], platform: str) -> Path:
    """Where programs of a user keep what they can make again.

    platform: as `sys.platform`
    """
    home = Path.home()
    if platform == "darwin":
        caches = home / "Library" / "Caches"
    elif platform == "win32":
        caches = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        caches = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    return caches / "jaxjoints"
