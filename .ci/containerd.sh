#!/usr/bin/env bash
# Puts containerd of three Debian suites (1.6, 1.7 and the newest 2.x), runc and a static busybox below target/containerd, for the tests
# that drive the node agent against a real container runtime. Nothing is installed into the system.
# The packages come from the archive that the machine's own apt is configured for, and are verified with
# Debian's keyring. Prints a sentence and ends with 1 if they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
out="$PWD/target/containerd"
[ -e "$out/complete" ] && exit 0
fail() { echo "containerd for the tests cannot be had: $*" >&2; exit 1; }
command -v apt-get >/dev/null || fail "this is no Debian"
archive=$(apt-get indextargets --format '$(SITE) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    awk '$2 !~ /security/ { print $2; exit }')
[ -n "$archive" ] || archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    awk '/debian\/?$/ { print; exit }')
[ -n "$archive" ] || fail "apt is configured for no archive of Debian"
apt="$out/apt"
rm -rf "$out"
mkdir -p "$apt"/etc "$apt"/lists/partial "$apt"/cache "$apt"/dl
: >"$apt/status"
for suite in bookworm trixie sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main"
done >"$apt/etc/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$apt/etc/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
    -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
apt-get "${options[@]}" update || fail "the lists of packages cannot be read"
version() { # PACKAGE SUITE
    apt-cache "${options[@]}" madison "$1" | awk -F'|' -v suite="$2/main" \
        '$3 ~ suite && $3 ~ /Packages/ { gsub(/ /, "", $2); print $2; exit }'
}
wanted=(runc="$(version runc bookworm)" busybox-static="$(version busybox-static bookworm)")
for suite in bookworm trixie sid; do wanted+=(containerd="$(version containerd "$suite")"); done
(cd "$apt/dl" && apt-get "${options[@]}" download "${wanted[@]}") || fail "a package cannot be read"
for file in "$apt"/dl/containerd_*.deb; do
    # 2.1.9+ds1-5 is in the folder 2.1; tests of 2.x take the newest one that is there.
    release=$(dpkg-deb --field "$file" Version | sed 's/^[0-9]*://' | cut -d. -f1,2)
    dpkg-deb --extract "$file" "$out/$release"
    for extra in "$apt"/dl/runc_*.deb "$apt"/dl/busybox-static_*.deb; do
        dpkg-deb --extract "$extra" "$out/$release"
    done
done
rm -rf "$apt"
# What a suite has may be another release one day. Then the tests that need the one that is missing say so.
for release in 1.6 1.7 2; do
    compgen -G "$out/$release*" >/dev/null ||
        echo "NOTE: no suite has containerd $release: there are $(cd "$out" && echo *)" >&2
done
touch "$out/complete"
