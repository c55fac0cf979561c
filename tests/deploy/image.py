"""Runs the steps of `deploy/docker/Dockerfile` on a root file system of debootstrap.

``python -m tests.deploy.image FOLDER`` (as root) makes ``FOLDER/root`` and prints the
seconds of each step and the size. Proxy variables and certificates of this machine are
passed to the steps. Not covered: layers, the base image itself, networks and limits of
containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PASSED = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
PASSED += ("NO_PROXY", "PIP_DEFAULT_TIMEOUT")

NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""Mounts and processes of a step end with it."""
# No folder of this machine is mounted: packages would write to it. `{root}` has copies,
# and of the devices those without state.
STEP = """
mount -t proc -o ro proc {root}/proc
mount -t tmpfs tmpfs {root}/dev
mkdir {root}/dev/shm
for each in null zero full random urandom; do
  touch {root}/dev/$each
  mount --bind /dev/$each {root}/dev/$each
done
chmod 1777 {root}/dev/shm
exec chroot {user} {root} /bin/sh -c {command}
"""


def instructions(file: Path = DOCKERFILE) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile in order, with continued lines joined."""
    lines = [
        line
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    text = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return [(name.upper(), " ".join(value.split())) for name, value in pairs]


class Image:
    """A root file system and what a container's configuration would hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        }
        self.args: dict[str, str] = {}
        self.user = ""
        self.folder = "/"
        self.command: dict[str, list[str]] = {}

    def follow(self, name: str, value: str) -> None:
        """Follow one instruction of a Dockerfile."""
        if name == "ARG":
            key, _, default = value.partition("=")
            self.args.setdefault(key, default)
        elif name == "ENV":
            for each in shlex.split(value):
                key, _, text = each.partition("=")
                self.env[key] = self._filled(text)
        elif name == "WORKDIR":
            self.folder = value
            self._inside(value).mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            self.user = value
        elif name == "COPY":
            self._copy(*self._filled(value).split())
        elif name == "RUN":
            self.run(value)
        elif name in ("ENTRYPOINT", "CMD"):
            self.command[name] = json.loads(value)
        elif name not in ("FROM", "VOLUME"):
            raise ValueError(f"{name} is not followed here")

    def run(self, command: str, **more: str) -> None:
        """Run a shell command in the image; raise if it fails."""
        certificates = self._inside("/root-certificates.crt")
        shutil.copy(CERTIFICATES, certificates)
        shutil.copy("/etc/resolv.conf", self._inside("/etc/resolv.conf"))
        passed = {key: os.environ[key] for key in PASSED if key in os.environ}
        passed["PIP_CERT"] = "/root-certificates.crt"
        script = STEP.format(
            root=shlex.quote(str(self.root)),
            user=f"--userspec={self.user}" if self.user else "",
            command=shlex.quote(f"cd {self.folder} && {command}"),
        )
        home = {"HOME": "/home/xnq" if self.user else "/root"}
        subprocess.run(
            [*NAMESPACE, "sh", "-ec", script],
            check=True,
            env=passed | home | self.env | more,
        )
        certificates.unlink()

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _filled(self, text: str) -> str:
        known = {**self.args, **self.env}
        return re.sub(r"\$\{?(\w+)\}?", lambda name: known[name[1]], text)

    def _copy(self, *words: str) -> None:
        """Copy tracked files of the repository."""
        *sources, target = words
        into = self._inside(os.path.join(self.folder, target))
        for source in sources:
            for file in _tracked(source):
                inner = file.relative_to(source) if str(file) != source else None
                place = into / (inner or file.name)
                if inner is None and not target.endswith("/"):
                    place = into
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, place)


def _tracked(path: str) -> Iterator[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", path]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    found = [Path(line) for line in listed.stdout.splitlines()]
    if not found:
        raise FileNotFoundError(path)
    yield from (file for file in found if (ROOT / file).exists())


def make_root(root: Path) -> None:
    """The base: Debian's, with no package beyond the required ones."""
    command = ["debootstrap", "--variant=minbase", "bookworm", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def log(line: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def build(folder: Path) -> Image:
    """Make the image's root file system in ``folder/root``; print time and size."""
    image = Image(folder / "root")
    began = time.monotonic()
    if not (image.root / "bin" / "sh").exists():
        make_root(image.root)
    log(f"base: {time.monotonic() - began:.0f} s")
    for name, value in instructions():
        began = time.monotonic()
        image.follow(name, value)
        if name == "RUN":
            log(f"{value[:60]}: {time.monotonic() - began:.0f} s")
    du = subprocess.run(
        ["du", "-sm", str(image.root)], check=True, capture_output=True, text=True
    )
    log(f"{du.stdout.split()[0]} MiB")
    return image


if __name__ == "__main__":
    build(Path(sys.argv[1]))
