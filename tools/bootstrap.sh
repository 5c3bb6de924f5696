#!/bin/sh
# Installs what Vigia needs to run (run) or to be tested (test) and is missing:
# Debian packages, uv and the Python environment. Go modules come with the build.
# Usage: tools/bootstrap.sh run|test|peers; peers are other programs, which make bench measures beside Vigia's.
set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8
RUN_PACKAGES="openvswitch-switch iproute2 iputils-ping ethtool nftables iperf3 util-linux procps kmod
  charon-systemd strongswan-swanctl libcharon-extra-plugins libstrongswan-standard-plugins
  libpango-1.0-0 libpangoft2-1.0-0 fonts-dejavu-core
  prometheus prometheus-alertmanager prometheus-node-exporter"
TEST_PACKAGES="tcpdump fping chrony linuxptp fio hpcc victoria-metrics systemd clang llvm libbpf-dev linux-libc-dev gcc libc6-dev ovn-central chromium postgresql mmdebstrap qemu-user conntrack curl faketime"
PEER_PACKAGES="fping prometheus-node-exporter prometheus-blackbox-exporter fastnetmon"

fail() { echo "bootstrap: $*" >&2; exit 1; }
now() { date +%s.%N; }
START=$(now)
step() { LC_ALL=C awk -v a="$START" -v b="$(now)" -v t="$*" 'BEGIN { printf "%7.2f s  %s\n", b - a, t }'; }

case "${1:-}" in
  run) packages=$RUN_PACKAGES ;;
  test)
    packages="$RUN_PACKAGES $TEST_PACKAGES"
    # Debian's packages stand in the way of Docker's own: only what is missing.
    [ -x /usr/bin/dockerd ] || [ -x /usr/sbin/dockerd ] || packages="$packages docker.io"
    [ -x /usr/bin/docker-compose ] || packages="$packages docker-compose"
    ;;
  peers) packages=$PEER_PACKAGES ;;
  *) echo "usage: tools/bootstrap.sh run|test|peers" >&2; exit 2 ;;
esac

missing() {
  for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed$' || echo "$p"
  done
}

# Packages must not start their services: Vigia starts its own, with its own configuration.
apt_install() {
  [ "$(id -u)" = 0 ] || fail "packages are missing: $*; run as root, or: apt-get install $*"
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    ours=yes
  fi
  log=$(mktemp)
  again='Acquire::Retries=5'
  if ! { DEBIAN_FRONTEND=noninteractive apt-get -q -o "$again" update &&
         DEBIAN_FRONTEND=noninteractive apt-get -q -y -o "$again" install --no-install-recommends "$@"; } > "$log" 2>&1; then
    tail -n 20 "$log" >&2; rm -f "$log"
    fail "apt-get could not install: $*"
  fi
  rm -f "$log"
  if [ "${ours:-}" = yes ]; then
    rm -f "$policy"; trap - EXIT INT TERM HUP
    # Where systemd runs, the new services must not come up at the next boot either.
    if [ -d /run/systemd/system ]; then
      for p in "$@"; do
        case $p in
          prometheus | prometheus-*) systemctl disable --quiet "$p" || true ;;
          openvswitch-switch | ovn-central) systemctl disable --quiet "$p" || true ;;
          charon-systemd) systemctl disable --quiet strongswan || true ;;
          fastnetmon) systemctl disable --quiet "$p" || true ;;
          docker.io) systemctl disable --quiet docker.service docker.socket containerd.service || true ;;
        esac
      done
    fi
  fi
}

command -v dpkg-query > /dev/null || fail "this is not a Debian system; install by hand: $(echo $packages), then run make build"
lacking=$(missing $packages | tr '\n' ' ')
if [ -n "$lacking" ]; then
  apt_install $lacking
  step "installed packages: $lacking"
fi

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "python3 is older than 3.11"
if [ "$(.build/uv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$UV_VERSION" ]; then
  rm -rf .build/uv
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install python3-venv
    step "installed packages: python3-venv"
  fi
  python3 -m venv .build/uv
  .build/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  step "installed uv $UV_VERSION"
fi

want=$(cat VERSION uv.lock pyproject.toml */pyproject.toml internal/*/pyproject.toml exporters/*/pyproject.toml | cksum)
if [ "$(cat .venv/.vigia 2>/dev/null || true)" != "$want" ]; then
  UV_PYTHON_DOWNLOADS=never .build/uv/bin/uv sync --quiet --frozen --compile-bytecode --group docs --python "$(command -v python3)" \
    || fail "the Python environment could not be made; see above"
  echo "$want" > .venv/.vigia
  step "made the Python environment"
fi

command -v go > /dev/null || fail "go is missing; install Go $(sed -n 's/^go //p' go.mod) or later from https://go.dev/dl"
