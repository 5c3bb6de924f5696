# The first process of a node. Set by vigia lab up: LAB DATA BIN ROOT NODE ADDRESS.
set -eu
MACHINE=$NODE
D=$DATA/$NODE
mkdir -p "$D/etc" "$D/etc-work" "$D/containerd" "$D/kubelet" "$D"/kubelet/lab-volumes/{1..4}
mount --make-rprivate /
hostname "$NODE"
mount -t proc proc /proc
# Knobs of the whole machine: the kubelet sees what it wants, and changes nothing.
for knob in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=$D/$(echo "${knob%%=*}" | tr / -)
  echo "${knob#*=}" > "$file"
  mount --bind "$file" "/proc/sys/${knob%%=*}"
done
# What is below /run and /var stays where it is, in folders of the node's own.
mount -t tmpfs tmpfs /mnt
mkdir /mnt/lab /mnt/data
mount --bind "$LAB" /mnt/lab
mount --bind "$DATA" /mnt/data
mount -t overlay -o "lowerdir=/etc,upperdir=/mnt/data/$NODE/etc,workdir=/mnt/data/$NODE/etc-work" overlay /etc
mount -t overlay -o "lowerdir=$ROOT/usr:/usr" overlay /usr
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var
mkdir -p "$LAB" "$DATA" /run/netns /run/lock /var/tmp /var/log/pods /var/log/containers /var/lib/containerd /var/lib/kubelet
ln -s /run /var/run
mount --move /mnt/lab "$LAB"
mount --move /mnt/data "$DATA"
mount --bind "$D/containerd" /var/lib/containerd
mount --bind "$D/kubelet" /var/lib/kubelet
umount /mnt
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
  mkdir "/sys/fs/cgroup/$c"
  case $c in systemd) option=none,name=systemd ;; *) option=$c ;; esac
  mount -t cgroup -o "$option" cgroup "/sys/fs/cgroup/$c"
done
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing 2> /dev/null || true
mount --make-rshared /

mkdir -p /etc/cni/net.d /etc/containerd
cp "$LAB/$NODE"/*.conflist /etc/cni/net.d/
echo "nameserver $DNS" > /etc/resolv.conf
: > /etc/resolv-node.conf
cat > /etc/containerd/config.toml <<'TOML'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "lab.local/pause:1"
disable_apparmor = true
restrict_oom_score_adj = true
cni = {bin_dir = "/usr/lib/cni", conf_dir = "/etc/cni/net.d", max_conf_num = 2}
TOML
. "$LAB/supervise.sh"
supervise containerd --log-level info
until ctr version > /dev/null 2>&1; do sleep 0.1 & wait $!; done
if [ ! -e "$D/imported" ]; then # the first boot
  ctr --namespace k8s.io images import "$DATA/images.tar"
  : > "$D/imported"
fi
supervise "$BIN/kubelet" --config="$LAB/$NODE/kubelet.yaml" --kubeconfig="$LAB/pki/$NODE.conf" --node-ip="$ADDRESS" --hostname-override="$NODE" --v=2
supervise "$BIN/kube-proxy" --config="$LAB/$NODE/proxy.yaml" --hostname-override="$NODE"
while :; do wait || true; done
