"""Sections of the settings on where the work runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.settings.section import CountOrAuto, Section, SizeOrAuto

__all__ = [
    "ClusterSettings",
    "SlurmSettings",
]

Line = Annotated[str, Field(pattern=r"^[^\n\r]+$")]

Name = Annotated[str, Field(pattern=r"^[^\s'\"$`;&|<>]+$")]


class SlurmSettings(Section):
    """Jobs of the workers (cluster.kind=slurm)."""

    directives: tuple[Line, ...] = ()
    """options of sbatch, such as [--partition=short, --account=lab, '--time=4:00:00',
    --exclusive]; a job that reaches its time limit is replaced"""
    setup: tuple[Line, ...] = ()
    """shell commands of each job before its worker starts, such as [module load gcc]"""
    folder: Name | None = None
    """folder that this machine and the jobs share, for the certificates of a run, which
    only you can read, and the logs of its jobs; both are removed at the end; null: your
    home directory"""
    wait: float = Field(3600.0, gt=0)
    """seconds to wait until all jobs have started"""


class ClusterSettings(Section):
    """Where the work runs."""

    kind: Annotated[str, AfterValidator(CLUSTERS.check)] = Field(
        "auto", json_schema_extra=CLUSTERS.offer
    )
    """where workers run"""
    workers: CountOrAuto = "auto"
    """number of workers (local, slurm); 1 with kind=auto: this process"""
    threads: CountOrAuto = "auto"
    """threads of each worker (local, slurm)"""
    address: str | None = None
    """address of the scheduler (kind=address)"""
    tls_ca: str | None = None
    """certificate file of the authority that signed the cluster's certificates (for a
    tls:// address)"""
    tls_cert: str | None = None
    """certificate file of this client (for a tls:// address)"""
    tls_key: str | None = None
    """key file of this client (for a tls:// address)"""
    memory_limit: SizeOrAuto = "auto"
    """memory of each worker (local, slurm), such as '8 GiB'"""
    timeout: float = Field(60.0, gt=0)
    """seconds to wait for the scheduler and the first worker, and for a sign of life
    later on"""
    device_memory: SizeOrAuto = "auto"
    """GPU memory that each worker may use"""
    slurm: SlurmSettings = SlurmSettings()

    def faults(self) -> Iterator[str]:
        """What a kind of cluster needs or cannot use."""
        record = CLUSTERS[self.kind]
        if record.queued and "auto" in (self.workers, self.memory_limit):
            yield (
                f"cluster.kind = {self.kind} needs cluster.workers and "
                "cluster.memory_limit: set the number of jobs, and the memory of each "
                "worker"
            )
        running = record.running
        if running and not self.address:
            yield f"cluster.kind = {self.kind} needs cluster.address"
        if not running and self.address:
            yield (
                f"cluster.address is set but cluster.kind = {self.kind}: "
                "set cluster.kind = address"
            )
        address = self.address or ""
        if "@" in address:
            yield (
                "cluster.address takes no user name or password: set it to "
                "tls://host:port, and cluster.tls_ca, tls_cert and tls_key to the "
                "certificates"
            )
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not (all(files) and address.startswith("tls://")):
            yield (
                "cluster.tls_ca, cluster.tls_cert and cluster.tls_key belong together: "
                "set all three, with cluster.kind = address and cluster.address = "
                "tls://host:port (local clusters create their credentials)"
            )
