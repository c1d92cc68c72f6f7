"""Commands in the sandbox work where they may, and every way out of it is shut. Real processes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio

from atrio.runtime.errors import ConfigError
from atrio.runtime.tool import ToolContext, Workspace
from atrio.tools import sandbox_shim
from atrio.tools.limits import Limits
from atrio.tools.process import Ended, run_command
from atrio.tools.reaper import TOKEN_VARIABLE
from atrio.tools.sandbox import (
    Sandbox,
    SandboxKind,
    SandboxPolicy,
    choose_sandbox,
    describe,
    probe,
    without_secrets,
)
from atrio.tools.sandbox_shim import NOT_CONFINED, NOT_FOUND
from atrio.tools.shell import Bash

KINDS: Final = [SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK]
NOBODY: Final = 65_534
INTERPRETER: Final = os.path.realpath(sys.executable)


@functools.cache
def usable(kind: SandboxKind) -> bool:
    tool = "bwrap" if kind is SandboxKind.BUBBLEWRAP else "sh"
    if shutil.which(tool) is None or sys.platform != "linux":
        return False
    scene = Sandbox(kind=kind).wrap(["true"], workspace=Workspace(cwd=Path("/usr")), tmp=Path("/var/tmp"))
    return subprocess.run(scene, capture_output=True, check=False).returncode == 0


@attrs.define
class Jail:
    """A workspace, what lies around it, and the sandbox that keeps commands in."""

    sandbox: Sandbox
    base: Path
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    @property
    def ws(self) -> Path:
        return self.base / "w"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def workspace(self) -> Workspace:
        return Workspace(cwd=self.ws)

    @property
    def results(self) -> Path:
        return self.base / "session" / "tool-results"

    async def run(self, script: str, env: dict[str, str] | None = None, user: int | None = None) -> tuple[Ended, str]:
        output: list[bytes] = []

        async def take(chunk: bytes) -> None:
            output.append(chunk)
            await trio.lowlevel.checkpoint()

        outer = {"PATH": os.environ["PATH"], TOKEN_VARIABLE: self.mark, **(env or {})}
        argv, inner = await self.sandbox.enter(
            ["/bin/bash", "-c", script], outer, workspace=self.workspace, results_dir=self.results
        )
        if user is not None:
            python = "/usr/bin/python3"  # the one of these tests may be root's alone
            argv = [python if each == INTERPRETER else each for each in argv]
            argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv]
        ended = await run_command(argv, cwd=self.ws, env=inner, on_output=take)
        return ended, b"".join(output).decode("utf-8", "replace")

    def left_over(self) -> list[str]:
        """The processes that carry the mark of this jail."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if self.mark in (entry / "environ").read_text(errors="replace"):
                    found.append((entry / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
        return found


@pytest.fixture(params=KINDS)
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Jail:
    if not usable(request.param):
        pytest.skip(f"{request.param} doesn't work here")
    made = Jail(Sandbox(kind=request.param), tmp_path)
    for folder in (made.ws, made.outside, made.results):
        folder.mkdir(parents=True)
    (made.outside / "file").write_text("untouched")
    return made


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, with a key in its environment."""
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "VICTIM": "the-victims-key"}) as process:
        yield process
        process.kill()


# --- what works -----------------------------------------------------------------------------------


async def test_the_workspace_the_results_and_the_temp_folder_can_be_written(jail: Jail) -> None:
    script = f"echo a > a && mkdir d && mv a d && echo b > {jail.results}/b && echo c > $TMPDIR/c && mktemp && echo ok"
    ended, text = await jail.run(script)
    assert (Ended(status=0), "ok") == (ended, text.split()[-1])
    assert ["a\n", "b\n"] == [(jail.ws / "d/a").read_text(), (jail.results / "b").read_text()]
    assert "c\n" == (jail.results.parent / "tmp/c").read_text()
    assert "c\n" == (await jail.run("cat $TMPDIR/c"))[1]


async def test_added_folders_can_be_written(jail: Jail) -> None:
    added = jail.base / "added"
    added.mkdir()
    argv = jail.sandbox.wrap(
        ["/bin/sh", "-c", f"echo x > {added}/x"],
        workspace=Workspace(cwd=jail.ws, add_dirs=(added,)),
        tmp=jail.results,
    )
    await trio.run_process(argv)
    assert "x\n" == (added / "x").read_text()


async def test_git_works(jail: Jail) -> None:
    script = "git init -q . && touch f && git add f && git -c user.name=n -c user.email=e commit -qm message && git log"
    ended, text = await jail.run(script, {"HOME": "/nowhere"})
    assert 0 == ended.status
    assert "message" in text


async def test_standard_devices_and_signals_are_as_usual(jail: Jail) -> None:
    script = "echo x > /dev/null; echo e > /dev/stderr; yes | head -n 1; echo ${PIPESTATUS[0]}"
    assert "e\ny\n141\n" == (await jail.run(script))[1]


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("no-such-command", 127), ("kill -TERM $$", 143)])
async def test_exit_statuses_are_those_of_the_command(jail: Jail, script: str, status: int) -> None:
    ended, _ = await jail.run(script)
    assert status == (ended.status if ended.signal is None else 128 + ended.signal)


# --- writing outside ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "escape",
    [
        "echo x > $OUT/new",
        "echo x > $OUT/file",
        "echo x >> $OUT/file",
        ": > $OUT/file",
        "truncate -s 0 $OUT/file",
        "rm $OUT/file",
        "mv $OUT/file stolen",
        "echo x > mine && mv mine $OUT/file",
        "mkdir $OUT/d",
        "ln -s $OUT link && echo x > link/file",
        "ln -s $OUT/file link && echo x > link",
        "ln $OUT/file hard && echo x > hard",
        "cd $OUT && echo x > file",
        "echo x > ../outside/file",
        'python3 -c \'import os; os.mkfifo(os.environ["OUT"] + "/p")\'',
        "cp /bin/true $OUT/file",
        "dd if=/dev/zero of=$OUT/file count=1",
        "mount --bind $OUT . && echo x > file",
        "unshare -rm sh -c 'mount -o remount,rw,bind $OUT; mount -o remount,rw /; echo x > $OUT/file'",
        "chroot / sh -c 'echo x > $OUT/file'",
        "echo x > /proc/$PPID/root$OUT/file",
        "echo x > /proc/1/root$OUT/file",
        "setsid sh -c 'echo x > $OUT/file' < /dev/null",
    ],
)
async def test_nothing_outside_can_be_written(jail: Jail, escape: str) -> None:
    ended, text = await jail.run(escape, {"OUT": str(jail.outside)})
    assert 0 != ended.status, text
    assert {"file": "untouched"} == {path.name: path.read_text() for path in jail.outside.iterdir()}


async def test_a_link_in_place_of_a_folder_that_is_granted_opens_nothing(jail: Jail) -> None:
    hidden = jail.ws / ".home" / "session"
    hidden.parent.mkdir()
    hidden.symlink_to(jail.outside)
    script = f"echo x > {hidden}/file"
    argv = jail.sandbox.wrap(["sh", "-c", script], workspace=jail.workspace, tmp=hidden / "tmp", extra=(hidden,))
    ended = await trio.run_process(argv, check=False, capture_stderr=True)
    assert 0 != ended.returncode
    assert "untouched" == (jail.outside / "file").read_text()


async def test_shared_memory_and_the_shared_temp_folder_stay_as_they_are(jail: Jail) -> None:
    name = f"atrio-test-{jail.mark}"
    await jail.run(f"echo x > /dev/shm/{name}; echo x > /tmp/{name}; echo x > /var/tmp/{name}")
    assert [] == [folder for folder in ("/dev/shm", "/tmp", "/var/tmp") if name in os.listdir(folder)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could")
async def test_root_makes_no_devices_and_mounts_nothing(jail: Jail) -> None:
    for script in ("mknod disk b 254 0", "mount -t tmpfs none .", "hostname other", "ip link add d type dummy"):
        ended, text = await jail.run(script)
        assert 0 != ended.status, text


async def test_what_steers_programs_is_read_only_under_bubblewrap(jail: Jail) -> None:
    if jail.sandbox.kind is not SandboxKind.BUBBLEWRAP:
        pytest.skip("Landlock can't take away part of what it grants")
    (jail.ws / ".git/hooks").mkdir(parents=True)
    (jail.ws / ".claude").mkdir()
    ended, _ = await jail.run("echo x > .git/hooks/pre-commit || echo x > .claude/settings.json")
    assert 0 != ended.status
    assert [] == [path for path in jail.ws.rglob("*") if path.is_file()]


# --- network --------------------------------------------------------------------------------------


TALK: Final = """python3 -c '
import socket, sys
s = socket.socket(getattr(socket, sys.argv[1]), getattr(socket, sys.argv[2]))
s.settimeout(5)
to = sys.argv[3] if sys.argv[1] == "AF_UNIX" else (sys.argv[3], int(sys.argv[4]))
s.connect(to)
s.sendall(b"hello")
' """


async def test_no_listener_of_the_machine_can_be_reached(jail: Jail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended, text = await jail.run(f"{TALK} AF_INET SOCK_STREAM 127.0.0.1 {listener.getsockname()[1]}")
    assert 0 != ended.status
    assert "Error" in text


async def test_no_datagram_gets_out(jail: Jail) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        await jail.run(f"{TALK} AF_INET SOCK_DGRAM 127.0.0.1 {receiver.getsockname()[1]}")
        with pytest.raises(BlockingIOError):
            receiver.recv(16)


@pytest.mark.parametrize("abstract", [False, True])
async def test_unix_sockets_of_other_programs_can_not_be_reached(jail: Jail, abstract: bool) -> None:
    name = f"\0atrio-{jail.mark}" if abstract else str(jail.outside / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        ended, _ = await jail.run(f"{TALK} AF_UNIX SOCK_STREAM {name if not abstract else '$(printf @)' + jail.mark}")
    assert 0 != ended.status


async def test_bash_connects_to_nothing(jail: Jail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended, _ = await jail.run(f"echo x > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}")
    assert 0 != ended.status


async def test_the_network_is_there_where_it_is_allowed(jail: Jail) -> None:
    jail.sandbox = attrs.evolve(jail.sandbox, network=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended, text = await jail.run(f"{TALK} AF_INET SOCK_STREAM 127.0.0.1 {listener.getsockname()[1]}")
    assert 0 == ended.status, text


# --- secrets --------------------------------------------------------------------------------------

KEY: Final = "sandbox-test-key-0123456789"


async def test_keys_are_not_in_the_environment(jail: Jail) -> None:
    env = {"ANTHROPIC_API_KEY": KEY, "COPY": f"Bearer {KEY}", "GH_TOKEN": "another-secret", "PLAIN": "value"}
    _, text = await jail.run("env; cat /proc/self/environ /proc/$PPID/environ /proc/1/environ", env)
    assert "PLAIN=value" in text
    assert [] == [secret for secret in (KEY, "another-secret") if secret in text]


def test_variables_that_hold_or_lend_secrets_are_left_out_and_others_stay() -> None:
    env = {"DB_PASSWORD": "hunter2hunter2", "URL": "x://u:hunter2hunter2@h", "SSH_AUTH_SOCK": "/tmp/a", "LANG": "C"}
    assert {"LANG": "C"} == without_secrets(env)
    sandbox = Sandbox(kind=SandboxKind.LANDLOCK, kept=frozenset({"DB_PASSWORD"}))
    assert {"DB_PASSWORD", "LANG", "TMPDIR", "TMP", "TEMP"} == set(sandbox.environment(env, Path("/t")))


async def test_the_environment_and_memory_of_others_can_not_be_read(
    jail: Jail, victim: subprocess.Popen[bytes]
) -> None:
    assert b"the-victims-key" in await trio.Path(f"/proc/{victim.pid}/environ").read_bytes()
    _, text = await jail.run(
        f"cat /proc/[0-9]*/environ; cat /proc/{victim.pid}/environ; head -c 1 /proc/{victim.pid}/mem"
    )
    assert "the-victims-key" not in text


# --- other processes ------------------------------------------------------------------------------


async def test_processes_outside_can_not_be_killed(jail: Jail, victim: subprocess.Popen[bytes]) -> None:
    if jail.sandbox.kind is SandboxKind.LANDLOCK and sandbox_shim.landlock_version() < 6:
        pytest.skip("this Landlock doesn't confine signals")
    ended, _ = await jail.run(f"kill -9 {victim.pid}")
    assert 0 != ended.status
    await jail.run(f"kill -9 $PPID; kill -9 {os.getpid()}; kill -9 -{os.getpgid(victim.pid)}")
    assert victim.poll() is None


async def test_the_parent_can_not_be_traced(jail: Jail, victim: subprocess.Popen[bytes]) -> None:
    script = f"python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, {victim.pid}, 0, 0))'"
    assert "-1" == (await jail.run(script))[1].strip()


@pytest.mark.slow
async def test_what_runs_on_in_the_background_is_stopped_and_named(jail: Jail) -> None:
    ended, _ = await jail.run("sleep 71 & (setsid sleep 72 &) ; (env -i setsid sleep 73 &); exit 5")
    assert 5 == ended.status
    assert {"sleep"} == set(ended.stopped)
    assert () == ended.survivors
    assert [] == jail.left_over()


@pytest.mark.slow
async def test_a_cancelled_command_is_gone_with_all_it_started(jail: Jail) -> None:
    started = jail.ws / "started"
    os.mkfifo(started)
    # No `wait`: that would end, and the script with it, as soon as its children have had their signal.
    go_on = "while :; do sleep 0.05; done"
    script = f"(setsid sleep 74 &); env -i setsid sleep 75 & trap 'echo bye > bye; exit' TERM; : > started; {go_on}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jail.run, script)
        await trio.Path(started).read_bytes()
        nursery.cancel_scope.cancel(reason="the test is over")
    assert [] == jail.left_over()
    assert "bye\n" == (jail.ws / "bye").read_text()


# --- limits ---------------------------------------------------------------------------------------


async def test_memory_is_limited(jail: Jail) -> None:
    jail.sandbox = attrs.evolve(jail.sandbox, limits=Limits(memory_bytes=256 * 1024**2))
    assert "MemoryError" in (await jail.run("python3 -c 'bytearray(1 << 30)'"))[1]


async def test_the_size_of_files_is_limited(jail: Jail) -> None:
    jail.sandbox = attrs.evolve(jail.sandbox, limits=Limits(file_bytes=4096))
    await jail.run("head -c 100000 /dev/zero > big")
    assert 4096 == (jail.ws / "big").stat().st_size


@pytest.mark.slow
async def test_processor_time_is_limited(jail: Jail) -> None:
    jail.sandbox = attrs.evolve(jail.sandbox, limits=Limits(cpu_seconds=3))
    ended, _ = await jail.run("while :; do :; done")
    assert 0 != (ended.status if ended.signal is None else ended.signal)


async def test_limits_can_not_be_raised_again(jail: Jail) -> None:
    jail.sandbox = attrs.evolve(jail.sandbox, limits=Limits(file_bytes=4096))
    await jail.run("ulimit -f unlimited; head -c 100000 /dev/zero > big")
    assert 4096 == (jail.ws / "big").stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="takes root to become nobody")
async def test_a_fork_bomb_ends_in_its_limit(jail: Jail) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # pytest's own may be entered by root alone
        jail.base = Path(folder)
        for path in (jail.results.parent / "tmp", jail.ws, jail.results):
            path.mkdir(parents=True)
        await trio.run_process(["chmod", "-R", "777", folder])
        jail.sandbox = attrs.evolve(jail.sandbox, limits=Limits(processes=40))
        bomb = "b() { b | b & }; b; for i in $(seq 60); do sleep 5 & done; wait"
        count = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jail.run, bomb, None, NOBODY)
            for _ in range(20):
                await trio.sleep(0.05)
                count = max(count, len(jail.left_over()))
            nursery.cancel_scope.cancel(reason="seen enough")
        assert 10 < count < 60
        assert [] == jail.left_over()


def test_limits_are_positive() -> None:
    with pytest.raises(ValueError, match="processes must be at least 1"):
        Limits(processes=0)
    assert {"RLIMIT_CORE": 0} == Limits(
        memory_bytes=None, processes=None, file_bytes=None, cpu_seconds=None
    ).resources()


# --- the shim and the choice ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        "no json",
        "{}",
        json.dumps({"limits": {"RLIMIT_NONE": 1}, "writable": None, "network": True, "filter": ""}),
        json.dumps({"limits": {}, "writable": ["/proc/self/mem/x"], "network": True, "filter": ""}),
        json.dumps({"limits": {}, "writable": None, "network": True, "filter": "ff" * 8}),
    ],
)
def test_nothing_is_run_where_the_sandbox_can_not_be_set_up(plan: str) -> None:
    argv = [sys.executable, "-I", "-S", sandbox_shim.__file__, plan, "echo", "unconfined"]
    ended = subprocess.run(argv, capture_output=True, check=False)
    assert (NOT_CONFINED, b"") == (ended.returncode, ended.stdout)
    assert b"nothing was run" in ended.stderr


def test_no_command_can_rewrite_what_confines_the_next_one(jail: Jail) -> None:
    argv = jail.sandbox.wrap(["true"], workspace=jail.workspace, tmp=jail.results)
    files = (sandbox_shim.__file__, sys.executable)
    assert [] == [file for file in files if file in argv and os.path.realpath(file) != file]
    assert sandbox_shim.__file__ not in argv


def test_a_program_that_is_missing_is_named() -> None:
    plan = json.dumps({"limits": {}, "writable": None, "network": True, "filter": ""})
    argv = [sys.executable, "-I", "-S", sandbox_shim.__file__, plan, "no-such-program"]
    ended = subprocess.run(argv, capture_output=True, check=False)
    assert NOT_FOUND == ended.returncode
    assert b"can't run no-such-program: No such file or directory" in ended.stderr


def test_off_is_no_sandbox_and_required_insists() -> None:
    assert choose_sandbox(SandboxPolicy.OFF) is None
    assert choose_sandbox(SandboxPolicy.AUTO, kind=SandboxKind.NONE) is None
    with pytest.raises(ConfigError, match="install bubblewrap"):
        choose_sandbox(SandboxPolicy.REQUIRED, kind=SandboxKind.NONE)


def test_a_trial_finds_what_works_here() -> None:
    assert next((kind for kind in KINDS if usable(kind)), SandboxKind.NONE) is probe()


def test_the_statement_says_what_is_confined_and_what_is_not() -> None:
    assert "the sandbox is off" in describe(SandboxPolicy.OFF, None)
    assert "run unconfined" in describe(SandboxPolicy.AUTO, None)
    landlock = Sandbox(kind=SandboxKind.LANDLOCK)
    assert "(landlock)" in describe(SandboxPolicy.AUTO, landlock)
    assert "there is no network" in landlock.describe()
    assert "not confined: reading, the mode, owner and times of files elsewhere" in landlock.describe()
    assert "the network is open" in Sandbox(kind=SandboxKind.BUBBLEWRAP, network=True).describe()


async def test_bash_runs_its_commands_in_the_sandbox(jail: Jail) -> None:
    tool = Bash(sandbox=jail.sandbox)
    ctx = ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=jail.workspace,
        results_dir=jail.results,
        progress=lambda text, data=None: None,
        environ={"PATH": os.environ["PATH"], "SOME_TOKEN": KEY},
    )
    output = await tool.run(tool.parse({"command": f"env; echo x > {jail.outside}/file; echo y > file"}), ctx)
    assert KEY not in str(output.content)
    assert "untouched" == (jail.outside / "file").read_text()
    assert "y\n" == (jail.ws / "file").read_text()
    assert "There is no network" in tool.description
