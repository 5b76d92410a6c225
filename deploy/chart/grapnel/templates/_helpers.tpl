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
The account's token, of this pod alone and for an hour. That of automountServiceAccountToken is valid for a year, where the
API server has --service-account-extend-token-expiration, which is its default.
*/}}
{{- define "grapnel.tokenMount" -}}
- name: api-access
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}
{{- define "grapnel.tokenVolume" -}}
- name: api-access
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end -}}

{{/*
The objects of a file of deploy/rbac, in the namespace and with the labels of this release: of (list . "operator"), with
annotations for each of them as a third. The Namespace is left out: helm makes it, or a person.
*/}}
{{- define "grapnel.rbac" -}}
{{- $root := index . 0 -}}
{{- $given := . -}}
{{- range regexSplit "(?m)^---\\s*$" ($root.Files.Get (printf "files/rbac/%s.yaml" (index . 1))) -1 -}}
{{- $object := fromYaml . -}}
{{- if and $object.kind (ne $object.kind "Namespace") -}}
{{- if eq (default "" $object.metadata.namespace) "grapnel-system" -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $_ := set $object.metadata "labels" (include "grapnel.labels" $root | fromYaml) -}}
{{- if gt (len $given) 2 -}}
{{- $_ := set $object.metadata "annotations" (index $given 2) -}}
{{- end -}}
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
