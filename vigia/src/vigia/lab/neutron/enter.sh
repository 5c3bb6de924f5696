# The programs' own view of files: the cached packages above the machine's, read-only. ROOT is set by vigia lab up.
mount --make-rprivate /
mount -t overlay -o "lowerdir=$ROOT/usr:/usr" overlay /usr
mount -t sysfs sysfs /sys
