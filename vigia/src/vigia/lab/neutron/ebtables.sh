#!/bin/sh
# ebtables 1.8.9 of Debian 12, but for -D of a rule with --among-src: besides the rule's number it sends the kernel that
# rule's set of addresses, which nothing uses then, and the kernel refuses both ("RULE_DELETE failed (Invalid argument)",
# Linux 6.18). neutron-linuxbridge-agent deletes such a rule at each change of a port, tries again for ever, and does nothing
# else from then on. By number it can be deleted.
set -eu
real=${EBTABLES:-/usr/sbin/ebtables-nft}
case " $* " in
*' -D '*' --among-src '*) ;;
*) exec "$real" "$@" ;;
esac
table=filter rest=$*
case " $* " in *' -t nat '*) table=nat ;; esac
rest=${rest#*-D }
chain=${rest%% *} rule=${rest#* }
number=$("$real" -t "$table" --concurrent -L "$chain" | awk -v rule="$rule" '
	/^-/ { n++; sub(/ +$/, ""); if ($0 == rule) { print n; exit } }')
if [ -z "$number" ]; then
	exec "$real" "$@"
fi
exec "$real" -t "$table" --concurrent -D "$chain" "$number"
