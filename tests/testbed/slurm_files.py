"""Files of a Slurm testbed: configuration, and the script that boots a node."""

from __future__ import annotations

CONF = """\
ClusterName=sl
SlurmctldHost=slctl({controller})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{track}
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait=5
UnkillableStepTimeout=30
MinJobAge=300
TCPTimeout=2
MessageTimeout=10
SlurmdParameters=config_overrides
GresTypes=gpu
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""
CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""
# The machine's /tmp is not the node's, but for the bed's own folder and the program below it.
BOOT = """\
set -eu
mount --make-rprivate /
hostname {name}
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
mkdir /sys/fs/cgroup/freezer
mount -t cgroup -o freezer freezer /sys/fs/cgroup/freezer || true
mount -t tmpfs shm /dev/shm
{private_tmp}
mount --bind {folder}/hosts /etc/hosts
mkdir -p /run/sshd
export SLURM_CONF={folder}/slurm.conf
echo mounted
read wired
{wiring}
cd /
exec </dev/null >&2
{program}
set +eu
while :; do wait; read -r -t 3600 <>{folder}/{name}.pipe; done
"""
