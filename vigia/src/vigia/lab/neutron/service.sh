# One program, kept running. Set by vigia lab up: LAB ROOT MACHINE, and LIBVIRT for what has libvirt's files.
set -eu
. "$LAB/enter.sh"
[ -z "${LIBVIRT:-}" ] || . "$LAB/libvirt.sh"
. "$LAB/supervise.sh"
supervise "$@"
while :; do wait || true; done
