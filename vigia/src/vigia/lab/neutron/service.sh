# One program, kept running. Set by vigia lab up: LAB ROOT MACHINE.
set -eu
. "$LAB/enter.sh"
. "$LAB/supervise.sh"
supervise "$@"
while :; do wait || true; done
