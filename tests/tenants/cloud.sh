#!/bin/sh
# A node with ports of three tenants, in namespaces of its own: runs vigia-exporter and vigia-probe there and keeps what they say.
# Usage: cloud.sh BIN FOLDER   (FOLDER has exporter.yaml, probe.yaml and ports.yaml; NAME.page and NAME.type are written there)
set -eu
bin=$1
cd "$2"
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
for port in red blue infra; do
  ip link add "tap-$port" type veth peer name "vm-$port"
  ip link set "tap-$port" up
  ip link set "vm-$port" up
done
"$bin/vigia-exporter" --config=exporter.yaml --tier=detail > exporter.log 2>&1 &
exporter=$!
"$bin/vigia-probe" --config=probe.yaml > probe.log 2>&1 &
probe=$!
keep() { # NAME URL PATTERN: the page, once it has so many lines with the pattern as tenants have
  until curl --silent --fail --noproxy '*' "$2" > "$1.txt" && [ "$(grep -c "$3" "$1.txt")" -ge 2 ]; do
    sleep 0.2
  done
  curl --silent --fail --noproxy '*' --output "$1.page" --write-out '%{content_type}' \
    --header 'Accept: application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited, text/plain; version=0.0.4; q=0.5' \
    "$2" > "$1.type"
}
keep exporter http://127.0.0.1:9872/metrics '^vigia_port_info{.*port="[12]f0[ab]"'
keep probe http://127.0.0.1:9871/metrics '^vigia_probe_rtt_seconds_count{.*tenant="[^_].*} [1-9][0-9]'
kill "$exporter" "$probe"
wait
