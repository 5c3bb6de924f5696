{{/* The release's name, at most 40 characters: the longest suffix of an object is 23. */}}
{{- define "vigia.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "vigia" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-vigia" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Name of a component's objects: dict "root" $ "component" NAME. */}}
{{- define "vigia.name" -}}
{{ include "vigia.fullname" .root }}-{{ .component }}
{{- end }}

{{- define "vigia.selector" -}}
app.kubernetes.io/name: vigia
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "vigia.labels" -}}
{{ include "vigia.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: vigia
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "vigia.metadata" -}}
name: {{ include "vigia.name" . }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "vigia.labels" . | nindent 2 }}
{{- end }}

{{/* One of Vigia's own images. */}}
{{- define "vigia.image" -}}
{{- $v := .root.Values.image -}}
image: {{ printf "%s/%s:%s" $v.repository .image ($v.tag | default .root.Chart.AppVersion) }}
imagePullPolicy: {{ $v.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError # kubectl describe says why it ended
{{- end }}

{{- define "vigia.pullSecrets" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What every container may not do. */}}
{{- define "vigia.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "vigia.restrictedPod" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* How a pod is scheduled: dict of nodeSelector, affinity, tolerations. */}}
{{- define "vigia.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How pods of every node are scheduled and replaced. */}}
{{- define "vigia.onNodes" -}}
{{- include "vigia.scheduling" .Values.nodes }}
{{- if .Values.priorityClass.name }}
priorityClassName: {{ .Values.priorityClass.name }}
{{- else if .Values.priorityClass.create }}
priorityClassName: {{ include "vigia.fullname" . }}-node
{{- end }}
{{- end }}

{{/* Names and addresses of the node, for the configuration and the command line. */}}
{{- define "vigia.nodeEnvironment" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: HOST_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{/* Probes of the kubelet: dict "port" NAME, and "host" for pods in the host's network. */}}
{{- define "vigia.health" -}}
startupProbe:
  httpGet: {path: /-/healthy, port: {{ .port }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /-/healthy, port: {{ .port }}}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /-/ready, port: {{ .port }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* The ConfigMap that vigia-identity writes, and the kubelet brings to the nodes. */}}
{{- define "vigia.siteVolume" -}}
- name: site
  configMap: {name: {{ include "vigia.fullname" . }}-site, defaultMode: 0444}
{{- end }}

{{/* Whether guarantees are objects of the cluster; uplinks with schedulers need more than these say. */}}
{{- define "vigia.guarantees" -}}
{{ and .Values.identity.enabled .Values.identity.guarantees.enabled .Values.enforcer.enabled (not .Values.enforcer.links) }}
{{- end }}

{{/* Whether people approve by annotations: the API server has to vouch for who they are, which it does from 1.30 on. */}}
{{- define "vigia.approvals" -}}
{{ and (eq (include "vigia.guarantees" .) "true") .Values.isolationAgent.enabled .Values.identity.approvals.enabled (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}
{{- end }}

{{/* Name of the Secret of a credential: dict "root" $ "secret" KEY OF secrets. */}}
{{- define "vigia.secretName" -}}
{{- $given := (index .root.Values.secrets .secret).existingSecret -}}
{{ $given | default (printf "%s-%s" (include "vigia.fullname" .root) (kebabcase .secret)) }}
{{- end }}

{{- define "vigia.prometheusUrl" -}}
{{- if .Values.prometheus.url -}}
{{ .Values.prometheus.url }}
{{- else if .Values.prometheus.enabled -}}
http://{{ include "vigia.fullname" . }}-prometheus.{{ .Release.Namespace }}.svc:9090
{{- else -}}
{{ fail "prometheus.url: is missing and prometheus.enabled is false; write the URL of your Prometheus, for example http://prometheus-operated.monitoring.svc:9090" }}
{{- end -}}
{{- end }}

{{- define "vigia.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "vigia.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
