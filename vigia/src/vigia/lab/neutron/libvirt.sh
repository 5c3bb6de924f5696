# libvirt's own view of files, above the programs': its folders are those below LIBVIRT, whatever the machine has there, and
# its user is one that the machine need not have. Of /run it sees nothing but them and the lab: no systemd, D-Bus or udev
# of the machine's that it would tell of its guests. Read by service.sh; LAB and LIBVIRT are set by vigia lab up.
own=${LAB%/*}
for folder in etc var; do
  mount -t overlay -o "lowerdir=$LIBVIRT/places/$folder:/$folder" overlay "/$folder"
done
mount --bind "$LIBVIRT/etc" /etc/libvirt
for folder in cache lib log; do
  mount --bind "$LIBVIRT/$folder" "/var/$folder/libvirt"
done
mkdir -p "$LIBVIRT/places$own"
mount --bind "$own" "$LIBVIRT/places$own"
mount --bind "$LIBVIRT/run" "$LIBVIRT/places/run/libvirt"
mount --rbind "$LIBVIRT/places/run" /run
# At its start it asks each QEMU what it can, for seconds; nobody runs this one.
[ ! -e /usr/bin/qemu-system-i386 ] || mount --bind /dev/null /usr/bin/qemu-system-i386
