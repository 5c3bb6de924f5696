# The programs' own view of files: the cached packages above the machine's, read-only, and above these what had to be
# mended in them. LAB and ROOT are set by vigia lab up.
mount --make-rprivate /
mount -t overlay -o "lowerdir=$LAB/mended:$ROOT/usr:/usr" overlay /usr
mount -t sysfs sysfs /sys
