"""How workers are submitted to SLURM: names, defaults and meaning of each key."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from xnq_dist.core.section import Section

__all__ = ["SlurmSettings"]

Line = Annotated[str, Field(pattern=r"^[^\n\r]+$")]
Word = Annotated[str, Field(pattern=r"^[^\s'\"$`;&|<>]+$")]


class SlurmSettings(Section):
    """Jobs of the workers (cluster.kind=slurm)."""

    queue: Word | None = Field(
        None, description="partition of the jobs; null: SLURM's default"
    )
    account: Word | None = Field(
        None, description="account of the jobs; null: SLURM's default"
    )
    walltime: Word | None = Field(
        None,
        description="time limit of each job, such as 4:00:00; a job that reaches it is "
        "replaced; null: the partition's limit",
    )
    directives: tuple[Line, ...] = Field(
        (), description="further options of sbatch, such as [--exclusive, --qos=low]"
    )
    setup: tuple[Line, ...] = Field(
        (),
        description="shell commands of each job before its worker starts, such as "
        "[module load gcc]",
    )
    interface: Word | None = Field(
        None,
        description="network interface of the scheduler and the workers, such as ib0; "
        "null: the one with the default route",
    )
    folder: Word | None = Field(
        None,
        description="folder that this machine and the jobs share, for the certificates "
        "of a run, which only you can read, and the logs of its jobs; both are removed "
        "at the end; null: your home directory",
    )
    wait: float = Field(
        3600.0, gt=0, description="seconds to wait until all jobs have started"
    )
