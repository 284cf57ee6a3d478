"""The broker's class path: Apache Kafka's published jars, copied by Maven (pom.xml)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from deploy.kafka.java import ensure_java, java_home
from deploy.owned_process import MissingTool

POM = Path(__file__).with_name("pom.xml")
BUILD = Path(__file__).resolve().parents[2] / "build" / "kafka"
_MARK = ".pom-sha256"


def kafka_version() -> str:
    """The version named in pom.xml."""
    found = re.search(
        r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<", POM.read_text(encoding="utf-8")
    )
    assert found, "pom.xml names no Kafka version"  # noqa: S101
    return found.group(1)


def _wanted() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()


def fetched(build: Path = BUILD) -> bool:
    """Whether the jars of this very pom.xml are there, complete."""
    mark = build / "libs" / _MARK
    return mark.is_file() and mark.read_text(encoding="ascii") == _wanted()


def fetch(build: Path = BUILD) -> Path:
    """Copy the jars into `build`/libs unless they are there; returns that folder.

    They are collected beside it and moved into place complete, so that neither an interrupted
    run nor two at once can leave half a class path.
    """
    libs = build / "libs"
    if fetched(build):
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingTool("Maven is missing, it fetches Kafka's jars: run `apt-get install maven`")
    java = ensure_java(build)
    fresh = build / f"libs-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    started = time.monotonic()
    command = [
        maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
        f"-DoutputDirectory={fresh}", "-DincludeScope=runtime",
    ]  # fmt: skip
    print(f"fetching Apache Kafka {kafka_version()} with Maven (43 MB) …", file=sys.stderr)
    output = _run(command, {**os.environ, "JAVA_HOME": str(java_home(java))}, started)
    jars = list(fresh.glob("*.jar"))
    if not any(jar.name.startswith("kafka_2.13-") for jar in jars):
        shutil.rmtree(fresh, ignore_errors=True)
        errors = [line for line in output.splitlines() if "ERROR" in line] or ["no jars arrived"]
        raise MissingTool(f"Kafka's jars are missing, Maven cannot fetch them: {errors[0].strip()}")
    (fresh / _MARK).write_text(_wanted(), encoding="ascii")
    shutil.rmtree(libs, ignore_errors=True)
    try:
        fresh.rename(libs)
    except OSError:  # another run was first
        shutil.rmtree(fresh, ignore_errors=True)
    took = time.monotonic() - started
    print(f"fetched {len(jars)} jars in {took:.1f} s", file=sys.stderr)
    return libs


def _run(command: list[str], env: dict[str, str], started: float) -> str:
    child = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        while True:
            try:
                return child.communicate(timeout=1)[0]
            except subprocess.TimeoutExpired:
                if sys.stderr.isatty():
                    took = time.monotonic() - started
                    print(f"\r  Maven at work, {took:.0f} s ", end="", file=sys.stderr, flush=True)
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
