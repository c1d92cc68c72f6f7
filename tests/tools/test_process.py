"""A command is run, and whichever way it ends, nothing of it is left: no process, no zombie, no descriptor."""

from __future__ import annotations

import math
import os
import signal
import uuid
from pathlib import Path

import pytest
import trio
import trio.testing

from atrio.tools.process import GRACE, CommandNotStarted, Ended, TakeOutput, run_command
from atrio.tools.reaper import TOKEN_VARIABLE, ProcessTree

DAEMON = "(setsid sh -c 'echo $$ >> pids; exec sleep 7531' >/dev/null 2>&1 </dev/null &)"
"""Double-forked and in a session of its own: neither parent nor group nor session lead to it."""

STUBBORN = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.05; done"

AWAIT_PIDS = "while ! test -s pids; do sleep 0.01; done"

BOUND = 0.5
"""Seconds on top of the limits under test, for a machine under load."""


class Scene:
    """One folder, one environment with a mark of its own, and the output so far."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.mark = uuid.uuid4().hex
        self.output = b""
        self.wrote = trio.Event()

    async def take(self, chunk: bytes) -> None:
        self.output += chunk
        self.wrote.set()

    async def run(
        self,
        script: str,
        *,
        grace: float = GRACE,
        stdin: bytes | None = None,
        on_errors: TakeOutput | None = None,
    ) -> Ended:
        return await run_command(
            ["/bin/sh", "-c", script],
            cwd=self.cwd,
            env={"PATH": os.environ["PATH"], TOKEN_VARIABLE: self.mark},
            on_output=self.take,
            on_errors=on_errors,
            stdin=stdin,
            grace=grace,
        )

    async def run_until_it_writes(self, script: str, *, grace: float = GRACE, stdin: bytes | None = None) -> float:
        """Cancel it once it has written something. How long the cancellation took."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_only, script, grace, stdin)
            await self.wrote.wait()
            nursery.cancel_scope.cancel()
            start = trio.current_time()
        return trio.current_time() - start

    async def _run_only(self, script: str, grace: float, stdin: bytes | None) -> None:
        await self.run(script, grace=grace, stdin=stdin)

    def left(self) -> list[str]:
        """Processes with our mark that still run."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if self.mark in (entry / "environ").read_text(errors="replace"):
                    found.append((entry / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
        return found

    def pids(self) -> list[int]:
        return [int(line) for line in (self.cwd / "pids").read_text().split()]


def children() -> list[str]:
    """Our own children, zombies included."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue
        if text.rpartition(")")[2].split()[1] == str(os.getpid()):
            found.append(text)
    return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def is_alive(pid: int) -> bool:
    """A zombie is not; when it vanishes is up to process 1."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def assert_nothing_is_left(scene: Scene) -> None:
    assert [] == scene.left()
    assert [] == children()


async def test_output_and_errors_come_in_order_and_the_status_is_told(scene: Scene) -> None:
    ended = await scene.run("echo a; echo b >&2; echo c; exit 3")
    assert Ended(status=3) == ended
    assert b"a\nb\nc\n" == scene.output
    assert_nothing_is_left(scene)


async def test_standard_input_is_empty(scene: Scene) -> None:
    assert Ended(status=1) == await scene.run("cat; read x")


# --- what it is given to read, and errors apart ----------------------------------------------------


async def test_a_command_reads_what_it_is_given_and_its_errors_go_their_own_way(scene: Scene) -> None:
    errors = b""

    async def take_errors(chunk: bytes) -> None:
        nonlocal errors
        await trio.lowlevel.checkpoint()
        errors += chunk

    data = bytes(range(256)) * 4_000
    ended = await scene.run("cat; echo bad >&2", stdin=data, on_errors=take_errors)
    assert Ended(status=0) == ended
    assert data == scene.output
    assert b"bad\n" == errors
    assert_nothing_is_left(scene)


async def test_no_input_at_all_is_an_end_of_file(scene: Scene) -> None:
    assert Ended(status=0) == await scene.run("cat", stdin=b"")


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; echo; exit 0", "head -c 10 >/dev/null", "sleep 7546 & exit 0"])
async def test_input_that_nobody_reads_hinders_nothing(scene: Scene, script: str) -> None:
    before = count_descriptors()
    with trio.fail_after(2):
        ended = await scene.run(script, stdin=b"x" * 1_000_000)
    assert ended.status == 0
    assert before == count_descriptors()
    assert_nothing_is_left(scene)


async def test_cancelling_while_input_waits_to_be_read_ends_all(scene: Scene) -> None:
    before = count_descriptors()
    assert await scene.run_until_it_writes("echo go; sleep 7547", stdin=b"x" * 1_000_000) < BOUND
    assert before == count_descriptors()
    assert_nothing_is_left(scene)


# --- the process and its tree ---------------------------------------------------------------------


async def test_the_command_leads_a_session_of_its_own(scene: Scene) -> None:
    await scene.run("cut -d' ' -f6 /proc/$$/stat; echo $$")
    session, pid = scene.output.split()
    assert session == pid


async def test_a_signal_is_told_apart_from_a_status(scene: Scene) -> None:
    assert Ended(status=None, signal=signal.SIGSEGV) == await scene.run("kill -SEGV $$")


async def test_output_larger_than_the_pipe_is_complete(scene: Scene) -> None:
    assert Ended(status=0) == await scene.run("head -c 3000000 /dev/zero")
    assert 3_000_000 == len(scene.output)


async def test_a_background_process_that_holds_the_pipe_does_not_hang_the_call(scene: Scene) -> None:
    start = trio.current_time()
    ended = await scene.run("sleep 7532 & echo done")
    assert trio.current_time() - start < 0.2 + BOUND
    assert Ended(status=0, stopped=("sleep",)) == ended
    assert b"done\n" == scene.output
    assert_nothing_is_left(scene)


async def test_output_of_the_background_that_comes_at_once_is_taken(scene: Scene) -> None:
    assert Ended(status=0) == await scene.run("(sleep 0.02; echo late) & echo done")
    assert b"done\nlate\n" == scene.output


async def test_a_daemon_is_stopped_when_its_command_ends(scene: Scene) -> None:
    ended = await scene.run(f"{DAEMON}; {AWAIT_PIDS}")
    assert ended.status == 0
    assert 1 == len(ended.stopped)
    assert 1 == len(scene.pids())
    assert_nothing_is_left(scene)


async def test_a_daemon_that_has_just_been_started_is_found(scene: Scene) -> None:
    for _ in range(10):
        ended = await scene.run("(setsid setsid setsid sleep 7533 >/dev/null 2>&1 </dev/null &)")
        assert ended.stopped
        assert_nothing_is_left(scene)


@pytest.mark.slow
async def test_a_background_process_that_ignores_the_request_is_killed(scene: Scene) -> None:
    ended = await scene.run(f'setsid sh -c "{STUBBORN.replace("$", chr(92) + "$")}" & {AWAIT_PIDS}')
    assert ended.status == 0
    assert "sh" in ended.stopped
    assert_nothing_is_left(scene)


async def test_cancelling_ends_the_whole_tree_at_once(scene: Scene) -> None:
    script = f"{DAEMON}; sleep 7534 | sleep 7535 & {AWAIT_PIDS}; echo go; sleep 7536"
    assert await scene.run_until_it_writes(script) < BOUND
    assert_nothing_is_left(scene)


async def test_a_time_limit_ends_the_whole_tree(scene: Scene) -> None:
    with trio.move_on_after(0.15) as limit:
        await scene.run(f"{DAEMON}; {AWAIT_PIDS}; echo partial; sleep 7537")
    assert limit.cancelled_caught
    assert scene.output.startswith(b"partial\n")  # a shell may add that it was terminated
    assert_nothing_is_left(scene)


@pytest.mark.slow
async def test_a_process_that_ignores_the_request_is_killed_after_its_grace(scene: Scene) -> None:
    took = await scene.run_until_it_writes(f"{STUBBORN.replace('while', 'echo go; while')}", grace=0.3)
    assert 0.3 <= took < 0.3 + 0.2 + BOUND
    assert_nothing_is_left(scene)


async def test_a_command_may_clean_up_and_its_last_words_are_heard(scene: Scene) -> None:
    words = "head -c 200000 /dev/zero; touch cleaned; exit 0"
    await scene.run_until_it_writes(f"trap '{words}' TERM; echo go; while :; do sleep 0.01; done")
    assert 200_000 == scene.output.count(b"\0")
    assert (scene.cwd / "cleaned").exists()


async def test_a_child_without_our_environment_is_found_through_its_parent(scene: Scene) -> None:
    child = "env -i setsid sh -c 'echo $$ > pids; exec sleep 7538'"
    script = f"{child} & {AWAIT_PIDS}; echo go; wait"
    await scene.run_until_it_writes(script)
    assert not is_alive(scene.pids()[0])


@pytest.mark.slow
async def test_processes_that_keep_forking_and_ending_are_caught(scene: Scene) -> None:
    """Each one lives for some milliseconds, in a session of its own, and its parent is gone by then."""
    (scene.cwd / "hydra").write_text("echo . >> beats; (setsid sh ./hydra >/dev/null 2>&1 &)")
    script = "setsid sh ./hydra; while ! test -s beats; do sleep 0.01; done; echo go; sleep 7539"
    await scene.run_until_it_writes(script)
    assert_nothing_is_left(scene)
    beats = (scene.cwd / "beats").read_text()
    await trio.sleep(0.05)  # not to wait for something, but to see that nothing comes
    assert beats == (scene.cwd / "beats").read_text()


async def test_a_flood_does_not_starve_other_tasks(scene: Scene) -> None:
    gaps: list[float] = []

    async def forget(chunk: bytes) -> None:
        await trio.lowlevel.checkpoint()
        scene.output = chunk[:100]

    async def watch() -> None:
        while True:
            before = trio.current_time()
            await trio.lowlevel.checkpoint()
            await trio.sleep(0.001)
            gaps.append(trio.current_time() - before)

    with trio.move_on_after(0.15):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            env = {"PATH": os.environ["PATH"], TOKEN_VARIABLE: scene.mark}
            await run_command(["yes"], cwd=scene.cwd, env=env, on_output=forget)
    assert len(gaps) > 20
    assert max(gaps) < 0.1
    assert_nothing_is_left(scene)


async def test_no_descriptor_is_left_in_any_way_out(scene: Scene) -> None:
    before = count_descriptors()
    await scene.run("echo a")
    await scene.run("sleep 7540 &")
    with trio.move_on_after(0.02):
        await scene.run("sleep 7541")
    with trio.CancelScope() as scope:
        scope.cancel()
        await scene.run("sleep 7542")
    with pytest.raises(CommandNotStarted):
        await run_command(["/none"], cwd=scene.cwd, env={}, on_output=scene.take)
    assert before == count_descriptors()
    assert_nothing_is_left(scene)


async def test_a_taker_that_fails_ends_the_command(scene: Scene) -> None:
    async def fail(chunk: bytes) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("no room")

    env = {"PATH": os.environ["PATH"], TOKEN_VARIABLE: scene.mark}
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="no room")):
        await run_command(["yes"], cwd=scene.cwd, env=env, on_output=fail)
    assert_nothing_is_left(scene)


async def test_many_commands_at_once_keep_apart(scene: Scene) -> None:
    ends: list[Ended] = []

    async def one(number: int) -> None:
        ends.append(await scene.run(f"sleep 0.0{number}; exit {number}"))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(one, number)
    assert list(range(8)) == sorted(end.status or 0 for end in ends)
    assert [] == [name for end in ends for name in end.stopped]


async def test_a_command_within_a_command_is_found_by_both(scene: Scene) -> None:
    await scene.run(f"echo ${TOKEN_VARIABLE}")
    outer, _, inner = scene.output.decode().strip().partition(":")
    assert scene.mark == outer
    assert 32 == len(inner)


@pytest.mark.parametrize(
    ("argv", "folder", "reason"),
    [
        (["/none/such"], ".", "No such file or directory"),
        (["/bin/sh"], "gone", r"No such file or directory \(the working folder\)"),
        (["/bin/sh", "-c", "x" * 3_000_000], ".", "too long; write long text to a file"),
        (["/bin/sh", "-c", "a\0b"], ".", "null byte"),
    ],
)
async def test_what_cannot_be_started_says_why(scene: Scene, argv: list[str], folder: str, reason: str) -> None:
    with pytest.raises(CommandNotStarted, match=f"can't start {argv[0]} in .*{reason}"):
        await run_command(argv, cwd=scene.cwd / folder, env={}, on_output=scene.take)


@pytest.mark.slow  # how soon process 1 buries the orphan is up to it
async def test_without_proc_the_process_group_is_ended(scene: Scene) -> None:
    process = await trio.lowlevel.open_process(["/bin/sh", "-c", "sleep 7543 & sleep 7544"], start_new_session=True)
    tree = ProcessTree(process.pid, "", process.poll)
    tree._started = None
    with trio.fail_after(5):
        stopped = await tree.stop(GRACE)
    assert (f"process group {process.pid}",) == stopped.names
    assert () == stopped.survivors
    assert -signal.SIGTERM == process.returncode


async def test_a_reused_pid_is_not_signalled(scene: Scene) -> None:
    process = await trio.lowlevel.open_process(["sleep", "7545"], start_new_session=True)
    tree = ProcessTree(2**22 + 1, uuid.uuid4().hex, process.poll)
    tree._started = 0
    assert () == (await tree.stop(math.inf)).names
    assert process.poll() is None
    process.kill()
    await process.wait()
