#!/bin/sh
# Starts a node for tests: systemd as process 1 of its own namespaces, with containerd as a unit, on a root
# folder whose files and sockets can be used from outside. Ends when the node ends; whoever kills this
# kills the node. Its control groups are below one of its own, kata-node-PID with the PID of this, in every
# hierarchy: nodes that shared them would take each other's units away.
#
#   node.sh ROOT CONTAINERD    ROOT is made; CONTAINERD is one of the folders below target/containerd
set -eu
if [ "${3:-}" != inside ]; then
    groups=
    while IFS=: read -r _ controllers path; do
        case $controllers in
        '') if [ -d /sys/fs/cgroup/unified ]; then hierarchy=unified; else hierarchy=.; fi ;;
        # A new group of it has no processors, and systemd does without.
        cpuset) continue ;;
        *) hierarchy=${controllers#name=} ;;
        esac
        # What is not mounted is not shared, either.
        [ -d "/sys/fs/cgroup/$hierarchy" ] || continue
        group=$hierarchy${path%/}/kata-node-$$
        mkdir "/sys/fs/cgroup/$group"
        echo $$ >"/sys/fs/cgroup/$group/cgroup.procs"
        groups="$groups $group"
    done </proc/self/cgroup
    export groups
    exec unshare --pid --fork --mount --uts --ipc --cgroup --kill-child -- sh "$0" "$1" "$2" inside
fi
root=$1
packages=$2
mkdir -p "$root"
cd "$root"
mount --make-rprivate /
mkdir -p dev etc/systemd/system etc/containerd opt proc root run/lock run/systemd sys tmp usr var/lib var/log node
for link in bin lib lib32 lib64 sbin; do
    if [ -L "/$link" ] && [ ! -e "$link" ]; then cp -P "/$link" .; fi
done
[ -e etc/passwd ] || cp /etc/passwd /etc/group /etc/nsswitch.conf etc/
[ -e etc/ld.so.cache ] || cp /etc/ld.so.cache etc/
[ -e etc/machine-id ] || echo 0123456789abcdef0123456789abcdef >etc/machine-id
[ -e etc/hosts ] || echo '127.0.0.1 localhost' >etc/hosts
[ -e etc/resolv.conf ] || : >etc/resolv.conf
[ -e etc/os-release ] || echo ID=debian >etc/os-release
# What systemd would make by itself at some moment of its start.
[ -e etc/.pwd.lock ] || install -m 0600 /dev/null etc/.pwd.lock
[ -L etc/mtab ] || ln -s ../proc/self/mounts etc/mtab
[ -e etc/polkit-1 ] || { mkdir -p etc/polkit-1 && mkdir -m 0700 etc/polkit-1/rules.d; }
cat >etc/systemd/system/node.target <<'UNIT'
[Unit]
AllowIsolate=yes
Wants=containerd.service
UNIT
ln -sf node.target etc/systemd/system/default.target
[ -e etc/systemd/system/containerd.service ] || cat >etc/systemd/system/containerd.service <<'UNIT'
[Unit]
DefaultDependencies=no
# Tests restart it more often than people do.
StartLimitIntervalSec=0
[Service]
Type=notify
Environment=PATH=/node/bin:/node/sbin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/node/bin/containerd
KillMode=process
Delegate=yes
TimeoutStopSec=20
UNIT
mkdir -p node/bin node/sbin
mount --rbind "$root" "$root"
cd "$root"
for folder in usr sys; do mount --rbind "/$folder" "$folder"; done
if [ -e /dev/kvm ] || [ ! -e dev/kvm ]; then
    mount --rbind /dev dev
else
    # The machine has no KVM, and the test a stand-in, which cannot be put into the machine's /dev.
    mkdir -p devices
    mount -t tmpfs -o mode=0755 tmpfs devices
    cp -ax /dev/. devices/
    cp -a dev/kvm devices/
    for folder in pts shm; do mount --rbind "/dev/$folder" "devices/$folder"; done
    mount --move devices dev
fi
for group in $groups; do mount --bind "/sys/fs/cgroup/$group" "sys/fs/cgroup/${group%%/*}"; done
unset groups
mount --bind "$packages/usr/bin" node/bin
mount --bind "$packages/usr/sbin" node/sbin
# A mount point of its own, so that systemd mounts no other one over it: its sockets are used from outside.
mount --bind run run
# As on Debian and Ubuntu.
mount -o remount,bind,nosuid,nodev,noexec run
mount -t tmpfs tmpfs tmp
mkdir -p /sys/fs/cgroup/systemd
mkdir -p old
pivot_root . old
mount -t proc proc /proc
umount -l /old
export container=docker
exec /lib/systemd/systemd --system --log-target=console --show-status=false --unit=node.target
