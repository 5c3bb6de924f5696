{{/* The groups of a file of rules as JSON in a list, without the alerts that are left out. */}}
{{- define "vigia.ruleGroups" -}}
{{- $groups := list }}
{{- range (.text | replace "job=\"node\"" (printf "job=%q" .root.Values.rules.nodeExporterJob) | fromYaml).groups }}
{{- $kept := list }}
{{- range .rules }}
{{- if not (has (.alert | default "") $.root.Values.rules.disabled) }}{{ $kept = append $kept . }}{{ end }}
{{- end }}
{{- if $kept }}{{ $groups = append $groups (merge (dict "rules" $kept) (omit . "rules")) }}{{ end }}
{{- end }}
{{- toJson $groups }}
{{- end }}
