"""An S3 server on loopback, in a new process, for tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3

__all__ = ["Key", "ObjectStore", "serving"]

REGION = "us-east-1"
_ADDRESS = re.compile(r"Running on http://([\d.]+:\d+)")
_REQUEST = re.compile(r'"([A-Z]+) /([^ ?]*)[^ ]* HTTP')


@dataclass(frozen=True)
class Key:
    """Credentials of a user of the store."""

    name: str
    secret: str = field(repr=False)


ANYBODY = Key("TESTKEY", "TESTSECRET")
"""The server takes any key but within `ObjectStore.checking_keys`."""


@cache
def _client(address: str, service: str, key: Key) -> Any:
    return boto3.client(
        service,
        endpoint_url=f"http://{address}",
        region_name=REGION,
        aws_access_key_id=key.name,
        aws_secret_access_key=key.secret,
    )


@dataclass(frozen=True)
class ObjectStore:
    """A running server and its requests."""

    address: str
    log: Path

    def uri(self, path: str, key: Key = ANYBODY) -> str:
        """Address of a bucket or what lies in it, with the key in it."""
        query = f"endpoint_override={self.address}&scheme=http&region={REGION}"
        return f"s3://{key.name}:{quote(key.secret, safe='')}@{path}?{query}"

    def boto(self, service: str = "s3", key: Key = ANYBODY) -> Any:
        """A client of Amazon's library, independent of our code."""
        return _client(self.address, service, key)

    def put(self, path: str, data: bytes) -> str:
        """Write an object; its ETag."""
        bucket, _, name = path.partition("/")
        return str(self.boto().put_object(Bucket=bucket, Key=name, Body=data)["ETag"])

    def get(self, path: str) -> bytes:
        """An object in one request, as it is at one moment."""
        bucket, _, name = path.partition("/")
        return bytes(self.boto().get_object(Bucket=bucket, Key=name)["Body"].read())

    def names(self, path: str) -> list[str]:
        """Names of the objects whose path begins so, without that beginning.

        Empty objects that stand for folders are left out.
        """
        bucket, _, prefix = path.partition("/")
        pages = self.boto().get_paginator("list_objects_v2")
        return [
            found["Key"].removeprefix(prefix)
            for page in pages.paginate(Bucket=bucket, Prefix=prefix)
            for found in page.get("Contents", ())
            if not found["Key"].endswith("/")
        ]

    def upload(self, file: Path | str, path: str) -> None:
        """Copy a file to the store."""
        self.put(path, Path(file).read_bytes())

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request so far."""
        return _REQUEST.findall(self.log.read_text())

    def user(self, name: str, *actions: str) -> Key:
        """A new user who may do these; to be made outside `checking_keys`."""
        iam = self.boto("iam")
        iam.create_user(UserName=name)
        rights = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = {"Version": "2012-10-17", "Statement": [rights]}
        iam.put_user_policy(
            UserName=name, PolicyName="rights", PolicyDocument=json.dumps(policy)
        )
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return Key(made["AccessKeyId"], made["SecretAccessKey"])

    @contextmanager
    def checking_keys(self) -> Iterator[None]:
        """Signatures and rights are checked while the block runs."""
        self._requests_without_key("0")
        try:
            yield
        finally:
            self._requests_without_key("inf")

    def _requests_without_key(self, count: str) -> None:
        request = urllib.request.Request(
            f"http://{self.address}/moto-api/reset-auth",
            data=count.encode(),
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - loopback


@contextmanager
def serving(folder: Path) -> Iterator[ObjectStore]:
    """A server with an empty bucket named ``bucket``; its log goes to the folder."""
    log = folder / "requests.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stdout=stream, stderr=stream) as process,
    ):
        try:
            end = time.monotonic() + 60
            while not (found := _ADDRESS.search(log.read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no S3 server: {log.read_text()[-2000:]}")
                time.sleep(0.05)
            store = ObjectStore(found[1], log)
            store.boto().create_bucket(Bucket="bucket")
            yield store
        finally:
            process.kill()
