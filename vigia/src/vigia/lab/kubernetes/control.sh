# The first process of the control plane's machine. Set by vigia lab up: LAB DATA BIN ROOT API SERVICES.
set -eu
MACHINE=control
mount --make-rprivate /
mount -t proc proc /proc
hostname control
. "$LAB/supervise.sh"
P=$LAB/pki

supervise "$ROOT/usr/bin/etcd" --data-dir "$DATA/etcd" --unsafe-no-fsync \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
supervise "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address="$API" --secure-port=6443 \
  --tls-cert-file="$P/apiserver.crt" --tls-private-key-file="$P/apiserver.key" --client-ca-file="$P/ca.crt" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --service-cluster-ip-range="$SERVICES" \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$P/accounts.pub" --service-account-signing-key-file="$P/accounts.key" \
  --kubelet-client-certificate="$P/kubelet-client.crt" --kubelet-client-key="$P/kubelet-client.key" --kubelet-certificate-authority="$P/ca.crt" \
  --kubelet-preferred-address-types=InternalIP --proxy-client-cert-file="$P/front-proxy.crt" --proxy-client-key-file="$P/front-proxy.key" \
  --requestheader-client-ca-file="$P/ca.crt" --requestheader-allowed-names=front-proxy-client --requestheader-username-headers=X-Remote-User \
  --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-
# The others end at once where the API has not made its roles yet.
until "$BIN/kubectl" --kubeconfig "$P/admin.conf" get --raw /readyz > /dev/null 2>&1; do sleep 0.3 & wait $!; done
supervise "$BIN/kube-controller-manager" --kubeconfig="$P/controllers.conf" --authentication-kubeconfig="$P/controllers.conf" \
  --authorization-kubeconfig="$P/controllers.conf" --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials \
  --service-account-private-key-file="$P/accounts.key" --root-ca-file="$P/ca.crt" --cluster-signing-cert-file="$P/ca.crt" \
  --cluster-signing-key-file="$P/ca.key" --allocate-node-cidrs=false --node-monitor-grace-period=40s
supervise "$BIN/kube-scheduler" --kubeconfig="$P/scheduler.conf" --authentication-kubeconfig="$P/scheduler.conf" \
  --authorization-kubeconfig="$P/scheduler.conf" --bind-address=127.0.0.1 --leader-elect=false
while :; do wait || true; done
