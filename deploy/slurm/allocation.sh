#!/bin/bash
#SBATCH --job-name=xnq-dist --ntasks=2 --cpus-per-task=4 --mem-per-cpu=4G --time=4:00:00
#SBATCH --signal=B:TERM@120 --requeue --open-mode=append
# Scheduler, workers and client in one allocation: sbatch allocation.sh run --nodes ... --edges ... --out ...
umask 077; tls=$(mktemp -d "$HOME/xnq-dist-XXXXXX"); clean() { kill $(jobs -p) 2>/dev/null; rm -rf "$tls"; }; trap clean EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=dask -keyout "$tls/key" -out "$tls/cert" 2>/dev/null
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$tls/cert DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
for role in SCHEDULER WORKER CLIENT; do export DASK_DISTRIBUTED__COMM__TLS__${role}__{CERT="$tls/cert",KEY="$tls/key"}; done
export DASK_DISTRIBUTED__WORKER__MEMORY__{TARGET,SPILL,PAUSE}=False DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False MALLOC_MMAP_MAX_=0 MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=-1
address=tls://$(hostname):$((20000 + SLURM_JOB_ID % 20000))
dask scheduler --host "$address" --no-dashboard &
# A quarter of the memory is left for the client and the scheduler.
srun dask worker "$address" --nthreads "$SLURM_CPUS_PER_TASK" --no-dashboard \
  --memory-limit "$((SLURM_MEM_PER_CPU * SLURM_CPUS_PER_TASK * 3 / 4))MiB" &
xnq-dist "$@" --set cluster.kind=address --set cluster.address="$address" & client=$!
trap 'kill -TERM $client 2>/dev/null' TERM  # sent two minutes before the time limit
wait $client; status=$?
while kill -0 $client 2>/dev/null; do wait $client; status=$?; done
# Interrupted, or workers were lost, and not cancelled: start this job again, which resumes.
if [ $status = 4 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
  clean  # a job that is queued again may be killed before its trap
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
