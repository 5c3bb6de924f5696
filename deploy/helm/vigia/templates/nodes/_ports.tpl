{{/* What exporter and enforcer have in common: where ports and their tenants are found, and the programs at them. */}}
{{- define "vigia.portsConfig" -}}
node: ${NODE_NAME}
ports_file: {{ ternary "/run/vigia/ports-on-node/" "/etc/vigia/" (ne .Values.ports.hostFile "") }}{{ .Values.ports.hostFile | default "ports.yaml" | base }}
{{- if .Values.ports.cni.enabled }}
cni_results_dir: {{ .Values.ports.cni.resultsDir }}
{{- end }}
{{- if .Values.ports.openvswitch.enabled }}
ovsdb: unix:{{ .Values.ports.openvswitch.runDir }}/db.sock
{{- end }}
bpf:
  pin_dir: {{ .Values.ports.pinDir }}
  max_ports: {{ int .Values.ports.maxPorts }}
{{- end }}

{{- define "vigia.portsMounts" -}}
- {name: config, mountPath: /etc/vigia, readOnly: true}
- {name: bpffs, mountPath: /sys/fs/bpf}
{{- if .Values.ports.cni.enabled }}
- {name: cni, mountPath: {{ .Values.ports.cni.resultsDir }}, readOnly: true}
{{- end }}
{{- if .Values.ports.openvswitch.enabled }}
- {name: openvswitch, mountPath: {{ .Values.ports.openvswitch.runDir }}}
{{- end }}
{{- if .Values.ports.hostFile }}
- {name: ports, mountPath: /run/vigia/ports-on-node, readOnly: true}
{{- end }}
{{- end }}

{{- define "vigia.portsVolumes" -}}
- name: bpffs
  hostPath: {path: /sys/fs/bpf, type: Directory}
{{- if .Values.ports.cni.enabled }}
- name: cni
  hostPath: {path: {{ .Values.ports.cni.resultsDir }}, type: DirectoryOrCreate} # the first pod's plugin makes it
{{- end }}
{{- if .Values.ports.openvswitch.enabled }}
- name: openvswitch
  hostPath: {path: {{ .Values.ports.openvswitch.runDir }}, type: Directory}
{{- end }}
{{- if .Values.ports.hostFile }}
- name: ports
  hostPath: {path: {{ dir .Values.ports.hostFile }}, type: Directory}
{{- end }}
{{- end }}

{{/* Root without the rights of root: the pins below the BPF file system and CNI's results, and the sockets of Open vSwitch and the kubelet are root's. */}}
{{- define "vigia.portsPodSecurity" -}}
runAsUser: 0
runAsGroup: 0
seccompProfile: {{- toYaml .Values.ports.seccompProfile | nindent 2 }}
{{- end }}

{{- define "vigia.portsContainerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: {{ toJson .add }}
{{- end }}
