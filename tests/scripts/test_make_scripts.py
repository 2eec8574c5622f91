"""The scripts that the Makefile calls on a bare machine: what they find, and what they say when they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def bare_path(folder: Path, **programs: str) -> Path:
    """A PATH of its own: a shell's few tools (no apt-get), and the given programs as shell scripts."""
    folder.mkdir()
    for tool in ("sh", "id", "dirname", "chmod"):
        if tool not in programs:
            (folder / tool).symlink_to(str(shutil.which(tool)))
    for name, text in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return folder


def call(script: str, *arguments: object, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, env={"PATH": str(path), **environment}, capture_output=True, text=True)


def test_a_browser_on_path_is_taken(tmp_path: Path) -> None:
    path = bare_path(tmp_path / "bin", google_chrome="exit 0")
    done = call("ensure-chromium", path=path)
    assert (done.returncode, done.stdout.strip()) == (0, str(path / "google-chrome"))


def test_the_browser_that_is_named_is_taken(tmp_path: Path) -> None:
    path = bare_path(tmp_path / "bin", chromium="exit 0", mine="exit 0")
    done = call("ensure-chromium", path=path, CHROMIUM=str(path / "mine"))
    assert (done.returncode, done.stdout.strip()) == (0, str(path / "mine"))


@pytest.mark.parametrize(
    ("script", "package"), [("ensure-chromium", "chromium"), ("ensure-postgres", "postgresql")]
)
def test_a_missing_package_is_named_with_exit_2(tmp_path: Path, script: str, package: str) -> None:
    if script == "ensure-postgres" and list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        text = (SCRIPTS / script).read_text().replace("/usr/lib/postgresql", str(tmp_path / "none"))
        (tmp_path / script).write_text(text)
        (tmp_path / script).chmod(0o755)
        script = str(tmp_path / script)
    done = call(script, path=bare_path(tmp_path / "bin"))
    assert done.returncode == 2
    assert f"package {package}" in done.stderr
    assert done.stdout == ""


def test_root_installs_the_package_with_apt_get(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    log = tmp_path / "log"
    make = f"echo '#!/bin/sh' > {folder}/chromium; chmod +x {folder}/chromium"
    apt_get = f'echo "$@" >> {log}; case "$1" in install) {make};; esac'
    bare_path(folder, apt_get=apt_get, id="echo 0")
    done = call("ensure-chromium", path=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "chromium")
    first, second = log.read_text().splitlines()
    assert first == "update"
    assert second.startswith("install")
    assert second.endswith("chromium")


def test_an_old_python_is_refused_with_a_sentence(tmp_path: Path) -> None:
    old = 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac'
    path = bare_path(tmp_path / "bin", python3=old)
    done = call("make-venv", tmp_path / "venv", path=path)
    assert done.returncode == 2
    assert "needs Python 3.11, 3.12 or 3.13 and found Python 3.9.2" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_names_the_package(tmp_path: Path) -> None:
    bare = 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac'
    done = call("make-venv", tmp_path / "venv", "python3", path=bare_path(tmp_path / "bin", python3=bare))
    assert done.returncode == 2
    assert "python3-venv" in done.stderr


def test_a_named_interpreter_is_used(tmp_path: Path) -> None:
    mine = f'case "$1" in -m) echo "$@" > {tmp_path}/called;; *) exit 0;; esac'
    path = bare_path(tmp_path / "bin", mine=mine)
    done = call("make-venv", tmp_path / "venv", "mine", path=path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "called").read_text().split() == ["-m", "venv", str(tmp_path / "venv")]


def test_every_target_of_the_makefile_is_known_to_make() -> None:
    root = SCRIPTS.parent
    for target in ("demo", "test", "test-slow", "test-gpu", "lint", "docs", "dashboard", "clean"):
        done = subprocess.run(
            ["make", "-n", target], cwd=root, capture_output=True, text=True, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr


def test_a_command_runs_with_the_multi_process_service_which_ends_with_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    control = (
        f'if [ "${{1:-}}" = -d ]; then echo start >> {told}; else read order; echo "$order" >> {told}; fi'
    )
    path = bare_path(tmp_path / "bin", nvidia_cuda_mps_control=control)
    for tool in ("mktemp", "rm"):
        (path / tool).symlink_to(str(shutil.which(tool)))
    asked = 'test -d "$CUDA_MPS_PIPE_DIRECTORY" && echo "$CUDA_MPS_PIPE_DIRECTORY" && exit 7'
    done = call("with-mps", "sh", "-c", asked, path=path)
    assert done.returncode == 7, done.stderr
    assert told.read_text().split() == ["start", "quit"]
    assert not Path(done.stdout.strip()).exists()


def test_without_the_multi_process_service_the_command_does_not_run(tmp_path: Path) -> None:
    done = call("with-mps", "sh", "-c", "echo ran", path=bare_path(tmp_path / "bin"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "nvidia-cuda-mps-control" in done.stderr
    failing = bare_path(tmp_path / "failing", nvidia_cuda_mps_control="exit 1")
    (failing / "mktemp").symlink_to(str(shutil.which("mktemp")))
    done = call("with-mps", "sh", "-c", "echo ran", path=failing)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did not start" in done.stderr
