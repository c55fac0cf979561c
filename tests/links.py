"""A separate network behind a link that tests can interrupt."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Link", "NoLink", "linked"]


class NoLink(Exception):  # noqa: N818 - a reason to skip, not an error
    """No network namespace can be made on this machine; the text is the reason."""


class Link:
    """A pair of virtual devices, one of them in a network namespace."""

    def __init__(self) -> None:
        self._name = f"xnq{secrets.token_hex(4)}"
        subnet = f"10.{secrets.randbelow(128) + 100}.{secrets.randbelow(256)}"
        self.near, self.far = f"{subnet}.1", f"{subnet}.2"
        self.beyond = ("ip", "netns", "exec", self._name)
        """Words before a command that is to run at the far end."""

    def make(self) -> None:
        """Make both ends."""
        _ip("netns", "add", self._name)
        peer = ("peer", "name", "far0", "netns", self._name)
        _ip("link", "add", self._name, "type", "veth", *peer)
        _ip("addr", "add", f"{self.near}/24", "dev", self._name)
        _ip("-n", self._name, "addr", "add", f"{self.far}/24", "dev", "far0")
        _ip("link", "set", self._name, "up")
        for device in ("far0", "lo"):
            _ip("-n", self._name, "link", "set", device, "up")

    def cut(self) -> None:
        """Drop all packets, without notice to either end."""
        _ip("link", "set", self._name, "down")

    def remove(self) -> None:
        """Remove both ends."""
        subprocess.run(["ip", "link", "del", self._name], capture_output=True)
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True)


@contextmanager
def linked() -> Iterator[Link]:
    """Make a link; removed again after the block.

    Raises
    ------
    NoLink
        Where this is not permitted.
    """
    link = Link()
    try:
        try:
            link.make()
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            raise NoLink(f"no network namespace: {said.decode().strip()}") from error
        yield link
    finally:
        link.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
