"""What is told of a command without running it, and that bash agrees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atrio.tools.shell_syntax import is_read_only, last_command, simple_commands

READ_ONLY = [
    "ls",
    "ls -la | grep x && git status",
    "cat a.txt b.txt",
    "cat *.py",
    'echo "$HOME" ${x}',
    "echo hi > /dev/null 2>&1",
    "ls 2>/dev/null || true",
    "find . -name '*.py' -type f",
    'echo "$(git log --oneline | head -3)"',
    "echo `ls`",
    "(cd sub; ls)",
    "! grep -q x f",
    "diff <(ls a) <(ls b)",
    "cat < in.txt",
    "grep x <<< 'x y'",
    "[ -f x ] && echo y",
    "git -C sub --no-pager diff HEAD~1 --stat",
    "git branch -a",
    "git show --oneline",
    "git config --get user.name",
    "sed -n '10,20p' f",
    "sort -k2 f | uniq -c",
    "date -u '+%H %M'",
    "command -v python",
    "ls # > f",
    "ls \\\n -l",
    "echo a\necho b",
    "rg -n 'a b' src",
    "env",
    "wc -l < f",
]

NOT_READ_ONLY = [
    "",
    "   ",
    "# only a comment",
    "rm x",
    "unknown",
    "./ls",
    "echo x > f",
    "echo x >> f",
    "echo x >| f",
    "echo x &> f",
    "echo x >& f",
    "echo x 2> f",
    "echo x > $target",
    "echo x <> f",
    "> f",
    "(ls) > f",
    "cat $(rm x)",
    'echo "`rm x`"',
    'echo "$\\\n(rm x)"',
    "cat <(rm x)",
    "ls >(tee f)",
    "ls &",
    "$cmd",
    "l{s,x}",
    "PATH=. ls",
    "X=-delete; find . $X",
    "find . -delete",
    "find . -exec rm {} +",
    "find . -{delete,print}",
    "find . '-delete'",
    "find . \\-delete",
    "find . *",
    "find . ''*",
    "find . '-'*",
    "find . \\-*",
    "find . $X",
    "find . -fprintf f x",
    "sort -o f f",
    "sort -no f f",
    "sort --outp=f f",
    "sort --compress-program=sh f",
    "uniq a b",
    "date -s now",
    "date 01010000",
    "env ls",
    "rg --pre sh x",
    "sed -i s/a/b/ f",
    "sed -n 'w f' f",
    "sed -n 1p -i f",
    "tree -o f",
    "file -C -m magic",
    "git",
    "git push",
    "git -c core.pager=sh log",
    "git diff --output=f",
    "git log --outp f",
    "git branch new",
    "git branch -D old",
    "git stash",
    "git config user.name x",
    "git remote add o u",
    "git -C $X status",
    "printf -v PATH .",
    "test -v 'a[$(rm x)]'",
    "hostname new",
    "command rm x",
    "cat < /dev/tcp/127.0.0.1/80",
    "for i in a; do ls; done",
    "if ls; then ls; fi",
    "{ ls; }",
    "[[ -f x ]]",
    "ls() { rm x; }; ls",
    "cat <<EOF\nx\nEOF",
    "echo $((1+1))",
    "echo ${x:=y}",
    "echo $'a'",
    "echo 'open",
    'echo "open',
    "echo $(ls",
    "ls )",
    "ls &&",
    "| ls",
    "ls ;; ls",
    "echo \\",
    "echo \0",
    "time ls",
    "eval ls",
    "ls | sh",
]


@pytest.mark.parametrize("command", READ_ONLY)
def test_a_known_reader_is_read_only(command: str) -> None:
    assert is_read_only(command)


@pytest.mark.parametrize("command", NOT_READ_ONLY)
def test_what_may_change_something_or_is_not_understood_is_not_read_only(command: str) -> None:
    assert not is_read_only(command)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git diff HEAD", ("git diff HEAD",)),
        ("git   diff\t'HEAD'", ("git diff HEAD",)),
        ("r\\m 'a b'", ("rm 'a b'",)),
        ("a && b || c; d | e |& f & g\nh", ("a", "b", "c", "d", "e", "f", "g", "h")),
        ("(a; (b))", ("a", "b")),
        ("! a", ("a",)),
        ('echo "$(a | b)" `c`', ('echo "$(a | b)" `c`', "a", "b", "c")),
        ("a <(b) >(c)", ("a <(b) >(c)", "b", "c")),
        ("git diff > notes.txt", ("git diff", "> notes.txt")),
        ("git diff >> 'my notes' 2>&1", ("git diff", ">> 'my notes'")),
        ("git diff 2>/dev/null", ("git diff",)),
        ("wc -l < in.txt", ("wc -l < in.txt",)),
        ("cat < /dev/tcp/h/1", ("cat", "< /dev/tcp/h/1")),
        ("(a) > f", ("a", "> f")),
        ("X=1 Y=$(a) b c", ("X=1", "Y=$(a)", "b c", "a")),
        ("X=1", ("X=1",)),
        ("echo 'a;b' \"c|d\" e\\&f", ("echo 'a;b' 'c|d' 'e&f'",)),
        ('echo $X "$Y" *.py ~/x', ('echo $X "$Y" *.py ~/x',)),
        ("echo '*'", ("echo '*'",)),
        ("echo ''", ("echo ''",)),
        ("ls # rm", ("ls",)),
        ("echo a#b", ("echo 'a#b'",)),
    ],
)
def test_simple_commands_are_listed_in_one_way_of_writing(command: str, expected: tuple[str, ...]) -> None:
    assert expected == simple_commands(command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "#",
        "$X a",
        "r* a",
        "{ a; }",
        "if a; then b; fi",
        "a <<E\nE",
        "f() { a; }",
        "a 'b",
        "a &&",
        "$'rm' x",
        "x=(1)",
    ],
)
def test_what_is_not_understood_has_no_list_of_commands(command: str) -> None:
    assert simple_commands(command) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("grep x f", "grep x f"),
        ("cat f | grep x", "grep x"),
        ("cd a && LC_ALL=C grep x f 2>/dev/null", "grep x f"),
        ("(cd a; grep x f)", "grep x f"),
        ("grep x f; exit 1", "exit 1"),
        ("echo $(grep x f)", "echo $(grep x f)"),
        ("! grep x f", ""),
        ("grep x f &", ""),
        ("if grep x f; then true; fi", ""),
        ("", ""),
    ],
)
def test_the_last_command_is_the_one_that_sets_the_exit_status(command: str, expected: str) -> None:
    assert expected == last_command(command)


def test_a_very_long_or_deep_command_is_not_understood_rather_than_slow() -> None:
    assert simple_commands("A=1 " * 8_000) is not None
    assert simple_commands("echo " + "x" * 40_000) is None
    assert simple_commands("$(" * 5_000) is None
    assert simple_commands("(" * 5_000) is None


_WORDS = """
echo cat ls a hit touch > >> &> >& 2> ' " \\ $( ) ` # { } & | ; < ( ! 2 && || $ $x ${x} /dev/null = ~ * [ <( <<< - $'
$(( )) x=
"""
_PIECES = st.sampled_from([*_WORDS.split(), " ", "\t", "\n", "\\\n", "touch hit", "> hit"])
_COMMANDS = st.lists(_PIECES, min_size=1, max_size=12).map("".join)


@given(st.text() | _COMMANDS)
def test_nothing_is_raised_and_the_answers_agree(command: str) -> None:
    commands = simple_commands(command)
    assert commands is None or all(commands)
    last_command(command)
    if is_read_only(command):
        assert commands is not None
        assert not any(text.startswith((">", "&>", "<>")) for text in commands)


@given(_COMMANDS, st.sampled_from([">", ">>", ">|", "&>", "<>", "2>", ">&"]))
def test_no_command_that_writes_a_file_is_read_only(command: str, operator: str) -> None:
    plain = "".join(char for char in command if char.isalnum() or char == " ")
    assert not is_read_only(f"echo {plain} {operator} hit")
    assert not is_read_only(f"echo {operator}hit {plain}")


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_COMMANDS)
def test_bash_makes_no_file_of_what_is_called_read_only(tmp_path: Path, command: str) -> None:
    command = f"echo {command}"
    if not is_read_only(command) or not any(piece in command for piece in ("hit", "touch", ">")):
        return
    subprocess.run(
        ["/bin/bash", "-c", "--", command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=10,
        check=False,
    )
    assert [] == list(tmp_path.iterdir())
