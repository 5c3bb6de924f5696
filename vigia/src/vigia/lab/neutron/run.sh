# One command with the programs' view of files, to its end. Set by vigia lab: LAB ROOT.
set -eu
. "$LAB/enter.sh"
exec "$@"
