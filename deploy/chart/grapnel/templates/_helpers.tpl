{{/* The reference of the image: by digest where one is given. */}}
{{- define "grapnel.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Labels of everything that the chart makes. */}}
{{- define "grapnel.labels" -}}
app.kubernetes.io/name: grapnel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels by which the pods of a part are found: of (list . "controller"). They never change. */}}
{{- define "grapnel.selector" -}}
app.kubernetes.io/name: grapnel
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
The objects of a file of deploy/rbac, in the namespace and with the labels of this release: of (list . "operator").
The Namespace is left out: helm makes it, or a person.
*/}}
{{- define "grapnel.rbac" -}}
{{- $root := index . 0 -}}
{{- range regexSplit "(?m)^---\\s*$" ($root.Files.Get (printf "files/rbac/%s.yaml" (index . 1))) -1 -}}
{{- $object := fromYaml . -}}
{{- if and $object.kind (ne $object.kind "Namespace") -}}
{{- if eq (default "" $object.metadata.namespace) "grapnel-system" -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $_ := set $object.metadata "labels" (include "grapnel.labels" $root | fromYaml) -}}
{{- range $object.subjects -}}
{{- if eq (default "" .namespace) "grapnel-system" -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- if and (eq .kind "ServiceAccount") (eq .name "grapnel-controller") -}}
{{- $_ := set . "name" $root.Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}
{{- if eq $object.kind "ServiceAccount" -}}
{{- if eq $object.metadata.name "grapnel-controller" -}}
{{- $_ := set $object.metadata "name" $root.Values.serviceAccount.name -}}
{{- with $root.Values.serviceAccount.annotations -}}
{{- $_ := set $object.metadata "annotations" . -}}
{{- end -}}
{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{ end -}}
{{- end -}}
{{- end -}}
