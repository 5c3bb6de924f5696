{{/* What the probers of a node probe: the nodes' own network, that of pods, what is between the two, and Services. */}}

{{/* Whether both networks are measured, and so what is between them can be. */}}
{{- define "vigia.bothNetworks" -}}
{{ and .Values.identity.enabled .Values.probe.networks.host.enabled .Values.probe.networks.pods.enabled }}
{{- end }}

{{/* Whether second networks of the pods' prober are measured: others are found by discovery. */}}
{{- define "vigia.furtherNetworks" -}}
{{ and .Values.identity.enabled .Values.probe.networks.pods.enabled .Values.probe.networks.further.enabled }}
{{- end }}

{{/* What Multus is asked for, in its short form: each interface is called as its network where that fits into 15
characters and no other is called so, else net and a number. */}}
{{- define "vigia.attachments" -}}
{{- $used := dict "eth0" true "lo" true }}
{{- $asked := list }}
{{- $attachments := .Values.probe.networks.further.attachments }}
{{- range $attachments }}
{{- $given := splitn "@" 2 . }}
{{- if $given._1 }}
{{- if hasKey $used $given._1 }}{{ fail (printf "probe.networks.further.attachments: %q: the interface %s is taken; write another after @" . $given._1) }}{{ end }}
{{- $_ := set $used $given._1 true }}
{{- end }}
{{- end }}
{{- range $i, $one := $attachments }}
{{- $given := splitn "@" 2 $one }}
{{- $interface := $given._1 | default "" }}
{{- if not $interface }}
{{- $interface = last (splitList "/" $one) }}
{{- if or (gt (len $interface) 15) (hasKey $used $interface) }}{{ $interface = printf "net%d" (add1 $i) }}{{ end }}
{{- if hasKey $used $interface }}{{ fail (printf "probe.networks.further.attachments: %q: the interface %s is taken; write another after @" $one $interface) }}{{ end }}
{{- $_ := set $used $interface true }}
{{- end }}
{{- $asked = append $asked (printf "%s@%s" $given._0 $interface) }}
{{- end }}
{{- join "," $asked }}
{{- end }}

{{/* Whether there is a Service that the prober of each node answers itself. */}}
{{- define "vigia.localService" -}}
{{ and (eq (include "vigia.bothNetworks" .) "true") (or .Values.probe.services.clusterIP .Values.probe.services.nodePort) }}
{{- end }}

{{/* Whether the cluster's DNS, and its API server, are probed past their Services as well. */}}
{{- define "vigia.dnsEndpoints" -}}
{{- with .Values.probe }}{{ and .twins.enabled .dns.enabled .dns.endpoints.enabled (or .networks.host.enabled .networks.pods.enabled) }}{{ end }}
{{- end }}

{{- define "vigia.apiEndpoint" -}}
{{- with .Values.probe }}{{ and .twins.enabled .apiServer.enabled (ne .apiServer.endpoint "") }}{{ end }}
{{- end }}

{{/* The Service by whose name probers find the pods of the cluster's DNS; releases of other namespaces have others. */}}
{{- define "vigia.dnsService" -}}
{{ printf "%s-dns-%s" (include "vigia.fullname" .) (.Release.Namespace | sha256sum | trunc 8) }}
{{- end }}

{{/* Paths of a prober: dict "root" $ "host" BOOL. What is auto in the pods' network is found by the prober in the host's. */}}
{{- define "vigia.probePaths" -}}
{{- $probe := .root.Values.probe }}
{{- $host := $probe.networks.host.path }}
{{- $pods := deepCopy $probe.networks.pods.path }}
{{- if or (eq $pods.dataplane "auto") (eq $pods.encap "auto") }}
{{- if ne (include "vigia.bothNetworks" .root) "true" }}
{{- range $key := list "dataplane" "encap" }}{{ if eq (get $pods $key) "auto" }}{{ $_ := set $pods $key "unknown" }}{{ end }}{{ end }}
{{- else if .host }}
{{- $_ := set $pods "found_by" (list (printf "/run/vigia/site/%s-probe-pods.json" (include "vigia.fullname" .root))) }}
{{- end }}
{{- end }}
{{- $paths := list }}
{{- if .host }}
{{- $paths = append $paths $host }}
{{- if eq (include "vigia.bothNetworks" .root) "true" }}
{{- $paths = append $paths $pods }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "host-to-pods")) }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "local-pods" "placement" "local")) }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "service" "placement" "local" "mode" "service")) }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "nodeport" "mode" "nodeport")) }}
{{- /* Those that the prober in the pods' network measures. */}}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-host")) }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-service" "mode" "service")) }}
{{- end }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $host) (dict "name" "host-to-service" "mode" "service")) }}
{{- if eq (include "vigia.dnsEndpoints" .root) "true" }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "host-to-dns")) }}
{{- end }}
{{- if eq (include "vigia.apiEndpoint" .root) "true" }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $host) (dict "name" "host-to-api-server")) }}
{{- end }}
{{- else }}
{{- $paths = append $paths $pods }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-host")) }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-service" "mode" "service")) }}
{{- if eq (include "vigia.furtherNetworks" .root) "true" }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $probe.networks.further.path) (dict "further" true)) }}
{{- end }}
{{- end }}
{{- if or (not .host) (eq (include "vigia.bothNetworks" .root) "true") }}
{{- if eq (include "vigia.dnsEndpoints" .root) "true" }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-dns")) }}
{{- end }}
{{- if eq (include "vigia.apiEndpoint" .root) "true" }}
{{- $paths = append $paths (mustMergeOverwrite (deepCopy $pods) (dict "name" "pods-to-api-server")) }}
{{- end }}
{{- end }}
{{- toYaml $paths }}
{{- end }}

{{/* Classes: those of the values, and of what a cluster lives by. */}}
{{- define "vigia.probeClasses" -}}
{{- $probe := .Values.probe }}
{{- $classes := $probe.classes }}
{{- with $probe.dns }}{{ if .enabled }}
{{- $classes = append $classes (dict "name" "cluster-dns" "protocol" "dns" "interval" .interval "options" (dict "query_name" .query)) }}
{{- end }}{{ end }}
{{- with $probe.apiServer }}{{ if .enabled }}
{{- $classes = append $classes (dict "name" "api-server" "protocol" "http" "interval" .interval "options" (dict
  "scheme" "https" "path" .path "tls_ca_file" "/etc/vigia-cluster/ca.crt" "tls_server_name" "kubernetes.default.svc")) }}
{{- end }}{{ end }}
{{- toYaml $classes }}
{{- end }}

{{/* Targets that are no nodes, each beside what it costs to reach them without a Service: dict "root" $ "host" BOOL. */}}
{{- define "vigia.probeTargets" -}}
{{- $probe := .root.Values.probe }}
{{- $from := ternary "host" "pods" .host }}
{{- $path := printf "%s-to-service" $from }}
{{- $targets := list }}
{{- $past := dict }}
{{- with $probe.dns.endpoints }}{{ if eq (include "vigia.dnsEndpoints" $.root) "true" }}
{{- $_ := set $past "dns" (dict "path" (printf "%s-to-dns" $from) "address" (printf "%s.%s.svc:%d" (include "vigia.dnsService" $.root) .namespace (int .port))) }}
{{- end }}{{ end }}
{{- if eq (include "vigia.apiEndpoint" .root) "true" }}
{{- $_ := set $past "apiServer" (dict "path" (printf "%s-to-api-server" $from) "address" $probe.apiServer.endpoint) }}
{{- end }}
{{- range list (dict "key" "dns" "name" "cluster-dns" "address" $probe.dns.server) (dict "key" "apiServer" "name" "api-server" "address" $probe.apiServer.address) }}
{{- if (index $probe .key).enabled }}
{{- $one := dict "dst" .name "path" $path "tenant" "_infra" "probe" .name "address" .address }}
{{- with get $past .key }}
{{- $targets = append $targets (mustMergeOverwrite (deepCopy $one) .) }}
{{- $_ := set $one "twin" .path }}
{{- end }}
{{- $targets = append $targets $one }}
{{- end }}
{{- end }}
{{- toYaml $targets }}
{{- end }}

{{/* How nodes are found and probed: dict "root" $ "host" BOOL "name" NAME OF THE PROBER. */}}
{{- define "vigia.probeDiscovery" -}}
{{- $probe := .root.Values.probe }}
{{- $both := eq (include "vigia.bothNetworks" .root) "true" }}
{{- $hostPort := int $probe.networks.host.port }}
{{- $podsPort := int $probe.networks.pods.port }}
{{- $base := ternary $probe.networks.host.path.name $probe.networks.pods.path.name .host }}
{{- $targets := list }}
{{- $own := list }}
{{- $host := .host }}
{{- $further := eq (include "vigia.furtherNetworks" .root) "true" }}
{{- range $probe.classes }}
{{- $stamp := eq .protocol "stamp" }}
{{- $twins := and $both $probe.twins.enabled (has .protocol (list "stamp" "icmp")) }}
{{- $one := dict "path" $base "tenant" "_infra" "probe" .name }}
{{- if ne .protocol "icmp" }}{{ $_ := set $one "port" (ternary $hostPort $podsPort $host) }}{{ end }}
{{- if and $host $twins }}
{{- $targets = append $targets $one }}
{{- $targets = append $targets (dict "path" "host-to-pods" "tenant" "_infra" "probe" .name "at" "pods" "twin" $base) }}
{{- else if $twins }}
{{- $targets = append $targets (mustMergeOverwrite (deepCopy $one) (dict "twin" "pods-to-host")) }}
{{- $targets = append $targets (dict "path" "pods-to-host" "tenant" "_infra" "probe" .name "at" "host") }}
{{- else }}
{{- $targets = append $targets $one }}
{{- end }}
{{- if and (not $host) $further (has .protocol (list "stamp" "icmp")) }}
{{- $net := mustMergeOverwrite (deepCopy $one) (dict "path" $probe.networks.further.path.name) }}
{{- if $twins }}{{ $_ := set $net "twin" "pods-to-host" }}{{ end }}
{{- $targets = append $targets $net }}
{{- end }}
{{- if and $host $both $stamp $probe.services.nodePort }}
{{- $targets = append $targets (dict "path" "nodeport" "tenant" "_infra" "probe" .name "at" "nodeport" "twin" $base) }}
{{- end }}
{{- if and $host $both $stamp $probe.services.clusterIP }}
{{- $own = append $own (dict "path" "local-pods" "tenant" "_infra" "probe" .name "at" "pods") }}
{{- $own = append $own (dict "path" "service" "tenant" "_infra" "probe" .name "at" "service" "twin" "local-pods") }}
{{- end }}
{{- end }}
{{- $files := list (printf "/run/vigia/site/%s.json" .name) }}
{{- $all := list (dict
  "files" $files "refresh" "10s" "per_node" (int $probe.mesh.perNode) "per_zone" (int $probe.mesh.perZone) "within" $probe.mesh.within
  "show" $probe.mesh.show "targets" $targets) }}
{{- if $own }}
{{- $all = append $all (dict "files" $files "refresh" "10s" "own" true "targets" $own) }}
{{- end }}
{{- toYaml $all }}
{{- end }}
