"""A SLURM cluster of one node without systemd, in a folder and on ports of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import free_port

__all__ = ["missing", "slurm_cluster"]

CPUS = 6
"""Of the node, as SLURM sees it; jobs share the processors of the machine."""

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1
ReturnToService=2
MpiDefault=none
KillWait=20
MinJobAge=300
BatchStartTimeout=60
SlurmctldTimeout=300
SlurmdTimeout=300
RebootProgram=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=20000 State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "scancel",
    "squeue",
    "sinfo",
    "setpriv",
)


def missing() -> str:
    """Why no cluster can be started here; empty if one can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "SLURM's daemons need root"


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start munged, slurmctld, slurmd; yield the environment for SLURM's commands."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    controller, node = free_port(), free_port()
    values = {"host": host, "folder": folder, "cpus": CPUS}
    text = CONFIGURATION.format(controller=controller, node=node, **values)
    configuration = folder / "slurm.conf"
    configuration.write_text(text)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "PATH": _path(),
    }
    with ExitStack() as started:

        def daemon(*command: str) -> None:
            log = started.enter_context((folder / f"{command[0]}.out").open("wb"))
            process = subprocess.Popen(
                # Killed tests leave no daemons behind.
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Signals of a terminal would reach it before the tests end.
                start_new_session=True,
            )
            started.callback(_stop, process)

        daemon(
            "munged",
            *("--foreground", "--force", "--num-threads=2"),
            *(f"--key-file={key}", f"--socket={folder}/munge.socket"),
            *(f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"),
            f"--seed-file={folder}/munged.seed",
        )
        _until(lambda: (folder / "munge.socket").exists(), folder)
        daemon("slurmctld", "-D", "-i", "-f", str(configuration))
        daemon("slurmd", "-D", "-f", str(configuration))

        def call(*command: str) -> str:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            ).stdout

        _until(lambda: "idle" in call("sinfo", "--noheader", "--format=%T"), folder)
        try:
            yield environment
        finally:
            call("scancel", "--full", "--user=root")
            _until(lambda: not call("squeue", "--noheader").strip(), folder)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _until(holds: object, folder: Path) -> None:
    end = time.monotonic() + 120
    while not holds():  # type: ignore[operator]
        if time.monotonic() > end:
            logs = "\n".join(
                f"{file.name}: {file.read_text(errors='replace')[-1500:]}"
                for file in folder.glob("*.[lo]*")
            )
            raise TimeoutError(f"SLURM does not get there:\n{logs}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
