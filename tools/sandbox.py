"""
The sandbox for commands: what it confines, by which means, and what it leaves open.

A command in it writes only to the workspace, the folder of long results and a private temp folder; has no network
unless that is allowed; finds no secrets in its environment; and is bounded in memory, processes, file size and time.
It can still read what the user can read. There are two means: bubblewrap, and Landlock with a system call filter.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs
import orjson
import trio

from atrio.runtime.errors import ConfigError, ToolError
from atrio.runtime.journal import make_private
from atrio.runtime.redact import Redactor
from atrio.runtime.tool import Workspace

from . import sandbox_shim
from .bubblewrap import bubblewrap_options, is_beyond_reach
from .limits import Limits
from .seccomp import MACHINES, filter_program

__all__ = [
    "Sandbox",
    "SandboxKind",
    "SandboxPolicy",
    "SandboxUnusable",
    "choose_sandbox",
    "describe",
    "probe",
    "without_secrets",
]

PROBE_LIMIT: Final = 5.0
"""Seconds for one trial run, which takes some hundredths."""

PROBE_STATUS: Final = 37
"""An exit status that nothing but the trial's own command gives."""

DEVICES: Final = (Path("/dev/null"), Path("/dev/zero"), Path("/dev/full"))
"""Devices that swallow what is written; terminals are not among them, as those are other programs'."""

DOORS: Final = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY"})
"""Variables that hold no secret, but lead to somebody who uses one for whoever asks."""

_PYTHON: Final = os.path.realpath(sys.executable)
_SHIM: Final = Path(sandbox_shim.__file__).read_text(encoding="utf-8")
"""
Taken before any command runs, and the interpreter not by way of a virtual environment: with that in the workspace, a
command in the sandbox could rewrite both, and the next one would begin with them, unconfined.
"""

SIGNALS_SINCE: Final = 6
"""The version of Landlock that confines signals."""


class SandboxPolicy(StrEnum):
    """Whether commands are confined."""

    REQUIRED = "required"
    """Always; where no sandbox works, nothing begins."""
    AUTO = "auto"
    """Where a sandbox works."""
    OFF = "off"
    """Never."""


class SandboxKind(StrEnum):
    """By which means, the stronger one first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@attrs.define(eq=False, slots=False)
class SandboxUnusable(ToolError):
    """The sandbox could not be made ready at ``path``."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"the sandbox's temp folder {self.path} can't be made, so nothing was run: {self.reason}"


@attrs.frozen(kw_only=True)
class Sandbox:
    """
    A way to confine commands, made by `choose_sandbox`.

    Args:
        network: it is open.
        kept: variables that stay in the environment although they look like secrets.
    """

    kind: SandboxKind = attrs.field(validator=attrs.validators.in_([SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK]))
    network: bool = False
    limits: Limits = attrs.field(factory=Limits)
    kept: frozenset[str] = frozenset()

    async def enter(
        self, argv: Sequence[str], env: Mapping[str, str], *, workspace: Workspace, results_dir: Path
    ) -> tuple[list[str], dict[str, str]]:
        """
        The command line and the environment with which ``argv`` runs confined. Raises `SandboxUnusable`.

        The private temp folder is made beside ``results_dir`` and stays as long as that. Cancelled: it may exist.
        """
        return await trio.to_thread.run_sync(self._enter, argv, env, workspace, results_dir)

    def _enter(
        self, argv: Sequence[str], env: Mapping[str, str], workspace: Workspace, results_dir: Path
    ) -> tuple[list[str], dict[str, str]]:
        tmp = results_dir.parent / "tmp"
        try:
            make_private(tmp)
        except OSError as error:
            raise SandboxUnusable(str(tmp), error.strerror or str(error)) from error
        return self.wrap(argv, workspace=workspace, tmp=tmp, extra=(results_dir,)), self.environment(env, tmp)

    def wrap(self, argv: Sequence[str], *, workspace: Workspace, tmp: Path, extra: Sequence[Path] = ()) -> list[str]:
        """``argv`` behind what confines it to the workspace, ``tmp`` and the folders in ``extra``."""
        limits = self.limits.resources()
        plan: sandbox_shim.Plan
        if self.kind is SandboxKind.BUBBLEWRAP:
            options = bubblewrap_options(
                roots=workspace.roots,
                extra=extra,
                tmp=tmp,
                cwd=workspace.cwd,
                needed=[Path(sys.base_prefix), Path(_PYTHON).parent],
                network=self.network,
            )
            plan = {"limits": limits, "writable": None, "network": True, "filter": ""}
            front = [shutil.which("bwrap") or "bwrap", *options]
        else:
            others = [path for path in (*extra, tmp) if is_beyond_reach(path, workspace.roots)]
            program = filter_program(MACHINES[platform.machine()], network=self.network)
            paths = [str(path) for path in (*workspace.roots, *others, *DEVICES)]
            plan = {"limits": limits, "writable": paths, "network": self.network, "filter": program.hex()}
            front = []
        shim = [_PYTHON, "-I", "-S", "-c", _SHIM, orjson.dumps(plan).decode()]
        return [*front, *shim, *argv]

    def environment(self, env: Mapping[str, str], tmp: Path) -> dict[str, str]:
        """``env`` without secrets, with ``tmp`` as the place for temporary files."""
        kept = {name: env[name] for name in self.kept if name in env}
        return {**without_secrets(env), **kept, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(tmp))}

    def describe_to_model(self) -> str:
        """What whoever writes commands has to know."""
        network = "" if self.network else " There is no network."
        return (
            "Commands run in a sandbox: only the workspace and the folder $TMPDIR (use it in place of /tmp) can be "
            f"written.{network} What fails for this reason also fails in other ways; say so instead."
        )

    def describe(self) -> str:
        """What holds, and what does not, in one sentence for people and programs."""
        network = "the network is open" if self.network else "there is no network"
        text = (
            f"commands run in a sandbox ({self.kind}): they write only to the workspace, the results folder and a "
            f"private temp folder ($TMPDIR), {network}, and secrets are kept out of their environment"
        )
        open_ends = ["reading"]
        if self.kind is SandboxKind.LANDLOCK:
            open_ends.append("the mode, owner and times of files elsewhere")
            if sandbox_shim.landlock_version() < SIGNALS_SINCE:
                open_ends.append("signals to other processes")
        if os.geteuid() == 0 and self.limits.processes is not None:
            open_ends.append("the number of processes (you are root)")
        return f"{text}; not confined: {', '.join(open_ends)}"


@functools.cache
def probe() -> SandboxKind:
    """The strongest sandbox that works here, found by trial. The first call blocks for some tenths of a second."""
    usable = [SandboxKind.BUBBLEWRAP] if shutil.which("bwrap") else []
    if sys.platform == "linux" and platform.machine() in MACHINES and sandbox_shim.landlock_version() > 0:
        usable.append(SandboxKind.LANDLOCK)
    return next((kind for kind in usable if _works(kind)), SandboxKind.NONE)


def choose_sandbox(
    policy: SandboxPolicy,
    *,
    network: bool = False,
    limits: Limits | None = None,
    kept: Sequence[str] = (),
    kind: SandboxKind | None = None,
) -> Sandbox | None:
    """
    The sandbox that ``policy`` comes to here; None: commands run unconfined. Raises `ConfigError`.

    ``kind`` is the one to take, untried, where it isn't to be `probe` that says.
    """
    if policy is SandboxPolicy.OFF:
        return None
    kind = kind or probe()
    if kind is not SandboxKind.NONE:
        return Sandbox(kind=kind, network=network, limits=limits or Limits(), kept=frozenset(kept))
    if policy is SandboxPolicy.REQUIRED:
        raise ConfigError(
            "sandbox required",
            "no sandbox works here: bubblewrap (bwrap) is missing or may not make namespaces, and the kernel has no "
            "Landlock",
            "install bubblewrap, run on Linux 5.13 or later, or choose auto or off to run commands unconfined",
        )
    return None


def describe(policy: SandboxPolicy, sandbox: Sandbox | None) -> str:
    """The same as `Sandbox.describe`, and what to say where there is none."""
    if sandbox is not None:
        return sandbox.describe()
    if policy is SandboxPolicy.OFF:
        return "the sandbox is off: commands may do all that you may"
    return (
        "no sandbox works here (neither bubblewrap nor Landlock): commands run unconfined and may do all that you may"
    )


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that hold a secret, whichever their names, or lead to an agent that has one."""
    secrets = Redactor.for_environment(env).plain
    return {
        name: value
        for name, value in env.items()
        if name not in DOORS and not any(secret in value.encode("utf-8", "surrogatepass") for secret in secrets)
    }


def _works(kind: SandboxKind) -> bool:
    """A trial run. It is not left to `run_command`, as it takes place before there is a loop."""
    with tempfile.TemporaryDirectory(prefix="atrio-probe-") as folder:
        tmp = Path(os.path.realpath(folder))
        script = f"echo x > {tmp}/x || exit 1; (echo x > /var/x) 2>/dev/null && exit 2; exit {PROBE_STATUS}"
        argv = Sandbox(kind=kind).wrap(["/bin/sh", "-c", script], workspace=Workspace(cwd=tmp), tmp=tmp)
        try:
            ended = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PROBE_LIMIT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return ended.returncode == PROBE_STATUS
