# supervise PROGRAM ARGUMENT...: keeps a program running until the machine ends. While the file
# $LAB/hold/MACHINE-PROGRAM is there, it is not started again. Read by control.sh and node.sh.
supervise() {
  what=$MACHINE-$(basename "$1")
  while :; do
    # However it ended: the scripts stop at what fails, this must not.
    [ -e "$LAB/hold/$what" ] || "$@" >> "$LAB/log/$what.log" 2>&1 || true
    sleep 1
  done &
}

# The first process of a namespace gets no signal that it has not asked for; its end ends all others.
trap 'exit 0' TERM INT HUP
