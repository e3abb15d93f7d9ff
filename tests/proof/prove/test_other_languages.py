"""Test the docs' example for tests in other languages, with a small command."""

import os
import re
import shutil
from pathlib import Path

import pytest

from ...programs import run_to_end

PAGE = (Path(__file__).parents[3] / "docs/prove.md").read_text(encoding="utf-8")
COMMAND = """#!/bin/sh
[ "$1 $2 $3 $4" = "prove --junit prove.xml --" ] && exit "$CODE"
"""
JAVA = """public class Main {
    static void assertEquals(int a, int b) { if (a != b) System.exit(1); }
    public static void main(String[] given) throws Exception { %s }
}"""
GO = """package main
import "os/exec"
type test struct{}
func (test) Fatal(err error) { panic(err) }
func main() { var t test; %s }
"""
NODE = 'const assert = require("assert"); const { spawnSync } = require("child_process"); %s'
RUST = "use std::process::Command; fn main() { %s }"
WAYS = {
    "JUnit 5": ("Main.java", JAVA, ["java", "Main.java"]),
    "Go": ("main.go", GO, ["go", "run", "main.go"]),
    "Node.js": ("main.js", NODE, ["node", "main.js"]),
    "Rust": ("main.rs", RUST, ["sh", "-c", "rustc -o program main.rs && ./program"]),
}
NEEDS = {"JUnit 5": "java", "Go": "go", "Node.js": "node", "Rust": "rustc"}


@pytest.mark.parametrize("language", WAYS)
def test_docs_page_line_of_each_language_passes_and_fails_with_the_command(
    language: str, tmp_path: Path
) -> None:
    needed = NEEDS[language]
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed")
    if needed == "rustc" and run_to_end([needed, "--version"]).returncode:
        pytest.skip("rustup has no toolchain for this user")
    file, around, command = WAYS[language]
    (line,) = re.findall(rf"^\| {re.escape(language)} \| `(.+)` \|$", PAGE, re.MULTILINE)
    (tmp_path / file).write_text(around % line)
    (tmp_path / "oncelog").write_text(COMMAND)
    (tmp_path / "oncelog").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for code in (0, 1):
        environment = {**os.environ, "PATH": path, "CODE": str(code)}
        done = run_to_end(command, cwd=tmp_path, env=environment)
        assert (done.returncode == 0) == (code == 0), done.stderr
